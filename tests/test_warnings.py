"""What silently ruins a grade: the line that each such thing earns, and what comes close but earns none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import evaluation
import pytest

from conftest import QUESTIONS_FILE as QUESTIONS
from conftest import SCALE, Outcome, Project, document, question

STRONG = "dev_strong_output.json"
SIMPLE = "dev_simple_output.json"
ASKED = [question("d1"), question("d2")]
RENAMED = "no gold document is retrieved, but names agree without folder or extension"
TWICE = "IDs that occur more than once, the last counts"


def answer(doc_id: str, **changes: Any) -> dict[str, Any]:
    """A prediction that retrieves and cites the right things, but for the changes."""
    right = {"question": f"What is {doc_id}?", "answer": "It is.", "retrieved_docs": [doc_id]}
    return {**right, "evidence_sentences": ["S1"], **changes}


ANSWERED = {"q001": answer("d1"), "q002": answer("d2")}
CORPUS = {"d1.json": document("d1", "It rained."), "d2.json": document("d2", "It snowed.")}


def grade(
    project: Project,
    questions: list[dict[str, Any]] = ASKED,
    predictions: Mapping[str, Any] | str = ANSWERED,
    corpus: Mapping[str, Any] = CORPUS,
) -> Outcome:
    """A run over these files; with none named, one that there is nothing to say about."""
    project.questions(*questions)
    project.write(STRONG, predictions)
    for name, content in corpus.items():
        project.write(f"corpus/{name}", content)
    return project.run()


def warnings(outcome: Outcome) -> list[str]:
    return [line for line in outcome.err if line.startswith("warning: ")]


WARNED: dict[str, tuple[dict[str, Any], str, str]] = {
    "question ID twice": (
        {
            "questions": [question("d1", question_id="a"), question("d2", question_id="a")],
            "predictions": {"a": {"retrieved_docs": ["d1"]}},
        },
        QUESTIONS,
        "question IDs that occur more than once: 1, e.g. a",
    ),
    "question ID that another has by its place": (
        {"questions": [question("d1", question_id="q002"), question("d2")], "predictions": {"q002": {}}},
        QUESTIONS,
        "question IDs that occur more than once: 1, e.g. q002",
    ),
    "question text twice": (
        {
            "questions": [question("d1"), question("d2", question="what  IS\nd1?")],
            "predictions": {"q001": {}, "q002": {}},
        },
        QUESTIONS,
        "questions whose text occurred before: 1, e.g. q001 and q002",
    ),
    "drafted by a model": (
        {
            "questions": [
                question("d1", synthetic=True),
                question("d2", synthetic=True, reviewed=True),
                question("d3", synthetic=False),
            ],
            "predictions": {"q001": {}, "q002": {}, "q003": {}},
        },
        QUESTIONS,
        "questions that a model drafted and no person has checked: 1, e.g. q001",
    ),
    "rubric without levels 2 and 4": (
        {
            "questions": [
                question("d1"),
                question("d2", rubric={"scale": {**dict.fromkeys("135", "x"), "4": " "}}),
            ]
        },
        QUESTIONS,
        "rubrics that lack a level: 1, e.g. q002 lacks 2, 4",
    ),
    "empty rubric": (
        {"questions": [question("d1", rubric={}), question("d2")]},
        QUESTIONS,
        "rubrics that lack a level: 1, e.g. q001 lacks 1, 2, 3, 4, 5",
    ),
    "all documents missing": (
        {"corpus": {}},
        QUESTIONS,
        "gold documents that are not in the corpus: 2, e.g. d1",
    ),
    "most documents missing": (
        {
            "questions": [*ASKED, question("d3")],
            "predictions": {**ANSWERED, "q003": answer("d3")},
            "corpus": {"d2.json": CORPUS["d2.json"]},
        },
        QUESTIONS,
        "gold documents that are not in the corpus: 2, e.g. d1",
    ),
    "document outside the corpus": (
        {"questions": [question("../d1", question="What is d1?"), question("d2")]},
        QUESTIONS,
        "gold documents outside the corpus folder, not opened: 1, e.g. ../d1",
    ),
    "text file that is broken JSON": (
        {"corpus": {"d1.txt": '{"sentences": [', "d2.json": CORPUS["d2.json"]}},
        QUESTIONS,
        "gold documents that look like JSON but cannot be read as it: 1, e.g. d1",
    ),
    "text file that is JSON but no document": (
        {"corpus": {"d1.txt": ' {"text": "It rained."}', "d2.json": CORPUS["d2.json"]}},
        QUESTIONS,
        "gold documents that look like JSON but cannot be read as it: 1, e.g. d1",
    ),
    "gold sentences that the document lacks": (
        {"questions": [question("d1", evidence_sentences=["S9", "S1", "S10"]), question("d2")]},
        QUESTIONS,
        "questions with gold sentences that are not in their document: 1, e.g. q001: S10, S9 in d1",
    ),
    "prediction missing": (
        {"predictions": {"q001": answer("d1")}},
        STRONG,
        "questions without a prediction, counted as misses: 1, e.g. q002",
    ),
    "no predictions": (
        {"predictions": {}},
        STRONG,
        "questions without a prediction, counted as misses: 2, e.g. q001",
    ),
    "prediction too many": (
        {"predictions": {**ANSWERED, "q9": {}, "q3": {}}},
        STRONG,
        "predictions for IDs that no question has: 2, e.g. q3",
    ),
    "prediction twice": (
        {"predictions": '{"q002": {}, "q001": {}, "q002": {"retrieved_docs": ["d2"]}}'},
        STRONG,
        f"{TWICE}: 1, e.g. q002",
    ),
    "predictions swapped": (
        {"predictions": {"q001": answer("d2"), "q002": answer("d1")}},
        STRONG,
        "predictions with another question's text: 2, e.g. q001 has the text of q002",
    ),
    "question of another split": (
        {"predictions": {"q001": answer("d1"), "q002": answer("d2", question="What is d7?")}},
        STRONG,
        "predictions with a question text that no question has: 1, e.g. q002",
    ),
    "folder in the gold name": (
        {
            "questions": [question("gold/d1", question="What is d1?"), question("d2")],
            "predictions": {"q001": answer("d1"), "q002": answer("d2", retrieved_docs=[])},
            "corpus": {"gold/d1.json": CORPUS["d1.json"], "d2.json": CORPUS["d2.json"]},
        },
        STRONG,
        f"{RENAMED}: 1, e.g. gold gold/d1 against retrieved d1",
    ),
    "folder in the retrieved names": (
        {
            "predictions": {
                "q001": answer("d1", retrieved_docs=["corpus\\d1"]),
                "q002": answer("d2", retrieved_docs=["corpus/d2"]),
            }
        },
        STRONG,
        f"{RENAMED}: 2, e.g. gold d1 against retrieved corpus\\d1",
    ),
    "extension in the retrieved names": (
        {
            "predictions": {
                "q001": answer("d1", retrieved_docs=["d1.json"]),
                "q002": answer("d2", retrieved_docs=["d1.json"]),
            }
        },
        STRONG,
        f"{RENAMED}: 1, e.g. gold d1 against retrieved d1.json",
    ),
}


@pytest.mark.parametrize(("files", "file", "finding"), WARNED.values(), ids=WARNED)
def test_earns_one_line_on_stderr_and_in_the_results(
    project: Project, files: dict[str, Any], file: str, finding: str
) -> None:
    outcome = grade(project, **files)
    assert warnings(outcome) == [f"warning: {file}: {finding}"]
    assert outcome.results["strong"]["run"]["warnings"] == [f"{file}: {finding}"]
    assert outcome.code == 0


HALF_MISSING = {"d2.json": CORPUS["d2.json"]}
NOT_WARNED: dict[str, dict[str, Any]] = {
    "all is well": {},
    "exactly half of the documents missing": {"corpus": HALF_MISSING},
    "plain text document": {"corpus": {"d1.txt": "It rained.", **HALF_MISSING}},
    "text file that begins with a bracket": {"corpus": {"d1.txt": "[1] It rained.", **HALF_MISSING}},
    "gold sentences of a plain text document": {
        "questions": [question("d1", evidence_sentences=["S9"]), question("d2")],
        "corpus": {"d1.txt": "It rained.", **HALF_MISSING},
    },
    "gold sentences of a missing document": {
        "questions": [question("d1", evidence_sentences=["S9"]), question("d2")],
        "corpus": HALF_MISSING,
    },
    "no gold sentences": {"questions": [question("d1", evidence_sentences=[]), question("d2")]},
    "cited sentence that the document lacks": {
        "predictions": {**ANSWERED, "q001": answer("d1", evidence_sentences=["S9"])}
    },
    "two questions about one document": {
        "questions": [question("d1"), question("d1", question="What is d2?")]
    },
    "question ID that is its own by place": {"questions": [question("d1", question_id="q001"), ASKED[1]]},
    "no rubric": {"questions": [question("d1", rubric=...), question("d2", rubric=None)]},
    "rubric with more levels": {
        "questions": [question("d1", rubric={"scale": {**SCALE, "0": "x", "6": None}}), ASKED[1]]
    },
    "blank answer": {"predictions": {**ANSWERED, "q001": answer("d1", answer=" ")}},
    "prediction without question text": {"predictions": {**ANSWERED, "q001": answer("d1", question="")}},
    "question text in other case and spacing": {
        "predictions": {**ANSWERED, "q001": answer("d1", question="  WHAT is\n\td1? ")}
    },
    "nothing retrieved": {
        "predictions": {"q001": answer("d1", retrieved_docs=[]), "q002": answer("d2", retrieved_docs=[])}
    },
    "wrong documents retrieved": {
        "predictions": {
            "q001": answer("d1", retrieved_docs=["d7", "gold/d8"]),
            "q002": answer("d2", retrieved_docs=["d9"]),
        }
    },
    "names agree without folder, but some gold is retrieved": {
        "predictions": {**ANSWERED, "q001": answer("d1", retrieved_docs=["gold/d1"])}
    },
    "gold retrieved for another question only": {
        "predictions": {
            "q001": answer("d1", retrieved_docs=["d2"]),
            "q002": answer("d2", retrieved_docs=["gold/d2"]),
        }
    },
}


@pytest.mark.parametrize("files", NOT_WARNED.values(), ids=NOT_WARNED)
def test_earns_no_line(project: Project, files: dict[str, Any]) -> None:
    outcome = grade(project, **files)
    assert warnings(outcome) == []
    assert outcome.results["strong"]["run"]["warnings"] == []


def test_every_finding_is_in_the_table() -> None:
    found = [*evaluation.gold_findings([], {}), *evaluation.prediction_findings([], {}, [])]
    assert {finding.split(": ")[0] for *_, finding in WARNED.values()} == {what for what, _ in found}


def test_a_warning_about_the_questions_is_said_once_and_stands_with_both_systems(project: Project) -> None:
    project.write(SIMPLE, {"q002": answer("d2")})
    outcome = grade(project, corpus={})
    documents = f"{QUESTIONS}: gold documents that are not in the corpus: 2, e.g. d1"
    missing = f"{SIMPLE}: questions without a prediction, counted as misses: 1, e.g. q001"
    assert warnings(outcome) == [f"warning: {documents}", f"warning: {missing}"]
    assert outcome.results["simple"]["run"]["warnings"] == [documents, missing]
    assert outcome.results["strong"]["run"]["warnings"] == [documents]


def test_nothing_is_repaired(project: Project) -> None:
    renamed = {"q001": answer("d1", retrieved_docs=["gold/d1"]), "q002": answer("d2", retrieved_docs=[])}
    assert grade(project, predictions=renamed).results["strong"]["retrieval"]["recall_at_5"] == 0
