"""Calls to the judge: retries, limits and pauses, early stops, the journal, and interrupted runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import evaluation
import pytest

from conftest import (
    Project,
    Serve,
    asked,
    asked_document,
    below_the_averages,
    by_document,
    first,
    journal_entries,
    judge_block,
    judge_row,
    judge_scores,
    mentions,
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
    error,
    hang,
    rate_limited,
    recorded,
    score_reply,
    too_large,
)

ROOT = Path(evaluation.__file__).resolve().parent
LLAMA = "llama-3.1-8b-instant"
RESULTS, JOURNAL = "dev_evaluation.json", "dev_judgements.jsonl"
UNJUDGED = ["retrieval", "citation", "slices", "run"]
WORKERS = 8  # by default


def gaps_s(server: GroqServer) -> list[float]:
    """Return the seconds between consecutive calls."""
    arrivals = [call.arrived_s for call in server.calls]
    return [arrivals[n] - arrivals[n - 1] for n in range(1, len(arrivals))]


# ------------------------------------------------------------------ Early stops


def test_refusals_for_a_limit_are_not_counted_as_attempts(small: Project, serve: Serve) -> None:
    refused = rate_limited("things per day", 30, retry_after_s=0)
    server = serve(first(*[refused] * 15, *[error(503, "", "Later")] * 5, then=score_reply(4)))
    outcome = small.run("dev", "--questions", "q001")
    assert (judge_scores(outcome)["q001"], len(server.calls)) == (4, 21)
    assert mentions(outcome.err, "21 calls, 20 retries, 15 ", "429")


@pytest.mark.parametrize("count", [24, 3], ids=["many answers", "few answers"])
def test_unreachable_service_stops_judging(project: Project, serve: Serve, count: int) -> None:
    write_many(project, count)
    serve(score_reply(4))
    outcome = project.run(GROQ_BASE_URL="http://127.0.0.1:9")  # where nothing listens
    assert mentions(outcome.err, "error: ", "reached", "Connection error.")
    [calls] = re.findall(r"(\d+) calls", "\n".join(outcome.err))
    assert int(calls) < 20 + WORKERS
    assert (list(outcome.results["strong"]), outcome.code) == (UNJUDGED, 3)


@pytest.mark.parametrize("workers", [1, 8])
def test_service_that_refuses_every_call_stops_judging(project: Project, serve: Serve, workers: int) -> None:
    write_many(project, 30)
    server = serve(rate_limited("things per day", 30, retry_after_s=0))
    outcome = project.run("dev", "--workers", str(workers))
    assert mentions(outcome.err, "error: ", "still refuses all calls")
    assert sum(gaps_s(server)) >= evaluation.BACKOFF_S * sum(range(1, 20))
    assert 20 <= len(server.calls) < 20 + workers  # one at a time after the first
    assert outcome.code == 3


def daily_refusal(wait_s: float, *headers: tuple[str, str]) -> Reply:
    refusal = rate_limited(RPD, 14_400, wait_s=wait_s)
    return replace(refusal, headers=(*JSON_TYPE, *headers))


RETRY_1000 = (("retry-after", "1000"),)
LONG_WAITS = {  # refusal, words of the message, wait
    "a day's limit": (recorded("TPD"), "the limit TPD 100000 is reached", "0:09:39"),
    "told by its wait": (recorded("TPD, unnamed"), "the limit 500000 is reached", "0:01:48"),
    "hours": (daily_refusal(3723.5), "the limit RPD 14400 is reached", "1:02:04"),
    "header before message": (daily_refusal(86.4, ("retry-after", "7200")), "RPD 14400", "2:00:00"),
    "unreadable header": (daily_refusal(86.4, ("retry-after", "soon")), "RPD 14400", "0:01:27"),
    "a minute's limit": (rate_limited(RPM, 30, 1000), "--max-wait", "0:16:40"),
    "429 without numbers": (error(429, "", "Slow down.", headers=RETRY_1000), "--max-wait", "0:16:40"),
    "503": (error(503, "", "Busy.", headers=RETRY_1000), "--max-wait", "0:16:40"),
    "absurd": (rate_limited(RPM, 30, 360_000, wait_s=5.0), "--max-wait", "4 days, 4:00:00"),
    "endless": (error(503, "", "Busy.", headers=(("retry-after", "9" * 400),)), "", "11574 days, 1:46:40"),
}


@table("refusal, words, wait", LONG_WAITS)
def test_longer_wait_than_max_wait_stops_judging_until_the_next_run(
    project: Project, serve: Serve, refusal: Reply, words: str, wait: str
) -> None:
    write_many(project, 4)
    server = serve(first(score_reply(5), score_reply(5), then=refusal))
    outcome = project.run("dev", "--workers", "1", "--max-wait", "1")
    assert mentions(outcome.err, "error: ", words, f"run again in {wait}, at 2", " UTC")
    assert mentions(outcome.err, "warning: dev_strong_output.json: not judged: q003, q004 ")
    assert judge_scores(outcome) == {"q001": 5, "q002": 5, "q003": 0, "q004": 0}
    block = judge_block(outcome)
    assert (block["failed_questions"], block["unjudged_questions"]) == ([], ["q003", "q004"])
    [bounds] = below_the_averages(outcome)
    assert bounds.startswith("Judged 2 of 4: average answer score between 3.00 and 5.00")
    assert (len(server.calls), outcome.code) == (3, 3)

    server = serve(score_reply(2))
    outcome = project.run()
    assert asked(server) == ["d2", "d3"]
    assert judge_scores(outcome) == {"q001": 5, "q002": 5, "q003": 2, "q004": 2}
    assert (below_the_averages(outcome), outcome.code) == ([], 0)


PAUSES = {
    "requests": (recorded("RPM", "150ms"), 0.15),
    "tokens": (recorded("TPM", "0.1500001s"), 0.15),
    "tokens with service tier": (recorded("TPM of a tier", "150ms"), 0.15),
    "kind not named": (recorded("TPM, unnamed", "150.9ms"), 0.15),
    "header before message": (rate_limited(RPM, 6_000, 0.15, wait_s=578.0), 0.15),
    "without a 429": (error(503, "overloaded", "Later", headers=(("retry-after", "0.15"),)), 0.15),
}


@table("refusal, pause_s", PAUSES)
def test_pause_is_as_long_as_told(small: Project, serve: Serve, refusal: Reply, pause_s: float) -> None:
    server = serve(first(refusal, then=score_reply(4)))
    outcome = small.run("dev", "--questions", "q001", "--rpm", "6000")
    assert judge_scores(outcome)["q001"] == 4
    [gap_s] = gaps_s(server)
    assert pause_s <= gap_s < pause_s + 5


@table(
    "reply",
    {"429": recorded("too large"), "about": recorded("too large, about"), "413": too_large(6000, 6294)},
)
def test_request_larger_than_the_limit_fails_alone(project: Project, serve: Serve, reply: Reply) -> None:
    write_many(project, 30)
    server = serve(by_document({f"d{n}": score_reply(4) for n in range(29)} | {"d29": reply}))
    outcome = project.run()
    assert judge_block(outcome)["failed_questions"] == ["q030"]
    assert "Requested" in judge_row(outcome, "q030")["failure"]
    assert (len(server.calls), outcome.code) == (30, 3)


TOKEN_HEADERS = {  # limit, remaining and reset; the least and the most seconds until the second call
    "used up": ("60000", "0", "1m0s", 0.28, 5),
    "minute that lasts 600 ms": ("6000", "0", "600ms", 0.02, 2.5),
    "reset not readable": ("60", "0", "later", 0, 5),
    "limit of zero": ("0", "0", "0s", 0, 5),
    "absurd reset": ("60000", "0", "999999h", 0.28, 5),
    "absurd limit": ("9" * 400, "9" * 400, "1m0s", 0, 5),
}


@table("limit, remaining, reset, least_s, most_s", TOKEN_HEADERS)
def test_limit_of_tokens_is_learned_from_the_headers(
    small: Project, serve: Serve, limit: str, remaining: str, reset: str, least_s: float, most_s: float
) -> None:
    stated = {"limit": limit, "remaining": remaining, "reset": reset}
    headers = [(f"x-ratelimit-{name}-tokens", value) for name, value in stated.items()]
    headers.append(("x-ratelimit-limit-requests", "1"))  # of a day: not a minute's limit
    reply = replace(score_reply(4), headers=(*JSON_TYPE, *headers))
    server = serve(first(reply, then=score_reply(4)))
    assert small.run("dev", "--workers", "1").code == 0
    [gap_s] = gaps_s(server)
    assert least_s <= gap_s < most_s


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

    def __init__(self, rpm: int | None, tpm: int | None) -> None:
        self.now_s = 0.0
        self.limiter = evaluation.RateLimiter(8, 0.0, rpm, tpm)

    def call(self, tokens: float) -> float:
        """Start a call as soon as it may start. Returns the seconds waited."""
        wait_s = float(self.limiter.wait_s(tokens, self.now_s))
        self.now_s += wait_s
        self.limiter.start(tokens, self.now_s)
        return wait_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def end(self, tokens: float, used: float, headers: tuple[float, float, float] | None = None) -> None:
        """End a call that used so many tokens. The headers are limit, remaining and seconds to reset."""
        limit = evaluation.TokenLimit(*headers) if headers else None
        self.limiter.finish(tokens, used, limit, self.now_s)

    def refuse(self, kind: str, limit: float, used: float, requested: float, wait_s: float) -> None:
        """Tell of a 429 with these numbers in its message."""
        self.limiter.refuse(evaluation.RateLimited(kind, limit, used, requested, wait_s), self.now_s)


Step = tuple[Any, ...]  # name of a method and its arguments
START = [("call", 0)]
SMALL: Step = ("refuse", "RPM", 600, 2, 1, 0)
SMALL_TOKENS: Step = ("refuse", "TPM", 6_000, 900, 900, 0)
FILLED: Step = ("end", 0, 0, (6_000, 5_000, 10))
MUCH_FILLED: Step = ("end", 6_000, 6_000, (250_000, 250_000, 0))
HALF_USED: list[Step] = [*START, ("end", 0, 0, (6_000, 3_000, 30)), ("call", 500)]  # 2,500 are left
LIMITER_CASES: dict[str, tuple[dict[str, int], list[Step], float, float]] = {
    # limits set by hand, what happened, tokens of the next call, seconds that it waits
    "requests by hand": ({"rpm": 3}, [("call", 900)] * 3, 900, 20),
    "tokens by hand": ({"tpm": 6_000}, [("call", 5_000)], 2_000, 10),
    "unused tokens are given back": ({"tpm": 6_000}, [("call", 5_000), ("end", 5_000, 3_000)], 4_000, 10),
    "headers": ({}, [*START, ("end", 0, 0, (6_000, 1_000, 50))], 3_000, 20),
    "minute of 6 s": ({}, [*START, ("end", 0, 0, (6_000, 0, 6))], 1_000, 1),
    "headers tell of more": ({}, [*HALF_USED, ("end", 500, 500, (6_000, 5_000, 10))], 5_000, 0),
    "429 for requests": ({}, [("refuse", "RPM", 30, 30, 1, 0)], 900, 2),
    "429 for tokens": ({}, [("refuse", "TPM", 6_000, 5_900, 900, 0)], 900, 8),
    "429 of unknown kind holds all calls": ({}, [("refuse", "", 0, 0, 0, 5)], 900, 5),
    "429 lowers the known budget": ({}, [*HALF_USED, ("refuse", "TPM", 6_000, 6_000, 900, 0)], 900, 9),
    "429 below the minute: empty, and nine tenths of the pace": ({}, [SMALL], 900, 1 / 9),
    "a refused call used none": ({"tpm": 6_000}, [("call", 6_000), ("end", 6_000, 0)], 6_000, 0),
    "a small bucket never holds more": ({}, [SMALL, ("wait", 60), *[("call", 0)] * 2], 900, 1 / 9),
    "20 replies speed the pace up again": ({}, [SMALL, *[("call", 0), ("end", 0, 0)] * 20], 900, 0.1),
    "headers do not fill a small bucket": ({}, [SMALL_TOKENS, *START, FILLED], 452.5, 5),
    "headers change no limit by hand": ({"tpm": 6_000}, [("call", 6_000), MUCH_FILLED], 100, 1),
}


@table("by_hand, steps, tokens, wait_s", LIMITER_CASES)
def test_rate_limiter(by_hand: dict[str, int], steps: list[Step], tokens: float, wait_s: float) -> None:
    limiter = Limiter(by_hand.get("rpm"), by_hand.get("tpm"))
    for name, *arguments in steps:
        getattr(limiter, name)(*arguments)
    assert limiter.call(tokens) == pytest.approx(wait_s)


# ------------------------------------------------------------------ The journal


def scored(score: int, rationale: str = "Right.") -> Reply:
    content = json.dumps({"rationale": rationale, "score": score})
    return completion(content, prompt_tokens=100, completion_tokens=20)


def test_entry_of_the_journal(small: Project, serve: Serve) -> None:
    server = serve(scored(4))
    small.run("dev", "--questions", "q001")
    [entry] = journal_entries(small)
    canonical = json.dumps([server.calls[0].body, 0], sort_keys=True)
    assert entry.pop("key") == hashlib.sha256(canonical.encode()).hexdigest()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry.pop("time"))
    assert entry == {
        "system": "strong",
        "question_id": "q001",
        "variant": "written",
        "repeat": 0,
        "score": 4,
        "rationale": "Right.",
        "reply": '{"rationale": "Right.", "score": 4}',
        "model": LLAMA,
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
    assert not mentions(two.err, " calls")


def test_fresh_asks_again_and_later_runs_use_the_new_scores(small: Project, serve: Serve) -> None:
    serve(scored(4))
    small.run()
    server = serve(scored(5))
    assert judge_scores(small.run("dev", "--fresh", "--limit", "1")) == {"q001": 5, "q002": 4}
    assert asked(server) == ["d1"]
    assert judge_scores(small.run("dev", "--fresh")) == {"q001": 5, "q002": 5}
    assert judge_scores(small.run()) == {"q001": 5, "q002": 5}
    assert (len(server.calls), len(journal_entries(small))) == (3, 5)


def test_damaged_journal_loses_only_the_damaged_lines(small: Project, serve: Serve) -> None:
    server = serve(by_document({"d1": scored(4), "d2": scored(2)}))
    results = small.run("dev", "--workers", "1").results
    one, two = small.files()[JOURNAL].splitlines()
    small.write(JOURNAL, b'\xff\x00{"key": 1}\n\n' + one + b"\n" + b"\0" * 4096 + b"\n" + two)
    outcome = small.run()
    assert (outcome.results, outcome.code, len(server.calls)) == (results, 0, 2)
    assert mentions(outcome.err, f"warning: {JOURNAL}: unreadable lines: 2")


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
        assert [entry["score"] for entry in journal_entries(small)] == [4, 4]


def test_import_judgements(small: Project, serve: Serve) -> None:
    serve(by_document({"d1": scored(4), "d2": scored(2)}))
    small.run("dev", "--workers", "1")
    first_line, second_line = (small.folder / JOURNAL).read_bytes().splitlines(keepends=True)
    impossible = second_line.replace(b'"score": 2', b'"score": 7')
    assert impossible != second_line
    small.write("team/old.jsonl", first_line + impossible + b"no JSON\n")
    (small.folder / JOURNAL).unlink()
    server = serve(scored(5))
    outcome = small.run("dev", "--import-judgements", "team/old.jsonl")
    assert mentions(outcome.err, "team/old.jsonl", "judgements imported: 1", "unreadable lines left out: 2")
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 5}, 0)
    assert asked(server) == ["d2"]
    before = small.files()
    for file, word in {"missing.jsonl": "not found", "dev_strong_output.json": "no judgement"}.items():
        refused = small.run("dev", "--import-judgements", "team/old.jsonl", file)
        assert (refused.code, mentions(refused.err, file, word), small.files()) == (2, True, before)
    outcome = small.run("dev", "--import-judgements", "team/old.jsonl")  # what is there is not imported again
    assert mentions(outcome.err, "team/old.jsonl", "judgements imported: 0")
    assert (len(server.calls), len(journal_entries(small))) == (1, 2)


# ------------------------------------------------------------------ Interrupted, killed and concurrent runs


@contextmanager
def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process of its own, which is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "evaluation", "dev", "--workers", *arguments]
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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_calls_in_flight_are_awaited_at_a_signal(
    project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_many(project, 5)
    slow = replace(score_reply(4), latency_s=0.2)
    replies = {"d0": slow, "d1": slow, "d2": hang()}

    def answer(call: Call) -> Reply:
        if call.number == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        return replies[asked_document(call)]

    server = serve(answer)
    monkeypatch.setattr(evaluation, "GRACE_S", 1.0)
    outcome = project.run("dev", "--workers", "3")
    assert (outcome.code, len(server.calls)) == (130, 3)
    assert "interrupted" in outcome.err[-1]
    assert_resumes(project, serve, ["d2", "d3", "d4"])


@posix_only
def test_long_wait_is_announced_once_and_can_be_interrupted(project: Project, serve: Serve) -> None:
    write_many(project, 4)
    server = serve(error(503, "", "Busy.", headers=(("retry-after", "61"),)))
    with start("4", "--max-wait", "20") as process:
        assert process.stderr
        while " must wait " not in (line := process.stderr.readline()):
            assert line, "the program ended without announcing the wait"
        assert re.search(r"wait 0:01:01, at \d{4}-\d\d-\d\d \d\d:\d\d UTC", line)
        wait_until(lambda: len(server.calls) == 4)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, " must wait " in err, len(server.calls)) == (130, False, 4)


def test_killed_run_is_resumed(project: Project, serve: Serve) -> None:
    write_many(project, 5)
    serve(first(score_reply(4), score_reply(4), then=hang()))
    with start("1") as process:
        wait_until(lambda: count_lines(project) == 2)
        process.kill()
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
    assert mentions(outcome.err, "error: ")
    assert (outcome.code in (2, 3), len(server.calls) in (2, 3)) == (True, True)
    assert_resumes(project, serve, ["d1", "d2"])


def test_second_run_at_the_same_time_is_refused(small: Project, serve: Serve) -> None:
    released = False

    def answer(call: Call) -> Reply:
        return score_reply(4) if released else rate_limited(RPM, 60_000, 0.1)

    server = serve(answer)
    with start("1") as process:
        wait_until(lambda: len(server.calls) > 0)
        second = small.run()
        released = True
        process.communicate(timeout=20)
    assert mentions(second.err, "error: ", JOURNAL, "in use")
    assert (second.code, second.results, process.returncode) == (2, None, 0)
    assert [entry["score"] for entry in journal_entries(small)] == [4, 4]
    assert (small.folder / RESULTS).exists()
