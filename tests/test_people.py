"""Trusting the judge: people's scores beside the judge's, and the sheet that they are written in."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import evaluation
import krippendorff
import numpy as np
import pytest
from evaluation import (
    Failure,
    InputFile,
    Judgement,
    JudgeRequest,
    JudgeRun,
    Label,
    Outcome,
    Prediction,
    Question,
    Rubric,
    System,
)
from sklearn.metrics import cohen_kappa_score

from conftest import Outcome as Run
from conftest import Project, document, question

SHEET, RESULTS = "dev_labels.csv", "dev_evaluation.json"
NO_SIMPLE = "dev_simple_output.json is not there: graded without it."
NOT_JUDGED = "GROQ_API_KEY is not set: answers are not judged."
Row = dict[str, Any]
Judging = Callable[[Mapping[str, Sequence[Any]]], None]


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize by rows: what the case is -> its values."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judging:
    """Judge with these scores: system -> one for each question; a list has one for each repeat, None none."""

    def judge(scores: Mapping[str, Sequence[Any]]) -> None:
        def outcome(request: JudgeRequest) -> Outcome:
            score = scores[request.system][request.place]
            score = score[request.repeat] if isinstance(score, list) else score
            return Failure("no reply") if score is None else Judgement(score, "So it is.")

        def run(requests: Sequence[JudgeRequest]) -> JudgeRun:
            return JudgeRun("m", "m", tuple(map(outcome, requests)))

        monkeypatch.setattr(evaluation, "connect_judge", lambda *_, **__: run)

    return judge


GOLD = ["d1", "d2", "d3", "d4", "d5", "d6", "d6", "d1"]
IDS = [f"q{place:03d}" for place in range(1, 9)]
JUDGED = [4, 2, 5, 3, 4, 1, 5, 3]
PEOPLE = [4, 3, 5, 1, 4, 2]


@pytest.fixture
def eight(project: Project, judge: Judging) -> Project:
    """Eight questions over six documents, all answered by `strong` and judged."""
    project.questions(*(question(doc_id, question=f"{n}?") for n, doc_id in enumerate(GOLD)))
    project.documents(*(document(doc_id, "It rained.") for doc_id in sorted(set(GOLD))))
    project.predictions("strong", {name: {"answer": f"Answer to {name}."} for name in IDS})
    judge({"strong": JUDGED})
    return project


def csv_of(*rows: Sequence[object], head: str = "question_id,system,score,rater") -> str:
    return "\n".join([head, *(",".join(map(str, row)) for row in rows)])


def by(rater: str, scores: Sequence[int], system: str = "strong") -> list[tuple[object, ...]]:
    """Rows of one rater's scores for q001, q002, ..."""
    return [(name, system, score, rater) for name, score in zip(IDS, scores, strict=False)]


def human(outcome: Run) -> Row:
    found: Row = outcome.results["strong"]["llm_judge"]["human"]
    return found


# -------------------------------------------------------------------------------------------- files of labels
def read(project: Project, content: object) -> list[Label]:
    """The labels in a file with this content, given the questions and systems that are there."""
    project.write("labels", content)
    return list(evaluation.read_labels("labels", evaluation.read_split("dev", []), [""]).labels)


ANNAS = [Label("q001", "strong", "anna", 4), Label("q002", "strong", "anna", 3)]
HEAD, FIRST, SECOND = "question_id,system,score,rater", "q001,strong,4,anna", "q002,strong,3,anna"


@table(
    "content",
    {
        "commas": f"{HEAD}\n{FIRST}\n{SECOND}\n",
        "no line break at the end": f"{HEAD}\n{FIRST}\n{SECOND}",
        "semicolons": f"{HEAD}\n{FIRST}\n{SECOND}\n".replace(",", ";"),
        "tabs": f"{HEAD}\n{FIRST}\n{SECOND}\n".replace(",", "\t"),
        "a byte-order mark": f"\ufeff{HEAD}\n{FIRST}\n{SECOND}\n",
        "CRLF": f"{HEAD}\r\n{FIRST}\r\n{SECOND}\r\n",
        "CR": f"{HEAD}\r{FIRST}\r{SECOND}\r",
        "a blank line before, between and behind": f"\n{HEAD}\n\n{FIRST}\n,,,\n{SECOND}\n\n",
        "all in quotes": '"question_id","system","score","rater"\n"q001","strong","4","anna"\n'
        '"q002","strong","3","anna"\n',
        "spaces around cells": f" {HEAD} \n q001 , strong , 4 , anna \n{SECOND}".replace("score", " score "),
        "columns in another order": "rater,score,system,question_id\nanna,4,strong,q001\nanna,3,strong,q002",
        "a head in capitals": f"Question_ID,SYSTEM,Score,rATER\n{FIRST}\n{SECOND}",
        "4.0": f"{HEAD}\nq001,strong,4.0,anna\nq002,strong,3.00,anna",
        "scores that are blank": f"{HEAD}\n{FIRST}\nq003,strong,,anna\nq004,strong, ,\n{SECOND}\nq005",
        "rows without a score may hold anything": f"{HEAD}\n{FIRST}\nq9,nobody,,\n{SECOND}\nmean of these,,,",
        "more columns": "question_id,note,system,,score,rater,score of last year\n"
        "q001,good,strong,,4,anna,9\nq002,,strong,x,3,anna,0",
        "more cells than columns": f"{HEAD}\n{FIRST},so,it is\n{SECOND},",
        "line breaks, quotes and separators in cells": "question_id,system,answer,score,rater\n"
        'q001,strong,"a ""b"";\n\nc,d\t",4,anna\r\nq002,strong,"e\r\nf",3,anna\n',
        "another separator in the cells": "question_id;system;answer;score;rater\n"
        "q001;strong;a,b,c,d,e;4;anna\nq002;strong;;3;anna",
        "a cell of a megabyte": f"note,{HEAD}\n{'x' * 2**20},{FIRST}\n,{SECOND}",
        "apostrophes before what is text": f"{HEAD}\n'q001,'strong,4,anna\n{SECOND}",
        "a JSON list": [label._asdict() for label in ANNAS],
        "a JSON list with a byte-order mark": f"\ufeff {json.dumps([label._asdict() for label in ANNAS])}",
        "a JSON list with more": [
            *({**label._asdict(), "score": float(label.score), "note": [1]} for label in ANNAS),
            {"question_id": "q003", "system": "strong", "score": None, "rater": None},
            {"question_id": "q003", "system": "strong"},
        ],
    },
)
def test_labels_in_any_usual_form(eight: Project, content: object) -> None:
    assert read(eight, content) == ANNAS


@table(
    "rows, raters",
    {
        "one": (by("anna", [4, 3]), 1),
        "two": (by("anna", [4, 3]) + by("ben", [4, 3]), 2),
        "two without names": (by("", [4, 3]) + by("", [4, 3]), 2),
        "one without a name beside one with": (by("anna", [4, 3]) + by("", [4, 3]), 2),
        "one without a name before one who is called 1": (by("", [4, 3]) + by("1", [4, 3]), 2),
        "one without a name behind one who is called 1": (by("1", [4, 3]) + by("", [4, 3]), 2),
        "the same for two systems": (by("anna", [4, 3]) + by("anna", [4, 3], "simple"), 1),
    },
)
def test_raters(eight: Project, rows: list[tuple[object, ...]], raters: int) -> None:
    eight.predictions("simple", {})
    labels = read(eight, csv_of(*rows))
    expected = Counter((name, system, score) for name, system, score, _ in rows)
    assert Counter((label.question_id, label.system, label.score) for label in labels) == expected
    assert len({label.rater for label in labels}) == raters


@table("form", {"CSV": csv_of(("q001", "strong", 4)), "JSON": [{**ANNAS[0]._asdict(), "rater": None}]})
def test_a_rater_need_not_be_named(eight: Project, form: object) -> None:
    [label] = read(eight, form)
    assert (label.question_id, label.system, label.score) == ("q001", "strong", 4)


def listing(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(project: Project, *problems: str) -> None:
    """A run with the labels names these problems and leaves everything as it was."""
    before = listing(project.folder)
    outcome = project.run("dev", "--human", "labels")
    closing = f"error: problems in the input: {len(problems)}; nothing was graded or written."
    assert outcome.err == [*(f"labels:{problem}" for problem in problems), closing]
    assert (outcome.code, outcome.out) == (2, "")
    assert listing(project.folder) == before


NO_ID, NO_SYSTEM = "expected the ID of a question in", "expected the name of a system in"
NO_SCORE = "expected a whole number from 1 to 5 in"
NO_LABEL = "1: expected rows with question_id, system and score, found none with a score"
TWICE = "expected one score of a rater for an answer, found two by anna for q001 of strong"


@table(
    "content, problems",
    {
        "an empty file": ("", [NO_LABEL]),
        "white space": ("\n \n", [NO_LABEL]),
        "a head alone": (HEAD, [NO_LABEL]),
        "no score in any row": (f"{HEAD}\nq001,strong,,anna", [NO_LABEL]),
        "no column of scores": ("question_id,system\nq001,strong", [NO_LABEL]),
        "an empty JSON list": ([], [NO_LABEL]),
        "no column of questions": ("system,score\nstrong,4", [f"2: {NO_ID} question_id, found nothing"]),
        "no column of systems": ("question_id,score\nq001,4", [f"2: {NO_SYSTEM} system, found nothing"]),
        "a question that is not there": (
            csv_of(("q9", "strong", 4)),
            [f'2: {NO_ID} question_id, found "q9"'],
        ),
        "what is wrong below a head in capitals": (
            "QUESTION_ID,System,Score\nq9,strong,4",
            [f'2: {NO_ID} question_id, found "q9"'],
        ),
        "a system that is not there": (csv_of(("q001", "weak", 4)), [f'2: {NO_SYSTEM} system, found "weak"']),
        "0": (csv_of(("q001", "strong", 0)), [f"2: {NO_SCORE} score, found 0.0"]),
        "6": (csv_of(("q001", "strong", 6)), [f"2: {NO_SCORE} score, found 6.0"]),
        "3.5": (csv_of(("q001", "strong", 3.5)), [f'2: {NO_SCORE} score, found "3.5"']),
        "-1": (csv_of(("q001", "strong", -1)), [f'2: {NO_SCORE} score, found "-1"']),
        "a text": (csv_of(("q001", "strong", "good")), [f'2: {NO_SCORE} score, found "good"']),
        "a decimal comma": (
            csv_of(("q001", "strong", '"4,0"')),
            [f'2: {NO_SCORE} score, found "4,0"'],
        ),
        "an Arabic-Indic 4": (csv_of(("q001", "strong", "\u0664")), [f'2: {NO_SCORE} score, found "\u0664"']),
        "400 digits": (csv_of(("q001", "strong", "4" * 400)), [f"2: {NO_SCORE} score, found Infinity"]),
        "the same rater twice": (csv_of(*by("anna", [4]), *by("anna", [4])), [f"3: {TWICE}"]),
        "the line is that on which a row begins": (
            'question_id,system,answer,score\nq001,strong,"a\nb\nc",4\n\nq9,strong,"d\ne",4\n',
            [f'6: {NO_ID} question_id, found "q9"'],
        ),
        "a quote that is not closed": (
            f'{HEAD}\n{FIRST}\nq003,strong,4,"ben\n{SECOND}\n',
            ["3: expected CSV, found unexpected end of data"],
        ),
        "everything at once": (
            csv_of(("q9", "weak", 0), *by("anna", [4]), ("q002", "strong", 7), *by("anna", [5])),
            [
                f'2: {NO_ID} question_id, found "q9"',
                f'2: {NO_SYSTEM} system, found "weak"',
                f"2: {NO_SCORE} score, found 0.0",
                f"4: {NO_SCORE} score, found 7.0",
                f"5: {TWICE}",
            ],
        ),
        "everything at once, as JSON": (
            '[{"question_id": "q9", "system": "weak", "score": 0},\n'
            '{"question_id": "q001", "system": "strong", "score": 4, "rater": "anna"},\n'
            '{"question_id": ["q001"], "system": {}, "rater": 7,\n"score": "4"},\n'
            '{"question_id": "q001", "system": "strong", "score": 4, "rater": "anna"}, 5]',
            [
                f'1: {NO_ID} [0].question_id, found "q9"',
                f'1: {NO_SYSTEM} [0].system, found "weak"',
                f"1: {NO_SCORE} [0].score, found 0",
                f"3: {NO_ID} [2].question_id, found a list",
                f"3: {NO_SYSTEM} [2].system, found an empty object",
                f'4: {NO_SCORE} [2].score, found "4"',
                "3: expected a string that is not blank in [2].rater, found 7",
                "5: expected an object in [4], found 5",
                f"5: {TWICE}",
            ],
        ),
        "true": (
            [{**ANNAS[0]._asdict(), "score": True}],
            [f"1: {NO_SCORE} [0].score, found true"],
        ),
        "a JSON object": ({"q001": 4}, ["1: expected a list, found an object"]),
        "broken JSON": (
            '[{"question_id": ',
            ["1: expected JSON, found a fault at column 18 (Expecting value)"],
        ),
        "not UTF-8": (
            f"{HEAD}\n".encode() + b"q001,strong,4,M\xfcller",
            ["2: expected UTF-8 text, found the byte 0xfc"],
        ),
    },
)
def test_what_is_wrong_with_labels_is_listed_all_of_it(
    eight: Project, content: object, problems: list[str]
) -> None:
    eight.write("labels", content)
    assert_refused(eight, *problems)


def test_labels_that_are_not_there(eight: Project) -> None:
    assert_refused(eight, "1: expected a file, found nothing of that name")


# ------------------------------------------------------------------------------------------- judge and people
def test_judge_and_people_by_hand(eight: Project) -> None:
    file = eight.write("labels.csv", csv_of(*by("anna", PEOPLE)))
    found = human(eight.run("dev", "--human", "labels.csv"))
    _, low, high = evaluation.corrected_mean(JUDGED, [*PEOPLE, None, None], GOLD)
    assert (
        found
        == {
            "name": "labels.csv",
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "labels": 6,
            "raters": 1,
            "questions": 6,
            "exact_agreement": 3 / 6,
            "agreement_within_1": 5 / 6,
            "weighted_kappa": pytest.approx(1 - 6 * 6 / 130, abs=1e-12),  # squares: 6 observed, 130 crosswise
            "krippendorff_alpha": pytest.approx(alpha([JUDGED[:6], PEOPLE]), abs=1e-12),
            "krippendorff_alpha_of_people": None,
            "judge_minus_human_by_level": {"1": 2, "2": -1, "3": -1, "4": 0, "5": 0},
            "answers_judged": 8,
            "labelled_in_sheet_order": False,
            "corrected_answer_score": pytest.approx(27 / 8 + 0, abs=1e-12),
            "ci95": {"corrected_answer_score": [low, high]},
            "labels_to_add": ["q007", "q008"],
        }
    )


CONSOLE = """\
Average Combined Score (0-1): 0.34
Labels by people: 6 by 1, on 6 questions
Judge and people agree: 50%, within 1: 83%
Weighted kappa: 0.72, Krippendorff's alpha: 0.84
Judge minus people by people's level: 1: +2.00, 2: -1.00, 3: -1.00, 4: +0.00, 5: +0.00
Average Answer Score of 8 corrected by people, if these are a random sample: 3.38 [2.12, 4.63]
Labels that would tell most, after those of a random sample: q007, q008

===="""
CONSOLE_OF_TWO = """\
Average Combined Score (0-1): 0.34
Labels by people: 3 by 2, on 2 questions
Judge and people agree: 33%, within 1: 100%
Weighted kappa: 0.67, Krippendorff's alpha: 0.73
Judge minus people by people's level: 3: -1.00, 4: +0.00, 5: -1.00
Average Answer Score of 8 corrected by people, if these are a random sample: 4.12
Labels that would tell most, after those of a random sample: q006, q003, q004, q005, q007, q008

===="""
CONSOLE_OF_NONE = """\
Average Combined Score (0-1): 0.29
Judged 7 of 8: average answer score between 3.00 and 3.50 whatever the others are
Labels by people: 0 by 0, on 0 questions
Judge and people agree: n/a, within 1: n/a
Weighted kappa: n/a, Krippendorff's alpha: n/a
Judge minus people by people's level: n/a
Average Answer Score of 7 corrected by people: n/a
Labels that would tell most, after those of a random sample: q002, q005, q006, q003, q004, q007, q008

===="""
CONSOLE_OF_ALL = """\
Average Combined Score (0-1): 0.34
Labels by people: 8 by 1, on 8 questions
Judge and people agree: 100%, within 1: 100%
Weighted kappa: 1.00, Krippendorff's alpha: 1.00
Judge minus people by people's level: 1: +0.00, 2: +0.00, 3: +0.00, 4: +0.00, 5: +0.00
Average Answer Score of 8 corrected by people: 3.38 [2.54, 4.21]
Labels that would tell most, after those of a random sample: none

===="""


@table(
    "rows, scores, expected",
    {
        "six labels": (by("anna", PEOPLE), JUDGED, CONSOLE),
        "two raters, too few documents": (by("anna", [4, 3]) + by("ben", [5]), JUDGED, CONSOLE_OF_TWO),
        "of what was not judged alone": (by("anna", [4]), [None, *JUDGED[1:]], CONSOLE_OF_NONE),
        "as the judge has it, all": (by("anna", JUDGED), JUDGED, CONSOLE_OF_ALL),
    },
)
def test_the_lines_on_the_console(
    eight: Project, judge: Judging, rows: list[tuple[object, ...]], scores: list[int | None], expected: str
) -> None:
    judge({"strong": scores})
    eight.write("labels.csv", csv_of(*rows))
    assert expected in eight.run("dev", "--human", "labels.csv").out


def test_without_labels_there_is_no_word_of_people(eight: Project) -> None:
    outcome = eight.run()
    assert "people" not in outcome.out
    assert "human" not in outcome.results["strong"]["llm_judge"]


def alpha(ratings: Sequence[Sequence[float | None]]) -> float:
    gaps = np.array([[np.nan if value is None else value for value in row] for row in ratings], float)
    return float(krippendorff.alpha(reliability_data=gaps, level_of_measurement="ordinal"))


def judged(scores: Sequence[float], **of_the_first: Any) -> list[Row]:
    """Rows of a judge's block; the first has these changes."""
    rows: list[Row] = [
        {"question_id": name, "answer_score_raw": score, "failure": None, "flags": []}
        for name, score in zip(IDS, scores, strict=False)
    ]
    rows[0].update(of_the_first)
    return rows


STRONG = System(
    "strong",
    InputFile("dev_strong_output.json", ""),
    {name: Prediction(answer=f"Answer to {name}.") for name in IDS},
)
ASKED = [
    Question(name, doc_id, "?", "!", rubric=Rubric("", {})) for name, doc_id in zip(IDS, GOLD, strict=True)
]


def compared(rows: list[Row], people: Mapping[str, Sequence[int | None]]) -> Row:
    """What `human_block` makes of each rater's scores for the first questions."""
    labels = [
        Label(name, "strong", rater, score)
        for rater, scores in people.items()
        for name, score in zip(IDS, scores, strict=False)
        if score is not None
    ]
    return evaluation.human_block(STRONG, list(zip(ASKED, rows, strict=False)), labels)


THREE_RATERS = {
    "anna": [4, 3, 5, 1, 4, 2, None, None],
    "ben": [5, None, 5, 2, 4, 1, 4, None],
    "cleo": [None, 2, 4, 2, 5, 1, 4, None],
}


def test_several_raters_are_each_compared_with_the_judge() -> None:
    found = compared(judged(JUDGED), THREE_RATERS)
    pairs = [
        (JUDGED[place], score)
        for scores in THREE_RATERS.values()
        for place, score in enumerate(scores)
        if score is not None
    ]
    kappa = cohen_kappa_score(*zip(*pairs, strict=True), labels=[1, 2, 3, 4, 5], weights="quadratic")
    assert (found["labels"], found["raters"], found["questions"]) == (18, 3, 7)
    assert found["exact_agreement"] == 8 / 18
    assert found["agreement_within_1"] == 17 / 18
    assert found["weighted_kappa"] == pytest.approx(kappa, abs=1e-12)
    assert found["krippendorff_alpha"] == pytest.approx(alpha([JUDGED, *THREE_RATERS.values()]), abs=1e-12)
    of_people = alpha(list(THREE_RATERS.values()))
    assert found["krippendorff_alpha_of_people"] == pytest.approx(of_people, abs=1e-12)
    assert found["judge_minus_human_by_level"] == pytest.approx(
        {
            "1": (2 + 0 + 0) / 3,
            "2": (-1 + 1 + 0 + 1) / 4,
            "3": -1,
            "4": (0 + 0 + 0 + 1 + 1 + 1) / 6,
            "5": -0.5,
        }
    )


def test_people_correct_the_mean_by_their_means() -> None:
    found = compared(judged(JUDGED), THREE_RATERS)
    people = [4.5, 2.5, 14 / 3, 5 / 3, 13 / 3, 4 / 3, 4, None]
    mean, low, high = evaluation.corrected_mean(JUDGED, people, GOLD)
    assert found["corrected_answer_score"] == pytest.approx(mean, abs=1e-12)
    assert found["ci95"]["corrected_answer_score"] == pytest.approx([low, high], abs=1e-9)


@table(
    "labelled, has_interval",
    {
        "four documents": ([4, 3, 5, 1], False),
        "four documents, six labels": ([4, 3, None, None, None, 1, 5, 3], False),
        "five documents": ([4, 3, 5, 1, 4], True),
    },
)
def test_an_interval_takes_labels_on_five_documents(labelled: list[int | None], has_interval: bool) -> None:
    found = compared(judged(JUDGED), {"anna": labelled})
    assert isinstance(found["corrected_answer_score"], float)
    assert (found["ci95"]["corrected_answer_score"] is not None) == has_interval


def test_means_of_repeats_are_rounded_to_levels_but_corrected_as_they_are(
    eight: Project, judge: Judging
) -> None:
    judge({"strong": [[4, 5], [2, 3], [1, 2], [3, 3], [4, 4], [1, 1], [5, 5], [2, 2]]})
    eight.write("labels.csv", csv_of(*by("anna", [5, 3, 2, 3, 4, 1, 5, 2])))
    found = human(eight.run("dev", "--human", "labels.csv", "--repeats", "2"))
    assert (found["exact_agreement"], found["weighted_kappa"], found["krippendorff_alpha"]) == (1, 1, 1)
    assert found["judge_minus_human_by_level"] == {"1": 0, "2": -0.25, "3": -0.25, "4": 0, "5": -0.25}
    assert found["corrected_answer_score"] == 25 / 8


def test_what_was_not_judged_is_not_compared(eight: Project, judge: Judging) -> None:
    judge({"strong": [None, 2, 5, None, *JUDGED[4:]]})
    eight.write("labels.csv", csv_of(*by("anna", PEOPLE)))
    outcome = eight.run("dev", "--human", "labels.csv")
    found = human(outcome)
    assert (found["labels"], found["exact_agreement"], found["agreement_within_1"]) == (4, 2 / 4, 1)
    assert found["judge_minus_human_by_level"] == {"2": -1, "3": -1, "4": 0, "5": 0}
    assert found["corrected_answer_score"] == pytest.approx(20 / 6 + 2 / 4, abs=1e-12)
    assert found["labels_to_add"] == ["q008", "q007"]
    assert outcome.code == 3


# -- Blank answers: their score is known


def blank_from(project: Project, first: int, count: int) -> None:
    """`strong` answers its questions, blank in every usual way from this place on."""
    blank = itertools.cycle([{}, {"answer": ""}, {"answer": " \n"}, {"answer": "\u200b"}])
    rows = {f"q{n:03d}": {"answer": "So it is."} if n < first else next(blank) for n in range(1, count)}
    project.predictions("strong", rows)  # there is none for the last


def test_blank_answers_by_hand(eight: Project) -> None:
    """q007 and q008 are blank: both have their 1, whatever a person has given them."""
    blank_from(eight, 7, 8)
    eight.write("labels.csv", csv_of(*by("anna", [4, 3, 5, 1, 4]), *by("anna", [0] * 6 + [5, 5])[6:]))
    outcome = eight.run("dev", "--human", "labels.csv")
    found = human(outcome)
    of_others = evaluation.corrected_mean(JUDGED[:6], [4, 3, 5, 1, 4, None], GOLD[:6])
    assert of_others[0] == pytest.approx(19 / 6 - 1 / 5, abs=1e-12)
    assert (found["labels"], found["questions"], found["answers_judged"]) == (5, 5, 8)
    assert (found["exact_agreement"], found["agreement_within_1"]) == (3 / 5, 4 / 5)
    assert found["judge_minus_human_by_level"] == {"1": 2, "3": -1, "4": 0, "5": 0}
    assert found["krippendorff_alpha"] == pytest.approx(alpha([JUDGED[:6], [4, 3, 5, 1, 4, None]]), abs=1e-12)
    assert found["corrected_answer_score"] == pytest.approx((19 - 6 / 5 + 2 * 1) / 8, abs=1e-12)
    ends = [(6 * (end or 0) + 2 * 1) / 8 for end in of_others[1:]]
    assert found["ci95"]["corrected_answer_score"] == pytest.approx(ends, abs=1e-12)
    assert found["labels_to_add"] == ["q006"]
    assert "\nAverage Answer Score of 8 corrected by people, if these are a random sample: 2.4" in outcome.out


def test_blank_answers_beside_judgements_that_are_missing(eight: Project, judge: Judging) -> None:
    blank_from(eight, 7, 8)
    judge({"strong": [4, 2, 5, 3, None, None]})
    eight.write("labels.csv", csv_of(*by("anna", [3, 2, 5, 3, 1])))
    found = human(eight.run("dev", "--human", "labels.csv"))
    assert (found["labels"], found["answers_judged"]) == (4, 6)
    assert found["corrected_answer_score"] == pytest.approx((14 - 1 + 2 * 1) / 6, abs=1e-12)


@table(
    "people, count, expected",
    {
        "all 1": (1, 12, 1),
        "1 for half of them": (1, 6, 1),
        "all 5": (5, 12, (12 * 5 + 12) / 24),
    },
)
def test_a_mean_with_blank_answers_stays_on_the_scale(
    project: Project, judge: Judging, people: int, count: int, expected: float
) -> None:
    """Twelve of 24 are blank. Were they judged as the others are, people's 1 for 4 would make them -2."""
    project.questions(*(question(f"d{n}") for n in range(24)))
    blank_from(project, 13, 24)
    judge({"strong": [4] * 24})
    rows = [(f"q{n:03d}", "strong", people, "anna") for n in range(1, count + 1)]
    project.write("labels.csv", csv_of(*rows))
    outcome = project.run("dev", "--human", "labels.csv")
    found = human(outcome)
    assert outcome.results["strong"]["llm_judge"]["avg_answer_score"] == (12 * 4 + 12) / 24
    assert found["corrected_answer_score"] == pytest.approx(expected, abs=1e-12)
    assert found["ci95"]["corrected_answer_score"] == pytest.approx([expected] * 2, abs=1e-12)
    shown = f"{expected:.2f} [{expected:.2f}, {expected:.2f}]"
    condition = "" if count == 12 else ", if these are a random sample"
    assert f"\nAverage Answer Score of 24 corrected by people{condition}: {shown}\n" in outcome.out


def test_where_all_are_blank_there_is_nothing_to_compare_or_to_label(eight: Project) -> None:
    eight.predictions("strong", {})
    eight.write("labels.csv", csv_of(*by("anna", [1, 1])))
    found = human(eight.run("dev", "--human", "labels.csv"))
    assert (found["labels"], found["exact_agreement"], found["answers_judged"]) == (0, None, 8)
    assert (found["corrected_answer_score"], found["labels_to_add"]) == (None, [])


def test_each_system_is_compared_with_its_own_labels(eight: Project, judge: Judging) -> None:
    eight.predictions("other", {name: {"answer": "Yes."} for name in IDS})
    eight.predictions("third", {name: {"answer": "No."} for name in IDS})
    judge({"strong": JUDGED, "other": [1] * 8, "third": [1] * 8})
    eight.write("labels.csv", csv_of(*by("anna", [4, 2]), *by("anna", [1, 1, 1], "other")))
    results = eight.run("dev", "--human", "labels.csv").results
    found = {name: results[name]["llm_judge"].get("human", {}).get("labels") for name in results}
    assert found == {"strong": 2, "other": 3, "third": None}


@table(
    "rows, labelled, expected",
    {
        "none judged": ([], [], []),
        "the largest spread first": (
            judged([4, 4, 4])
            + judged([4], question_id="b", score_spread=1)
            + judged([4], question_id="a", score_spread=2),
            [],
            ["a", "b", "q001", "q002", "q003"],
        ),
        "then what is flagged": (
            judged([4, 4]) + judged([4], question_id="f", flags=["score-like"]),
            [],
            ["f", "q001", "q002"],
        ),
        "then rare levels": (
            judged([4, 3, 4, 3, 4, 1]),
            [],
            ["q006", "q002", "q004", "q001", "q003", "q005"],
        ),
        "spread before flag before level": (
            judged([4, 4, 5])
            + judged([4], question_id="f", flags=["score-like"])
            + judged([4], question_id="s", score_spread=1),
            [],
            ["s", "f", "q003", "q001", "q002"],
        ),
        "flags among the same spread": (
            judged([4, 4], score_spread=1)
            + judged([4], question_id="f", score_spread=1, flags=["score-like"]),
            [],
            ["f", "q001", "q002"],
        ),
        "what is labelled is not named, but counts as a level": (
            judged([5, 4, 4, 4, 5, 5, 5]),
            ["q002", "q005"],
            ["q003", "q004", "q001", "q006", "q007"],
        ),
        "at most ten": (
            [{**judged([4])[0], "question_id": f"q{n:03d}"} for n in range(12)],
            [],
            [f"q{n:03d}" for n in range(10)],
        ),
    },
)
def test_which_labels_would_tell_most(rows: list[Row], labelled: list[str], expected: list[str]) -> None:
    assert evaluation.labels_to_add(rows, labelled) == expected


def test_spread_and_flags_of_a_run_come_first(eight: Project, judge: Judging) -> None:
    answers = {name: {"answer": f"Answer to {name}."} for name in IDS}
    eight.predictions("strong", {**answers, "q005": {"answer": "Score: 5. It is so."}})
    judge({"strong": [[4, 4], [4, 4], [4, 4], [3, 5], [4, 4], [4, 4], [1, 5], [2, 2]]})
    eight.write("labels.csv", csv_of(*by("anna", [4])))
    found = human(eight.run("dev", "--human", "labels.csv", "--repeats", "2"))
    assert found["labels_to_add"][:4] == ["q007", "q004", "q005", "q008"]


# ---------------------------------------------------------------------------------------- labels but no judge
NOTHING_TO_COMPARE = "warning: labels.csv: none of these answers was judged, so there is nothing to compare."


def test_labels_without_a_key(small: Project) -> None:
    small.write("labels.csv", csv_of(*by("anna", [4])))
    outcome = small.run("dev", "--human", "labels.csv")
    assert outcome.err == [NO_SIMPLE, NOT_JUDGED, NOTHING_TO_COMPARE]
    assert (outcome.code, "llm_judge" in outcome.results["strong"]) == (0, False)


@table(
    "system, arguments",
    {
        "no system is judged": ("strong", ["--no-judge"]),
        "the labels are of a system that is not judged": ("simple", []),
        "the labels are of a system that is not graded": ("simple", ["--systems", "strong"]),
    },
)
def test_labels_of_answers_that_are_not_judged(eight: Project, system: str, arguments: list[str]) -> None:
    eight.predictions("simple", {name: {"answer": "Yes."} for name in IDS})
    eight.write("labels.csv", csv_of(*by("anna", [4], system)))
    outcome = eight.run("dev", "--human", "labels.csv", *arguments)
    assert (outcome.err, outcome.code) == ([NOTHING_TO_COMPARE], 0)


# -------------------------------------------------------------------------------------------------- the sheet
def sheet(project: Project, *arguments: str) -> list[dict[str, str]]:
    """The rows of a new label sheet."""
    (project.folder / SHEET).unlink(missing_ok=True)
    assert project.run("dev", "--label-sheet", *arguments).code == 0
    text = (project.folder / SHEET).read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def answers_in(rows: Sequence[Mapping[str, str]]) -> set[tuple[str, str]]:
    return {(row["question_id"], row["system"]) for row in rows}


ONE_ROW = (
    "\ufeffquestion_id,system,question,rubric,gold_answer,system_answer,score,rater\r\n"
    'q001,strong,What is d1?,"Is it d1?\n1: level 1\n2: level 2\n3: level 3\n4: level 4\n5: level 5",'
    'It is d1.,"A lamp, ""perhaps"".",,\r\n'
)


def test_a_sheet_to_the_letter(project: Project) -> None:
    project.questions(question("d1"))
    project.predictions("strong", {"q001": {"answer": 'A lamp, "perhaps".'}})
    before = listing(project.folder)
    outcome = project.run("dev", "--label-sheet")
    assert (outcome.code, outcome.out) == (0, "Label sheet saved to: dev_labels.csv\n")
    assert listing(project.folder) == before | {project.folder / SHEET: ONE_ROW.encode()}


@table("key", {"without a key": None, "with a key": "gsk_loopback0123456789"})
def test_a_sheet_calls_nothing(eight: Project, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("nothing is to be judged")

    monkeypatch.setattr(evaluation, "connect_judge", connect)
    if key:
        monkeypatch.setenv("GROQ_API_KEY", key)
    outcome = eight.run("dev", "--label-sheet")
    assert (outcome.code, outcome.err, outcome.results) == (0, [NO_SIMPLE], None)


def test_a_sheet_has_no_score_of_the_judge(eight: Project) -> None:
    before = sheet(eight)
    eight.run()
    assert sheet(eight) == before
    assert {(row["score"], row["rater"]) for row in before} == {("", "")}


def test_a_sheet_is_shuffled_the_same_way_each_time(eight: Project) -> None:
    eight.predictions("other", {name: {"answer": "Yes."} for name in IDS})
    order = [(row["question_id"], row["system"]) for row in sheet(eight)]
    assert sorted(order) == [(name, system) for name in IDS for system in ("other", "strong")]
    for system in ("other", "strong"):
        places = [name for name, one in order if one == system]
        assert places not in (IDS, IDS[::-1])
    assert len({system for _, system in order[:8]}) == 2
    answers = {name: {"answer": f"Another answer to {name}."} for name in reversed(IDS)}
    eight.predictions("strong", answers)
    assert [(row["question_id"], row["system"]) for row in sheet(eight)] == order


# The questions by SHA-256 of ID, NUL and system, for `strong`.
ON_SHEET = ["q007", "q005", "q003", "q004", "q001", "q006", "q002", "q008"]


def test_the_order_of_a_sheet(eight: Project) -> None:
    assert [row["question_id"] for row in sheet(eight)] == ON_SHEET
    hashes = [hashlib.sha256(f"{name}\0strong".encode()).digest() for name in ON_SHEET]
    assert hashes == sorted(hashes)


@table(
    "labelled, in_order",
    {
        "the first": (ON_SHEET[:1], True),
        "the first three": (ON_SHEET[:3], True),
        "the first three, in another order": (ON_SHEET[2::-1], True),
        "all": (IDS, True),
        "all but the first": (ON_SHEET[1:], False),
        "with one left out": ([*ON_SHEET[:3], *ON_SHEET[4:]], False),
        "the last": (ON_SHEET[-1:], False),
    },
)
def test_labels_from_the_top_of_a_sheet_are_a_random_sample(
    eight: Project, labelled: list[str], in_order: bool
) -> None:
    eight.write("labels.csv", csv_of(*((name, "strong", 4, "anna") for name in labelled)))
    outcome = eight.run("dev", "--human", "labels.csv")
    assert human(outcome)["labelled_in_sheet_order"] == in_order
    assert ("corrected by people: " in outcome.out) == in_order
    assert ("corrected by people, if these are a random sample: " in outcome.out) != in_order


@table(
    "scores, without",
    {
        "its judgement": ([5, 2, 5, 3, None, 1, 5, 3], {}),
        "an answer": (JUDGED, {"q005": {"answer": " "}}),
    },
)
def test_what_is_without_something_leaves_no_gap_in_a_sample(
    eight: Project, judge: Judging, scores: list[int | None], without: Row
) -> None:
    """q005 is the second on the sheet."""
    eight.predictions("strong", {**{name: {"answer": "Yes."} for name in IDS}, **without})
    judge({"strong": scores})
    eight.write("labels.csv", csv_of(("q007", "strong", 4), ("q003", "strong", 4)))
    assert human(eight.run("dev", "--human", "labels.csv"))["labelled_in_sheet_order"]


def test_of_two_systems_on_a_sheet_each_has_its_own_order(eight: Project, judge: Judging) -> None:
    eight.predictions("other", {name: {"answer": "Yes."} for name in IDS})
    judge({"strong": JUDGED, "other": JUDGED})
    rows = [(row["question_id"], row["system"], 4, "anna") for row in sheet(eight)]
    first = [row for row in rows if row[1] == "other"][:3] + [row for row in rows if row[1] == "strong"][1:4]
    eight.write("labels.csv", csv_of(*first))
    results = eight.run("dev", "--human", "labels.csv").results
    in_order = {name: results[name]["llm_judge"]["human"]["labelled_in_sheet_order"] for name in results}
    assert in_order == {"strong": False, "other": True}


@table("answer", {"missing": None, "empty": "", "blank": " \n\t", "invisible": "\u200b\u2800"})
def test_blank_answers_are_not_in_a_sheet(eight: Project, answer: str | None) -> None:
    prediction = {} if answer is None else {"q001": {"answer": answer}}
    eight.predictions("strong", {**prediction, "q002": {"answer": "Yes."}})
    assert answers_in(sheet(eight)) == {("q002", "strong")}


@table(
    "arguments, systems",
    {
        "all but simple": ([], {"strong", "other"}),
        "those to be judged": (["--judge", "simple", "other"], {"simple", "other"}),
        "those picked": (["--systems", "other", "simple"], {"other"}),
    },
)
def test_a_sheet_has_the_systems_that_are_judged(
    eight: Project, arguments: list[str], systems: set[str]
) -> None:
    for name in ("simple", "other"):
        eight.predictions(name, {"q001": {"answer": "Yes."}})
    assert {row["system"] for row in sheet(eight, *arguments)} == systems


@table(
    "arguments",
    {
        "none": ["--no-judge"],
        "none of those picked": ["--systems", "simple"],
        "none after all": ["--judge", "strong", "--no-judge"],
    },
)
def test_where_no_system_is_judged_there_is_no_sheet(eight: Project, arguments: list[str]) -> None:
    eight.predictions("simple", {name: {"answer": "Yes."} for name in IDS})
    before = listing(eight.folder)
    outcome = eight.run("dev", "--label-sheet", *arguments)
    assert outcome.err == ["error: no system is judged, so there is nothing to label: name one with --judge"]
    assert (outcome.code, outcome.out, listing(eight.folder)) == (2, "", before)


def test_a_question_without_a_rubric_is_not_in_a_sheet(eight: Project) -> None:
    eight.questions(question("d1", rubric=None), question("d2"))
    assert answers_in(sheet(eight)) == {("q002", "strong")}


@table(
    "text, cell",
    {
        "a formula": ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        "a plus": ("+1", "'+1"),
        "a minus": ("-1", "'-1"),
        "an at sign": ("@SUM(1)", "'@SUM(1)"),
        "behind a tab": ("\t=1", "'\t=1"),
        "behind a carriage return": ("\r=1", "'=1"),
        "behind what nobody sees": ("\u200b\u202e=1", "'=1"),
        "colours": ("a\x1b[31m\x07b", "a[31mb"),
        "quotes, separators and lines": ('a"b,c;d\ne', 'a"b,c;d\ne'),
        "an apostrophe": ("'tis", "'tis"),
    },
)
def test_a_cell_does_nothing_in_a_spreadsheet(project: Project, text: str, cell: str) -> None:
    project.questions(question("d1", question=f"x{text}", answer=text, rubric={"description": text}))
    project.predictions("strong", {"q001": {"answer": text}})
    [row] = sheet(project)
    assert (row["gold_answer"], row["system_answer"], row["rubric"].startswith(cell)) == (cell, cell, True)


@table(
    "put",
    {
        "a sheet": lambda path: path.write_text("filled in"),
        "a folder": lambda path: path.mkdir(),
        "a link to nowhere": lambda path: path.symlink_to("elsewhere"),
    },
)
def test_a_sheet_is_never_overwritten(eight: Project, put: Callable[[Path], None]) -> None:
    put(eight.folder / SHEET)
    before, names = listing(eight.folder), os.listdir(eight.folder)
    outcome = eight.run("dev", "--label-sheet")
    assert outcome.err[-1] == "error: dev_labels.csv is there already: move it away, it may hold scores"
    assert (outcome.code, outcome.out) == (2, "")
    assert (listing(eight.folder), os.listdir(eight.folder)) == (before, names)


# --------------------------------------------------------------------------------------- there and back again
def fill(project: Project, score: Callable[[Mapping[str, str]], int], **form: Any) -> None:
    """Write a score in each row of the sheet, and save it as this form of CSV."""
    path = project.folder / SHEET
    rows = list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    head, *filled = rows
    for row in filled:
        row[head.index("score")] = str(score(dict(zip(head, row, strict=True))))
        row[head.index("rater")] = "anna"
    stream = io.StringIO(newline="")
    csv.writer(stream, **form).writerows(rows)
    path.write_bytes(stream.getvalue().encode())


HARMLESS = ["q1", "7", "what is d3?"]
HOSTILE = ["=q1", "+2", "-3", "@q4", "'q5", " q6 ", "q\u200b7", "\t=q8", 'q"9,;\n']


@table(
    "form",
    {
        "commas": {},
        "semicolons": {"delimiter": ";"},
        "tabs, all in quotes": {"delimiter": "\t", "quoting": csv.QUOTE_ALL, "lineterminator": "\n"},
    },
)
@table("ids", {"harmless": HARMLESS, "hostile": HOSTILE})
@table("system", {"harmless": "strong", "hostile": "-beta"})
def test_a_sheet_that_was_filled_in_is_understood(
    project: Project, judge: Judging, system: str, ids: list[str], form: Mapping[str, Any]
) -> None:
    project.questions(*(question(f"d{n}", question_id=name) for n, name in enumerate(ids)))
    project.predictions(system, {name: {"answer": "=1\n-2"} for name in ids})
    judge({system: [4] * len(ids)})
    assert len(sheet(project)) == len(ids)
    fill(project, lambda _: 4, **form)
    found = project.run("dev", "--human", SHEET).results[system]["llm_judge"]["human"]
    assert (found["labels"], found["questions"], found["exact_agreement"]) == (len(ids), len(ids), 1)


@pytest.fixture
def handed_in(eight: Project, judge: Judging) -> Project:
    """Two hand-ins, each with a `strong`; the first has `other` too."""
    (eight.folder / "dev_strong_output.json").unlink()
    for file in ("a/dev_strong", "a/dev_other", "b/dev_strong"):
        eight.write(f"in/{file}_output.json", {name: {"answer": f"By {file}."} for name in IDS})
    judge({"strong": [4] * 8, "other": [2] * 8})
    return eight


OUTPUTS = ["--outputs", "in/a", "in/b"]


def labels_of(project: Project, folder: str) -> dict[str, int | None]:
    """How many labels each system of a hand-in is compared with."""
    results = json.loads((project.folder / folder / RESULTS).read_bytes())
    return {name: blocks["llm_judge"].get("human", {}).get("labels") for name, blocks in results.items()}


def test_a_sheet_of_many_hand_ins_names_folder_and_system(handed_in: Project) -> None:
    rows = sheet(handed_in, *OUTPUTS)
    systems = ("in/a/other", "in/a/strong", "in/b/strong")
    assert answers_in(rows) == {(name, system) for name in IDS for system in systems}
    assert not list((handed_in.folder / "in").rglob("*labels*"))


def test_a_sheet_of_many_hand_ins_is_understood(handed_in: Project) -> None:
    sheet(handed_in, *OUTPUTS)
    fill(handed_in, lambda row: 2 if row["system"].endswith("other") else 4)
    outcome = handed_in.run("dev", *OUTPUTS, "--human", SHEET)
    assert outcome.code == 0
    assert labels_of(handed_in, "in/a") == {"strong": 8, "other": 8}
    assert labels_of(handed_in, "in/b") == {"strong": 8}


def test_labels_from_the_top_of_a_sheet_of_many_hand_ins_are_a_random_sample_of_each(
    handed_in: Project,
) -> None:
    rows = [(row["question_id"], row["system"], 4, "anna") for row in sheet(handed_in, *OUTPUTS)]
    handed_in.write("labels.csv", csv_of(*rows[:12]))
    handed_in.run("dev", *OUTPUTS, "--human", "labels.csv")
    for folder in ("in/a", "in/b"):
        for name, blocks in json.loads((handed_in.folder / folder / RESULTS).read_bytes()).items():
            found = blocks["llm_judge"]["human"]
            assert found["labels"] == [row[1] for row in rows[:12]].count(f"{folder}/{name}")
            assert found["labelled_in_sheet_order"]


def test_labels_of_a_hand_in_that_breaks_are_no_reason_to_refuse_the_others(handed_in: Project) -> None:
    sheet(handed_in, *OUTPUTS)
    fill(handed_in, lambda _: 4)
    handed_in.write("in/b/dev_strong_output.json", "[]")
    outcome = handed_in.run("dev", *OUTPUTS, "--human", SHEET)
    assert outcome.code == 3
    assert labels_of(handed_in, "in/a") == {"strong": 8, "other": 8}


def test_labels_name_the_folder_where_there_are_many(handed_in: Project) -> None:
    handed_in.write("labels.csv", csv_of(("q001", "strong", 4), ("q001", "in/a/strong", 4)))
    outcome = handed_in.run("dev", *OUTPUTS, "--human", "labels.csv")
    assert outcome.err[0] == 'labels.csv:2: expected the name of a system in system, found "strong"'
    assert (outcome.code, len(outcome.err)) == (2, 2)
