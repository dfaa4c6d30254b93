"""The loopback server behaves as the Groq service does, seen with the real groq client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import groq
import httpx
import pytest
from groq.types.chat import ChatCompletion

import groq_server as loopback
from conftest import NO_CERTIFICATES, Answer, table
from groq_server import RPM, TPD, TPM, BatchScript, Call, GroqServer, Late, Limits, Quota, Reply, drop

MODEL = "openai/gpt-oss-20b"
SCORE = loopback.score_reply(4)


@contextmanager
def connect(url: str, timeout: float = 5.0, max_retries: int = 0) -> Iterator[groq.Groq]:
    http_client = groq.DefaultHttpxClient(verify=NO_CERTIFICATES)
    options: dict[str, Any] = {"timeout": timeout, "max_retries": max_retries, "http_client": http_client}
    with groq.Groq(api_key="any", base_url=url, **options) as client:
        yield client


@contextmanager
def serving(answer: Answer | Reply, **options: Any) -> Iterator[tuple[GroqServer, groq.Groq]]:
    function = answer if callable(answer) else lambda call: answer
    with GroqServer(function, **options) as server, connect(server.url) as client:
        yield server, client


def ask(client: groq.Groq) -> ChatCompletion:
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Grade this."}])


# ------------------------------------------------------------------ Calls


def test_a_completion_has_usage_and_the_headers_of_the_limits() -> None:
    limits = Limits(requests_per_day=14_400, tokens_per_minute=6_000)
    with serving(SCORE, limits=limits) as (server, client):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": "x" * 4_000}]
        )
    reply = raw.parse()
    assert json.loads(reply.choices[0].message.content or "")["score"] == 4
    assert (reply.model, reply.system_fingerprint) == (MODEL, "fp_loopback")
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == 1_000
    assert raw.headers["x-ratelimit-limit-requests"] == "14400"
    assert raw.headers["x-ratelimit-remaining-requests"] == "14399"
    assert int(raw.headers["x-ratelimit-remaining-tokens"]) >= 6_000 - reply.usage.total_tokens
    assert server.calls[0].headers["authorization"] == "Bearer any"
    assert server.status_counts == {200: 1}


ERRORS: dict[str, tuple[Reply, type[groq.APIStatusError], str]] = {
    "wrong key": (loopback.error(401, "invalid_key", "No"), groq.AuthenticationError, "invalid_key"),
    "overloaded": (loopback.error(503, "capacity", "No"), groq.InternalServerError, "capacity"),
    "model not found": (loopback.model_gone(), groq.NotFoundError, "model_not_found"),
    "model withdrawn": (loopback.decommissioned(), groq.BadRequestError, "model_decommissioned"),
    "rate limit": (loopback.rate_limited(), groq.RateLimitError, "rate_limit_exceeded"),
    "too large": (loopback.too_large(), groq.APIStatusError, "rate_limit_exceeded"),
    "no JSON": (loopback.json_validate_failed("{"), groq.BadRequestError, "json_validate_failed"),
}


@table("reply, kind, code", ERRORS)
def test_an_error_raises_the_exception_of_its_status(
    reply: Reply, kind: type[groq.APIStatusError], code: str
) -> None:
    with serving(reply) as (_, client), pytest.raises(kind) as caught:
        ask(client)
    body: Any = caught.value.body
    assert (caught.value.status_code, body["error"]["code"]) == (reply.status, code)


def test_bodies_that_are_no_completions() -> None:
    replies = [loopback.html_page(), loopback.empty_object(), loopback.malformed()]
    with serving(lambda call: replies[call.number]) as (_, client):
        page: Any = ask(client)
        assert page.startswith("<!doctype html>")
        assert ask(client).choices is None
        with pytest.raises(json.JSONDecodeError):
            ask(client)


def test_connections_that_fail() -> None:
    slow = loopback.drip(Reply(200, b"{    }"), every_s=0.04)
    replies = [drop(), loopback.hang(), slow, loopback.drip(SCORE, every_s=5), SCORE]
    with GroqServer(lambda call: replies[call.number]) as server, connect(server.url, 0.15) as client:
        for error in (groq.APIConnectionError, groq.APITimeoutError):
            with pytest.raises(error):
                ask(client)
        assert ask(client).choices is None  # takes longer than the timeout, which is per read
        with pytest.raises(groq.APITimeoutError):
            ask(client)
        ask(client)


def test_the_client_honours_retry_after() -> None:
    replies = [loopback.rate_limited(retry_after_s=0.1), SCORE]
    with GroqServer(lambda call: replies[call.number]) as server, connect(server.url, 5, 1) as client:
        ask(client)
    first, second = server.calls
    assert 0.08 < second.arrived_s - first.arrived_s < 0.37  # the client's own backoff is at least 0.375 s


def test_an_exception_in_the_tests_function_fails_the_test() -> None:
    def fail(call: Call) -> Reply:
        raise LookupError("unexpected request")

    failed = pytest.raises(groq.InternalServerError)
    with pytest.raises(LookupError, match="unexpected"), serving(fail) as (_, client), failed:
        ask(client)


# ------------------------------------------------------------------ Limits

# Numbers and waiting times as Groq has sent them.
REFUSALS: dict[str, tuple[Limits, int, int, str, str, str]] = {
    "tokens per minute": (Limits(None, 6_000), 5_034, 1_443, TPM, "4.77s", "5"),
    "tokens per day": (Limits(tokens_per_day=100_000), 97_050, 3_619, TPD, "9m38.016s", "579"),
    "a short minute": (Limits(None, 6_000, seconds_per_minute=6), 5_034, 1_443, TPM, "477ms", "0.5"),
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


def test_tokens_are_reserved_and_then_corrected() -> None:
    quota = Quota(Limits(tokens_per_minute=6_000, requests_per_day=1_000), now_s=0.0)
    quota.admit(5_000, 0.0)
    quota.correct(5_000, 600, 0.0)
    headers = quota.headers(0.0)
    assert headers["x-ratelimit-remaining-tokens"] == "5400"
    assert headers["x-ratelimit-reset-tokens"] == "6s"
    assert headers["x-ratelimit-reset-requests"] == "1m26.4s"
    refusal = quota.admit(6_001, 0.0)
    assert refusal is not None
    assert refusal.status == 413
    assert Quota(Limits(30, start_full=False), now_s=0.0).admit(1, 0.0) is not None


# ------------------------------------------------------------------ Batches


def submit(client: groq.Groq, count: int, name: str = "requests.jsonl") -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Grade this."}]}
    request = {"method": "POST", "url": loopback.ENDPOINT, "body": body}
    lines = [json.dumps({"custom_id": f"r{number}", **request}) for number in range(count)]
    stored = client.files.create(file=(name, "\n".join(lines).encode()), purpose="batch")
    return client.batches.create(
        input_file_id=str(stored.id), endpoint="/v1/chat/completions", completion_window="24h"
    ).id


def read_results(client: groq.Groq, file_id: str | None) -> dict[str, Any]:
    lines = client.files.content(str(file_id)).read().split(b"\n")
    return {row["custom_id"]: row for row in map(json.loads, lines[:-1])}


def test_results_and_errors_are_files() -> None:
    def fail_last_line(call: Call) -> Reply:
        return loopback.rate_limited() if call.custom_id == "r3" else loopback.completion("one\u2028two")

    script = BatchScript(end="expired", answered=3)
    with serving(fail_last_line, batches=script) as (server, client):
        batch = client.batches.retrieve(submit(client, 4))
        results = read_results(client, batch.output_file_id)
        errors = read_results(client, batch.error_file_id)
    assert list(results) == ["r2", "r1"]  # not in the order of the requests
    reply = ChatCompletion.model_validate(results["r1"]["response"]["body"])
    assert reply.choices[0].message.content == "one\u2028two"
    assert (errors["r3"]["response"]["status_code"], errors["r3"]["error"]) == (429, None)
    assert (errors["r0"]["response"], errors["r0"]["error"]["code"]) == (None, "batch_expired")
    assert (server.calls, [call.custom_id for call in server.batch_calls]) == ([], ["r3", "r2", "r1"])


STATES = {
    "completed": (BatchScript(polls=3), "in_progress 2, in_progress 4, in_progress 6, completed 8"),
    "expired": (BatchScript(polls=1, end="expired"), "in_progress 4, expired 4"),
    "cancelled": (BatchScript(end="cancelled", answered=2), "cancelled 2"),
    "failed": (BatchScript(end="failed"), "failed 0"),
}


@table("script, states", STATES)
def test_a_batch_takes_a_step_whenever_it_is_retrieved(script: BatchScript, states: str) -> None:
    with serving(SCORE, batches=script) as (_, client):
        batch_id = submit(client, 8)
        for state in states.split(", "):
            assert client.batches.list().data[0].id == batch_id  # a list takes no step
            batch = client.batches.retrieve(batch_id)
            assert batch.request_counts is not None
            assert f"{batch.status} {batch.request_counts.completed}" == state
        with pytest.raises(groq.ConflictError):
            client.batches.cancel(batch_id)


def test_lists_have_pages_newest_first() -> None:
    with serving(SCORE, page=2) as (_, client):
        ids = [submit(client, count, f"{count}.jsonl") for count in (1, 2, 3)]
        page: Any = client.batches.list()
        assert ([batch.id for batch in page.data], page.has_more) == ([ids[2], ids[1]], True)
        rest = client.get("/openai/v1/files?after=file_loopback_2", cast_to=httpx.Response).json()
        assert ([row["filename"] for row in rest["data"]], rest["has_more"]) == (["1.jsonl"], False)
        with pytest.raises(groq.NotFoundError):
            client.batches.retrieve("batch_unknown")


LOSSES = {
    "request": ("/batches", drop(), 0),
    "answer": ("/batches", Late(), 1),
    "half of the results": ("/content", loopback.tear(b"x" * 99), 1),
}


@table("path, loss, n_batches", LOSSES)
def test_a_request_or_its_answer_can_be_lost(path: str, loss: Reply | Late, n_batches: int) -> None:
    def disturb(method: str, visited: str) -> Reply | Late | None:
        return loss if visited.endswith(path) else None

    with serving(SCORE, disturb=disturb) as (server, client), pytest.raises(groq.APIConnectionError):
        client.files.content(str(client.batches.retrieve(submit(client, 1)).output_file_id))
    assert len(server.batches) == n_batches
