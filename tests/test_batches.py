"""Judging with the Batch API: a run submits and notes it in the journal, every later run collects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import evaluation
import pytest

import groq_server
from conftest import (
    GPT_OSS,
    KEY,
    LLAMA,
    Answer,
    Outcome,
    Project,
    Serve,
    asked_document,
    json_lines,
    mentions,
    question,
    table,
    write_many,
)
from groq_server import BatchScript, Call, Disturb, GroqServer, Late, Reply, completion, drop, error

JOURNAL = "dev_judgements.jsonl"
FIRST = "batch_loopback_1"
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
BATCH, DIRECT = ("dev", "--batch"), ("dev",)
ALL = ["d0", "d1", "d2", "d3"]
RATIONALE = "Line\u2028separators \u2029 \x85 \x0b \x1c, \u00e9 and \U0001f600."  # only \\n ends a line
SCORES = {"q001": 1, "q002": 2, "q003": 3, "q004": 4}

Command = tuple[str, ...]
Broken = dict[tuple[str, str], Reply | Late]  # by method and end of the path
Submit = Callable[..., GroqServer]

EITHER = table("command", {"with --batch": BATCH, "without": DIRECT})


@pytest.fixture
def four(project: Project) -> Project:
    """Four questions, about d0 to d3, each with an answer of its own."""
    write_many(project, 4)
    return project


@pytest.fixture
def submit(four: Project, serve: Serve) -> Submit:
    """Start a service, and submit a batch to it."""

    def submit(*options: str, answer: Answer = score_by_number, **service: Any) -> GroqServer:
        server = serve(answer, **service)
        four.run(*BATCH, *options)
        return server

    return submit


def score_by_number(call: Call) -> Reply:
    """Answer with score 1 for d0, 2 for d1, ..., using 100 tokens in and 20 out."""
    content = json.dumps({"rationale": RATIONALE, "score": 1 + int(asked_document(call)[1:])})
    return completion(content, prompt_tokens=100, completion_tokens=20)


def disturb(broken: Broken, once: bool = False) -> Disturb:
    """Use these replies for requests of a method and end of path. The test may change the dict."""

    def find_reply(method: str, path: str) -> Reply | Late | None:
        for (own, end), reply in list(broken.items()):
            if method == own and path.endswith(end):
                if once:
                    broken.clear()
                return reply
        return None

    return find_reply


def scores(outcome: Outcome) -> dict[str, float]:
    rows = outcome.results["strong"].get("llm_judge", {}).get("per_question", ())
    return {row["question_id"]: row["answer_score_raw"] for row in rows if row["failure"] is None}


def batch_line(outcome: Outcome, batch: str = FIRST) -> str:
    """Return the line on stderr about this batch."""
    [line] = [line for line in outcome.err if line.startswith(f"Batch {batch}")]
    return line


def submitted(server: GroqServer) -> list[list[str]]:
    """Return the documents of each batch, in the order of its file."""
    return [
        [asked_document(groq_server.parse_line(0, line)) for line in reversed(batch.lines)]
        for batch in server.batches.values()
    ]


def asked_again(server: GroqServer) -> list[str]:
    """Return the documents of all calls, and of all batches but the first."""
    return sorted(sum(submitted(server)[1:], list(map(asked_document, server.calls))))


def run_until_done(project: Project, *arguments: str) -> Outcome:
    for _ in range(8):
        outcome = project.run(*arguments)
        if outcome.code == 0:
            return outcome
    raise AssertionError(outcome.err)


def age_notes(project: Project, hours: float) -> None:
    """Make all lines of the journal so many hours older."""
    entries = [json.loads(line) for line in project.files()[JOURNAL].splitlines()]
    then = (datetime.now(timezone.utc) - timedelta(hours=hours)).isoformat(timespec="seconds")
    project.write(JOURNAL, json_lines(*({**entry, "time": then} for entry in entries)))


def assert_all_is_judged_once(server: GroqServer) -> None:
    """Check that each request was sent once, in a batch or as a call."""
    assert sorted(submitted(server)[0] + asked_again(server)) == ALL


# ------------------------------------------------------------------ Submit and collect


@EITHER
def test_a_batch_is_submitted_and_the_next_run_collects_it(
    four: Project, serve: Serve, command: Command
) -> None:
    server = serve(score_by_number)
    outcome = four.run(*BATCH)
    assert (outcome.code, scores(outcome), submitted(server)) == (3, {}, [ALL])
    waits = f"batches are under way ({FIRST}: 4 requests are sent); run again within 24 hours"
    assert mentions(outcome.err, f"error: judging ended early: {waits} (asked: ")
    outcome = four.run(*command)
    assert (outcome.code, scores(outcome)) == (0, SCORES)
    rows = outcome.results["strong"]["llm_judge"]["per_question"]
    assert {row["answer_rationale"] for row in rows} == {RATIONALE}
    assert (server.calls, len(server.batches)) == ([], 1)
    for words in ("completed", "4 of 4", "400 tokens in, 80 out"):
        assert words in batch_line(outcome)


NO_RESULTS = [
    b"[]\n",
    b'{"response": null}\n',
    b'{"custom_id": "x", "response": {"status_code": "x"}, "error": [1]}\n',
    b"\xff\n",
    b'{"custom_id": "unknown", "response": null, "error": {"code": "x"}}\n',
]


def test_the_first_result_counts_and_other_lines_are_ignored(four: Project, submit: Submit) -> None:
    server = submit()
    server.retrieve(server.batches[FIRST])
    results = server.files["file_loopback_2"].splitlines(keepends=True)
    worse = results[0].replace(b'\\"score\\": 4', b'\\"score\\": 1')
    assert worse != results[0]
    server.files["file_loopback_2"] = b"".join([*NO_RESULTS, *results, worse, results[0][:20]])
    assert (scores(four.run()), server.calls) == (SCORES, [])
    assert four.files()[JOURNAL].count(b'"key": ') + four.files()[JOURNAL].count(b'"key":"') == 4


@EITHER
def test_only_new_requests_are_asked_meanwhile(four: Project, submit: Submit, command: Command) -> None:
    server = submit("--limit", "3", batches=BatchScript(polls=9))
    outcome = four.run(*command, "--limit", "3")
    assert (outcome.code, asked_again(server)) == (3, [])
    assert mentions(outcome.err, f"error: judging ended early: batches are under way ({FIRST}: validating)")
    assert mentions(
        four.run(*command, "--limit", "3").err, f"are under way ({FIRST}: 0 of 3 done); run again"
    )
    planned = four.run(*command, "--dry-run").out
    assert "Under way in batches: 3\n" in planned
    assert "Calls to make: 1\n" in planned
    outcome = four.run(*command)
    assert (outcome.code, asked_again(server)) == (3, ["d3"])
    assert scores(outcome) == ({"q004": 4} if command == DIRECT else {})


# The server answers lines from the last to the first, so that d0 is the last of a batch.
RIGHT = groq_server.score_reply(1)
Unjudged = tuple[Reply, BatchScript, list[str], str]
UNJUDGED: dict[str, Unjudged] = {  # the first reply about d0, ...
    "no score": (completion("I like it."), BatchScript(), ["d0"], "no score"),
    "no completion": (groq_server.empty_object(), BatchScript(), ["d0"], "not what was asked for"),
    "text for a body": (Reply(502, b"<html>"), BatchScript(), ["d0"], "HTTP 502"),
    "expired": (RIGHT, BatchScript(end="expired", answered=3), ["d0"], "expired"),
    "cancelled": (RIGHT, BatchScript(end="cancelled", answered=3), ["d0"], "cancelled"),
    "failed": (RIGHT, BatchScript(end="failed"), ALL, "The batch could not be processed."),
}


@EITHER
@table("case", UNJUDGED)
def test_what_was_not_judged_goes_to_the_next_batch_or_to_calls_once(
    four: Project, submit: Submit, case: Unjudged, command: Command
) -> None:
    reply, script, unjudged, reason = case

    def answer(call: Call) -> Reply:
        return reply if call.custom_id and call.number == 3 else score_by_number(call)

    server = submit(answer=answer, batches=[script, BatchScript()])
    line = batch_line(four.run(*command), f"{FIRST} {script.end}")
    assert f"{4 - len(unjudged)} of 4" in line
    assert reason in line
    assert asked_again(server) == unjudged
    assert scores(run_until_done(four, *command)) == SCORES
    n_visits = len(server.visits)
    four.run(*command)  # which does not look at the batches again
    assert (asked_again(server), len(server.visits)) == (unjudged, n_visits)


def withdraw_llama(call: Call) -> Reply:
    return groq_server.decommissioned() if call.body["model"] == LLAMA else score_by_number(call)


NO_MODEL = BatchScript(end="failed", code="model_not_found", problem=f"The model `{LLAMA}` does not exist.")
WITHDRAWN: dict[str, tuple[Answer, BatchScript]] = {
    "each line fails": (withdraw_llama, BatchScript()),
    "the batch fails": (score_by_number, NO_MODEL),
}


@EITHER
@table("answer, script", WITHDRAWN)
def test_a_withdrawn_model_is_replaced_by_its_successor(
    four: Project, submit: Submit, answer: Answer, script: BatchScript, command: Command
) -> None:
    server = submit(answer=answer, batches=[script, BatchScript(polls=2)])
    outcome = run_until_done(four, *command)
    assert outcome.results["strong"]["llm_judge"]["judge_model"] == GPT_OSS
    assert scores(outcome) == SCORES
    assert len(server.batches) == (2 if command == BATCH else 1)


# ------------------------------------------------------------------ Batches that cannot be read

NOT_FOUND = error(404, "not_found", "There is no such thing.")
PAGE = Reply(200, b"<html>", (("content-type", "text/html"),))
EXPIRED = BatchScript(end="expired", answered=3)
RESULTS = "file_loopback_2/content"


def cut_off(server: GroqServer) -> Reply:
    """Return the results of the first batch without the end."""
    server.retrieve(server.batches[FIRST])
    return Reply(200, server.files["file_loopback_2"][:-300])


Unread = tuple[str, Reply | Callable[[GroqServer], Reply], BatchScript, str, list[str]]
CAN_BE_READ = "results can be read"
UNREAD: dict[str, Unread] = {  # path, reply, batch, what the message says, what was not read
    "a batch that is not found": (FIRST, NOT_FOUND, BatchScript(), "not found", ALL),
    "a page instead of the batch": (FIRST, PAGE, BatchScript(), "not found", ALL),
    "results that are not found": (RESULTS, NOT_FOUND, BatchScript(), f"0 of 4 {CAN_BE_READ}", ALL),
    "a page instead of results": (RESULTS, PAGE, BatchScript(), f"0 of 4 {CAN_BE_READ}", ALL),
    "a broken download": (
        RESULTS,
        groq_server.tear(b'{"custom_id": "x"'),
        BatchScript(),
        f"0 of 4 {CAN_BE_READ}",
        ALL,
    ),
    "a torn file": (RESULTS, cut_off, BatchScript(), f"3 of 4 {CAN_BE_READ}", ["d0"]),
    "results of an expired batch": (RESULTS, NOT_FOUND, EXPIRED, f"0 of 3 {CAN_BE_READ}", ALL),
}


@EITHER
@table("path, reply, script, words, missing", UNREAD)
def test_a_batch_that_cannot_be_read_is_waited_for_a_day(
    four: Project,
    submit: Submit,
    path: str,
    reply: Reply | Callable[[GroqServer], Reply],
    script: BatchScript,
    words: str,
    missing: list[str],
    command: Command,
) -> None:
    """Nothing is asked again until then, even if the batch is old when that happens for the first time."""
    broken: Broken = {}
    server = submit(batches=[script, BatchScript()], disturb=disturb(broken))
    broken["GET", path] = reply(server) if callable(reply) else reply
    age_notes(four, hours=25)
    for _ in range(2):
        outcome = four.run(*command)
        assert (outcome.code, asked_again(server)) == (3, [])
        assert mentions(outcome.err, f"error: judging ended early: batches are under way ({FIRST}: {words})")
    age_notes(four, hours=25)
    waiting = four.files()[JOURNAL]
    assert (scores(run_until_done(four, *command)), asked_again(server)) == (SCORES, missing)
    lines = list(map(json.loads, four.files()[JOURNAL].splitlines()))
    assert [line for line in lines if line.get("batch_file") == "file_loopback_1" and "ended" in line] == []
    before = four.files()
    broken.clear()
    assert (four.run(*command).code, four.files()) == (0, before)

    four.write(JOURNAL, waiting)  # if it can be read after all there is nothing to ask
    n_asked = len(asked_again(server))
    expired = ["d0"] if script is EXPIRED else []
    assert scores(run_until_done(four, *command)) == SCORES
    assert len(asked_again(server)) == n_asked + len(expired)


def test_a_batch_that_is_not_found_holds_up_no_other(four: Project, submit: Submit) -> None:
    server = submit("--limit", "2", disturb=disturb({("GET", FIRST): NOT_FOUND}))
    four.run(*BATCH)
    outcome = four.run(*BATCH)
    assert (outcome.code, scores(outcome)) == (3, {"q003": 3, "q004": 4})
    assert submitted(server) == [["d0", "d1"], ["d2", "d3"]]


@EITHER
def test_a_batch_of_another_service_is_left_alone(four: Project, submit: Submit, command: Command) -> None:
    server = submit()
    journal = four.files()[JOURNAL]
    assert journal.count(f'"endpoint": "{server.url}/openai/v1"'.encode()) == 2
    four.write(JOURNAL, journal.replace(server.url.encode(), b"http://elsewhere:1"))
    server.visits.clear()
    assert scores(run_until_done(four, *command)) == SCORES
    assert ("GET", f"{BATCHES}/{FIRST}") not in server.visits
    assert asked_again(server) == ALL
    four.write(JOURNAL, journal.replace(b"127.0.0.1", b"localhost"))  # which is the same service
    assert (scores(four.run(*command)), asked_again(server)) == (SCORES, ALL)


def count_twice(server: GroqServer) -> Reply:
    """Return the first batch with counts that exceed its requests."""
    server.retrieve(server.batches[FIRST])
    counts = {"total": 8, "completed": 8, "failed": 0}
    return Reply(200, json.dumps({**server.batches[FIRST].as_json(), "request_counts": counts}).encode())


def test_a_batch_that_counts_more_than_it_was_asked_ends_at_once(four: Project, submit: Submit) -> None:
    broken: Broken = {}
    server = submit(disturb=disturb(broken))
    broken["GET", FIRST] = count_twice(server)
    outcome = four.run()
    assert (scores(outcome), outcome.code, asked_again(server)) == (SCORES, 0, [])
    assert four.run(*BATCH).code == 0
    assert len(server.batches) == 1


NO_COUNTS = json.dumps({"id": FIRST, "status": "failed", "request_counts": None}).encode()


def test_a_batch_without_counts_ends_at_once(four: Project, submit: Submit) -> None:
    server = submit(disturb=disturb({("GET", FIRST): Reply(200, NO_COUNTS)}))
    assert (scores(four.run()), asked_again(server)) == (SCORES, ALL)


def test_a_failed_batch_of_another_model_ends_nothing(four: Project, submit: Submit) -> None:
    server = submit("--limit", "2", answer=withdraw_llama)
    outcome = four.run("dev", "--model", GPT_OSS)
    assert (scores(outcome), outcome.code, asked_again(server)) == (SCORES, 0, ALL)


PAST = "2026-11-01T00:00:00+00:00"
NOTE = {"batch_file": "f", "requests": [["k", "strong", "q001"]], "time": PAST}
BAD_NOTES: dict[str, dict[str, Any]] = {
    "no member of a request": {"requests": [[]]},
    "a member too few": {"requests": [["k", "strong"]]},
    "a key that is no text": {"requests": [[["k"], "strong", "q001"]]},
    "requests that are none": {"requests": 3},
    "an unknown prompt": {"protocol": "x"},
    "a time that is none": {"time": "yesterday"},
    "in a far future": {"time": "9999-12-31T23:59:59-23:59"},
}


@table("changes", BAD_NOTES)
def test_a_bad_note_is_an_unreadable_line(four: Project, serve: Serve, changes: dict[str, Any]) -> None:
    server = serve(score_by_number)
    four.write(JOURNAL, json_lines({**NOTE, **changes}, {"key": "k", "reply": "{}"}))
    outcome = four.run()
    assert mentions(outcome.err, f"warning: {JOURNAL}: unreadable lines: 1")
    assert (scores(outcome), outcome.code, server.visits) == (SCORES, 0, [])


def test_a_batch_that_was_sent_while_the_clock_was_ahead_is_collected(four: Project, submit: Submit) -> None:
    server = submit()
    age_notes(four, -1)
    assert (scores(run_until_done(four, *BATCH)), asked_again(server)) == (SCORES, [])
    assert_all_is_judged_once(server)


UNUSABLE: dict[str, tuple[Reply, str]] = {
    "out of reach": (drop(), "error: judging ended early: a request for a batch failed: Connection error."),
    "wrong key": (
        error(401, "invalid_api_key", "Invalid Key"),
        "error: judging ended: HTTP 401: Invalid Key",
    ),
}


@table("reply, words", UNUSABLE)
def test_a_batch_out_of_reach_stays_under_way(
    four: Project, submit: Submit, reply: Reply, words: str
) -> None:
    broken: Broken = {("GET", FIRST): reply}
    server = submit(disturb=disturb(broken))
    outcome = four.run()
    assert (outcome.code, outcome.err[-1].startswith(words)) == (3, True)
    broken.clear()
    assert (scores(four.run()), server.calls, len(server.batches)) == (SCORES, [], 1)


def test_an_upload_with_a_strange_answer_ends_judging(four: Project, serve: Serve) -> None:
    server = serve(score_by_number, disturb=disturb({("POST", FILES): PAGE}))
    assert (four.run(*BATCH).code, server.batches) == (3, {})


# ------------------------------------------------------------------ Size and price


def test_a_file_has_at_most_100_megabytes(project: Project, serve: Serve) -> None:
    """The server refuses a larger one. 51 systems answer a question whose rubric has 2 MB."""
    rubric = {"description": "x" * 2_000_000, "scale": {"1": "no", "5": "yes"}}
    project.questions(question("d0", rubric=rubric))
    for number in range(51):
        project.predictions(f"s{number}", {"q001": {"answer": f"Answer {number}."}})
    server = serve(groq_server.score_reply(4))
    project.run(*BATCH)
    assert [len(batch.lines) for batch in server.batches.values()] == [49, 2]


def test_a_prompt_has_one_batch(project: Project, serve: Serve) -> None:
    """The prompt of a criterion depends on whether there is a gold answer, which every second item has."""
    items = [{"input": f"What is d{n}?", "prediction": f"Answer {n}."} for n in range(6)]
    project.write("log.json", [{**item, "gold": "So."} if n % 2 else item for n, item in enumerate(items)])
    server = serve(completion('{"rationale": "So.", "decision": "yes"}'))
    command = ("answers", "log.json", "--criteria", "polite=Is it polite?", "--overwrite")
    assert project.run(*command, "--batch").code == 3
    assert submitted(server) == [["d0", "d2", "d4"], ["d1", "d3", "d5"]]
    assert run_until_done(project, *command).code == 0
    assert (len(server.batches), server.calls) == (2, [])


PRICE = 100 * 0.05e-6 + 20 * 0.08e-6  # USD of a call


def test_a_judgement_of_a_batch_costs_half(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    four.run("dev", "--limit", "1")
    outcome = run_until_done(four, *BATCH)
    assert submitted(server) == [["d1", "d2", "d3"]]
    assert outcome.results["strong"]["llm_judge"]["usage"]["cost_usd"] == pytest.approx(2.5 * PRICE)


# ------------------------------------------------------------------ The key

ECHO = error(400, "bad_request", f"No: {KEY}")
ECHOES: dict[str, tuple[Answer, dict[str, Any]]] = {
    "in a reply": (lambda call: groq_server.score_reply(4, f"Your key is {KEY}."), {}),
    "in a failed line": (lambda call: ECHO, {}),
    "in an upload's error": (score_by_number, {"disturb": disturb({("POST", FILES): ECHO})}),
    "in a failed batch": (score_by_number, {"batches": BatchScript(end="failed", problem=f"No: {KEY}")}),
}


@table("answer, service", ECHOES)
def test_the_key_is_never_printed_or_stored(
    four: Project, serve: Serve, answer: Answer, service: dict[str, Any]
) -> None:
    serve(answer, **service)
    for _ in range(2):
        outcome = four.run(*BATCH)
        assert KEY not in outcome.out + "\n".join(outcome.err)
    assert KEY.encode() not in b"".join(four.files().values())


# ------------------------------------------------------------------ Lost connections and crashes

REQUESTS = {
    "upload": ("POST", FILES),
    "creation": ("POST", BATCHES),
    "state": ("GET", FIRST),
    "results": ("GET", "/content"),
}
LOSSES = {
    "lost request": drop(),
    "lost answer": Late(),
    "error although it took effect": Late(error(503, "", "Busy.")),
}


@table("loss", LOSSES)
@table("method, path", REQUESTS)
def test_after_a_lost_request_or_answer_nothing_is_judged_twice(
    four: Project, serve: Serve, method: str, path: str, loss: Reply | Late
) -> None:
    server = serve(score_by_number, disturb=disturb({(method, path): loss}, once=True))
    four.run(*BATCH)
    if (four.folder / JOURNAL).exists():
        age_notes(four, hours=1)
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert_all_is_judged_once(server)


EMPTY_LIST = Reply(200, b'{"data": []}')


@table("creation", {"lost answer": Late(), "lost request": drop()})
def test_a_batch_that_is_in_no_list_is_submitted_again_after_an_hour(
    four: Project, submit: Submit, creation: Reply | Late
) -> None:
    """The list may lag behind. If the batch is there after all, it is collected."""
    broken: Broken = {("POST", BATCHES): creation, ("GET", BATCHES): EMPTY_LIST}
    server = submit(disturb=disturb(broken))
    n_batches = len(server.batches)
    assert (four.run(*BATCH).code, len(server.batches)) == (3, n_batches)
    broken.clear()
    age_notes(four, hours=1)
    assert (scores(run_until_done(four, *BATCH)), len(server.batches)) == (SCORES, 1)


@table("method, path", {name: REQUESTS[name] for name in ("upload", "creation", "results")})
def test_after_a_killed_run_nothing_is_lost_or_judged_twice(
    four: Project, serve: Serve, method: str, path: str
) -> None:
    programs: list[subprocess.Popen[bytes]] = []

    def kill(visited_method: str, visited_path: str) -> Late | None:
        if programs and visited_method == method and visited_path.endswith(path):
            programs.pop().kill()
            return Late()
        return None

    server = serve(score_by_number, disturb=kill)
    if path == "/content":
        four.run(*BATCH)
    command = [sys.executable, "-m", "evaluation", *BATCH]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(evaluation.__file__)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as program:
        programs.append(program)
    assert (program.returncode, programs) == (-9, [])
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert len(server.batches) == 1
    assert_all_is_judged_once(server)


@pytest.mark.parametrize("line", [1, -1], ids=["batch", "end"])
def test_a_broken_note_in_the_journal_is_ignored(four: Project, submit: Submit, line: int) -> None:
    server = submit()
    if line == -1:
        four.run(*BATCH)
    lines = four.files()[JOURNAL].rstrip(b"\n").split(b"\n")
    lines[line] = lines[line][:-7]
    four.write(JOURNAL, b"\n".join(lines) + b"\n")
    outcome = four.run(*BATCH)
    assert mentions(outcome.err, JOURNAL, "unreadable")
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert_all_is_judged_once(server)
