"""Intervals of the means, and comparisons of systems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from conftest import (
    JudgeWith,
    Outcome,
    Project,
    document,
    mean_interval,
    mentions,
    question,
    reject_stepwise,
    table,
)

Row = dict[str, Any]
MEASURES = {  # block -> mean -> key in its rows, scale
    "retrieval": {"recall_at_1_pct": ("recall_at_1", 100), "recall_at_5_pct": ("recall_at_5", 100)},
    "citation": {"avg_precision": ("precision", 1), "avg_recall": ("recall", 1), "avg_f1": ("f1", 1)},
    "llm_judge": {
        "avg_answer_score": ("answer_score_raw", 1),
        "avg_evidence_score": ("evidence_score", 1),
        "avg_combined_score": ("combined_score", 1),
    },
}
ALL_MEASURES = {key for measures in MEASURES.values() for key in measures}
NO_DIFFERENCE = "no significant difference"


def predict(project: Project, system: str, ranks: Sequence[int], *cited: str) -> None:
    """Write predictions that retrieve d1, d2, ... at these ranks (0: not at all) and cite these sentences."""
    rows = {}
    for number, rank in enumerate(ranks, start=1):
        others = [f"x{place}" for place in range(1, rank or 6)]
        retrieved = [*others, f"d{number}"] if rank else others
        row = {"answer": f"{system} says so.", "retrieved_docs": retrieved, "evidence_sentences": list(cited)}
        rows[f"q{number:03d}"] = row
    project.predictions(system, rows)


def ask_about(project: Project, documents: Sequence[str], **changes: Any) -> None:
    project.questions(*(question(doc_id, **changes) for doc_id in documents))


def numbered(count: int) -> list[str]:
    return [f"d{number}" for number in range(1, count + 1)]


@pytest.fixture
def seven(project: Project) -> Project:
    """Seven questions on seven documents; systems: wrong without citations, always right, in between."""
    ask_about(project, numbered(7))
    project.documents(*(document(doc_id, "It rained.", "So it did.") for doc_id in numbered(7)))
    predict(project, "simple", [0] * 7)
    predict(project, "strong", [1] * 7, "S1")
    predict(project, "zebra", [1, 2, 2, 1, 2, 2, 1], "S1", "S2")
    return project


def compared(outcome: Outcome, system: str, other: str, measure: str) -> Row:
    """Return the one comparison of two systems by a measure."""
    rows: list[Row] = outcome.results[system]["comparison"]
    [row] = [row for row in rows if (row["with"], row["measure"]) == (other, measure)]
    return row


def test_every_mean_has_an_interval_over_gold_documents(seven: Project, judge_with: JudgeWith) -> None:
    """One kind for all, on the measure's scale; it does not depend on the other systems."""
    gold = ["d1", "d1", "d2", "d3", "d4", "d5", "d6"]
    seven.questions(*(question(doc, question=f"Question {n}?") for n, doc in enumerate(gold)))
    judge_with({"zebra": [5, 3, 4, 1, 2, 5, 4]})
    results = seven.run("dev", "--judge", "zebra").results["zebra"]
    for name, measures in MEASURES.items():
        block = results[name]
        assert "ci95_reason" not in block
        assert None not in block["ci95"].values()
        for measure, (key, scale) in measures.items():
            lowest, highest = (1, 5) if measure == "avg_answer_score" else (0, 1)
            width = highest - lowest
            shares = [(row[key] - lowest) / width for row in block["per_question"]]
            expected = [scale * (lowest + width * end) for end in mean_interval(shares, gold)]
            assert block["ci95"][measure] == pytest.approx(expected, abs=1e-9)
            assert block["ci95"][measure][1] <= scale * highest
    assert results["retrieval"]["ci95"]["recall_at_1_pct"][1] > 1
    alone = seven.run("dev", "--systems", "strong").results["strong"]["citation"]["ci95"]
    assert alone["avg_f1"][0] < 0.7
    assert seven.run("dev", "--systems", "strong", "zebra").results["strong"]["citation"]["ci95"] == alone


def test_equal_scores_within_a_scale_have_an_interval(seven: Project, judge_with: JudgeWith) -> None:
    seven.questions(*(question(f"d{n}", question=f"Question {n}?") for n in range(7)))
    judge_with({"zebra": [1] * 7})
    block = seven.run("dev", "--judge", "zebra").results["zebra"]["llm_judge"]
    low, high = block["ci95"]["avg_answer_score"]
    assert (block["avg_answer_score"], low, 1 < high < 3) == (1, 1, True)
    judge_with({"zebra": [None, 1, 1, 1, 1, 1, 1]})  # which alone takes an interval below the lowest level
    (seven.folder / "dev_judgements.jsonl").unlink()
    block = seven.run("dev", "--judge", "zebra").results["zebra"]["llm_judge"]
    low, high = block["ci95"]["avg_answer_score"]
    assert 0 < low < block["avg_answer_score"] < 1 < high


def test_fewer_than_five_documents_of_a_block_have_no_interval(project: Project) -> None:
    cited = [question(doc_id) for doc_id in ("d1", "d2", "d3", "d4", "d4")]
    project.questions(*cited, question("d5", evidence_sentences=[]))
    predict(project, "strong", [1] * 6, "S1")
    results = project.run().results["strong"]
    assert set(results["citation"]["ci95"].values()) == {None}
    assert set(results["citation"]["ci95_reason"].values()) == {"fewer than 5 documents: 4"}
    assert None not in results["retrieval"]["ci95"].values()


def test_the_table_says_which_measures_have_fewer_documents(project: Project) -> None:
    cited = [question(doc_id) for doc_id in numbered(6)]
    project.questions(*cited, question("d7", evidence_sentences=[]))
    predict(project, "strong", [1] * 7, "S1")
    predict(project, "zebra", [1] * 7, "S2")
    line = "95 % intervals in brackets, by 7 gold documents; Precision, Recall, F1 by 6."
    assert line in project.run().out.splitlines()


def test_equal_systems_differ_by_an_interval_that_is_not_empty(seven: Project) -> None:
    """One document up and one down of all that is possible: t(8) = 2.306 * sqrt(2 * 9 / 8) / 9."""
    predict(seven, "copy", [1] * 7, "S1")
    row = compared(seven.run("dev", "--systems", "strong", "copy"), "copy", "strong", "recall_at_1_pct")
    assert (row["difference"], row["p"]) == (0, 1)
    assert row["ci95"] == pytest.approx([-38.43, 38.43], abs=0.02)


def test_figures_do_not_depend_on_the_order_of_the_questions(project: Project) -> None:
    """Sixteen documents have random sign flips."""
    documents = numbered(16)
    ranks = [1, 2, 0, 1, 1, 0, 2, 1, 1, 0, 0, 1, 2, 1, 0, 1]
    found = []
    for order in (range(16), [5, 3, 11, 0, 15, 8, 1, 14, 2, 9, 4, 13, 7, 12, 6, 10]):
        rows = [question(documents[n], question_id=f"q{n + 1:03d}") for n in order]
        project.questions(*rows)
        predict(project, "good", [1] * 16, "S1")
        predict(project, "poor", ranks, "S1", "S2")
        results = project.run().results
        found.append([results["poor"][name]["ci95"] for name in ("retrieval", "citation")])
        found[-1].append(results["poor"]["comparison"])
    assert found[0] == found[1]
    assert found[0][2][0]["p"] not in (0, 1)


def test_comparison_by_hand(seven: Project) -> None:
    outcome = seven.run("dev", "--systems", "strong", "zebra")
    row = compared(outcome, "zebra", "strong", "recall_at_1_pct")
    assert row["difference"] == pytest.approx(-400 / 7, abs=1e-12)
    assert row["p"] == 2 / 2**4  # four differences are not 0, and have the same sign in 2 of 16 flips
    low, high = row["ci95"]
    assert (row["n"], row["verdict"]) == (7, NO_DIFFERENCE)
    mirrored = {"with": "zebra", "difference": -row["difference"], "ci95": [-high, -low]}
    assert compared(outcome, "strong", "zebra", "recall_at_1_pct") == {**row, **mirrored}
    assert compared(outcome, "strong", "zebra", "avg_f1")["verdict"] == "better"
    assert compared(outcome, "zebra", "strong", "avg_f1")["verdict"] == "worse"


@table(
    "systems, documents, verdicts",  # the smallest p of n documents is 2 / 2^n, however many pairs are tested
    {
        "none": (["strong", "zebra"], 5, {"too few documents: 5"}),
        "a pair, smallest p 2/64": (["strong", "zebra"], 6, {NO_DIFFERENCE, "better"}),
        "three pairs, smallest p 2/64": (["strong", "wrong", "zebra"], 6, {NO_DIFFERENCE, "better"}),
        "a pair and one that cites nothing": (["simple", "strong", "zebra"], 6, {NO_DIFFERENCE, "better"}),
    },
)
def test_five_documents_are_too_few(
    seven: Project, systems: list[str], documents: int, verdicts: set[str]
) -> None:
    ask_about(seven, numbered(documents))
    predict(seven, "wrong", [0] * 7, "S2")
    outcome = seven.run("dev", "--systems", *systems)
    rows = outcome.results["strong"]["comparison"]
    assert {row["verdict"] for row in rows} == verdicts
    for row in rows:
        assert (row["p"] is None, row["p_adjusted"] is None) == (documents == 5, documents == 5)
        assert row["ci95"] is not None
    assert ("too few documents: 5" in outcome.out) == (documents == 5)


def test_a_measure_of_few_documents_is_in_no_family(seven: Project) -> None:
    """Evidence is of five documents only. The p of recall is that of its own pairs."""
    gold = [question(doc_id) for doc_id in numbered(7)]
    for row in gold[5:]:
        row["evidence_sentences"] = []
    seven.questions(*gold)
    outcome = seven.run("dev", "--systems", "strong", "zebra")
    assert compared(outcome, "zebra", "strong", "avg_f1")["verdict"] == "too few documents: 5"
    assert compared(outcome, "zebra", "strong", "recall_at_1_pct")["p_adjusted"] == 2 / 2**4
    assert mentions(outcome.out.splitlines(), "strong", "F1", "n/a", "too few documents: 5")


# Precision of ten documents: 1 against 1/2 five times, 1/2 against 1 once, and 1 against 0 four times. Of the
# 2^10 sign flips two times seven are as far from 0: all of one sign, or one of the six halves of the other.
TEN = {"good": [*["S1"] * 5, "S1 S2", *["S1"] * 4], "poor": [*["S1 S2"] * 5, "S1", *["S2"] * 4]}


def test_systems_that_submit_nothing_leave_the_p_of_the_others_alone(project: Project) -> None:
    ask_about(project, numbered(10))
    for system, cited in TEN.items():
        rows = {f"q{n:03d}": {"evidence_sentences": ids.split()} for n, ids in enumerate(cited, start=1)}
        project.predictions(system, rows)
    for system in ("x", "y", "z"):
        project.predictions(system, {"q001": {"answer": "Yes."}})
    outcome = project.run()
    assert outcome.results["x"]["comparison"] == []
    assert {row["with"] for row in outcome.results["good"]["comparison"]} == {"poor"}
    row = compared(outcome, "good", "poor", "avg_precision")
    assert (row["p"], row["p_adjusted"], row["verdict"]) == (14 / 1024, 14 / 1024, "better")


def test_nothing_is_concluded_from_what_was_not_submitted(seven: Project, judge_with: JudgeWith) -> None:
    predict(seven, "zebra", [1] * 7)  # without citations, and right where `strong` is
    judge_with({"strong": [4] * 7, "zebra": [4] * 7})
    outcome = seven.run("dev", "--systems", "strong", "zebra")
    compared = {row["measure"] for row in outcome.results["zebra"]["comparison"]}
    assert compared & ALL_MEASURES == {*MEASURES["retrieval"], "avg_answer_score"}
    assert "Left out, not submitted by zebra: Precision, Recall, F1, Evidence, Combined." in outcome.out
    results = outcome.results["zebra"]
    assert results["citation"]["avg_f1"] == 0  # the key is the course's
    assert set(results["citation"]["ci95"].values()) == {None}
    assert set(results["citation"]["ci95_reason"].values()) == {"not submitted"}
    assert results["llm_judge"]["ci95"]["avg_evidence_score"] is None
    assert results["llm_judge"]["ci95_reason"] == {"avg_evidence_score": "not submitted"}
    assert None not in results["retrieval"]["ci95"].values()


def test_many_systems_can_differ_significantly(project: Project) -> None:
    """One of 40 is better on all of six documents: its 39 pairs are alike, and two of 64 flips as extreme."""
    ask_about(project, numbered(6))
    for number in range(40):
        found = {f"q{n:03d}": {"retrieved_docs": ["x" if number else f"d{n}"]} for n in range(1, 7)}
        project.predictions(f"s{number}", found)
    outcome = project.run()
    assert "Only significant differences are listed" in outcome.out
    rows = outcome.results["s0"]["comparison"]
    pairs = [row for row in rows if row["measure"] == "recall_at_1_pct"]
    assert {(row["p"], row["p_adjusted"], row["verdict"]) for row in pairs} == {(2 / 64, 2 / 64, "better")}
    rows = outcome.results["s1"]["comparison"]
    assert {row["p_adjusted"] for row in rows if row["with"] != "s0"} == {1}
    project.predictions("s0", {"q001": {"retrieved_docs": ["d1"]}})
    assert "\nNo significant difference among 780 pairs.\n" in project.run().out


def test_intervals_of_many_pairs_say_that_they_are_of_one(seven: Project) -> None:
    line = "Intervals are of one pair each; p is adjusted for all pairs of a measure."
    for name in ("one", "two", "three"):
        predict(seven, name, [1, 1, 2, 0, 1, 2, 1], "S1")
    assert line not in seven.run("dev", "--systems", "one", "two").out
    assert line in seven.run("dev", "--systems", "one", "two", "three").out


def test_one_system_is_not_compared_and_no_measure_of_nothing(seven: Project) -> None:
    assert "comparison" not in seven.run("dev", "--systems", "zebra").results["zebra"]
    ask_about(seven, numbered(7), evidence_sentences=[])
    outcome = seven.run()
    measures = {row["measure"] for row in outcome.results["strong"]["comparison"]}
    assert measures & ALL_MEASURES == set(MEASURES["retrieval"])
    _, _, comparison = outcome.out.partition("SYSTEM COMPARISON")
    assert ("Recall@1" in comparison, "Precision " in comparison) == (True, False)


NINE = [f"d{place}" for place in (1, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7, 8, 8, 9, 9, 9)]
QUALITY = {"a": 0.2, "b": 0.25, "c": 0.7, "d": 0.9}


@pytest.fixture
def four(project: Project) -> Outcome:
    """Grade four systems that cite at random, the last two far better than the first two."""
    gold, wrong = ["S1", "S2", "S3", "S4"], ["S5", "S6", "S7", "S8"]
    ask_about(project, NINE, evidence_sentences=gold)
    random = np.random.default_rng(3)
    for system, quality in QUALITY.items():
        rows = {}
        for number in range(1, len(NINE) + 1):
            cited = [sentence for sentence in gold if random.random() < quality]
            cited += [sentence for sentence in wrong if random.random() > quality]
            rows[f"q{number:03d}"] = {"evidence_sentences": cited}
        project.predictions(system, rows)
    return project.run()


def bonett_price(values: Sequence[float], documents: Sequence[str]) -> list[float]:
    """Return the t interval of a mean difference, with a document up and one down by a typical change."""
    _, codes, sizes = np.unique(documents, return_inverse=True, return_counts=True)
    sums = np.bincount(codes, values)
    changed = sums[abs(sums) > 1e-9]
    typical = math.sqrt((changed**2).mean())
    sums = np.array([*sums, typical, -typical])
    sizes = np.array([*sizes, sizes.mean(), sizes.mean()])
    center = sums.sum() / sizes.sum()
    error = math.sqrt(len(sums) * (sums - center * sizes).var(ddof=1)) / sizes.sum()
    margin = stats.t.ppf(0.975, len(sums) - 1) * error
    return [max(center - margin, -1), min(center + margin, 1)]


@pytest.mark.parametrize("measure", MEASURES["citation"])
def test_differences_intervals_and_p_values_equal_scipys(four: Outcome, measure: str) -> None:
    key, _ = MEASURES["citation"][measure]
    codes = [int(doc_id[1:]) - 1 for doc_id in NINE]
    rows = []
    sums = []
    for one, other in itertools.combinations(QUALITY, 2):
        row = compared(four, one, other, measure)
        pairs = zip(*(four.results[name]["citation"]["per_question"] for name in (one, other)), strict=True)
        values = [a[key] - b[key] for a, b in pairs]
        exact = stats.permutation_test(
            (np.bincount(codes, values), np.zeros(9)),
            lambda x, y, axis: (x - y).mean(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf,
        )
        assert row["difference"] == pytest.approx(np.mean(values), abs=1e-12)
        assert row["ci95"] == pytest.approx(bonett_price(values, NINE), rel=1e-3)
        assert row["p"] == pytest.approx(exact.pvalue, abs=1e-12)
        sums.append(np.bincount(codes, values))
        rows.append(row)
    worse = reject_stepwise(np.array(sums), 0.05)
    assert [row["verdict"] for row in rows] == ["worse" if is_worse else NO_DIFFERENCE for is_worse in worse]
    assert {row["verdict"] for row in rows} == {"worse", NO_DIFFERENCE}


def test_missing_judgements_leave_no_verdict(seven: Project, judge_with: JudgeWith) -> None:
    predict(seven, "unjudged", [1] * 7, "S1")
    judge_with({"simple": [None] + [5] * 6, "strong": [5] * 7, "zebra": [1] * 7})
    outcome = seven.run("dev", "--judge", "simple", "strong", "zebra")
    for other, difference in {"strong": -5 / 7, "zebra": 30 / 7 - 1}.items():  # a missing one counts 0
        row = compared(outcome, "simple", other, "avg_answer_score")
        assert row["difference"] == pytest.approx(difference, abs=1e-12)
        assert [row[key] for key in ("ci95", "p", "p_adjusted")] == [None, None, None]
        assert row["verdict"] == "judgements missing"
    row = compared(outcome, "strong", "zebra", "avg_answer_score")
    assert (row["p"], row["p_adjusted"], row["verdict"]) == (2 / 2**7, 2 / 2**7, "better")
    assert compared(outcome, "strong", "zebra", "avg_combined_score")["verdict"] == "better"
    assert "avg_combined_score" not in {row["measure"] for row in outcome.results["simple"]["comparison"]}
    unjudged = {row["measure"] for row in outcome.results["unjudged"]["comparison"]}
    assert not unjudged & {*MEASURES["llm_judge"]}


def test_any_value_is_a_label(seven: Project) -> None:
    labels: Row = {"question_type": 1, "edge_case_type": ["a"], "source_dataset": None}
    seven.questions(question("d1", **labels))
    assert seven.run("dev", "--report", "csv").code == 0
    [row, *_] = seven.table("dev_evaluation.csv")
    assert [row[name] for name in labels] == ["1", '["a"]', ""]
