"""The `questions` command: a model drafts questions, and drafts that break a rule are dropped."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conftest import Outcome, Project, Serve, document, mentions, posix_only, prompt_of, question, table
from groq_server import RPD, Call, Reply, completion, error, model_gone, rate_limited

Row = dict[str, Any]
Answer = Callable[[Call], Reply]

DRAFTS = "drafted_questions.jsonl"
LLAMA, GPT_OSS = "llama-3.1-8b-instant", "openai/gpt-oss-20b"
FACT, UNANSWERABLE = "precise_fact_retrieval", "unanswerable_from_source"
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


def drafted(**changes: Any) -> Row:
    """Return a draft on the lamp, as a model writes it."""
    draft = {
        "question": "When was the lamp at Cordouan lit?",
        "answer": "It was lit in 1823.",
        "evidence_sentences": ["S1"],
        "rubric": LEVELS,
    }
    return {**draft, **changes}


DRAFT_ON_RAIN = drafted(
    question="How long did it rain in Lisbon?", answer="It rained for 40 days.", rubric=[*"vwxyz"]
)
DRAFT_WITHOUT_ANSWER = drafted(
    question="How heavy was its lens?", answer="The document does not say.", evidence_sentences=[]
)


def good_draft(call: Call) -> Row:
    """Return a draft that breaks no rule, for the document and the kind that the call names."""
    if "does not tell the answer" in prompt_of(call):
        return DRAFT_WITHOUT_ANSWER
    return DRAFT_ON_RAIN if "Lisbon" in prompt_of(call) else drafted()


def is_draft_call(call: Call) -> bool:
    return str(call.body["messages"][0]["content"]).startswith("You write an exam question")


def service(draft: Row | Callable[[Call], Row] = good_draft, answerable: bool | None = None) -> Answer:
    """Return a model that writes this draft and checks it.

    `answerable`: whether it finds the answer in the evidence; None: unless the draft is unanswerable.
    """

    def answer(call: Call) -> Reply:
        if is_draft_call(call):
            return completion(json.dumps(draft(call) if callable(draft) else draft))
        told = "How heavy" not in prompt_of(call) if answerable is None else answerable
        return completion(json.dumps({"told": told, "answer": "In my words.", "sentences": []}))

    return answer


def draft(project: Project, *options: str, kinds: Sequence[str] = (FACT,), each: int = 1) -> Outcome:
    return project.run("questions", "--per-document", str(each), "--kinds", *kinds, *options)


def rows(project: Project) -> list[Row]:
    """Return the questions that were kept; none if there is no file."""
    lines = project.files().get(DRAFTS, b"").splitlines()
    return [json.loads(line) for line in lines]


def dropped(outcome: Outcome) -> dict[str, int]:
    """Return how many drafts were dropped by each rule, as the console shows it."""
    lines = re.findall(r"^dropped: (.+?) +(\d+)$", outcome.out, re.MULTILINE)
    return {rule: int(count) for rule, count in lines}


def test_a_drafted_question(lamps: Project, serve: Serve) -> None:
    serve(service())
    outcome = draft(lamps)
    assert (outcome.code, mentions(outcome.out.splitlines(), "kept", "1")) == (0, True)
    assert {*os.listdir()} == {"corpus", DRAFTS, "drafted_questions_judgements.jsonl"}
    [row] = rows(lamps)
    lamps.questions(row)
    lamps.predictions("strong", {"d1ad7c955": {}})
    assert mentions(lamps.run("dev", "--no-judge").err, "warning: ", "drafted", "d1ad7c955")
    assert re.fullmatch("[0-9a-f]+", row.pop("prompt_hash"))
    assert row == {
        "question_id": "d1ad7c955",  # of document and question alone
        "doc_id": "lamp",
        "question_type": "precise_fact_retrieval",
        "edge_case_type": "none",
        "question": "When was the lamp at Cordouan lit?",
        "answer": "It was lit in 1823.",
        "evidence_sentences": ["S1"],
        "rubric": {
            "description": "Which of these facts does the answer give?",
            "scale": dict(zip("12345", LEVELS, strict=True)),
        },
        "synthetic": True,
        "reviewed": False,
        "model": LLAMA,
    }


NO_EVIDENCE: Row = {"evidence_sentences": []}
BROKEN: dict[str, tuple[str, Row, str]] = {  # kind, changes of a draft, a word of the rule
    "unknown evidence": (FACT, {"evidence_sentences": ["S1", "S99"]}, "evidence"),
    "no evidence": (FACT, {**NO_EVIDENCE, "answer": "At night."}, "evidence"),
    "evidence for the unanswerable": (UNANSWERABLE, {}, "evidence"),
    "an unknown number": (FACT, {"answer": "It was lit in 1822."}, "number"),
    "a number of another sentence": (FACT, {"evidence_sentences": ["S2"]}, "number"),
    "a number of the question alone": (FACT, {"question": "Why 1822?", "answer": "In 1822."}, "number"),
    "a number without evidence": (UNANSWERABLE, {**NO_EVIDENCE, "answer": "Perhaps 1823."}, "number"),
    "four levels": (FACT, {"rubric": LEVELS[:4]}, "levels"),
    "equal levels": (FACT, {"rubric": [*LEVELS[:4], "a  LAMP"]}, "levels"),
    "a blank question": (FACT, {"question": " \u200b"}, "blank"),
    "a blank answer": (FACT, {"answer": ""}, "blank"),
}


@table("kind, changes, word", BROKEN)
def test_a_draft_that_breaks_a_rule_is_dropped(
    lamps: Project, serve: Serve, kind: str, changes: Row, word: str
) -> None:
    server = serve(service(drafted(**changes)))
    outcome = draft(lamps, kinds=[kind])
    [(rule, count)] = dropped(outcome).items()
    assert (outcome.code, word in rule, count, len(server.calls)) == (3, True, 1, 1)
    assert (rows(lamps), mentions(outcome.err, "no draft", f"{DRAFTS} was not written")) == ([], True)


SOUND: dict[str, tuple[str, Row]] = {
    "a number with a separator": (FACT, {"answer": "It was lit in 1,823."}),
    "a false number": ("false_premise", {"question": "Lit in 1999?", "answer": "Not in 1999 but in 1823."}),
    "white space": (FACT, {"question": " When? ", "evidence_sentences": [" S1\n"]}),
}


@table("kind, changes", SOUND)
def test_a_draft_that_breaks_no_rule_is_kept(lamps: Project, serve: Serve, kind: str, changes: Row) -> None:
    serve(service(drafted(**changes)))
    outcome = draft(lamps, kinds=[kind])
    [row] = rows(lamps)
    assert (outcome.code, dropped(outcome), row["question"]) == (0, {}, row["question"].strip())


# Shared words divided by all words of the two, without function words: more than 0.7 is a repetition.
SIMILAR: dict[str, tuple[str, str, int]] = {
    "the same but for function words and case": ("Who built the LAMP?", "who had built a lamp", 1),
    "0.7": ("a1 a2 a3 a4 a5 a6 a7 b1", "a1 a2 a3 a4 a5 a6 a7 c1 c2", 2),
    "0.8": ("a1 a2 a3 a4 a5 a6 a7 b1", "a1 a2 a3 a4 a5 a6 a7 b1 c1 c2", 1),
}


@table("one, other, n_kept", SIMILAR)
def test_a_repeated_question_is_dropped(
    lamps: Project, serve: Serve, one: str, other: str, n_kept: int
) -> None:
    lamps.documents(document("other", "The lamp was lit in 1823."))
    texts = iter([one, other])
    serve(service(lambda _: drafted(question=next(texts))))
    outcome = draft(lamps, "--workers", "1")
    assert (outcome.code, len(rows(lamps)), sum(dropped(outcome).values())) == (0, n_kept, 2 - n_kept)


EVIDENCE, DOCUMENT = [True, False, False], [True, True, True]  # the sentences shown
CHECKS: dict[str, tuple[str, list[bool], bool, int]] = {  # ..., is answered, drafts kept
    "answered by its evidence": (FACT, EVIDENCE, True, 1),
    "not answered by its evidence": (FACT, EVIDENCE, False, 0),
    "unanswerable, as it should be": (UNANSWERABLE, DOCUMENT, False, 1),
    "answerable after all": (UNANSWERABLE, DOCUMENT, True, 0),
}


@table("kind, shown, answerable, n_kept", CHECKS)
def test_a_draft_that_fails_the_check_is_dropped(
    lamps: Project, serve: Serve, kind: str, shown: list[bool], answerable: bool, n_kept: int
) -> None:
    server = serve(service(answerable=answerable))
    outcome = draft(lamps, kinds=[kind])
    drafting, check = server.calls
    assert [sentence["text"] in prompt_of(check) for sentence in LAMP["sentences"]] == shown
    assert good_draft(drafting)["question"] in prompt_of(check)
    assert good_draft(drafting)["answer"] not in prompt_of(check)
    assert (outcome.code, len(rows(lamps))) == (0 if n_kept else 3, n_kept)
    assert sum(dropped(outcome).values()) == 1 - n_kept


def test_drafts_are_checked_by_the_model_that_wrote_the_last(both: Project, serve: Serve) -> None:
    good = service()
    server = serve(lambda call: model_gone() if call.body["model"] == LLAMA else good(call))
    draft(both, "--workers", "1", kinds=[FACT, UNANSWERABLE], each=2)
    # The second unanswerable question repeats the first, so it is not checked.
    assert [is_draft_call(call) for call in server.calls] == [True] * 5 + [False] * 3
    assert [call.body["model"] for call in server.calls] == [LLAMA] + [GPT_OSS] * 7  # the successor
    assert [row["model"] for row in rows(both)] == [GPT_OSS] * 3


@pytest.mark.parametrize("drafting", [True, False])
def test_the_next_run_asks_for_what_failed(both: Project, serve: Serve, drafting: bool) -> None:
    good = service()
    lost = error(400, "bad", "No")
    serve(
        lambda call: lost if is_draft_call(call) == drafting and "Lisbon" in prompt_of(call) else good(call)
    )
    outcome = draft(both)
    assert (outcome.code, [row["doc_id"] for row in rows(both)], dropped(outcome)) == (3, ["lamp"], {})
    assert mentions(outcome.out.splitlines(), "HTTP 400: No", "1")
    assert mentions(outcome.err, "1", "run again", "--overwrite")
    server = serve(service())
    assert draft(both, "--overwrite").code == 0
    assert all("rain" in prompt_of(call) for call in server.calls)
    assert [row["doc_id"] for row in rows(both)] == ["lamp", "weather/rain"]


@pytest.mark.parametrize("n_before", [1, 3])  # while drafting, while checking
def test_at_the_limit_of_the_day_nothing_is_lost(both: Project, serve: Serve, n_before: int) -> None:
    good, limit = service(), rate_limited(RPD, 14_400, 5780)
    server = serve(lambda call: good(call) if call.number < n_before else limit)
    outcome = draft(both, "--workers", "1")
    assert (outcome.code, rows(both), len(server.calls)) == (3, [], n_before + 1)
    assert mentions(outcome.err, "error: asking the model ended early: ", "RPD 14400", "1:36:20")
    paid = [call.body for call in server.calls[:n_before]]
    server = serve(service())
    assert (draft(both, "--workers", "1").code, len(rows(both))) == (0, 2)
    assert [call.body for call in server.calls if call.body in paid] == []


def test_in_batches_each_step_takes_a_run(both: Project, serve: Serve) -> None:
    server = serve(service())
    codes: list[int] = []
    while 0 not in codes and len(codes) < 5:
        codes.append(draft(both, "--batch").code)
    assert codes[:-1] == [3] * len(server.batches)
    assert (codes[-1], len(rows(both)), len(server.calls), server.paid_twice) == (0, 2, 0, 0)


@pytest.mark.parametrize("pattern", ["weather/rain", "weather/*", "corpus/w*.json"])
def test_documents_are_selected_by_pattern(both: Project, serve: Serve, pattern: str) -> None:
    serve(service())
    draft(both, "--documents", pattern)
    assert [row["doc_id"] for row in rows(both)] == ["weather/rain"]


def test_plain_texts_and_long_documents_are_left_out(both: Project, serve: Serve) -> None:
    """A document has four characters for each of four fifths of the tokens, less 610 for the reply."""
    both.write("corpus/notes/bees.txt", "Bees dance.")
    outcome = draft(both, "--dry-run", "--tpm", "794")  # room for two of the three sentences on the lamp
    assert mentions(outcome.err, "corpus", "left out", "--tpm", "lamp, notes/bees")
    assert (outcome.code, "Calls to make: 1\n" in outcome.out) == (0, True)
    assert "Calls to make: 2\n" in draft(both, "--dry-run", "--tpm", "1000").out
    outcome = draft(both, "--tpm", "500")  # no room at all
    assert (outcome.code, mentions(outcome.err, "error: ", "--tpm")) == (2, True)


REFUSED = {
    "a folder": ("corpus --overwrite", "--out corpus"),
    "no such folder": ("sets/gold.jsonl", "--out sets/gold.jsonl"),
    "a journal": ("a_judgements.jsonl", "--out a_judgements.jsonl"),
    "an existing file": ("mine.jsonl", "--overwrite"),
}


@table("out, words", REFUSED)
def test_a_place_that_cannot_be_written_is_refused(
    lamps: Project, serve: Serve, out: str, words: str
) -> None:
    lamps.write("mine.jsonl", "mine")
    server, before = serve(service()), lamps.files()
    outcome = draft(lamps, "--out", *out.split())
    assert (outcome.code, mentions(outcome.err, words), len(server.calls)) == (2, True, 0)
    assert lamps.files() == before


@posix_only
@pytest.mark.parametrize("command", [("questions",), ("generate", "dev", "--pipeline", "bm25")])
def test_unreadable_folder_of_documents_is_reported(both: Project, command: tuple[str, ...]) -> None:
    both.questions(question("lamp"))
    os.mkfifo("corpus/odd.json")
    assert mentions(both.run(*command).err, "corpus/odd.json: cannot be read: not a file")
    os.remove("corpus/odd.json")
    (both.folder / "corpus/weather").chmod(0)
    outcome = both.run_unprivileged(*command)
    (both.folder / "corpus/weather").chmod(0o755)
    assert mentions(outcome.err, "corpus/weather: cannot be read: Permission denied")
    assert outcome.code == 2
