"""Random splits, graded from the command line and compared with an independent calculation."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from conftest import FAILED_CALL, SCALE, Project, Serve, pasted, question
from groq_server import Call, Reply, score_reply

Row = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """The files of a split, and the judge's scores: question text -> 1 to 5, or 0 for a failed call."""

    questions: list[Row]
    systems: dict[str, dict[str, Row]]
    documents: dict[str, object]
    scores: dict[str, int]


DOC_IDS = ("d1", "d2", "gold/d3")
IDS = ("q001", "q002", "x", "q003", "q004")
CITED = ("", "S1", "S2", "S1 S2", "S3 S1 S3", "S2 S10", "S3 S2", "s1")
CITATIONS = [names.split() for names in CITED]
TEXTS = (
    ["Oil was dear.", "the LAMP\nburned\u3000oil", "The lamp burned oil."],
    ["É é oil", "oil OIL lamp", "lamp"],
    ["The lamp burned oil."],
)
RUBRIC = {"description": "Is it right?", "scale": SCALE}


def members(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    """Draw objects with one of these values per member. A member that draws ... is left out."""
    rows = st.fixed_dictionaries(values)
    return rows.map(lambda row: {name: value for name, value in row.items() if value is not ...})


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    files: dict[str, object] = {}
    for doc_id in DOC_IDS:
        kind = draw(st.sampled_from([".json", ".json", ".txt", "plain", "missing"]))
        if kind == "plain":
            files[f"{doc_id}.txt"] = "S1 The lamp burned oil."
        elif kind != "missing":
            key = draw(st.sampled_from(["sid", "id"]))
            texts = draw(st.sampled_from(TEXTS))
            rows = [{key: f"S{number}", "text": text} for number, text in enumerate(texts, start=1)]
            files[doc_id + kind] = {"doc_id": doc_id, "sentences": rows}
    return files


@st.composite
def retrieved_docs(draw: st.DrawFn) -> list[str | Row]:
    """Draw documents with a rank each, with a rank for some, as plain IDs, or mixed."""
    ids = draw(st.lists(st.sampled_from([*DOC_IDS, "d3", "d4"]), max_size=7))
    step = draw(st.integers(1, 6))
    ranked = [{"doc_id": doc_id, "rank": (place * step + 3) % 7} for place, doc_id in enumerate(ids)]
    unranked = [{"doc_id": doc_id, "rank": None} for doc_id in ids]
    styles: list[list[str | Row]] = [[*ranked], [*ids], [*ranked[:2], *unranked[2:]], [*ids[:1], *ranked[1:]]]
    return draw(st.sampled_from(styles))


predictions = members(
    question=st.sampled_from(["Question 1?", "Question 1?", ...]),
    answer=st.sampled_from(["Yes.", "Oil.", "é", "", " \n", None, ...]),
    evidence_sentences=st.sampled_from([*CITATIONS, None, ...]),
    retrieved_docs=retrieved_docs() | st.sampled_from([None, ...]),
)


@st.composite
def splits(draw: st.DrawFn) -> Split:
    count = draw(st.integers(1, 5))
    rows = []
    names: list[Any] = []
    for number in range(1, count + 1):
        row = question(draw(st.sampled_from(DOC_IDS)), question=f"Question {number}?", rubric=...)
        row["evidence_sentences"] = draw(st.sampled_from(CITATIONS))
        rubric = draw(st.sampled_from([RUBRIC, RUBRIC, RUBRIC, None, ...]))
        question_id = draw(st.sampled_from([..., None, *IDS]))
        if question_id in [*names, *(f"q{position:03d}" for position in range(1, count + 1))]:
            question_id = ...
        names.append(question_id)
        changes = {"rubric": rubric, "question_id": question_id}
        rows.append({**row, **{name: value for name, value in changes.items() if value is not ...}})
    systems = {}
    for name in draw(st.sampled_from([["strong"], ["strong", "simple"]])):
        drawn = draw(st.lists(predictions, min_size=1, max_size=5))
        systems[name] = dict(zip(IDS, drawn, strict=False))
    first = draw(st.integers(0, 5))
    return Split(
        questions=rows,
        systems=systems,
        documents=draw(documents()),
        scores={f"Question {number}?": (first + number) % 6 for number in range(1, count + 1)},
    )


Grade = Callable[[Split], Any]


@pytest.fixture
def grade(project: Project, serve: Serve) -> Grade:
    """Write a split into a new folder, run the program there with a judge, and return the results file."""
    scores: dict[str, int] = {}

    def judge(call: Call) -> Reply:
        score = scores[pasted(call, "question")]
        return score_reply(score) if score else FAILED_CALL

    serve(judge)

    def grade(split: Split) -> Any:
        scores.clear()
        scores.update(split.scores)
        with tempfile.TemporaryDirectory(dir=project.folder) as folder:
            os.chdir(folder)
            there = Project(Path(folder), project.capture)
            there.questions(*split.questions)
            for system, rows in split.systems.items():
                there.predictions(system, rows)
            for name, content in split.documents.items():
                there.write(f"corpus/{name}", content)
            outcome = there.run()
            os.chdir(project.folder)
        block = outcome.results["strong"]["llm_judge"]
        assert outcome.code == (3 if block["failed_questions"] else 0)
        return outcome.results

    return grade


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each plain value inside a JSON value by its path, and the length of each list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    else:
        yield path, value


NOT_CALCULATED = {
    *("ci95", "ci95_reason", "usage", "judge_model", "reply_models"),
    *("unjudged_questions", "flagged_questions", "prompt_hash"),
}


@pytest.mark.timeout(600)  # with --hypothesis-profile=random it takes a minute
@given(split=splits())
def test_results_equal_the_independent_calculation(grade: Grade, split: Split) -> None:
    results = grade(split)
    assert set(results) == set(split.systems)
    for system, rows in split.systems.items():
        scores = split.scores if system == "strong" else None
        expected = oracle.compute_blocks(split.questions, rows, split.documents, scores)
        for name, block in expected.items():
            found = results[system][name]
            more = found.keys() - block.keys() - NOT_CALCULATED  # of measures that the oracle does not know
            assert block.keys() <= found.keys()
            means = list(found["ci95"])
            assert [key for key in more if not any(key.removesuffix("_sum") in mean for mean in means)] == []
        wanted = dict(leaves(expected))
        values = {path: value for path, value in leaves(results[system]) if path in wanted}
        assert values == pytest.approx(wanted, abs=1e-12)
    block = results["strong"]["llm_judge"]
    failures = [row["question_id"] for row in block["per_question"] if row["failure"] is not None]
    assert failures == block["failed_questions"]
