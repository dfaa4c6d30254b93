"""The loopback server, proved with the real groq client."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import groq
import httpx
import pytest
from groq.types.chat import ChatCompletion

import groq_server as loopback
from groq_server import RPM, TPD, TPM, Bucket, Call, GroqServer, Limits, Quota, Reply, go_duration

MODEL = "openai/gpt-oss-20b"


@contextmanager
def client_of(url: str, timeout: float = 5.0, max_retries: int = 0) -> Iterator[groq.Groq]:
    with groq.Groq(api_key="any", base_url=url, timeout=timeout, max_retries=max_retries) as client:
        yield client


def asked(client: groq.Groq, text: str = "Grade this.", max_completion_tokens: int = 100) -> ChatCompletion:
    return client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        max_completion_tokens=max_completion_tokens,
    )


def answer_to(reply: Reply, timeout: float = 5.0) -> Any:
    with GroqServer(lambda call: reply) as server, client_of(server.url, timeout) as client:
        return asked(client)


def details(error: groq.APIStatusError) -> dict[str, str]:
    return cast(dict[str, dict[str, str]], error.body)["error"]


# ---------------------------------------------------------------------------------------------------- replies
def test_a_completion_comes_with_the_headers_of_the_limits() -> None:
    limits = Limits(requests_per_day=14_400, tokens_per_minute=6_000)
    with (
        GroqServer(lambda call: loopback.score_reply(4), limits=limits) as server,
        client_of(server.url) as client,
    ):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=[{"role": "user", "content": "x" * 4_000}],
            max_completion_tokens=500,
        )
    parsed = raw.parse()
    assert json.loads(parsed.choices[0].message.content or "")["score"] == 4
    assert (parsed.model, parsed.system_fingerprint, parsed.choices[0].finish_reason) == (
        MODEL,
        "fp_loopback",
        "stop",
    )
    assert parsed.usage is not None
    assert parsed.usage.prompt_tokens == 1_000
    assert parsed.usage.prompt_tokens_details is None
    assert raw.headers["x-ratelimit-limit-requests"] == "14400"
    assert raw.headers["x-ratelimit-remaining-requests"] == "14399"
    assert 5 < float(raw.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 6
    assert raw.headers["x-ratelimit-limit-tokens"] == "6000"
    assert int(raw.headers["x-ratelimit-remaining-tokens"]) >= 6_000 - parsed.usage.total_tokens
    [call] = server.calls
    assert (call.number, call.body["model"], call.headers["authorization"]) == (0, MODEL, "Bearer any")


def test_a_completion_says_what_it_is_told_to() -> None:
    told = answer_to(
        loopback.completion(
            None, model="other", finish_reason="length", prompt_tokens=7, completion_tokens=5, cached_tokens=3
        )
    )
    assert (told.choices[0].message.content, told.choices[0].finish_reason) == (None, "length")
    assert (told.model, told.usage.total_tokens, told.usage.prompt_tokens_details.cached_tokens) == (
        "other",
        12,
        3,
    )


@pytest.mark.parametrize(
    ("reply", "raised", "code"),
    [
        (
            loopback.error(401, "invalid_api_key", "Invalid API Key"),
            groq.AuthenticationError,
            "invalid_api_key",
        ),
        (loopback.error(403, "forbidden", "No"), groq.PermissionDeniedError, "forbidden"),
        (loopback.error(422, "unprocessable", "No"), groq.UnprocessableEntityError, "unprocessable"),
        (loopback.error(503, "over_capacity", "No"), groq.InternalServerError, "over_capacity"),
        (loopback.model_gone(MODEL), groq.NotFoundError, "model_not_found"),
        (loopback.decommissioned(MODEL), groq.BadRequestError, "model_decommissioned"),
        (loopback.rate_limited(), groq.RateLimitError, "rate_limit_exceeded"),
        (loopback.too_large(), groq.APIStatusError, "rate_limit_exceeded"),
        (loopback.json_validate_failed('{"score": 4'), groq.BadRequestError, "json_validate_failed"),
    ],
)
def test_an_error_raises_the_clients_exception(reply: Reply, raised: type[Exception], code: str) -> None:
    with pytest.raises(raised) as caught:
        answer_to(reply)
    error = caught.value
    assert isinstance(error, groq.APIStatusError)
    assert (error.status_code, details(error)["code"]) == (reply.status, code)


def test_a_429_is_worded_like_groqs() -> None:
    with pytest.raises(groq.RateLimitError) as caught:
        answer_to(loopback.rate_limited(TPM, 6_000, 7.5, numbers="Limit 6000, Used 5800, Requested 900"))
    assert caught.value.response.headers["retry-after"] == "7.5"
    assert details(caught.value) == {
        "message": f"Rate limit reached for model `{MODEL}` in organization `org_loopback` service tier "
        "`on_demand` on tokens per minute (TPM): Limit 6000, Used 5800, Requested 900. "
        "Please try again in 7.5s. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
        "type": "tokens",
        "code": "rate_limit_exceeded",
    }


def test_a_failed_generation_is_handed_over() -> None:
    with pytest.raises(groq.BadRequestError) as caught:
        answer_to(loopback.json_validate_failed('{"score": 4'))
    assert details(caught.value)["failed_generation"] == '{"score": 4'


def test_bodies_that_are_no_completion() -> None:
    assert answer_to(loopback.html_page()).startswith("<!doctype html>")
    assert answer_to(loopback.empty_object()).choices is None
    with pytest.raises(json.JSONDecodeError):
        answer_to(loopback.malformed())


# ----------------------------------------------------------------------------------------------------- timing
def test_the_client_waits_as_long_as_retry_after_says() -> None:
    def answer(call: Call) -> Reply:
        return loopback.completion("done") if call.number else loopback.rate_limited(retry_after_s=0.1)

    with GroqServer(answer) as server, client_of(server.url, max_retries=1) as client:
        assert asked(client).choices[0].message.content == "done"
    first, second = server.calls
    assert 0.08 < second.arrived_s - first.arrived_s < 0.37  # the client's own backoff is 0.375 s or more
    assert server.status_counts == {429: 1, 200: 1}


def test_a_hung_call_ends_with_the_clients_timeout() -> None:
    with pytest.raises(groq.APITimeoutError):
        answer_to(loopback.hang(), timeout=0.1)


def test_a_hung_call_does_not_delay_the_end() -> None:
    arrived = threading.Event()

    def answer(call: Call) -> Reply:
        arrived.set()
        return loopback.hang()

    with ThreadPoolExecutor() as pool:
        with GroqServer(answer) as server:
            waiting = [pool.submit(answer_of, server.url) for _ in range(4)]
            assert arrived.wait(5)
            before_s = time.monotonic()
        assert time.monotonic() - before_s < 1
        assert all(isinstance(call.exception(10), groq.APIConnectionError) for call in waiting)


def answer_of(url: str) -> ChatCompletion:
    with client_of(url) as client:
        return asked(client)


def test_a_dropped_call_is_a_connection_error() -> None:
    with pytest.raises(groq.APIConnectionError) as caught:
        answer_to(loopback.drop())
    assert not isinstance(caught.value, groq.APITimeoutError)


def test_a_dripped_reply_outlasts_the_clients_timeout_which_is_per_read() -> None:
    started_s = time.monotonic()
    answer_to(loopback.drip(Reply(200, b"{    }"), every_s=0.04), timeout=0.2)
    assert time.monotonic() - started_s > 0.2
    with pytest.raises(groq.APITimeoutError):
        answer_to(loopback.drip(loopback.empty_object(), every_s=5), timeout=0.1)


def test_calls_are_answered_side_by_side() -> None:
    with (
        GroqServer(lambda call: loopback.score_reply(4), latency_s=0.2) as server,
        client_of(server.url) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(lambda _: asked(client), range(8)))
    assert server.in_flight_peak == 8
    assert [call.number for call in server.calls] == list(range(8))


# ----------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.172, "172ms"),
        (7.66, "7.66s"),
        (60, "1m0s"),
        (179.56, "2m59.56s"),
        (3_600, "1h0m0s"),
        (86_399.9994, "24h0m0s"),
    ],
)
def test_go_durations(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_a_bucket_drains_by_the_clock_that_it_is_told() -> None:
    bucket = Bucket(RPM, 30, 60.0, now_s=100.0)
    for _ in range(30):
        assert bucket.wait_s(1, 100.0) == 0
        bucket.spend(1, 100.0)
    assert bucket.wait_s(1, 100.0) == pytest.approx(2)
    assert bucket.wait_s(1, 101.5) == pytest.approx(0.5)
    assert bucket.wait_s(1, 102.0) == 0
    assert bucket.used(1_000.0) == 0
    bucket.spend(-5, 1_000.0)
    assert bucket.used(1_000.0) == 0


def refusal(quota: Quota, tokens: int, now_s: float) -> tuple[int, str, str]:
    reply = quota.admit(tokens, now_s)
    assert reply is not None
    message = json.loads(reply.body_for(Call(0, {"model": MODEL}, {}, now_s)))["error"]["message"]
    return reply.status, message, dict(reply.headers).get("retry-after", "")


@pytest.mark.parametrize(
    ("limits", "used", "requested", "kind", "numbers", "wait", "retry_after"),
    [
        (Limits(None, 6_000), 5_034, 1_443, TPM, "Limit 6000, Used 5034, Requested 1443", "4.77s", "5"),
        (
            Limits(tokens_per_day=100_000),
            97_050,
            3_619,
            TPD,
            "Limit 100000, Used 97050, Requested 3619",
            "9m38.016s",
            "579",
        ),
        (
            Limits(None, 6_000, seconds_per_minute=6),
            5_034,
            1_443,
            TPM,
            "Limit 6000, Used 5034, Requested 1443",
            "477ms",
            "0.5",
        ),
        (Limits(1), 10, 10, RPM, "Limit 1, Used 1, Requested 1", "1m0s", "60"),
    ],
)
def test_refusals_have_the_numbers_seen_at_groq(
    limits: Limits, used: int, requested: int, kind: str, numbers: str, wait: str, retry_after: str
) -> None:
    quota = Quota(limits, now_s=0.0)
    assert quota.admit(used, 0.0) is None
    status, message, header = refusal(quota, requested, 0.0)
    assert (status, header) == (429, retry_after)
    assert f"on {kind}: {numbers}. Please try again in {wait}. " in message
    assert quota.admit(requested, float(header)) is None


def test_admission_reserves_and_completion_corrects() -> None:
    quota = Quota(Limits(None, 6_000, 1_000), now_s=0.0)
    assert quota.admit(5_000, 0.0) is None
    assert quota.headers(0.0)["x-ratelimit-remaining-tokens"] == "1000"
    quota.correct(5_000, 600, 0.0)
    assert quota.headers(0.0) == {
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5400",
        "x-ratelimit-reset-tokens": "6s",
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "999",
        "x-ratelimit-reset-requests": "1m26.4s",
    }


def test_a_start_that_is_not_full_has_nothing_left() -> None:
    quota = Quota(Limits(requests_per_minute=30, start_full=False), now_s=0.0)
    assert refusal(quota, 1, 0.0)[2] == "2"


def test_a_request_over_the_minutes_tokens_is_413() -> None:
    limits = Limits(tokens_per_minute=1_000)
    with (
        GroqServer(lambda call: loopback.score_reply(4), limits=limits) as server,
        client_of(server.url) as client,
        pytest.raises(groq.APIStatusError, match="Limit 1000, Requested 1502, please reduce") as caught,
    ):
        asked(client, max_completion_tokens=1_500)
    assert caught.value.status_code == 413
    assert caught.value.response.headers["x-ratelimit-remaining-tokens"] == "1000"


# ----------------------------------------------------------------------------------------- a scripted service
def call_about(text: str, number: int = 0, *complaints: str) -> Call:
    messages = [{"role": "user", "content": said} for said in ("Grade this.", text, *complaints)]
    return Call(number, {"messages": messages, "seed": 1}, {}, 0.0)


def test_a_scripted_score_is_the_requests_own_and_outlasts_complaints() -> None:
    score = loopback.scripted_score
    assert {score(call_about(str(n))) for n in range(100)} == {1, 2, 3, 4, 5}
    assert all(score(call_about(str(n))) == score(call_about(str(n), 7, "No.")) for n in range(100))


def test_faults_come_in_exact_shares_and_every_kind() -> None:
    faults = loopback.Faults(lambda call: 4)
    replies = [faults(call_about(str(n), n)) for n in range(1_300)]
    usable = sum(b'score\\": 4' in reply.body_for(call_about("")) for reply in replies)
    assert Counter(reply.act for reply in replies) == {"send": 1_261, "drop": 26, "hang": 13}
    assert (usable, sum(reply.status >= 500 for reply in replies)) == (1_066 + 10, 65)  # the fenced ones are
    assert sum(reply.status == 400 for reply in replies) == 10  # json_validate_failed, one kind of thirteen


def test_no_request_gets_garbage_more_than_twice() -> None:
    faults = loopback.Faults(lambda call: 4)
    bodies = [faults(call_about("the same", n)).body_for(call_about("")) for n in range(0, 10_000, 100)]
    assert len([body for body in bodies if b'score\\": 4' not in body]) == 2


# ----------------------------------------------------------------------------------------------------- server
def test_an_answer_that_raises_fails_the_test() -> None:
    def answer(call: Call) -> Reply:
        raise LookupError("unexpected call")

    with (
        pytest.raises(LookupError, match="unexpected call"),
        GroqServer(answer) as server,
        client_of(server.url) as client,
        pytest.raises(groq.InternalServerError),
    ):
        asked(client)


def test_an_answer_that_gives_no_reply_fails_the_test() -> None:
    answer = cast(Callable[[Call], Reply], lambda call: None)
    with (
        pytest.raises(AttributeError),
        GroqServer(answer) as server,
        client_of(server.url) as client,
        pytest.raises(groq.InternalServerError),
    ):
        asked(client)


def test_an_unknown_url_is_404() -> None:
    with (
        GroqServer(lambda call: loopback.score_reply(4)) as server,
        client_of(server.url + "/openai/v1") as client,
        pytest.raises(groq.NotFoundError),
    ):
        asked(client)
    assert server.calls == []


def test_it_serves_as_a_process() -> None:
    script = Path(loopback.__file__)
    command = [sys.executable, str(script), "--port", "0", "--rpm", "1", "--score", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with client_of(url) as client:
                assert json.loads(asked(client).choices[0].message.content or "")["score"] == 2
                with pytest.raises(groq.RateLimitError, match="requests per minute"):
                    asked(client)
            stats = httpx.get(url + "/stats").json()
        finally:
            process.kill()
    counts = {"200": 1, "429": 1}
    assert stats == {"calls": 2, "in_flight_peak": 1, "status_counts": counts, "asked_again": 1}
