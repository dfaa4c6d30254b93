"""The `questions` command: a model drafts questions, and drafts that break a rule are dropped."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from conftest import Outcome, Project, Serve, document, mentions, posix_only, prompt_of, question, table
from groq_server import Reply, completion, error

Row = dict[str, Any]

DRAFTS = "drafted_questions.jsonl"
FACT, UNANSWERABLE = "precise_fact_retrieval", "unanswerable_from_source"
WHICH = "Which of these facts does the answer give?"
LEVELS = ["nothing", "a lamp", "a lamp that was lit", "the century", "the year 1823"]
LAMP = document(
    "lamp",
    "The lamp at Cordouan was lit in 1823 by Augustin Fresnel.",
    "It burned rape oil.",
    "Keepers wound its clock every four hours.",
)
RAIN = document("weather/rain", "It rained in Lisbon for 40 days.", "It snowed in Oslo.")


@pytest.fixture
def lamps(project: Project) -> Project:
    project.documents(LAMP)
    return project


@pytest.fixture
def both(lamps: Project) -> Project:
    lamps.documents(RAIN)
    return lamps


def drafted(**changes: Any) -> Reply:
    """Return a reply with a draft that breaks no rule, but for the changes."""
    draft = {
        "question": "When was the lamp at Cordouan lit?",
        "answer": "It was lit in 1823.",
        "evidence_sentences": ["S1"],
        "rubric": LEVELS,
    }
    return completion(json.dumps({**draft, **changes}))


def draft(project: Project, *options: str, kind: str = FACT, each: int = 1) -> Outcome:
    return project.run("questions", "--per-document", str(each), "--kinds", kind, *options)


def rows(project: Project) -> list[Row]:
    """Return the questions that were kept; none if there is no file."""
    lines = project.files().get(DRAFTS, b"").splitlines()
    return [json.loads(line) for line in lines]


def dropped(outcome: Outcome) -> dict[str, int]:
    """Return how many drafts were dropped by each rule, as the warnings say."""
    lines = re.findall(r"^warning: dropped: (.+?): (\d+)", "\n".join(outcome.err), re.MULTILINE)
    return {rule: int(count) for rule, count in lines}


def test_a_drafted_question(lamps: Project, serve: Serve) -> None:
    """White space around a text is no fault."""
    serve(drafted(question=" When was the lamp at Cordouan lit? ", evidence_sentences=[" S1\n"]))
    outcome = draft(lamps)
    assert (outcome.code, outcome.out) == (0, f"{DRAFTS}: 1 questions\n")
    assert {*os.listdir()} == {"corpus", DRAFTS, "drafted_questions_judgements.jsonl"}
    [row] = rows(lamps)
    lamps.questions(row)
    lamps.predictions("strong", {"d1ad7c955": {}})
    assert mentions(lamps.run("dev", "--judge").err, "warning: ", "drafted", "d1ad7c955")
    assert re.fullmatch("[0-9a-f]+", row.pop("prompt_hash"))
    assert row == {
        "question_id": "d1ad7c955",  # of document and question alone
        "doc_id": "lamp",
        "question_type": "precise_fact_retrieval",
        "edge_case_type": "none",
        "question": "When was the lamp at Cordouan lit?",
        "answer": "It was lit in 1823.",
        "evidence_sentences": ["S1"],
        "rubric": {"description": WHICH, "scale": dict(zip("12345", LEVELS, strict=True))},
        "synthetic": True,
        "reviewed": False,
        "model": "openai/gpt-oss-20b",
    }


BROKEN: dict[str, tuple[str, Row, str]] = {  # kind, changes of a draft, a word of the rule
    "unknown evidence": (FACT, {"evidence_sentences": ["S1", "S99"]}, "evidence"),
    "no evidence": (FACT, {"evidence_sentences": []}, "evidence"),
    "evidence for the unanswerable": (UNANSWERABLE, {}, "evidence"),
    "four levels": (FACT, {"rubric": LEVELS[:4]}, "levels"),
    "equal levels": (FACT, {"rubric": [*LEVELS[:4], "a  LAMP"]}, "levels"),
    "a blank question": (FACT, {"question": " \u200b"}, "blank"),
    "a blank answer": (FACT, {"answer": ""}, "blank"),
}


@table("kind, changes, word", BROKEN)
def test_a_draft_against_a_rule(lamps: Project, serve: Serve, kind: str, changes: Row, word: str) -> None:
    server = serve(drafted(**changes))
    outcome = draft(lamps, kind=kind)
    [(rule, count)] = dropped(outcome).items()
    assert (outcome.code, word in rule, count, len(server.calls)) == (3, True, 1, 1)
    assert (rows(lamps), outcome.err[-2]) == ([], f"error: no draft was kept: {DRAFTS} was not written")


def test_a_repeated_question_is_dropped(lamps: Project, serve: Serve) -> None:
    """Its ID is made of document and question, and no two questions of a gold set have one ID."""
    serve(lambda call: drafted(question=["When?", "Who?", "When?"][call.number]))
    outcome = draft(lamps, "--workers", "1", each=3)
    assert [row["question"] for row in rows(lamps)] == ["When?", "Who?"]
    assert (outcome.code, dropped(outcome)) == (0, {"a question that repeats an earlier one": 1})


def test_the_next_run_asks_for_what_failed(both: Project, serve: Serve) -> None:
    serve(lambda call: error(400, "bad", "No") if "Lisbon" in prompt_of(call) else drafted())
    outcome = draft(both)
    assert (outcome.code, [row["doc_id"] for row in rows(both)], dropped(outcome)) == (3, ["lamp"], {})
    assert mentions(outcome.err, "weather/rain", "HTTP 400: No", "run again with --overwrite")
    server = serve(drafted())
    assert draft(both, "--overwrite").code == 0
    assert ["rain" in prompt_of(call) for call in server.calls] == [True]
    assert [row["doc_id"] for row in rows(both)] == ["lamp", "weather/rain"]


@pytest.mark.parametrize("pattern", ["weather/rain", "weather/*", "corpus/w*.json"])
def test_documents_are_selected_by_pattern(both: Project, serve: Serve, pattern: str) -> None:
    """A question that cannot be answered has no evidence."""
    server = serve(drafted(evidence_sentences=[]))
    draft(both, "--documents", pattern, kind=UNANSWERABLE)
    assert [row["doc_id"] for row in rows(both)] == ["weather/rain"]
    assert "does not tell the answer" in prompt_of(server.calls[0])


def test_plain_texts_and_long_documents_are_left_out(both: Project) -> None:
    """A document has four characters for each of four fifths of 8,000 tokens, less 1,050 for the reply."""
    both.write("corpus/notes/bees.txt", "Bees dance.")
    both.documents(document("long", "x" * (4 * 5350 - 3)), document("fits", "x" * (4 * 5350 - 4)))
    outcome = draft(both, "--dry-run")
    reason = "left out: documents without sentences, or longer than a minute's tokens allow"
    assert mentions(outcome.err, f"corpus: {reason}: long, notes/bees")
    assert (outcome.code, "Calls to make: 3\n" in outcome.out) == (0, True)
    outcome = draft(both, "--dry-run", "--documents", "notes/*")
    assert (outcome.code, outcome.usage_error) == (2, f"error: corpus: {reason}: notes/bees")


def test_a_file_is_replaced_with_overwrite_alone(lamps: Project, serve: Serve) -> None:
    lamps.write(DRAFTS, "mine")
    server = serve(drafted())
    outcome = draft(lamps)
    assert outcome.usage_error == f"error: {DRAFTS} exists: --overwrite replaces it"
    assert (outcome.code, len(server.calls)) == (2, 0)
    assert lamps.files()[DRAFTS] == b"mine"
    assert (draft(lamps, "--overwrite").code, len(rows(lamps))) == (0, 1)


@posix_only
@pytest.mark.parametrize("command", [("questions",), ("generate", "dev", "--pipeline", "bm25")])
def test_unreadable_document_is_reported(both: Project, command: tuple[str, ...]) -> None:
    both.questions(question("lamp"))
    os.mkfifo("corpus/odd.json")
    outcome = both.run(*command)
    assert mentions(outcome.err, "corpus/odd.json: cannot be read: not a file")
    assert outcome.code == 2
