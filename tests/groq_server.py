"""A loopback server that speaks Groq's protocol of chat completions and batches, for tests and benchmarks.

In a test, hand in a function from Call to Reply, and point the real client at the server:

    with GroqServer(lambda call: score_reply(4)) as server:
        client = groq.Groq(api_key="any", base_url=server.url, max_retries=0)

The lines of a batch are answered by the same function; a BatchScript says how their batch goes on:

    script = BatchScript(polls=2, end="expired", answered=10)
    with GroqServer(lambda call: score_reply(4), batches=script) as server:
        ...
    assert max(server.submitted.values()) == 1

As a process of its own, so that a benchmark does not share its processor time with the server:

    python groq_server.py --latency 0.2 --rpm 1000 --tpm 250000 --faults --polls 5

The first line that it prints is its url; GET /stats tells what it has seen. It listens on 127.0.0.1 only.
Times are in seconds, as `_s` says. Messages are worded as Groq words them, because programs read limits and
waits out of them.
"""

import argparse
import asyncio
import hashlib
import json
import math
import random
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
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
    """One request: `number` counts from 0 in order of arrival, `arrived_s` is time.monotonic(). A line of a
    batch has a custom_id, its batch's headers and arrival, and a number among the lines of all batches."""

    number: int
    body: dict[str, Any]
    headers: dict[str, str]
    arrived_s: float
    custom_id: str | None = None


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


# ---------------------------------------------------------------------------------------------------- sending
class Failures:
    """Keeps the first exception of what a test handed in, for the end of the with block."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as failure:  # what pytest.fail raises is no Exception
            self.first = self.first or failure
            raise web.HTTPInternalServerError(text=repr(failure)) from failure


async def acted_out(
    reply: Reply, content: bytes, request: web.Request, more_headers: dict[str, str]
) -> web.StreamResponse:
    """The reply in the way that its act says. Its latency is the caller's."""
    if reply.act == "hang":
        await asyncio.Event().wait()
    if reply.act == "drop":
        return hung_up(request)
    headers = more_headers | dict(reply.headers)
    if reply.act == "send":
        return web.Response(status=reply.status, body=content, headers=headers)
    response = web.StreamResponse(status=reply.status, headers=headers)
    response.content_length = len(content)
    await response.prepare(request)
    for byte in content:
        await asyncio.sleep(reply.every_s)
        await response.write(bytes([byte]))
    return response


async def torn(answer: web.Response, request: web.Request, share: float) -> web.StreamResponse:
    """The first part of an answer that says how long all of it is, and then nothing."""
    body = bytes(answer.body or b"")  # type: ignore[arg-type]
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: int(len(body) * share)])
    hung_up(request)
    return response


def hung_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response()  # for aiohttp alone: there is no connection left to send it on


# ------------------------------------------------------------------------------------------- a batch's script
ENDPOINT = "/v1/chat/completions"
MOST_LINES, MOST_BYTES = 50_000, 100 * 10**6  # of a batch's file

Status = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]
ENDS: tuple[Status, ...] = ("completed", "failed", "expired", "cancelled")
Problem = dict[str, str | int | None]


@dataclass(frozen=True)
class BatchScript:
    """How a batch goes on: a step whenever it is retrieved, so that nothing waits for a clock. A list of
    batches shows them and takes no step.

    `polls` is how often it is found in progress (validating, if it fails) before its end, and `ending` how
    often finalizing or cancelling after that. Its lines are answered step by step, the same share at each.

    `answered` is for batches that expire or are cancelled, by script or by the client: so many lines are
    answered by then, or by default those of the steps so far. The rest stand in the error file, or, with
    `rest_listed` off, nowhere.

    Results come in an order of their own, unless `shuffle` is off. So many of the first as `duplicates` says
    stand there twice, so many as `strangers` says come after one whose custom_id nobody asked for, and `cut`
    ends the output file in the middle of its last line. `reason` is the message of a batch that fails.
    """

    polls: int = 0
    ending: int = 0
    end: Literal["completed", "failed", "expired", "cancelled"] = "completed"
    answered: int | None = None
    rest_listed: bool = True
    shuffle: bool = True
    duplicates: int = 0
    strangers: int = 0
    cut: bool = False
    reason: str = "The batch could not be processed."

    def course(self) -> list[Status]:
        """The states that it is found in, one by one."""
        first: list[Status] = ["validating" if self.end == "failed" else "in_progress"]
        return first * self.polls + self.last_steps(self.end)

    def last_steps(self, end: Status) -> list[Status]:
        before: dict[Status, list[Status]] = {"completed": ["finalizing"], "cancelled": ["cancelling"]}
        return before.get(end, []) * self.ending + [end]


@dataclass(frozen=True)
class Late:
    """A reply in place of the answer to a request that took effect all the same. By default the answer is
    lost: the connection is dropped after the file was stored or the batch created."""

    reply: Reply = field(default_factory=drop)


@dataclass(frozen=True)
class Torn:
    """The answer itself, but the connection is dropped when this share of it is sent."""

    share: float = 0.5


# A reply alone comes instead of all that the request asks for, which is as good as never sent.
Disturb = Callable[[str, str], Reply | Late | Torn | None]


# ------------------------------------------------------------------------------------------ files and batches
@dataclass
class StoredFile:
    """A file that was uploaded, or one of results. A small one is kept in memory and a large one on disk, but
    without a name, so that nothing is left of it when the process is killed."""

    id: str
    filename: str
    purpose: Literal["batch", "batch_output"]
    created_at: int = field(default_factory=lambda: int(time.time()))
    size: int = 0
    deleted: bool = False

    def __post_init__(self) -> None:
        self._content = SpooledTemporaryFile(max_size=2**20)  # noqa: SIM115 - it lives as long as this
        weakref.finalize(self, self._content.close)  # a test may look into it long after the with block
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of all that was ever added."""
        return self._hash.hexdigest()

    def add(self, content: bytes | memoryview) -> None:
        self._content.seek(self.size)
        self._content.write(content)
        self._hash.update(content)
        self.size += len(content)

    def cut(self, size: int) -> None:
        self._content.truncate(size)
        self.size = size

    def content(self) -> bytes:
        self._content.seek(0)
        return self._content.read()

    def line_at(self, start: int) -> bytes:
        """The line that begins there, none at the end."""
        self._content.seek(start)
        return self._content.readline()

    def lines(self) -> list[Any]:
        """For tests: what its lines say."""
        return [json.loads(line) for line in self.content().splitlines()]

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
        }


@dataclass
class Batch:
    """A batch and how far it is. `starts` is where its lines begin in its file, in the order in which they
    are answered, or None before the file was looked at; `dealt_with` is how many of them are."""

    id: str
    input: StoredFile
    order: dict[str, Any]
    headers: dict[str, str]
    script: BatchScript
    created_at: int = field(default_factory=lambda: int(time.time()))
    arrived_s: float = field(default_factory=time.monotonic)
    status: Status = "validating"
    times: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    starts: list[int] | None = None
    dealt_with: int = 0
    completed: int = 0
    failed: int = 0
    output: StoredFile | None = None
    errors: StoredFile | None = None

    def __post_init__(self) -> None:
        self.course = self.script.course()
        self.lock = asyncio.Lock()

    @property
    def total(self) -> int:
        return len(self.starts or ())

    def enter(self, status: Status) -> None:
        self.status = status
        self.times.setdefault(f"{status}_at", int(time.time()))

    def due(self, status: Status) -> int:
        """How many lines are answered when it is found in this state."""
        script = self.script
        asked_for = self.total if script.answered is None else min(script.answered, self.total)
        if status == "in_progress":
            goal = asked_for if script.end in ("expired", "cancelled") else self.total
            step = script.polls - self.course.count("in_progress") + 1
            return goal * step // (script.polls + 1)
        if status in ("finalizing", "completed"):
            return self.total
        if status in ("expired", "cancelled") and script.answered is not None:
            return max(asked_for, self.dealt_with)
        return self.dealt_with

    def call(self, number: int, start: int) -> Call:
        line = json.loads(self.input.line_at(start))
        return Call(number, line["body"], self.headers, self.arrived_s, line["custom_id"])

    def shown(self) -> dict[str, Any]:
        """As Groq shows it. Counts leave out the lines that were not answered."""
        ended = self.status in ENDS
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.order["endpoint"],
            "completion_window": self.order["completion_window"],
            "metadata": self.order.get("metadata"),
            "input_file_id": self.input.id,
            "output_file_id": self.output.id if ended and self.output else None,
            "error_file_id": self.errors.id if ended and self.errors else None,
            "errors": {"object": "list", "data": self.problems} if self.status == "failed" else None,
            "status": self.status,
            "created_at": self.created_at,
            "expires_at": self.created_at + window_s(self.order["completion_window"]),
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            **self.times,
        }


def window_s(window: object) -> int:
    """24h to 7d are allowed; 0 for any other."""
    match = re.fullmatch(r"(\d+)(h|d)", str(window))
    seconds = int(match[1]) * {"h": 3_600, "d": 86_400}[match[2]] if match else 0
    return seconds if 86_400 <= seconds <= 7 * 86_400 else 0


def line_problem(line: bytes, seen: set[str]) -> Problem | None:
    """What keeps a batch with such a line from being processed. Custom ids go to those seen."""
    try:
        request = json.loads(line)
    except ValueError:
        request = None
    if not isinstance(request, dict):
        return problem("invalid_json_line", "This line is not parseable as valid JSON.")
    custom_id = request.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        return problem("missing_required_parameter", "Missing required parameter: 'custom_id'.", "custom_id")
    if custom_id in seen:
        message = f"The custom_id '{custom_id}' for this request is a duplicate of another request."
        return problem("duplicate_custom_id", message, "custom_id")
    seen.add(custom_id)
    if (request.get("method"), request.get("url")) != ("POST", ENDPOINT):
        return problem("invalid_url", f"The request must be a POST to {ENDPOINT}.", "url")
    if not isinstance(request.get("body"), dict):
        return problem("missing_required_parameter", "Missing required parameter: 'body'.", "body")
    return None


def problem(code: str, message: str, param: str | None = None) -> Problem:
    return {"code": code, "message": message, "param": param, "line": None}


def result_line(call: Call, response: dict[str, Any] | None, error: dict[str, str] | None = None) -> bytes:
    """A line of an output or error file, in plain UTF-8: what str.splitlines takes for an end of line may be
    in the middle of it."""
    result = {
        "id": f"batch_req_loopback_{call.number}",
        "custom_id": call.custom_id,
        "response": response,
        "error": error,
    }
    return json.dumps(result, ensure_ascii=False).encode(errors="replace") + b"\n"


def response_in_line(call: Call, reply: Reply, content: bytes) -> dict[str, Any]:
    """A body that is not JSON stands there as text. An act is a failure inside the service: there is no
    connection on which a client could notice it."""
    if reply.act != "send":
        failure = error(500, "internal_error", f"Acted out: {reply.act}.", "internal_server_error")
        return response_in_line(call, failure, failure.body_for(call))
    try:
        body = json.loads(content)
    except ValueError:
        body = content.decode(errors="replace")
    return {"status_code": reply.status, "request_id": f"req_loopback_{call.number}", "body": body}


LINES_A_TURN = 100  # how many lines are dealt with before the loop turns to other requests


@final
class BatchService:
    """The files and batches of one server. Nothing is ever forgotten: a deleted file says that it is."""

    def __init__(
        self,
        answer: Callable[[Call], Reply],
        scripts: Sequence[BatchScript],
        disturb: Disturb | None,
        failures: Failures,
        page: int | None,
    ) -> None:
        self.files: dict[str, StoredFile] = {}
        self.batches: dict[str, Batch] = {}
        self.visits: list[tuple[str, str]] = []
        self.uploaded: Counter[str] = Counter()
        self.submitted: Counter[str] = Counter()
        self.paid_twice = 0
        self._paid: set[bytes] = set()
        self._asked: list[tuple[Batch, int]] = []
        self._files_made = 0
        self._answer, self._scripts, self._disturb, self._failures = answer, scripts, disturb, failures
        self._page = page

    def routes(self) -> list[web.RouteDef]:
        files, batches = "/openai/v1/files", "/openai/v1/batches"
        handlers = [
            ("POST", files, self._upload),
            ("GET", files, self._list_files),
            ("GET", files + "/{id}", self._info),
            ("GET", files + "/{id}/content", self._content),
            ("DELETE", files + "/{id}", self._delete),
            ("POST", batches, self._create),
            ("GET", batches, self._list_batches),
            ("GET", batches + "/{id}", self._retrieve),
            ("POST", batches + "/{id}/cancel", self._cancel),
        ]
        return [web.route(method, path, self._disturbed(handler)) for method, path, handler in handlers]

    def calls(self) -> list[Call]:
        return [batch.call(number, start) for number, (batch, start) in enumerate(self._asked)]

    @property
    def lines_answered(self) -> int:
        return len(self._asked)

    def _disturbed(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.visits.append((request.method, request.path))
            with self._failures.kept():
                instead = self._disturb(request.method, request.path) if self._disturb else None
            if isinstance(instead, Reply):
                await request.release()  # a client that is still sending would not see an answer
                return await replied(instead, request)
            answer = await handler(request)
            if isinstance(instead, Late):
                return await replied(instead.reply, request)
            return await torn(answer, request, instead.share) if isinstance(instead, Torn) else answer

        return handle

    # ------------------------------------------------------------------------------------------------ files
    async def _upload(self, request: web.Request) -> web.Response:
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
        purpose, stored = "", None
        for name, filename, content in form_fields(body, request.headers["content-type"]):
            if name == "purpose":
                purpose = bytes(content).decode()
            elif name == "file":
                stored = self._new_file(filename, "batch")
                stored.add(content)
        if stored is None or purpose != "batch":
            return refused(error(400, "invalid_request", "A file and the purpose `batch` are required."))
        if stored.size > MOST_BYTES:
            return refused(error(413, "request_too_large", f"The file is over {MOST_BYTES} bytes."))
        if not stored.filename.endswith(".jsonl") or not stored.size:
            return refused(error(400, "invalid_file", "The file must be a .jsonl file that is not empty."))
        self.files[stored.id] = stored
        self.uploaded[stored.sha256] += 1
        return web.json_response(stored.shown())

    def _new_file(self, filename: str, purpose: Literal["batch", "batch_output"]) -> StoredFile:
        self._files_made += 1
        return StoredFile(f"file_loopback_{self._files_made}", filename, purpose)

    async def _list_files(self, request: web.Request) -> web.Response:
        return self._listed(request, [one.shown() for one in self.files.values() if not one.deleted])

    def _listed(self, request: web.Request, rows: Sequence[dict[str, Any]]) -> web.Response:
        """A page of these, the newest first; the next one is asked for by the last ID of the one before."""
        newest = rows[::-1]
        ids = [row["id"] for row in newest]
        after = request.query.get("after")
        left = newest[ids.index(after) + 1 if after in ids else 0 :]
        shown = left[: self._page]
        return web.json_response({"object": "list", "data": shown, "has_more": len(shown) < len(left)})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response(self._file(request).shown())

    async def _content(self, request: web.Request) -> web.Response:
        stored = self._file(request)
        return web.Response(body=stored.content(), content_type="application/octet-stream")

    async def _delete(self, request: web.Request) -> web.Response:
        stored = self._file(request)
        stored.deleted = True
        return web.json_response({"id": stored.id, "object": "file", "deleted": True})

    def _file(self, request: web.Request) -> StoredFile:
        stored = self.files.get(request.match_info["id"])
        if stored is None or stored.deleted:
            raise not_found("file", request.match_info["id"])
        return stored

    # ---------------------------------------------------------------------------------------------- batches
    async def _create(self, request: web.Request) -> web.Response:
        order = json.loads(await request.read())
        source = self.files.get(order.get("input_file_id"))
        if source is None or source.deleted:
            raise not_found("file", str(order.get("input_file_id")))
        if source.purpose != "batch" or order.get("endpoint") != ENDPOINT:
            return refused(
                error(400, "invalid_request", f"The file must be a batch's, and the endpoint {ENDPOINT}.")
            )
        if not window_s(order.get("completion_window")):
            return refused(error(400, "invalid_request", "The completion window must be 24h to 7d."))
        number = len(self.batches)
        script = self._scripts[min(number, len(self._scripts) - 1)]
        headers = {name.lower(): value for name, value in request.headers.items()}
        batch = Batch(f"batch_loopback_{number + 1}", source, order, headers, script)
        self.batches[batch.id] = batch
        self.submitted[source.sha256] += 1
        return web.json_response(batch.shown())

    async def _list_batches(self, request: web.Request) -> web.Response:
        return self._listed(request, [batch.shown() for batch in self.batches.values()])

    async def _retrieve(self, request: web.Request) -> web.Response:
        batch = self._batch(request)
        async with batch.lock:
            if batch.status not in ENDS:
                await self._step(batch)
        return web.json_response(batch.shown())

    async def _cancel(self, request: web.Request) -> web.Response:
        batch = self._batch(request)
        async with batch.lock:
            if batch.status in ENDS:
                message = f"Cannot cancel a batch with status '{batch.status}'."
                return refused(error(409, "invalid_request", message))
            batch.course = batch.script.last_steps("cancelled")
            batch.enter("cancelling")
        return web.json_response(batch.shown())

    def _batch(self, request: web.Request) -> Batch:
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            raise not_found("batch", request.match_info["id"])
        return batch

    async def _step(self, batch: Batch) -> None:
        """The next of its course. If the client goes away meanwhile, the next retrieve goes on from there."""
        if batch.starts is None:
            await self._validate(batch)
        status = batch.course[0]
        await self._deal_with_lines(batch, batch.due(status), self._answer_line)
        if status in ("expired", "cancelled") and batch.script.rest_listed:
            await self._deal_with_lines(batch, batch.total, self._list_line)
        if status in ENDS:
            self._hand_over(batch)
        batch.enter(status)
        batch.course = batch.course[1:]

    async def _validate(self, batch: Batch) -> None:
        starts: list[int] = []
        seen: set[str] = set()
        start, problems = 0, []
        while line := batch.input.line_at(start):
            if found := line_problem(line, seen):
                problems.append({**found, "line": len(starts) + 1})
            starts.append(start)
            start += len(line)
            if len(starts) % LINES_A_TURN == 0:
                await asyncio.sleep(0)
        if len(starts) > MOST_LINES:
            problems = [problem("too_many_tasks", f"The file has more than {MOST_LINES} lines.")]
        if problems:
            starts, batch.course = [], ["failed"]
        elif batch.script.end == "failed":
            problems = [problem("processing_failed", batch.script.reason)]
        if batch.script.shuffle:
            random.Random(len(starts)).shuffle(starts)
        batch.starts, batch.problems = starts, problems

    async def _deal_with_lines(self, batch: Batch, upto: int, deal: Callable[[Batch, int], None]) -> None:
        assert batch.starts is not None
        while batch.dealt_with < upto:
            deal(batch, batch.starts[batch.dealt_with])
            batch.dealt_with += 1
            if batch.dealt_with % LINES_A_TURN == 0:
                await asyncio.sleep(0)

    def _answer_line(self, batch: Batch, start: int) -> None:
        call = batch.call(len(self._asked), start)
        self._asked.append((batch, start))
        with self._failures.kept():
            reply = self._answer(call)
            response = response_in_line(call, reply, reply.body_for(call))
        line = result_line(call, response)
        if response["status_code"] != 200:
            self._add_error(batch, line)
            batch.failed += 1
            return
        if batch.completed < batch.script.strangers:
            stranger = replace(call, custom_id=f"stranger-{call.number}")
            line = result_line(stranger, response) + line
        if batch.completed < batch.script.duplicates:
            line += result_line(call, response)
        self._add_output(batch, line)
        self._count_payment(call)
        batch.completed += 1

    def _list_line(self, batch: Batch, start: int) -> None:
        """Adds one that was not answered to the error file."""
        end = batch.course[0]
        said = {
            "code": f"batch_{end}",
            "message": f"This request was not executed before the batch was {end}.",
        }
        self._add_error(batch, result_line(batch.call(len(self._asked), start), None, said))

    def _add_output(self, batch: Batch, line: bytes) -> None:
        if batch.output is None:
            batch.output = self._new_file(f"{batch.id}_output.jsonl", "batch_output")
        batch.output.add(line)

    def _add_error(self, batch: Batch, line: bytes) -> None:
        if batch.errors is None:
            batch.errors = self._new_file(f"{batch.id}_errors.jsonl", "batch_output")
        batch.errors.add(line)

    def _hand_over(self, batch: Batch) -> None:
        """From now on the results can be fetched."""
        if batch.output is not None and batch.script.cut:
            batch.output.cut(batch.output.size - 20)
        for results in (batch.output, batch.errors):
            if results is not None:
                self.files[results.id] = results

    def _count_payment(self, call: Call) -> None:
        text = json.dumps([call.custom_id, call.body], sort_keys=True)
        digest = hashlib.sha256(text.encode()).digest()
        self.paid_twice += digest in self._paid
        self._paid.add(digest)


def form_fields(body: bytearray, content_type: str) -> Iterator[tuple[str, str, memoryview]]:
    """Name, file name and content of each field of a form. aiohttp's own reader is not used: it warns now and
    then of a function that it should not use itself, and warnings are errors in these tests."""
    end_of_field = b"\r\n--" + content_type.partition("boundary=")[2].strip('"').encode()
    at = len(end_of_field)
    while (start := body.find(b"\r\n\r\n", at) + 4) >= 4:
        head = dict(re.findall(r'(name|filename)="([^"]*)"', body[at:start].decode()))
        end = body.find(end_of_field, start)
        yield head["name"], head.get("filename", ""), memoryview(body)[start:end]
        at = end + len(end_of_field)


NO_CALL = Call(0, {}, {}, 0.0)  # replies may depend on a call, and requests to files and batches are none


async def replied(reply: Reply, request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(reply.latency_s)
    return await acted_out(reply, reply.body_for(NO_CALL), request, {})


def refused(reply: Reply) -> web.Response:
    return web.Response(status=reply.status, body=reply.body_for(NO_CALL), headers=dict(reply.headers))


def not_found(what: str, id: str) -> web.HTTPNotFound:
    body = error(404, "not_found", f"The {what} `{id}` does not exist.").body_for(NO_CALL)
    return web.HTTPNotFound(text=body.decode(), content_type="application/json")


# ----------------------------------------------------------------------------------------------------- server
@final
class GroqServer:
    """Serves replies on 127.0.0.1 for the length of a with block, from an event loop in a thread of its own.

    `answer` runs on that loop, under no lock, so it must be quick: slowness is what `latency_s` is for. It is
    not asked about calls that `limits` refuse, though `calls` has these too. When it raises, the client gets
    a 500 and the with block ends with the exception, so that a client that copes with a 500 cannot hide it.

    Batches have no limits and no latency. Of several scripts each batch takes the next and, when they are
    used up, the last. Lists of files and batches show so many at a time as `page` says. Before a request to
    these is answered, `disturb` is told its method and path, and may have something else happen. `uploaded`
    counts uploads, and `submitted` the batches made of them, by the sha256 of their content. `calls`,
    `status_counts` and `in_flight_peak` leave batches out.
    """

    url: str

    def __init__(
        self,
        answer: Callable[[Call], Reply],
        *,
        limits: Limits | None = None,
        latency_s: float = 0.0,
        port: int = 0,
        batches: BatchScript | Sequence[BatchScript] | None = None,
        disturb: Disturb | None = None,
        page: int | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.status_counts: Counter[int] = Counter()
        self._answer, self._latency_s, self._port = answer, latency_s, port
        self._quota = Quota(limits or Limits(), time.monotonic())
        self._in_flight = self._in_flight_peak = 0
        self._failures = Failures()
        scripts = [batches] if isinstance(batches, BatchScript) else batches or [BatchScript()]
        self._service = service = BatchService(answer, scripts, disturb, self._failures, page)
        self.files, self.batches, self.visits = service.files, service.batches, service.visits
        self.uploaded, self.submitted = service.uploaded, service.submitted

    @property
    def batch_calls(self) -> list[Call]:
        """The lines that were answered, in that order. They are read anew each time, to save memory."""
        return self._service.calls()

    @property
    def paid_twice(self) -> int:
        """How many lines were answered with a 200 though their custom_id and body had been before."""
        return self._service.paid_twice

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
        if self._failures.first is not None:
            raise self._failures.first

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.post("/openai/v1/chat/completions", self._chat),
            web.get("/stats", self._stats),
            *self._service.routes(),
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
        with self._failures.kept():
            reply = self._answer(call)
            content = reply.body_for(call)
        await asyncio.sleep(self._latency_s + reply.latency_s)
        if reply.act in ("send", "drip"):
            self._quota.correct(charged, tokens_taken(content), time.monotonic())
        return await self._sent(reply, content, request)

    async def _sent(self, reply: Reply, content: bytes, request: web.Request) -> web.StreamResponse:
        if reply.act in ("send", "drip"):
            self.status_counts[reply.status] += 1
        return await acted_out(reply, content, request, self._quota.headers(time.monotonic()))

    async def _stats(self, request: web.Request) -> web.Response:
        stats = {
            "calls": len(self.calls),
            "in_flight_peak": self.in_flight_peak,
            "status_counts": self.status_counts,
            "asked_again": len(self.calls) - len({json.dumps(call.body) for call in self.calls}),
            "uploads": self.uploaded.total(),
            "batches": len(self.batches),
            "batch_lines": self._service.lines_answered,
            "paid_twice": self.paid_twice,
        }
        return web.json_response(stats)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve Groq's protocol on 127.0.0.1 until killed.")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before an answer")
    parser.add_argument("--rpm", type=int, help="requests a minute")
    parser.add_argument("--tpm", type=int, help="tokens a minute")
    parser.add_argument("--score", type=int, help="of every judgement (default: 1 to 5, by its request)")
    parser.add_argument("--faults", action="store_true", help="18 calls in 100 go wrong, each in its own way")
    parser.add_argument("--start-empty", action="store_true", help="begin with the limits used up")
    parser.add_argument("--minute", type=float, default=60.0, help="seconds that a minute lasts")
    parser.add_argument("--polls", type=int, default=0, help="how often a batch is found in progress")
    args = parser.parse_args()
    limits = Limits(args.rpm, args.tpm, start_full=not args.start_empty, seconds_per_minute=args.minute)
    score_of = scripted_score if args.score is None else lambda _: args.score
    answer = Faults(score_of) if args.faults else lambda call: score_reply(score_of(call))
    with GroqServer(
        answer,
        limits=limits,
        latency_s=args.latency,
        port=args.port,
        batches=BatchScript(polls=args.polls),
    ) as server:
        print(server.url, flush=True)
        with suppress(KeyboardInterrupt):
            while True:  # a sleep, unlike a wait without end, can be interrupted on Windows
                time.sleep(60)


if __name__ == "__main__":
    main()
