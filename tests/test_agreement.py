"""Agreement between judges, and between judges and people: the command `agreement` and Fleiss' kappa."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping
from typing import Any

import evaluation
import krippendorff
import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student_t
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import aggregate_raters
from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_fleiss

from conftest import Outcome, Project, blocks, mentions, table

Row = dict[str, Any]


def row(name: object, correct: object = "yes", **fields: Any) -> Row:
    """Return one row of a results file of `answers`."""
    texts = {"input": f"Q{name}?", "gold": f"g{name}", "prediction": f"p{name}"}
    return {**texts, "correct": correct, "reasoning": f"why {name}", "decision_method": "llm", **fields}


def answers(*verdicts: object) -> Row:
    """Return results of `answers` with these verdicts on items 0, 1, 2, ...; ... leaves an item out."""
    rows = [row(number, verdict) for number, verdict in enumerate(verdicts) if verdict is not ...]
    return {"detailed_results": rows}


def scores(*values: object, key: str = "score") -> list[Row]:
    return [{"input": f"Q{number}?", "prediction": "p", key: value} for number, value in enumerate(values)]


def split_results(**systems: list[int]) -> Row:
    """Return results of a split with these scores of q0, q1, ..."""
    results = {}
    for system, values in systems.items():
        rows = [
            {"question_id": f"q{number}", "answer_score_raw": score, "answer_rationale": "Right."}
            for number, score in enumerate(values)
        ]
        results[system] = {"llm_judge": {"judge_model": "big/model", "per_question": rows}}
    return results


def agree(
    project: Project, files: Mapping[str, object], *arguments: str, people: object = None
) -> tuple[Outcome, Any]:
    """Write these JSON files, run the command and return its outcome and its results (None if none)."""
    for name, content in files.items():
        project.write(f"{name}.json", content)
    if people is not None:
        project.write("people.json", people)
        arguments += ("--human", "people.json")
    outcome = project.run("agreement", *arguments)
    path = project.folder / "agreement.json"
    return outcome, json.loads(path.read_bytes()) if path.exists() else None


def compare(project: Project, *judges: object, options: tuple[str, ...] = (), people: object = None) -> Any:
    """Return the results for judges a, b, c, ... whose files have this content."""
    files = dict(zip("abcd", judges, strict=False))
    outcome, results = agree(project, files, *(f"{name}.json" for name in files), *options, people=people)
    assert (outcome.code, outcome.err) == (0, [])
    return results


# ------------------------------------------------------------------ Statistics


def test_fleiss_kappa() -> None:
    counts = [[2, 0], [1, 1], [0, 2]]  # of all pairs of raters 2/3 agree, by chance 1/2
    assert evaluation.fleiss_kappa(counts) == pytest.approx(1 / 3)
    cases: list[list[list[int]]] = [[], [[]], [[1, 0], [0, 1]], [[3, 0], [3, 0]], [[0, 0]]]
    for undefined in cases:
        assert evaluation.fleiss_kappa(undefined) is None
    with pytest.raises(ValueError, match="raters"):
        evaluation.fleiss_kappa([[2, 0], [3, 0]])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["correct", "score"])
def test_the_coefficients_equal_those_of_other_packages(project: Project, kind: str, seed: int) -> None:
    """Three judges with gaps: kappa of each pair, Fleiss' kappa of the complete items, alpha of all."""
    draw = random.Random(seed)
    choices: list[Any] = [0, 1, None] if kind == "correct" else [1, 2, 3, 4, 5, None]
    judges = [[draw.choice(choices) for _ in range(40)] for _ in range(3)]
    results = compare(project, *(scores(*ratings, key=kind) for ratings in judges))["all"]
    for pair, (a, b) in zip(results["pairs"], ((0, 1), (0, 2), (1, 2)), strict=True):
        both = [(x, y) for x, y in zip(judges[a], judges[b], strict=True) if x is not None and y is not None]
        weights = "quadratic" if kind == "score" else None
        first, second = zip(*both, strict=True)
        kappa = cohen_kappa_score(first, second, labels=choices[:-1], weights=weights)
        assert pair["kappa"] == pytest.approx(kappa, abs=1e-9)
    complete = [ratings for ratings in zip(*judges, strict=True) if None not in ratings]
    fleiss = statsmodels_fleiss(aggregate_raters(np.array(complete))[0])
    assert results["fleiss_kappa"] == pytest.approx(fleiss, abs=1e-9)
    with_gaps = [[np.nan if value is None else value for value in ratings] for ratings in judges]
    level: Any = "ordinal" if kind == "score" else "nominal"
    alpha = krippendorff.alpha(reliability_data=with_gaps, level_of_measurement=level)
    assert results["krippendorff_alpha"] == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize("key", ["correct", "score"])
def test_the_interval_of_kappa_is_a_percentile_bootstrap(project: Project, key: str) -> None:
    """Compare it with independent resamples; the percentiles are expanded for few items."""
    n, generator = 40, np.random.default_rng(7)
    values = [0, 1] if key == "correct" else [1, 2, 3, 4, 5]
    a = generator.choice(values, n)
    b = np.where(generator.random(n) < 0.6, a, generator.choice(values, n))
    weights = None if key == "correct" else "quadratic"
    kappas = []
    for _ in range(2000):
        drawn = generator.integers(0, n, n)
        kappas.append(evaluation.cohen_kappa(a[drawn].tolist(), b[drawn].tolist(), weights))
    tail = 100 * norm.cdf((n / (n - 1)) ** 0.5 * student_t.ppf(0.025, n - 1))
    [pair] = compare(project, scores(*a.tolist(), key=key), scores(*b.tolist(), key=key))["all"]["pairs"]
    expected = np.percentile(np.array(kappas, float), [tail, 100 - tail])
    assert pair["ci95"]["kappa"] == pytest.approx(expected.tolist(), abs=0.05)


@table(
    "first, second, reason",
    {
        "one score": (scores(3, 3), scores(3, 3), "only one value was given"),
        "no common item": (answers("yes", ..., ...), answers(..., "no", "yes"), "no item in common"),
    },
)
def test_a_kappa_that_is_undefined_is_null_with_a_reason(
    project: Project, first: object, second: object, reason: str
) -> None:
    outcome, results = agree(project, {"a": first, "b": second}, "a.json", "b.json")
    assert mentions(outcome.out.splitlines(), "a - b", reason)
    [pair] = results["all"]["pairs"]
    assert (pair["kappa"], pair["kappa_reason"]) == (None, reason)
    assert (pair["ci95"]["kappa"], pair["ci95_reason"]) == (None, "fewer than 5 questions")
    for coefficient in ("fleiss_kappa", "krippendorff_alpha"):
        assert (results["all"][coefficient], results["all"][f"{coefficient}_reason"]) == (None, reason)


def test_more_than_25_different_scores_have_no_interval(project: Project) -> None:
    [pair] = compare(project, scores(*range(30)), scores(*range(1, 31)))["all"]["pairs"]
    assert (pair["ci95"]["kappa"], pair["ci95_reason"]) == (None, "more than 25 different scores")


def test_items_are_matched_by_input_gold_and_prediction(project: Project) -> None:
    others = [row(0), row(1, gold="another"), row(2, prediction="another"), row(3, input="another")]
    results = compare(project, answers("yes", "yes", "yes", "yes"), {"detailed_results": others[::-1]})
    [pair] = results["all"]["pairs"]
    assert (pair["items"], results["all"]["items"], results["all"]["items_of_several"]) == (1, 7, 1)


@pytest.mark.parametrize("method", ["exact", "semantic", "no_llm"])
def test_decisions_that_no_judge_made_are_left_out_by_default(project: Project, method: str) -> None:
    files = [answers("yes", "no", "yes"), answers("yes", "no", "no")]
    for content in files:
        content["detailed_results"][0]["decision_method"] = method
    for options, items, left_out in (((), 2, 1), (("--all-decisions",), 3, 0)):
        results = compare(project, *files, options=options)
        assert results["all"]["pairs"][0]["items"] == items
        assert [judge["left_out"] for judge in results["judges"]] == [left_out, left_out]


def test_results_of_a_split_are_matched_by_system_and_question(project: Project) -> None:
    """Blank answers are left out; failed judgements are undecided."""
    first = split_results(strong=[1, 5, 3, 1], simple=[2, 2], **{"odd?": [3]})
    second = split_results(simple=[2, 4], strong=[1, 3, 2, 1])
    first["strong"]["llm_judge"]["per_question"][2]["failure"] = "lost"
    for content in (first, second):
        content["strong"]["llm_judge"]["per_question"][3]["answer_rationale"] = "No answer was given."
    results = compare(project, first, second)
    [pair] = results["all"]["pairs"]
    assert (pair["items"], pair["agreement"], pair["agreement_within_1"]) == (4, 0.5, 0.5)
    keys = ("judge", "decisions", "left_out", "undecided")
    counts = [tuple(judge[key] for key in keys) for judge in results["judges"]]
    assert counts == [("big/model", 5, 1, 1), ("big/model (2)", 5, 1, 0)]
    widest = results["disagreements"][0]
    assert (widest["system"], widest["question_id"]) == ("strong", "q1")


def test_forms_of_a_verdict(project: Project) -> None:
    verdicts = ["yes", "Yes ", True, "true", 1, 1.0, "1", "no", False, "False", 0, "0", "", None]
    people = {"annotations": [row(number, verdict) for number, verdict in enumerate(verdicts)]}
    results = compare(project, answers(*["yes"] * 7, *["no"] * 5, "yes", "yes"), people)
    assert (results["all"]["pairs"][0]["items"], results["all"]["pairs"][0]["kappa"]) == (12, 1.0)
    assert results["judges"][1]["undecided"] == 2


def test_a_folder_per_judge_and_a_file_per_source(project: Project) -> None:
    files: dict[str, object] = {"evals/readme": "not a judge"}
    for judge, verdict in (("x", "yes"), ("y", "no")):
        files[f"evals/{judge}/bank"] = answers("yes", "no", "yes") | {"judge_model": "ignored"}
        files[f"evals/{judge}/news"] = answers("yes", verdict)
    outcome, results = agree(project, files, "--eval-dir", "evals")
    assert (outcome.code, outcome.err) == (0, ["evals: JSON files without a judge's decisions, ignored: 1"])
    assert [judge["judge"] for judge in results["judges"]] == ["x", "y"]
    assert agreements(results) == {"bank": 1.0, "news": 0.5}
    assert results["all"]["pairs"][0]["items"] == 5
    assert [item["source"] for item in results["disagreements"]] == ["news"]
    assert {"SOURCE: bank", "SOURCE: news"} <= blocks(outcome.out).keys()


def agreements(results: Any) -> dict[str, float]:
    """Return the agreement of the two judges on each source."""
    return {name: source["pairs"][0]["agreement"] for name, source in results["sources"].items()}


def test_the_widest_disagreements_come_first(project: Project) -> None:
    files: list[object] = [scores(1, 3, 4, 2, 5), scores(1, 1, 5, 2, 1), scores(1, 3, 5, 3, 5)]
    results = compare(project, *files, options=("--samples", "3"))
    assert results["items_apart"] == 4
    assert [item["input"] for item in results["disagreements"]] == ["Q4?", "Q1?", "Q2?"]
    assert results["disagreements"][0]["decisions"] == {"a": 5, "b": 1, "c": 5}
    files = [answers("yes", "yes"), answers("yes", "no"), answers("yes", "no"), answers("no", "yes")]
    evenly_split, other = compare(project, *files)["disagreements"]
    assert (evenly_split["input"], other["input"]) == ("Q1?", "Q0?")
    assert evenly_split["decisions"] == {"a": True, "b": False, "c": False, "d": True}
    assert set(evenly_split["reasoning"].values()) == {"why 1"}


def judged(source: str, *verdicts: object, **fields: Any) -> Row:
    """Return a judge's file on a source, in the form of another program."""
    results = [
        {"question": f"Q{number}?", "expected": f"g{number}", "generated": f"p{number}", "correct": verdict}
        for number, verdict in enumerate(verdicts)
    ]
    return {"source_file": f"runs/{source}.json", "run_name": f"run of {source}", "items": results, **fields}


def test_a_folder_of_files_named_after_their_judges(project: Project) -> None:
    """Sources are named by `source_file`, else `run_name`, else the file's name; each finds the others."""
    unnamed = {"source_file": None, "run_name": " "}
    files = {
        "evals/s1__judge-x": judged("s1", True, False, True, judge_model="big/x"),
        "evals/s2__judge-x": judged("s2", True, False, True),
        "evals/s1__judge-y": judged("s1", True, True, True, source_file=None),
        "evals/s2__judge-y": judged("s2", False, False, True, **unnamed),
        "evals/s1": judged("s1", None, None, None),  # not judged
        "evals/labels": [row(0, True)],  # names no judge
        "evals/s1__judge-x.previous.2": judged("s1", False, False, False),  # replaced results
    }
    outcome, results = agree(project, files, "--eval-dir", "evals", "--samples", "0")
    assert (outcome.code, outcome.err) == (0, ["evals: JSON files without a judge's decisions, ignored: 2"])
    assert [(judge["judge"], judge["decisions"]) for judge in results["judges"]] == [("x", 6), ("y", 6)]
    assert [len(judge["files"]) for judge in results["judges"]] == [2, 2]
    assert results["all"]["pairs"][0]["items"] == 6
    assert agreements(results) == {"runs/s1.json": pytest.approx(2 / 3), "runs/s2.json": pytest.approx(2 / 3)}
    assert (results["items_apart"], results["disagreements"]) == (2, [])


def test_no_common_item_is_a_warning_with_the_sources(project: Project) -> None:
    files = {"evals/s1__judge-x": judged("s1", True), "evals/s2__judge-y": judged("s2", True)}
    people = [row(0, True, run_name="run of s2")]
    outcome, results = agree(project, files, "--eval-dir", "evals", people=people)
    assert outcome.code == 3
    assert outcome.err[:2] == [
        "warning: x and y have no item in common; sources: x has runs/s1.json, y has runs/s2.json",
        "warning: x and people have no item in common; sources: x has runs/s1.json, people has run of s2",
    ]
    assert [pair["items"] for pair in results["people"]["judges"]] == [0, 1]


Counts = tuple[int, int, int]
S = {"source_file": "runs/s.json"}
BOTH = [row(0, True), row(1, True)]
LABELS: dict[str, tuple[object, Counts, Counts]] = {
    # the labels; items, too strict and contradicted ones of judge x, of judge y
    "of any source": ([*BOTH, row(9, True)], (1, 0, 1), (1, 1, 1)),
    "of a run": ([row(0, True, run_name="r1"), row(1, True, run_name="r2")], (2, 0, 0), (1, 1, 0)),
    "of a source": ([row(n, True, source="runs/t.json") for n in (0, 1)], (2, 1, 0), (2, 1, 0)),
    "of the first run": ({"run_name": "r1", "items": BOTH}, (2, 0, 0), (0, 0, 0)),
    "of the second run": ({"run_name": "r2", "items": BOTH} | S, (2, 1, 0), (2, 2, 0)),
    "of a file": ({"items": BOTH} | S, (1, 0, 1), (2, 2, 0)),
}


@table("labels, of_x, of_y", LABELS)
def test_labels_count_once_and_for_their_source(
    project: Project, labels: object, of_x: Counts, of_y: Counts
) -> None:
    """Judge x has two runs of s.json, judge y the second one only. Both have one run of t.json.

    What a judge decided differently in the sources of a label is left out.
    """
    files = {
        "evals/1__judge-x": judged("s", True, True, run_name="r1"),
        "evals/2__judge-x": judged("s", False, True, run_name="r2"),
        "evals/2__judge-y": judged("s", False, False, run_name="r2"),
        "evals/t__judge-x": judged("t", False, True, True, run_name="run of x"),
        "evals/t__judge-y": judged("t", False, True, True, run_name="run of y"),
    }
    outcome, results = agree(project, files, "--eval-dir", "evals", people=labels)
    assert agreements(results) == {"r1": None, "r2": 0.5, "runs/t.json": 1.0}
    keys = ("items", "too_strict", "contradicted")
    assert [tuple(judge[key] for key in keys) for judge in results["people"]["judges"]] == [of_x, of_y]
    assert mentions(outcome.out.splitlines(), "x: left out", "differently: 1") is bool(of_x[2])
    assert outcome.code == (0 if of_y[0] else 3)


def test_equal_answers_in_one_file(project: Project) -> None:
    """They are matched one to one if both raters have equally many, decided or not; else they are one."""
    a = [row(0, "yes"), row(0, "no"), row(1, "yes"), row(1, "yes")]
    b = [row(0, "yes"), row(0, "yes"), row(1, "yes"), row(1, None)]
    results = compare(project, a, b, people=[row(0, True), row(1, True)])
    [pair] = results["all"]["pairs"]
    assert (pair["items"], pair["contradicted"], pair["agreement"]) == (3, 0, pytest.approx(2 / 3))
    people = results["people"]
    assert [(judge["items"], judge["contradicted"]) for judge in people["judges"]] == [(1, 1), (2, 0)]
    assert (people["items"], people["items_without_judge"]) == (2, 0)


def test_intervals_resample_questions(project: Project) -> None:
    """Ten equal answers to a question tell no more than one."""
    draw = random.Random(1)
    raters = [[draw.random() < 0.6 for _ in range(40)] for _ in range(3)]
    found = []
    for count in (1, 10):
        a, b, people = ([row(n, verdict) for n, verdict in enumerate(rater)] * count for rater in raters)
        found.append(compare(project, a, b, people=people))
    one, ten = found
    assert (ten["all"]["items"], ten["all"]["pairs"][0]["questions"]) == (400, 40)
    for part, rows in (("all", "pairs"), ("people", "judges"), ("people", "votes")):
        intervals = [row["ci95"] for row in one[part][rows]]
        assert [row["ci95"] for row in ten[part][rows]] == intervals
        assert None not in intervals[0].values()
    assert ten["all"]["ci95"]["fleiss_kappa"] == one["all"]["ci95"]["fleiss_kappa"]
    widths = [np.diff(results["all"]["ci95"]["krippendorff_alpha"]) for results in found]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)  # alpha corrects for the number


def test_verdicts_are_compared_with_those_of_people(project: Project) -> None:
    files = [
        answers("yes", "yes", "no", "yes", "no", ...),
        answers("yes", "no", "no", "yes", "yes", ...),
        answers("yes", "yes", "no", "no", ..., "yes"),
    ]
    # The decisions of people count with any method.
    annotations = {"annotations": [row(n, n in (0, 3), decision_method="exact") for n in range(7)]}
    people = compare(project, *files, people=annotations)["people"]
    assert (people["items"], people["items_without_judge"]) == (7, 1)
    rows = {row["judge"]: row for row in (*people["judges"], *people["votes"])}
    keys = ("items", "accuracy", "too_kind", "too_strict")
    assert {name: tuple(row[key] for key in keys) for name, row in rows.items()} == {
        "a": (5, 0.8, 1, 0),
        "b": (5, 0.8, 1, 0),
        "c": (5, 0.4, 2, 1),
        "majority": (4, 0.75, 1, 0),  # item 4 is a tie; item 5 has a single judge, so no vote
        "unanimous": (2, 1.0, 0, 0),  # items 0 and 2; items 1 and 3 are not, 4 and 5 have fewer judges
    }
    # "unanimous" means all judges; the majority needs two
    assert [(vote["left_out"], vote["fewer_judges"]) for vote in people["votes"]] == [(1, 1), (2, 2)]
    assert rows["a"]["kappa"] == pytest.approx(cohen_kappa_score([1, 1, 0, 1, 0], [1, 0, 0, 1, 0]))


def test_scores_are_compared_with_those_of_people_at_each_level(project: Project) -> None:
    people = scores(1, 1, 4, 5)
    kind, right = compare(project, scores(2, 3, 4, 4), people, people=people)["people"]["judges"]
    assert kind["judge_minus_human_by_level"] == {"1": 1.5, "4": 0.0, "5": -1.0}
    assert (kind["accuracy"], kind["accuracy_within_1"]) == (0.25, 0.75)
    assert (kind["too_kind"], kind["too_strict"]) == (2, 1)
    assert (right["accuracy"], right["kappa"]) == (1.0, 1.0)
    votes = compare(project, scores(2, 3, 4, 4), scores(1, 1, 5, 5), people=people)["people"]["votes"]
    assert [(vote["items"], vote["accuracy"]) for vote in votes] == [(0, None)] * 2  # they agree on no item


# ------------------------------------------------------------------ Console, reports and problems

JUDGES_TABLE = """\
Judge   Decisions  Left out  Undecided  Files
a               6         0          0      1
b               5         1          1      1
people          2         0          0      1
"""
PAIRS_TABLE = """\
Pair   Items          Agreement       Cohen's kappa
a - b      5  0.60 [0.00, 1.00]  0.17 [-0.92, 1.00]
"""
PEOPLE_TABLE = """\
Judge      Items  Too kind  Too strict  Accuracy  Cohen's kappa
a              2         0           0      1.00           1.00
b              2         1           0      0.50           0.00
majority       1         0           0      1.00            n/a
unanimous      1         0           0      1.00            n/a
"""


def test_the_console(project: Project) -> None:
    a = answers("yes", "no", "yes", "no", "yes", "yes")
    b = answers("yes", "yes", "yes", "no", "no")["detailed_results"]
    b += [row(5, decision_method="exact"), row(6, None)]
    labels = [row(0, 1), row(1, 0)]
    outcome, _ = agree(project, {"a": a, "b": b}, "a.json", "b.json", "--samples", "1", people=labels)
    assert (outcome.code, outcome.err) == (0, [])
    printed = blocks(outcome.out)
    assert list(printed)[1:3] == ["ALL ITEMS", "COMPARED WITH PEOPLE: people"]
    judges, items, people, disagreements, _ = printed.values()
    assert judges.startswith(JUDGES_TABLE)
    assert items.startswith(PAIRS_TABLE)
    assert mentions(items.splitlines(), "Fleiss", "0.17 [-1.00, 1.00]")
    assert mentions(items.splitlines(), "Krippendorff", "0.25 [-0.80, 1.00]")
    assert people.startswith(PEOPLE_TABLE)
    assert mentions(disagreements.splitlines(), '"Q1?"', '"g1"', '"p1"', "a no", "b yes")


def test_reports_have_a_row_per_judge_vote_and_pair(project: Project) -> None:
    files = [answers("yes", "no", "yes"), answers("yes", "no", "no"), answers("yes", "yes", "no")]
    compare(project, *files, options=("--report", "md", "html", "csv"), people=[row(0, 1), row(1, 0)])
    text = (project.folder / "agreement.csv").read_text("utf-8-sig")
    assert all("unanimous" in (project.folder / f"agreement.{form}").read_text() for form in ("md", "html"))
    rows = list(csv.DictReader(text.splitlines()))
    assert [(row["judge"], row["with"], row["items"]) for row in rows] == [
        *[(name, "people", "2") for name in ("a", "b", "c", "majority")],
        ("unanimous", "people", "1"),
        *[("a", "b", "3"), ("a", "c", "3"), ("b", "c", "3"), ("all", "", "3")],
    ]
    assert rows[4]["kappa_reason"] == "only one value was given"
    assert float(rows[-1]["fleiss_kappa"]) == pytest.approx(1 / 10)


BAD_USAGE: dict[str, tuple[list[str], list[str]]] = {
    "one judge": (["a.json", "./a.json"], ["two"]),
    "verdicts and scores": (["a.json", "score.json"], ["verdicts", "scores"]),
    "too many scores": (["many.json", "too_many.json"], ["2000 different scores", "round them"]),
    "results over an input": (["a.json", "b.json", "--out", "b.json"], ["b.json", "--out"]),
}


@table("arguments, words", BAD_USAGE)
def test_bad_usage(project: Project, arguments: list[str], words: list[str]) -> None:
    many = scores(*range(2_000))
    files = {"a": answers("yes"), "b": answers("yes"), "score": scores(3), "many": many, "too_many": many}
    for name, content in files.items():
        project.write(f"{name}.json", content)
    before = project.files()
    outcome = project.run("agreement", *arguments)
    assert (outcome.code, outcome.out, project.files()) == (2, "", before)
    assert mentions(outcome.err, *words)


def test_the_problems_of_all_files_are_listed(project: Project) -> None:
    rows = '{"detailed_results": [\n{"input": "q", "correct": "maybe"},\n{"score": true}\n]}'
    split = '{"strong": {"llm_judge": {"per_question":\n[{"question_id": "q1"}]}}}'
    files = {"rows": rows, "split": split, "undecided": [row(0, None)], "torn": "[{"}
    names = [f"{name}.json" for name in (*files, "missing")]
    outcome, results = agree(project, files, *names, "--eval-dir", "nowhere")
    assert (outcome.code, outcome.out, results) == (2, "", None)
    places = ("rows.json:2", "rows.json:3", "split.json:1: strong", "undecided.json", "torn.json:1")
    for start in (*places, "missing.json: file not found in "):
        assert any(line.startswith(start) for line in outcome.err), start
    assert mentions(outcome.err, "nowhere")
