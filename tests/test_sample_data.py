"""The sample data: what a machine can check of the gold questions, their rubrics and the predictions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPLITS = ("train", "dev", "test")
LEVELS = ["1", "2", "3", "4", "5"]
NO_ANSWER = "not answer|is empty"  # how level 1 speaks of an answer that is none
QUESTION_TYPES = {  # that go with an edge case
    "none": {"precise_fact_retrieval", "comparison", "analysis"},
    "numeric_precision": {"precise_fact_retrieval", "comparison"},
    "false_premise": {"analysis"},
    "unanswerable_from_source": {"precise_fact_retrieval"},
}
COMPUTED = {("dev", "q002"): {"450,000"}}  # numbers of gold answers that follow from their evidence


def read_questions() -> list[tuple[str, str, dict[str, Any]]]:
    """Return (split, question ID, question) of all splits."""
    questions = []
    for split in SPLITS:
        text = (ROOT / f"NLP Project Data/{split}_final_jsonl.txt").read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            questions.append((split, f"q{number:03d}", json.loads(line)))
    return questions


def read_sentences(doc_id: str) -> dict[str, str]:
    """Return the sentences of a document; a plain text is cut as the README says."""
    path = ROOT / f"corpus/{doc_id}.json"
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
        return {sentence["sid"]: sentence["text"] for sentence in document["sentences"]}
    text = (ROOT / f"corpus/{doc_id}.txt").read_text(encoding="utf-8")
    parts = re.split(r"(?<=[.!?])\s+", text.strip())
    return {f"S{number}": part for number, part in enumerate(parts, start=1)}


QUESTIONS = read_questions()
every_question = pytest.mark.parametrize(
    ("split", "name", "question"), QUESTIONS, ids=[f"{split}-{name}" for split, name, _ in QUESTIONS]
)


def test_number_of_questions() -> None:
    counts = [sum(split == one for one, _, _ in QUESTIONS) for split in SPLITS]
    assert counts == [24, 6, 6]


@every_question
def test_evidence(split: str, name: str, question: dict[str, Any]) -> None:
    evidence = question["evidence_sentences"]
    assert set(evidence) <= read_sentences(question["doc_id"]).keys()
    assert len(evidence) == len(set(evidence))
    assert (evidence == []) == (question["edge_case_type"] == "unanswerable_from_source")


@every_question
def test_question_type_and_edge_case_agree(split: str, name: str, question: dict[str, Any]) -> None:
    assert question["question_type"] in QUESTION_TYPES[question["edge_case_type"]]


@every_question
def test_rubric_has_five_different_levels(split: str, name: str, question: dict[str, Any]) -> None:
    scale = question["rubric"]["scale"]
    assert list(scale) == LEVELS
    assert len({text.casefold() for text in scale.values()}) == len(LEVELS)
    assert question["rubric"]["description"].strip()


@every_question
def test_an_answer_that_is_none_has_a_level(split: str, name: str, question: dict[str, Any]) -> None:
    scale = question["rubric"]["scale"]
    assert re.search(NO_ANSWER, scale["1"])
    if question["edge_case_type"] == "unanswerable_from_source":
        assert "does not know" in scale["4"]  # the document is not named, but nothing is invented
        assert not any("does not know" in scale[level] for level in "1235")


@every_question
def test_numbers_of_the_gold_answer_are_in_its_evidence(
    split: str, name: str, question: dict[str, Any]
) -> None:
    sentences = read_sentences(question["doc_id"])
    shown = question["evidence_sentences"] or list(sentences)  # of what is not told: the whole document
    evidence = " ".join(sentences[sid] for sid in shown)
    numbers = set(re.findall(r"\d[\d.,/]*\d|\d", question["answer"]))
    unsupported = {number for number in numbers if number not in evidence}
    assert unsupported == COMPUTED.get((split, name), set())


@pytest.mark.parametrize("system", ["simple", "strong"])
@pytest.mark.parametrize("split", SPLITS)
def test_predictions_are_of_these_questions(split: str, system: str) -> None:
    predictions = json.loads((ROOT / f"{split}_{system}_output.json").read_text(encoding="utf-8"))
    texts = {name: question["question"] for one, name, question in QUESTIONS if one == split}
    assert {name: prediction["question"] for name, prediction in predictions.items()} == texts


@pytest.mark.parametrize("split", SPLITS)
def test_answers_of_strong_are_whole_sentences(split: str) -> None:
    predictions = json.loads((ROOT / f"{split}_strong_output.json").read_text(encoding="utf-8"))
    answers = [prediction["answer"] for prediction in predictions.values() if prediction["answer"].strip()]
    assert [answer for answer in answers if not answer.rstrip('"”').endswith((".", "!", "?"))] == []
