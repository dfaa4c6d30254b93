"""Calls to the judge: retries, limits and pauses, early stops, the journal, and interrupted runs."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import evaluation
import pytest

from conftest import (
    JUDGE,
    RESULTS,
    Project,
    Serve,
    asked,
    asked_document,
    below_the_averages,
    by_document,
    fake_module,
    first,
    first_question,
    journal_entries,
    judge_block,
    judge_row,
    judge_scores,
    mentions,
    pasted,
    posix_only,
    table,
    write_many,
)
from groq_server import (
    JSON_TYPE,
    RPD,
    RPM,
    Call,
    GroqServer,
    Reply,
    completion,
    drop,
    error,
    hang,
    rate_limited,
    recorded,
    score_reply,
    too_large,
)

ROOT = Path(evaluation.__file__).resolve().parent
JOURNAL = "dev_judgements.jsonl"
UNJUDGED = ["retrieval", "citation", "run"]
WORKERS = 8  # by default
SCORE_3 = '{"rationale": "So.", "score": 3}'


def gaps_s(server: GroqServer) -> list[float]:
    """Return the seconds between consecutive calls."""
    return [after.arrived_s - before.arrived_s for before, after in pairwise(server.calls)]


def test_refusals_for_a_limit_are_not_counted_as_attempts(small: Project, serve: Serve) -> None:
    refused = rate_limited("things per day", 30, retry_after_s=0)
    server = serve(first(*[refused] * 15, *[error(503, "", "Later")] * 5, then=score_reply(4)))
    outcome = first_question(small).run()
    assert (judge_scores(outcome)["q001"], len(server.calls)) == (4, 21)
    assert mentions(outcome.err, "21 calls, 20 retries, 15 ", "429")


@table("count", {"many answers": 24, "few answers": 3})
def test_unreachable_service_stops_judging(project: Project, serve: Serve, count: int) -> None:
    write_many(project, count)
    serve(score_reply(4))
    outcome = project.run(GROQ_BASE_URL="http://127.0.0.1:9")  # where nothing listens
    reason = "error: judging ended early: the service cannot be reached (Connection error. [Errno "
    assert mentions(outcome.err, reason, " (asked: ")
    counts = re.findall(r"(\d+) calls", "\n".join(outcome.err))
    assert all(int(n_calls) < 20 + WORKERS for n_calls in counts)
    assert (list(outcome.results["strong"]), outcome.code) == (UNJUDGED, 3)


AWAY = {"drops calls": drop(), "498": error(498, "capacity", "Full"), "503": error(503, "", "Loading model")}


@table("away", AWAY)
def test_a_service_that_is_away_loses_no_answer(project: Project, serve: Serve, away: Reply) -> None:
    """It restarts after the first replies, for more calls than all attempts of all answers."""
    write_many(project, 20)
    server = serve(lambda call: away if 4 <= call.number < 200 else score_reply(4))
    outcome = project.run()
    assert (set(judge_scores(outcome).values()), outcome.code) == ({4}, 0)
    assert len(server.calls) == 200 + 16


@table("away", AWAY)
def test_a_service_that_stays_away_ends_the_run(
    project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, away: Reply
) -> None:
    monkeypatch.setattr(evaluation, "PATIENCE_S", 0.2)
    write_many(project, 10)
    serve(first(score_reply(4), then=replace(away, latency_s=0.02)))
    outcome = project.run("dev", "--workers", "2")
    assert mentions(outcome.err, "error: judging ended early: the service has not replied for 0 s (")
    assert (Counter(judge_scores(outcome).values()), outcome.code) == ({4: 1, 0: 9}, 3)


def test_an_answer_that_breaks_the_service_is_a_failure_of_its_own(project: Project, serve: Serve) -> None:
    write_many(project, 3)
    broken = error(500, "broken", "It broke")
    server = serve(lambda call: broken if asked_document(call) == "d1" else score_reply(4))
    outcome = project.run("dev", "--workers", "1")
    assert asked(server) == ["d0", *["d1"] * 6, "d2"]
    assert judge_scores(outcome) == {"q001": 4, "q002": 0, "q003": 4}
    assert mentions(outcome.err, "judging failed: q002", "HTTP 500: It broke")
    assert outcome.code == 3


def sent_as(kind: str) -> Reply:
    return Reply(200, b"<html>", (("content-type", kind),))


WORDS = {  # for what the service sends, or where it is
    "an event stream": (sent_as("text/event-stream"), "text/event-stream, not JSON"),
    "a page": (sent_as("text/html"), "HTTP 200: the reply is text/html, not JSON"),
    "a wrong address": (error(404, "", "Not Found"), "HTTP 404: Not Found (is the address right? GROQ_BASE"),
}


@table("reply, words", WORDS)
def test_words_for_what_a_service_sends(project: Project, serve: Serve, reply: Reply, words: str) -> None:
    write_many(project, 3)
    serve(reply)
    outcome = project.run()
    assert mentions(outcome.err, "error: judging ended: ", words)
    assert outcome.code == 3


def test_calls_that_time_out_beside_each_other_name_workers(
    project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PATIENCE_S", 0.3)
    write_many(project, 4)
    serve(first(score_reply(4), then=replace(score_reply(4), latency_s=5)))
    outcome = project.run("dev", "--workers", "4", "--timeout", "0.1")
    assert mentions(outcome.err, "error: judging ended early: ", "Request timed out", "with --workers")


def test_a_reply_in_another_field_is_named(small: Project, serve: Serve) -> None:
    message = {"content": "", "reasoning_content": '{"rationale": "So.", "score": 3}'}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    serve(Reply(200, body))
    outcome = small.run()
    assert mentions(outcome.err, "content is empty, and reasoning_content has the reply")


def test_replies_by_another_model_are_named_and_counted(project: Project, serve: Serve) -> None:
    """A proxy's fallback: stored replies count, too."""
    write_many(project, 4)
    serve(lambda call: completion(SCORE_3, model="other" if call.number % 2 else None))
    warning = f"warning: the judgements are by several models: {JUDGE} (2), other (2)"
    for environment in ({}, {"GROQ_API_KEY": ""}):
        outcome = project.run("dev", "--workers", "1", **environment)
        assert warning in outcome.err
        assert judge_block(outcome)["reply_models"] == {JUDGE: 2, "other": 2}


def test_what_the_service_has_not_counted_is_not_stated(small: Project, serve: Serve) -> None:
    body = json.dumps({"choices": [{"message": {"content": SCORE_3}, "finish_reason": "stop"}]}).encode()
    serve(Reply(200, body))
    outcome = small.run()
    assert mentions(outcome.err, "2 judgements; 2 calls, ", "(estimated)")
    usage = judge_block(outcome)["usage"]
    assert (usage["judgements"], usage["prompt_tokens"], usage["cost_usd"]) == (2, None, None)


@pytest.mark.parametrize("workers", [1, 8])
def test_service_that_refuses_every_call_stops_judging(project: Project, serve: Serve, workers: int) -> None:
    write_many(project, 30)
    server = serve(rate_limited("things per day", 30, retry_after_s=0))
    outcome = project.run("dev", "--workers", str(workers))
    reason = "the service still refuses all calls; run again later"
    assert mentions(
        outcome.err, f"error: judging ended early: {reason} (asked: ", "; the service says: HTTP 429: "
    )
    assert sum(gaps_s(server)) >= evaluation.BACKOFF_S * sum(range(1, 20))
    assert 20 <= len(server.calls) < 20 + workers  # one at a time after the first
    assert outcome.code == 3


ATTACK = "' OR 1=1 UNION SELECT"


def behind_a_firewall(status: int) -> Callable[[Call], Reply]:
    """Refuse what looks like an attack, as a firewall before the service does, and answer the rest."""
    return lambda call: Reply(status, b"Blocked") if ATTACK in pasted(call) else score_reply(4)


def write_class(project: Project, attacks: Mapping[str, Sequence[int]], count: int = 8) -> None:
    """Write a submission for each student, whose answers to these questions look like an attack."""
    write_many(project, count)
    for name, places in attacks.items():
        texts = [f"{name} {n} {ATTACK if n in places else ''}" for n in range(count)]
        rows = {f"q{n + 1:03d}": {"answer": text} for n, text in enumerate(texts)}
        project.submission(f"class/{name}", final=rows)


@pytest.mark.parametrize("status", [301, 403, 404, 405])
def test_refused_answers_of_two_submissions_end_nothing(project: Project, serve: Serve, status: int) -> None:
    write_class(project, {"ann": range(8), "bob": range(8), "cat": [], "dan": []})
    server = serve(behind_a_firewall(status))
    outcome = project.run("dev", "--submissions", "class/*", "--workers", "16")
    assert (len(server.calls), outcome.code) == (32, 3)
    assert not mentions(outcome.err, "judging ended")
    for name, failed in {"ann": 8, "cat": 0}.items():
        [system] = [project.read(f"dev_graded/{name}/dev_evaluation.json")["final"]]
        assert len(system["llm_judge"]["failed_questions"]) == failed
    assert mentions(outcome.err, "ann", f"HTTP {status}: ", "q001")


def test_answers_that_are_refused_before_the_first_reply_end_nothing(project: Project, serve: Serve) -> None:
    """A firewall is faster than a model: the others' answers are on their way."""
    write_class(project, {f"s{n}": [0] if 0 < n < 7 else [] for n in range(9)}, count=1)
    slow = replace(score_reply(4), latency_s=0.3)
    server = serve(lambda call: Reply(403, b"Blocked") if ATTACK in pasted(call) else slow)
    outcome = project.run("dev", "--submissions", "class/*")
    assert (len(server.calls), outcome.code) == (9, 3)
    assert not mentions(outcome.err, "judging ended")


ALL_REFUSED = {  # submissions, questions, calls, reason
    "many answers": (4, 8, 20, "no usable reply to any of 20 requests (HTTP 403: Blocked)"),
    "few answers": (2, 1, 2, "HTTP 403: Blocked (s0/final q001, s1/final q001)"),
}


@table("submissions, count, calls, reason", ALL_REFUSED)
def test_a_service_that_refuses_all_is_asked_twenty_times_at_most(
    project: Project, serve: Serve, submissions: int, count: int, calls: int, reason: str
) -> None:
    write_class(project, {f"s{n}": () for n in range(submissions)}, count)
    server = serve(Reply(403, b"Blocked"))
    outcome = project.run("dev", "--submissions", "class/*", "--workers", "1")
    assert mentions(outcome.err, f"no answer is judged: {reason}")
    assert (len(server.calls), outcome.code) == (calls, 3)


ENDING = {
    "key": (error(401, "", "Bad key"), "HTTP 401: Bad key (strong q002)"),
    "account": (error(402, "", "No credit"), "HTTP 402: No credit (strong q002)"),
    "credit": (
        error(429, "insufficient_quota", "Check your plan."),
        "HTTP 429: Check your plan. (strong q002)",
    ),
}


@table("reply, reason", ENDING)
def test_key_and_account_end_judging(project: Project, serve: Serve, reply: Reply, reason: str) -> None:
    write_many(project, 40)
    server = serve(first(score_reply(4), then=reply))
    outcome = project.run("dev", "--workers", "1")
    assert mentions(outcome.err, f"error: judging ended: {reason}")
    assert (len(server.calls), sum(judge_scores(outcome).values()), outcome.code) == (2, 4, 3)


RETRY_1000 = (("retry-after", "1000"),)
UNREADABLE = (*JSON_TYPE, ("retry-after", "soon"))
LONG = "the next call must wait long; run again in"
REQUESTS = f"the limit RPD 14400 is reached; {LONG}"
LONG_WAITS = {  # refusal, reason; up to 90 s are waited for
    "a day's limit": (recorded("TPD"), f"the limit TPD 100000 is reached; {LONG} 0:09:39"),
    "told by its wait": (recorded("TPD, unnamed"), f"the limit 500000 is reached; {LONG} 0:01:48"),
    "header before message": (rate_limited(RPD, 14_400, 7200, wait_s=86.4), f"{REQUESTS} 2:00:00"),
    "a word": (replace(rate_limited(RPD, 14_400, wait_s=3723.5), headers=UNREADABLE), f"{REQUESTS} 1:02:04"),
    "no number": (error(429, "", "Slow down.", headers=RETRY_1000), f"a limit is reached; {LONG} 0:16:40"),
    "503": (error(503, "", "Busy.", headers=RETRY_1000), f"{LONG} 0:16:40"),
    "a day": (error(503, "", "Busy.", headers=(("retry-after", "86400"),)), f"{LONG} 1 day, 0:00:00"),
}


@table("refusal, reason", LONG_WAITS)
def test_more_than_90_s_are_no_wait(project: Project, serve: Serve, refusal: Reply, reason: str) -> None:
    write_many(project, 4)
    server = serve(first(score_reply(5), score_reply(5), then=refusal))
    outcome = project.run("dev", "--workers", "1")
    said = f"; the service says: HTTP {503 if refusal.status == 503 else 429}: "
    assert mentions(outcome.err, f"error: judging ended early: {reason}, at 2", " UTC (asked: ", said)
    assert mentions(outcome.err, "missing: dev_strong_output.json: not judged: q003, q004 ")
    assert judge_scores(outcome) == {"q001": 5, "q002": 5, "q003": 0, "q004": 0}
    block = judge_block(outcome)
    assert (block["failed_questions"], block["unjudged_questions"]) == ([], ["q003", "q004"])
    assert (len(server.calls), outcome.code) == (3, 3)

    server = serve(score_reply(2))
    outcome = project.run()
    assert asked(server) == ["d2", "d3"]
    assert judge_scores(outcome) == {"q001": 5, "q002": 5, "q003": 2, "q004": 2}
    assert (below_the_averages(outcome), outcome.code) == ([], 0)


def test_a_wait_of_years_ends_judging(small: Project, serve: Serve) -> None:
    serve(error(503, "", "Busy.", headers=(("retry-after", "9" * 400),)))
    outcome = small.run("dev", "--workers", "1")
    assert mentions(outcome.err, "error: judging ended early: the next call must wait long; run again in ")


PAUSES = {
    "requests": recorded("RPM", "150ms"),
    "tokens": recorded("TPM", "0.1500001s"),
    "kind not named": recorded("TPM, unnamed", "150.9ms"),
    "header before message": rate_limited(RPM, 6_000, 0.15, wait_s=578.0),
    "without a 429": error(503, "overloaded", "Later", headers=(("retry-after", "0.15"),)),
}


@table("refusal", PAUSES)
def test_pause_is_as_long_as_told(small: Project, serve: Serve, refusal: Reply) -> None:
    server = serve(first(refusal, then=score_reply(4)))
    assert judge_scores(first_question(small).run())["q001"] == 4
    [gap_s] = gaps_s(server)
    assert 0.15 <= gap_s < 5


def test_calls_keep_a_distance_by_hand(project: Project, serve: Serve) -> None:
    write_many(project, 3)
    server = serve(score_reply(4))
    assert project.run("dev", "--rpm", "300").code == 0
    assert sum(gaps_s(server)) >= 2 * 0.2 - 0.15  # the first may arrive late


@table("reply", {"429": recorded("too large"), "so": recorded("too large, about"), "413": too_large()})
def test_request_larger_than_the_limit_fails_alone(project: Project, serve: Serve, reply: Reply) -> None:
    write_many(project, 30)
    server = serve(by_document({f"d{n}": score_reply(4) for n in range(29)} | {"d29": reply}))
    outcome = project.run()
    assert judge_block(outcome)["failed_questions"] == ["q030"]
    assert "Requested" in judge_row(outcome, "q030")["failure"]
    assert (len(server.calls), outcome.code) == (30, 3)


TOKEN_HEADERS = {  # limit, remaining; the least seconds until the second call
    "used up": ("60000", "0", 0.28),
    "limit of zero": ("0", "0", 0),
    "absurd limit": ("9" * 400, "9" * 400, 0),
}


@table("limit, remaining, least_s", TOKEN_HEADERS)
def test_token_headers(small: Project, serve: Serve, limit: str, remaining: str, least_s: float) -> None:
    stated = {"limit-tokens": limit, "remaining-tokens": remaining, "limit-requests": "1"}  # of a day
    headers = tuple((f"x-ratelimit-{name}", value) for name, value in stated.items())
    reply = replace(score_reply(4), headers=(*JSON_TYPE, *headers))
    server = serve(first(reply, then=score_reply(4)))
    assert small.run("dev", "--workers", "1").code == 0
    [gap_s] = gaps_s(server)
    assert least_s <= gap_s < 5


@table("workers, count, low", {"many": (30, 70, 9), "few": (3, 12, 3)})
def test_number_of_calls_at_once(project: Project, serve: Serve, workers: int, count: int, low: int) -> None:
    write_many(project, count)
    server = serve(score_reply(4), latency_s=0.1)
    assert project.run("dev", "--workers", str(workers)).code == 0
    assert low <= server.in_flight_peak <= workers


# ------------------------------------------------------------------ Rate limiter
# The only unit tests in this file. `Limiter` is the only place that knows the class they test.


class Limiter:
    """A rate limiter with a clock that moves only while the limiter waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.limiter = evaluation.RateLimiter(8, 0.0)

    def call(self, tokens: float) -> float:
        """Start a call as soon as it may start. Returns the seconds waited."""
        wait_s: float = self.limiter.start(tokens, self.now_s)
        if wait_s:
            self.now_s += wait_s + 1e-9
            assert self.limiter.start(tokens, self.now_s) == 0
        return wait_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def end(self, tokens: float, used: float, headers: tuple[float, float] | None = None) -> None:
        """End a call that used so many tokens. The headers are limit and remaining tokens."""
        limit = evaluation.RateLimit("TPM", headers[0], headers[0] - headers[1]) if headers else None
        self.limiter.finish(tokens, used, limit, self.now_s)

    def refuse(self, *numbers: Any) -> None:
        """Tell of a 429: kind, limit, used and requested in its message, and the wait."""
        self.limiter.refuse(evaluation.RateLimit(*numbers), self.now_s)


Step = tuple[Any, ...]  # name of a method and its arguments
SMALL: Step = ("refuse", "RPM", 600, 2, 1, 0)
EMPTY: Step = ("refuse", "TPM", 6_000, 6_000, 900, 0)
ENDED: list[Step] = [("call", 0), ("end", 0, 0)]
FULL: list[Step] = [("call", 0), ("end", 0, 0, (6_000, 6_000))]
HALF_USED: list[Step] = [("call", 0), ("end", 0, 0, (6_000, 3_000)), ("call", 500)]  # 2,500 are left
LIMITER_CASES: dict[str, tuple[list[Step], float, float]] = {
    # what happened, tokens of the next call, seconds that it waits
    "headers": ([("call", 0), ("end", 0, 0, (6_000, 1_000))], 3_000, 20),
    "what calls in flight may use is set aside": ([*FULL, ("call", 5_000)], 2_000, 10),
    "unused tokens are given back": ([*FULL, ("call", 5_000), ("end", 5_000, 3_000)], 4_000, 10),
    "a refused call used none": ([*FULL, ("call", 6_000), ("end", 6_000, 0)], 6_000, 0),
    "headers tell of more": ([*HALF_USED, ("end", 500, 500, (6_000, 5_000))], 5_000, 0),
    "429 for requests": ([("refuse", "RPM", 30, 30, 1, 0)], 900, 2),
    "429 for tokens": ([("refuse", "TPM", 6_000, 5_900, 900, 0)], 900, 8),
    "429 of unknown kind holds all calls": ([("refuse", "", 0, 0, 0, 5)], 900, 5),
    "429 lowers the known budget": ([*HALF_USED, ("end", 500, 0), EMPTY], 900, 9),
    "429 below the minute: empty, and nine tenths of the pace": ([SMALL], 900, 1 / 9),
    "a small bucket never holds more": ([SMALL, ("wait", 60), *ENDED, ("call", 0)], 900, 1 / 9.05),
    "20 replies speed the pace up again": ([SMALL, *ENDED * 20], 900, 0.1),
}


@table("steps, tokens, wait_s", LIMITER_CASES)
def test_rate_limiter(steps: list[Step], tokens: float, wait_s: float) -> None:
    limiter = Limiter()
    for name, *arguments in steps:
        getattr(limiter, name)(*arguments)
    assert limiter.call(tokens) == pytest.approx(wait_s)


def scored(score: int, rationale: str = "Right.") -> Reply:
    content = json.dumps({"rationale": rationale, "score": score})
    return completion(content, prompt_tokens=100, completion_tokens=20)


def test_entry_of_the_journal(small: Project, serve: Serve) -> None:
    server = serve(scored(4))
    first_question(small).run()
    [entry] = journal_entries(small)
    canonical = json.dumps([server.calls[0].body, 0], sort_keys=True)
    assert entry.pop("key") == hashlib.sha256(canonical.encode()).hexdigest()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry.pop("time"))
    assert 0 < entry.pop("latency_ms") < 60_000
    assert entry == {
        "question_id": "q001",
        "repeat": 0,
        "reply": '{"rationale": "Right.", "score": 4}',
        "model": JUDGE,
        "endpoint": f"{server.url}/openai/v1",
        "fingerprint": "fp_loopback",
        "usage": {"prompt": 100, "completion": 20, "cached": 0},
    }


def test_second_run_sends_nothing_and_writes_the_same_bytes(small: Project, serve: Serve) -> None:
    rationale = '한국어, فارسی 😀 "a" \\ud800\r\n\u2028\u0085\x00 \ud800'
    serve(scored(4, rationale))
    one = small.run()
    assert (judge_row(one, "q001")["answer_rationale"], count_lines(small)) == (rationale, 2)
    written = small.files()
    (small.folder / RESULTS).unlink()
    server = serve(scored(1))
    two = small.run()
    assert (server.calls, small.files()) == ([], written)
    assert (two.out, two.code) == (one.out, 0)
    assert two.err == [f"Judge: {JUDGE}, 2 judgements from the journal"]


def test_line_that_is_torn_anywhere_is_repaired(small: Project, serve: Serve) -> None:
    server = serve(scored(4, "größer"))
    small.run("dev", "--workers", "1")
    data = small.files()[JOURNAL]
    start = data.index(b"\n") + 1
    for size in range(start, len(data) - 1, 61):
        small.write(JOURNAL, data[:size])
        server.calls.clear()
        assert small.run().code == 0
        assert asked(server) == ["d2"]
        assert (small.run().code, len(server.calls)) == (0, 1)


def test_the_first_reply_counts_and_what_is_damaged_is_asked_again(small: Project, serve: Serve) -> None:
    serve(by_document({"d1": scored(4), "d2": scored(2)}))
    small.run("dev", "--workers", "1")
    one, two = small.files()[JOURNAL].splitlines(keepends=True)
    better = one.replace(rb"\"score\": 4", rb"\"score\": 5")
    impossible = two.replace(rb"\"score\": 2", rb"\"score\": 7")
    assert (better != one, impossible != two) == (True, True)
    damaged = b'\xff\x00{"key": 1}\n\n' + b"\0" * 4096 + b"\n"
    small.write(JOURNAL, b"\xef\xbb\xbf" + one + damaged + better + impossible)  # with a byte-order mark
    server = serve(scored(3))
    outcome = small.run()
    assert (judge_scores(outcome), asked(server)) == ({"q001": 4, "q002": 3}, ["d2"])
    assert mentions(outcome.err, f"warning: {JOURNAL}: unreadable lines: 2")
    assert judge_scores(small.run()) == {"q001": 4, "q002": 3}


RUINED: dict[str, Callable[[bytes], bytes]] = {
    "indented by an editor": lambda journal: b"".join(
        json.dumps(json.loads(line), indent=2).encode() + b"\n" for line in journal.splitlines()
    ),
    "UTF-16": lambda journal: journal.decode().encode("utf-16"),
    "one list": lambda journal: b"[" + journal.strip().replace(b"\n", b", ") + b"]\n",
}


@table("ruin", RUINED)
def test_a_journal_of_which_most_cannot_be_read_is_not_paid_for_again(
    small: Project, serve: Serve, ruin: Callable[[bytes], bytes]
) -> None:
    server = serve(scored(4))
    judged = small.run()
    journal = small.files()[JOURNAL]
    small.write(JOURNAL, ruin(journal))
    before = small.files()
    for options in ((), ("--dry-run",)):
        outcome = small.run("dev", *options)
        assert re.fullmatch(
            rf"error: {JOURNAL}: \d+ of \d+ lines cannot be read: "
            "restore the file, or move it away to ask everything again",
            outcome.usage_error,
        )
        assert (outcome.code, small.files(), len(server.calls)) == (2, before, 2)
    small.write(JOURNAL, journal)
    assert (judge_scores(small.run()), len(server.calls)) == (judge_scores(judged), 2)


def test_a_last_line_that_was_cut_off_is_removed_and_named_once(small: Project, serve: Serve) -> None:
    serve(scored(4))
    small.run()
    whole = small.files()[JOURNAL]
    small.write(JOURNAL, whole + b'{"key": "abc", "reply": "')
    cut = f"warning: {JOURNAL}: the last line was cut off"
    assert cut in small.run(GROQ_API_KEY="").err
    assert f"{cut} and is removed" in small.run().err
    assert small.files()[JOURNAL] == whole
    assert not mentions(small.run().err, "cut off")
    small.write(JOURNAL, b'{"key": "abc", "sco')  # the first line, too
    assert f"{cut} and is removed" in small.run().err
    assert small.files()[JOURNAL].count(b"\n") == 2


@table("line", {"a text": b"a note of mine", "an object": b'{"note": "of mine"}'})
def test_a_last_line_of_another_form_stays(small: Project, serve: Serve, line: bytes) -> None:
    serve(scored(4))
    small.run()
    whole = small.files()[JOURNAL]
    small.write(JOURNAL, whole + line)
    assert mentions(small.run().err, f"{JOURNAL}: unreadable lines: 1")
    assert small.files()[JOURNAL] == whole + line + b"\n"


LOCKS = {
    "no locks": (errno.ENOLCK, 0, "warning: dev_judgements.jsonl cannot be locked (No locks available): "),
    "not supported": (errno.EOPNOTSUPP, 0, "warning: dev_judgements.jsonl cannot be locked ("),
    "not built in": (errno.ENOSYS, 0, "warning: dev_judgements.jsonl cannot be locked ("),
    "held": (errno.EWOULDBLOCK, 2, "error: dev_judgements.jsonl is in use by another run: wait until it "),
}


@posix_only
@table("number, code, message", LOCKS)
def test_only_a_lock_that_is_held_stops_a_run(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int, code: int, message: str
) -> None:
    import fcntl

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    server = serve(scored(4))
    outcome = small.run()
    assert mentions(outcome.err, message)
    assert (outcome.code, len(server.calls)) == (code, 0 if code else 2)


@pytest.mark.parametrize("is_held", [False, True])
def test_the_journal_is_locked_on_windows(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    locked = []

    def locking(descriptor: int, mode: int, count: int) -> None:
        if is_held:
            raise PermissionError(errno.EACCES, "Permission denied")
        locked.append((os.lseek(descriptor, 0, os.SEEK_CUR), mode, count))

    server = serve(scored(4))
    monkeypatch.setitem(sys.modules, "msvcrt", fake_module("msvcrt", locking=locking, LK_NBLCK=2))
    monkeypatch.setattr(sys, "platform", "win32")
    outcome = small.run()
    assert (outcome.code, len(server.calls)) == ((2, 0) if is_held else (0, 2))
    if not is_held:  # a byte that no reader of the journal needs
        assert locked == [(1 << 40, 2, 1)]
        assert small.files()[JOURNAL].count(b"\n") == 2


@contextmanager
def start() -> Iterator[subprocess.Popen[str]]:
    """Run the program with one worker in a process of its own, which is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "evaluation", "dev", "--workers", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)


def count_lines(project: Project) -> int:
    path = project.folder / JOURNAL
    return path.read_bytes().count(b"\n") if path.exists() else 0


def assert_resumes(project: Project, serve: Serve, missing: Sequence[str]) -> None:
    """Check that no results were written, and that the next run asks only about the missing documents."""
    assert RESULTS not in project.files()
    server = serve(score_reply(3))
    assert project.run().code == 0
    assert asked(server) == list(missing)


@posix_only
@table("workers, slow", {"several": (3, ["d0", "d1"]), "one alone": (1, ["d0", "d1", "d2"])})
def test_calls_in_flight_are_awaited_at_ctrl_c(
    project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, workers: int, slow: list[str]
) -> None:
    """The interrupt is seen within a second. The third of several calls hangs."""
    write_many(project, 5)

    def answer(call: Call) -> Reply:
        if call.number == workers - 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return replace(score_reply(4), latency_s=1.5) if asked_document(call) in slow else hang()

    server = serve(answer)
    monkeypatch.setattr(evaluation, "GRACE_S", 2.5)
    outcome = project.run("dev", "--workers", str(workers))
    assert (outcome.code, len(server.calls)) == (130, workers)
    assert "interrupted" in outcome.err[-1]
    assert_resumes(project, serve, ["d1", "d2", "d3", "d4"][workers > 1 :])


WAITING = error(503, "", "Busy.", headers=(("retry-after", "61"),))
ENDS = {"killed in a call": (hang(), signal.SIGKILL, -9), "Ctrl-C in a pause": (WAITING, signal.SIGINT, 130)}


@posix_only
@table("third, number, code", ENDS)
def test_run_that_is_ended_from_outside_is_resumed(
    project: Project, serve: Serve, third: Reply, number: signal.Signals, code: int
) -> None:
    write_many(project, 5)
    server = serve(first(score_reply(4), score_reply(4), then=third))
    with start() as process:
        wait_until(lambda: count_lines(project) == 2 and len(server.calls) == 3)
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, "Traceback" in err) == (code, False)
    assert_resumes(project, serve, ["d2", "d3", "d4"])


def test_full_disk_is_an_error_and_the_next_run_resumes(project: Project, serve: Serve) -> None:
    write_many(project, 3)
    server = serve(score_reply(4))
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, limits[1]))  # the second line of the journal does not fit
    try:
        outcome = project.run("dev", "--workers", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert outcome.err == [f"error: {JOURNAL}: No space left on device"]
    assert (outcome.code, len(server.calls)) == (2, 2)
    assert_resumes(project, serve, ["d1", "d2"])


def test_second_run_at_the_same_time_is_refused(small: Project, serve: Serve) -> None:
    released = False

    def answer(call: Call) -> Reply:
        return score_reply(4) if released else rate_limited(RPM, 60_000, 0.1)

    server = serve(answer)
    with start() as process:
        wait_until(lambda: len(server.calls) > 0)
        second = small.run()
        released = True
        process.communicate(timeout=20)
    assert f"error: {JOURNAL} is in use by another run: wait until it has ended" in second.err
    assert (second.code, second.results, process.returncode) == (2, None, 0)
    assert len(journal_entries(small)) == 2
    assert (small.folder / RESULTS).exists()
