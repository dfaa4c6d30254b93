"""The judge engine: limits, pacing, retries, the journal. No network, no sleep: tests move the clock."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import evaluation
import pytest
from evaluation import (
    Budget,
    CallCounts,
    CallPlan,
    CallPool,
    Engine,
    Failure,
    GroqJudge,
    Journal,
    Judgement,
    JudgeRequest,
    JudgeRun,
    JudgeUnavailable,
    JudgingEnded,
    ModelGone,
    Pacer,
    Refusal,
    Reply,
    ServiceError,
    Tier,
    TokenLimit,
    Usage,
    UsageError,
    judgement_key,
    parse_journal,
)

from groq_server import Call, Limits, Quota

LLAMA, OSS = "llama-3.1-8b-instant", "openai/gpt-oss-20b"
NEVER = math.inf
Ending = Reply | Exception
Answer = tuple[float, Ending]  # after so many seconds, in this way


def table(names: str, rows: Mapping[str, object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


# ------------------------------------------------------------------ What the service says

GROQ_429 = (
    "Rate limit reached for model `llama-3.1-8b-instant` in organization `org_01hx` service tier `on_demand` "
    "on {}. Please try again in {}. Need more tokens? Upgrade to Dev Tier today at "
    "https://console.groq.com/settings/billing"
)
LOST = ServiceError("Connection error.")
BUSY = ServiceError("Service Unavailable", status=503)


def refused(limit: str = "things", wait_s: float = 2.0) -> ServiceError:
    """A 429 as Groq words it; the wait stands in `retry-after`."""
    message = GROQ_429.format(limit, "1s")
    return ServiceError(message, status=429, code="rate_limit_exceeded", retry_after_s=wait_s)


DURATIONS: dict[str, object] = {
    "2m59.56s": ("2m59.56s", 179.56),
    "7.66s": ("7.66s", 7.66),
    "172ms": ("172ms", 0.172),
    "hours": ("1h2m3.5s", 3723.5),
    "a day": ("24h0m0s", 86_400),
    "nothing": ("0s", 0),
    "a plain number": ("2.5", 2.5),
    "empty": ("", None),
    "a word": ("soon", None),
    "negative": ("-1s", None),
    "with a space": ("5 s", None),
    "no unit of Go's": ("1d", None),
    "a date": ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    "microseconds": pytest.param("431.5µs", 0.0004315),
}


@table("text, seconds", DURATIONS)
def test_a_duration_is_read_as_go_writes_it(text: str, seconds: float | None) -> None:
    assert evaluation.duration_s(text) == (None if seconds is None else pytest.approx(seconds))


REFUSALS = {
    "tokens a day": (
        "tokens per day (TPD): Limit 100000, Used 97050, Requested 3619",
        "9m38.016s",
        ("TPD", 100_000, 97_050, 578.016),
    ),
    "tokens a minute": (
        "tokens per minute (TPM): Limit 6000, Used 5870, Requested 912",
        "7.82s",
        ("TPM", 6_000, 5_870, 7.82),
    ),
    "requests a minute": (
        "requests per minute (RPM): Limit 30, Used 30, Requested 1",
        "2s",
        ("RPM", 30, 30, 2),
    ),
    "requests a day": (
        "requests per day (RPD): Limit 1000, Used 1000, Requested 1",
        "1m26.4s",
        ("RPD", 1_000, 1_000, 86.4),
    ),
    "use not told": ("requests per minute (RPM): Limit 30", "431ms", ("RPM", 30, 30, 0.431)),
    "nothing that is known": ("images per hour", "a while", ("", 0, 0, 1)),
}


@table("limit, again, told", REFUSALS)
def test_a_429_says_which_limit_and_how_long(limit: str, again: str, told: tuple[object, ...]) -> None:
    refusal = evaluation.refusal_in(ServiceError(GROQ_429.format(limit, again), status=429))
    assert (refusal.kind, refusal.limit, refusal.used, pytest.approx(refusal.wait_s)) == told


def test_the_wait_in_the_header_counts_before_the_one_in_the_message() -> None:
    assert evaluation.refusal_in(refused(wait_s=90.0)).wait_s == 90


TOKEN_HEADERS: dict[str, object] = {
    "partly used": ("6000", "5088", "9.12s", TokenLimit(6_000, 5_088, 9.12)),
    "used up": ("250000", "0", "1m0s", TokenLimit(250_000, 0, 60)),
    "no limit": (None, "5088", "9.12s", None),
    "no rest": ("6000", None, "9.12s", None),
    "no reset": ("6000", "5088", None, None),
    "unreadable": ("6000", "5088", "later", None),
    "a limit of nothing": pytest.param("0", "0", "0s", None),
}


@table("limit, remaining, reset, told", TOKEN_HEADERS)
def test_the_minutes_tokens_stand_in_the_headers(
    limit: str | None, remaining: str | None, reset: str | None, told: TokenLimit | None
) -> None:
    values = {"limit": limit, "remaining": remaining, "reset": reset}
    headers = {f"x-ratelimit-{name}-tokens": value for name, value in values.items() if value is not None}
    assert evaluation.token_limit_in({**headers, "x-ratelimit-limit-requests": "14400"}) == told


PAUSES = {
    "first": (0, 0.0, None, 0.5),
    "second": (1, 0.0, None, 1.0),
    "sixth": (5, 0.0, None, 16.0),
    "at most": (60, 0.0, None, 30.0),
    "half the jitter": (2, 0.5, None, 1.5),
    "all the jitter": (2, 1.0, None, 1.0),
    "told": (0, 0.5, 3600.0, 3600.0),
    "told to go on": (5, 0.5, 0.0, 0.0),
}


@table("attempt, jitter, told_s, seconds", PAUSES)
def test_a_pause_doubles_unless_the_service_names_one(
    attempt: int, jitter: float, told_s: float | None, seconds: float
) -> None:
    error = ServiceError("no", status=503, retry_after_s=told_s)
    assert evaluation.pause_s(error, attempt, jitter) == seconds


# ------------------------------------------------------------------ Pacing


def test_a_budget_refills_continuously_up_to_its_limit() -> None:
    budget = Budget(limit=60, rate_per_s=1, level=10, at_s=100)
    assert [budget.wait_s(amount, 100) for amount in (5, 10, 25)] == [0, 0, 15]
    assert budget.wait_s(25, 110) == 5
    budget.refill(1_000)
    assert budget.level == 60


def test_for_more_than_a_budget_can_hold_one_waits_until_it_is_full() -> None:
    assert Budget(limit=60, rate_per_s=1, level=50, at_s=0).wait_s(1_000, 0) == 10


def may_start(pacer: Pacer, tokens: float, now_s: float) -> int:
    """Start all calls of so many tokens that may start now; how many these were."""
    count = 0
    while pacer.wait_s(tokens, now_s) == 0:
        pacer.start(tokens, now_s)
        count += 1
    return count


@pytest.mark.parametrize(("workers", "first"), [(1, 1), (3, 3), (4, 4), (100, 4)])
def test_few_calls_are_in_flight_until_limits_are_known(workers: int, first: int) -> None:
    pacer = Pacer(workers, 0)
    assert may_start(pacer, 900, 0) == first
    assert pacer.wait_s(900, 0) == NEVER


PLENTY = TokenLimit(1e6, 1e6, 0)
WINDOWS = {
    "no limits: all at once": (None, True, 100),
    "limits: one more with each answer": (PLENTY, True, 5),
    "no answer: no more": (None, False, 4),
}


@table("told, answered, window", WINDOWS)
def test_an_answer_opens_the_window(told: TokenLimit | None, answered: bool, window: int) -> None:
    pacer = Pacer(100, 0)
    pacer.start(900, 0)
    pacer.finish(900, 900, told, 1, answered=answered)
    assert may_start(pacer, 900, 1) == window


def test_the_window_never_exceeds_the_workers() -> None:
    pacer = Pacer(5, 0)
    for _ in range(10):
        pacer.start(1, 0)
        pacer.finish(1, 1, PLENTY, 0)
    assert may_start(pacer, 1, 0) == 5


def test_requests_a_minute_by_hand() -> None:
    pacer = Pacer(4, 0, rpm=3)
    assert may_start(pacer, 900, 0) == 3
    assert pacer.wait_s(900, 0) == 20
    assert may_start(pacer, 900, 20) == 1


def test_tokens_a_minute_by_hand() -> None:
    pacer = Pacer(8, 0, tpm=6_000)
    pacer.start(5_000, 0)
    assert pacer.wait_s(2_000, 0) == 10
    pacer.finish(5_000, 3_000, None, 0)
    assert pacer.wait_s(2_000, 0) == 0
    assert pacer.wait_s(4_000, 0) == 10


def test_what_was_set_by_hand_stays() -> None:
    pacer = Pacer(8, 0, rpm=60, tpm=6_000)
    pacer.start(900, 0)
    pacer.finish(900, 900, TokenLimit(250_000, 250_000, 0), 0)
    pacer.refuse(Refusal("RPM", 1_000, 1_000, 0), 0)
    assert pacer.wait_s(1, 0) == 1
    pacer.refuse(Refusal("TPM", 250_000, 250_000, 0), 0)
    assert pacer.wait_s(100, 0) == 1


# limit, remaining, reset_s; calls of 900 tokens still in flight; a call of so many tokens waits so long
LEARNED = {
    "from the headers": (TokenLimit(6_000, 1_000, 50), 0, 3_000, 20),
    "enough left": (TokenLimit(6_000, 1_000, 50), 0, 1_000, 0),
    "less what is in flight": (TokenLimit(6_000, 3_000, 30), 2, 1_300, 1),
    "a minute that lasts six seconds": (TokenLimit(6_000, 0, 6), 0, 1_000, 1),
    "too little gone to see the pace": (TokenLimit(6_000, 5_999, 60), 0, 6_000, 0.01),
}


@table("told, in_flight, tokens, wait_s", LEARNED)
def test_tokens_a_minute_are_learned_from_any_answer(
    told: TokenLimit, in_flight: int, tokens: float, wait_s: float
) -> None:
    pacer = Pacer(8, 0)
    for _ in range(in_flight + 1):
        pacer.start(900, 0)
    pacer.finish(900, 900, told, 0, answered=False)
    assert pacer.wait_s(tokens, 0) == pytest.approx(wait_s)


# Of 6,000 tokens 3,000 are left; calls of 500 tokens start, one ends, and so many are said to remain.
CORRECTED = {
    "less, others in flight": (1, 1_000, 1_000),
    "less, none in flight": (0, 1_000, 1_000),
    "more, others in flight that may not be counted yet": (1, 5_000, 2_000),
    "more, none in flight": (0, 5_000, 5_000),
}


@table("in_flight, remaining, level", CORRECTED)
def test_headers_correct_the_level(in_flight: int, remaining: float, level: float) -> None:
    pacer = Pacer(8, 0)
    pacer.start(0, 0)
    pacer.finish(0, 0, TokenLimit(6_000, 3_000, 30), 0)
    for _ in range(in_flight + 1):
        pacer.start(500, 0)
    pacer.finish(500, 500, TokenLimit(6_000, remaining, (6_000 - remaining) / 100), 0)
    assert pacer.budgets["TPM"].level == level


def test_a_call_that_took_nothing_gives_back_what_was_set_aside_for_it() -> None:
    pacer = Pacer(8, 0, tpm=6_000)
    pacer.start(6_000, 0)
    pacer.finish(6_000, 0, None, 0, answered=False)
    assert (pacer.wait_s(6_000, 0), pacer.in_flight, pacer.reserved) == (0, 0, 0)


@table(
    "kind, limit, used, wait_s",
    {"RPM": ("RPM", 30, 30, 2), "TPM": ("TPM", 6_000, 5_900, 8), "?": ("", 0, 0, 0)},
)
def test_a_limit_is_learned_from_the_first_429(kind: str, limit: float, used: float, wait_s: float) -> None:
    pacer = Pacer(8, 0)
    pacer.refuse(Refusal(kind, limit, used, 0), 0)
    assert pacer.wait_s(900, 0) == wait_s


@pytest.mark.parametrize("limit", ["requests per minute (RPM): Limit 0", "tokens per minute (TPM): Limit 0"])
def test_a_limit_of_nothing_is_waited_for_like_any_other(limit: str) -> None:
    pacer = Pacer(8, 0)
    pacer.refuse(evaluation.refusal_in(refused(limit, wait_s=5)), 0)
    assert pacer.wait_s(900, 0) == 5


def test_a_429_holds_all_calls_until_the_latest_time_that_was_told() -> None:
    pacer = Pacer(8, 0)
    pacer.refuse(Refusal("", 0, 0, 3_600), 0)
    pacer.refuse(Refusal("", 0, 0, 2), 10)
    assert pacer.wait_s(1, 10) == 3_590
    assert may_start(pacer, 1, 3_600) == 4


# ------------------------------------------------------------------ Calls without threads


class FakePool(CallPool):
    """Calls on a clock that only `next` moves. `events` holds what happens when, and so which calls end."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.events: list[tuple[float, int, Callable[[], tuple[int, Ending] | None]]] = []
        self.warned: list[str] = []
        self._order = 0

    def clock(self) -> float:
        return self.now_s

    def after(self, seconds: float, deed: Callable[[], tuple[int, Ending] | None]) -> None:
        self._order += 1
        heappush(self.events, (self.now_s + seconds, self._order, deed))

    def next(self, timeout_s: float) -> tuple[int, Ending] | None:
        assert timeout_s >= 0, "a queue cannot wait for less than nothing"
        until_s = self.now_s + max(timeout_s, 1e-6)
        while self.events and self.events[0][0] <= until_s:
            self.now_s, _, deed = heappop(self.events)
            if ended := deed():
                return ended
        self.now_s = until_s
        return None


def said(score: object = 4, prompt: int = 100, completion: int = 50) -> Reply:
    content = json.dumps({"rationale": "because", "score": score})
    return Reply(content, "m", "stop", "fp", Usage(prompt, completion))


Plan = Mapping[str, Sequence[Answer]]


class Script(FakePool):
    """A text's calls end as its list in `plan` says, one after the other; all others score 4 at once."""

    def __init__(self, plan: Plan | None = None, gone: Sequence[str] = ()) -> None:
        super().__init__()
        self.plan, self.gone = plan or {}, gone
        self.started: list[tuple[float, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = self.peak = 0

    def start(self, ticket: int, body: dict[str, Any]) -> None:
        text = body["messages"][0]["content"]
        answers = self.plan.get(text, ())[len(self.times(text)) :]
        seconds, ending = answers[0] if answers else (0.0, said())
        if body["model"] in self.gone:
            seconds, ending = 0.0, ServiceError("No such model", status=404, code="model_not_found")
        self.started.append((self.now_s - 1_000, text))
        self.bodies.append(body)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.after(seconds, lambda: self._end(ticket, ending))

    def _end(self, ticket: int, ending: Ending) -> tuple[int, Ending]:
        self.in_flight -= 1
        return ticket, ending

    def interrupt_after(self, seconds: float) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        self.after(seconds, interrupt)

    def times(self, text: str) -> list[float]:
        return [at_s for at_s, name in self.started if name == text]


def engine_for(pool: FakePool, workers: int = 8, tpm: int | None = None) -> Engine:
    pacer = Pacer(workers, pool.now_s, tpm=tpm)
    return Engine(pool, pacer, warn=pool.warned.append, clock=pool.clock, jitter=lambda: 0.0)


def bodies(texts: Sequence[str], model: str = OSS) -> list[dict[str, Any]]:
    return [evaluation.build_request_body(model, [{"role": "user", "content": text}]) for text in texts]


@dataclass
class Ran:
    """What a run yielded, by text, how long it took, and what it ended with, if not by itself."""

    outcomes: dict[str, Judgement | Failure]
    seconds: float
    raised: BaseException | None = None

    @property
    def scores(self) -> dict[str, int | str]:
        pairs = self.outcomes.items()
        return {text: o.score if isinstance(o, Judgement) else o.reason for text, o in pairs}


def ran(pool: Script, texts: Sequence[str], engine: Engine | None = None, workers: int = 8) -> Ran:
    outcomes: list[tuple[str, Judgement | Failure]] = []
    raised: BaseException | None = None
    try:
        for place, outcome in (engine or engine_for(pool, workers)).outcomes(bodies(texts)):
            outcomes.append((texts[place], outcome))
    except (JudgingEnded, JudgeUnavailable, ModelGone, KeyboardInterrupt) as error:
        raised = error
    assert len(outcomes) == len(dict(outcomes)), "a text has one outcome"
    return Ran(dict(outcomes), pool.now_s - 1_000, raised)


def many(count: int) -> list[str]:
    return [f"q{number:03}" for number in range(count)]


# ------------------------------------------------------------------ The pace that an account allows


class Account(FakePool):
    """A Groq account. Calls travel to it, are admitted or refused, and are answered.

    Texts have a quarter of a token a character, give or take `spread`. Each second another client makes
    `others` calls: (calls, tokens of each).
    """

    def __init__(
        self,
        limits: Limits,
        *,
        travel_s: tuple[float, float] = (0.02, 0.08),
        spread: float = 0.0,
        others: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.quota, self.chance = Quota(limits, self.now_s), random.Random(1)
        self.travel_s, self.spread, self.others = travel_s, spread, others
        self.refusals: list[tuple[float, float]] = []  # when the call started, when its refusal was known
        self.spent: Counter[str] = Counter()
        if others[0]:
            self.after(1, self._be_used)

    def _be_used(self) -> None:
        calls, tokens = self.others
        for _ in range(calls):
            if self.quota.admit(tokens, self.now_s) is None:
                self.spent.update(requests=1, tokens=tokens, others=1)
        self.after(1, self._be_used)

    def start(self, ticket: int, body: dict[str, Any]) -> None:
        began_s = self.now_s
        self.after(self.chance.uniform(*self.travel_s), lambda: self._arrive(ticket, body, began_s))

    def _arrive(self, ticket: int, body: dict[str, Any], began_s: float) -> None:
        text = body["messages"][0]["content"]
        prompt = int(len(text) / 4 * (1 + self.spread * random.Random(text).uniform(-1, 1)))
        charged = prompt + body["max_completion_tokens"]
        refusal = self.quota.admit(charged, self.now_s)
        if refusal is None:
            answer = lambda: self._answer(ticket, charged, Usage(prompt, 100))  # noqa: E731
            return self.after(self.chance.uniform(0.2, 0.6), answer)
        message = json.loads(refusal.body_for(Call(0, body, {}, 0)))["error"]["message"]
        wait_s = evaluation.duration_s(dict(refusal.headers)["retry-after"])
        error = ServiceError(message, status=429, retry_after_s=wait_s, token_limit=self._token_limit())
        return self.after(0.03, lambda: self._refuse(ticket, error, began_s))

    def _token_limit(self) -> TokenLimit | None:
        return evaluation.token_limit_in(self.quota.headers(self.now_s))

    def _refuse(self, ticket: int, error: ServiceError, began_s: float) -> tuple[int, Ending]:
        self.refusals.append((began_s, self.now_s))
        return ticket, error

    def _answer(self, ticket: int, charged: int, usage: Usage) -> tuple[int, Ending]:
        taken = usage.prompt + usage.completion
        self.quota.correct(charged, taken, self.now_s)
        self.spent.update(requests=1, tokens=taken)
        return ticket, said()._replace(usage=usage, token_limit=self._token_limit())

    def judge(self, count: int) -> float:
        """Judge so many texts of 2,000 to 3,600 characters; the seconds that it took."""
        lengths = [random.Random(number).randint(2_000, 3_600) for number in range(count)]
        texts = [str(number).ljust(length) for number, length in enumerate(lengths)]
        outcomes = list(engine_for(self, workers=16).outcomes(bodies(texts)))
        assert Counter(type(outcome) for _, outcome in outcomes) == {Judgement: count}
        return self.now_s - 1_000

    def refused_once_known(self) -> int:
        """How many calls were refused that had started when the limit was known from an earlier 429."""
        return sum(began_s >= self.refusals[0][1] for began_s, _ in self.refusals)


def limits_of(what: str, limit: int, full: bool) -> Limits:
    return Limits(start_full=full, **{f"{what}_per_minute": limit})


FULL_OR_EMPTY = table("full", {"full": True, "empty": False})
BY_LIMIT = {
    "600 requests": ("requests", 600, 500),
    "30 requests": ("requests", 30, 60),
    "6000 tokens": ("tokens", 6_000, 60),
    "250000 tokens": ("tokens", 250_000, 600),
}


@FULL_OR_EMPTY
@table("what, limit, count", BY_LIMIT)
def test_a_known_limit_is_used_and_not_run_into(what: str, limit: int, count: int, full: bool) -> None:
    account = Account(limits_of(what, limit, full))
    seconds = account.judge(count + limit * full if what == "requests" else count)
    assert account.spent[what] / (limit * full + limit / 60 * seconds) >= 0.97
    assert account.refused_once_known() == 0
    assert len(account.refusals) <= 16


GUESSES = {
    "no time on the way": ((0.0, 0.0), 0.0),
    "a tenth more or less": ((0.02, 0.08), 0.1),
    "a third more or less": ((0.02, 0.08), 1 / 3),
}


@FULL_OR_EMPTY
@table("travel_s, spread", GUESSES)
def test_a_limit_of_tokens_is_not_run_into_where_texts_differ_in_tokens_a_character(
    travel_s: tuple[float, float], spread: float, full: bool
) -> None:
    account = Account(limits_of("tokens", 6_000, full), travel_s=travel_s, spread=spread)
    seconds = account.judge(60)
    assert account.spent["tokens"] / (6_000 * full + 100 * seconds) >= 0.97
    assert account.refused_once_known() <= 4


@FULL_OR_EMPTY
@table(
    "what, limit, count, others",
    {"RPM": ("requests", 600, 500, (3, 1)), "TPM": ("tokens", 250_000, 600, (1, 1_000))},
)
def test_what_another_client_leaves_is_used_at_one_429_for_each_of_its_calls(
    what: str, limit: int, count: int, others: tuple[int, int], full: bool
) -> None:
    account = Account(limits_of(what, limit, full), others=others)
    seconds = account.judge(count + limit * full if what == "requests" else count)
    assert account.spent[what] / (limit * full + limit / 60 * seconds) >= 0.97
    assert account.spent["others"] > 0
    assert len(account.refusals) <= account.spent["others"] + 16


# ------------------------------------------------------------------ The engine


def test_outcomes_come_as_calls_end_and_name_their_place() -> None:
    run = ran(Script({"a": [(3, said(1))], "b": [(1, said(2))], "c": [(2, said(3))]}), ["a", "b", "c"])
    assert list(run.scores.items()) == [("b", 2), ("c", 3), ("a", 1)]
    assert run.seconds == 3


def test_a_judgement_has_all_that_the_service_said_of_itself() -> None:
    run = ran(Script({"a": [(0, said(5, prompt=70, completion=20))]}), ["a"])
    reply = '{"rationale": "because", "score": 5}'
    assert run.outcomes == {"a": Judgement(5, "because", reply, "m", "fp", Usage(70, 20))}


def test_nothing_to_judge_makes_no_call() -> None:
    pool = Script()
    assert (ran(pool, []), pool.started) == (Ran({}, 0), [])


@pytest.mark.parametrize("workers", [1, 3, 8, 100])
def test_never_more_calls_are_in_flight_than_workers(workers: int) -> None:
    pool = Script({text: [(1 + place % 3, said())] for place, text in enumerate(many(300))})
    assert len(ran(pool, many(300), workers=workers).outcomes) == 300
    assert pool.peak == workers


TRIES = {
    "lost": (LOST, 6),
    **{str(status): (ServiceError("no", status=status), 6) for status in (408, 409, 498, 500, 599)},
    "503": (BUSY, 6),
    "400": (ServiceError("no", status=400), 1),
    "413": (ServiceError("no", status=413, code="rate_limit_exceeded"), 1),
    "422": (ServiceError("no", status=422), 1),
}


@table("error, calls", TRIES)
def test_what_may_succeed_is_tried_six_times_and_what_cannot_once(error: ServiceError, calls: int) -> None:
    pool = Script({"a": [(0, error)] * 9})
    assert ran(pool, ["a", "b"]).scores == {"a": str(error), "b": 4}
    assert pool.times("a") == pytest.approx([0, 0.5, 1.5, 3.5, 7.5, 15.5][:calls])


def test_a_sixth_try_that_succeeds_counts() -> None:
    assert ran(Script({"a": [(0, BUSY)] * 5}), ["a"]).scores == {"a": 4}


def test_a_429_is_no_try() -> None:
    assert ran(Script({"a": [(0, refused())] * 15 + [(0, BUSY)] * 5}), ["a"]).scores == {"a": 4}


def test_a_call_that_was_refused_took_no_tokens() -> None:
    pool = Script({"a": [(0, refused(wait_s=0))]})
    ran(pool, ["a"], engine_for(pool, tpm=601))
    assert pool.times("a") == [0, 0]


def test_a_pause_that_an_error_names_is_kept() -> None:
    pool = Script({"a": [(0, ServiceError("no", status=503, retry_after_s=100.0))]})
    ran(pool, ["a"])
    assert pool.times("a") == pytest.approx([0, 100])


@pytest.mark.parametrize(
    ("wait_s", "warned"), [(0.2, None), (29.0, None), (61.0, "0:01:01"), (3_600.0, "1:00:00")]
)
def test_retry_after_is_honoured_whatever_its_length(wait_s: float, warned: str | None) -> None:
    pool = Script({"a": [(0, refused(wait_s=wait_s))]})
    assert ran(pool, ["a"]).scores == {"a": 4}
    assert pool.times("a") == pytest.approx([0, wait_s])
    assert pool.warned == ([f"The service asks for a pause of {warned}."] if warned else [])


def test_after_a_429_nobody_starts_before_its_time() -> None:
    pool = Script({text: [(2, said())] for text in many(20)} | {"q000": [(1, refused(wait_s=50))]})
    assert len(ran(pool, many(20)).outcomes) == 20
    assert [at_s for at_s, _ in pool.started if 1 < at_s < 51] == []


def test_a_retry_goes_before_what_is_fresh() -> None:
    pool = Script({"q000": [(0, BUSY)], "q001": [(1, said())]})
    ran(pool, many(4), workers=1)
    assert [text for _, text in pool.started] == ["q000", "q001", "q000", "q002", "q003"]


NO_SCORES = {
    "prose": (Reply("I cannot say.", "m", "stop"), "it holds no JSON object with a score"),
    "off the scale": (said(6), "the score must be a whole number from 1 to 5, not 6"),
    "cut off": (Reply('{"rationale": "it is', "m", "length"), "it was cut off"),
}


@table("reply, complaint", NO_SCORES)
def test_a_reply_that_is_no_score_is_asked_for_again_with_the_complaint(reply: Reply, complaint: str) -> None:
    pool = Script({"a": [(0, reply)]})
    assert ran(pool, ["a"]).scores == {"a": 4}
    first, second = (body["messages"] for body in pool.bodies)
    assert second[:2] == [*first, {"role": "assistant", "content": reply.content}]
    assert [complaint in message["content"] for message in second[2:]] == [True]


@table("reply, complaint", NO_SCORES)
def test_the_third_reply_that_is_no_score_is_the_last(reply: Reply, complaint: str) -> None:
    pool = Script({"a": [(0, reply)] * 5})
    assert ran(pool, ["a"]).scores == {"a": f"no score in 3 replies: {complaint}"}
    assert [len(body["messages"]) for body in pool.bodies] == [1, 3, 3]


def test_a_judgement_has_the_tokens_of_all_replies_on_the_way_to_it() -> None:
    [judgement] = ran(Script({"a": [(0, said(0, 100, 50)), (0, said(2, 130, 40))]}), ["a"]).outcomes.values()
    assert isinstance(judgement, Judgement)
    assert judgement.usage == Usage(230, 90)


def test_a_call_that_hangs_is_given_up_after_a_minute_and_made_again() -> None:
    pool = Script({"a": [(NEVER, said())]})
    assert ran(pool, ["a", "b"]).scores == {"b": 4, "a": 4}
    assert pool.times("a") == pytest.approx([0, 60.5])


def test_a_late_reply_to_a_call_that_was_given_up_is_ignored() -> None:
    assert ran(Script({"a": [(70, said(1)), (30, said(5))]}), ["a"]).scores == {"a": 5}


def test_a_call_that_hangs_six_times_has_failed() -> None:
    run = ran(Script({"a": [(NEVER, said())] * 6}), ["a", "b"])
    assert run.outcomes["a"] == Failure("no answer within 60 s")
    assert run.seconds == pytest.approx(6 * 60 + 15.5)


UNREACHABLE = "the service cannot be reached (Connection error.); run again when it can"
DAY = "the day's limit is reached"
LAST_CALLS = {
    "20 lost in a row": (LOST, 20, UNREACHABLE),
    "requests a day": (
        refused("requests per day (RPD): Limit 1000, Used 1000, Requested 1", 86.4),
        1,
        f"{DAY} (RPD 1000); run again in 0:01:27",
    ),
    "tokens a day": (
        refused("tokens per day (TPD): Limit 200000, Used 199500, Requested 900", 7_200),
        1,
        f"{DAY} (TPD 200000); run again in 2:00:00",
    ),
}


@table("error, count, reason", LAST_CALLS)
def test_judging_that_ends_early_yields_what_arrives_within_two_seconds(
    error: ServiceError, count: int, reason: str
) -> None:
    texts = ["soon", "late", *many(60)]
    pool = Script(
        {text: [(0, error)] for text in texts} | {"soon": [(1.9, said(5))], "late": [(2.1, said(5))]}
    )
    engine = engine_for(pool)
    run = ran(pool, texts, engine)
    assert (type(run.raised), str(run.raised)) == (JudgingEnded, reason)
    assert (run.scores, run.seconds) == ({"soon": 5}, 2)
    assert (engine.pacer.in_flight, engine.pacer.reserved) == (0, 0)
    assert len([text for _, text in pool.started if text in texts[2:]]) in (count, count + 1)


def test_twenty_refusals_in_a_row_end_judging() -> None:
    pool = Script({"a": [(0, refused())] * 30})
    assert str(ran(pool, ["a"]).raised) == "the service refused 20 calls in a row; run again later"
    assert len(pool.times("a")) == 20


def test_refusals_of_calls_that_were_in_flight_together_count_once() -> None:
    pool = Script({text: [(0.5, refused())] * 15 for text in many(4)})
    assert len(ran(pool, many(4)).outcomes) == 4


@pytest.mark.parametrize("error", [LOST, refused()], ids=["lost", "refused"])
def test_a_reply_begins_the_row_anew(error: ServiceError) -> None:
    pool = Script({text: [(0, error)] * 2 for text in many(15)})
    assert len(ran(pool, [*many(15), "good"], workers=1).outcomes) == 16


def test_a_429_shows_that_the_service_can_be_reached() -> None:
    pool = Script({text: [(0, LOST)] for text in many(30)} | {"q015": [(0, refused(wait_s=0)), (0, LOST)]})
    assert ran(pool, many(30), workers=1).raised is None


FINAL = {
    "401": (401, "invalid_api_key", JudgeUnavailable, "HTTP 401: no"),
    "403": (403, "", JudgeUnavailable, "HTTP 403: no"),
    "404": (404, "unknown_url", JudgeUnavailable, "HTTP 404: no"),
    "no such model": (404, "model_not_found", ModelGone, "no"),
    "model shut down": (400, "model_decommissioned", ModelGone, "no"),
}


@table("status, code, raised, message", FINAL)
def test_some_errors_end_judging_for_all(
    status: int, code: str, raised: type[Exception], message: str
) -> None:
    pool = Script({text: [(1, ServiceError("no", status=status, code=code))] for text in many(20)})
    engine = engine_for(pool)
    run = ran(pool, many(20), engine)
    assert (type(run.raised), str(run.raised), len(pool.started)) == (raised, message, 4)
    assert (engine.pacer.in_flight, engine.pacer.reserved) == (0, 0)


def test_the_engine_goes_on_with_another_model_and_ignores_late_replies_of_the_first() -> None:
    gone = ServiceError("no", status=404, code="model_not_found")
    pool = Script({"a": [(0, gone)], "b": [(1, said(1)), (2, said(5))]})
    engine = engine_for(pool)
    assert isinstance(ran(pool, ["a", "b"], engine).raised, ModelGone)
    assert ran(pool, ["a", "b"], engine).scores == {"a": 4, "b": 5}
    assert engine.pacer.in_flight == 0


def test_ctrl_c_yields_what_arrives_within_two_seconds_and_goes_on_its_way() -> None:
    pool = Script({"a": [(1, said(1))], "b": [(3, said(2))], "c": [(4, said(3))], "d": [(NEVER, said())]})
    pool.interrupt_after(1.5)
    run = ran(pool, ["a", "b", "c", "d"])
    assert isinstance(run.raised, KeyboardInterrupt)
    assert (run.scores, run.seconds) == ({"a": 1, "b": 2}, 3.5)


def test_after_ctrl_c_nothing_is_started() -> None:
    pool = Script({text: [(1, BUSY if text == "q001" else said())] for text in many(50)})
    pool.interrupt_after(0.5)
    assert len(ran(pool, many(50)).outcomes) == 3
    assert len(pool.started) == 4


def test_a_second_ctrl_c_does_not_wait() -> None:
    pool = Script({"a": [(2, said())]})
    pool.interrupt_after(0.5)
    pool.interrupt_after(1)
    run = ran(pool, ["a"])
    assert (type(run.raised), run.scores, run.seconds) == (KeyboardInterrupt, {}, 1)


@pytest.mark.parametrize("status", [401, 404])
def test_no_error_takes_the_place_of_ctrl_c(status: int) -> None:
    pool = Script({"a": [(1, ServiceError("no", status=status))], "b": [(1.5, said(5))]})
    pool.interrupt_after(0.5)
    run = ran(pool, ["a", "b"])
    assert (type(run.raised), run.scores) == (KeyboardInterrupt, {"b": 5})


def test_the_two_seconds_may_end_between_two_looks_at_the_clock() -> None:
    pool, looks = Script({"a": [(NEVER, said())]}), iter(range(99))
    pool.interrupt_after(0)
    engine = Engine(pool, Pacer(8, 0), warn=print, clock=lambda: pool.now_s + 1.5 * next(looks))
    assert isinstance(ran(pool, ["a"], engine).raised, KeyboardInterrupt)


def test_an_error_that_nobody_foresaw_surfaces() -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        ran(Script({"a": [(0, ZeroDivisionError("a bug"))]}), ["a", "b"])


def test_the_counts_tell_what_was_done() -> None:
    plan: Plan = {
        "fine": [(1, said(4, 100, 50))],
        "busy": [(1, BUSY), (1, said(3, 110, 40))],
        "refused": [(1, refused(wait_s=10)), (1, said(2, 120, 30))],
        "no score": [(1, said(0, 130, 20)), (1, said(1, 140, 10))],
    }
    pool = Script(plan)
    engine = engine_for(pool)
    assert ran(pool, list(plan), engine).scores == {"fine": 4, "busy": 3, "refused": 2, "no score": 1}
    assert engine.counts == CallCounts(7, 3, 1, Usage(600, 150), 12)


def test_a_retry_that_was_never_made_is_not_counted() -> None:
    pool = Script({"a": [(1, said(0))]})
    pool.interrupt_after(0.5)
    engine = engine_for(pool)
    ran(pool, ["a"], engine)
    assert (engine.counts.calls, engine.counts.retries) == (1, 0)


# ------------------------------------------------------------------ Threads

LIMIT_S = 20.0  # far more than anything here takes


def test_a_call_that_hangs_does_not_block_others() -> None:
    release = threading.Event()

    def call(body: dict[str, Any]) -> Reply:
        if body["name"] == "slow":
            release.wait(LIMIT_S)
        return Reply(body["name"])

    pool = CallPool(call)
    pool.start(1, {"name": "slow"})
    for ticket in (2, 3):
        pool.start(ticket, {"name": "quick"})
        assert pool.next(LIMIT_S) == (ticket, Reply("quick"))
    assert pool.next(0) is None
    release.set()
    assert pool.next(LIMIT_S) == (1, Reply("slow"))


def test_a_thread_ends_with_its_call_and_keeps_no_process() -> None:
    pool = CallPool(lambda body: Reply("", fingerprint=str(threading.current_thread().daemon)))
    before = set(threading.enumerate())
    for ticket in range(5):
        pool.start(ticket, {})
        assert pool.next(LIMIT_S) == (ticket, Reply("", fingerprint="True"))
    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT_S)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("error", [BUSY, ZeroDivisionError("a bug")], ids=["foreseen", "a bug"])
def test_what_a_call_raises_is_handed_over_and_others_can_be_made(error: Exception) -> None:
    def call(body: dict[str, Any]) -> Reply:
        if body:
            raise error
        return Reply("fine")

    pool = CallPool(call)
    for ticket, body, ending in ((1, {"fails": True}, error), (2, {}, Reply("fine"))):
        pool.start(ticket, body)
        assert pool.next(LIMIT_S) == (ticket, ending)


# ------------------------------------------------------------------ The judge: journal and engine


def request(text: str, repeat: int = 0, stored_only: bool = False, question_id: str = "") -> JudgeRequest:
    messages = ({"role": "user", "content": text},)
    return JudgeRequest("strong", question_id or text, 0, "written", repeat, lambda: messages, stored_only)


def key_of(text: str, model: str = OSS, repeat: int = 0) -> str:
    return judgement_key(bodies([text], model)[0] | {"seed": evaluation.SEED + repeat}, repeat)


@dataclass
class Judge:
    """Judges over one journal, a new one for each run, as with commands."""

    path: Path
    pool: Script

    def __call__(
        self, *requests: JudgeRequest, model: str = OSS, strict: bool = False, fresh: bool = False
    ) -> JudgeRun:
        journal = Journal(str(self.path))
        judge = GroqJudge(
            engine_for(self.pool, workers=1),
            {"": journal},
            model,
            strict,
            fresh,
            time_utc=lambda: "2026-11-21T00:00:00+00:00",
            progress=lambda outcomes, total: outcomes,
        )
        try:
            return judge(requests)
        finally:
            journal.close()

    def asked(self) -> list[str]:
        """The texts that were asked since this was last called; their plan begins anew."""
        texts = [text for _, text in self.pool.started]
        self.pool.started.clear()
        return texts

    def stored(self) -> dict[str, int]:
        judgements = parse_journal(self.path.read_bytes().split(b"\n")).stored
        return {key: judgement.score for key, judgement in judgements.items()}


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(tmp_path / "dev_judgements.jsonl", Script())


def scores(run: JudgeRun) -> list[int | str]:
    named = {True: "Failure", False: "Unasked"}
    return [o.score if isinstance(o, Judgement) else f"{named[o.asked]}: {o.reason}" for o in run.outcomes]


def test_what_is_stored_is_not_asked_again(judge: Judge) -> None:
    judge.pool.plan = {"a": [(0, said(2))], "b": [(0, said(3))], "c": [(0, said(5))]}
    assert scores(judge(request("a"), request("b"))) == [2, 3]
    assert judge.asked() == ["a", "b"]
    assert scores(judge(request("c"), request("b"), request("a"))) == [5, 3, 2]
    assert judge.asked() == ["c"]


def test_a_line_of_the_journal_says_what_was_judged_and_how(judge: Judge) -> None:
    judge(request("a", repeat=1, question_id="q007"))
    [line] = judge.path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "key": key_of("a", repeat=1),
        "system": "strong",
        "question_id": "q007",
        "variant": "written",
        "repeat": 1,
        "score": 4,
        "rationale": "because",
        "reply": '{"rationale": "because", "score": 4}',
        "model": "m",
        "fingerprint": "fp",
        "usage": {"prompt": 100, "completion": 50, "cached": 0},
        "time": "2026-11-21T00:00:00+00:00",
    }


def test_requests_that_are_alike_are_asked_once(judge: Judge) -> None:
    judge.pool.plan = {"a": [(0, said(3))]}
    run = judge(request("a", question_id="q001"), request("b"), request("a", question_id="q002"))
    assert (scores(run), judge.asked()) == ([3, 4, 3], ["a", "b"])


def test_repeats_are_not_alike(judge: Judge) -> None:
    judge.pool.plan = {"a": [(0, said(3)), (0, said(5))]}
    assert scores(judge(request("a", 0), request("a", 1))) == [3, 5]
    assert [body["seed"] for body in judge.pool.bodies] == [evaluation.SEED, evaluation.SEED + 1]


def test_what_may_only_be_taken_from_the_journal_is_not_asked(judge: Judge) -> None:
    judge(request("a"))
    judge.asked()
    run = judge(request("a", stored_only=True), request("b", stored_only=True), request("c"))
    assert (scores(run), judge.asked()) == ([4, "Unasked: left out", 4], ["c"])


def test_fresh_asks_all_again_and_stores_the_new_score(judge: Judge) -> None:
    judge(request("a"))
    judge.asked()
    judge.pool.plan = {"a": [(0, said(1))]}
    assert (scores(judge(request("a"), fresh=True)), judge.asked()) == ([1], ["a"])
    assert (scores(judge(request("a"))), judge.asked()) == ([1], [])


def test_failures_are_never_stored(judge: Judge) -> None:
    judge.pool.plan = {"a": [(0, Reply("no"))] * 3, "b": [(0, ServiceError("no", status=400))]}
    no_score = "Failure: no score in 3 replies: it holds no JSON object with a score"
    assert scores(judge(request("a"), request("b"), request("c"))) == [no_score, "Failure: HTTP 400: no", 4]
    assert judge.stored() == {key_of("c"): 4}
    assert scores(judge(request("a"), request("b"))) == [4, 4]


def test_what_came_before_judging_ended_is_kept_and_the_rest_is_unasked(judge: Judge) -> None:
    judge.pool.plan = {"b": [(0, refused("requests per day (RPD): Limit 30", 60))]}
    run = judge(request("a"), request("b"), request("c"))
    assert run.ended == "the day's limit is reached (RPD 30); run again in 0:01:00"
    assert scores(run) == [4, *["Unasked: judging ended early"] * 2]
    assert judge.stored() == {key_of("a"): 4}


def test_what_came_before_ctrl_c_is_kept(judge: Judge) -> None:
    judge.pool.plan = {"b": [(NEVER, said())]}
    judge.pool.interrupt_after(10)
    with pytest.raises(KeyboardInterrupt):
        judge(request("a"), request("b"))
    assert judge.stored() == {key_of("a"): 4}


def test_a_model_that_is_gone_is_succeeded_for_all_requests_and_in_later_runs(judge: Judge) -> None:
    judge.pool.gone = [LLAMA]
    run = judge(request("a"), request("b"), model=LLAMA)
    assert (run.requested_model, run.model, scores(run)) == (LLAMA, OSS, [4, 4])
    assert judge.stored() == {key_of("a"): 4, key_of("b"): 4}
    judge.asked()
    run = judge(request("a"), request("b"), request("c"), model=LLAMA)
    assert (run.requested_model, run.model, scores(run), judge.asked()) == (LLAMA, OSS, [4, 4, 4], ["c"])
    assert judge.pool.warned == [
        f"Groq no longer serves {LLAMA}; judging with its successor {OSS}.",
        f"The journal's judgements are by {OSS}, successor of {LLAMA}: going on with it.",
    ]


FIRST_MODELS = {
    "nothing stored": ([], LLAMA, False, LLAMA),
    "more by the successor": ([("a", OSS), ("b", OSS), ("a", LLAMA)], LLAMA, False, OSS),
    "as many": ([("a", OSS), ("a", LLAMA)], LLAMA, False, LLAMA),
    "taken strictly": ([("a", OSS)], LLAMA, True, LLAMA),
    "of other texts": ([("z", OSS)], LLAMA, False, LLAMA),
    "no successor": ([("a", LLAMA)], OSS, False, OSS),
}


@table("stored, model, strict, first", FIRST_MODELS)
def test_the_model_to_begin_with(
    stored: Sequence[tuple[str, str]], model: str, strict: bool, first: str
) -> None:
    judgements = {("", key_of(text, name)): Judgement(3, "") for text, name in stored}
    assert evaluation.first_model([request("a"), request("b")], judgements, model, strict) == first


@table("model, strict", {"taken strictly": (LLAMA, True), "no successor": (OSS, False)})
def test_a_model_that_is_gone_without_a_successor_ends_judging(
    judge: Judge, model: str, strict: bool
) -> None:
    judge.pool.gone = [LLAMA, OSS]
    with pytest.raises(JudgeUnavailable, match=f"^the model {model} is not to be had: No such model$"):
        judge(request("a"), model=model, strict=strict)


# ------------------------------------------------------------------ The journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dev_judgements.jsonl"


def line_of(key: str, score: int = 3) -> bytes:
    return json.dumps({"key": key, "score": score, "rationale": ""}).encode() + b"\n"


def append(path: Path, key: str, rationale: str = "") -> tuple[set[str], int]:
    """Open the journal and add a judgement; the keys that it held before, and the lines passed over."""
    journal = Journal(str(path))
    held = set(journal.stored)
    journal.append(key, request("q"), Judgement(3, rationale, rationale, "m", "fp", Usage(7, 8, 9)), "now")
    journal.close()
    return held, journal.passed_over


def keys_in(path: Path) -> tuple[set[str], int]:
    judgements, _, passed_over = parse_journal(path.read_bytes().split(b"\n"))
    return set(judgements), passed_over


def test_a_line_that_was_torn_anywhere_costs_itself_alone(path: Path) -> None:
    append(path, "first")
    start = len(path.read_bytes())
    append(path, "second", 'größer {"score": 1} \\ \n "')
    data = path.read_bytes()
    faults = []
    for cut in range(start, len(data) + 1):
        path.write_bytes(data[:cut])
        held = {"first", "second"} if cut >= len(data) - 1 else {"first"}
        torn = int(start < cut < len(data) - 1)
        if append(path, "third") != (held, torn) or keys_in(path) != (held | {"third"}, 0):
            faults.append(cut - start)
    assert faults == []


TAILS = {
    "zeros": b"\0" * 4096,
    "torn, then zeros": b'{"key": "x' + b"\0" * 512,
    "blanks": b"  ",
    "no text": b"\xff",
}


@table("tail", TAILS)
def test_a_tail_that_a_power_cut_left_is_taken_away(path: Path, tail: bytes) -> None:
    path.write_bytes(line_of("first") + tail)
    append(path, "second")
    assert keys_in(path) == ({"first", "second"}, 0)


NO_LINES: dict[str, object] = {
    "no JSON": b"no JSON",
    "a list": b"[]",
    "null": b"null",
    "no UTF-8": b"\xff\xfe",
    "zeros": b"\0\0\0\0",
    "nested too deep": b"[" * 100_000,
    "no rationale": b'{"key": "x", "score": 3}',
    "no key": b'{"score": 3, "rationale": ""}',
    "a blank key": b'{"key": "", "score": 3, "rationale": ""}',
    "no score": b'{"key": "x", "rationale": ""}',
    "-1": b'{"key": "x", "score": -1, "rationale": ""}',
    "6": b'{"key": "x", "score": 6, "rationale": ""}',
    "3.5": b'{"key": "x", "score": 3.5, "rationale": ""}',
    "a string": b'{"key": "x", "score": "3", "rationale": ""}',
    "endless tokens": b'{"key": "x", "score": 3, "rationale": "", "usage": {"prompt": 1e999}}',
    "true": pytest.param(b'{"key": "x", "score": true, "rationale": ""}'),
}


@table("line", NO_LINES)
def test_a_line_that_is_no_judgement_is_counted_and_passed_over(line: bytes) -> None:
    text = line_of("a") + line + b"\n \r\n\n" + line_of("b")
    judgements, _, passed_over = parse_journal(text.split(b"\n"))
    assert (set(judgements), passed_over) == ({"a", "b"}, 1)


def test_of_a_key_that_occurs_twice_the_last_line_counts() -> None:
    judgements = parse_journal([line_of("a", 2), line_of("b", 1), line_of("a", 5)]).stored
    assert {key: judgement.score for key, judgement in judgements.items()} == {"a": 5, "b": 1}


TEXTS = ["한국어, فارسی 😀", "a\nb\r\nc\u2028d\u0085e\x00f", "lone \ud800 and \udfff", 'a "quote" \\ud800']


@pytest.mark.parametrize("text", TEXTS, ids=["scripts", "line ends", "lone surrogates", "escapes"])
def test_a_judgement_comes_back_as_it_was_stored(path: Path, text: str) -> None:
    append(path, "a", text)
    stored = Judgement(3, text, text, "m", "fp", Usage(7, 8, 9))
    assert parse_journal(path.read_bytes().split(b"\n")) == ({"a": stored}, {}, 0)
    assert path.read_bytes().count(b"\n") == 1


@pytest.fixture
def open_journal(path: Path) -> Iterator[Journal]:
    journal = Journal(str(path))
    yield journal
    journal.close()


def test_a_judgement_can_be_read_as_soon_as_it_was_added(path: Path, open_journal: Journal) -> None:
    open_journal.append("a", request("q"), Judgement(3, ""), "now")
    assert keys_in(path) == ({"a"}, 0)
    assert set(open_journal.stored) == {"a"}


FILL = """
import pathlib, resource, sys, test_engine
path = pathlib.Path(sys.argv[1])
test_engine.append(path, "a")
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, resource.RLIM_INFINITY))
test_engine.append(path, "b")
"""


@pytest.mark.skipif(os.name == "nt", reason="files are limited as POSIX does it")
def test_a_line_that_does_not_fit_on_the_disk_is_an_error(path: Path) -> None:
    command = [sys.executable, "-c", FILL, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1:] == [f"OSError: [Errno 28] No space left on device: '{path}'"]


IN_USE = "dev_judgements.jsonl is in use: another run is judging this split"


@pytest.mark.usefixtures("open_journal")
def test_the_second_to_open_a_journal_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match=IN_USE):
        Journal(str(path))


def test_a_journal_that_was_closed_can_be_opened_again(path: Path) -> None:
    for _ in range(2):
        Journal(str(path)).close()


def opener(path: Path) -> subprocess.Popen[str]:
    """A process that opens the journal, says so, and holds it until it is killed or has no more input."""
    code = "import sys, evaluation as e; held = e.Journal(sys.argv[1]); print('held', flush=True); input()"
    root, pipe = Path(evaluation.__file__).parent, subprocess.PIPE
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.usefixtures("open_journal")
def test_another_process_is_refused(path: Path) -> None:
    out, err = opener(path).communicate(timeout=LIMIT_S)
    assert (out, err.splitlines()[-1]) == ("", f"evaluation.UsageError: {path.parent}/{IN_USE}")


def test_a_process_that_is_killed_leaves_no_lock(path: Path) -> None:
    with opener(path) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=IN_USE):
            Journal(str(path))
        process.kill()
        process.wait(LIMIT_S)
        Journal(str(path)).close()


# ------------------------------------------------------------------ Keys and costs

SYSTEM, USER = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
BODY = evaluation.build_request_body(OSS, [SYSTEM, USER])
CHANGES = {
    "model": {"model": "openai/gpt-oss-120b"},
    "first message": {"messages": [{**SYSTEM, "content": "S"}, USER]},
    "last message": {"messages": [SYSTEM, {**USER, "content": "u "}]},
    "role": {"messages": [SYSTEM, {**USER, "role": "system"}]},
    "order of the messages": {"messages": [USER, SYSTEM]},
    "one message more": {"messages": [SYSTEM, USER, USER]},
    "temperature": {"temperature": 0.1},
    "seed": {"seed": 1},
    "max_completion_tokens": {"max_completion_tokens": 601},
    "reasoning_effort": {"reasoning_effort": "high"},
    "response_format": {"response_format": {"type": "json_object"}},
    "a parameter more": {"top_p": 0.5},
}


@table("change", CHANGES)
def test_a_key_changes_with_all_that_a_judgement_depends_on(change: dict[str, Any]) -> None:
    assert judgement_key({**BODY, **change}, 0) != judgement_key(BODY, 0)


def test_a_key_changes_with_the_repeat() -> None:
    assert judgement_key(BODY, 1) != judgement_key(BODY, 0)


def test_a_key_is_the_same_however_the_request_was_put_together() -> None:
    again = evaluation.build_request_body(OSS, [dict(reversed(SYSTEM.items())), dict(USER)])
    assert judgement_key(dict(reversed(again.items())), 0) == judgement_key(BODY, 0)


COSTS = {
    "prompt and completion": (LLAMA, Usage(1_000_000, 500_000), 0.05 + 0.04),
    "cached at half the price": (OSS, Usage(1_000_000, 100_000, 400_000), 0.06 + 0.03),
    "nothing": (OSS, Usage(), 0.0),
    "unknown model": ("somebody/else", Usage(1_000_000, 0), None),
}


@table("model, usage, usd", COSTS)
def test_what_tokens_cost(model: str, usage: Usage, usd: float | None) -> None:
    assert evaluation.cost_usd(model, usage) == (None if usd is None else pytest.approx(usd))


def test_a_plan_counts_each_call_that_must_be_made_once() -> None:
    stored, twice, left_out = "a" * 400, "b" * 402, "c" * 400
    requests = [
        request(stored),
        request(stored, repeat=1),
        request(twice),
        request(twice, question_id="q2"),
        request(left_out, stored_only=True),
    ]
    plan = evaluation.plan_calls(OSS, requests, {("", key_of(stored))})
    assert plan == CallPlan(OSS, judgements=3, stored=1, calls=2, usage=Usage(201, 400))


def test_a_fresh_plan_takes_only_what_is_left_out() -> None:
    asked, left_out = "a" * 400, "b" * 400
    requests = [request(asked), request(left_out, stored_only=True)]
    plan = evaluation.plan_calls(OSS, requests, {("", key_of(asked)), ("", key_of(left_out))}, fresh=True)
    assert (plan.judgements, plan.stored, plan.calls) == (2, 1, 1)


MINUTES: dict[str, object] = {
    "requests bind": (60, 6_000, Tier(30, 6_000), 2),
    "tokens bind": (60, 54_000, Tier(30, 6_000), 9),
    "nothing to do": (0, 0, Tier(30, 6_000), 0),
    "within a day's requests": (999, 0, Tier(30, 6_000, 1_000), 33.3),
    "two days' requests and some": (2_500, 0, Tier(30, 6_000, 1_000), 2 * 1440),
    "two days' tokens and some": (10, 450_000, Tier(30, 8_000, 1_000, 200_000), 2 * 1440),
    "a day's requests to the last": pytest.param(1_200, 0, Tier(30, 6_000, 1_200), 40),
}


@table("calls, tokens, tier, minutes", MINUTES)
def test_the_minutes_that_a_plan_takes(calls: int, tokens: int, tier: Tier, minutes: float) -> None:
    plan = CallPlan(OSS, calls, 0, calls, Usage(tokens, 0))
    assert evaluation.minutes_needed(plan, tier) == pytest.approx(minutes)


NOISE = {
    "variances 0 and 2": ([[4, 4], [2, 4], [5]], 1.0),
    "variances 1 and 0": ([[1, 2, 3], [3, 3, 3]], math.sqrt(0.5)),
    "none": ([[4, 4, 4]], 0.0),
    "nothing repeated": ([[4], [], [2]], None),
    "nothing": ([], None),
}


@table("groups, sd", NOISE)
def test_the_noise_within_groups(groups: Sequence[Sequence[float]], sd: float | None) -> None:
    assert evaluation.pooled_sd(groups) == (None if sd is None else pytest.approx(sd))
