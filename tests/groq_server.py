"""A loopback server that speaks Groq's chat-completions protocol, for tests and benchmarks.

In a test, hand in a function from Call to Reply, and point the real client at the server:

    with GroqServer(lambda call: score_reply(4)) as server:
        client = groq.Groq(api_key="any", base_url=server.url, max_retries=0)

As a process of its own, so that a benchmark does not share its processor time with the server:

    python groq_server.py --latency 0.2 --rpm 1000 --tpm 250000 --faults

The first line that it prints is its url; GET /stats tells what it has seen. It listens on 127.0.0.1 only.
Times are in seconds, as `_s` says. Messages are worded as Groq words them, because programs read limits and
waits out of them.
"""

import argparse
import asyncio
import hashlib
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, final

from aiohttp import web

Pairs = tuple[tuple[str, str], ...]
JSON_TYPE: Pairs = (("content-type", "application/json"),)

# The four limits, as the message of a 429 names them. The first word is what they count.
RPM, RPD = "requests per minute (RPM)", "requests per day (RPD)"
TPM, TPD = "tokens per minute (TPM)", "tokens per day (TPD)"
ACCOUNT = "model `{model}` in organization `org_loopback` service tier `on_demand`"
UPGRADE = "Upgrade to Dev Tier today at https://console.groq.com/settings/billing"


# ------------------------------------------------------------------------------------------ calls and replies
@dataclass(frozen=True)
class Call:
    """One request: `number` counts from 0 in order of arrival, `arrived_s` is time.monotonic()."""

    number: int
    body: dict[str, Any]
    headers: dict[str, str]
    arrived_s: float


@dataclass(frozen=True)
class Reply:
    """What a call gets. A body that depends on the call, to echo its model for one, is a function of it.
    `latency_s` comes on top of the server's own; `every_s` is the pause before each dripped byte."""

    status: int
    body: bytes | Callable[[Call], bytes]
    headers: Pairs = JSON_TYPE
    latency_s: float = 0.0
    act: Literal["send", "hang", "drop", "drip"] = "send"
    every_s: float = 0.0

    def body_for(self, call: Call) -> bytes:
        return self.body(call) if callable(self.body) else self.body


def completion(
    content: str | None,
    *,
    model: str | None = None,
    finish_reason: str = "stop",
    prompt_tokens: int | None = None,
    completion_tokens: int | None = None,
    cached_tokens: int = 0,
    fingerprint: str | None = "fp_loopback",
    latency_s: float = 0.0,
) -> Reply:
    """A chat.completion. Without a model it echoes the call's; tokens not given are estimated from the text.
    Usage has cached tokens only if there are some: models without a prompt cache leave the details out."""

    def body(call: Call) -> bytes:
        asked = estimated_prompt_tokens(call.body) if prompt_tokens is None else prompt_tokens
        written = len(content or "") // 4 if completion_tokens is None else completion_tokens
        usage = {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}
        details = {"prompt_tokens_details": {"cached_tokens": cached_tokens}} if cached_tokens else {}
        message = {"role": "assistant", "content": content}
        document = {
            "id": f"chatcmpl-loopback-{call.number}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model or call.body.get("model"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
            "usage": usage | details,
            "system_fingerprint": fingerprint,
            "x_groq": {"id": f"req_loopback_{call.number}"},
        }
        return json.dumps(document).encode()

    return Reply(200, body, latency_s=latency_s)


def score_reply(score: object, rationale: str = "The answer meets the rubric.") -> Reply:
    """A completion whose content is a judgement in JSON. Any JSON value may stand as the score."""
    return completion(json.dumps({"rationale": rationale, "score": score}))


def error(
    status: int,
    code: str,
    message: str,
    type: str = "invalid_request_error",
    headers: Pairs = (),
    **more: str,
) -> Reply:
    """An error in Groq's form. `{model}` in the message is the call's; `more` goes beside the code."""

    def body(call: Call) -> bytes:
        said = message.replace("{model}", str(call.body.get("model")))
        return json.dumps({"error": {"message": said, "type": type, "code": code, **more}}).encode()

    return Reply(status, body, JSON_TYPE + headers)


def model_gone(model: str = "{model}") -> Reply:
    return error(
        404, "model_not_found", f"The model `{model}` does not exist or you do not have access to it."
    )


def decommissioned(model: str = "{model}") -> Reply:
    page = "https://console.groq.com/docs/deprecations"
    advice = f"Please refer to {page} for a recommendation on which model to use instead."
    message = f"The model `{model}` has been decommissioned and is no longer supported. {advice}"
    return error(400, "model_decommissioned", message)


def rate_limited(
    kind: str = RPM, limit: int = 30, retry_after_s: float = 1.0, *, numbers: str = "", wait_s: float = 0.0
) -> Reply:
    """A 429. The header has `retry_after_s`; so has the message, unless `wait_s` gives it a finer one, as at
    Groq. `numbers` are the message's, by default those of a limit that is all used."""
    unit = kind.split()[0]
    numbers = numbers or f"Limit {limit}, Used {limit}, Requested 1"
    wait = f"Please try again in {go_duration(wait_s or retry_after_s)}."
    message = f"Rate limit reached for {ACCOUNT} on {kind}: {numbers}. {wait} Need more {unit}? {UPGRADE}"
    return error(429, "rate_limit_exceeded", message, unit, (("retry-after", f"{retry_after_s:g}"),))


def too_large(limit: int = 6000, requested: int = 9000) -> Reply:
    """A 413: the request alone is over the minute's tokens, so waiting does not help."""
    numbers = f"Limit {limit}, Requested {requested}, please reduce your message size and try again."
    message = f"Request too large for {ACCOUNT} on {TPM}: {numbers} Need more tokens? {UPGRADE}"
    return error(413, "rate_limit_exceeded", message, "tokens")


def json_validate_failed(failed_generation: str) -> Reply:
    """A 400: in JSON mode the model wrote something else, which is handed over for what it is worth."""
    message = "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details."
    return error(400, "json_validate_failed", message, failed_generation=failed_generation)


def html_page() -> Reply:
    return Reply(
        200, b"<!doctype html><title>Sign in</title>", (("content-type", "text/html; charset=utf-8"),)
    )


def empty_object() -> Reply:
    return Reply(200, b"{}")


def malformed() -> Reply:
    return Reply(200, b'{"id": "chatcmpl-loopback", "choices": [')


def hang() -> Reply:
    """No answer ever: only the client's timeout or the server's end ends the call."""
    return Reply(0, b"", act="hang")


def drop() -> Reply:
    """The connection is closed without an answer."""
    return Reply(0, b"", act="drop")


def drip(reply: Reply, every_s: float) -> Reply:
    """Headers at once and the body a byte at a time: no single read is slow, but the whole call is."""
    return replace(reply, act="drip", every_s=every_s)


# ----------------------------------------------------------------------------------------- a scripted service
def scripted_score(call: Call) -> int:
    """1 to 5, by what is to be judged: complaints that are added to a request leave its score as it is."""
    return 1 + int(hashlib.sha256(identity(call.body).encode()).hexdigest(), 16) % 5


def identity(body: dict[str, Any]) -> str:
    """What a request keeps when it is sent again, with a complaint or without: its opening and its seed."""
    return json.dumps([body.get("messages", [])[:2], body.get("seed")])


def garbage(score: int) -> tuple[Reply, ...]:
    """A reply of every kind that does not look as it should. The fenced one tells the score all the same."""
    off_the_scale = [score_reply(value) for value in (0, 6, 3.5, True, None)]
    return (
        completion("The answer is right in the main, but I would not put it into a number."),
        *off_the_scale,
        completion(f'```json\n{{"rationale": "Right in the main.", "score": {score}}}\n```'),
        completion(""),
        completion('{"rationale": "Right in the m', finish_reason="length"),
        empty_object(),
        html_page(),
        malformed(),
        json_validate_failed('{"rationale": Right in the main'),
    )


class Faults:
    """Answers with a score, but for ten calls in a hundred that get garbage, five a 5xx, two that are dropped
    and one that hangs. They go by the call's number and are well spread, so that their shares are exact.
    No request gets garbage more than twice: one that is never answered cannot be judged by anybody."""

    def __init__(self, score_of: Callable[[Call], int]) -> None:
        self._score_of = score_of
        self._garbled: Counter[str] = Counter()

    def __call__(self, call: Call) -> Reply:
        hundred, place = divmod(call.number, 100)
        turn = place * 37 % 100
        if turn < 10 and self._garbled[identity(call.body)] < 2:
            self._garbled[identity(call.body)] += 1
            replies = garbage(self._score_of(call))
            return replies[(hundred * 10 + turn) % len(replies)]
        if 10 <= turn < 15:
            return error((500, 502, 503)[turn % 3], "over_capacity", "Try again.", "internal_server_error")
        if 15 <= turn < 18:
            return hang() if turn == 17 else drop()
        return score_reply(self._score_of(call))


# ----------------------------------------------------------------------------------------------------- limits
@dataclass(frozen=True)
class Limits:
    """An account's limits, each over 0, or None for none. With a minute of 6 s, an hour's benchmark takes six
    minutes: days, resets and retry-after shrink with the minute and stay in seconds that really pass. A start
    that is not full has every limit used up, so that a benchmark sees the steady rate and no first burst."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_day: int | None = None
    start_full: bool = True
    seconds_per_minute: float = 60.0


class Bucket:
    """How much of one limit is used. It comes back continuously, a whole limit in `window_s`, as at Groq."""

    def __init__(self, kind: str, limit: int, window_s: float, now_s: float, *, used: float = 0.0) -> None:
        self.kind, self.limit = kind, limit
        self.unit = kind.split()[0]
        self._per_s = limit / window_s
        self._used, self._at_s = used, now_s

    def used(self, now_s: float) -> float:
        self._used = max(0.0, self._used - (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return self._used

    def spend(self, amount: int, now_s: float) -> None:
        """A negative amount is given back."""
        self._used = max(0.0, self.used(now_s) + amount)

    def wait_s(self, amount: int, now_s: float) -> float:
        """Until `amount` fits: 0 if it does now. The slack keeps a rounding error from costing a retry."""
        missing = self.used(now_s) + amount - self.limit
        return missing / self._per_s if missing > 1e-6 else 0.0

    def headers(self, now_s: float) -> dict[str, str]:
        used = self.used(now_s)
        return {
            f"x-ratelimit-limit-{self.unit}": str(self.limit),
            f"x-ratelimit-remaining-{self.unit}": str(max(0, math.floor(self.limit - used + 1e-6))),
            f"x-ratelimit-reset-{self.unit}": go_duration(used / self._per_s),
        }


class Quota:
    """All limits of one account. It reads no clock: each method is told the time."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        minute_s = limits.seconds_per_minute
        self._second_s = minute_s / 60
        rows = (
            (RPM, limits.requests_per_minute, minute_s),
            (RPD, limits.requests_per_day, minute_s * 60 * 24),
            (TPM, limits.tokens_per_minute, minute_s),
            (TPD, limits.tokens_per_day, minute_s * 60 * 24),
        )
        self._buckets = [
            Bucket(kind, limit, window_s, now_s, used=0 if limits.start_full else limit)
            for kind, limit, window_s in rows
            if limit is not None
        ]

    def admit(self, tokens: int, now_s: float) -> Reply | None:
        """Charges a request and its tokens, or refuses it and charges nothing: with 413 if no minute could
        hold it, else with the 429 of the limit that is longest in the way. Groq's retry-after is in whole
        seconds, rounded up; here they are seconds of the minute in force."""
        amounts = {bucket: tokens if bucket.unit == "tokens" else 1 for bucket in self._buckets}
        for bucket, amount in amounts.items():
            if bucket.kind == TPM and amount > bucket.limit:
                return too_large(bucket.limit, amount)
        waits = {bucket: wait_s for bucket in amounts if (wait_s := bucket.wait_s(amounts[bucket], now_s))}
        if waits:
            bucket, wait_s = max(waits.items(), key=lambda item: item[1])
            used = math.ceil(bucket.used(now_s) - 1e-6)
            numbers = f"Limit {bucket.limit}, Used {used}, Requested {amounts[bucket]}"
            retry_after_s = max(1, math.ceil(wait_s / self._second_s - 1e-6)) * self._second_s
            return rate_limited(bucket.kind, bucket.limit, retry_after_s, numbers=numbers, wait_s=wait_s)
        for bucket, amount in amounts.items():
            bucket.spend(amount, now_s)
        return None

    def correct(self, charged: int, taken: int, now_s: float) -> None:
        """Puts the tokens that an answer really took in place of those charged at admission."""
        for bucket in self._buckets:
            if bucket.unit == "tokens":
                bucket.spend(taken - charged, now_s)

    def headers(self, now_s: float) -> dict[str, str]:
        """`requests` speaks of the day and `tokens` of the minute; a limit that is None has no headers."""
        shown = [bucket.headers(now_s) for bucket in self._buckets if bucket.kind in (RPD, TPM)]
        return {name: value for headers in shown for name, value in headers.items()}


def go_duration(seconds: float) -> str:
    """As Go prints it: 1h0m0s, 2m59.56s, 7.66s, 172ms. Rounded up to a millisecond, so that waiting so long
    suffices; a finer one would need a letter that is not ASCII."""
    milliseconds = max(0, math.ceil(seconds * 1000 - 1e-6))
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minute = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minute}m" if minutes else "") + f"{rest / 1000:g}s"


def estimated_prompt_tokens(body: dict[str, Any]) -> int:
    """Four characters of the messages a token."""
    return sum(len(str(message.get("content") or "")) for message in body.get("messages", ())) // 4


def tokens_taken(answer: bytes) -> int:
    """The total that an answer states; one without usage took none."""
    with suppress(ValueError, LookupError, TypeError):
        return int(json.loads(answer)["usage"]["total_tokens"])
    return 0


# ----------------------------------------------------------------------------------------------------- server
@final
class GroqServer:
    """Serves replies on 127.0.0.1 for the length of a with block, from an event loop in a thread of its own.

    `answer` runs on that loop, under no lock, so it must be quick: slowness is what `latency_s` is for. It is
    not asked about calls that `limits` refuse, though `calls` has these too. When it raises, the client gets
    a 500 and the with block ends with the exception, so that a client that copes with a 500 cannot hide it.
    """

    url: str

    def __init__(
        self,
        answer: Callable[[Call], Reply],
        *,
        limits: Limits | None = None,
        latency_s: float = 0.0,
        port: int = 0,
    ) -> None:
        self.calls: list[Call] = []
        self.status_counts: Counter[int] = Counter()
        self._answer, self._latency_s, self._port = answer, latency_s, port
        self._quota = Quota(limits or Limits(), time.monotonic())
        self._in_flight = self._in_flight_peak = 0
        self._failure: BaseException | None = None

    @property
    def in_flight_peak(self) -> int:
        """The most calls that were ever open at one time."""
        return self._in_flight_peak

    def __enter__(self) -> "GroqServer":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="groq-server", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._failure is not None:
            raise self._failure

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.post("/openai/v1/chat/completions", self._chat),
            web.get("/stats", self._stats),
        ]

    async def _start(self) -> None:
        app = web.Application(client_max_size=100 * 2**20)
        app.add_routes(self._routes())
        # A call whose client has gone is cancelled, so that it no longer counts as open. The timeout is how
        # long a hung call may delay the end; aiohttp takes 0 for no timeout.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self._in_flight += 1
        self._in_flight_peak = max(self._in_flight_peak, self._in_flight)
        try:
            body = json.loads(await request.read())
            headers = {name.lower(): value for name, value in request.headers.items()}
            call = Call(len(self.calls), body, headers, time.monotonic())
            self.calls.append(call)
            return await self._answered(call, request)
        finally:
            self._in_flight -= 1

    async def _answered(self, call: Call, request: web.Request) -> web.StreamResponse:
        longest_answer = call.body.get("max_completion_tokens") or 0  # no bound, no room reserved
        charged = estimated_prompt_tokens(call.body) + longest_answer
        if refusal := self._quota.admit(charged, call.arrived_s):
            return await self._sent(refusal, refusal.body_for(call), request)
        try:
            reply = self._answer(call)
            content = reply.body_for(call)
        except BaseException as failure:  # what pytest.fail raises is no Exception
            self._failure = self._failure or failure
            raise web.HTTPInternalServerError(text=repr(failure)) from failure
        await asyncio.sleep(self._latency_s + reply.latency_s)
        if reply.act == "hang":
            await asyncio.Event().wait()
        if reply.act == "drop":
            if request.transport is not None:
                request.transport.close()
            return web.Response()  # for aiohttp alone: there is no connection left to send it on
        self._quota.correct(charged, tokens_taken(content), time.monotonic())
        return await self._sent(reply, content, request)

    async def _sent(self, reply: Reply, content: bytes, request: web.Request) -> web.StreamResponse:
        self.status_counts[reply.status] += 1
        headers = self._quota.headers(time.monotonic()) | dict(reply.headers)
        if reply.act != "drip":
            return web.Response(status=reply.status, body=content, headers=headers)
        response = web.StreamResponse(status=reply.status, headers=headers)
        response.content_length = len(content)
        await response.prepare(request)
        for byte in content:
            await asyncio.sleep(reply.every_s)
            await response.write(bytes([byte]))
        return response

    async def _stats(self, request: web.Request) -> web.Response:
        stats = {
            "calls": len(self.calls),
            "in_flight_peak": self.in_flight_peak,
            "status_counts": self.status_counts,
            "asked_again": len(self.calls) - len({json.dumps(call.body) for call in self.calls}),
        }
        return web.json_response(stats)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve Groq's chat completions on 127.0.0.1 until killed.")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before an answer")
    parser.add_argument("--rpm", type=int, help="requests a minute")
    parser.add_argument("--tpm", type=int, help="tokens a minute")
    parser.add_argument("--score", type=int, help="of every judgement (default: 1 to 5, by its request)")
    parser.add_argument("--faults", action="store_true", help="18 calls in 100 go wrong, each in its own way")
    parser.add_argument("--start-empty", action="store_true", help="begin with the limits used up")
    parser.add_argument("--minute", type=float, default=60.0, help="seconds that a minute lasts")
    args = parser.parse_args()
    limits = Limits(args.rpm, args.tpm, start_full=not args.start_empty, seconds_per_minute=args.minute)
    score_of = scripted_score if args.score is None else lambda _: args.score
    answer = Faults(score_of) if args.faults else lambda call: score_reply(score_of(call))
    with GroqServer(answer, limits=limits, latency_s=args.latency, port=args.port) as server:
        print(server.url, flush=True)
        with suppress(KeyboardInterrupt):
            while True:  # a sleep, unlike a wait without end, can be interrupted on Windows
                time.sleep(60)


if __name__ == "__main__":
    main()
