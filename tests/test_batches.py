"""Judging by batches, from the command line to the journal: the real client, against a loopback service."""

from __future__ import annotations

import _thread
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import chain, pairwise
from typing import Any

import evaluation
import pytest
from evaluation import (
    Batches,
    BatchLine,
    BatchRecord,
    BatchService,
    BatchState,
    Journal,
    JudgeRequest,
    ServiceError,
    batch_result,
    batch_state,
    in_files,
    lines_of,
    parse_journal,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import KEY, Answer, Outcome, Project, Serve, document, pasted, question
from groq_server import (
    ENDPOINT,
    BatchScript,
    Call,
    Disturb,
    GroqServer,
    Late,
    Reply,
    Torn,
    completion,
    decommissioned,
    drop,
    empty_object,
    error,
    score_reply,
)

LLAMA, GPT_OSS = "llama-3.1-8b-instant", "openai/gpt-oss-20b"
JOURNAL = "dev_judgements.jsonl"
FIRST, SECOND = "batch_loopback_1", "batch_loopback_2"
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
BATCH, WAIT, DIRECT = ("dev", "--batch"), ("dev", "--batch", "--wait"), ("dev",)
repeatable = settings(derandomize=True, deadline=None, max_examples=30)

Rows = list[dict[str, Any]]


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause is long, and nobody waits for a disk."""
    monkeypatch.setattr(evaluation, "MAX_BACKOFF_S", 0.001)
    monkeypatch.setattr(os, "fsync", lambda file: None)


EITHER = table("arguments", {"with --batch": BATCH, "without": DIRECT})


# -- What goes in


def ask(project: Project, count: int) -> None:
    """A split of so many questions, about d1, d2, ..., each answered in its own words."""
    places = range(1, count + 1)
    project.questions(*(question(f"d{place}") for place in places))
    project.documents(*(document(f"d{place}", "It rained.") for place in places))
    project.predictions("strong", {f"q{place:03d}": {"answer": f"Answer {place}."} for place in places})


@pytest.fixture
def four(project: Project) -> Project:
    """Four questions, about d1 to d4."""
    ask(project, 4)
    return project


def subject(call: Call) -> str:
    """The document that a request is about."""
    return pasted(call, "question").removeprefix("What is ").rstrip("?")


def by_place(call: Call) -> Reply:
    """1 for d1, 2 for d2, and so on, at 100 tokens in and 20 out."""
    score = (int(subject(call)[1:]) - 1) % 5 + 1
    content = json.dumps({"rationale": "So.", "score": score})
    return completion(content, prompt_tokens=100, completion_tokens=20)


def at_first(about: str, reply: Reply) -> Answer:
    """This reply to the first request about a document; to all else the usual one."""
    asked: Counter[str] = Counter()

    def answer(call: Call) -> Reply:
        asked[subject(call)] += 1
        return reply if (subject(call), asked[subject(call)]) == (about, 1) else by_place(call)

    return answer


def instead(method: str, path: str, *replies: Reply | Late | Torn | None) -> Disturb:
    """These, one by one, in place of the answers to requests whose path ends so."""
    left = list(replies)

    def disturb(asked: str, where: str) -> Reply | Late | Torn | None:
        return left.pop(0) if left and asked == method and where.endswith(path) else None

    return disturb


def always(method: str, path: str, reply: Reply) -> Disturb:
    return lambda asked, where: reply if asked == method and where.endswith(path) else None


GONE = error(404, "not_found", "There is no such thing.")


# -- What came of it


def scores(outcome: Outcome) -> dict[str, float]:
    """The scores by question; none where no answer is judged."""
    rows = outcome.results["strong"].get("llm_judge", {}).get("per_question", ())
    return {row["question_id"]: row["answer_score_raw"] for row in rows if row["failure"] is None}


ALL = {"q001": 1, "q002": 2, "q003": 3, "q004": 4}


def failures(outcome: Outcome) -> dict[str, str]:
    rows = outcome.results["strong"]["llm_judge"]["per_question"]
    return {row["question_id"]: row["failure"] for row in rows if row["failure"]}


def journal_of(project: Project, path: str = JOURNAL) -> Rows:
    return [json.loads(line) for line in (project.folder / path).read_bytes().split(b"\n") if line]


def events(project: Project, path: str = JOURNAL) -> list[str]:
    """What the journal's lines are, without the judgements: files, batches, ends."""
    names = ("requests", "batch", "ended")
    notes = [line for line in journal_of(project, path) if "batch_file" in line]
    return [
        f"{name} {line[name] if name != 'requests' else ''}".strip()
        for line in notes
        for name in names
        if name in line
    ]


def said(outcome: Outcome, start: str = "Batch ") -> list[str]:
    """The lines on stderr that begin so."""
    return [line for line in outcome.err if line.startswith(start)]


def sent(server: GroqServer) -> list[list[str]]:
    """What each batch was about."""
    return [
        [subject(Call(0, line["body"], {}, 0.0)) for line in batch.input.lines()]
        for batch in server.batches.values()
    ]


def asked_directly(server: GroqServer) -> list[str]:
    return sorted(map(subject, server.calls))


def until_done(project: Project, *arguments: str) -> Outcome:
    """The command again and again, until it has nothing left to do."""
    for _ in range(8):
        outcome = project.run(*arguments)
        if outcome.code == 0:
            return outcome
    raise AssertionError(outcome.err)


# ------------------------------------------------------------------ A run that does not wait


def test_it_says_what_is_under_way_and_when_to_come_back(four: Project, serve: Serve) -> None:
    serve(by_place)
    outcome = four.run(*BATCH)
    assert said(outcome) == [f"Batch {FIRST}: 4 requests are sent."]
    [line] = said(outcome, "error: ")
    by = r"run again, at the latest by \d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(
        rf"error: judging ended early: batches are under way \({FIRST}\), 0 of 4 done; {by}", line
    )


def test_it_exits_3_and_its_results_have_no_scores(four: Project, serve: Serve) -> None:
    serve(by_place)
    outcome = four.run(*BATCH)
    assert (outcome.code, list(outcome.results["strong"])) == (3, ["retrieval", "citation", "slices", "run"])


def test_it_makes_no_call(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    assert (server.calls, sent(server)) == ([], [["d1", "d2", "d3", "d4"]])


def test_the_journal_has_the_file_with_its_requests_and_then_the_batch(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH, "--limit", "2")
    first, then = journal_of(four)
    [uploaded] = server.files.values()
    keys = [line["custom_id"] for line in uploaded.lines()]
    assert first == {
        "batch_file": "file_loopback_1",
        "model": LLAMA,
        "protocol": "rubric",
        "requests": [[keys[0], "strong", "q001", "written", 0], [keys[1], "strong", "q002", "written", 0]],
        "time": first["time"],
    }
    assert then == {"batch_file": "file_loopback_1", "batch": FIRST, "time": then["time"]}


def test_a_line_is_a_request_under_its_key(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    for line in next(iter(server.files.values())).lines():
        assert line == {
            "custom_id": evaluation.judgement_key(line["body"], 0),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": line["body"],
        }


def test_what_is_in_the_journal_already_is_not_sent(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run("dev", "--limit", "1")
    four.run(*BATCH)
    assert sent(server) == [["d2", "d3", "d4"]]


def test_where_all_is_in_the_journal_nothing_is_sent(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run()
    assert (four.run(*BATCH).code, server.visits) == (0, [])


# ------------------------------------------------------------------ The next run collects


@EITHER
def test_the_next_run_collects_and_asks_nothing(
    four: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    outcome = four.run(*arguments)
    assert (outcome.code, scores(outcome)) == (0, ALL)
    assert (server.calls, len(server.batches)) == ([], 1)


def test_results_in_any_order_go_to_the_right_answers(project: Project, serve: Serve) -> None:
    ask(project, 30)
    serve(by_place)
    project.run(*BATCH)
    assert scores(project.run()) == {f"q{place:03d}": (place - 1) % 5 + 1 for place in range(1, 31)}


def test_it_is_said_what_a_batch_brought(four: Project, serve: Serve) -> None:
    serve(by_place)
    four.run(*BATCH)
    told = "completed: 4 of 4 judged, 400 tokens in, 80 out, $0.0000"
    assert said(four.run()) == [f"Batch {FIRST} {told}."]


def test_duplicates_and_unknown_ids_are_passed_over_and_counted(four: Project, serve: Serve) -> None:
    serve(by_place, batches=BatchScript(duplicates=3, strangers=2))
    four.run(*BATCH)
    outcome = four.run()
    passed = "3 once more, 2 of no request of this batch"
    assert said(outcome)[0].startswith(f"Batch {FIRST} completed: 4 of 4 judged, {passed}, ")
    assert len([line for line in journal_of(four) if "key" in line]) == 4


def test_of_two_results_for_one_request_the_first_counts(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(shuffle=False))
    four.run(*BATCH)
    [uploaded] = server.files.values()
    ids = [line["custom_id"] for line in uploaded.lines()]
    rows = [(ids[0], 5), (ids[0], 1), *((name, 3) for name in ids[1:])]
    results = "".join(json.dumps(result_row(name, score)) + "\n" for name, score in rows)
    server_says(server, results.encode())
    assert scores(four.run()) == {"q001": 5, "q002": 3, "q003": 3, "q004": 3}


def result_row(custom_id: str, score: int) -> dict[str, Any]:
    body = json.loads(score_reply(score).body_for(Call(0, {}, {}, 0.0)))
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}


def server_says(server: GroqServer, results: bytes) -> None:
    """From now on these are the results of any batch."""
    for batch in server.batches.values():
        batch.output = batch.input.__class__("file_made_up", "output.jsonl", "batch_output")
        batch.output.add(results)
        server.files["file_made_up"] = batch.output
        batch.starts, batch.course = [], ["completed"]


NO_RESULTS = {
    "no JSON": b"no JSON\n",
    "a list": b"[]\n",
    "no ID": b'{"response": null}\n',
    "a number for an ID": b'{"custom_id": 7}\n',
    "nested too deep": b"[" * 100_000 + b"\n",
    "no text": b"\xff\n",
    "cut off": b'{"custom_id": "x", "resp',
}


@table("line", NO_RESULTS)
def test_a_line_that_is_no_result_has_no_key(line: bytes) -> None:
    assert batch_result(line)[0] == ""


def test_lines_that_are_no_results_are_passed_over_and_counted(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    server_says(server, b"".join(NO_RESULTS.values()))
    told = f"Batch {FIRST} completed: 0 of 4 judged, {len(NO_RESULTS)} no result line, "
    assert said(four.run(*BATCH))[0].startswith(told)


LINE_ENDS = "\u2028 \u2029 \x85 \x0b \x1c \u00e9 \U0001f600"


def test_a_reply_may_hold_what_ends_a_line_elsewhere(four: Project, serve: Serve) -> None:
    serve(score_reply(4, f"So{LINE_ENDS}it is."))
    four.run(*BATCH)
    outcome = four.run()
    rows = outcome.results["strong"]["llm_judge"]["per_question"]
    assert [row["answer_rationale"] for row in rows] == [f"So{LINE_ENDS}it is."] * 4


# -- While a batch is in progress


@EITHER
def test_while_it_is_in_progress_nothing_is_asked(
    four: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    server = serve(by_place, batches=BatchScript(polls=3))
    four.run(*BATCH)
    outcome = four.run(*arguments)
    assert (outcome.code, server.calls, len(server.batches)) == (3, [], 1)
    assert f"batches are under way ({FIRST}), 1 of 4 done; run again" in said(outcome, "error: ")[0]


@EITHER
def test_while_it_is_in_progress_what_is_new_is_asked(
    four: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    server = serve(by_place, batches=BatchScript(polls=3))
    four.run(*BATCH, "--limit", "3")
    four.run(*arguments)
    assert [*asked_directly(server), *chain(*sent(server)[1:])] == ["d4"]


def test_what_is_asked_meanwhile_stands_beside_what_is_not_there_yet(four: Project, serve: Serve) -> None:
    serve(by_place, batches=BatchScript(polls=3))
    four.run(*BATCH, "--limit", "3")
    outcome = four.run()
    assert (outcome.code, scores(outcome)) == (3, {"q004": 4})
    assert outcome.results["strong"]["llm_judge"]["unjudged_questions"] == ["q001", "q002", "q003"]


# ------------------------------------------------------------------ What is asked again

EXPIRED = BatchScript(end="expired", answered=3, shuffle=False)
AGAIN: dict[str, tuple[Reply | None, BatchScript]] = {
    "a reply that is no score": (completion("I like it."), BatchScript()),
    "a reply that is cut off": (completion('{"score": 4', finish_reason="length"), BatchScript()),
    "an answer that is no completion": (empty_object(), BatchScript()),
    "a failed line": (error(500, "internal_error", "Try again."), BatchScript()),
    "a refused line": (error(400, "bad_request", "No."), BatchScript()),
    "the rest of an expired batch": (None, EXPIRED),
    "a rest that no file lists": (None, BatchScript(**{**vars(EXPIRED), "rest_listed": False})),
    "the rest of a cancelled batch": (None, BatchScript(**{**vars(EXPIRED), "end": "cancelled"})),
    "what was in the line that is cut": (None, BatchScript(shuffle=False, cut=True)),
}


@table("reply, script", AGAIN)
def test_it_is_asked_again_in_the_next_batch(
    four: Project, serve: Serve, reply: Reply | None, script: BatchScript
) -> None:
    server = serve(at_first("d4", reply) if reply else by_place, batches=[script, BatchScript()])
    four.run(*BATCH)
    assert (four.run(*BATCH).code, sent(server)[1:], server.calls) == (3, [["d4"]], [])
    assert scores(four.run(*BATCH)) == ALL


@table("reply, script", dict([*AGAIN.items()][::2]))
def test_it_is_asked_again_in_a_call_where_the_run_is_not_in_batches(
    four: Project, serve: Serve, reply: Reply | None, script: BatchScript
) -> None:
    server = serve(at_first("d4", reply) if reply else by_place, batches=[script, BatchScript()])
    four.run(*BATCH)
    outcome = four.run()
    assert (asked_directly(server), len(server.batches)) == (["d4"], 1)
    assert (outcome.code, scores(outcome)) == (0, ALL)


WHY = {
    "no score": (completion("I like it."), "1 no score"),
    "failed": (error(500, "internal_error", "Try later."), "1 HTTP 500: Try later."),
}


@table("reply, why", WHY)
def test_it_is_counted_why(four: Project, serve: Serve, reply: Reply, why: str) -> None:
    serve(at_first("d4", reply))
    four.run(*BATCH)
    assert f"completed: 3 of 4 judged, {why}, 300 tokens in" in said(four.run())[0]


def test_what_json_mode_gave_up_on_counts_where_it_is_a_score(four: Project, serve: Serve) -> None:
    usable = error(
        400, "json_validate_failed", "No JSON.", failed_generation='{"score": 4, "rationale": "So."}'
    )
    serve(at_first("d4", usable))
    four.run(*BATCH)
    assert scores(four.run()) == ALL


# -- Batches that end badly


def test_a_batch_that_failed_is_said_with_the_reason_and_asked_anew(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=[BatchScript(end="failed", reason="Quota used up."), BatchScript()])
    four.run(*BATCH)
    outcome = four.run(*BATCH)
    assert said(outcome)[0].startswith(f"Batch {FIRST} failed (Quota used up.): 0 of 4 judged, ")
    assert sent(server) == [["d1", "d2", "d3", "d4"]] * 2


def test_what_a_cancelled_batch_has_done_is_kept(four: Project, serve: Serve) -> None:
    serve(by_place, batches=BatchScript(end="cancelled", answered=3, shuffle=False))
    four.run(*BATCH)
    outcome = four.run(*BATCH, "--limit", "3")
    assert scores(outcome) == {name: ALL[name] for name in ("q001", "q002", "q003")}
    assert said(outcome)[0].startswith(f"Batch {FIRST} cancelled: 3 of 4 judged, ")


ENDS = {
    "completed": BatchScript(),
    "failed": BatchScript(end="failed"),
    "expired": BatchScript(end="expired", answered=2),
    "cancelled": BatchScript(end="cancelled", answered=2),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_end_is_noted_and_not_looked_at_again(four: Project, serve: Serve, end: str) -> None:
    server = serve(by_place, batches=ENDS[end])
    four.run(*BATCH)
    four.run()
    looked = len(server.visits)
    four.run()
    assert (events(four), len(server.visits)) == (["requests", f"batch {FIRST}", f"ended {end}"], looked)


def test_a_batch_that_the_service_does_not_know_is_given_up(four: Project, serve: Serve) -> None:
    server = serve(by_place, disturb=always("GET", FIRST, GONE))
    four.run(*BATCH)
    outcome = four.run()
    assert said(outcome)[0].startswith(f"Batch {FIRST} lost: 0 of 4 judged, ")
    assert (len(server.calls), scores(outcome)) == (4, ALL)


def test_where_a_file_of_results_is_gone_its_requests_are_asked_again(four: Project, serve: Serve) -> None:
    server = serve(by_place, disturb=instead("GET", "/content", GONE))
    four.run(*BATCH)
    outcome = four.run()
    assert said(outcome, "The service") == [
        f"The service has no file file_loopback_2 of batch {FIRST} any more."
    ]
    assert (len(server.calls), scores(outcome)) == (4, ALL)


def test_a_file_that_is_gone_before_its_batch_was_made_is_uploaded_anew(four: Project, serve: Serve) -> None:
    server = serve(by_place, disturb=instead("POST", BATCHES, *[drop()] * evaluation.MAX_ATTEMPTS))
    four.run(*BATCH)
    server.files["file_loopback_1"].deleted = True
    assert scores(until_done(four, *BATCH)) == ALL
    assert events(four) == [
        "requests",
        "ended never started",
        "requests",
        f"batch {FIRST}",
        "ended completed",
    ]


# -- Models that are gone


def batch_failed(code: str) -> Reply:
    told = {"data": [{"code": code, "message": f"The model `{LLAMA}` is no more.", "line": None}]}
    return Reply(200, json.dumps({"id": FIRST, "status": "failed", "errors": told}).encode())


def llama_is_gone(call: Call) -> Reply:
    return decommissioned() if call.body["model"] == LLAMA else by_place(call)


GOING: dict[str, tuple[Answer, Disturb | None]] = {
    "each line says so": (llama_is_gone, None),
    "the batch fails for it": (by_place, always("GET", FIRST, batch_failed("model_not_found"))),
}


@EITHER
@table("answer, disturb", GOING)
def test_a_model_that_is_gone_is_succeeded(
    four: Project, serve: Serve, answer: Answer, disturb: Disturb | None, arguments: Sequence[str]
) -> None:
    serve(answer, disturb=disturb)
    four.run(*BATCH)
    outcome = until_done(four, *arguments)
    assert outcome.results["strong"]["llm_judge"]["judge_model"] == GPT_OSS
    assert scores(outcome) == ALL


@EITHER
def test_a_model_that_is_gone_and_asked_for_by_name_ends_judging(
    four: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    server = serve(llama_is_gone)
    four.run(*BATCH, "--judge-model", LLAMA)
    outcome = four.run(*arguments, "--judge-model", LLAMA)
    assert outcome.err[-1].startswith(
        f"error: judging ended, no answer is scored: the model {LLAMA} is not to be had"
    )
    assert (outcome.code, server.calls, len(server.batches)) == (3, [], 1)


def test_what_the_successor_has_under_way_is_waited_for(four: Project, serve: Serve) -> None:
    server = serve(llama_is_gone, batches=[BatchScript(), BatchScript(polls=5)])
    for _ in range(3):
        four.run(*BATCH)
    assert len(server.batches) == 2


# ------------------------------------------------------------------ A run that waits


def test_a_run_that_waits_comes_back_with_all(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=3, ending=1))
    outcome = four.run(*WAIT)
    assert (outcome.code, scores(outcome), len(server.batches)) == (0, ALL, 1)


def test_a_run_without_new_batches_may_wait_for_those_under_way(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=3))
    four.run(*BATCH)
    outcome = four.run("dev", "--wait")
    assert (outcome.code, scores(outcome), server.calls) == (0, ALL, [])


def test_what_has_no_score_is_sent_three_times_at_most(four: Project, serve: Serve) -> None:
    server = serve(lambda call: completion("Hm.") if subject(call) == "d2" else by_place(call))
    outcome = four.run(*WAIT)
    assert sent(server) == [["d1", "d2", "d3", "d4"], ["d2"], ["d2"]]
    assert (outcome.code, failures(outcome)) == (3, {"q002": "no score by any batch"})


def test_what_is_left_out_is_no_failure(four: Project, serve: Serve) -> None:
    serve(by_place)
    outcome = four.run(*WAIT, "--limit", "3")
    assert failures(outcome) == {"q004": "left out"}


@pytest.fixture
def batches(project: Project, serve: Serve) -> Iterator[Callable[..., Batches]]:
    """Batches of four requests that are to be waited for, with nothing of the command line."""
    with ExitStack() as resources:

        def made(server: GroqServer, **more: Any) -> Batches:
            service = evaluation.groq_clients(KEY, server.url, 1, resources)
            journal = resources.enter_context(closing(Journal(JOURNAL)))
            about: dict[str, Any] = {
                "submits": True,
                "waits": True,
                "most_lines": 10,
                "warn": lambda line: None,
                "time_utc": lambda: "now",
                "progress": lambda steps, total: steps,
                "sleep": lambda seconds: None,
            }
            return Batches(BatchService(service), {"": journal}, **{**about, **more})

        yield made


def requests_about(*places: int) -> list[JudgeRequest]:
    rubric = evaluation.Rubric("Right?", {"1": "no", "5": "yes"})

    def build(place: int) -> Callable[[], Any]:
        gold = evaluation.Question(f"q{place}", f"d{place}", f"What is d{place}?", "It is.")
        return lambda: evaluation.build_rubric_messages(gold, rubric, "It is not.")

    return [JudgeRequest("strong", f"q{place}", place, "written", 0, build(place)) for place in places]


def run_through(batches: Batches) -> None:
    """Have four requests judged."""
    orders = evaluation.orders_for(LLAMA, requests_about(1, 2, 3, 4))
    [journal] = batches.journals.values()
    batches.run(LLAMA, orders, lambda: [one for one in orders if one.place[1] not in journal.stored])


def test_it_looks_ever_more_seldom_from_10_s_to_5_minutes(
    batches: Callable[..., Batches], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(by_place, batches=BatchScript(polls=12))
    monkeypatch.setattr(evaluation, "POLL_S", 10.0)
    monkeypatch.setattr(evaluation, "MAX_POLL_S", 300.0)
    slept: list[float] = []
    run_through(batches(server, sleep=slept.append))
    assert slept == [min(300, 10 * 1.5**n) for n in range(12)]


def test_the_progress_bar_moves_as_requests_are_done(batches: Callable[..., Batches], serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=3))
    seen: list[object] = []

    def progress(steps: Iterable[object], total: int) -> Iterator[object]:
        seen.append(f"of {total}")
        for step in steps:
            seen.append("done")
            yield step

    run_through(batches(server, progress=progress, sleep=lambda seconds: seen.append("pause")))
    assert seen == ["of 4", "done", "pause", "done", "pause", "done", "pause", "done"]


def test_what_the_service_cannot_say_now_is_asked_for_again(four: Project, serve: Serve) -> None:
    server = serve(
        by_place, disturb=instead("GET", FIRST, drop(), error(503, "", "Busy."), error(429, "", "Slow."))
    )
    assert scores(four.run(*WAIT)) == ALL
    assert len(server.batches) == 1


def test_a_run_that_waits_bears_with_the_service_for_most_of_an_hour(
    batches: Callable[..., Batches], serve: Serve
) -> None:
    server = serve(by_place)
    slept: list[float] = []
    waiting = batches(server, sleep=slept.append)
    attempts = 0

    def call() -> None:
        nonlocal attempts
        attempts += 1
        raise evaluation.ServiceError("out of reach")

    with pytest.raises(evaluation.JudgingEnded):
        waiting._tried(call)
    assert (attempts, len(slept)) == (100, 99)


@table("reply", {"out of reach": drop(), "refused": error(400, "", "No."), "no batch": Reply(200, b"[]")})
def test_where_the_service_says_nothing_of_a_batch_it_stays_under_way(
    four: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> None:
    monkeypatch.setattr(evaluation, "WAITING_ATTEMPTS", 3)
    server = serve(by_place, disturb=instead("GET", FIRST, *[reply] * evaluation.WAITING_ATTEMPTS))
    outcome = four.run(*WAIT)
    assert (outcome.code, said(outcome, "error: ")[0][:56]) == (
        3,
        "error: judging ended early: of batches the service says:",
    )
    assert (scores(until_done(four)), server.calls) == (ALL, [])


def test_a_wrong_key_is_said_and_the_batch_stays_under_way(four: Project, serve: Serve) -> None:
    server = serve(by_place, disturb=instead("GET", FIRST, error(401, "invalid_api_key", "Invalid API Key")))
    four.run(*BATCH)
    outcome = four.run()
    assert outcome.err[-1] == "error: judging ended, no answer is scored: HTTP 401: Invalid API Key"
    assert (scores(four.run()), server.calls) == (ALL, [])


# -- Ctrl-C


def interrupting(after: int) -> Disturb:
    """Ctrl-C when a batch is looked at for the last of so many times."""
    left = [after]

    def disturb(method: str, path: str) -> None:
        if method == "GET" and path.endswith(FIRST):
            left[0] -= 1
            if left[0] == 0:
                _thread.interrupt_main()

    return disturb


@pytest.fixture
def interrupted(four: Project, serve: Serve) -> tuple[GroqServer, Outcome]:
    """A run that waits, and is interrupted."""
    server = serve(by_place, batches=BatchScript(polls=4), disturb=interrupting(2))
    return server, four.run(*WAIT)


def test_ctrl_c_says_that_the_batch_goes_on(interrupted: tuple[GroqServer, Outcome]) -> None:
    _, outcome = interrupted
    [line] = said(outcome, "The service")
    assert line.startswith(f"The service goes on without us: batches are under way ({FIRST}), ")
    assert outcome.code == 130


def test_ctrl_c_cancels_nothing(four: Project, interrupted: tuple[GroqServer, Outcome]) -> None:
    server, _ = interrupted
    outcome = until_done(four)
    assert (scores(outcome), server.calls) == (ALL, [])
    assert [path for method, path in server.visits if path.endswith("/cancel")] == []


# ------------------------------------------------------------------ --cancel-batch

CANCEL = ("dev", "--cancel-batch")


def test_it_cancels_and_says_how_far_it_came(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=3, answered=2))
    four.run(*BATCH)
    four.run()
    outcome = four.run(*CANCEL)
    assert outcome.out == f"Batch {FIRST}: cancelled, 2 of 4 done\nThe next run collects what was done.\n"
    assert (outcome.code, server.batches[FIRST].status) == (0, "cancelled")


@EITHER
def test_after_it_the_next_run_collects_what_was_done_and_asks_the_rest(
    four: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    script = BatchScript(polls=3, ending=1, answered=2, shuffle=False)
    server = serve(by_place, batches=[script, BatchScript()])
    four.run(*BATCH)
    four.run(*CANCEL)
    assert scores(until_done(four, *arguments)) == ALL
    assert sorted([*asked_directly(server), *chain(*sent(server)[1:])]) == ["d3", "d4"]


def test_it_asks_and_writes_nothing(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    before = (four.folder / "dev_evaluation.json").read_bytes()
    four.run(*CANCEL)
    assert ((four.folder / "dev_evaluation.json").read_bytes(), server.calls) == (before, [])


def test_a_batch_that_has_ended_stays_as_it_is(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    server.batches[FIRST].enter("completed")
    outcome = four.run(*CANCEL)
    assert (outcome.code, outcome.out.partition(", ")[0]) == (0, f"Batch {FIRST}: completed")


def test_a_batch_whose_journal_line_is_lost_is_found_and_cancelled(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=3))
    four.run(*BATCH)
    path = four.folder / JOURNAL
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    four.run(*CANCEL)
    assert server.batches[FIRST].status == "cancelled"


def test_where_no_batch_is_under_way_it_says_so_and_leaves_nothing(four: Project, serve: Serve) -> None:
    serve(by_place)
    outcome = four.run(*CANCEL)
    assert (outcome.out, outcome.code) == ("No batch is under way.\n", 0)
    assert not (four.folder / JOURNAL).exists()


def test_without_a_key_nothing_can_be_cancelled(four: Project) -> None:
    outcome = four.run(*CANCEL)
    said = "batches are cancelled at the service: set GROQ_API_KEY, or see --dry-run"
    assert (outcome.err[-1], outcome.code) == (f"error: {said}", 2)


def test_a_dry_run_cancels_nothing(four: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=9))
    four.run(*BATCH)
    outcome = four.run(*CANCEL, "--dry-run")
    assert outcome.err[-1] == "error: --cancel-batch cancels, and --dry-run would not: choose one"
    assert (outcome.code, [batch.status for batch in server.batches.values()]) == (2, ["validating"])


def test_where_the_service_is_out_of_reach_it_exits_3(four: Project, serve: Serve) -> None:
    serve(by_place, disturb=always("POST", "/cancel", drop()))
    four.run(*BATCH)
    outcome = four.run(*CANCEL)
    assert outcome.err[-1].startswith("error: not all batches are cancelled: of batches the service says: ")
    assert outcome.code == 3


# ------------------------------------------------------------------ How much one batch holds


def test_the_batch_size_cuts(project: Project, serve: Serve) -> None:
    ask(project, 5)
    server = serve(by_place)
    project.run(*BATCH, "--batch-size", "2")
    assert sent(server) == [["d1", "d2"], ["d3", "d4"], ["d5"]]


def test_the_bytes_of_a_file_cut_as_well(
    four: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "BATCH_BYTES", 2_500)
    server = serve(by_place)
    four.run(*BATCH)
    sizes = [batch.input.size for batch in server.batches.values()]
    assert (sent(server), max(sizes) <= 2_500) == ([["d1", "d2"], ["d3", "d4"]], True)


def test_many_batches_are_all_collected(project: Project, serve: Serve) -> None:
    ask(project, 5)
    serve(by_place)
    project.run(*BATCH, "--batch-size", "2")
    assert len(scores(project.run())) == 5


@pytest.mark.parametrize(
    ("size", "found"),
    [("0", "expected a whole number from 1, found '0'"), ("50001", "expected at most 50000, found '50001'")],
)
def test_a_size_that_no_batch_can_have_is_refused(four: Project, size: str, found: str) -> None:
    outcome = four.run(*BATCH, "--batch-size", size)
    assert (outcome.code, outcome.err[-1].split("--batch-size: ")[1]) == (2, found)


# ------------------------------------------------------------------ The dry run

PLAN = """\
Dry run: nothing is sent.
With llama-3.1-8b-instant:
  Judgements: 5, of which 0 are stored already
  Calls to make: 5
  Tokens (estimated): 617 in, 400 out
  Cost (estimated): $0.0000
  Batches: 3 (5 lines, 0.0 MB), each within 24h
With openai/gpt-oss-20b:
  Judgements: 5, of which 0 are stored already
  Calls to make: 5
  Tokens (estimated): 617 in, 1000 out
  Cost (estimated): $0.0002
  Batches: 3 (5 lines, 0.0 MB), each within 24h
"""


def test_a_dry_run_shows_files_lines_tokens_and_half_the_price(project: Project, serve: Serve) -> None:
    ask(project, 5)
    server = serve(by_place)
    outcome = project.run(*BATCH, "--dry-run", "--batch-size", "2")
    assert (outcome.out, outcome.code, server.visits) == (PLAN, 0, [])


def test_the_price_is_half_of_that_of_calls() -> None:
    requests = requests_about(*range(1, 5_001))
    plan = evaluation.plan_calls(LLAMA, requests, (), most_lines=50_000)
    prices = [re.search(r"\$(\S+)", evaluation.render_plan(plan, {}, batched)) for batched in (False, True)]
    assert [found and found[1] for found in prices] == ["0.0600", "0.0300"]


def test_the_size_is_that_of_the_files(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    requests = judged_requests()
    plan = evaluation.plan_calls(LLAMA, requests, (), most_lines=50_000)
    assert plan.file_bytes == server.batches[FIRST].input.size


def judged_requests() -> list[JudgeRequest]:
    split, [hand_in], _ = evaluation.read_all("dev")
    return evaluation.judge_requests(split, hand_in)


@pytest.mark.parametrize("options", [(), ("--batch",)])
def test_a_dry_run_tells_what_is_under_way(four: Project, serve: Serve, options: Sequence[str]) -> None:
    serve(by_place)
    four.run(*BATCH, "--limit", "3")
    lines = four.run("dev", "--dry-run", *options).out.splitlines()
    assert lines[2:5] == [
        "  Judgements: 4, of which 0 are stored already",
        "  Under way in batches: 3",
        "  Calls to make: 1",
    ]


# ------------------------------------------------------------------ What it costs


def cost(outcome: Outcome) -> float:
    usage = outcome.results["strong"]["llm_judge"]["usage"]
    found: float = usage["cost_usd"]
    return found


EACH = 100 * 0.05e-6 + 20 * 0.08e-6  # a call at the list price


@pytest.mark.parametrize(("directly", "usd"), [(0, 2 * EACH), (1, 2.5 * EACH), (4, 4 * EACH)])
def test_a_judgement_of_a_batch_counts_half(four: Project, serve: Serve, directly: int, usd: float) -> None:
    serve(by_place)
    if directly:
        four.run("dev", "--limit", str(directly))
    outcome = until_done(four, *BATCH)
    assert cost(outcome) == pytest.approx(usd)


# ------------------------------------------------------------------ One request, however it is sent


def bodies(calls: Iterable[Call]) -> list[str]:
    return sorted(json.dumps(call.body) for call in calls)


@pytest.mark.parametrize("model", [LLAMA, GPT_OSS])
def test_a_batch_has_the_very_bodies_of_calls(four: Project, serve: Serve, model: str) -> None:
    server = serve(by_place)
    options = ("--judge-model", model, "--repeats", "2")
    four.run("dev", *options)
    (four.folder / JOURNAL).unlink()
    until_done(four, *BATCH, *options)
    assert bodies(server.calls) == bodies(server.batch_calls)


def test_what_a_batch_has_judged_is_not_asked_in_calls(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    until_done(four, *BATCH)
    four.run()
    assert server.calls == []


def test_in_the_journal_a_judgement_of_a_batch_is_that_of_a_call_and_names_the_batch(
    four: Project, serve: Serve
) -> None:
    serve(by_place)
    four.run("dev", "--limit", "1")
    [direct] = journal_of(four)
    (four.folder / JOURNAL).unlink()
    until_done(four, *BATCH)
    batched = next(line for line in journal_of(four) if line.get("question_id") == "q001")
    assert batched == {**direct, "batch": FIRST, "time": batched["time"]}


def test_fresh_sends_all_again(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run()
    four.run(*BATCH, "--fresh")
    assert sent(server) == [["d1", "d2", "d3", "d4"]]


@EITHER
def test_the_run_that_collects_a_fresh_batch_does_not_send_it_again(
    four: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    server = serve(by_place)
    four.run()
    four.run(*BATCH, "--fresh")
    outcome = four.run(*arguments, "--fresh")
    assert (outcome.code, len(server.batches), len(server.calls)) == (0, 1, 4)
    assert cost(outcome) == pytest.approx(2 * EACH)


def test_fresh_and_once_more_fresh_are_two_batches_of_the_same_file(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    for _ in range(3):
        four.run(*BATCH, "--fresh")
    assert sent(server) == [["d1", "d2", "d3", "d4"]] * 2


# ------------------------------------------------------------------ Many hand-ins


@pytest.fixture
def class_of_two(four: Project) -> Project:
    """Two hand-ins that give the same answers but for the last."""
    rows = {f"q{place:03d}": {"answer": f"Answer {place}."} for place in range(1, 5)}
    four.hand_in("a", strong=rows)
    four.hand_in("b", strong={**rows, "q004": {"answer": "Another."}})
    return four


OUTPUTS = ("--outputs", "a", "b")


def scored_in(project: Project, folder: str) -> int:
    return len({line["key"] for line in journal_of(project, f"{folder}/{JOURNAL}") if "key" in line})


def test_each_journal_has_a_batch_of_its_own(class_of_two: Project, serve: Serve) -> None:
    server = serve(by_place)
    class_of_two.run(*BATCH, *OUTPUTS)
    assert sent(server) == [["d1", "d2", "d3", "d4"], ["d4"]]
    assert events(class_of_two, f"b/{JOURNAL}") == ["requests", f"batch {SECOND}"]


@EITHER
def test_answers_that_are_alike_are_paid_for_once_and_all_journals_get_them(
    class_of_two: Project, serve: Serve, arguments: Sequence[str]
) -> None:
    server = serve(by_place)
    class_of_two.run(*BATCH, *OUTPUTS)
    outcome = class_of_two.run(*arguments, *OUTPUTS)
    assert (outcome.code, server.calls, len(server.batch_calls)) == (0, [], 5)
    assert (scored_in(class_of_two, "a"), scored_in(class_of_two, "b")) == (4, 4)


def test_after_it_each_hand_in_can_be_graded_alone(class_of_two: Project, serve: Serve) -> None:
    server = serve(by_place)
    until_done(class_of_two, *BATCH, *OUTPUTS)
    assert (class_of_two.run("dev", "--outputs", "b").code, server.calls) == (0, [])


def test_the_batches_of_all_hand_ins_are_cancelled(class_of_two: Project, serve: Serve) -> None:
    server = serve(by_place, batches=BatchScript(polls=3))
    class_of_two.run(*BATCH, *OUTPUTS)
    class_of_two.run(*CANCEL, *OUTPUTS)
    assert [batch.status for batch in server.batches.values()] == ["cancelled"] * 2


# ------------------------------------------------------------------ Other commands

VERDICT = completion(json.dumps({"reasoning": "So it says.", "correct": "yes"}))
ANSWERS = ("answers", "a.json", "--method", "llm_judge")


@pytest.fixture
def lamps(project: Project) -> Project:
    rows = [{"question": f"What burns in lamp {n}?", "gold": "oil", "prediction": f"fat {n}"} for n in (1, 2)]
    project.write("a.json", rows)
    return project


def test_free_answers_are_judged_in_batches(lamps: Project, serve: Serve) -> None:
    server = serve(VERDICT)
    assert lamps.run(*ANSWERS, "--batch").code == 3
    assert lamps.run(*ANSWERS, "--batch").code == 0
    results = json.loads((lamps.folder / "a_answers.json").read_bytes())
    assert [row["correct"] for row in results["detailed_results"]] == [True, True]
    assert (server.calls, len(server.batch_calls)) == ([], 2)


def test_the_batches_of_free_answers_are_cancelled(lamps: Project, serve: Serve) -> None:
    serve(VERDICT, batches=BatchScript(polls=3))
    lamps.run(*ANSWERS, "--batch")
    assert lamps.run("answers", "a.json", "--cancel-batch").out.startswith(f"Batch {FIRST}: cancelled, 0 of ")


@pytest.fixture
def debate(project: Project) -> Project:
    """One summary and its gold one."""
    sides = [
        {"claim": f"Oil is {how}.", "perspectives": [{"text": "It burns.", "evidence_docs": [1]}]}
        for how in ("good", "bad")
    ]
    gold = {"id": "g", "title": "Oil?", "t1": "It helps.", "t2": "It harms."}
    more = {"response1": ["Light."], "favor_ids": [1], "response2": ["Smoke."], "against_ids": [2]}
    project.write(
        "results/offline-summaries-JSON-enforced/c-5-offline.json",
        [{"id": "s", "query": "Oil?", "summary": sides}],
    )
    project.write(evaluation.GOLD_SUMMARIES_FILE, json.dumps({**gold, **more}))
    return project


def test_summaries_are_judged_in_batches(debate: Project, serve: Serve) -> None:
    names = [criterion.name for criterion in evaluation.CRITERIA]
    content = {"explanations": dict.fromkeys(names, "So."), "scores": dict.fromkeys(names, 2)}
    server = serve(completion(json.dumps(content)))
    assert debate.run("summaries", "--batch").code == 3
    assert debate.run("summaries", "--batch").code == 0
    assert (server.calls, len(server.batch_calls)) == ([], 1)


# ------------------------------------------------------------------ The key


def left_behind(project: Project, outcomes: Iterable[Outcome]) -> str:
    console = [line for outcome in outcomes for line in (outcome.out, *outcome.err)]
    files = [path.read_text("utf-8") for path in project.folder.rglob("*") if path.is_file()]
    return "\n".join(console + files)


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(sign):04x}" for sign in text)


ECHOES: dict[str, tuple[Answer, Disturb | None]] = {
    "in a reply": (lambda call: score_reply(4, f"Your key is {KEY}."), None),
    "in a reply, escaped": (lambda call: completion(f'{{"score": 4, "rationale": "{escaped(KEY)}"}}'), None),
    "in the error of a line": (lambda call: error(400, "bad_request", f"No: {KEY}"), None),
    "in the error of an upload": (by_place, instead("POST", FILES, error(400, "", f"No: {KEY}"))),
    "in the reason of a failed batch": (
        by_place,
        always(
            "GET",
            FIRST,
            Reply(200, batch_failed("x").body_for(Call(0, {}, {}, 0)).replace(LLAMA.encode(), KEY.encode())),
        ),
    ),
}


@table("answer, disturb", ECHOES)
def test_the_key_is_never_printed_or_stored(
    four: Project, serve: Serve, answer: Answer, disturb: Disturb | None
) -> None:
    serve(answer, disturb=disturb)
    outcomes = [four.run(*BATCH), four.run(*BATCH), four.run("dev", "--cancel-batch")]
    assert KEY not in left_behind(four, outcomes)


# ------------------------------------------------------------------ Connections that break


@table(
    "tears",
    {
        "once": [Torn()],
        "at the same place": [Torn()] * 3,
        "further on each time, however often": [Torn(tenths / 10) for tenths in range(1, 10)],
    },
)
def test_a_download_that_breaks_off_is_read_on(project: Project, serve: Serve, tears: list[Torn]) -> None:
    ask(project, 30)
    server = serve(by_place, disturb=instead("GET", "/content", *tears))
    project.run(*BATCH)
    outcome = project.run()
    assert (len(scores(outcome)), server.calls) == (30, [])
    assert ": 30 of 30 judged, 3000 tokens in" in said(outcome)[0]


def test_what_came_of_a_download_that_always_breaks_off_is_kept(project: Project, serve: Serve) -> None:
    ask(project, 30)
    broken = [Torn()] * evaluation.MAX_ATTEMPTS
    server = serve(by_place, disturb=instead("GET", "/content", *broken))
    project.run(*BATCH)
    outcome = project.run()
    assert (outcome.code, 5 < len(scores(outcome)) < 25, server.calls) == (3, True, [])
    assert len(scores(until_done(project))) == 30


@pytest.mark.parametrize("name", ["", 7, None, "file_\ud800", "file\x1b[31m"], ids=repr)
def test_an_upload_whose_file_has_no_name_is_none(serve: Serve, name: object) -> None:
    told = Reply(200, json.dumps({"id": name}).encode())
    server = serve(by_place, disturb=lambda method, _: told if method == "POST" else None)
    with ExitStack() as resources:
        service = BatchService(evaluation.groq_clients(KEY, server.url, 1, resources))
        with pytest.raises(ServiceError, match="the answer to an upload names no file"):
            service.upload("a.jsonl", io.BytesIO(b"{}"))


@pytest.mark.parametrize("page", [1, 2, None])
def test_what_was_sent_is_found_on_any_page_of_a_list(serve: Serve, page: int | None) -> None:
    server = serve(by_place, page=page)
    line = evaluation.json_line({"custom_id": "1", "method": "POST", "url": ENDPOINT, "body": {}})
    with ExitStack() as resources:
        service = BatchService(evaluation.groq_clients(KEY, server.url, 1, resources))
        files = [service.upload(f"{name}.jsonl", io.BytesIO(line)) for name in "abca"]
        states = [service.create(file) for file in files]
        assert [service.batch_of(file) for file in files] == states
        found = [service.file_named(f"{name}.jsonl", ()) for name in "abcd"]
        assert found == [files[3], files[1], files[2], None]
        assert service.file_named("a.jsonl", files[1:]) == files[0]


def test_a_list_that_has_no_end_ends(serve: Serve) -> None:
    rows = {"data": [{"id": "file_1", "filename": "a"}], "has_more": True}
    endless = Reply(200, json.dumps(rows).encode())
    server = serve(by_place, disturb=lambda method, path: endless if path.endswith(FILES) else None)
    with ExitStack() as resources:
        service = BatchService(evaluation.groq_clients(KEY, server.url, 1, resources))
        assert service.file_named("b", ()) is None
    assert len(server.visits) == 2


REQUESTS = {
    "the list of files": ("GET", FILES),
    "the upload": ("POST", FILES),
    "the list of batches": ("GET", BATCHES),
    "the creation": ("POST", BATCHES),
    "the state": ("GET", FIRST),
    "the results": ("GET", "/content"),
}
LOSSES: dict[str, tuple[Reply | Late, int]] = {
    "the request": (drop(), 1),
    "the answer": (Late(), 1),
    "the answer, until it gives up": (Late(), evaluation.MAX_ATTEMPTS),
}


@table("loss, times", LOSSES)
@table("asked", REQUESTS)
def test_what_is_lost_on_the_way_is_sent_once(
    four: Project, serve: Serve, asked: tuple[str, str], loss: Reply | Late, times: int
) -> None:
    server = serve(by_place, disturb=instead(*asked, *[loss] * times))
    assert scores(until_done(four, *BATCH)) == ALL
    assert_sent_once(server)


@table("asked", {name: REQUESTS[name] for name in ("the upload", "the creation")})
def test_what_took_effect_though_it_was_refused_is_sent_once(
    four: Project, serve: Serve, asked: tuple[str, str]
) -> None:
    server = serve(by_place, disturb=instead(*asked, Late(error(503, "", "Busy."))))
    assert scores(until_done(four, *BATCH)) == ALL
    assert_sent_once(server)


def assert_sent_once(server: GroqServer) -> None:
    asked = Counter(bodies([*server.calls, *server.batch_calls]))
    counts = chain(server.uploaded.values(), server.submitted.values(), asked.values())
    assert ([count for count in counts if count > 1], server.paid_twice) == ([], 0)


# ------------------------------------------------------------------ Crashes


class Death(BaseException):
    """The process ends here: nothing catches it, and the system lets go of the journal."""


class Reaper:
    """Ends the process at one of the steps between a run and what it leaves outside."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.chosen: tuple[str, int] | int | None = None
        for name in ("file_named", "upload", "batch_of", "create", "state"):
            self._watch(monkeypatch, BatchService, name, lambda *_, name=name, **__: name)
        self._watch(monkeypatch, Journal, "append", lambda *_, **__: "judgement")
        self._watch(monkeypatch, Journal, "note_batch", self._note)
        self._watch_results(monkeypatch)

    @staticmethod
    def _note(*_: object, **told: Any) -> str:
        return next(f"note of {name}" for name in ("ended", "batch", "requests") if name in told)

    def _watch(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, step: Callable[..., str]
    ) -> None:
        original = getattr(owner, name)

        def watched(*given: Any, **more: Any) -> Any:
            self.reach(f"before {step(*given, **more)}")
            value = original(*given, **more)
            self.reach(f"after {step(*given, **more)}")
            return value

        monkeypatch.setattr(owner, name, watched)

    def _watch_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = BatchService.results

        def watched(*given: Any) -> Iterator[Any]:
            for result in original(*given):
                self.reach("before a result")
                yield result
            self.reach("after the results")

        monkeypatch.setattr(BatchService, "results", watched)

    def reach(self, step: str) -> None:
        self.steps.append(step)
        if self.chosen in ((step, self.steps.count(step)), len(self.steps)):
            self.chosen = None
            raise Death(step)


@pytest.fixture
def reaper(monkeypatch: pytest.MonkeyPatch) -> Reaper:
    return Reaper(monkeypatch)


def dying(project: Project, *arguments: str) -> Outcome:
    """The command again and again, whatever it dies of, until it has nothing left to do."""
    for _ in range(8):
        try:
            return until_done(project, *arguments)
        except Death:
            continue
    raise AssertionError("it always dies")


CRASHES = {
    "before the upload": ("before upload", 1),
    "after the upload, before the journal knows": ("after upload", 1),
    "after the journal has the file": ("after note of requests", 1),
    "before the batch is created": ("before create", 1),
    "after it is created, before the journal knows": ("after create", 1),
    "before the journal has the batch": ("before note of batch", 1),
    "after the journal has the batch": ("after note of batch", 1),
    "between two batches": ("before upload", 2),
    "after the second upload": ("after upload", 2),
    "after the second batch is created": ("after create", 2),
    "when it has looked at the first batch": ("after state", 1),
    "before the first result": ("before a result", 1),
    "between a result and the journal": ("before judgement", 2),
    "after a result is in the journal": ("after judgement", 2),
    "when all results of a batch are read": ("after the results", 1),
    "before the journal has the end": ("before note of ended", 1),
    "after the journal has the end": ("after note of ended", 1),
    "amid the results of the second batch": ("before judgement", 4),
    "before the second end": ("before note of ended", 2),
}
THREE_EACH = ("--batch-size", "3")


@table("chosen", CRASHES)
def test_a_crash_loses_nothing_and_sends_nothing_twice(
    four: Project, serve: Serve, reaper: Reaper, chosen: tuple[str, int]
) -> None:
    server = serve(by_place)
    reaper.chosen = chosen
    assert scores(dying(four, *BATCH, *THREE_EACH)) == ALL
    assert reaper.chosen is None, "it never came to that"
    assert_sent_once(server)


@table("chosen", dict([*CRASHES.items()][::2]))
def test_after_a_crash_a_run_without_batches_pays_for_nothing_twice(
    four: Project, serve: Serve, reaper: Reaper, chosen: tuple[str, int]
) -> None:
    server = serve(by_place)
    reaper.chosen = chosen
    with suppress(Death):
        four.run(*BATCH, *THREE_EACH)
    assert scores(dying(four)) == ALL
    assert_sent_once(server)


def test_a_crash_at_any_step_loses_nothing_and_sends_nothing_twice(
    project: Project, serve: Serve, reaper: Reaper
) -> None:
    ask(project, 2)
    for step in range(1, 100):
        (project.folder / JOURNAL).unlink(missing_ok=True)
        server = serve(by_place)
        reaper.steps, reaper.chosen = [], step
        assert scores(dying(project, *WAIT)) == {"q001": 1, "q002": 2}
        assert_sent_once(server)
        if reaper.chosen:  # there are no so many steps
            break
    assert 20 < step < 99


SHARED = {name: at for name, at in CRASHES.items() if "the end" in name or "second" in name}


@table("chosen", SHARED)
def test_after_a_crash_answers_that_are_alike_are_still_paid_for_once(
    class_of_two: Project, serve: Serve, reaper: Reaper, chosen: tuple[str, int]
) -> None:
    server = serve(by_place)
    reaper.chosen = chosen
    dying(class_of_two, *BATCH, *OUTPUTS)
    assert (scored_in(class_of_two, "a"), scored_in(class_of_two, "b")) == (4, 4)
    assert_sent_once(server)


def test_a_crash_in_a_fresh_run_sends_nothing_twice(four: Project, serve: Serve, reaper: Reaper) -> None:
    server = serve(by_place)
    four.run()
    reaper.chosen = ("after create", 1)
    with suppress(Death):
        four.run(*BATCH, "--fresh")
    assert four.run(*BATCH, "--fresh").code == 0
    assert len(server.batches) == 1


# ------------------------------------------------------------------ What the journal knows of batches

KEYS = ("k1", "k2")
LINES = tuple(BatchLine(key, "strong", "q001", "written", place) for place, key in enumerate(KEYS))
SENT = {"batch_file": "f1", "model": LLAMA, "protocol": "rubric", "requests": [list(line) for line in LINES]}
RECORD = BatchRecord("f1", LLAMA, "rubric", LINES)

NOTES: dict[str, tuple[Rows, dict[str, BatchRecord], int]] = {
    "a file": ([SENT], {"f1": RECORD}, 0),
    "a batch": ([SENT, {"batch_file": "f1", "batch": "b1"}], {"f1": RECORD._replace(batch="b1")}, 0),
    "an end": (
        [SENT, {"batch_file": "f1", "batch": "b1"}, {"batch_file": "f1", "ended": "expired"}],
        {"f1": RECORD._replace(batch="b1", ended="expired", lines=())},
        0,
    ),
    "an end without a batch": (
        [SENT, {"batch_file": "f1", "ended": "never started"}],
        {"f1": RECORD._replace(ended="never started", lines=())},
        0,
    ),
    "a batch of a file that nobody knows": ([{"batch_file": "f1", "batch": "b1"}], {}, 1),
    "an end of a file that nobody knows": (
        [SENT, {"batch_file": "f2", "ended": "failed"}],
        {"f1": RECORD},
        1,
    ),
    "a file alone changes nothing": (
        [SENT, {"batch_file": "f1", "batch": "b1"}, {"batch_file": "f1"}],
        {"f1": RECORD._replace(batch="b1")},
        0,
    ),
    "neither model nor protocol": (
        [{"batch_file": "f1", "requests": SENT["requests"]}],
        {"f1": RECORD._replace(model="")},
        0,
    ),
    "a request that is cut short": ([{**SENT, "requests": [["k1", "strong", "q001"]]}], {}, 1),
    "a repeat that is no number": ([{**SENT, "requests": [["k1", "strong", "q001", "written", "0"]]}], {}, 1),
    "a protocol that is none": ([{**SENT, "protocol": "by ear"}], {}, 1),
    "an ID that is none": ([SENT, {"batch_file": "f1", "batch": 7}], {"f1": RECORD}, 1),
    "a file that is none": ([{**SENT, "batch_file": ""}], {}, 1),
}


@table("notes, known, passed_over", NOTES)
def test_what_a_journal_tells_of_batches(
    notes: Rows, known: dict[str, BatchRecord], passed_over: int
) -> None:
    found = parse_journal(json.dumps(one).encode() + b"\n" for one in notes)
    assert (found.batches, found.passed_over) == (known, passed_over)


@pytest.mark.parametrize("line", [0, 1, -1], ids=["file", "batch", "end"])
def test_a_note_that_is_broken_is_passed_over_and_nothing_is_sent_again(
    four: Project, serve: Serve, line: int
) -> None:
    server = serve(by_place)
    four.run(*BATCH)
    if line == -1:
        four.run(*BATCH)
    path = four.folder / JOURNAL
    lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    lines[line] = lines[line][:-7]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert scores(until_done(four, *BATCH)) == ALL
    assert_sent_once(server)


def test_broken_notes_are_counted_with_other_unreadable_lines(four: Project, serve: Serve) -> None:
    serve(by_place)
    four.run(*BATCH)
    path = four.folder / JOURNAL
    path.write_bytes(path.read_bytes().replace(b'"requests"', b'"request', 1))
    assert f"warning: {JOURNAL}: 2 unreadable lines" in four.run().err


def test_a_journal_from_before_there_were_batches_is_read(four: Project, serve: Serve) -> None:
    server = serve(by_place)
    four.run()
    for line in (lines := journal_of(four)):
        del line["usage"]["cached"], line["fingerprint"]
    four.write(JOURNAL, "".join(json.dumps(line) + "\n" for line in lines))
    outcome = four.run(*BATCH)
    assert (scores(outcome), len(server.calls), server.visits) == (ALL, 4, [])


NAMES = st.text(min_size=1, max_size=5).filter(str.strip)


@repeatable
@given(st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES, st.integers(0, 9)), min_size=1, max_size=5), NAMES)
def test_what_is_noted_is_what_is_read(lines: list[tuple[Any, ...]], file: str) -> None:
    told = {"batch_file": file, "model": LLAMA, "protocol": "verdict", "requests": lines}
    found = parse_journal([evaluation.json_line(told)]).batches
    assert found == {file: BatchRecord(file, LLAMA, "verdict", tuple(BatchLine(*line) for line in lines))}


# ------------------------------------------------------------------ Files, lines, results, states

CUTS = {
    "nothing": ([], 2, []),
    "all in one": ([3, 3], 2, [0, 0]),
    "so many lines": ([1, 1, 1, 1, 1], 2, [0, 0, 1, 1, 2]),
    "so many bytes": ([4, 4, 4, 4], 9, [0, 0, 1, 1]),
    "exactly full": ([5, 5, 5], 9, [0, 0, 1]),
    "one that is too long stands alone": ([11, 1, 12, 1], 9, [0, 1, 2, 3]),
}


@table("sizes, most, files", CUTS)
def test_into_which_file_a_line_goes(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], most: int, files: list[int]
) -> None:
    monkeypatch.setattr(evaluation, "BATCH_BYTES", 10)
    lines = [(place, b"x" * size) for place, size in enumerate(sizes)]
    assert [number for number, _, _ in in_files(lines, most)] == files


@repeatable
@given(st.lists(st.binary(max_size=9), max_size=30), st.integers(1, 5))
def test_every_line_goes_into_one_file_in_order(lines: list[bytes], most: int) -> None:
    found = [*in_files(enumerate(lines), most)]
    assert [(place, line) for _, place, line in found] == [*enumerate(lines)]
    assert max(Counter(number for number, _, _ in found).values(), default=0) <= most


@repeatable
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_lines_are_the_same_wherever_the_pieces_end(content: bytes, cuts: list[int]) -> None:
    content = content.replace(b"\x00", b"\n").replace(b"\x01", b"\r")
    ends = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    pieces = [content[start:end] for start, end in pairwise(ends)]
    assert [*lines_of(pieces)] == [line for line in content.split(b"\n") if line.strip()]


def answered(**changes: Any) -> bytes:
    return json.dumps({"custom_id": "k1", **changes}).encode()


FAULTS: dict[str, tuple[bytes, tuple[str, str | int | None, str]]] = {
    "a failed line": (
        answered(response={"status_code": 400, "body": {"error": {"message": "No.", "code": "bad"}}}),
        ("No.", 400, "bad"),
    ),
    "an expired line": (
        answered(response=None, error={"code": "batch_expired", "message": "Late."}),
        ("Late.", None, "batch_expired"),
    ),
    "nothing": (answered(), ("no reply", None, "")),
    "a body that is text": (answered(response={"status_code": 502, "body": "<html>"}), ("no reply", 502, "")),
    "a completion that is none": (answered(response={"status_code": 200, "body": {}}), ("no reply", 200, "")),
    "an error that is none": (answered(response={"status_code": "x"}, error=[1]), ("no reply", None, "")),
}


@table("line, told", FAULTS)
def test_what_a_line_without_a_reply_says(line: bytes, told: tuple[object, ...]) -> None:
    key, result = batch_result(line)
    assert isinstance(result, ServiceError)
    assert (key, result.message, result.status, result.code) == ("k1", *told)


def test_what_a_line_with_a_reply_says() -> None:
    key, result = batch_result(json.dumps(result_row("k1", 4)).encode())
    assert isinstance(result, evaluation.Reply)
    assert (key, evaluation.judgement_of(result, evaluation.RUBRIC).score) == ("k1", 4)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMED = ("custom_id", "response", "error", "status_code", "body", "id", "status", "request_counts", "errors")


def with_names(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(NAMED), values, max_size=9)


@repeatable
@given(with_names(JSON_VALUES | with_names(JSON_VALUES)))
def test_no_line_is_too_odd(value: Any) -> None:
    key, result = batch_result(json.dumps(value).encode())
    assert key == (value["custom_id"] if type(value.get("custom_id")) is str else key)
    assert isinstance(result, (evaluation.Reply, ServiceError))


@repeatable
@given(with_names(JSON_VALUES | with_names(JSON_VALUES)))
def test_a_state_is_read_or_refused(value: Any) -> None:
    with suppress(ServiceError):
        assert batch_state(value).id == value["id"]


STATES: dict[str, tuple[dict[str, Any], BatchState]] = {
    "just made": ({"status": "validating"}, BatchState("b1", "validating")),
    "in progress": (
        {
            "status": "in_progress",
            "request_counts": {"total": 9, "completed": 4, "failed": 1},
            "expires_at": 99,
        },
        BatchState("b1", "in_progress", total=9, done=5, ends_s=99),
    ),
    "in progress until there are no more years": (
        {"status": "in_progress", "expires_at": 1e300},
        BatchState("b1", "in_progress"),
    ),
    "completed": (
        {"status": "completed", "output_file_id": "f2", "error_file_id": "f3"},
        BatchState("b1", "completed", ("f2", "f3")),
    ),
    "without errors": (
        {"status": "completed", "output_file_id": "f2", "error_file_id": None, "errors": None},
        BatchState("b1", "completed", ("f2",)),
    ),
    "failed": (
        {"status": "failed", "errors": {"data": [{"message": "Bad.", "code": "x"}, {"message": "Worse."}]}},
        BatchState("b1", "failed", reason="Bad.; Worse.", code="x"),
    ),
    "failed at length": (
        {"status": "failed", "errors": {"data": [{"message": "m" * 999}]}},
        BatchState("b1", "failed", reason="m" * 200),
    ),
}


@table("told, state", STATES)
def test_how_far_a_batch_is(told: dict[str, Any], state: BatchState) -> None:
    assert batch_state({"id": "b1", **told}) == state


@pytest.mark.parametrize("value", [None, [], {}, {"id": "b1"}, {"id": 7, "status": "failed"}], ids=str)
def test_what_is_no_batch_is_refused(value: Any) -> None:
    with pytest.raises(ServiceError, match="the answer is not a batch"):
        batch_state(value)


def test_the_same_requests_make_the_same_file() -> None:
    orders = evaluation.orders_for(LLAMA, requests_about(1, 2))
    names = [name for _ in range(2) for name, _, _ in evaluation.batch_files(LLAMA, orders, 9)]
    assert len(set(names)) == 1


def test_other_requests_make_another_file() -> None:
    orders = [evaluation.orders_for(LLAMA, requests_about(place)) for place in (1, 2)]
    names = [name for one in orders for name, _, _ in evaluation.batch_files(LLAMA, one, 9)]
    assert len(set(names)) == 2
