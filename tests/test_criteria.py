"""Criteria of the user's own (--criteria): questions to decide yes or no, or scales from 1 to 5."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import evaluation
import pytest

from conftest import (
    FAILED_CALL,
    JUDGE,
    QUESTIONS_FILE,
    Project,
    Serve,
    assert_refused,
    first_question,
    mentions,
    pasted,
    prompt_of,
    question,
    table,
)
from groq_server import Call, GroqServer, Reply, completion, score_reply

POLITE = "polite=Is the tone polite?"
BREVITY = {"name": "brevity", "description": "How short is it?", "scale": {"1": "long", "5": "short"}}
CLEAR = {"name": "Is clear", "description": "Is it clear?"}
CRITERIA = ("dev", "--criteria", POLITE, "criteria.json")


def decide(word: str) -> Reply:
    return completion(json.dumps({"rationale": f"I say {word}.", "decision": word}))


def judge(call: Call) -> Reply:
    """Find everything polite but what begins with "No", nothing clear, and all of it rather long."""
    if "Is the tone polite?" in prompt_of(call):
        return FAILED_CALL if pasted(call) == "It fails." else decide("no" if "No" in pasted(call) else "yes")
    if "Is it clear?" in prompt_of(call):
        return decide("no")
    return score_reply(2 if "How short is it?" in prompt_of(call) else 4)


def calls_by(server: GroqServer, text: str) -> list[Call]:
    return [call for call in server.calls if text in prompt_of(call)]


@pytest.fixture
def three(project: Project) -> Project:
    """Three questions, the last one without a rubric of its own and with a blank answer."""
    project.questions(question("d1"), question("d2", answer="Two."), question("d3", rubric=...))
    answers = {"q001": "It is d1.", "q002": "No, d2.", "q003": " "}
    project.predictions("own", {name: {"answer": text} for name, text in answers.items()})
    project.write("criteria.json", [BREVITY, CLEAR])
    return project


def test_each_criterion_is_a_measure_with_a_block_of_its_own(three: Project, serve: Serve) -> None:
    server = serve(judge)
    outcome = three.run(*CRITERIA, "--report", "csv", "html", "--fail-under", "brevity=3", "polite=0.5")
    own: dict[str, Any] = outcome.results["own"]
    assert (own["polite"]["avg_polite"], own["polite"]["polite_score_sum"]) == (1 / 3, 1)
    assert (own["brevity"]["avg_brevity"], own["Is clear"]["avg_Is clear"]) == (5 / 3, 0)
    rows = {row["question_id"]: row for row in own["polite"]["per_question"]}
    assert [rows[name]["polite_score"] for name in ("q001", "q002", "q003")] == [1, 0, 0]
    assert (rows["q001"]["polite_rationale"], rows["q003"]["polite_rationale"]) == (
        "I say yes.",
        "No answer was given.",
    )
    assert (own["llm_judge"]["avg_answer_score"], own["llm_judge"]["usage"]["judgements"]) == (4, 2)
    assert (
        "Average polite (0-1): 0.33\nAverage brevity (1-5): 1.67\nAverage Is clear (0-1): 0.00" in outcome.out
    )
    assert "worse: own: brevity 1.667 is below 3" in outcome.err
    assert "worse: own: polite 0.3333 is below 0.5" in outcome.err
    header = three.files()["dev_evaluation.csv"].decode("utf-8-sig").splitlines()[0]
    assert "polite_score,brevity_score,Is clear_score" in header
    assert (
        ",polite_rationale,polite_failure,polite_judge_score,polite_override_reason,brevity_rationale,"
        in header
    )
    assert "yes: I say yes." in three.files()["dev_evaluation.html"].decode()
    assert len(server.calls) == 2 * 4
    three.run(*CRITERIA)
    assert len(server.calls) == 2 * 4  # the journal has them


def test_the_judge_sees_question_gold_answer_and_answer(three: Project, serve: Serve) -> None:
    server = serve(judge)
    three.questions(question("d1"), question("d2", answer=" "), question("d3", rubric=...))
    three.run(*CRITERIA, "--workers", "1")
    with_gold, without = calls_by(server, "Is the tone polite?")
    assert prompt_of(with_gold).startswith("Criterion: Is the tone polite?\n\n[")
    assert re.findall(r"^\[\w+ (.+)\]$", prompt_of(with_gold), re.M) == [
        "question",
        "reference",
        "answer",
        "end",
    ]
    assert re.findall(r"^\[\w+ (.+)\]$", prompt_of(without), re.M) == ["question", "answer", "end"]
    system_messages = [call.body["messages"][0]["content"] for call in (with_gold, without)]
    assert ["The reference is a right answer." in text for text in system_messages] == [True, False]
    [scaled, _] = calls_by(server, "How short is it?")
    assert prompt_of(scaled).startswith("Criterion: How short is it?\n1: long\n5: short\n\n[")


def test_a_failed_call_is_named_and_asked_again(three: Project, serve: Serve) -> None:
    serve(judge)
    three.predictions("own", {"q001": {"answer": "It fails."}})
    outcome = three.run(*CRITERIA)
    assert mentions(outcome.err, "polite: judging failed: q001 (1 in all, each counts 0)")
    assert (outcome.results["own"]["polite"]["failed_questions"], outcome.code) == (["q001"], 3)
    serve(lambda call: decide("yes") if "polite" in prompt_of(call) else judge(call))
    assert three.run(*CRITERIA).code == 0


def test_a_reply_that_decides_nothing_is_asked_for_again(three: Project, serve: Serve) -> None:
    replies = [decide("perhaps"), decide("yes")]
    server = serve(lambda call: replies.pop(0) if "polite" in prompt_of(call) and replies else judge(call))
    outcome = three.run("dev", "--criteria", POLITE, "--workers", "1")
    assert outcome.results["own"]["polite"]["per_question"][0]["polite_score"] == 1
    complaints = [call for call in server.calls if len(call.body["messages"]) == 4]
    assert ['"decision" must be yes or no' in str(call.body["messages"][3]) for call in complaints] == [True]


def test_submissions_and_the_leaderboard_have_it_too(three: Project, serve: Serve) -> None:
    serve(judge)
    three.submission("in/ann", own=three.read("dev_own_output.json"))
    three.submission("in/bob", own={"q001": {"answer": "It is."}})
    three.run(*CRITERIA, "--submissions", "in/*", "--report", "html")
    row = next(csv.DictReader(io.StringIO(three.files()["dev_grades.csv"].decode("utf-8-sig"))))
    names = ("avg_polite", "avg_brevity", "avg_Is clear")
    assert [row[name] for name in names] == ["0.333333", "1.66667", "0.0"]
    page = three.files()["dev_graded/ann/dev_evaluation.html"].decode()
    assert ">polite</th>" in page.partition("Your grade: ")[2].partition("How to appeal")[0]


def test_criteria_never_change_points(three: Project, serve: Serve) -> None:
    serve(judge)
    three.submission("in/ann", own=three.read("dev_own_output.json"))
    three.run("dev", "--submissions", "in/*")
    grades = three.files()["dev_grades.csv"].splitlines()
    three.run(*CRITERIA, "--submissions", "in/*")
    more = three.files()["dev_grades.csv"].splitlines()
    assert all(row.startswith(start) for start, row in zip(grades, more, strict=True))  # with their means


def test_a_criterion_is_compared_with_the_baseline_unless_its_text_has_changed(
    three: Project, serve: Serve
) -> None:
    serve(judge)
    three.run(*CRITERIA)
    three.write("baseline.json", three.read("dev_evaluation.json"))
    rows = three.run(*CRITERIA, "--baseline", "baseline.json").results["own"]["baseline"]["differences"]
    assert {row["measure"]: row["difference"] for row in rows}["avg_polite"] == 0
    changed = ("dev", "--criteria", "polite=Is it friendly?", "--baseline", "baseline.json")
    rows = three.run(*changed).results["own"]["baseline"]["differences"]
    verdicts = {row["measure"]: row["verdict"] for row in rows}
    another = "not judged by the same model with the same prompt"
    assert (verdicts["avg_polite"], verdicts["brevity"]) == (another, "not measured now")


def test_dry_run_counts_a_call_for_each_criterion(three: Project, serve: Serve) -> None:
    server = serve(judge)
    assert "Calls to make: 8\n" in three.run(*CRITERIA, "--dry-run").out
    questions = three.files()[QUESTIONS_FILE]
    first_question(three).run(*CRITERIA)
    assert [pasted(call) for call in server.calls] == ["It is d1."] * 4
    three.write(QUESTIONS_FILE, questions)
    assert "Calls to make: 4\n" in three.run(*CRITERIA, "--dry-run").out


@table(
    "criteria, n_own",
    {
        "a dict": ({"polite": "Is the tone polite?"}, 1),
        "rows of a file": ([BREVITY, {"name": "polite", "description": "Is the tone polite?"}], 2),
        "a file and a question": (["criteria.json", POLITE], 3),
        "a path": (Path("criteria.json"), 2),
    },
)
def test_from_python(three: Project, serve: Serve, criteria: Any, n_own: int) -> None:
    serve(judge)
    results = evaluation.grade("dev", judge=JUDGE, criteria=criteria)
    scores = {
        "brevity_score": [2, 2, 1],
        "polite_score": [1, 0, 0],
        "Is clear_score": [0, 0, 0],
    }
    found = {name for name in scores if name in results.rows()[0]}
    assert len(found) == n_own
    for name in found:
        assert [row[name] for row in results.rows()] == scores[name]
    with pytest.raises(ValueError, match=r"^judge: a function judges by the rubric only, name a model$"):
        evaluation.grade("dev", judge=lambda _question, _answer: 3, criteria=criteria)
    with pytest.raises(evaluation.InputError, match=r"^--criteria: the name is taken: f1$"):
        evaluation.grade("dev", criteria={"f1": "Is it?"})


NAME = "name: expected at most 40 letters, digits, spaces, and . _ -"
ROW = "criteria.json: [1]"
LEVELS = 'scale: expected texts for levels "1" to "5", of which some may be missing'


@table(
    "value, message",
    {
        "a name that is taken": ("Combined=Is it?", "--criteria Combined: the name is taken: Combined"),
        "a block that is taken": ("run=Is it?", "--criteria run: the name is taken: run"),
        "a column that is taken": ("judge=Is it?", "--criteria judge: the name is taken: judge"),
        "the same twice": (BREVITY, "criteria.json: [1]: the name is taken: brevity"),
        "the same in another spelling": ("POLITE=Is it?", "--criteria POLITE: the name is taken: POLITE"),
        "no name": ("=Is it?", f"--criteria: {NAME}, got ''"),
        "a long name": (f"{'x' * 41}=Is it?", f"--criteria {'x' * 41}: {NAME}, got '{'x' * 41}'"),
        "a name of signs": ("a/b=Is it?", f"--criteria a/b: {NAME}, got 'a/b'"),
        "no question": ("kind= ", "--criteria kind: description: must not be blank"),
        "a row without a name": (
            {"description": "x"},
            f"{ROW}: name is missing or blank",
        ),
        "a row without a question": (
            {"name": "x"},
            f"{ROW}: description is missing or blank",
        ),
        "levels for a scale": (
            {**CLEAR, "levels": {"1": "no"}},
            f"{ROW}: unknown field levels; expected description, name, scale",
        ),
        "a misspelt field": (
            {"name": "x", "descripton": "x"},
            f"{ROW}: unknown field descripton: did you mean description?; expected description, name, scale",
        ),
        "a scale of other levels": (
            {**CLEAR, "scale": {"0": "no", "1": "yes"}},
            f"{ROW}: {LEVELS}",
        ),
        "neither a question nor a file": (
            "other",
            "other: file not found in {}: expected NAME=QUESTION, a file, or in a split support",
        ),
    },
)
def test_what_cannot_be_a_criterion(three: Project, value: Any, message: str) -> None:
    if not isinstance(value, str):
        three.write("criteria.json", [BREVITY, value])
        value = "criteria.json"
    assert assert_refused(three, "dev", "--criteria", POLITE, value) == [message.format(three.folder)]


def test_a_criterion_needs_a_system_that_is_judged(three: Project, serve: Serve) -> None:
    three.predictions("simple", {"q001": {"answer": "It is d1."}})
    command = ("dev", "--systems", "simple", "--criteria", "support")
    message = "error: --criteria: none of these systems is judged: name one with --judge"
    assert assert_refused(three, *command) == [message]
    serve(judge)
    assert "support" in three.run(*command, "--judge", "simple").results["simple"]


def test_a_flagged_answer_without_a_rubric_has_no_score(three: Project, serve: Serve) -> None:
    serve(judge)
    three.predictions("own", {"q003": {"answer": "Score: 5/5"}})
    outcome = three.run(*CRITERIA, "--report", "md")
    assert "Flagged q003 (score-like): no score\n" in outcome.out


# ------------------------------------------------------------------ Free answers

GROUNDED = "grounded=Does everything that the answer claims follow from the context?"
ALONE = ("answers", "log.json", "--criteria", GROUNDED)


@pytest.fixture
def log(project: Project) -> Project:
    """A chatbot's log: two answers from their context, a blank one, and nothing of a gold answer."""
    rows = [
        {"question": "Who?", "answer": "Ann.", "context": ["Ann did.", "Bob slept."]},
        {"question": "When?", "answer": "In May.", "context": "It was June."},
        {"question": "Why?", "answer": "", "context": "Because."},
    ]
    project.write("log.json", rows)
    return project


def ground(call: Call) -> Reply:
    return decide("yes" if pasted(call).strip(".") in pasted(call, "context reference") else "no")


def test_criteria_alone_need_no_gold_answer(log: Project, serve: Serve) -> None:
    server = serve(ground)
    outcome = log.run(*ALONE, "--report", "csv", "html")
    results = log.read("log_answers.json")
    assert list(results["measures"]) == ["grounded", "verifier_faithfulness"]
    assert results["measures"]["grounded"]["mean"] == 1 / 3
    rows = results["detailed_results"]
    assert [row["scores"]["grounded"] for row in rows] == [1, 0, 0]
    assert [(row["grounded_rationale"], row["grounded_failure"]) for row in rows[:2]] == [
        ("I say yes.", None),
        ("I say no.", None),
    ]
    assert [(row["correct"], row["decision_method"], row["gold"]) for row in rows] == [(None, "", "")] * 3
    assert (len(server.calls), outcome.code) == (2, 0)
    titles = re.findall(r"^\[\w+ (.+)\]$", prompt_of(server.calls[0]), re.M)
    assert titles == ["question", "context reference", "answer", "end"]
    assert "grounded_rationale,grounded_failure" in log.files()["log_answers.csv"].decode("utf-8-sig")
    assert "I say yes." in log.files()["log_answers.html"].decode()


def test_beside_methods_and_a_protocol(log: Project, serve: Serve) -> None:
    rows = [{"question": "Who?", "gold": "Ann", "answer": "She did.", "context": "Ann did."}]
    log.write("log.json", rows)
    server = serve(lambda call: decide("yes") if "Criterion" in prompt_of(call) else VERDICT)
    log.run(*ALONE, "--method", "exact", "llm_judge")
    results = log.read("log_answers.json")
    means = {name: row["mean"] for name, row in results["measures"].items()}
    assert {name: means[name] for name in ("exact", "llm_judge", "grounded")} == {
        "exact": 0,
        "llm_judge": 1,
        "grounded": 1,
    }
    assert (results["detailed_results"][0]["correct"], len(server.calls)) == (True, 2)
    with_all = calls_by(server, "Criterion")[0]
    titles = re.findall(r"^\[\w+ (.+)\]$", prompt_of(with_all), re.M)
    assert titles == ["question", "context reference", "reference", "answer", "end"]


VERDICT = completion(json.dumps({"reasoning": "Right.", "correct": "yes"}))


def test_of_a_split(three: Project, serve: Serve) -> None:
    serve(judge)
    three.run("answers", "dev", "--criteria", POLITE)
    assert three.read("dev_own_output_answers.json")["measures"]["polite"]["mean"] == 1 / 3


def test_several_files_are_compared_by_a_scale(log: Project, serve: Serve) -> None:
    log.write("criteria.json", [BREVITY])
    log.write("other.json", log.read("log.json"))
    serve(lambda call: score_reply(5 if pasted(call) == "Ann." else 3))
    outcome = log.run("answers", "log.json", "other.json", "--criteria", "criteria.json")
    assert "Ranked by: brevity" in outcome.out
    assert log.read("log_answers.json")["measures"]["brevity"]["mean"] == (5 + 3 + 1) / 3


def test_without_a_judge_there_is_nothing_to_write(log: Project) -> None:
    outcome = log.run(*ALONE)
    message = "error: this needs a model: set GROQ_API_KEY, or see --dry-run"
    assert (outcome.code, outcome.usage_error) == (2, message)
    assert "Calls to make: 2\n" in log.run(*ALONE, "--dry-run").out


@table(
    "name",
    {"a method": "exact", "the judge": "llm_judge", "a column": "correct", "a measure": "context_recall"},
)
def test_names_that_are_taken_in_answers(log: Project, name: str) -> None:
    problems = assert_refused(log, "answers", "log.json", "--criteria", f"{name}=Is it?")
    assert problems == [f"--criteria {name}: the name is taken: {name}"]
