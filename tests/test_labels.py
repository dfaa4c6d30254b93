"""Human labels: the sheet that they are written in, reading it back, and how well judge and people agree."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import evaluation
import pytest

from conftest import JudgeWith, Outcome, Project, Serve, document, mentions, question, table
from groq_server import score_reply

SHEET, RESULTS = "dev_labels.csv", "dev_evaluation.json"
GOLD_DOCUMENTS = ["d1", "d2", "d3", "d4", "d5", "d6", "d6", "d1"]
IDS = [f"q{number:03d}" for number in range(1, 9)]
JUDGED = [4, 2, 5, 3, 4, 1, 5, 3]
PEOPLE = [4, 3, 5, 1, 4, 2]


@pytest.fixture
def eight(project: Project, judge_with: JudgeWith) -> Project:
    """Eight questions about six documents; all answers of `strong` are judged."""
    project.questions(*(question(doc_id, question=f"{n}?") for n, doc_id in enumerate(GOLD_DOCUMENTS)))
    project.documents(*(document(doc_id, "It rained.") for doc_id in sorted(set(GOLD_DOCUMENTS))))
    project.predictions("strong", {name: {"answer": f"Answer to {name}."} for name in IDS})
    judge_with({"strong": JUDGED})
    return project


HEAD, FIRST, SECOND = "question_id,system,score,rater", "q001,strong,4,anna", "q002,strong,3,anna"


def labels_csv(scores: Mapping[str, Sequence[int | None]], system: str = "strong") -> str:
    """Return the scores of these raters for q001, q002, ...; None is no score."""
    lines = [HEAD]
    for rater, given in scores.items():
        for name, score in zip(IDS, given, strict=False):
            if score is not None:
                lines.append(f"{name},{system},{score},{rater}")
    return "\n".join(lines)


def run_with_labels(project: Project, content: object, *arguments: str) -> Outcome:
    project.write("labels.csv", content)
    return project.run("dev", "--human", "labels.csv", *arguments)


def human_results(outcome: Outcome, system: str = "strong") -> dict[str, Any]:
    results: dict[str, Any] = outcome.results[system]["llm_judge"]["human"]
    return results


# ------------------------------------------------------------------ Reading labels

ROWS = [
    {"question_id": "q001", "system": "strong", "score": 4, "rater": "anna"},
    {"question_id": "q002", "system": "strong", "score": 3, "rater": "anna"},
]
FORMS: dict[str, object] = {
    "commas": f"{HEAD}\n{FIRST}\n{SECOND}\n",
    "tabs": f"{HEAD}\n{FIRST}\n{SECOND}\n".replace(",", "\t"),
    "byte-order mark": f"\ufeff{HEAD}\n{FIRST}\n{SECOND}\n",
    "blank lines": f"\n{HEAD}\n\n{FIRST}\n,,,\n{SECOND}\n\n",
    "spaces and capitals": f" Question_ID, SYSTEM ,score,rATER\n q001 , strong , 4 , anna \n{SECOND}",
    "another order of columns": "rater,score,system,question_id\nanna,4.0,strong,q001\nanna,3,strong,q002",
    "line breaks and quotes in cells": "question_id,system,answer,score,rater\n"
    'q001,strong,"a ""b"";\n\nc,d\t",4,anna\r\nq002,strong,"e\r\nf",3,anna\n',
    "another separator in cells": "question_id;system;answer;score;rater\n"
    "q001;strong;a,b,c,d,e;4;anna\nq002;strong;;3;anna",
    "JSON": ROWS,
    "JSON with more": [
        *({**row, "note": [1]} for row in ROWS),
        {"question_id": "q003", "system": "strong", "score": None, "rater": None},
        {"question_id": "q003", "system": "strong"},
    ],
}


def test_forms_of_label_files(eight: Project) -> None:
    found = {}
    for form, content in FORMS.items():
        human = human_results(run_with_labels(eight, content))
        found[form] = (human["labels"], human["raters"], human["judge_minus_human_by_level"])
    assert found == dict.fromkeys(FORMS, (2, 1, {"3": -1, "4": 0}))


WHOLE = "score: expected a whole number from 1 to 5, got"
IN_JSON = """[{"question_id": "q9", "system": "weak", "score": 4},
{"question_id": "q001", "system": "strong", "score": 4, "rater": "anna"},
{"question_id": ["q001"], "system": {}, "rater": 7, "score": "4"},
{"question_id": "q001", "system": "strong", "score": 4, "rater": "anna"}, 5]"""
PROBLEMS_IN_JSON = [
    "1: [0]: question_id: unknown question ID: q9",
    "1: [0]: system: unknown system: weak",
    "3: [2]: question_id: expected a string, got a list",
    "3: [2]: system: expected a string, got an empty object",
    f'3: [2]: {WHOLE} "4"',
    "3: [2]: rater: expected a string, got 7",
    "4: [4]: expected an object, got 5",
    "4: [3]: two scores by anna for q001 of strong",
]
PROBLEMS: dict[str, tuple[object, list[str]]] = {  # the file, starts of the messages about it
    "empty file": ("", ["1: no score; expected a list of rows with question_id, system and score"]),
    "no column of questions": ("system,score\nstrong,4", ["2: question_id is missing"]),
    "true": ([{**ROWS[0], "score": True}], [f"1: [0]: {WHOLE} true"]),
    "rows of several lines": (
        'question_id,system,answer,score\nq001,strong,"a\nb\nc",4\n\nq9,strong,"d\ne",4\n',
        ["6: question_id: unknown question ID: q9"],
    ),
    "several": (
        f"{HEAD}\nq9,weak,4\n{FIRST}\nq002,strong,7\n{FIRST}",
        ["2: question_id: unknown", "2: system: unknown", f"4: {WHOLE} 7", "5: two scores by anna"],
    ),
    "no rater": (f"{HEAD}\nq001,strong,4\nq001,strong,5", ["3: two scores by the same person for q001"]),
    "several in JSON": (IN_JSON, PROBLEMS_IN_JSON),
    "not UTF-8": (f"{HEAD}\n".encode() + b"q001,strong,4,M\xfcller", ["2: not UTF-8: byte 0xfc"]),
}


@table("content, problems", PROBLEMS)
def test_problems_in_labels(eight: Project, content: object, problems: list[str]) -> None:
    eight.write("labels.csv", content)
    before = eight.files()
    outcome = eight.run("dev", "--human", "labels.csv")
    listed = [line for line in outcome.err if line.startswith("labels.csv:")]
    for line, start in zip(listed, problems, strict=True):
        assert line.startswith(f"labels.csv:{start}")
    assert (outcome.code, outcome.out, eight.files()) == (2, "", before)


# ------------------------------------------------------------------ Agreement of judge and people


CONSOLE = """\
Average Combined Score (0-1): 0.34
Labels by people: 6 by 1, on 6 questions
Judge and people agree: 50%, within 1: 83%
Weighted kappa: 0.72, Krippendorff's alpha: 0.84
Judge minus people by people's level: 1: +2.00, 2: -1.00, 3: -1.00, 4: +0.00, 5: +0.00
Average Answer Score of 8 corrected by people, if these are a random sample: 3.38 [2.12, 4.63]

===="""


def test_agreement_by_hand(eight: Project) -> None:
    outcome = run_with_labels(eight, labels_csv({"anna": PEOPLE}))
    alpha = evaluation.krippendorff_alpha([JUDGED[:6], PEOPLE], "ordinal")
    _, low, high = evaluation.corrected_mean(JUDGED, [*PEOPLE, None, None], GOLD_DOCUMENTS)
    assert human_results(outcome) == {
        "name": "labels.csv",
        "sha256": hashlib.sha256(eight.files()["labels.csv"]).hexdigest(),
        "labels": 6,
        "raters": 1,
        "questions": 6,
        "exact_agreement": 3 / 6,
        "agreement_within_1": 5 / 6,
        "weighted_kappa": pytest.approx(1 - 6 * 6 / 130, abs=1e-12),  # squares: 6 observed, 130 crosswise
        "krippendorff_alpha": alpha,
        "krippendorff_alpha_of_people": None,
        "judge_minus_human_by_level": {"1": 2, "2": -1, "3": -1, "4": 0, "5": 0},
        "answers_judged": 8,
        "labelled_in_sheet_order": False,
        "corrected_answer_score": pytest.approx(27 / 8 + 0, abs=1e-12),
        "ci95": {"corrected_answer_score": [low, high]},
    }
    assert CONSOLE in outcome.out


THREE_RATERS: dict[str, list[int | None]] = {
    "anna": [4, 3, 5, 1, 4, 2, None, None],
    "ben": [5, None, 5, 2, 4, 1, 4, None],
    "cleo": [None, 2, 4, 2, 5, 1, 4, None],
}


def test_several_raters(eight: Project) -> None:
    found = human_results(run_with_labels(eight, labels_csv(THREE_RATERS)))
    assert (found["labels"], found["raters"], found["questions"]) == (18, 3, 7)
    assert (found["exact_agreement"], found["agreement_within_1"]) == (8 / 18, 17 / 18)
    assert found["weighted_kappa"] == pytest.approx(1 - 18 * 13 / 1330, abs=1e-12)  # over all pairs
    raters = list(THREE_RATERS.values())
    assert found["krippendorff_alpha"] == evaluation.krippendorff_alpha([JUDGED, *raters], "ordinal")
    assert found["krippendorff_alpha_of_people"] == evaluation.krippendorff_alpha(raters, "ordinal")
    assert found["judge_minus_human_by_level"] == pytest.approx(
        {"1": 2 / 3, "2": 1 / 4, "3": -1, "4": 3 / 6, "5": -1 / 2}
    )
    means_of_people = [4.5, 2.5, 14 / 3, 5 / 3, 13 / 3, 4 / 3, 4, None]
    corrected = evaluation.corrected_mean(JUDGED, means_of_people, GOLD_DOCUMENTS)
    interval = found["ci95"]["corrected_answer_score"]
    assert (found["corrected_answer_score"], *interval) == pytest.approx(corrected, abs=1e-9)


def test_repeats_are_rounded_for_agreement_not_for_the_mean(eight: Project, judge_with: JudgeWith) -> None:
    judge_with({"strong": [[4, 5], [2, 3], [1, 2], [3, 3], [4, 4], [1, 1], [5, 5], [2, 2]]})
    labels = labels_csv({"anna": [5, 3, 2, 3, 4, 1, 5, 2]})
    found = human_results(run_with_labels(eight, labels, "--repeats", "2"))
    assert (found["exact_agreement"], found["weighted_kappa"], found["krippendorff_alpha"]) == (1, 1, 1)
    assert found["judge_minus_human_by_level"] == {"1": 0, "2": -0.25, "3": -0.25, "4": 0, "5": -0.25}
    assert found["corrected_answer_score"] == 25 / 8


def test_missing_judgements_are_not_compared(eight: Project, judge_with: JudgeWith) -> None:
    judge_with({"strong": [None, 2, 5, None, *JUDGED[4:]]})
    outcome = run_with_labels(eight, labels_csv({"anna": PEOPLE}))
    found = human_results(outcome)
    assert (found["labels"], found["exact_agreement"], found["agreement_within_1"]) == (4, 2 / 4, 1)
    assert found["judge_minus_human_by_level"] == {"2": -1, "3": -1, "4": 0, "5": 0}
    assert found["corrected_answer_score"] == pytest.approx(20 / 6 + 2 / 4, abs=1e-12)
    assert outcome.code == 3


# Blank answers score 1 without being judged, so that labels of them are not used.
BLANK: list[dict[str, str]] = [{}, {"answer": ""}, {"answer": " \n"}, {"answer": "\u200b"}]


def test_blank_answers_by_hand(eight: Project) -> None:
    answers = {name: {"answer": "So it is."} for name in IDS[:6]}
    eight.predictions("strong", {**answers, "q007": BLANK[3]})  # and no prediction for q008
    people = [4, 3, 5, 1, 4, None]
    found = human_results(run_with_labels(eight, labels_csv({"anna": [*people, 5, 5]})))
    mean, *ends = evaluation.corrected_mean(JUDGED[:6], people, GOLD_DOCUMENTS[:6])
    assert mean == pytest.approx(19 / 6 - 1 / 5, abs=1e-12)
    assert (found["labels"], found["questions"], found["answers_judged"]) == (5, 5, 8)
    assert (found["exact_agreement"], found["agreement_within_1"]) == (3 / 5, 4 / 5)
    assert found["judge_minus_human_by_level"] == {"1": 2, "3": -1, "4": 0, "5": 0}
    assert found["corrected_answer_score"] == pytest.approx((19 - 6 / 5 + 2 * 1) / 8, abs=1e-12)
    expected_interval = [(6 * (end or 0) + 2 * 1) / 8 for end in ends]
    assert found["ci95"]["corrected_answer_score"] == pytest.approx(expected_interval, abs=1e-12)


def test_labels_of_unjudged_answers(eight: Project) -> None:
    eight.predictions("simple", {name: {"answer": "Yes."} for name in IDS})
    for system, *arguments in (["strong", "--no-judge"], ["simple"], ["simple", "--systems", "strong"]):
        outcome = run_with_labels(eight, labels_csv({"anna": [4]}, system), *arguments)
        assert mentions(outcome.err, "warning", "labels.csv")
        assert outcome.code == 0


# ------------------------------------------------------------------ The label sheet


def write_sheet(project: Project, *arguments: str) -> list[dict[str, str]]:
    """Write a new label sheet and return its rows."""
    (project.folder / SHEET).unlink(missing_ok=True)
    assert project.run("dev", "--label-sheet", *arguments).code == 0
    return list(csv.DictReader(io.StringIO(project.files()[SHEET].decode("utf-8-sig"), newline="")))


ONE_ROW = (
    "\ufeffquestion_id,system,question,rubric,gold_answer,system_answer,score,rater\r\n"
    'q001,strong,What is d1?,"Is it d1?\n1: level 1\n2: level 2\n3: level 3\n4: level 4\n5: level 5",'
    'It is d1.,"A lamp, ""perhaps"".",,\r\n'
)


def test_a_sheet_with_one_row_is_never_overwritten(project: Project, serve: Serve) -> None:
    server = serve(score_reply(4))
    project.questions(question("d1"))
    project.predictions("strong", {"q001": {"answer": 'A lamp, "perhaps".'}})
    before = project.files()
    outcome = project.run("dev", "--label-sheet")
    assert (outcome.code, outcome.out) == (0, "Label sheet saved to: dev_labels.csv\n")
    assert project.files() == {**before, SHEET: ONE_ROW.encode()}
    project.write(SHEET, "filled in")
    outcome = project.run("dev", "--label-sheet")
    assert mentions(outcome.err, "error: ", SHEET, "move it away")
    assert (outcome.code, outcome.out) == (2, "")
    assert project.files() == {**before, SHEET: b"filled in"}
    assert server.calls == []


# The questions ordered by the SHA-256 of ID, NUL and "strong".
SHEET_ORDER = ["q007", "q005", "q003", "q004", "q001", "q006", "q002", "q008"]


def test_a_sheet_is_shuffled_by_a_hash_and_has_no_scores(eight: Project) -> None:
    before = write_sheet(eight)
    hashes = [hashlib.sha256(f"{name}\0strong".encode()).digest() for name in SHEET_ORDER]
    assert hashes == sorted(hashes)
    assert [row["question_id"] for row in before] == SHEET_ORDER
    eight.run()
    assert write_sheet(eight) == before
    assert {(row["score"], row["rater"]) for row in before} == {("", "")}
    eight.predictions("other", {name: {"answer": "Yes."} for name in IDS})
    both = write_sheet(eight)
    assert [row["question_id"] for row in both if row["system"] == "strong"] == SHEET_ORDER
    assert len({row["system"] for row in both[:8]}) == 2


def test_labels_from_the_top_of_the_sheet_are_a_random_sample(eight: Project) -> None:
    for labelled, in_order in (
        (SHEET_ORDER[:3], True),
        (IDS, True),
        (SHEET_ORDER[1:], False),
        ([*SHEET_ORDER[:3], *SHEET_ORDER[4:]], False),
    ):
        scores = [4 if name in labelled else None for name in IDS]
        outcome = run_with_labels(eight, labels_csv({"anna": scores}))
        assert (labelled, human_results(outcome)["labelled_in_sheet_order"]) == (labelled, in_order)
        assert ("corrected by people, if these are a random sample: " in outcome.out) != in_order


def test_the_sheet_has_the_systems_to_be_judged(eight: Project) -> None:
    for name in ("simple", "other"):
        eight.predictions(name, {"q001": {"answer": "Yes."}})
    assert {row["system"] for row in write_sheet(eight)} == {"strong", "other"}
    assert {row["system"] for row in write_sheet(eight, "--judge", "simple")} == {"simple"}
    assert {row["system"] for row in write_sheet(eight, "--systems", "other", "simple")} == {"other"}
    (eight.folder / SHEET).unlink()
    before = eight.files()
    for arguments in (["--no-judge"], ["--systems", "simple"]):
        outcome = eight.run("dev", "--label-sheet", *arguments)
        assert mentions(outcome.err, "error: ", "--judge")
        assert (outcome.code, outcome.out, eight.files()) == (2, "", before)


def test_the_sheet_has_the_answers_that_the_judge_sees(eight: Project) -> None:
    eight.questions(question("d1", rubric=None), *(question(f"d{n}") for n in range(2, 8)))
    given = [{"answer": "Yes."}, *BLANK[1:], {"answer": "Yes, in May."}, {"answer": "No."}]
    eight.predictions("strong", dict(zip(IDS, given, strict=False)))
    rows = write_sheet(eight, "--max-answer-chars", "4")
    answers = {row["question_id"]: row["system_answer"] for row in rows}
    assert answers == {"q005": "Yes,\n[cut off, as for the judge]", "q006": "No."}


def fill_sheet(project: Project) -> None:
    """Give 2 to systems called `other` and 4 to all others, and write semicolons, as some programs do."""
    reader = csv.DictReader(io.StringIO(project.files()[SHEET].decode("utf-8-sig"), newline=""))
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, reader.fieldnames or (), delimiter=";")
    writer.writeheader()
    for row in reader:
        writer.writerow({**row, "score": 2 if row["system"].endswith("other") else 4, "rater": "anna"})
    project.write(SHEET, stream.getvalue())


def test_a_filled_in_sheet_with_hostile_names_is_read_back(project: Project, serve: Serve) -> None:
    system = "-beta"
    ids = ["=q1", "+2", "-3", "@q4", "'q5", 'q"9,;', "what is d3?"]
    project.questions(*(question(f"d{n}", question_id=name) for n, name in enumerate(ids)))
    project.predictions(system, {name: {"answer": "=1\n-2"} for name in ids})
    serve(score_reply(4))
    rows = write_sheet(project)
    assert {row["system_answer"] for row in rows} == {"'=1\n-2"}  # not a formula
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t"))]
    fill_sheet(project)
    found = human_results(project.run("dev", "--human", SHEET), system)
    assert (found["labels"], found["questions"], found["exact_agreement"]) == (len(ids), len(ids), 1)


# ------------------------------------------------------------------ Labels and submissions

OUTPUTS = ["--outputs", "in/a", "in/b"]


@pytest.fixture
def submissions(eight: Project, judge_with: JudgeWith) -> Project:
    """Two submissions, each with a `strong`; the first has `other` too."""
    scores = {"in/a/strong": [4] * 8, "in/a/other": [2] * 8, "in/b/strong": [4] * 8}
    for path in scores:
        folder, _, system = path.rpartition("/")
        eight.submission(folder, **{system: {name: {"answer": f"By {path}."} for name in IDS}})
    judge_with(scores)
    return eight


def test_a_sheet_of_submissions_is_written_and_read_back(submissions: Project) -> None:
    rows = write_sheet(submissions, *OUTPUTS)
    systems = ("a/other", "a/strong", "b/strong")
    asked = {(row["question_id"], row["system"]) for row in rows}
    assert asked == {(name, system) for name in IDS for system in systems}
    assert not list((submissions.folder / "in").rglob("*labels*"))
    fill_sheet(submissions)
    assert submissions.run("dev", *OUTPUTS, "--human", SHEET).code == 0
    for folder, names in (("a", {"other", "strong"}), ("b", {"strong"})):
        results = submissions.read(f"dev_graded/{folder}/{RESULTS}")
        assert results.keys() == names
        for block in results.values():
            human = block["llm_judge"]["human"]
            assert (human["labels"], human["exact_agreement"]) == (8, 1)


def test_labels_name_the_submission(submissions: Project) -> None:
    labels = [f"q001,{system},4,anna" for system in ("strong", "a/strong", "b")]
    outcome = run_with_labels(submissions, "\n".join([HEAD, *labels]), *OUTPUTS)
    assert [line[:13] for line in outcome.err if line.startswith("labels.csv")] == ["labels.csv:2:"]
    assert outcome.code == 2
