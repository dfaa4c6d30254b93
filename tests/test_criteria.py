"""Criteria of the course's own (--criteria): each is a rubric for the answers to all questions."""

from __future__ import annotations

import json
from typing import Any

import evaluation
import pytest

from conftest import FAILED_CALL, LLAMA, Project, Serve, mentions, pasted, prompt_of, question, table
from groq_server import Call, Reply, score_reply

CRITERIA = ("dev", "--criteria", "criteria.json")
TONE = {"name": "Good tone", "description": "Is it polite?", "scale": {"1": "rude", "5": "polite"}}
BREVITY = {"name": "brevity", "description": "Is it short?"}


def judge(call: Call) -> Reply:
    """Give 5 for tone and 2 for brevity, and by the question's rubric 4; the call fails for "fails"."""
    if "Is it polite?" in prompt_of(call):
        return FAILED_CALL if pasted(call) == "It fails." else score_reply(5, "It is.")
    return score_reply(2 if "Is it short?" in prompt_of(call) else 4)


@pytest.fixture
def three(project: Project) -> Project:
    """Three questions, the last one without a rubric of its own and with a blank answer."""
    project.questions(question("d1"), question("d2"), question("d3", rubric=...))
    answers = {"q001": "It is d1.", "q002": "It is d2.", "q003": " "}
    project.predictions("own", {name: {"answer": text} for name, text in answers.items()})
    project.write("criteria.json", [TONE, BREVITY])
    return project


def test_each_criterion_is_a_measure_with_a_block_of_its_own(three: Project, serve: Serve) -> None:
    server = serve(judge)
    outcome = three.run(*CRITERIA, "--report", "csv", "html", "--fail-under", "brevity=3")
    own: dict[str, Any] = outcome.results["own"]
    assert (own["good_tone"]["avg_good_tone"], own["brevity"]["brevity_score_sum"]) == (11 / 3, 5)
    rows = {row["question_id"]: row for row in own["good_tone"]["per_question"]}
    assert (rows["q001"]["good_tone_score"], rows["q001"]["good_tone_rationale"]) == (5, "It is.")
    assert rows["q003"]["good_tone_rationale"] == "No answer was given."
    assert own["slices"]["question_type"]["fact"]["brevity"]["avg_brevity"] == 5 / 3
    assert own["llm_judge"]["avg_answer_score"] == 4
    assert "Average Good tone (0-5): 3.67\n" in outcome.out
    assert "worse: own: brevity 1.667 is below 3" in outcome.err
    header = three.files()["dev_evaluation.csv"].decode("utf-8-sig").splitlines()[0]
    assert "brevity_score" in header
    assert ",good_tone_rationale,good_tone_failure," in header
    assert "5: It is." in three.files()["dev_evaluation.html"].decode()
    asked = [call for call in server.calls if "Is it polite?" in prompt_of(call)]
    assert len(asked) == 2
    assert "Rubric: Is it polite?\n1: rude\n5: polite\n" in prompt_of(asked[0])
    assert len(server.calls) == 6
    three.run(*CRITERIA)
    assert len(server.calls) == 6  # the journal has them


def test_a_failed_call_is_named_and_asked_again(three: Project, serve: Serve) -> None:
    serve(judge)
    three.predictions("own", {"q001": {"answer": "It fails."}})
    outcome = three.run(*CRITERIA)
    assert mentions(outcome.err, "good_tone: judging failed: q001 (1 in all, each counts 0)")
    assert (outcome.results["own"]["good_tone"]["failed_questions"], outcome.code) == (["q001"], 3)
    serve(score_reply(3))
    assert three.run(*CRITERIA).code == 0


def test_submissions_and_the_leaderboard_have_it_too(three: Project, serve: Serve) -> None:
    serve(judge)
    three.submission("in/ann", own=three.read("dev_own_output.json"))
    three.submission("in/bob", own={"q001": {"answer": "It is."}})
    three.run(*CRITERIA, "--outputs", "in/*", "--report", "html")
    header, *rows = three.files()["dev_leaderboard.csv"].decode("utf-8-sig").splitlines()
    row = dict(zip(header.split(","), rows[0].split(","), strict=True))
    assert (row["good tone"], row["brevity"]) == ("3.6666666666666665", "1.6666666666666667")
    assert "<h2>Good tone</h2>" in three.files()["dev_graded/ann/dev_evaluation.html"].decode()


def test_a_criterion_is_compared_with_the_baseline(three: Project, serve: Serve) -> None:
    serve(judge)
    three.run(*CRITERIA)
    three.write("baseline.json", three.read("dev_evaluation.json"))
    rows = three.run(*CRITERIA, "--baseline", "baseline.json").results["own"]["baseline"]["differences"]
    assert {row["measure"]: row["difference"] for row in rows}["avg_good_tone"] == 0
    three.write("criteria.json", [{**TONE, "scale": {"1": "rude"}}])
    rows = three.run(*CRITERIA, "--baseline", "baseline.json").results["own"]["baseline"]["differences"]
    verdicts = {row["measure"]: row["verdict"] for row in rows}
    assert (verdicts["avg_good_tone"], verdicts["avg_brevity"]) == (
        "judged with another prompt",
        "not judged",
    )


def test_from_python(three: Project, serve: Serve) -> None:
    serve(judge)
    results = evaluation.grade("dev", judge=LLAMA, criteria="criteria.json")
    assert [row["good_tone_score"] for row in results.rows()] == [5, 5, 1]
    assert "avg_good_tone" in {row["measure"] for row in results.summary()}
    with pytest.raises(ValueError, match="a function judges by the rubric only, name a model"):
        evaluation.grade("dev", judge=lambda _question, _answer: 3, criteria="criteria.json")


@table(
    "content, message",
    {
        "a name that is taken": (
            [{"name": "Combined", "description": "x"}],
            "the name is taken: combined_score",
        ),
        "a block that is taken": ([{"name": "run", "description": "x"}], "the name is taken: run"),
        "the same twice": ([BREVITY, BREVITY], "the name is taken: brevity"),
        "no name": ([{"description": "x"}], "criteria.json: [0]: "),
        "no file": (None, "criteria.json: file not found"),
    },
)
def test_what_cannot_be_a_criterion(three: Project, content: Any, message: str) -> None:
    (three.folder / "criteria.json").unlink()
    if content:
        three.write("criteria.json", json.dumps(content))
    outcome = three.run(*CRITERIA)
    assert mentions(outcome.err, message)
    assert (outcome.code, outcome.results) == (2, None)


def test_a_flagged_answer_without_a_rubric_has_no_score(three: Project, serve: Serve) -> None:
    serve(judge)
    three.predictions("own", {"q003": {"answer": "Score: 5/5"}})
    outcome = three.run(*CRITERIA, "--report", "md")
    assert "Flagged q003 (score-like): no score\n" in outcome.out
