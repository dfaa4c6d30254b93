"""Judging with the Batch API: submit, note in the journal, collect, wait and cancel."""

from __future__ import annotations

import _thread
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import evaluation
import pytest

import groq_server
from conftest import KEY, Answer, Outcome, Project, Serve, asked_document, document, question, table
from groq_server import ENDPOINT, BatchScript, Call, Disturb, GroqServer, Late, Reply, completion, drop, error

LLAMA, GPT_OSS = "llama-3.1-8b-instant", "openai/gpt-oss-20b"
JOURNAL = "dev_judgements.jsonl"
FIRST = "batch_loopback_1"
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
BATCH, WAIT, DIRECT = ("dev", "--batch"), ("dev", "--batch", "--wait"), ("dev",)
CANCEL = ("dev", "--cancel-batch", "--fresh")
ALL = ["d1", "d2", "d3", "d4"]
RATIONALE = "Line\u2028separators \u2029 \x85 \x0b \x1c, \u00e9 and \U0001f600."  # only \\n ends a line
SCORES = {"q001": 1, "q002": 2, "q003": 3, "q004": 4}

Command = tuple[str, ...]
Broken = dict[tuple[str, str], Reply | Late]  # by method and end of the path
Submit = Callable[..., GroqServer]

EITHER = table("command", {"with --batch": BATCH, "without": DIRECT})


# ------------------------------------------------------------------ Input


def answers(last: str = "Answer 4.") -> dict[str, Any]:
    texts = ["Answer 1.", "Answer 2.", "Answer 3.", last]
    return {f"q00{number}": {"answer": text} for number, text in enumerate(texts, start=1)}


@pytest.fixture
def four(project: Project) -> Project:
    """Four questions, about d1 to d4, each with an answer of its own."""
    project.questions(*map(question, ALL))
    project.documents(*(document(doc_id, "It rained.") for doc_id in ALL))
    project.predictions("strong", answers())
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
    """Answer with score 1 for d1, 2 for d2, ..., using 100 tokens in and 20 out."""
    content = json.dumps({"rationale": RATIONALE, "score": int(asked_document(call)[1:])})
    return completion(content, prompt_tokens=100, completion_tokens=20)


def disturb(broken: Broken, once: bool = False) -> Disturb:
    """Use these replies for requests of a method and end of path. The test may change the dict."""

    def find_reply(method: str, path: str) -> Reply | Late | None:
        for (broken_method, end), reply in broken.items():
            if method == broken_method and path.endswith(end):
                if once:
                    broken.clear()
                return reply
        return None

    return find_reply


# ------------------------------------------------------------------ Output


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
    documents = [asked_document(call) for call in server.calls]
    for batch in submitted(server)[1:]:
        documents += batch
    return sorted(documents)


def run_until_done(project: Project, *arguments: str) -> Outcome:
    for _ in range(8):
        outcome = project.run(*arguments)
        if outcome.code == 0:
            return outcome
    raise AssertionError(outcome.err)


def assert_nothing_is_judged_twice(server: GroqServer) -> None:
    inputs = [b"".join(batch.lines) for batch in server.batches.values()]
    requests = [json.dumps(call.body) for call in [*server.calls, *server.batch_calls]]
    for sent in (inputs, requests):
        assert len(set(sent)) == len(sent)


# ------------------------------------------------------------------ Submit


def test_a_batch_is_submitted_and_the_run_says_when_to_come_back(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    outcome = four.run(*BATCH)
    assert (outcome.code, scores(outcome)) == (3, {})
    assert (server.calls, submitted(server)) == ([], [ALL])
    assert "4 requests" in batch_line(outcome)
    [message] = [line for line in outcome.err if line.startswith("error:")]
    assert FIRST in message
    assert re.search(r"0 of 4 done; run again, at the latest by \d{4}-\d\d-\d\d \d\d:\d\d UTC$", message)


@EITHER
def test_the_next_run_collects_and_asks_nothing(four: Project, submit: Submit, command: Command) -> None:
    server = submit()
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
    b"[" * 100_000 + b"\n",
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
    assert four.files()[JOURNAL].count(b'"key": ') == 4


@EITHER
def test_only_new_requests_are_asked_meanwhile(four: Project, submit: Submit, command: Command) -> None:
    server = submit("--limit", "3", batches=BatchScript(polls=9))
    outcome = four.run(*command, "--limit", "3")
    assert (outcome.code, asked_again(server)) == (3, [])
    assert FIRST in outcome.err[-1]
    outcome = four.run(*command)
    assert (outcome.code, asked_again(server)) == (3, ["d4"])
    if command == DIRECT:
        assert scores(outcome) == {"q004": 4}


# The server answers lines from the last to the first, so that d1 is the last of a batch.
RIGHT = groq_server.score_reply(1)
Unjudged = tuple[Reply, BatchScript, list[str], str]
UNJUDGED: dict[str, Unjudged] = {  # the first reply about d1, ...
    "no score": (completion("I like it."), BatchScript(), ["d1"], "no score"),
    "no completion": (groq_server.empty_object(), BatchScript(), ["d1"], "not a chat completion"),
    "text for a body": (Reply(502, b"<html>"), BatchScript(), ["d1"], "HTTP 502"),
    "expired": (RIGHT, BatchScript(end="expired", answered=3), ["d1"], "expired"),
    "cancelled": (RIGHT, BatchScript(end="cancelled", answered=3), ["d1"], "cancelled"),
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


NOT_FOUND = error(404, "not_found", "There is no such thing.")


def test_requests_are_asked_again_if_the_results_are_gone(four: Project, submit: Submit) -> None:
    server = submit(disturb=disturb({("GET", "/content"): NOT_FOUND}, once=True))
    outcome = four.run()
    assert any("file_loopback_2" in line and FIRST in line for line in outcome.err)
    assert (len(server.calls), scores(outcome)) == (4, SCORES)


def test_a_404_is_no_proof_that_a_batch_is_gone(four: Project, submit: Submit) -> None:
    broken: Broken = {("GET", FIRST): NOT_FOUND}
    server = submit("--limit", "3", disturb=disturb(broken))
    for command in (BATCH, WAIT, DIRECT, CANCEL):
        outcome = four.run(*command, "--limit", "3")
        assert outcome.code == 3
        assert f"--forget-batch {FIRST}" in outcome.err[-1]
    broken.clear()
    assert (scores(run_until_done(four)), asked_again(server)) == (SCORES, ["d4"])


def test_a_batch_that_is_not_found_holds_up_no_other(four: Project, submit: Submit) -> None:
    submit("--batch-size", "2", disturb=disturb({("GET", FIRST): NOT_FOUND}))
    outcome = four.run(*BATCH)
    assert (outcome.code, scores(outcome)) == (3, dict(list(SCORES.items())[2:]))
    assert any(f"--forget-batch {FIRST}" in line for line in outcome.err)


@EITHER
def test_a_forgotten_batch_is_asked_again(four: Project, submit: Submit, command: Command) -> None:
    server = submit(disturb=disturb({("GET", FIRST): NOT_FOUND}))
    outcome = four.run(*command, "--forget-batch", "batch_unknown")
    assert (outcome.code, "batch_unknown" in outcome.err[-1]) == (2, True)
    four.run(*command, "--forget-batch", FIRST)
    assert scores(run_until_done(four, *command, "--forget-batch", FIRST)) == SCORES
    assert asked_again(server) == ALL


# ------------------------------------------------------------------ Models that were withdrawn


def withdraw_llama(call: Call) -> Reply:
    return groq_server.decommissioned() if call.body["model"] == LLAMA else score_by_number(call)


def fail_batch(message: str) -> Disturb:
    """Say that the first batch failed because its model does not exist."""
    errors = {"data": [{"code": "model_not_found", "message": message, "line": None}]}
    state = {"id": FIRST, "status": "failed", "errors": errors}
    return disturb({("GET", FIRST): Reply(200, json.dumps(state).encode())})


WITHDRAWN: dict[str, tuple[Answer, Disturb | None]] = {
    "each line fails": (withdraw_llama, None),
    "the batch fails": (score_by_number, fail_batch(f"The model `{LLAMA}` does not exist.")),
}


@EITHER
@table("answer, disturb", WITHDRAWN)
def test_a_withdrawn_model_is_replaced_by_its_successor(
    four: Project, submit: Submit, answer: Answer, disturb: Disturb | None, command: Command
) -> None:
    server = submit(answer=answer, disturb=disturb, batches=[BatchScript(), BatchScript(polls=2)])
    outcome = run_until_done(four, *command)
    assert outcome.results["strong"]["llm_judge"]["judge_model"] == GPT_OSS
    assert scores(outcome) == SCORES
    assert len(server.batches) == (2 if command == BATCH else 1)  # that of the successor is waited for


@EITHER
def test_a_named_withdrawn_model_stops_judging(four: Project, submit: Submit, command: Command) -> None:
    server = submit("--judge-model", LLAMA, answer=withdraw_llama)
    outcome = four.run(*command, "--judge-model", LLAMA)
    assert LLAMA in outcome.err[-1]
    assert (outcome.code, server.calls, len(server.batches)) == (3, [], 1)


@pytest.mark.parametrize("command", [WAIT, BATCH], ids=["in the same run", "in the next run"])
def test_a_run_can_wait_for_batches(four: Project, serve: Serve, command: Command) -> None:
    server = serve(score_by_number, batches=BatchScript(polls=3))
    outcome = four.run(*command)
    if command == BATCH:
        outcome = four.run("dev", "--wait")
    assert (outcome.code, scores(outcome)) == (0, SCORES)
    assert (server.calls, len(server.batches)) == ([], 1)


def test_a_waiting_run_submits_a_request_three_times_at_most(four: Project, serve: Serve) -> None:
    server = serve(lambda call: completion("Hm.") if asked_document(call) == "d2" else score_by_number(call))
    outcome = four.run(*WAIT, "--limit", "3")
    assert submitted(server) == [["d1", "d2", "d3"], ["d2"], ["d2"]]
    assert (outcome.code, scores(outcome)) == (3, {"q001": 1, "q003": 3})


UNUSABLE: dict[str, tuple[str, Reply]] = {
    "out of reach": (FIRST, drop()),
    "wrong key": (FIRST, error(401, "invalid_api_key", "Invalid API Key")),
    "no status": (FIRST, Reply(200, json.dumps({"id": FIRST}).encode())),
    "a broken download": ("/content", groq_server.tear(b'{"custom_id": "x"')),
}


@table("path, reply", UNUSABLE)
def test_an_unreadable_batch_stays_under_way(four: Project, submit: Submit, path: str, reply: Reply) -> None:
    broken: Broken = {("GET", path): reply}
    server = submit(disturb=disturb(broken))
    outcome = four.run()
    assert (outcome.code, outcome.err[-1][:6]) == (3, "error:")
    broken.clear()
    assert (scores(four.run()), server.calls, len(server.batches)) == (SCORES, [], 1)


def test_ctrl_c_ends_waiting_but_not_the_batch(four: Project, serve: Serve) -> None:
    def interrupt(method: str, path: str) -> None:
        if path.endswith(FIRST) and server.batches[FIRST].polled == 1:
            _thread.interrupt_main()

    server = serve(score_by_number, batches=BatchScript(polls=4), disturb=interrupt)
    assert four.run(*WAIT).code == 130
    assert (scores(run_until_done(four)), server.calls) == (SCORES, [])
    assert not any(path.endswith("/cancel") for _, path in server.visits)


# ------------------------------------------------------------------ --cancel-batch


@EITHER
def test_a_cancelled_batch_keeps_what_was_answered(four: Project, serve: Serve, command: Command) -> None:
    server = serve(score_by_number, batches=[BatchScript(polls=3, answered=2), BatchScript()])
    before = four.run(*BATCH).results
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.results, server.calls) == (0, before, [])
    assert outcome.out.startswith(f"Batch {FIRST}: cancelled, 2 of 4 done\n")
    assert server.batches[FIRST].status == "cancelled"
    assert scores(run_until_done(four, *command)) == SCORES
    assert asked_again(server) == ["d1", "d2"]


def test_what_has_ended_is_not_cancelled(four: Project, submit: Submit) -> None:
    server = submit()
    server.retrieve(server.batches[FIRST])
    assert four.run(*CANCEL).out.startswith(f"Batch {FIRST}: completed,")
    four.run()
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.out) == (0, "No batch is under way.\n")


def test_a_batch_that_is_missing_in_the_journal_is_found_and_cancelled(four: Project, submit: Submit) -> None:
    server = submit(batches=BatchScript(polls=3))
    four.write(JOURNAL, four.files()[JOURNAL].splitlines(keepends=True)[0])
    four.run(*CANCEL)
    assert server.batches[FIRST].status == "cancelled"


def test_cancelling_needs_the_service_and_a_key(four: Project, submit: Submit) -> None:
    server = submit(batches=BatchScript(polls=9), disturb=disturb({("POST", "/cancel"): drop()}))
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.err[-1][:6]) == (3, "error:")
    outcome = four.run(*CANCEL, "--dry-run")
    assert (outcome.code, "--cancel-batch" in outcome.err[-1]) == (2, True)
    outcome = four.run(*CANCEL, GROQ_API_KEY="")
    assert (outcome.code, "GROQ_API_KEY" in outcome.err[-1]) == (2, True)
    assert server.batches[FIRST].status != "cancelled"


# ------------------------------------------------------------------ Size, price and dry run


def test_batch_size_limits_the_lines_of_a_batch(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    planned = four.run(*BATCH, "--batch-size", "3", "--dry-run")
    assert re.search(r"Batches: 2 \(4 lines, \d\.\d MB\), each within 24h", planned.out)
    assert (planned.code, server.visits, server.calls) == (0, [], [])
    four.run(*BATCH, "--batch-size", "3")
    assert submitted(server) == [["d1", "d2", "d3"], ["d4"]]
    assert scores(four.run()) == SCORES


def test_a_file_has_at_most_100_megabytes(four: Project) -> None:
    rubric = {"description": "x" * 2_000_000, "scale": {"1": "no", "5": "yes"}}
    four.questions(question("d1", rubric=rubric))
    outcome = four.run(*BATCH, "--dry-run", "--judge-model", LLAMA, "--repeats", "51")
    assert "Batches: 2 (51 lines, 102.0 MB)" in outcome.out


@EITHER
def test_a_dry_run_shows_what_is_under_way(four: Project, submit: Submit, command: Command) -> None:
    submit("--limit", "3")
    out = four.run(*command, "--dry-run").out
    assert "Under way in batches: 3\n" in out
    assert "Calls to make: 1\n" in out


PRICE = 100 * 0.05e-6 + 20 * 0.08e-6  # USD of a call


def test_a_judgement_of_a_batch_costs_half(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    four.run("dev", "--limit", "1")
    outcome = run_until_done(four, *BATCH)
    assert submitted(server) == [["d2", "d3", "d4"]]
    assert outcome.results["strong"]["llm_judge"]["usage"]["cost_usd"] == pytest.approx(2.5 * PRICE)


def test_fresh_never_collects_what_was_submitted_before_it(four: Project, submit: Submit) -> None:
    def answer(call: Call) -> Reply:
        content = json.dumps({"rationale": "So.", "score": 1 if call.custom_id else 5})
        return completion(content, prompt_tokens=100, completion_tokens=20)

    server = submit(answer=answer)
    assert scores(four.run("dev", "--fresh", "--limit", "2")) == {"q001": 5, "q002": 5}
    assert (len(server.calls), server.batch_calls) == (2, [])
    outcome = four.run()
    assert "2 of 4 judged, 2 asked again since, 400 tokens in" in batch_line(outcome, f"{FIRST} completed")
    assert scores(outcome) == {"q001": 5, "q002": 5, "q003": 1, "q004": 1}
    outcome = four.run(*BATCH, "--fresh")
    assert submitted(server) == [ALL, ALL]
    assert any("run again without --fresh" in line for line in outcome.err)
    assert set(scores(four.run()).values()) == {1}


@EITHER
def test_submissions_with_equal_answers_pay_once(four: Project, serve: Serve, command: Command) -> None:
    four.submission("a", strong=answers())
    four.submission("b", strong=answers("Another."))
    server = serve(score_by_number)
    assert four.run(*BATCH, "--outputs", "a", "b").code == 3
    assert four.run(*command, "--outputs", "a", "b").code == 0
    assert (server.calls, sorted(map(asked_document, server.batch_calls))) == ([], [*ALL, "d4"])


def test_a_batch_of_another_command_in_an_old_journal_is_left_to_it(four: Project, submit: Submit) -> None:
    """Version 1's `generate` wrote to the journal of the split, which is still read."""

    def answer(call: Call) -> Reply:
        is_answer = call.body["messages"][0]["content"].startswith("You answer a question")
        return completion('{"answer": "It rained."}') if is_answer else score_by_number(call)

    server = submit(answer=answer)
    n_visits = len(server.visits)
    assert four.run("generate", "dev", "--pipeline", "llm", "--overwrite").code == 0
    assert (len(server.calls), len(server.visits)) == (4, n_visits)
    four.predictions("strong", answers())
    assert scores(four.run()) == SCORES


# ------------------------------------------------------------------ The key


ECHO = error(400, "bad_request", f"No: {KEY}")
ECHOES: dict[str, tuple[Answer, Disturb | None]] = {
    "in a reply": (lambda call: groq_server.score_reply(4, f"Your key is {KEY}."), None),
    "in a failed line": (lambda call: ECHO, None),
    "in an upload's error": (score_by_number, disturb({("POST", FILES): ECHO}, once=True)),
    "in a failed batch": (score_by_number, fail_batch(f"No: {KEY}")),
}


@table("answer, disturb", ECHOES)
def test_the_key_is_never_printed_or_stored(
    four: Project, serve: Serve, answer: Answer, disturb: Disturb | None
) -> None:
    serve(answer, disturb=disturb)
    for command in (BATCH, BATCH, CANCEL):
        outcome = four.run(*command)
        assert KEY not in outcome.out + "\n".join(outcome.err)
    assert KEY.encode() not in b"".join(four.files().values())


# ------------------------------------------------------------------ Connections that break


REQUESTS = {
    "upload": ("POST", FILES),
    "list of batches": ("GET", BATCHES),
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
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert_nothing_is_judged_twice(server)


@EITHER
def test_a_list_that_lags_behind_makes_no_second_batch(four: Project, serve: Serve, command: Command) -> None:
    lagging = [Reply(200, b'{"data": []}')] * 5

    def disturb(method: str, path: str) -> Reply | Late | None:
        if path != BATCHES or not server.batches:
            return Late() if (method, path) == ("POST", BATCHES) else None
        return lagging.pop() if lagging else None

    server = serve(score_by_number, disturb=disturb)
    four.run(*BATCH)
    assert (scores(run_until_done(four, *command)), server.calls, lagging) == (SCORES, [], [])
    assert len(server.batches) == 1


def test_two_lost_answers_to_a_creation_end_judging(four: Project, serve: Serve) -> None:
    server = serve(score_by_number, disturb=disturb({("POST", BATCHES): drop()}))
    outcome = four.run(*BATCH)
    assert (outcome.code, server.visits.count(("POST", BATCHES))) == (3, 2)
    for words in ("is tried again", "may have a batch already: looking for it", "for the second time"):
        assert sum(words in line for line in outcome.err) == 1
    assert "no batch could be created (" in outcome.err[-1] + outcome.err[-2]


@pytest.mark.parametrize("id", ["batch_1", "batch_{}"])
def test_a_list_without_end_is_left(four: Project, submit: Submit, id: str) -> None:
    ids = map(id.format, itertools.count())
    template = '{"data": [{"id": 7}, {"id": "%s", "status": "failed"}], "has_more": true}'

    def disturb(method: str, path: str) -> Reply | None:
        is_list = (method, path) == ("GET", BATCHES)
        return Reply(200, (template % next(ids)).encode()) if is_list else None

    assert len(submit(disturb=disturb).batches) == 1


UPLOADS = {"no JSON": Reply(200, b"<html>"), "lone surrogate": Reply(200, b'{"id": "file_\\ud800"}')}


@table("reply", UPLOADS)
def test_an_upload_with_a_strange_answer_ends_judging(four: Project, serve: Serve, reply: Reply) -> None:
    server = serve(score_by_number, disturb=disturb({("POST", FILES): reply}))
    assert (four.run(*BATCH).code, server.batches) == (3, {})


# ------------------------------------------------------------------ Crashes


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

    server = serve(score_by_number, disturb=kill, page=1)
    if path == "/content":
        four.run(*BATCH)
    command = [sys.executable, "-m", "evaluation", *BATCH]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(evaluation.__file__)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as program:
        programs.append(program)
    assert (program.returncode, programs) == (-9, [])
    # Another program uses the account, too. Its file and batch are newer, and fill the lists' first pages.
    server.upload(json.dumps({"custom_id": "r", "method": "POST", "url": ENDPOINT}).encode())
    other_id = list(server.files)[-1]
    server.create({"input_file_id": other_id, "endpoint": ENDPOINT, "completion_window": "24h"})
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert len(server.batches) == 2
    assert_nothing_is_judged_twice(server)


@pytest.mark.parametrize("line", [1, -1], ids=["batch", "end"])
def test_a_broken_note_in_the_journal_is_ignored(four: Project, submit: Submit, line: int) -> None:
    server = submit()
    if line == -1:
        four.run(*BATCH)
    lines = four.files()[JOURNAL].rstrip(b"\n").split(b"\n")
    lines[line] = lines[line][:-7]
    four.write(JOURNAL, b"\n".join(lines) + b"\n")
    outcome = four.run(*BATCH)
    assert any(JOURNAL in message and "unreadable" in message for message in outcome.err)
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert_nothing_is_judged_twice(server)
