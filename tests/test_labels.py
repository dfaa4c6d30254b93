"""The sheet that people write their scores in."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Mapping, Sequence

import pytest

from conftest import JudgeWith, Project, Serve, document, mentions, question
from groq_server import score_reply

SHEET, RESULTS = "dev_labels.csv", "dev_evaluation.json"
GOLD_DOCUMENTS = ["d1", "d2", "d3", "d4", "d5", "d6", "d6", "d1"]
IDS = [f"q{number:03d}" for number in range(1, 9)]
JUDGED = [4, 2, 5, 3, 4, 1, 5, 3]


@pytest.fixture
def eight(project: Project, judge_with: JudgeWith) -> Project:
    """Eight questions about six documents; all answers of `strong` are judged."""
    project.questions(*(question(doc_id, question=f"{n}?") for n, doc_id in enumerate(GOLD_DOCUMENTS)))
    project.documents(*(document(doc_id, "It rained.") for doc_id in sorted(set(GOLD_DOCUMENTS))))
    project.predictions("strong", {name: {"answer": f"Answer to {name}."} for name in IDS})
    judge_with({"strong": JUDGED})
    return project


# Blank answers score 1 without being judged, so that nobody needs to label them.
BLANK: list[dict[str, str]] = [{}, {"answer": ""}, {"answer": " \n"}, {"answer": "\u200b"}]


def write_sheet(project: Project, *arguments: str) -> list[dict[str, str]]:
    """Write a new label sheet and return its rows."""
    (project.folder / SHEET).unlink(missing_ok=True)
    assert project.run("dev", "--label-sheet", *arguments).code == 0
    return project.table(SHEET)


def fill_sheet(project: Project, scores: Mapping[str, int | str]) -> None:
    """Give these scores by question ID, and write semicolons, as some programs do."""
    rows = project.table(SHEET)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, rows[0], delimiter=";")
    writer.writeheader()
    writer.writerows({**row, "score": scores.get(row["question_id"], "")} for row in rows)
    project.write(SHEET, stream.getvalue())


ONE_ROW = (
    "\ufeffanswer_id,question_id,criterion,question,gold_answer,answer,rubric,"
    "level_1,level_2,level_3,level_4,level_5,score,note\r\n"
    '{},q001,answer,What is d1?,It is d1.,"A lamp, ""perhaps"".",Is it d1?,'
    "level 1,level 2,level 3,level 4,level 5,,\r\n"
)


def test_a_sheet_with_one_row_is_never_overwritten(project: Project, serve: Serve) -> None:
    server = serve(score_reply(4))
    project.questions(question("d1"))
    project.predictions("strong", {"q001": {"answer": 'A lamp, "perhaps".'}})
    before = project.files()
    outcome = project.run("dev", "--label-sheet")
    assert (outcome.code, outcome.out) == (0, "Label sheet saved to: dev_labels.csv\n")
    [row] = project.table(SHEET)
    assert re.fullmatch("a[0-9a-f]{15}", row["answer_id"])
    assert project.files() == {**before, SHEET: ONE_ROW.format(row["answer_id"]).encode()}
    project.write(SHEET, "filled in")
    problem = f"error: {SHEET} exists and may hold scores: move it away"
    outcome = project.run("dev", "--label-sheet")
    assert (outcome.code, outcome.out, problem in outcome.err) == (2, "", True)
    assert project.files() == {**before, SHEET: b"filled in"}
    assert server.calls == []


def draw(project: Project, keys: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return question IDs and systems as they are drawn: by the SHA-256 of both and of the gold."""
    rows = project.run("dev", "--judge").results["strong"]["retrieval"]["per_question"]
    gold = {row["question_id"]: row["gold_id"] for row in rows}
    return sorted(keys, key=lambda key: hashlib.sha256("\0".join((*key, gold[key[0]])).encode()).digest())


def test_a_sheet_is_drawn_by_a_hash_and_names_nobody(eight: Project) -> None:
    order = [name for name, _ in draw(eight, [(name, "strong") for name in IDS])]
    assert [row["question_id"] for row in write_sheet(eight)] == order
    assert [row["question_id"] for row in write_sheet(eight, "3")] == order[:3]
    eight.predictions("other", {name: {"answer": f"Yes, {name}."} for name in IDS})
    both = write_sheet(eight)
    assert (len(both), {row["score"] for row in both}) == (16, {""})
    assert not mentions([",".join(row.values()) for row in both], "strong")


def test_who_is_drawn_depends_on_the_gold(eight: Project) -> None:
    """Students, who do not have it, cannot choose a name that is never drawn."""
    orders = []
    for answer in ("Oil.", "Gas.", "Coal."):
        rows = (question(name, question=f"{n}?", answer=answer) for n, name in enumerate(GOLD_DOCUMENTS))
        eight.questions(*rows)
        orders.append(tuple(row["question_id"] for row in write_sheet(eight)))
    assert len(set(orders)) == 3


def test_the_sheet_has_the_systems_to_be_judged(eight: Project) -> None:
    for name in ("simple", "other"):
        eight.predictions(name, {"q001": {"answer": f"By {name}."}})
    of_strong = {f"Answer to {name}." for name in IDS}
    assert {row["answer"] for row in write_sheet(eight)} == {*of_strong, "By other."}
    assert [row["answer"] for row in write_sheet(eight, "--judge", "simple")] == ["By simple."]
    assert [row["answer"] for row in write_sheet(eight, "--systems", "other", "simple")] == ["By other."]
    (eight.folder / SHEET).unlink()
    for arguments in (["--judge"], ["--systems", "simple"]):
        outcome = eight.run("dev", "--label-sheet", *arguments)
        problem = "error: no answer is judged, so there is nothing to label: name a system with --judge"
        assert problem in outcome.err
        assert (outcome.code, outcome.out, SHEET in eight.files()) == (2, "", False)


def test_the_sheet_has_the_answers_that_the_judge_sees(eight: Project) -> None:
    eight.questions(question("d1", rubric=None), *(question(f"d{n}") for n in range(2, 8)))
    long = "Yes. " * 4_000  # 20,000 characters are judged
    given = [{"answer": "Yes."}, *BLANK[1:], {"answer": f"{long}In May."}, {"answer": "No."}]
    eight.predictions("strong", dict(zip(IDS, given, strict=False)))
    answers = {row["question_id"]: row["answer"] for row in write_sheet(eight)}
    assert answers == {"q005": f"{long}\n[cut off, as for the judge]", "q006": "No."}


def test_a_filled_in_sheet_with_hostile_names_is_read_back(project: Project, serve: Serve) -> None:
    ids = ["=q1", "+2", "-3", "@q4", "'q5", 'q"9,;', "what is d3?", "q7;=1\n-2"]
    project.questions(*(question(f"d{n}", question_id=name) for n, name in enumerate(ids)))
    project.predictions("-beta", {name: {"answer": "=1\n-2"} for name in ids})
    serve(score_reply(4))
    rows = write_sheet(project)
    assert {row["answer"] for row in rows} == {"'=1\n-2"}  # not a formula
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t"))]
    fill_sheet(project, {row["question_id"]: 4 for row in rows})
    project.run()
    assert project.run("agreement", RESULTS, "--human", SHEET).code == 0
    [judge] = project.read("agreement.json")["people"]["judges"]
    assert (judge["ratings"], judge["items"], judge["accuracy"]) == (len(ids), len(ids), 1)
