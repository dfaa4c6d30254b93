"""Judging with the Batch API: submit, note in the journal, collect, wait and cancel."""

from __future__ import annotations

import _thread
import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import evaluation
import pytest

import groq_server
from conftest import (
    KEY,
    Answer,
    Outcome,
    Project,
    Serve,
    asked_document,
    document,
    journal_entries,
    question,
    table,
)
from groq_server import ENDPOINT, BatchScript, Call, Disturb, GroqServer, Late, Reply, completion, drop, error

LLAMA, GPT_OSS = "llama-3.1-8b-instant", "openai/gpt-oss-20b"
JOURNAL = "dev_judgements.jsonl"
FIRST = "batch_loopback_1"
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
BATCH, WAIT, DIRECT = ("dev", "--batch"), ("dev", "--batch", "--wait"), ("dev",)
CANCEL = ("dev", "--cancel-batch", "--fresh")
SCORES = {"q001": 1, "q002": 2, "q003": 3, "q004": 4}

Command = tuple[str, ...]
Broken = dict[tuple[str, str], Reply | Late]  # by method and end of the path

EITHER = table("command", {"with --batch": BATCH, "without": DIRECT})


# ------------------------------------------------------------------ Input


def write_questions(project: Project, count: int) -> None:
    """Write questions about d1, d2, ..., each with an answer of its own."""
    numbers = range(1, count + 1)
    project.questions(*(question(f"d{number}") for number in numbers))
    project.documents(*(document(f"d{number}", "It rained.") for number in numbers))
    project.predictions("strong", {f"q{number:03d}": {"answer": f"Answer {number}."} for number in numbers})


@pytest.fixture
def four(project: Project) -> Project:
    """Four questions, about d1 to d4."""
    write_questions(project, 4)
    return project


def score_by_number(call: Call) -> Reply:
    """Answer with score 1 for d1, 2 for d2, ..., using 100 tokens in and 20 out."""
    score = (int(asked_document(call)[1:]) - 1) % 5 + 1
    content = json.dumps({"rationale": "Because.", "score": score})
    return completion(content, prompt_tokens=100, completion_tokens=20)


def first_time(doc_id: str, reply: Reply) -> Answer:
    """Give this reply to the first request about a document, and scores to all others."""
    asked: Counter[str] = Counter()

    def answer(call: Call) -> Reply:
        asked[asked_document(call)] += 1
        return reply if asked_document(call) == doc_id and asked[doc_id] == 1 else score_by_number(call)

    return answer


def disturb_first(method: str, path: str, *replies: Reply | Late) -> Disturb:
    """Use these replies, one by one, for requests whose path ends so."""
    left = list(replies)

    def disturb(visited_method: str, visited_path: str) -> Reply | Late | None:
        return left.pop(0) if left and visited_method == method and visited_path.endswith(path) else None

    return disturb


def disturb_all(broken: Broken) -> Disturb:
    """Use these replies for all requests of a method and end of path. The test may change the dict."""

    def disturb(method: str, path: str) -> Reply | Late | None:
        for (broken_method, end), reply in broken.items():
            if method == broken_method and path.endswith(end):
                return reply
        return None

    return disturb


# ------------------------------------------------------------------ Output


def scores(outcome: Outcome) -> dict[str, float]:
    rows = outcome.results["strong"].get("llm_judge", {}).get("per_question", ())
    return {row["question_id"]: row["answer_score_raw"] for row in rows if row["failure"] is None}


def batch_line(outcome: Outcome, batch: str = FIRST) -> str:
    """Return the line on stderr about this batch."""
    [line] = [line for line in outcome.err if line.startswith(f"Batch {batch}")]
    return line


def submitted(server: GroqServer) -> list[list[str]]:
    """Return the documents of each batch."""
    return [
        [asked_document(Call(0, line["body"], {}, 0.0)) for line in batch.input.lines()]
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
    inputs = [batch.input.content for batch in server.batches.values()]
    requests = [json.dumps(call.body) for call in [*server.calls, *server.batch_calls]]
    for sent in (inputs, requests):
        assert len(set(sent)) == len(sent)


# ------------------------------------------------------------------ Submit


def test_a_batch_is_submitted_and_the_run_says_when_to_come_back(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    outcome = four.run(*BATCH)
    assert (outcome.code, scores(outcome)) == (3, {})
    assert (server.calls, submitted(server)) == ([], [["d1", "d2", "d3", "d4"]])
    assert "4 requests" in batch_line(outcome)
    [message] = [line for line in outcome.err if line.startswith("error:")]
    assert FIRST in message
    assert re.search(r"0 of 4 done; run again, at the latest by \d{4}-\d\d-\d\d \d\d:\d\d UTC$", message)


def test_the_journal_notes_the_file_with_its_requests_and_the_batch(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    four.run(*BATCH, "--limit", "2")
    sent, created = journal_entries(four)
    assert (sent["batch_file"], sent["model"]) == ("file_loopback_1", LLAMA)
    keys = [line["custom_id"] for line in server.files["file_loopback_1"].lines()]
    requests = [[keys[0], "strong", "q001"], [keys[1], "strong", "q002"]]
    assert [request[:3] for request in sent["requests"]] == requests
    assert (created["batch_file"], created["batch"]) == ("file_loopback_1", FIRST)


def test_judgements_in_the_journal_are_not_submitted(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    four.run("dev", "--limit", "1")
    four.run(*BATCH)
    assert submitted(server) == [["d2", "d3", "d4"]]
    run_until_done(four, *BATCH)
    n_visits = len(server.visits)
    assert four.run(*BATCH).code == 0
    assert len(server.visits) == n_visits


# ------------------------------------------------------------------ Collect


@EITHER
def test_the_next_run_collects_and_asks_nothing(four: Project, serve: Serve, command: Command) -> None:
    server = serve(score_by_number)
    four.run(*BATCH)
    outcome = four.run(*command)
    assert (outcome.code, scores(outcome)) == (0, SCORES)
    assert (server.calls, len(server.batches)) == ([], 1)
    for words in ("completed", "4 of 4", "400 tokens in, 80 out"):
        assert words in batch_line(outcome)


def make_result(custom_id: str, score: int) -> bytes:
    body = json.loads(groq_server.score_reply(score).body_for(Call(0, {}, {}, 0.0)))
    result = {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}
    return json.dumps(result).encode() + b"\n"


def test_the_first_of_several_results_counts_and_unknown_ids_are_ignored(four: Project, serve: Serve) -> None:
    broken: Broken = {}
    server = serve(score_by_number, disturb=disturb_all(broken))
    four.run(*BATCH)
    ids = [line["custom_id"] for line in server.batches[FIRST].input.lines()]
    results = [make_result("unknown", 1), make_result(ids[0], 5), make_result(ids[0], 1)]
    results += [make_result(custom_id, 3) for custom_id in ids[1:]]
    broken["GET", "/content"] = Reply(200, b"".join(results))
    outcome = four.run()
    assert scores(outcome) == {"q001": 5, "q002": 3, "q003": 3, "q004": 3}
    assert server.calls == []
    assert len([line for line in journal_entries(four) if "key" in line]) == 4


NO_RESULTS = [
    b"no JSON\n",
    b"[]\n",
    b'{"response": null}\n',
    b'{"custom_id": 7}\n',
    b'{"custom_id": "x", "response": {"status_code": "x"}, "error": [1]}\n',
    b"[" * 100_000 + b"\n",
    b"\xff\n",
    b'{"custom_id": "x", "resp',
]


def test_lines_that_are_no_results_are_ignored(four: Project, serve: Serve) -> None:
    broken: Broken = {("GET", "/content"): Reply(200, b"".join(NO_RESULTS))}
    server = serve(score_by_number, disturb=disturb_all(broken))
    four.run(*BATCH)
    outcome = four.run(*BATCH)
    assert "0 of 4" in batch_line(outcome, f"{FIRST} completed")
    assert submitted(server) == [["d1", "d2", "d3", "d4"]] * 2


def test_only_newlines_separate_results(four: Project, serve: Serve) -> None:
    rationale = "Line\u2028separators \u2029 \x85 \x0b \x1c and \u00e9 \U0001f600."
    serve(groq_server.score_reply(4, rationale))
    four.run(*BATCH)
    rows = four.run().results["strong"]["llm_judge"]["per_question"]
    assert [row["answer_rationale"] for row in rows] == [rationale] * 4


@EITHER
def test_only_new_requests_are_asked_meanwhile(four: Project, serve: Serve, command: Command) -> None:
    server = serve(score_by_number, batches=BatchScript(polls=9))
    four.run(*BATCH, "--limit", "3")
    outcome = four.run(*command, "--limit", "3")
    assert (outcome.code, asked_again(server)) == (3, [])
    assert FIRST in outcome.err[-1]
    outcome = four.run(*command)
    assert (outcome.code, asked_again(server)) == (3, ["d4"])
    if command == DIRECT:
        assert scores(outcome) == {"q004": 4}


# The server answers lines from the last to the first, so that d1 is what remains of an expired batch.
ASK_AGAIN: dict[str, tuple[Reply | None, BatchScript, str]] = {
    "no score": (completion("I like it."), BatchScript(), "no score"),
    "cut off": (completion('{"score": 4', finish_reason="length"), BatchScript(), "no score"),
    "no completion": (groq_server.empty_object(), BatchScript(), "not a chat completion"),
    "text for a body": (Reply(502, b"<html>"), BatchScript(), "HTTP 502"),
    "error 500": (error(500, "internal_error", "Try later."), BatchScript(), "HTTP 500: Try later."),
    "error 400": (error(400, "bad_request", "No."), BatchScript(), "HTTP 400: No."),
    "expired": (None, BatchScript(end="expired", answered=3), "expired"),
    "cancelled": (None, BatchScript(end="cancelled", answered=3), "cancelled"),
}


@EITHER
@table("reply, script, reason", ASK_AGAIN)
def test_a_failed_line_goes_to_the_next_batch_or_to_a_call(
    four: Project, serve: Serve, reply: Reply | None, script: BatchScript, reason: str, command: Command
) -> None:
    answer = first_time("d1", reply) if reply else score_by_number
    server = serve(answer, batches=[script, BatchScript()])
    four.run(*BATCH)
    outcome = four.run(*command)
    line = batch_line(outcome, f"{FIRST} {script.end}")
    assert "3 of 4" in line
    assert reason in line
    assert asked_again(server) == ["d1"]
    assert scores(run_until_done(four, *command)) == SCORES
    assert asked_again(server) == ["d1"]


def test_a_failed_batch_is_reported_and_submitted_again(four: Project, serve: Serve) -> None:
    server = serve(score_by_number, batches=[BatchScript(end="failed"), BatchScript()])
    four.run(*BATCH)
    line = batch_line(four.run(*BATCH), f"{FIRST} failed")
    assert "The batch could not be processed." in line
    assert "0 of 4" in line
    assert submitted(server) == [["d1", "d2", "d3", "d4"]] * 2


@pytest.mark.parametrize("end", ["completed", "failed", "expired", "cancelled"])
def test_the_journal_notes_the_end_and_the_batch_is_not_looked_at_again(
    four: Project, serve: Serve, end: Any
) -> None:
    server = serve(score_by_number, batches=BatchScript(end=end, answered=2))
    four.run(*BATCH)
    four.run()
    assert [line["ended"] for line in journal_entries(four) if "ended" in line] == [end]
    n_visits = len(server.visits)
    four.run()
    assert len(server.visits) == n_visits


NOT_FOUND = error(404, "not_found", "There is no such thing.")


def test_requests_are_asked_again_if_the_results_are_gone(four: Project, serve: Serve) -> None:
    server = serve(score_by_number, disturb=disturb_first("GET", "/content", NOT_FOUND))
    four.run(*BATCH)
    outcome = four.run()
    assert any("file_loopback_2" in line and FIRST in line for line in outcome.err)
    assert (len(server.calls), scores(outcome)) == (4, SCORES)


def test_a_404_is_no_proof_that_a_batch_is_gone(four: Project, serve: Serve) -> None:
    broken: Broken = {("GET", FIRST): NOT_FOUND}
    server = serve(score_by_number, disturb=disturb_all(broken))
    four.run(*BATCH, "--limit", "3")
    for command in (BATCH, WAIT, DIRECT, CANCEL):
        outcome = four.run(*command, *("--limit", "3"))
        assert outcome.code == 3
        assert f"--forget-batch {FIRST}" in outcome.err[-1]
    broken.clear()
    assert (scores(run_until_done(four)), asked_again(server)) == (SCORES, ["d4"])


@EITHER
def test_a_forgotten_batch_is_asked_again(four: Project, serve: Serve, command: Command) -> None:
    server = serve(score_by_number, disturb=disturb_all({("GET", FIRST): NOT_FOUND}))
    four.run(*BATCH)
    outcome = four.run(*command, "--forget-batch", "batch_unknown")
    assert (outcome.code, "batch_unknown" in outcome.err[-1]) == (2, True)
    four.run(*command, "--forget-batch", FIRST)
    assert scores(run_until_done(four, *command, "--forget-batch", FIRST)) == SCORES
    assert asked_again(server) == ["d1", "d2", "d3", "d4"]


# ------------------------------------------------------------------ Models that were withdrawn


def withdraw_llama(call: Call) -> Reply:
    return groq_server.decommissioned() if call.body["model"] == LLAMA else score_by_number(call)


def fail_batch(message: str) -> Disturb:
    """Say that the first batch failed because its model does not exist."""
    errors = {"data": [{"code": "model_not_found", "message": message, "line": None}]}
    state = {"id": FIRST, "status": "failed", "errors": errors}
    return disturb_all({("GET", FIRST): Reply(200, json.dumps(state).encode())})


WITHDRAWN: dict[str, tuple[Answer, Disturb | None]] = {
    "each line fails": (withdraw_llama, None),
    "the batch fails": (score_by_number, fail_batch(f"The model `{LLAMA}` does not exist.")),
}


@EITHER
@table("answer, disturb", WITHDRAWN)
def test_a_withdrawn_model_is_replaced_by_its_successor(
    four: Project, serve: Serve, answer: Answer, disturb: Disturb | None, command: Command
) -> None:
    serve(answer, disturb=disturb)
    four.run(*BATCH)
    outcome = run_until_done(four, *command)
    assert outcome.results["strong"]["llm_judge"]["judge_model"] == GPT_OSS
    assert scores(outcome) == SCORES


def test_a_batch_of_the_successor_is_waited_for(four: Project, serve: Serve) -> None:
    server = serve(withdraw_llama, batches=[BatchScript(), BatchScript(polls=5)])
    for _ in range(3):
        four.run(*BATCH)
    assert len(server.batches) == 2


@EITHER
def test_a_withdrawn_model_that_was_named_stops_judging(
    four: Project, serve: Serve, command: Command
) -> None:
    server = serve(withdraw_llama)
    four.run(*BATCH, "--judge-model", LLAMA)
    outcome = four.run(*command, "--judge-model", LLAMA)
    assert LLAMA in outcome.err[-1]
    assert (outcome.code, server.calls, len(server.batches)) == (3, [], 1)


# ------------------------------------------------------------------ Wait


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
    "refused": (FIRST, error(400, "", "No.")),
    "wrong key": (FIRST, error(401, "invalid_api_key", "Invalid API Key")),
    "a list": (FIRST, Reply(200, b"[]")),
    "no status": (FIRST, Reply(200, json.dumps({"id": FIRST}).encode())),
    "no ID": (FIRST, Reply(200, b'{"id": 7, "status": "completed"}')),
    "a broken download": ("/content", groq_server.tear(b'{"custom_id": "x"')),
}


@table("path, reply", UNUSABLE)
def test_an_unreadable_batch_stays_under_way(four: Project, serve: Serve, path: str, reply: Reply) -> None:
    broken: Broken = {("GET", path): reply}
    server = serve(score_by_number, disturb=disturb_all(broken))
    four.run(*BATCH)
    outcome = four.run()
    assert (outcome.code, outcome.err[-1][:6]) == (3, "error:")
    broken.clear()
    assert (scores(four.run()), server.calls, len(server.batches)) == (SCORES, [], 1)


def test_ctrl_c_ends_waiting_but_not_the_batch(four: Project, serve: Serve) -> None:
    states = []

    def interrupt(method: str, path: str) -> None:
        if method == "GET" and path.endswith(FIRST):
            states.append(path)
            if len(states) == 2:
                _thread.interrupt_main()

    server = serve(score_by_number, batches=BatchScript(polls=4), disturb=interrupt)
    outcome = four.run(*WAIT)
    assert outcome.code == 130
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


def test_a_batch_that_has_ended_is_not_cancelled(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    four.run(*BATCH)
    server.retrieve(server.batches[FIRST])
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.out.split(",")[0]) == (0, f"Batch {FIRST}: completed")


def test_a_batch_that_is_missing_in_the_journal_is_found_and_cancelled(four: Project, serve: Serve) -> None:
    server = serve(score_by_number, batches=BatchScript(polls=3))
    four.run(*BATCH)
    path = four.folder / JOURNAL
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    four.run(*CANCEL)
    assert server.batches[FIRST].status == "cancelled"


def test_without_a_batch_there_is_nothing_to_cancel(four: Project, serve: Serve) -> None:
    serve(score_by_number)
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.out) == (0, "No batch is under way.\n")
    assert not (four.folder / JOURNAL).exists()


def test_cancelling_needs_a_key_and_the_service(
    four: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(
        score_by_number, batches=BatchScript(polls=9), disturb=disturb_all({("POST", "/cancel"): drop()})
    )
    four.run(*BATCH)
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.err[-1][:6]) == (3, "error:")
    outcome = four.run(*CANCEL, "--dry-run")
    assert outcome.code == 2
    assert "--cancel-batch" in outcome.err[-1]
    assert "--dry-run" in outcome.err[-1]
    monkeypatch.delenv("GROQ_API_KEY")
    outcome = four.run(*CANCEL)
    assert outcome.code == 2
    assert "GROQ_API_KEY" in outcome.err[-1]
    assert server.batches[FIRST].status != "cancelled"


# ------------------------------------------------------------------ Size, price and dry run


def test_batch_size_limits_the_lines_of_a_batch(project: Project, serve: Serve) -> None:
    write_questions(project, 5)
    server = serve(score_by_number)
    project.run(*BATCH, "--batch-size", "2")
    assert submitted(server) == [["d1", "d2"], ["d3", "d4"], ["d5"]]
    assert len(scores(project.run())) == 5


@pytest.mark.parametrize("size", ["0", "50001", "two"])
def test_batch_size_is_1_to_50000(four: Project, size: str) -> None:
    outcome = four.run(*BATCH, "--batch-size", size)
    assert outcome.code == 2
    assert "--batch-size" in outcome.err[-1]
    assert size in outcome.err[-1]


def test_a_file_has_at_most_100_megabytes(project: Project) -> None:
    rubric = {"description": "x" * 2_000_000, "scale": {"1": "no", "5": "yes"}}
    project.questions(question(rubric=rubric))
    project.documents(document())
    project.predictions("strong", {"q001": {"answer": "No."}})
    outcome = project.run(*BATCH, "--dry-run", "--judge-model", LLAMA, "--repeats", "51")
    assert "Batches: 2 (51 lines, 102.0 MB)" in outcome.out


def estimated_cost(outcome: Outcome) -> float:
    return float(re.findall(r"\$([\d.]+)", outcome.out)[0])


def test_a_dry_run_shows_batches_and_half_the_price(project: Project, serve: Serve) -> None:
    write_questions(project, 50)
    server = serve(score_by_number)
    options = ("dev", "--dry-run", "--repeats", "50")
    outcome = project.run(*options, "--batch", "--batch-size", "1000")
    assert re.search(r"Batches: 3 \(2500 lines, \d\.\d MB\), each within 24h", outcome.out)
    assert estimated_cost(outcome) == pytest.approx(estimated_cost(project.run(*options)) / 2, abs=1e-4)
    assert estimated_cost(outcome) > 0.01
    assert (outcome.code, server.visits, server.calls) == (0, [], [])


@EITHER
def test_a_dry_run_shows_what_is_under_way(four: Project, serve: Serve, command: Command) -> None:
    serve(score_by_number)
    four.run(*BATCH, "--limit", "3")
    out = four.run(*command, "--dry-run").out
    assert "Under way in batches: 3\n" in out
    assert "Calls to make: 1\n" in out


PRICE = 100 * 0.05e-6 + 20 * 0.08e-6  # USD of a call


@pytest.mark.parametrize(("n_calls", "cost"), [(0, 2 * PRICE), (1, 2.5 * PRICE), (4, 4 * PRICE)])
def test_a_judgement_of_a_batch_costs_half(four: Project, serve: Serve, n_calls: int, cost: float) -> None:
    serve(score_by_number)
    if n_calls:
        four.run("dev", "--limit", str(n_calls))
    outcome = run_until_done(four, *BATCH)
    assert outcome.results["strong"]["llm_judge"]["usage"]["cost_usd"] == pytest.approx(cost)


def test_fresh_submits_everything_again_and_a_later_run_collects_it(four: Project, serve: Serve) -> None:
    server = serve(score_by_number)
    four.run()
    four.run(*BATCH, "--fresh")
    assert submitted(server) == [["d1", "d2", "d3", "d4"]]
    assert four.run().code == 0
    assert (len(server.calls), len(server.batches)) == (4, 1)
    assert [line["ended"] for line in journal_entries(four) if "ended" in line] == ["completed"]


def test_fresh_never_collects_what_was_submitted_before_it(four: Project, serve: Serve) -> None:
    batched: list[str] = []

    def answer(call: Call) -> Reply:
        batched.append(call.custom_id or "")
        content = json.dumps({"rationale": "So.", "score": 1 if call.custom_id else 5})
        return completion(content, prompt_tokens=100, completion_tokens=20)

    serve(answer)
    four.run(*BATCH)
    assert scores(four.run("dev", "--fresh", "--limit", "2")) == {"q001": 5, "q002": 5}
    assert batched == ["", ""]
    outcome = four.run()
    assert "2 of 4 judged, 2 asked again since, 400 tokens in" in batch_line(outcome, f"{FIRST} completed")
    assert scores(outcome) == {"q001": 5, "q002": 5, "q003": 1, "q004": 1}
    outcome = four.run(*BATCH, "--fresh")
    assert any("run again without --fresh" in line for line in outcome.err)
    assert set(scores(four.run()).values()) == {1}


# ------------------------------------------------------------------ Other commands


@EITHER
def test_submissions_with_equal_answers_pay_once(four: Project, serve: Serve, command: Command) -> None:
    rows = {f"q{number:03d}": {"answer": f"Answer {number}."} for number in range(1, 5)}
    four.write("a/dev_strong_output.json", rows)
    four.write("b/dev_strong_output.json", {**rows, "q004": {"answer": "Another."}})
    server = serve(score_by_number)
    options = ("--outputs", "a", "b")
    assert four.run(*BATCH, *options).code == 3
    assert four.run(*command, *options).code == 0
    assert (server.calls, sorted(map(asked_document, server.batch_calls))) == (
        [],
        ["d1", "d2", "d3", "d4", "d4"],
    )
    assert_nothing_is_judged_twice(server)


def test_a_batch_of_another_command_in_an_old_journal_is_left_to_it(four: Project, serve: Serve) -> None:
    """Version 1's `generate` wrote to the journal of the split, which is still read."""

    def answer(call: Call) -> Reply:
        is_answer = call.body["messages"][0]["content"].startswith("You answer a question")
        return completion('{"answer": "It rained."}') if is_answer else score_by_number(call)

    server = serve(answer)
    four.run(*BATCH)
    n_visits = len(server.visits)
    assert four.run("generate", "dev", "--pipeline", "llm", "--overwrite").code == 0
    assert (len(server.calls), len(server.visits)) == (4, n_visits)
    four.predictions("strong", {f"q{number:03d}": {"answer": f"Answer {number}."} for number in range(1, 5)})
    assert scores(four.run()) == SCORES


def test_free_answers_are_judged_in_batches(project: Project, serve: Serve) -> None:
    rows = [{"question": f"What burns in lamp {n}?", "gold": "oil", "prediction": f"fat {n}"} for n in (1, 2)]
    project.write("a.json", rows)
    content = json.dumps({"reasoning": "As it says.", "correct": "yes"})
    server = serve(completion(content), batches=[BatchScript(polls=9), BatchScript()])
    command = ("answers", "a.json", "--method", "llm_judge", "--batch")
    assert project.run(*command).code == 3
    assert project.run("answers", "a.json", "--cancel-batch").out.startswith(f"Batch {FIRST}: cancelled, 0 ")
    assert project.run(*command).code == 3
    assert project.run(*command).code == 0
    results = json.loads((project.folder / "a_answers.json").read_bytes())
    assert [row["correct"] for row in results["detailed_results"]] == [True, True]
    assert (server.calls, len(server.batch_calls)) == ([], 2)


# ------------------------------------------------------------------ The key


ESCAPED_KEY = "".join(f"\\u{ord(character):04x}" for character in KEY)
ECHOES: dict[str, tuple[Answer, Disturb | None]] = {
    "in a reply": (lambda call: groq_server.score_reply(4, f"Your key is {KEY}."), None),
    "escaped": (lambda call: completion(f'{{"score": 4, "rationale": "{ESCAPED_KEY}"}}'), None),
    "in a failed line": (lambda call: error(400, "bad_request", f"No: {KEY}"), None),
    "in an upload's error": (score_by_number, disturb_first("POST", FILES, error(400, "", f"No: {KEY}"))),
    "in a failed batch": (score_by_number, fail_batch(f"No: {KEY}")),
}


@table("answer, disturb", ECHOES)
def test_the_key_is_never_printed_or_stored(
    four: Project, serve: Serve, answer: Answer, disturb: Disturb | None
) -> None:
    serve(answer, disturb=disturb)
    outcomes = [four.run(*BATCH), four.run(*BATCH), four.run(*CANCEL)]
    for outcome in outcomes:
        assert KEY not in outcome.out
        assert KEY not in "\n".join(outcome.err)
    for path in four.folder.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


# ------------------------------------------------------------------ Connections that break


@pytest.mark.parametrize("times", [1, 3])
def test_a_broken_download_is_read_again(project: Project, serve: Serve, times: int) -> None:
    write_questions(project, 30)
    broken: list[str] = []

    def disturb(method: str, path: str) -> Reply | None:
        if not path.endswith("/content") or len(broken) == times:
            return None
        broken.append(path)
        return groq_server.tear(server.files["file_loopback_2"].content)

    server = serve(score_by_number, disturb=disturb)
    project.run(*BATCH)
    outcome = project.run()
    assert (outcome.code, len(broken), server.calls) == (0, times, [])
    assert scores(outcome) == {f"q{n:03d}": (n - 1) % 5 + 1 for n in range(1, 31)}
    assert len([line for line in journal_entries(project) if "key" in line]) == 30


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
    server = serve(score_by_number, disturb=disturb_first(method, path, loss))
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert_nothing_is_judged_twice(server)


@pytest.mark.parametrize("id", ["batch_1", "batch_{}"])
def test_a_list_without_end_is_left(four: Project, serve: Serve, id: str) -> None:
    ids = map(id.format, itertools.count())
    template = '{"data": [{"id": "%s", "status": "failed"}], "has_more": true}'

    def disturb(method: str, path: str) -> Reply | None:
        is_list = (method, path) == ("GET", BATCHES)
        return Reply(200, (template % next(ids)).encode()) if is_list else None

    server = serve(score_by_number, disturb=disturb)
    assert (four.run(*BATCH).code, len(server.batches)) == (3, 1)


@pytest.mark.parametrize("loss", [Late(), Late(error(503, "", "Busy."))], ids=["lost", "503"])
@EITHER
def test_a_list_that_lags_behind_makes_no_second_batch(
    four: Project, serve: Serve, loss: Late, command: Command
) -> None:
    lagging = [Reply(200, b'{"data": []}')] * 5

    def disturb(method: str, path: str) -> Reply | Late | None:
        if path != BATCHES or not server.batches:
            return None if (method, path) != ("POST", BATCHES) else loss
        return lagging.pop() if lagging else None

    server = serve(score_by_number, disturb=disturb)
    four.run(*BATCH)
    assert (scores(run_until_done(four, *command)), server.calls, lagging) == (SCORES, [], [])
    assert len(server.batches) == 1


@pytest.mark.parametrize("reply", [Reply(200, b"<html>"), drop()], ids=["HTML", "lost"])
def test_two_lost_answers_to_a_creation_end_judging(four: Project, serve: Serve, reply: Reply) -> None:
    server = serve(score_by_number, disturb=disturb_all({("POST", BATCHES): reply}))
    outcome = four.run(*BATCH)
    assert (outcome.code, server.visits.count(("POST", BATCHES))) == (3, 2)
    for words in ("is tried again", "may have a batch already: looking for it", "for the second time"):
        assert sum(words in line for line in outcome.err) == 1
    assert "no batch could be created (" in outcome.err[-1] + outcome.err[-2]


UPLOADS = {
    "no JSON": Reply(200, b"<html>", (("content-type", "text/html"),)),
    "nothing": Reply(200, b""),
    "a list": Reply(200, b"[1]"),
    "another place": Reply(302, b"", (("location", "http://127.0.0.1:9/"),)),
    "lone surrogate": Reply(200, b'{"id": "file_\\ud800"}'),
    "long ID": Reply(200, b'{"id": "%s"}' % (b"f" * 200_000)),
}


@table("reply", UPLOADS)
def test_an_upload_with_a_strange_answer_ends_judging(four: Project, serve: Serve, reply: Reply) -> None:
    server = serve(score_by_number, disturb=disturb_all({("POST", FILES): reply}))
    outcome = four.run(*BATCH)
    assert (outcome.code, outcome.err[-1][:6], server.batches) == (3, "error:", {})


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
    command = [sys.executable, evaluation.__file__, *BATCH]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
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
def test_a_broken_note_in_the_journal_is_ignored(four: Project, serve: Serve, line: int) -> None:
    server = serve(score_by_number)
    four.run(*BATCH)
    if line == -1:
        four.run(*BATCH)
    path = four.folder / JOURNAL
    lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    lines[line] = lines[line][:-7]
    path.write_bytes(b"\n".join(lines) + b"\n")
    outcome = four.run(*BATCH)
    assert any(JOURNAL in message and "unreadable" in message for message in outcome.err)
    assert scores(run_until_done(four, *BATCH)) == SCORES
    assert_nothing_is_judged_twice(server)
