"""The gate for cron: means that may not be lower (--fail-under), and earlier results (--baseline)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import evaluation
import pytest

from conftest import JudgeWith, Outcome, Project, assert_refused, blocks, document, mentions, question, table

RESULTS, BASELINE = "dev_evaluation.json", "baseline.json"
MEASURES = ("recall_at_1_pct", "recall_at_5_pct", "avg_precision", "avg_recall", "avg_f1")
Rows = dict[str, dict[str, Any]]


def rows(n: int, **changes: Any) -> Rows:
    """Return right predictions for n questions about d1, d2, ..., but for the changes."""
    right = {f"q00{i}": {"retrieved_docs": [f"d{i}"], "evidence_sentences": ["S1"]} for i in range(1, n + 1)}
    return {name: {**row, "answer": f"Answer {name}.", **changes} for name, row in right.items()}


@pytest.fixture
def six(project: Project) -> Project:
    """Six questions about six documents, answered by `own`. Nothing is judged."""
    project.questions(*(question(f"d{n}") for n in range(1, 7)))
    project.documents(*(document(f"d{n}", "It rained.", "It snowed.") for n in range(1, 7)))
    project.predictions("own", rows(6))
    return project


HALF: Rows = {**rows(6, retrieved_docs=["d9"]), **{f"q00{n}": rows(6)[f"q00{n}"] for n in (1, 2, 3)}}
THRESHOLDS = {  # options, exit code, lines
    "met": ("recall@5=50 own:f1=1", 0, []),
    "no shares of a percentage": ("recall@5=1.5 f1=0.8", 0, []),
    "not met by one": ("recall@5=51", 1, ["half: Recall@5 % 50.00 is below 51"]),
    "of the other": ("own:recall@5=51", 0, []),
    "in other words": ("half:recall_at_5=50.1", 1, ["half: Recall@5 % 50.00 is below 50.1"]),
    "two": ("half:recall@1=60 recall@5=100", 1, ["half: Recall@1 % 50.00", "half: Recall@5 % 50.00"]),
    "nobody is judged": ("answer=3", 3, []),
}


@table("options, code, lines", THRESHOLDS)
def test_means_that_are_too_low(six: Project, options: str, code: int, lines: Sequence[str]) -> None:
    six.predictions("half", HALF)
    outcome = six.run("dev", "--report", "md", "--fail-under", *options.split())
    worse = [line.removeprefix("worse: ") for line in outcome.err if line.startswith("worse: ")]
    report = (six.folder / "dev_evaluation.md").read_text("utf-8")
    assert (report.count("\n- worse: "), "## Gate" in report) == (len(worse), code > 0)
    for line, start in zip(worse, lines, strict=True):
        assert line.startswith(start)
    assert (outcome.code, list(outcome.results)) == (code, ["half", "own"])


MEASURE_NAMES = "recall@1, recall@5, precision, recall, f1, answer, evidence, combined"


@table(
    "name, reason",
    {
        "a number": ("recall@7", f"measure; the measures are {MEASURE_NAMES}"),
        "not asked for": ("support", f"measure; the measures are {MEASURE_NAMES}"),
        "a system": ("owm:f1", "system; the systems are own"),
    },
)
def test_an_unknown_name_is_bad_usage(six: Project, name: str, reason: str) -> None:
    problems = assert_refused(six, "dev", "--fail-under", f"{name}=1")
    assert problems == [f"error: --fail-under {name}: unknown {reason}"]


@table(
    "option, advice",
    {
        "a share": ("recall@5=0.8", "recall@5=80"),
        "of a system": ("own:recall_at_1=.07", "own:recall_at_1=7"),
        "1": ("recall@1=1", "recall@1=100"),
    },
)
def test_a_share_for_a_percentage_is_bad_usage(six: Project, option: str, advice: str) -> None:
    problems = assert_refused(six, "dev", "--fail-under", option)
    assert problems == [f"error: --fail-under {option.replace('=.', '=0.')}: in percent, say {advice}"]


@table(
    "option, bounds",
    {
        "0 to 1 for 1 to 5": ("answer=0.8", "more than 1, and at most 5"),
        "the lowest level, which all reach": ("own:answer=1", "more than 1, and at most 5"),
        "a percentage for a share": ("f1=65", "more than 0, and at most 1"),
        "more than all": ("recall@5=101", "more than 0, and at most 100"),
        "0": ("recall@5=0", "more than 0, and at most 100"),
    },
)
def test_a_threshold_off_the_scale_is_bad_usage(six: Project, option: str, bounds: str) -> None:
    """It can never fail, or never pass."""
    problems = assert_refused(six, "dev", "--fail-under", option)
    assert problems == [f"error: --fail-under {option}: expected {bounds}"]


def test_what_a_system_has_not_submitted_is_not_asked_of_it(six: Project) -> None:
    six.predictions("bare", rows(6, retrieved_docs=[]))
    assert six.run("dev", "--fail-under", "recall@5=100").code == 0
    outcome = six.run("dev", "--fail-under", "bare:recall@5=100")
    assert outcome.err[-1] == "worse: --fail-under bare:recall@5: nothing was submitted for it"
    assert outcome.code == 1


def test_worse_wins_over_incomplete_and_both_are_explained(six: Project, judge_with: JudgeWith) -> None:
    judge_with({"own": [5, 5, 5, 5, 5, None]})
    outcome = six.run("dev", "--fail-under", "answer=4.5")
    assert mentions(outcome.err, "missing: dev_own_output.json: judging failed: q006")
    assert mentions(outcome.err, "worse: own: Answer 4.167 is below 4.5")
    assert outcome.code == 1


def test_submissions_have_thresholds_too(six: Project) -> None:
    six.submission("in/ann", own=rows(6))
    six.submission("in/bob", own=HALF)
    thresholds = ("--fail-under", "ann:recall@5=100", "recall@1=60")
    outcome = six.run("dev", "--submissions", "in/*", "--judge", *thresholds)
    worse = [line for line in outcome.err if "worse" in line]
    assert (outcome.code, worse) == (1, ["worse: bob/own: Recall@1 % 50.00 is below 60"])


def keep_baseline(project: Project, *arguments: str) -> Outcome:
    """Run, and keep a copy of the results."""
    outcome = project.run("dev", *arguments)
    project.write(BASELINE, (project.folder / RESULTS).read_bytes())
    return outcome


def compare(project: Project, *arguments: str) -> Outcome:
    return project.run("dev", "--baseline", BASELINE, *arguments)


def changes(outcome: Outcome, system: str = "own") -> dict[str, dict[str, Any]]:
    return {row["measure"]: row for row in outcome.results[system]["baseline"]["differences"]}


def lose(*numbers: int) -> Rows:
    """Return predictions that retrieve the wrong document for some questions of six."""
    wrong = {f"q00{number}": {"retrieved_docs": ["d9"]} for number in numbers}
    return {name: {**row, **wrong.get(name, {})} for name, row in rows(6).items()}


def test_recall_that_falls_to_0_on_six_documents_is_noticed(six: Project) -> None:
    keep_baseline(six)
    six.predictions("own", rows(6, retrieved_docs=["d9"]))
    outcome = compare(six)
    row = changes(outcome)["recall_at_5_pct"]
    assert (row["n"], row["difference"], row["p"], row["p_adjusted"]) == (6, -100, 1 / 64, 1 / 64)
    assert (row["verdict"], changes(outcome)["avg_f1"]["verdict"]) == ("worse", "no significant drop")
    line = "worse: own: Recall@{} % -100.0 [-100.0, -15.9] against the baseline, p 0.0156"
    assert [line.format(k) for k in (1, 5)] == [text for text in outcome.err if "Recall@" in text]
    part = blocks(outcome.out)["CHANGES SINCE THE BASELINE"].splitlines()
    assert mentions(part, "own: Recall@5 % -100.0 [-100.0, -15.9]")
    assert outcome.code == 1


def test_the_combined_score_is_tested_too(six: Project, judge_with: JudgeWith) -> None:
    judge_with({"own": [5] * 6})
    keep_baseline(six)
    six.predictions("own", {name: {**row, "answer": "Bad."} for name, row in rows(6).items()})
    judge_with({"own": [1] * 6})
    outcome = compare(six)
    row = changes(outcome)["avg_combined_score"]
    assert (row["difference"], row["p_adjusted"], row["verdict"]) == (pytest.approx(-0.4), 1 / 64, "worse")
    assert (changes(outcome)["avg_answer_score"]["verdict"], outcome.code) == ("worse", 1)


def test_without_citations_the_answer_score_is_tested(six: Project, judge_with: JudgeWith) -> None:
    six.predictions("own", rows(6, evidence_sentences=[]))
    judge_with({"own": [5] * 6})
    keep_baseline(six)
    assert changes(compare(six))["avg_answer_score"]["p"] == 1


def test_documents_are_flipped_as_a_whole(project: Project) -> None:
    project.questions(*(question(f"d{n % 5}", question=f"{n}?") for n in range(10)))
    right = {f"q{n + 1:03d}": {"retrieved_docs": [f"d{n % 5}"]} for n in range(10)}
    project.predictions("own", right)
    keep_baseline(project)
    project.predictions("own", {**right, "q001": {"retrieved_docs": ["d7"]}})
    outcome = compare(project)
    row = changes(outcome)["recall_at_5_pct"]
    assert (outcome.results["own"]["baseline"]["documents"], row["n"], row["p"]) == (5, 10, 1 / 2)


def test_equal_scores_and_an_improvement_are_no_drop(six: Project) -> None:
    keep_baseline(six)
    outcome = compare(six)
    row = changes(outcome)["recall_at_5_pct"]
    assert (row["p"], row["p_adjusted"], row["verdict"]) == (1, 1, "no significant drop")
    six.predictions("own", lose(1))
    outcome = compare(six)
    assert changes(outcome)["recall_at_5_pct"]["verdict"] == "no significant drop"
    six.predictions("own", lose(1, 2, 3, 4, 5, 6))
    keep_baseline(six)
    six.predictions("own", rows(6))
    outcome = compare(six)
    row = changes(outcome)["recall_at_1_pct"]
    assert (row["difference"], row["p"], row["verdict"], outcome.code) == (100, 1, "no significant drop", 0)


LEFT_OUT = "of 6 questions are new, gone or have other gold, and are not compared with the baseline"


def test_questions_whose_gold_has_changed_are_left_out(six: Project) -> None:
    keep_baseline(six)
    gold = [question(f"d{n}") for n in range(1, 7)]
    gold[0]["answer"] = "Another."
    gold[1]["evidence_sentences"] = ["S2"]
    gold[2]["rubric"]["scale"] = {str(level): f"new {level}" for level in range(1, 6)}
    six.questions(*gold)
    outcome = compare(six)
    assert outcome.results["own"]["baseline"]["questions"] == 3
    assert f"\nown: 3 {LEFT_OUT}\n" in outcome.out
    assert changes(outcome)["recall_at_5_pct"]["n"] == 3
    assert changes(outcome)["recall_at_5_pct"]["verdict"] == "too few documents: 3"
    six.questions(*(question(f"d{n}", answer="New.") for n in range(1, 7)))
    outcome = compare(six)
    reason = "only 0 of 6 questions have the same gold"
    line = f"own: not compared with the baseline, {reason}: Recall@1 %, Recall@5 %, Precision, Recall, F1"
    assert (outcome.code, outcome.err[-1], f"\n{line}\n" in outcome.out) == (3, f"missing: {line}", True)
    assert {row["verdict"] for row in changes(outcome).values()} == {reason}
    assert set(MEASURES) <= changes(outcome).keys()


def test_a_question_that_is_gone_is_incomplete(six: Project) -> None:
    keep_baseline(six)
    six.questions(*(question(f"d{n}", question_id=f"q00{n}") for n in (1, 2, 3, 4, 6)))
    outcome = compare(six)
    assert (outcome.code, f"\nown: 1 {LEFT_OUT}\n" in outcome.out) == (3, True)
    assert "missing: own: questions of the baseline that are gone: q005" in outcome.err


def test_fewer_than_half_of_the_questions_in_common_is_incomplete(six: Project) -> None:
    keep_baseline(six)
    reasons = ["", "too few documents: 3", "only 2 of 6 questions have the same gold"]
    for n_new, code, reason in zip((1, 3, 4), (0, 3, 3), reasons, strict=True):
        changed = {f"d{n}": {"answer": "New."} for n in range(1, n_new + 1)}
        six.questions(*(question(f"d{n}", **changed.get(f"d{n}", {})) for n in range(1, 7)))
        outcome = compare(six, "--quiet")
        assert (outcome.code, mentions(outcome.err, "missing: own: not compared", reason)) == (
            code,
            n_new > 1,
        )


def test_a_measure_that_no_common_question_has_is_not_tested(six: Project) -> None:
    gold = [question("d1", evidence_sentences=[]), *(question(f"d{n}") for n in range(2, 7))]
    six.questions(*gold)
    keep_baseline(six)
    six.questions(*gold[:4], *(question(f"d{n}", answer="New.") for n in range(5, 7)))
    outcome = compare(six)
    row = changes(outcome)["avg_f1"]
    assert (row["n"], row["verdict"], outcome.code) == (3, "too few documents: 3", 3)
    assert changes(outcome)["recall_at_5_pct"]["n"] == 4


def test_a_criterion_that_is_not_judged_any_more_is_missed(six: Project) -> None:
    keep_baseline(six)
    results = six.read(BASELINE)
    for name, said in (("tone", {}), ("support", {"support": "full"})):
        row = {"question_id": "q001", f"{name}_score": 1, **said}
        results["own"][name] = {"per_question": [row]}
    six.write(BASELINE, results)
    outcome = compare(six)
    assert [changes(outcome)[name]["verdict"] for name in ("tone", "support")] == ["not measured now"] * 2
    assert outcome.code == 3


TOGETHER = {  # documents not found any more, and wrongly cited now -> adjusted p of recall@5 and F1
    "the same": ("123456", "123456", [1 / 64, 1 / 64]),
    "one did not change": ("123456", "", [1 / 64, 1]),
    # z is -sqrt(6) and -sqrt(5): all six flips give the first, the five of the second are 2 of 64
    "one within the other": ("123456", "23456", [1 / 64, 2 / 64]),
    "equal in five": ("23456", "23456", [2 / 64, 2 / 64]),
    # both have -sqrt(3) in 8 of 64 flips, one of them in common
    "apart": ("123", "456", [15 / 64, 15 / 64]),
}


@table("lost, wrong, p_adjusted", TOGETHER)
def test_measures_are_tested_together(six: Project, lost: str, wrong: str, p_adjusted: list[float]) -> None:
    keep_baseline(six)
    now = rows(6)
    for number in map(int, lost):
        now[f"q00{number}"]["retrieved_docs"] = ["d9"]
    for number in map(int, wrong):
        now[f"q00{number}"]["evidence_sentences"] = ["S2"]
    six.predictions("own", now)
    found = changes(compare(six))
    assert [found[name]["p_adjusted"] for name in ("recall_at_5_pct", "avg_f1")] == p_adjusted
    assert [found[name]["p_adjusted"] for name in ("recall_at_1_pct", "avg_recall")] == p_adjusted


def test_all_systems_are_tested_together(six: Project) -> None:
    six.predictions("other", rows(6))
    keep_baseline(six)
    for name, lost in (("own", (1, 2, 3)), ("other", (4, 5, 6))):
        six.predictions(name, lose(*lost))
    outcome = compare(six)
    for name in ("own", "other"):  # one sign for each document: 8 + 8 - 1 of 64 flips, as of two measures
        assert changes(outcome, name)["recall_at_5_pct"]["p_adjusted"] == 15 / 64
        assert changes(outcome, name)["recall_at_5_pct"]["p"] == 8 / 64


GONE = "own: in the baseline, and not submitted now"


def test_a_measure_that_is_newer_than_the_baseline_is_not_lost(six: Project) -> None:
    keep_baseline(six)
    results = six.read(BASELINE)
    for row in results["own"]["citation"]["per_question"]:
        del row["precision"]
    six.write(BASELINE, results)
    six.predictions("own", rows(6, evidence_sentences=[]))
    outcome = compare(six)
    assert (outcome.code, f"worse: {GONE}: Recall, F1" in outcome.err) == (1, True)


@table(
    "predictions, line",
    {
        "nothing is retrieved": (rows(6, retrieved_docs=[]), f"{GONE}: Recall@1 %"),
        "nothing is cited": (rows(6, evidence_sentences=[]), f"{GONE}: Precision"),
        "the system is gone": (None, GONE),
    },
)
def test_what_is_not_submitted_any_more_is_worse(six: Project, predictions: Rows | None, line: str) -> None:
    six.predictions("other", rows(6))
    keep_baseline(six)
    if predictions is None:
        (six.folder / "dev_own_output.json").unlink()
    else:
        six.predictions("own", predictions)
    outcome = compare(six)
    assert mentions(outcome.err, f"worse: {line}")
    assert outcome.code == 1
    assert compare(six, "--systems", "other").code == 0  # the others were left out on purpose


OTHER_JUDGE = "not judged by the same model with the same prompt"


@table(
    "arguments, scores, why",
    {
        "another model": (["--model", "llama-3.1-8b-instant"], [5] * 6, OTHER_JUDGE),
        "missing judgements": ([], [5, 5, 5, 5, 5, None], "judgements missing"),
        "not judged": (["--judge"], [5] * 6, "not measured now"),
    },
)
def test_what_cannot_be_compared_is_said_and_not_tested(
    six: Project, judge_with: JudgeWith, arguments: list[str], scores: list[Any], why: str
) -> None:
    judge_with({"own": [5] * 6})
    keep_baseline(six)
    (six.folder / "dev_judgements.jsonl").unlink()
    judge_with({"own": scores})
    outcome = compare(six, *arguments)
    row = changes(outcome)["avg_combined_score"]
    assert (row["p"], row["verdict"]) == (None, why)
    assert mentions(outcome.err, f"missing: own: not compared with the baseline, {why}: Answer", "Combined")
    assert mentions(blocks(outcome.out)["CHANGES SINCE THE BASELINE"].splitlines(), "own: not compared", why)
    assert outcome.code == 3


def test_another_prompt_is_not_tested(six: Project, judge_with: JudgeWith) -> None:
    judge_with({"own": [5] * 6})
    keep_baseline(six)
    results = six.read(BASELINE)
    results["own"]["llm_judge"]["prompt_hash"] = "0"
    six.write(BASELINE, results)
    outcome = compare(six)
    assert (changes(outcome)["avg_combined_score"]["verdict"], outcome.code) == (OTHER_JUDGE, 3)


def test_a_new_system_is_no_reason_for_anything(six: Project) -> None:
    keep_baseline(six)
    six.predictions("new", rows(6))
    outcome = compare(six, "--report", "html", "md")
    assert (outcome.code, "baseline" in outcome.results["new"]) == (0, False)
    assert "\nnew: only in this run\n" in outcome.out
    assert "## Changes since the baseline\n" in (six.folder / "dev_evaluation.md").read_text("utf-8")


COMPARED = "Measures compared with the baseline: "


def test_what_was_compared_is_one_line_and_the_rest_has_reasons(six: Project, judge_with: JudgeWith) -> None:
    """The baseline is of a first night without a key."""
    six.predictions("bare", rows(6, evidence_sentences=[]))
    keep_baseline(six)
    judge_with({"own": [5] * 6, "bare": [5] * 6})
    outcome = compare(six)
    lines = outcome.out.splitlines()
    assert f"{COMPARED}2 of bare, 5 of own; none worse" in lines
    assert "own: not compared with the baseline, only in this run: Answer, Evidence, Combined" in lines
    assert "bare: not compared with the baseline, only in this run: Answer, Combined" in lines
    assert changes(outcome)["avg_answer_score"]["verdict"] == "only in this run"
    assert (outcome.code, mentions(outcome.err, "baseline")) == (0, False)
    six.predictions("own", rows(6, retrieved_docs=["d9"]))
    assert f"{COMPARED}2 of bare, 5 of own; 2 worse" in compare(six).out.splitlines()
    outcome = compare(six, "--systems", "bare")
    assert "own: in the baseline, left out by --systems" in outcome.out.splitlines()
    assert (outcome.code, f"{COMPARED}2 of bare; none worse" in outcome.out) == (0, True)


def test_a_baseline_that_compares_nothing_of_a_system_is_incomplete(
    six: Project, judge_with: JudgeWith
) -> None:
    """A first night without a key, of a system that only answers."""
    six.predictions("talk", {name: {"answer": "Right."} for name in rows(6)})
    keep_baseline(six)
    assert (compare(six).code, f"{COMPARED}5 of own, 0 of talk; none worse" in compare(six).out) == (0, True)
    judge_with({"own": [5] * 6, "talk": [5] * 6})
    outcome = compare(six)
    line = "missing: talk: not compared with the baseline, only in this run: Answer, Combined"
    assert (outcome.code, line in outcome.err) == (3, True)


FEW = "not compared with the baseline, too few documents: 4"


def test_a_split_of_four_documents_is_a_line(six: Project) -> None:
    six.questions(*(question(f"d{n}") for n in range(1, 5)))
    six.predictions("own", rows(4))
    keep_baseline(six)
    six.predictions("own", rows(4, retrieved_docs=["d9"], evidence_sentences=["S2"]))
    outcome = compare(six)
    lines = outcome.out.splitlines()
    assert f"own: {FEW}: Recall@1 %, Recall@5 %, Precision, Recall, F1" in lines
    assert (outcome.code, f"{COMPARED}0 of own; none worse" in lines) == (0, True)
    row = changes(outcome)["recall_at_5_pct"]
    assert (row["difference"], row["p"], row["verdict"]) == (-100, None, "too few documents: 4")
    six.predictions("own", {})
    outcome = compare(six)
    assert (outcome.code, mentions(outcome.err, f"worse: {GONE}: Recall@1 %, ", "F1")) == (1, True)


def test_a_measure_of_four_documents_is_a_line_and_in_no_family(six: Project) -> None:
    six.questions(*(question(f"d{n}", evidence_sentences=["S1"] if n < 5 else []) for n in range(1, 7)))
    keep_baseline(six)
    now = lose(1, 2, 3, 4, 5)
    now["q001"]["evidence_sentences"] = ["S2"]
    six.predictions("own", now)
    outcome = compare(six)
    assert f"own: {FEW}: Precision, Recall, F1" in outcome.out.splitlines()
    assert outcome.code == 1
    found = changes(outcome)
    assert [found[name]["p_adjusted"] for name in ("recall_at_1_pct", "recall_at_5_pct")] == [2 / 64, 2 / 64]


def test_a_system_that_has_no_predictions_any_more_is_worse(six: Project, judge_with: JudgeWith) -> None:
    """Also one that only answers."""
    six.predictions("own", {name: {"answer": "Right."} for name in rows(6)})
    judge_with({"own": [5] * 6})
    keep_baseline(six)
    six.predictions("own", {})
    outcome = compare(six)
    assert (outcome.code, "worse: own: in the baseline, and not submitted now: answers" in outcome.err) == (
        1,
        True,
    )


def test_replies_of_another_model_are_not_compared(six: Project, judge_with: JudgeWith) -> None:
    """A service that gives a name to a new model. Results that name no replies, as of version 6, are."""
    judge_with({"own": [5] * 6})
    keep_baseline(six)
    results = six.read(BASELINE)
    [name] = results["own"]["llm_judge"]["reply_models"]
    results["own"]["llm_judge"]["reply_models"] = {"old": 6}
    six.write(BASELINE, results)
    outcome = compare(six)
    reason = f"the replies are of {name}, before of old"
    assert mentions(outcome.err, f"missing: own: not compared with the baseline, {reason}: Answer, Combined")
    assert outcome.code == 3
    del results["own"]["llm_judge"]["reply_models"]
    six.write(BASELINE, results)
    outcome = compare(six)
    assert (outcome.code, changes(outcome)["avg_answer_score"]["p"]) == (0, 1)


def test_judgements_that_the_baseline_lacks_are_missing(six: Project, judge_with: JudgeWith) -> None:
    judge_with({"own": [5, 5, 5, 5, 5, None]})
    keep_baseline(six)
    judge_with({"own": [5] * 6})
    outcome = compare(six)
    reason = "judgements missing in the baseline: Answer, Combined"
    assert f"missing: own: not compared with the baseline, {reason}" in outcome.err
    assert outcome.code == 3


TRAIN, DEV = (f"NLP Project Data/{split}_final_jsonl.txt" for split in ("train", "dev"))
PLACE = "baseline.json: own: q001: "
NUMBER = "expected a number, at most 1,000,000,000"


def edited(questions: str = DEV, **row: Any) -> dict[str, Any]:
    """Return results of these questions, with a row that has these scores."""
    row |= {"question_id": "q001", "gold_id": "a", "gold_doc_id": "d1"}
    run = {"inputs": [{"file": questions, "sha256": "0"}]}
    return {"own": {"run": run, "retrieval": {"per_question": [row]}}}


@table(
    "content, arguments, message",
    {
        "submissions": (
            {},
            ["--submissions", "in/ann"],
            "error: --baseline compares the current directory's systems: leave out --submissions",
        ),
        "missing": (None, [], "baseline.json: file not found in {}"),
        "empty": ({}, [], "baseline.json: no results of any system"),
        "not results": ('{"own": 3}', [], "baseline.json: [...]: Expected object, got int"),
        "1e308": (edited(recall_at_5=1e308), [], f"{PLACE}recall_at_5: {NUMBER}"),
        "10**400": (edited(recall_at_5=10**400), [], f"{PLACE}recall_at_5: {NUMBER}"),
        "a text as score": (edited(recall_at_1="1"), [], f"{PLACE}recall_at_1: {NUMBER}"),
        "another split's": (edited(TRAIN), [], f"baseline.json: own: results of {TRAIN}, not of {DEV}"),
    },
)
def test_what_cannot_be_a_baseline(six: Project, content: Any, arguments: list[str], message: str) -> None:
    six.submission("in/ann", own=rows(6))
    six.write(RESULTS, {"old": {}})
    if content is not None:
        six.write(BASELINE, content if isinstance(content, str) else json.dumps(content))
    problems = assert_refused(six, "dev", "--baseline", BASELINE, *arguments)
    assert problems == [message.format(six.folder)]


@pytest.mark.parametrize("name", [RESULTS, "DEV_Evaluation.json"])
def test_a_run_does_not_replace_its_baseline(six: Project, name: str) -> None:
    """Whatever the case of letters."""
    six.run()
    (six.folder / RESULTS).rename(six.folder / name)
    problem = f"error: {RESULTS} would replace {name}, which is read or written as well: rename one"
    assert assert_refused(six, "dev", "--baseline", name) == [problem]
    assert six.run("dev", "--baseline", name, "--out", "new").code == 0


def test_gold_ids_change_with_all_that_scores_rest_on(six: Project) -> None:
    first = evaluation.grade("dev")["own"]["retrieval"]["per_question"][0]["gold_id"]
    changed: dict[str, Any] = {"question": "x", "answer": "x", "evidence_sentences": [], "rubric": ...}
    for name, value in changed.items():
        six.questions(question("d1", **{name: value}), *(question(f"d{n}") for n in range(2, 7)))
        assert evaluation.grade("dev")["own"]["retrieval"]["per_question"][0]["gold_id"] != first
    six.questions(question("d1", question_type="why"), *(question(f"d{n}") for n in range(2, 7)))
    assert evaluation.grade("dev")["own"]["retrieval"]["per_question"][0]["gold_id"] == first
