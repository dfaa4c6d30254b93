"""The sample data: what a machine can check of the gold questions, their rubrics and the predictions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ["1", "2", "3", "4", "5"]
QUESTION_TYPES = {  # that go with an edge case
    "none": {"precise_fact_retrieval", "comparison", "analysis"},
    "numeric_precision": {"precise_fact_retrieval", "comparison"},
    "false_premise": {"analysis"},
    "unanswerable_from_source": {"precise_fact_retrieval"},
}
COMPUTED = {("dev", "q002"): {"450,000"}}  # numbers of gold answers that follow from their evidence


def read_questions() -> dict[tuple[str, str], dict[str, Any]]:
    """Return (split, question ID) -> question."""
    questions = {}
    for split, count in {"train": 24, "dev": 6, "test": 6}.items():
        text = (ROOT / f"NLP Project Data/{split}_final_jsonl.txt").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        assert len(rows) == count
        questions.update({(split, f"q{number:03d}"): row for number, row in enumerate(rows, start=1)})
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
every_question = pytest.mark.parametrize("place", QUESTIONS, ids="-".join)
Place = tuple[str, str]


@every_question
def test_evidence_and_types_agree(place: Place) -> None:
    question = QUESTIONS[place]
    evidence, edge_case = question["evidence_sentences"], question["edge_case_type"]
    assert set(evidence) <= read_sentences(question["doc_id"]).keys()
    assert len(evidence) == len(set(evidence))
    assert (evidence == []) == (edge_case == "unanswerable_from_source")
    assert question["question_type"] in QUESTION_TYPES[edge_case]


@every_question
def test_rubric_has_five_different_levels(place: Place) -> None:
    rubric = QUESTIONS[place]["rubric"]
    assert list(rubric["scale"]) == LEVELS
    assert len({text.casefold() for text in rubric["scale"].values()}) == len(LEVELS)
    assert rubric["description"].strip()


@every_question
def test_an_answer_that_is_none_has_a_level(place: Place) -> None:
    scale = QUESTIONS[place]["rubric"]["scale"]
    assert re.search("not answer|is empty", scale["1"])
    if QUESTIONS[place]["edge_case_type"] == "unanswerable_from_source":
        # The document is not named, but nothing is invented.
        assert [level for level in LEVELS if "does not know" in scale[level]] == ["4"]


@every_question
def test_numbers_of_the_gold_answer_are_in_its_evidence(place: Place) -> None:
    question = QUESTIONS[place]
    sentences = read_sentences(question["doc_id"])
    shown = question["evidence_sentences"] or list(sentences)  # of what is not told: the whole document
    evidence = " ".join(sentences[sid] for sid in shown)
    numbers = set(re.findall(r"\d[\d.,/]*\d|\d", question["answer"]))
    assert {number for number in numbers if number not in evidence} == COMPUTED.get(place, set())


@pytest.mark.parametrize("system", ["simple", "strong"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_predictions_are_of_these_questions(split: str, system: str) -> None:
    predictions = json.loads((ROOT / f"{split}_{system}_output.json").read_text(encoding="utf-8"))
    texts = {name: question["question"] for (of, name), question in QUESTIONS.items() if of == split}
    assert {name: prediction["question"] for name, prediction in predictions.items()} == texts
    answers = [prediction["answer"].rstrip('"” ') for prediction in predictions.values()]
    cut_off = [answer for answer in answers if not answer.endswith((".", "!", "?"))]
    assert system == "simple" or [answer for answer in cut_off if answer] == []
