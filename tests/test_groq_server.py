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
from typing import Any, Literal, cast

import groq
import httpx
import pytest
from groq.types import BatchRetrieveResponse
from groq.types.chat import ChatCompletion

import groq_server as loopback
from conftest import NO_CERTIFICATES
from groq_server import (
    RPM,
    TPD,
    TPM,
    BatchScript,
    Bucket,
    Call,
    Disturb,
    GroqServer,
    Late,
    Limits,
    Quota,
    Reply,
    Torn,
    go_duration,
)

MODEL = "openai/gpt-oss-20b"


@contextmanager
def client_of(url: str, timeout: float = 5.0, max_retries: int = 0) -> Iterator[groq.Groq]:
    with groq.Groq(
        api_key="any",
        base_url=url,
        timeout=timeout,
        max_retries=max_retries,
        http_client=groq.DefaultHttpxClient(verify=NO_CERTIFICATES),
    ) as client:
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
    arrived = threading.Semaphore(0)

    def answer(call: Call) -> Reply:
        arrived.release()
        return loopback.hang()

    with ThreadPoolExecutor() as pool:
        with GroqServer(answer) as server:
            waiting = [pool.submit(answer_of, server.url) for _ in range(4)]
            assert all(arrived.acquire(timeout=5) for _ in waiting)
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


# ---------------------------------------------------------------------------------------------------- batches
def request_line(custom_id: Any, text: str = "Grade this.", **changes: Any) -> bytes:
    """A line of a batch's file; one that is ... is left out."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body, **changes}
    return json.dumps({name: value for name, value in line.items() if value is not ...}).encode() + b"\n"


def request_lines(count: int) -> bytes:
    return b"".join(request_line(f"r{number}") for number in range(count))


def four(call: Call) -> Reply:
    return loopback.score_reply(4)


@contextmanager
def serving(answer: Callable[[Call], Reply] = four, **options: Any) -> Iterator[tuple[GroqServer, groq.Groq]]:
    with GroqServer(answer, **options) as server, client_of(server.url) as client:
        yield server, client


def uploaded(client: groq.Groq, content: bytes, name: str = "requests.jsonl") -> str:
    stored = client.files.create(file=(name, content), purpose="batch")
    assert stored.id is not None
    return stored.id


def created(client: groq.Groq, file_id: str, window: str = "24h") -> str:
    batch = client.batches.create(
        input_file_id=file_id, endpoint="/v1/chat/completions", completion_window=window
    )
    return batch.id


def submitted(client: groq.Groq, content: bytes) -> str:
    return created(client, uploaded(client, content))


def ended(client: groq.Groq, content: bytes) -> BatchRetrieveResponse:
    """A new batch of these lines, at its end."""
    batch_id = submitted(client, content)
    while (batch := client.batches.retrieve(batch_id)).status not in loopback.ENDS:
        pass
    return batch


def rows(client: groq.Groq, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in client.files.content(file_id).read().splitlines()]


def custom_ids(client: groq.Groq, file_id: str | None) -> list[str]:
    return [row["custom_id"] for row in rows(client, file_id)]


def test_a_batch_goes_from_a_file_of_requests_to_one_of_results(tmp_path: Path) -> None:
    asked_for, out = tmp_path / "requests.jsonl", tmp_path / "out.jsonl"
    asked_for.write_bytes(request_lines(1))
    with serving() as (_, client):
        with asked_for.open("rb") as file:
            stored = client.files.create(file=file, purpose="batch")
        assert (stored.filename, stored.bytes) == ("requests.jsonl", asked_for.stat().st_size)
        batch = client.batches.create(
            input_file_id=str(stored.id),
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"split": "dev"},
        )
        assert (batch.status, batch.metadata, batch.output_file_id) == ("validating", {"split": "dev"}, None)
        done = client.batches.retrieve(batch.id)
        assert (done.status, done.error_file_id) == ("completed", None)
        client.files.content(str(done.output_file_id)).write_to_file(out)
    row = json.loads(out.read_text())
    assert (row["custom_id"], row["error"], row["response"]["status_code"]) == ("r0", None, 200)
    told = ChatCompletion.model_validate(row["response"]["body"])
    assert json.loads(told.choices[0].message.content or "")["score"] == 4


def test_results_can_be_streamed_line_by_line() -> None:
    with serving() as (_, client):
        batch = ended(client, request_lines(20))
        with client.files.with_streaming_response.content(str(batch.output_file_id)) as response:
            assert len([json.loads(line) for line in response.iter_lines()]) == 20


def test_a_large_file_comes_back_as_it_was_sent() -> None:
    content = b"".join(request_line(f"r{number}", "x" * 500_000) for number in range(4))
    with serving() as (server, client):
        file_id = uploaded(client, content)
        assert client.files.content(file_id).read() == content
        assert client.batches.retrieve(created(client, file_id)).status == "completed"
    assert len(server.batch_calls) == 4


def test_files_are_listed_until_they_are_deleted() -> None:
    with serving() as (server, client):
        first, second = uploaded(client, request_lines(1)), uploaded(client, request_lines(2))
        assert client.files.info(first).filename == "requests.jsonl"
        assert client.files.delete(first).deleted
        assert [stored.id for stored in client.files.list().data] == [second]
        for gone in (client.files.info, client.files.content, client.files.delete):
            with pytest.raises(groq.NotFoundError):
                gone(first)
    assert server.files[first].lines() == [json.loads(request_lines(1))]


@pytest.mark.parametrize(
    ("content", "name", "status"),
    [(request_lines(9), "r.jsonl", 413), (b"", "r.jsonl", 400), (request_lines(1), "r.csv", 400)],
    ids=["too large", "empty", "not named so"],
)
def test_a_file_that_is_no_batchs_is_refused(
    content: bytes, name: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "MOST_BYTES", len(request_lines(9)) - 1)
    with serving() as (server, client):
        with pytest.raises(groq.APIStatusError) as caught:
            uploaded(client, content, name)
        assert (caught.value.status_code, details(caught.value)["type"]) == (status, "invalid_request_error")
    assert (server.files, server.uploaded) == ({}, {})


@pytest.mark.parametrize(
    ("last", "code", "line"),
    [
        (request_line("r2") + request_line("r3"), "too_many_tasks", None),
        (b'{"custom_id": "r2"\n', "invalid_json_line", 3),
        (b"\n", "invalid_json_line", 3),
        (b"[]\n", "invalid_json_line", 3),
        (request_line(...), "missing_required_parameter", 3),
        (request_line("r0"), "duplicate_custom_id", 3),
        (request_line("r2", url="/v1/embeddings"), "invalid_url", 3),
        (request_line("r2", body=...), "missing_required_parameter", 3),
    ],
)
def test_a_batch_of_wrong_lines_fails(
    last: bytes, code: str, line: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "MOST_LINES", 3)
    with serving() as (server, client):
        batch = ended(client, request_lines(2) + last)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [(found.code, found.line) for found in batch.errors.data or ()] == [(code, line)]
    assert server.batch_calls == []


@pytest.mark.parametrize(
    ("file_id", "window", "raised"),
    [
        ("file_unknown", "24h", groq.NotFoundError),
        ("file_loopback_1", "1h", groq.BadRequestError),
        ("file_loopback_2", "24h", groq.BadRequestError),
    ],
    ids=["no file", "too short", "a file of results"],
)
def test_a_batch_that_cannot_be_is_refused(file_id: str, window: str, raised: type[Exception]) -> None:
    with serving() as (server, client):
        ended(client, request_lines(1))
        with pytest.raises(raised):
            created(client, file_id, window)
    assert len(server.batches) == 1


@pytest.mark.parametrize(
    ("script", "course"),
    [
        (BatchScript(), "completed 8"),
        (BatchScript(polls=3), "in_progress 2, in_progress 4, in_progress 6, completed 8"),
        (BatchScript(polls=1, ending=1), "in_progress 4, finalizing 8, completed 8"),
        (BatchScript(polls=1, end="expired"), "in_progress 4, expired 4"),
        (BatchScript(polls=1, end="expired", answered=6), "in_progress 3, expired 6"),
        (BatchScript(end="expired", answered=99), "expired 8"),
        (BatchScript(ending=1, end="cancelled", answered=2), "cancelling 0, cancelled 2"),
        (BatchScript(polls=1, end="failed"), "validating 0, failed 0"),
    ],
    ids=str,
)
def test_a_batch_takes_a_step_whenever_it_is_retrieved(script: BatchScript, course: str) -> None:
    with serving(batches=script) as (_, client):
        batch_id = submitted(client, request_lines(8))
        for step in course.split(", "):
            batch = client.batches.retrieve(batch_id)
            assert batch.request_counts is not None
            assert f"{batch.status} {batch.request_counts.completed}" == step
        assert client.batches.retrieve(batch_id) == batch


def test_a_list_of_batches_takes_no_step() -> None:
    with serving() as (_, client):
        batch_ids = [submitted(client, request_lines(1)) for _ in range(2)]
        for _ in range(2):
            shown = [(batch.id, batch.status) for batch in client.batches.list().data]
            assert shown == [(batch_ids[1], "validating"), (batch_ids[0], "validating")]


def test_a_batch_fails_for_the_reason_it_is_told() -> None:
    with serving(batches=BatchScript(end="failed", reason="No permission.")) as (_, client):
        batch = ended(client, request_lines(1))
    assert batch.errors is not None
    assert [found.message for found in batch.errors.data or ()] == ["No permission."]


def test_a_batch_that_the_client_cancels_keeps_what_was_answered() -> None:
    with serving(batches=BatchScript(polls=3, ending=1)) as (server, client):
        batch_id = submitted(client, request_lines(8))
        client.batches.retrieve(batch_id)
        states = [client.batches.cancel(batch_id).status]
        states += [client.batches.retrieve(batch_id).status for _ in range(2)]
        assert states == ["cancelling", "cancelling", "cancelled"]
        assert len(rows(client, client.batches.retrieve(batch_id).output_file_id)) == 2
    assert len(server.batch_calls) == 2


def test_a_batch_at_its_end_cannot_be_cancelled() -> None:
    with serving() as (_, client):
        batch = ended(client, request_lines(1))
        with pytest.raises(groq.ConflictError, match="status 'completed'"):
            client.batches.cancel(batch.id)


@pytest.mark.parametrize("end", ["expired", "cancelled"])
def test_lines_that_were_not_answered_stand_in_the_error_file(end: Literal["expired", "cancelled"]) -> None:
    with serving(batches=BatchScript(end=end, answered=1)) as (_, client):
        batch = ended(client, request_lines(3))
        told = rows(client, batch.error_file_id)
        answered = custom_ids(client, batch.output_file_id)
    assert {(row["response"], row["error"]["code"]) for row in told} == {(None, f"batch_{end}")}
    assert sorted([*answered, *(row["custom_id"] for row in told)]) == ["r0", "r1", "r2"]


def test_lines_that_were_not_answered_can_be_left_out() -> None:
    with serving(batches=BatchScript(end="expired", rest_listed=False)) as (_, client):
        batch = ended(client, request_lines(3))
    assert (batch.output_file_id, batch.error_file_id) == (None, None)


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (loopback.model_gone(), 404, "model_not_found"),
        (loopback.rate_limited(), 429, "rate_limit_exceeded"),
        (loopback.hang(), 500, "internal_error"),
        (loopback.drop(), 500, "internal_error"),
        (loopback.drip(four(loopback.NO_CALL), every_s=9), 500, "internal_error"),
    ],
    ids=["gone", "limited", "hang", "drop", "drip"],
)
def test_a_line_that_gets_an_error_stands_in_the_error_file(reply: Reply, status: int, code: str) -> None:
    with serving(lambda call: reply if call.custom_id == "r0" else four(call)) as (_, client):
        batch = ended(client, request_lines(3))
        assert batch.request_counts is not None
        assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 1)
        [row] = rows(client, batch.error_file_id)
    response = row["response"]
    assert (row["custom_id"], row["error"]) == ("r0", None)
    assert (response["status_code"], response["body"]["error"]["code"]) == (status, code)


def test_a_body_that_is_not_json_stands_as_text_in_its_line() -> None:
    with serving(lambda call: loopback.html_page()) as (_, client):
        [row] = rows(client, ended(client, request_lines(1)).output_file_id)
    assert row["response"]["body"] == "<!doctype html><title>Sign in</title>"


def test_a_result_is_one_line_only_to_those_who_split_at_newlines() -> None:
    with serving(lambda call: loopback.completion("one\u2028two\x85three")) as (_, client):
        file_id = str(ended(client, request_lines(1)).output_file_id)
        [row] = rows(client, file_id)
        with client.files.with_streaming_response.content(file_id) as response:
            assert len(list(response.iter_lines())) == 3
    assert row["response"]["body"]["choices"][0]["message"]["content"] == "one\u2028two\x85three"


def test_lines_are_calls_of_their_own_under_no_limit() -> None:
    with serving(limits=Limits(requests_per_minute=1)) as (server, client):
        asked(client)
        ended(client, request_lines(3))
    assert [call.custom_id for call in server.calls] == [None]
    assert sorted(call.custom_id or "" for call in server.batch_calls) == ["r0", "r1", "r2"]
    assert [call.number for call in server.batch_calls] == [0, 1, 2]
    assert server.batch_calls[0].body["model"] == MODEL
    assert server.batch_calls[0].headers["authorization"] == "Bearer any"
    assert server.status_counts == {200: 1}


@pytest.mark.parametrize("shuffle", [True, False])
def test_results_come_in_an_order_of_their_own(shuffle: bool) -> None:
    with serving(batches=BatchScript(shuffle=shuffle)) as (_, client):
        first, second = (custom_ids(client, ended(client, request_lines(9)).output_file_id) for _ in range(2))
    assert first == second
    assert (first != sorted(first)) == shuffle


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (BatchScript(shuffle=False, duplicates=2), ["r0", "r0", "r1", "r1", "r2"]),
        (BatchScript(shuffle=False, strangers=1), ["stranger-0", "r0", "r1", "r2"]),
    ],
    ids=["duplicates", "strangers"],
)
def test_results_can_be_more_than_was_asked_for(script: BatchScript, found: list[str]) -> None:
    with serving(batches=script) as (_, client):
        assert custom_ids(client, ended(client, request_lines(3)).output_file_id) == found


def test_the_last_result_can_be_torn() -> None:
    with serving(batches=BatchScript(cut=True)) as (_, client):
        batch = ended(client, request_lines(3))
        *whole, last = client.files.content(str(batch.output_file_id)).read().split(b"\n")
    assert [json.loads(line)["error"] for line in whole] == [None, None]
    with pytest.raises(json.JSONDecodeError):
        json.loads(last)


def test_each_batch_takes_the_next_script_and_then_the_last() -> None:
    scripts = BatchScript(end="failed"), BatchScript(end="expired"), BatchScript()
    with serving(batches=scripts) as (_, client):
        ends = [ended(client, request_lines(1)).status for _ in range(4)]
    assert ends == ["failed", "expired", "completed", "completed"]


def test_submissions_are_counted_by_content() -> None:
    with serving() as (server, client):
        file_id = uploaded(client, request_lines(1))
        uploaded(client, request_lines(1))
        for source in (file_id, file_id, uploaded(client, request_lines(2))):
            created(client, source)
    digest = server.files[file_id].sha256
    assert (server.uploaded[digest], server.uploaded.total()) == (2, 3)
    assert (server.submitted[digest], server.submitted.total()) == (2, 3)


def test_a_line_that_is_answered_again_is_paid_twice() -> None:
    def answer(call: Call) -> Reply:
        return loopback.too_large() if call.custom_id == "r0" else loopback.score_reply(4)

    with serving(answer) as (server, client):
        ended(client, request_lines(2))
        ended(client, request_line("r2") + request_line("r1", "Another one."))
        assert server.paid_twice == 0
        ended(client, request_lines(3))
    assert server.paid_twice == 2  # r1 and r2: nothing was paid for r0


def test_a_batch_retrieved_by_many_at_once_answers_each_line_once() -> None:
    count = 3 * loopback.LINES_A_TURN
    with serving() as (server, client), ThreadPoolExecutor(4) as pool:
        batch_id = submitted(client, request_lines(count))
        found = list(pool.map(client.batches.retrieve, [batch_id] * 4))
    assert {batch.status for batch in found} == {"completed"}
    assert len(server.batch_calls) == count


def test_an_answer_to_a_line_that_raises_fails_the_test() -> None:
    def answer(call: Call) -> Reply:
        raise LookupError("unexpected line")

    with (
        pytest.raises(LookupError, match="unexpected line"),
        serving(answer) as (_, client),
        pytest.raises(groq.InternalServerError),
    ):
        ended(client, request_lines(1))


# ----------------------------------------------------------------------------------- what comes between steps
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"


def only(method: str, path: str, disturbance: Reply | Late | Torn) -> Disturb:
    return lambda *visit: disturbance if visit == (method, path) else None


@pytest.mark.parametrize(
    ("disturbance", "raised", "took_effect"),
    [
        (loopback.drop(), groq.APIConnectionError, False),
        (Late(), groq.APIConnectionError, True),
        (Torn(), groq.APIConnectionError, True),
        (loopback.error(503, "over_capacity", "No"), groq.InternalServerError, False),
        (Late(loopback.error(503, "over_capacity", "No")), groq.InternalServerError, True),
    ],
    ids=["lost request", "lost answer", "torn answer", "refused", "refused too late"],
)
@pytest.mark.parametrize("path", [FILES, BATCHES, BATCHES + "/batch_loopback_1/cancel"])
def test_a_request_can_be_lost_and_so_can_its_answer(
    path: str, disturbance: Reply | Late | Torn, raised: type[Exception], took_effect: bool
) -> None:
    with serving(disturb=only("POST", path, disturbance)) as (server, client), pytest.raises(raised):
        client.batches.cancel(submitted(client, request_lines(1)))
    effects = {
        FILES: len(server.files) == 1,
        BATCHES: len(server.batches) == 1,
        BATCHES + "/batch_loopback_1/cancel": any(b.status == "cancelling" for b in server.batches.values()),
    }
    assert effects[path] == took_effect
    assert server.visits[-1] == ("POST", path)


def test_a_lost_request_for_the_state_takes_no_step_but_a_lost_answer_does() -> None:
    disturbances = iter([loopback.drop(), Late(), None])
    path = BATCHES + "/batch_loopback_1"

    def disturb(method: str, visited: str) -> Reply | Late | None:
        return next(disturbances) if visited == path else None

    with serving(disturb=disturb, batches=BatchScript(polls=2)) as (_, client):
        batch_id = submitted(client, request_lines(6))
        for _ in range(2):
            with pytest.raises(groq.APIConnectionError):
                client.batches.retrieve(batch_id)
        counts = client.batches.retrieve(batch_id).request_counts
    assert counts is not None
    assert counts.completed == 4


def test_a_request_can_hang() -> None:
    with (
        GroqServer(four, disturb=only("GET", BATCHES, loopback.hang())) as server,
        client_of(server.url, timeout=0.1) as client,
        pytest.raises(groq.APITimeoutError),
    ):
        client.batches.list()


def test_results_that_break_off_are_no_results() -> None:
    content = FILES + "/file_loopback_2/content"
    with serving(disturb=only("GET", content, Torn())) as (_, client):
        batch = ended(client, request_lines(3))
        with pytest.raises(groq.APIConnectionError):
            client.files.content(str(batch.output_file_id))
        with (
            client.files.with_streaming_response.content(str(batch.output_file_id)) as response,
            pytest.raises(httpx.RemoteProtocolError),  # once it streams, errors are no more the client's own
        ):
            list(response.iter_lines())


def test_a_disturbance_that_raises_fails_the_test() -> None:
    def disturb(method: str, path: str) -> None:
        raise LookupError(f"unexpected {method}")

    with (
        pytest.raises(LookupError, match="unexpected GET"),
        serving(disturb=disturb) as (_, client),
        pytest.raises(groq.InternalServerError),
    ):
        client.files.list()


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
    with process("--rpm", "1", "--score", "2") as url, client_of(url) as client:
        assert json.loads(asked(client).choices[0].message.content or "")["score"] == 2
        with pytest.raises(groq.RateLimitError, match="requests per minute"):
            asked(client)
        stats = httpx.get(url + "/stats").json()
    counts = {"200": 1, "429": 1}
    direct = {"calls": 2, "in_flight_peak": 1, "status_counts": counts, "asked_again": 1}
    assert stats == direct | {"uploads": 0, "batches": 0, "batch_lines": 0, "paid_twice": 0}


def test_a_process_serves_batches() -> None:
    with process("--polls", "1") as url, client_of(url) as client:
        batch_id = submitted(client, request_lines(3))
        states = [client.batches.retrieve(batch_id).status for _ in range(2)]
        ended(client, request_lines(2))
        stats = httpx.get(url + "/stats").json()
    assert states == ["in_progress", "completed"]
    batches = {"uploads": 2, "batches": 2, "batch_lines": 5, "paid_twice": 2}
    assert {name: stats[name] for name in batches} == batches


@contextmanager
def process(*options: str) -> Iterator[str]:
    """The url of a server that is a process of its own."""
    command = [sys.executable, loopback.__file__, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            yield serving.stdout.readline().strip()
        finally:
            serving.kill()
