"""A loopback server that speaks Groq's protocol for chat completions.

A test passes a function from Call to Reply:

    with GroqServer(lambda call: score_reply(4)) as server:
        client = groq.Groq(api_key="any", base_url=server.url, max_retries=0)

It listens on 127.0.0.1 only. `python groq_server.py 0.2` runs it as a process of its own, for benchmarks,
with 0.2 s of latency, and prints its URL.
Error messages use Groq's wording, because clients parse limits and waiting times from them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

Pairs = tuple[tuple[str, str], ...]
JSON_TYPE: Pairs = (("content-type", "application/json"),)

# The rate limits as a 429's message names them. The first word is the unit.
RPM, RPD = "requests per minute (RPM)", "requests per day (RPD)"
TPM, TPD = "tokens per minute (TPM)", "tokens per day (TPD)"

ACCOUNT = "model `{model}` in organization `org_loopback` service tier `on_demand`"
UPGRADE = "Upgrade to Dev Tier today at https://console.groq.com/settings/billing"


@dataclass(frozen=True)
class Call:
    """A request for a chat completion."""

    number: int  # from 0 in order of arrival
    body: dict[str, Any]
    headers: dict[str, str]
    arrived_s: float  # time.monotonic()


@dataclass(frozen=True)
class Reply:
    """The response to a call: sent, never sent (hang), or the connection is closed (drop)."""

    status: int
    body: bytes | Callable[[Call], bytes]
    headers: Pairs = JSON_TYPE
    latency_s: float = 0.0  # in addition to the server's
    act: Literal["send", "hang", "drop"] = "send"

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
    refusal: str | None = None,
) -> Reply:
    """Return a chat completion. The default model is the call's; default token counts are estimates."""

    def build_body(call: Call) -> bytes:
        tokens_in = estimate_prompt_tokens(call.body) if prompt_tokens is None else prompt_tokens
        tokens_out = len(content or "") // 4 if completion_tokens is None else completion_tokens
        usage: dict[str, Any] = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        usage["total_tokens"] = tokens_in + tokens_out
        if cached_tokens:  # models without a prompt cache omit the details
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        message = {"role": "assistant", "content": content, "refusal": refusal}
        result = {
            "id": f"chatcmpl-loopback-{call.number}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model or call.body.get("model"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
            "usage": usage,
            "system_fingerprint": fingerprint,
        }
        return json.dumps(result).encode()

    return Reply(200, build_body)


def score_reply(score: object, rationale: str = "The answer meets the rubric.") -> Reply:
    """Return a completion whose content is a judgement in JSON. The score may be any JSON value."""
    return completion(json.dumps({"rationale": rationale, "score": score}))


def error(
    status: int,
    code: str,
    message: str,
    type: str = "invalid_request_error",
    headers: Pairs = (),
    **more: str,
) -> Reply:
    """Return an error in Groq's format. `{model}` in the message is replaced by the call's model."""

    def build_body(call: Call) -> bytes:
        text = message.replace("{model}", str(call.body.get("model")))
        return json.dumps({"error": {"message": text, "type": type, "code": code, **more}}).encode()

    return Reply(status, build_body, JSON_TYPE + headers)


def model_gone(model: str = "{model}") -> Reply:
    message = f"The model `{model}` does not exist or you do not have access to it."
    return error(404, "model_not_found", message)


def decommissioned() -> Reply:
    advice = "Please refer to https://console.groq.com/docs/deprecations for a recommendation."
    message = f"The model `{{model}}` has been decommissioned and is no longer supported. {advice}"
    return error(400, "model_decommissioned", message)


def rate_limited(
    kind: str = RPM, limit: int = 30, retry_after_s: float = 1.0, *, numbers: str = "", wait_s: float = 0.0
) -> Reply:
    """Return a 429, whose message by default says that the limit is used up and repeats the header's time."""
    unit = kind.split()[0]
    numbers = numbers or f"Limit {limit}, Used {limit}, Requested 1"
    wait = f"Please try again in {go_duration(wait_s or retry_after_s)}."
    message = f"Rate limit reached for {ACCOUNT} on {kind}: {numbers}. {wait} Need more {unit}? {UPGRADE}"
    return error(429, "rate_limit_exceeded", message, unit, (("retry-after", f"{retry_after_s:g}"),))


def too_large(limit: int = 6000, requested: int = 9000) -> Reply:
    """Return a 413: the request alone exceeds the tokens per minute."""
    numbers = f"Limit {limit}, Requested {requested}, please reduce your message size and try again."
    message = f"Request too large for {ACCOUNT} on {TPM}: {numbers} Need more tokens? {UPGRADE}"
    return error(413, "rate_limit_exceeded", message, "tokens")


# Refusals that Groq really sent, from 2024 to 2026: kind, limit, used, requested, wait.
RECORDED = {
    "RPM": (RPM, 30, 30, 1, "399ms"),
    "TPM": (TPM, 6000, 5034, 1443, "4.77s"),
    "TPM, unnamed": ("", 131072, 130385, 731, "28.542992187s"),
    "TPD": (TPD, 100000, 97050, 3619, "9m38.016s"),
    "TPD, unnamed": ("", 500000, 500370, 252, "1m47.5854s"),
    "too large, about": (TPM, 7000, 0, "~12903", "50.597142857s"),
    "too large": (TPM, 7000, 0, 7895, "7.671428571s"),
}


def recorded(name: str, wait: str = "") -> Reply:
    """Return a recorded 429, with another wait if a test has no time for the real one."""
    kind, limit, used, requested, real_wait = RECORDED[name]
    numbers = f"{kind}: Limit {limit}, Used {used}, Requested {requested}"
    message = f"Rate limit reached for {ACCOUNT} on {numbers}. Please try again in {wait or real_wait}."
    return error(429, "rate_limit_exceeded", message, "tokens")


def json_validate_failed(failed_generation: str) -> Reply:
    message = "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details."
    return error(400, "json_validate_failed", message, failed_generation=failed_generation)


def hang() -> Reply:
    return Reply(0, b"", act="hang")


def drop() -> Reply:
    return Reply(0, b"", act="drop")


def go_duration(seconds: float) -> str:
    """Format a duration as Go does: 1h0m0s, 2m59.56s, 7.66s, 172ms. Round up, so that it is long enough."""
    milliseconds = max(0, math.ceil(seconds * 1000 - 1e-6))
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minute = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minute}m" if minutes else "") + f"{rest / 1000:g}s"


def estimate_prompt_tokens(body: dict[str, Any]) -> int:
    return sum(len(str(message.get("content") or "")) for message in body.get("messages", ())) // 4


def request_identity(body: dict[str, Any]) -> str:
    return json.dumps([body["messages"][:2], body.get("seed")])  # leaves out added complaints


def scripted_score(call: Call) -> int:
    """Return a score from 1 to 5 that depends on the request only."""
    return 1 + int(hashlib.sha256(request_identity(call.body).encode()).hexdigest(), 16) % 5


BAD_REPLIES = [
    *(score_reply(invalid) for invalid in (0, 6, 3.5, True, None)),
    completion("The answer is right in the main, but I would not put it into a number."),
    completion(""),
    completion('{"rationale": "Right in the m', finish_reason="length"),
    Reply(200, b"{}"),
    Reply(200, b"<!doctype html><title>Sign in</title>", (("content-type", "text/html; charset=utf-8"),)),
    Reply(200, b'{"id": "chatcmpl-loopback", "choices": ['),
    json_validate_failed('{"rationale": Right in the main'),
]
ERRORS = [error(status, "over_capacity", "Try again.") for status in (500, 502, 503, 500, 503)]
SERVICE_FAULTS = [*ERRORS, drop(), drop(), hang()]


class Faults:
    """Answer with scores, except for 18 calls in 100: 10 bad replies, two a request at most, and 8 faults."""

    def __init__(self, score_of: Callable[[Call], int]) -> None:
        self._score_of = score_of
        self._bad_replies: Counter[str] = Counter()

    def __call__(self, call: Call) -> Reply:
        hundreds, position = divmod(call.number, 100)
        slot = position * 37 % 100  # spreads the faults over the hundred
        request = request_identity(call.body)
        if slot < 10 and self._bad_replies[request] < 2:
            self._bad_replies[request] += 1
            return BAD_REPLIES[(hundreds * 10 + slot) % len(BAD_REPLIES)]
        if 10 <= slot < 18:
            return SERVICE_FAULTS[slot - 10]
        return score_reply(self._score_of(call))


@dataclass(frozen=True)
class Limits:
    """An account's limit of a minute: of requests, of tokens, or none."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    start_full: bool = True  # otherwise it is used up at first
    enforced_share: float = 1.0  # of the minute, over which it is enforced; refusals don't say so


class Quota:
    """How much of an account's limit is used. It refills continuously, as at Groq; callers pass the time."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._kind = RPM if limits.requests_per_minute else TPM
        self._stated = limits.requests_per_minute or limits.tokens_per_minute or 0
        self._limit = max(1, round(self._stated * limits.enforced_share))
        self._used = 0.0 if limits.start_full else float(self._limit)
        self._updated_s = now_s

    def _use(self, amount: float, now_s: float) -> None:
        refilled_s = now_s - self._updated_s
        self._used = max(0.0, max(0.0, self._used - refilled_s * self._stated / 60) + amount)
        self._updated_s = now_s

    def admit(self, tokens: int, now_s: float) -> Reply | None:
        """Charge a request and its tokens and return None, or return the refusal: a 413 or a 429."""
        if not self._stated:
            return None
        amount = tokens if self._kind == TPM else 1
        if amount > self._limit:
            return too_large(self._limit, amount)
        self._use(0, now_s)
        wait_s = (self._used + amount - self._limit) * 60 / self._stated
        if wait_s < 1e-6:  # so that a rounding error refuses nothing
            self._use(amount, now_s)
            return None
        numbers = f"Limit {self._stated}, Used {math.ceil(self._used - 1e-6)}, Requested {amount}"
        retry_after_s = max(1, math.ceil(wait_s - 1e-6))  # in whole seconds, as at Groq
        return rate_limited(self._kind, 0, retry_after_s, numbers=numbers, wait_s=wait_s)

    def correct(self, charged: int, actual: int, now_s: float) -> None:
        if self._kind == TPM:
            self._use(actual - charged, now_s)

    def headers(self, now_s: float) -> dict[str, str]:
        """Return the headers of the tokens. Those of requests would be about a day, at Groq."""
        if not self._stated or self._kind != TPM:
            return {}
        self._use(0, now_s)
        return {
            "x-ratelimit-limit-tokens": str(self._limit),
            "x-ratelimit-remaining-tokens": str(max(0, math.floor(self._limit - self._used + 1e-6))),
            "x-ratelimit-reset-tokens": go_duration(self._used * 60 / self._stated),
        }


class GroqServer:
    """Serve replies on 127.0.0.1 inside a with block, from an event loop in a thread.

    `answer` runs on the event loop and is not called for requests that `limits` refuse. If it raises, the
    client gets a 500, and the with block raises the exception at its end. Without a `port` a free one is
    taken.
    """

    def __init__(
        self,
        answer: Callable[[Call], Reply],
        *,
        limits: Limits | None = None,
        latency_s: float = 0.0,
        port: int = 0,
        prefix: str = "/openai/v1",
    ) -> None:
        self._answer = answer
        self._quota = Quota(limits or Limits(), time.monotonic())
        self._latency_s = latency_s
        self.port = port
        self.prefix = prefix  # of the path of calls
        self._in_flight = 0
        self._failure: BaseException | None = None
        self.in_flight_peak = 0
        self.calls: list[Call] = []
        self.status_counts: Counter[int] = Counter()

    def __enter__(self) -> GroqServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="groq-server", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *exception: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._failure is not None:
            raise self._failure

    async def _start(self) -> None:
        app = web.Application(client_max_size=0)  # 0: no limit
        app.router.add_post(f"{self.prefix}/chat/completions", self._handle_call)
        # Cancellation: a call whose client has gone no longer counts as in flight. The timeout is how long a
        # call that hangs may delay the end of the server; aiohttp takes 0 for no timeout.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def _catch_failure(self) -> Iterator[None]:
        """Keep the first exception of the test's function, and answer with a 500."""
        try:
            yield
        except BaseException as failure:  # what pytest.fail raises is not an Exception
            self._failure = self._failure or failure
            raise web.HTTPInternalServerError(text=repr(failure)) from failure

    async def _handle_call(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = Call(len(self.calls), body, headers, time.monotonic())
        self.calls.append(call)
        charged = estimate_prompt_tokens(body) + (body.get("max_completion_tokens") or 0)
        refusal = self._quota.admit(charged, call.arrived_s)
        with self._catch_failure():
            reply = refusal or self._answer(call)
            content = reply.body_for(call)
        self._in_flight += 1
        self.in_flight_peak = max(self.in_flight_peak, self._in_flight)
        try:
            await asyncio.sleep(reply.latency_s + (0 if refusal else self._latency_s))
            if reply.act == "send":
                self.status_counts[reply.status] += 1
                usage = re.search(rb'"total_tokens": (\d+)', content)
                if refusal is None:
                    self._quota.correct(charged, int(usage[1]) if usage else 0, time.monotonic())
            return await send(request, reply, content, self._quota.headers(time.monotonic()))
        finally:
            self._in_flight -= 1


async def send(request: web.Request, reply: Reply, body: bytes, more: dict[str, str]) -> web.StreamResponse:
    """Send a reply in the way that its `act` says, with more headers than its own."""
    headers = more | dict(reply.headers)
    if reply.act == "send":
        return web.Response(status=reply.status, body=body, headers=headers)
    if reply.act == "hang":
        await asyncio.Event().wait()
    if request.transport is not None:
        request.transport.close()
    return web.StreamResponse(status=reply.status, headers=headers)


def main() -> None:
    latency_s = float(sys.argv[1])
    with GroqServer(lambda call: score_reply(scripted_score(call)), latency_s=latency_s) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
