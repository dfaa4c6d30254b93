"""How sure we are: intervals beside the means, systems against each other, slices, and joint scores."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import evaluation
import numpy as np
import pytest
from evaluation import Failure, Judgement, JudgeRequest, JudgeRun, Outcome, Question, Rubric
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from conftest import Outcome as RunOutcome
from conftest import Project, all_kept, document, question

RESULTS = "dev_evaluation.json"
BLOCKS = ("retrieval", "citation", "llm_judge")
repeatable = settings(derandomize=True, deadline=None, max_examples=40)
Row = dict[str, Any]
Judging = Callable[[Mapping[str, Mapping[str, int]]], None]


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize by rows: what the case is -> its values."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judging:
    """Judge with these scores: system -> question ID -> score. One that is not there cannot be had."""

    def judge(scores: Mapping[str, Mapping[str, int]]) -> None:
        def outcome(request: JudgeRequest) -> Outcome:
            score = scores.get(request.system, {}).get(request.question_id)
            return Failure("no reply") if score is None else Judgement(score, "So it is.")

        def run(requests: Sequence[JudgeRequest]) -> JudgeRun:
            return JudgeRun("m", "m", tuple(map(outcome, requests)))

        monkeypatch.setattr(evaluation, "connect_judge", lambda *_, **__: run)

    return judge


def ids(count: int) -> list[str]:
    return [f"q{place:03d}" for place in range(1, count + 1)]


def found_at(rank: int, doc_id: str, *cited: str) -> Row:
    """A prediction that has the document at this rank (0: nowhere) and cites these sentences."""
    retrieved = [*(f"x{place}" for place in range(1, rank)), doc_id] if rank else ["x1"]
    return {"answer": "It is.", "retrieved_docs": retrieved, "evidence_sentences": list(cited)}


def predict(project: Project, system: str, ranks: Sequence[int], *cited: str) -> None:
    """A system that finds the documents of q001, q002, ... (d1, d2, ...) at these ranks."""
    rows = enumerate(zip(ids(len(ranks)), ranks, strict=True), start=1)
    project.predictions(system, {name: found_at(rank, f"d{place}", *cited) for place, (name, rank) in rows})


@pytest.fixture
def seven(project: Project) -> Project:
    """Seven questions over seven documents, and three systems: never right, always right, and in between."""
    project.questions(*(question(f"d{place}") for place in range(1, 8)))
    project.documents(*(document(f"d{place}", "It rained.", "So it did.") for place in range(1, 8)))
    predict(project, "simple", [0] * 7)
    predict(project, "strong", [1] * 7, "S1")
    predict(project, "zebra", [1, 2, 2, 1, 2, 2, 1], "S1", "S2")
    return project


# --------------------------------------------------------------------------------- intervals beside the means
DOCUMENTS = ["d1", "d1", "d2", "d3", "d3", "d3", "d4", "d5", "d6", "d6"]
RANKS = [1, 0, 1, 3, 0, 1, 6, 1, 2, 1]
SCORES = [5, 3, 4, 1, 2, 5, 4, 1, 3, 5]


@pytest.fixture
def ten(project: Project, judge: Judging) -> Project:
    """Ten questions over six documents, every third with two gold sentences, all judged."""
    evidence = [["S1"], ["S1"], ["S1", "S2"]] * 4
    about = zip(DOCUMENTS, evidence, strict=False)
    project.questions(*(question(doc_id, evidence_sentences=gold) for doc_id, gold in about))
    project.documents(*(document(f"d{n}", "It rained.", "It snowed a little.") for n in range(1, 7)))
    named = zip(ids(10), RANKS, DOCUMENTS, ["S1", "S2"] * 5, strict=True)
    project.predictions("strong", {name: found_at(rank, d, cited) for name, rank, d, cited in named})
    judge({"strong": dict(zip(ids(10), SCORES, strict=True))})
    return project


def documents_of(block: Row, gold: Mapping[str, str]) -> list[str]:
    return [gold[row["question_id"]] for row in block["per_question"]]


@pytest.mark.parametrize("name", BLOCKS)
def test_every_mean_has_the_bootstrap_interval_over_gold_documents(ten: Project, name: str) -> None:
    block = ten.run().results["strong"][name]
    gold = dict(zip(ids(10), DOCUMENTS, strict=True))
    for measure in evaluation.MEASURES[name]:
        values = [row[measure.value] * measure.scale for row in block["per_question"]]
        expected = evaluation.bootstrap_interval(values, documents_of(block, gold))
        assert expected is not None
        assert block["ci95"][measure.name] == list(expected)
        assert expected[0] < expected[1]
    assert list(block["ci95"]) == [measure.name for measure in evaluation.MEASURES[name]]
    assert "ci95_reason" not in block


def test_intervals_of_recall_are_in_per_cent(seven: Project) -> None:
    results = seven.run().results
    assert results["strong"]["retrieval"]["ci95"] == {
        "recall_at_1_pct": [100, 100],
        "recall_at_5_pct": [100, 100],
    }
    # Of resamples of 3 hits in 7, 2 % have no hit, and 0.3 % have seven; the tails are 0.4 % wide.
    found = results["zebra"]["retrieval"]["ci95"]["recall_at_1_pct"]
    assert found == [0, round(600 / 7, 12)]


@table(
    "gold, count",
    {
        "one document": (["d1"] * 6, 1),
        "four documents": (["d1", "d2", "d3", "d4", "d4", "d1"], 4),
    },
)
def test_fewer_than_five_documents_have_no_interval(
    project: Project, judge: Judging, gold: list[str], count: int
) -> None:
    project.questions(*map(question, gold))
    predict(project, "strong", [1] * 6, "S1")
    judge({"strong": dict.fromkeys(ids(6), 4)})
    results = project.run().results["strong"]
    for name in BLOCKS:
        assert set(results[name]["ci95"].values()) == {None}
        assert results[name]["ci95_reason"] == f"fewer than 5 documents: {count}"


def test_what_counts_is_the_documents_of_a_blocks_own_questions(project: Project) -> None:
    project.questions(*(question(f"d{n}", evidence_sentences=["S1"] if n < 5 else []) for n in range(1, 7)))
    predict(project, "strong", [1] * 6)
    results = project.run().results["strong"]
    assert results["retrieval"]["ci95"]["recall_at_1_pct"] == [100, 100]
    assert results["citation"]["ci95"] == dict.fromkeys(("avg_precision", "avg_recall", "avg_f1"))
    assert results["citation"]["ci95_reason"] == "fewer than 5 documents: 4"


def test_the_same_input_gives_the_same_bytes_in_any_process(seven: Project) -> None:
    def run(hash_seed: str) -> tuple[bytes, bytes]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, evaluation.__file__, "dev", "--by", "question_type"]
        out = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
        return out, (seven.folder / RESULTS).read_bytes()

    first = run("1")
    assert run("2") == first
    assert seven.run("dev", "--by", "question_type").out.encode() == first[0].replace(b"\r\n", b"\n")
    assert (seven.folder / RESULTS).read_bytes() == first[1]


# --------------------------------------------------------------------------------- the section on the console
COMPARISON = """
============================================================
SYSTEM COMPARISON
============================================================

System    Recall@1 %    Recall@5 %       Precision          Recall              F1
simple    0.0 +- 0.0    0.0 +- 0.0  0.000 +- 0.000  0.000 +- 0.000  0.000 +- 0.000
strong  100.0 +- 0.0  100.0 +- 0.0  1.000 +- 0.000  1.000 +- 0.000  1.000 +- 0.000
zebra   42.9 +- 42.9  100.0 +- 0.0  0.500 +- 0.000  1.000 +- 0.000  0.667 +- 0.000

+- is half of a 95 % interval: bootstrap over 7 gold documents.

--- PAIRED DIFFERENCES (sign flips over documents, Holm over the pairs of a measure) ---
Pair             Measure     Difference       p  p (Holm)  Verdict
strong - simple  Recall@1 %      +100.0  0.0156    0.0469  better
strong - simple  Recall@5 %      +100.0  0.0156    0.0469  better
strong - simple  Precision       +1.000  0.0156    0.0469  better
strong - simple  Recall          +1.000  0.0156    0.0469  better
strong - simple  F1              +1.000  0.0156    0.0469  better
zebra - simple   Recall@1 %       +42.9  0.2500    0.2500  tied
zebra - simple   Recall@5 %      +100.0  0.0156    0.0469  better
zebra - simple   Precision       +0.500  0.0156    0.0469  better
zebra - simple   Recall          +1.000  0.0156    0.0469  better
zebra - simple   F1              +0.667  0.0156    0.0469  better
zebra - strong   Recall@1 %       -57.1  0.1250    0.2500  tied
zebra - strong   Recall@5 %        +0.0  1.0000    1.0000  tied
zebra - strong   Precision       -0.500  0.0156    0.0469  worse
zebra - strong   Recall          +0.000  1.0000    1.0000  tied
zebra - strong   F1              -0.333  0.0156    0.0469  worse

============================================================
Evaluation results saved to: dev_evaluation.json
============================================================
"""


def test_the_comparison_is_the_last_section_of_the_console(seven: Project) -> None:
    out = seven.run().out
    assert out[out.index("\n" + "=" * 60 + "\nSYSTEM COMPARISON") :] == COMPARISON


def test_half_widths_are_those_of_the_intervals(seven: Project) -> None:
    outcome = seven.run()
    low, high = outcome.results["zebra"]["retrieval"]["ci95"]["recall_at_1_pct"]
    assert f"\nzebra   42.9 +- {(high - low) / 2:.1f}  " in outcome.out


FEW = "With so few documents ({}) no difference can be told from chance: all are tied."
ABOUT_FOUR = ["No intervals: fewer than 5 documents: 4."]
ABOUT_FIVE = ["+- is half of a 95 % interval: bootstrap over 5 gold documents."]
ABOUT_SIX = ["+- is half of a 95 % interval: bootstrap over 6 gold documents."]
LACKING = "Missing judgements count 0 in these means: {}."


def remarks(outcome: RunOutcome) -> list[str]:
    """What stands between the two tables of the comparison."""
    section = outcome.out.partition("SYSTEM COMPARISON")[2].partition("\n--- PAIRED DIFFERENCES")[0]
    return section.rstrip("\n").rpartition("\n\n")[2].split("\n")


@table(
    "systems, documents, expected",
    {
        # The smallest p of n documents is 2 / 2^n, times the pairs. By chance is what is above 0.05.
        "a pair on five: 1/16": (["simple", "strong"], 5, [*ABOUT_FIVE, FEW.format(5)]),
        "a pair on six: 1/32": (["simple", "strong"], 6, ABOUT_SIX),
        "three pairs on six: 3/32": (["simple", "strong", "zebra"], 6, [*ABOUT_SIX, FEW.format(6)]),
        "a pair on four": (["simple", "strong"], 4, [*ABOUT_FOUR, FEW.format(4)]),
    },
)
def test_where_all_are_tied_since_there_are_few_documents_it_is_said(
    seven: Project, systems: list[str], documents: int, expected: list[str]
) -> None:
    seven.questions(*(question(f"d{place}") for place in range(1, documents + 1)))
    outcome = seven.run("dev", "--systems", *systems)
    assert remarks(outcome) == expected
    verdicts = {row["verdict"] for row in outcome.results["strong"]["comparison"]}
    assert (verdicts == {"tied"}) == (len(expected) == 2)


# The smallest p of random flips is about 1 / 10,000; 32 systems are 496 pairs, 33 are 528.
@table(
    "systems, told",
    {
        "496 pairs": (32, []),
        "528 pairs": (33, ["With so many pairs (528) no difference can be told from chance: all are tied."]),
    },
)
def test_where_all_are_tied_since_there_are_many_pairs_it_is_said(systems: int, told: list[str]) -> None:
    retrieval = {"per_question": [{"gold_doc_id": f"d{place}"} for place in range(20)]}
    results = {f"s{place}": {"retrieval": retrieval} for place in range(systems)}
    assert list(evaluation.comparison_remarks(results))[1:] == told


def test_fewer_pairs_are_judged_than_compared_so_fewer_documents_will_do(
    seven: Project, judge: Judging
) -> None:
    seven.questions(*(question(f"d{place}") for place in range(1, 7)))
    judge({"strong": dict.fromkeys(ids(6), 5), "zebra": dict.fromkeys(ids(6), 3)})
    outcome = seven.run()
    [answer] = [
        row for row in outcome.results["strong"]["comparison"] if row["measure"] == "avg_answer_score"
    ]
    assert (answer["p_holm"], answer["verdict"]) == (2 / 2**6, "better")
    assert remarks(outcome) == ABOUT_SIX


@table(
    "scores, said",
    {
        "of one": ({"strong": ids(7), "zebra": ids(4)}, "zebra 3"),
        "of two": ({"strong": ids(6), "zebra": ids(2)}, "strong 1, zebra 5"),
    },
)
def test_missing_judgements_stand_under_the_means(
    seven: Project, judge: Judging, scores: Mapping[str, Iterable[str]], said: str
) -> None:
    judge({system: dict.fromkeys(names, 4) for system, names in scores.items()})
    assert remarks(seven.run())[1:] == [LACKING.format(said)]


def test_missing_judgements_stand_before_few_documents(seven: Project, judge: Judging) -> None:
    seven.questions(*(question(f"d{place}") for place in range(1, 6)))
    judge({"strong": dict.fromkeys(ids(2), 4)})
    outcome = seven.run("dev", "--systems", "simple", "strong")
    assert remarks(outcome) == [*ABOUT_FIVE, LACKING.format("strong 3"), FEW.format(5)]


def test_one_system_is_compared_with_none(seven: Project) -> None:
    outcome = seven.run("dev", "--systems", "zebra")
    assert "COMPARISON" not in outcome.out
    assert "comparison" not in outcome.results["zebra"]


def test_a_measure_of_no_question_is_not_compared(seven: Project) -> None:
    seven.questions(*(question(f"d{place}", evidence_sentences=[]) for place in range(1, 8)))
    outcome = seven.run()
    compared = {row["measure"] for row in outcome.results["strong"]["comparison"]}
    assert compared == {"recall_at_1_pct", "recall_at_5_pct"}
    assert "Precision " not in outcome.out.partition("SYSTEM COMPARISON")[2]


# --------------------------------------------------------------------------------- comparisons in the results
def test_a_comparison_stands_with_both_systems(seven: Project) -> None:
    results = seven.run().results
    opposite = {"better": "worse", "worse": "better", "tied": "tied"}
    for one, other in itertools.permutations(results, 2):
        mine = [row for row in results[one]["comparison"] if row["with"] == other]
        theirs = [row for row in results[other]["comparison"] if row["with"] == one]
        assert len(mine) == 5
        for row, mirrored in zip(mine, theirs, strict=True):
            assert mirrored == {
                "with": one,
                "measure": row["measure"],
                "difference": -row["difference"],
                "ci95": [-row["ci95"][1], -row["ci95"][0]],
                "p": row["p"],
                "p_holm": row["p_holm"],
                "verdict": opposite[row["verdict"]],
            }


def test_a_comparison_by_hand(seven: Project) -> None:
    [row] = [
        row
        for row in seven.run().results["zebra"]["comparison"]
        if (row["with"], row["measure"]) == ("strong", "recall_at_1_pct")
    ]
    low, high = evaluation.bootstrap_interval([0, -100, -100, 0, -100, -100, 0]) or (0, 0)
    assert row == {
        "with": "strong",
        "measure": "recall_at_1_pct",
        "difference": pytest.approx(-400 / 7, abs=1e-12),
        "ci95": [low, high],
        "p": 2 / 2**4,  # the four that differ have the same sign in 2 of 16 flips
        "p_holm": 0.25,
        "verdict": "tied",
    }


def test_too_few_documents_have_differences_and_p_but_no_interval(seven: Project) -> None:
    seven.questions(question("d1"), question("d2"))
    row = seven.run().results["strong"]["comparison"][0]
    assert (row["difference"], row["ci95"], row["p"], row["verdict"]) == (100, None, 0.5, "tied")


def asked(documents: Iterable[str]) -> list[Question]:
    """Questions with gold evidence and a rubric about these documents."""
    named = enumerate(documents, start=1)
    return [Question(f"q{n:03d}", d, "?", "!", ("S1",), Rubric("", {})) for n, d in named]


def cited(columns: Sequence[Sequence[float]]) -> list[Row]:
    """Rows of a citation block, given each measure's values."""
    return [dict(zip(("precision", "recall", "f1"), row, strict=True)) for row in zip(*columns, strict=True)]


def compared(
    block: str, documents: Sequence[str], rows: Mapping[str, list[Row]]
) -> dict[tuple[str, ...], Row]:
    """(system, the other one, measure) -> the row of their comparison."""
    questions = asked(documents)
    figures = {name: evaluation.block_figures(block, questions, group) for name, group in rows.items()}
    found = evaluation.compare_systems(figures)
    return {(one, row["with"], row["measure"]): row for one, row in found}


NINE = [f"d{place}" for place in (1, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7, 8, 8, 9, 9, 9)]


@pytest.fixture(scope="module")
def four() -> dict[str, list[Row]]:
    """Four systems with values of any size, the last two far ahead of the first two."""
    random = np.random.default_rng(3)
    return {
        name: cited((random.random((3, len(NINE))) * 0.5 + lead).round(2).tolist())
        for name, lead in {"a": 0.0, "b": 0.02, "c": 0.25, "d": 0.5}.items()
    }


MEASURED = [(measure.name, measure.value) for measure in evaluation.MEASURES["citation"]]


@pytest.mark.parametrize(("measure", "value"), MEASURED)
def test_differences_intervals_and_p_are_those_of_the_pairs(
    four: dict[str, list[Row]], measure: str, value: str
) -> None:
    codes = [int(name[1:]) - 1 for name in NINE]
    rows = compared("citation", NINE, four)
    for one, other in itertools.permutations(four, 2):
        found = rows[one, other, measure]
        values = [a[value] - b[value] for a, b in zip(four[one], four[other], strict=True)]
        sums = np.bincount(codes, values)
        exact = stats.permutation_test(
            (sums, np.zeros(9)),
            lambda x, y, axis: (x - y).mean(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf,
        )
        assert found["difference"] == pytest.approx(np.mean(values), abs=1e-12)
        assert found["ci95"] == pytest.approx(evaluation.bootstrap_interval(values, NINE), abs=1e-9)
        assert found["p"] == pytest.approx(exact.pvalue, abs=1e-12)


@pytest.mark.parametrize("measure", [name for name, _ in MEASURED])
def test_holm_is_over_all_pairs_of_one_measure(four: dict[str, list[Row]], measure: str) -> None:
    rows = compared("citation", NINE, four)
    pairs = [rows[one, other, measure] for one, other in itertools.combinations(four, 2)]
    with all_kept():  # multipletests has all garbage collected
        expected = multipletests([row["p"] for row in pairs], method="holm")[1]
    assert [row["p_holm"] for row in pairs] == pytest.approx(expected.tolist(), abs=1e-12)
    verdicts = [evaluation.verdict(row["difference"], row["p_holm"]) for row in pairs]
    assert [row["verdict"] for row in pairs] == verdicts
    assert {"worse", "tied"} == set(verdicts)


@table(
    "difference, p, expected",
    {
        "above": (0.1, 0.05, "better"),
        "below": (-0.1, 0.05, "worse"),
        "above by chance": (0.1, 0.0501, "tied"),
        "below by chance": (-0.1, 0.0501, "tied"),
        "no difference": (0.0, 1.0, "tied"),
    },
)
def test_verdict(difference: float, p: float, expected: str) -> None:
    assert evaluation.verdict(difference, p) == expected


def test_a_system_that_is_not_judged_takes_no_part_in_judged_measures(seven: Project, judge: Judging) -> None:
    judge({"strong": dict.fromkeys(ids(7), 5), "zebra": dict.fromkeys(ids(7), 3)})
    results = seven.run().results
    judged = {measure.name for measure in evaluation.MEASURES["llm_judge"]}
    with_whom = {
        name: {row["with"] for row in results[name]["comparison"] if row["measure"] in judged}
        for name in results
    }
    assert with_whom == {"simple": set(), "strong": {"zebra"}, "zebra": {"strong"}}
    [answer] = [row for row in results["strong"]["comparison"] if row["measure"] == "avg_answer_score"]
    assert (answer["difference"], answer["p"], answer["p_holm"]) == (2, 2 / 2**7, 2 / 2**7)


@given(
    st.lists(
        st.tuples(st.integers(1, 16), st.integers(1, 5) | st.none(), st.floats(0, 1)), min_size=1, max_size=20
    )
)
@repeatable
def test_a_system_and_its_copy_are_tied(drawn: list[tuple[int, int | None, float]]) -> None:
    rows = [
        {
            "failure": None if score else "no reply",
            "answer_score_raw": score or 0,
            "evidence_score": evidence,
            "combined_score": (score or 0) / 10 + evidence / 2,
        }
        for _, score, evidence in drawn
    ]
    documents = [f"d{place}" for place, *_ in drawn]
    found = compared("llm_judge", documents, {"one": rows, "copy": rows})
    assert {(row["difference"], row["p"], row["p_holm"], row["verdict"]) for row in found.values()} == {
        (0, 1, 1, "tied")
    }


# ----------------------------------------------------------------------------------------- missing judgements
EIGHT = [f"d{place}" for place in range(8)]


def judged(scores: Sequence[int | None]) -> list[Row]:
    """Rows of a judge's block with nothing cited, given the scores; None is missing."""
    return [
        {
            "failure": None if score else "no reply",
            "answer_score_raw": score or 0,
            "evidence_score": 0.0,
            "combined_score": (score or 0) / 10,
        }
        for score in scores
    ]


@table(
    "one, other, difference, p, expected",
    {
        "nothing is missing": ([5] * 8, [1] * 8, 4, 2 / 2**8, "better"),
        "holds if the other's one is a 5": ([5] * 8, [None, *[1] * 7], 33 / 8, 2 / 2**7, "better"),
        "holds if its own one is a 1": ([None, *[5] * 7], [1] * 8, 27 / 8, 2 / 2**7, "better"),
        "holds the other way round": ([1] * 8, [*[5] * 7, None], -27 / 8, 2 / 2**7, "worse"),
        "not if the other's three are 5": ([5] * 8, [*[None] * 3, *[1] * 5], 35 / 8, 2 / 2**5, "tied"),
        "not where the ends disagree": ([3] * 8, [None] * 8, 3, 1, "tied"),
        "not where both lack the same": (
            [*[5] * 5, None, None, None],
            [*[1] * 5, None, None, None],
            20 / 8,
            186 / 2**8,  # five times +4 and three times -4: only 70 flips have a smaller sum, 0
            "tied",
        ),
    },
)
def test_a_verdict_holds_whatever_is_missing(
    one: list[int | None], other: list[int | None], difference: float, p: float, expected: str
) -> None:
    row = compared("llm_judge", EIGHT, {"a": judged(one), "b": judged(other)})["a", "b", "avg_answer_score"]
    assert row["difference"] == difference
    assert (row["p"], row["p_holm"], row["verdict"]) == (p, p, expected)


def test_no_verdict_against_the_difference_that_is_shown() -> None:
    """Ahead at both ends, where a missing one is worth 1 at least, but behind with 0 for each of these."""
    systems = {"a": judged([*[2] * 6, *[None] * 8]), "b": judged([1] * 14)}
    rows = compared("llm_judge", [f"d{place}" for place in range(14)], systems)
    row = rows["a", "b", "avg_answer_score"]
    assert (row["difference"], row["p"], row["verdict"]) == ((6 - 8) / 14, 1, "tied")


def test_what_a_third_system_lacks_makes_no_pair_easier_to_tell_apart() -> None:
    """Its two pairs differ at either end, but there are scores between at which they do not."""
    systems = {"a": judged([3] * 8), "b": judged([*[2] * 6, 3, 3]), "c": judged([None] * 8)}
    rows = compared("llm_judge", EIGHT, systems)
    found = {pair[:2]: (row["p"], row["p_holm"], row["verdict"]) for pair, row in rows.items()}
    assert found["a", "b"] == (2 / 2**6, 6 / 2**6, "tied")
    assert found["a", "c"] == found["b", "c"] == (1, 1, "tied")


def test_missing_judgements_of_a_run(seven: Project, judge: Judging) -> None:
    judge({"strong": dict.fromkeys(ids(7), 5), "zebra": dict.fromkeys(ids(5), 1)})
    results = seven.run().results
    [row] = [row for row in results["strong"]["comparison"] if row["measure"] == "avg_answer_score"]
    assert row["difference"] == pytest.approx(5 - 5 / 7, abs=1e-12)  # as the averages have it: 0 for missing
    assert (row["p"], row["verdict"]) == (2 / 2**5, "tied")


# ----------------------------------------------------------------------------------------------------- slices
LABELLED = [
    {"question_type": "how", "edge_case_type": "none", "source_dataset": "sets"},
    {"question_type": "how", "edge_case_type": "", "source_dataset": "sets"},
    {"question_type": "why", "edge_case_type": "", "source_dataset": "sets"},
    {"question_type": "how", "edge_case_type": ..., "source_dataset": "sets"},
    {"question_type": "why", "edge_case_type": None, "source_dataset": "bags"},
    {"question_type": "how", "edge_case_type": "none", "source_dataset": "bags"},
    {"question_type": "how", "edge_case_type": "none", "source_dataset": "bags"},
]


def label(project: Project, labels: Iterable[Mapping[str, Any]], **changes: Any) -> None:
    """The questions of `seven`, those with these labels."""
    named = enumerate(labels, start=1)
    project.questions(*(question(f"d{n}", question_id=f"q{n:03d}", **{**row, **changes}) for n, row in named))


def means(block: Row) -> Row:
    """A results block without what is not a mean or its interval."""
    kept = {measure.name for name in BLOCKS for measure in evaluation.MEASURES[name]} | {
        "ci95",
        "ci95_reason",
    }
    return {name: value for name, value in block.items() if name in kept}


@table(
    "of, expected",
    {
        "two questions are no slice": ("question_type", {"how": 5}),
        "no question without a label is in one": ("edge_case_type", {"none": 3}),
        "in alphabetical order": ("source_dataset", {"bags": 3, "sets": 4}),
    },
)
def test_slices(seven: Project, of: str, expected: dict[str, int]) -> None:
    label(seven, LABELLED)
    slices = seven.run().results["zebra"]["slices"]
    assert [(value, block["questions"]) for value, block in slices[of].items()] == list(expected.items())


def test_without_labels_there_are_no_slices(seven: Project) -> None:
    unlabelled = dict.fromkeys(evaluation.SLICED_LABELS, ...)
    label(seven, [unlabelled] * 7)
    assert seven.run().results["strong"]["slices"] == {name: {} for name in evaluation.SLICED_LABELS}


@pytest.mark.parametrize("of", evaluation.SLICED_LABELS)
def test_a_slice_is_what_evaluating_only_its_questions_gives(seven: Project, judge: Judging, of: str) -> None:
    judge({"zebra": dict(zip(ids(7), [5, 3, 4, 1, 2, 4, 2], strict=True))})
    label(seven, LABELLED)
    slices = seven.run("dev", "--judge", "zebra").results["zebra"]["slices"][of]
    for value, block in slices.items():
        rows = [(place, row) for place, row in enumerate(LABELLED, start=1) if row[of] == value]
        seven.questions(*(question(f"d{n}", question_id=f"q{n:03d}", **row) for n, row in rows))
        alone = seven.run("dev", "--judge", "zebra").results["zebra"]
        assert block == {"questions": len(rows), **{name: means(alone[name]) for name in BLOCKS}}


def test_a_slice_without_evidence_or_rubrics_has_no_such_means(seven: Project, judge: Judging) -> None:
    judge({})
    label(seven, LABELLED[:4], evidence_sentences=[], rubric=None)
    how = seven.run("dev", "--judge", "strong").results["strong"]["slices"]["question_type"]["how"]
    for name in ("citation", "llm_judge"):
        nothing = dict.fromkeys(measure.name for measure in evaluation.MEASURES[name])
        reason = "fewer than 5 documents: 0"
        assert how[name] == {**nothing, "ci95": nothing, "ci95_reason": reason}


BY_SOURCE = """
============================================================
RESULTS BY SOURCE_DATASET
============================================================

source_dataset  System  Questions  Recall@1 %  Recall@5 %  Precision  Recall     F1
bags            strong          3       100.0       100.0      1.000   1.000  1.000
bags            zebra           3        33.3       100.0      0.500   1.000  0.667
sets            strong          4       100.0       100.0      1.000   1.000  1.000
sets            zebra           4        50.0       100.0      0.500   1.000  0.667

============================================================
SYSTEM COMPARISON
"""
BY_TYPE = """
============================================================
RESULTS BY QUESTION_TYPE
============================================================

question_type  System  Questions    Recall@1 %    Recall@5 %       Precision          Recall              F1
how            strong          5  100.0 +- 0.0  100.0 +- 0.0  1.000 +- 0.000  1.000 +- 0.000  1.000 +- 0.000
"""
NONE_BY_TYPE = """
============================================================
RESULTS BY QUESTION_TYPE
============================================================

No question_type has 3 questions or more.
"""


@table(
    "labels, arguments, expected",
    {
        "by source": (LABELLED, ["--systems", "strong", "zebra", "--by", "source_dataset"], BY_SOURCE),
        "of one system, with intervals": (
            LABELLED,
            ["--systems", "strong", "--by", "question_type"],
            BY_TYPE,
        ),
        "no slice": (LABELLED[:2], ["--by", "question_type"], NONE_BY_TYPE),
    },
)
def test_a_table_of_one_label(
    seven: Project, labels: list[dict[str, Any]], arguments: list[str], expected: str
) -> None:
    label(seven, labels)
    assert expected in seven.run("dev", *arguments).out


@pytest.mark.parametrize("of", ["source", "rubric", "QUESTION_TYPE", ""])
def test_there_is_no_table_of_another_label(seven: Project, of: str) -> None:
    outcome = seven.run("dev", "--by", of)
    assert outcome.err[-1].startswith(f"evaluation.py: error: argument --by: invalid choice: {of!r}")
    assert (outcome.code, outcome.out, outcome.results) == (2, "", None)


# ----------------------------------------------------------------------------------------------- joint scores
NOTHING = {"avg_supported_combined_score": None, "avg_f1_answer_score": None}
GOLD, NO_GOLD = ["S1"], []
ABOUT = document("d1", "It rained.", "It snowed.", "Nobody came.")


@table(
    "gold, rank, cited, score, supported, product",
    {
        "document and sentence": (GOLD, 1, ["S1"], 4, (0.8 + 1) / 2, 0.8),
        "the document alone, as the fifth": (GOLD, 5, [], 4, 0.8 / 2, 0),
        "the document alone, as the sixth": (GOLD, 6, [], 4, 0, 0),
        "the sentence alone": (GOLD, 0, ["S1"], 4, (0.8 + 1) / 2, 0.8),
        "the sentence and two others": (GOLD, 0, ["S1", "S2", "S3"], 4, (0.8 + 1) / 2, 0.5 * 0.8),
        "another sentence with half of the words": (GOLD, 0, ["S2"], 4, 0.5 / 2, 0),
        "no gold, the document": (NO_GOLD, 5, [], 4, (0.8 + 1) / 2, None),
        "no gold, no document": (NO_GOLD, 0, [], 4, 1 / 2, None),
        "no gold, a sentence cited": (NO_GOLD, 0, ["S1"], 4, 0, None),
        "supported, but the judgement is missing": (GOLD, 1, ["S1"], None, 1 / 2, 0),
    },
)
def test_joint_scores_of_one_question(
    project: Project,
    judge: Judging,
    gold: list[str],
    rank: int,
    cited: list[str],
    score: int | None,
    supported: float,
    product: float | None,
) -> None:
    project.questions(question("d1", evidence_sentences=gold))
    project.documents(ABOUT)
    project.predictions("strong", {"q001": found_at(rank, "d1", *cited)})
    judge({"strong": {"q001": score} if score else {}})
    found = project.run().results["strong"]["joint"]
    assert found["avg_supported_combined_score"] == pytest.approx(supported, abs=1e-12)
    assert found["avg_f1_answer_score"] == pytest.approx(product, abs=1e-12)
    assert (found["questions"], found["questions_with_evidence"]) == (1, len(gold))


def test_joint_means_and_their_intervals(project: Project, judge: Judging) -> None:
    gold = [["S1"], ["S1"], [], ["S1"], ["S1"], [], ["S1"]]
    project.questions(
        *(question(f"d{n}", evidence_sentences=e) for n, e in enumerate(gold, start=1)),
        question("d8", rubric=None),
    )
    project.documents(*(document(f"d{n}", "It rained.") for n in range(1, 9)))
    predict(project, "strong", [1, 0, 1, 0, 1, 0, 9, 1], "S1")
    judge({"strong": dict(zip(ids(7), [5, 4, 3, 2, 1, 5, 4], strict=True))})
    supported = [1.0, 0.9, 0.3, 0.7, 0.6, 0.0, 0.9]  # no gold: cited for nothing, so no evidence
    products = [1.0, 0.8, 0.4, 0.2, 0.8]
    assert project.run().results["strong"]["joint"] == {
        "questions": 7,
        "questions_with_evidence": 5,
        "avg_supported_combined_score": pytest.approx(4.4 / 7, abs=1e-12),
        "avg_f1_answer_score": pytest.approx(3.2 / 5, abs=1e-12),
        "ci95": {
            "avg_supported_combined_score": pytest.approx(evaluation.bootstrap_interval(supported), abs=1e-9),
            "avg_f1_answer_score": pytest.approx(evaluation.bootstrap_interval(products), abs=1e-9),
        },
    }


def test_joint_scores_of_no_question(small: Project, judge: Judging) -> None:
    small.questions(question("d1", rubric=None))
    judge({})
    assert small.run().results["strong"]["joint"] == {
        "questions": 0,
        "questions_with_evidence": 0,
        **NOTHING,
        "ci95": NOTHING,
        "ci95_reason": "fewer than 5 documents: 0",
    }


def test_joint_scores_are_in_the_results_of_judged_systems_only(seven: Project, judge: Judging) -> None:
    judge({"strong": dict.fromkeys(ids(7), 5), "zebra": dict.fromkeys(ids(7), 3)})
    outcome = seven.run()
    assert [name for name in outcome.results if "joint" in outcome.results[name]] == ["strong", "zebra"]
    assert "joint" not in outcome.out.lower()
    assert "supported" not in outcome.out.lower()
