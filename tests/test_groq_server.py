"""The loopback server behaves as the Groq service does, seen with the real groq client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import groq
import pytest

from conftest import NO_CERTIFICATES, Answer, table
from groq_server import RPM, TPM, Call, GroqServer, Limits, Quota, Reply, score_reply

MODEL = "openai/gpt-oss-20b"


@contextmanager
def serving(answer: Answer, limits: Limits | None = None) -> Iterator[tuple[GroqServer, groq.Groq]]:
    http_client = groq.DefaultHttpxClient(verify=NO_CERTIFICATES)
    with (
        GroqServer(answer, limits=limits) as server,
        groq.Groq(api_key="any", base_url=server.url, max_retries=0, http_client=http_client) as client,
    ):
        yield server, client


MESSAGES: list[Any] = [{"role": "user", "content": "x" * 4_000}]


def test_a_completion_has_usage_and_the_headers_of_the_limits() -> None:
    limits = Limits(tokens_per_minute=6_000)
    with serving(lambda call: score_reply(4), limits) as (server, client):
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    reply = raw.parse()
    assert json.loads(reply.choices[0].message.content or "")["score"] == 4
    assert (reply.model, reply.system_fingerprint) == (MODEL, "fp_loopback")
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == 1_000
    assert raw.headers["x-ratelimit-limit-tokens"] == "6000"
    assert int(raw.headers["x-ratelimit-remaining-tokens"]) == 6_000 - reply.usage.total_tokens
    assert server.calls[0].headers["authorization"] == "Bearer any"
    assert server.status_counts == {200: 1}


def test_an_exception_in_the_tests_function_fails_the_test() -> None:
    def fail(call: Call) -> Reply:
        raise LookupError("unexpected request")

    failed = pytest.raises(groq.InternalServerError)
    with pytest.raises(LookupError, match=r"^unexpected request$"), serving(fail) as (_, client), failed:
        client.chat.completions.create(model=MODEL, messages=MESSAGES)


# Numbers and waiting times as Groq has sent them.
REFUSALS = {
    "tokens per minute": (Limits(None, 6_000), 5_034, 1_443, TPM, "4.77s", "5"),
    "requests per minute": (Limits(1), 10, 10, RPM, "1m0s", "60"),
}


@table("limits, used, requested, kind, wait, retry_after", REFUSALS)
def test_a_refusal_says_how_long_to_wait(
    limits: Limits, used: int, requested: int, kind: str, wait: str, retry_after: str
) -> None:
    quota = Quota(limits, now_s=0.0)
    assert quota.admit(used, 0.0) is None
    refusal = quota.admit(requested, 0.0)
    assert refusal is not None
    assert (refusal.status, dict(refusal.headers)["retry-after"]) == (429, retry_after)
    message = json.loads(refusal.body_for(Call(0, {"model": MODEL}, {}, 0.0)))["error"]["message"]
    assert message.startswith(f"Rate limit reached for model `{MODEL}` in organization `org_loopback` ")
    assert f"on {kind}: Limit" in message
    assert f"Please try again in {wait}. " in message
    if "tokens" in kind:
        assert f"Used {used}, Requested {requested}. " in message
    assert quota.admit(requested, float(retry_after)) is None
