"""Measure by simulation what the gate notices, and how often intervals hold the truth.

    python tests/bench_statistics.py [--runs N] [--quick]

Prints a table: what is measured, the value, the wanted bound, ok. A row of intervals has the least coverage
of all numbers of documents, then for each the coverage and the width, as a part of what the truth needs. The
exit code is 0 if every row is ok, else 1. Every run of the program draws the same samples. It takes some
minutes. With --quick there are too few samples for the bounds, which do not count.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the program itself does
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import evaluation
import numpy as np
import numpy.typing as npt

RUNS = 400  # compared with a baseline; there are five times as many intervals
N_QUESTIONS = 100  # that the gate compares, each about a document of its own
RECALL_AT_1, RECALL_AT_5 = 0.8, 0.9
MEASURES = {"not judged": 5, "judged": 8}  # those of `draw_run` that such a split has

Array = npt.NDArray[Any]
Random = np.random.Generator


class Row(NamedTuple):
    """A line of the table: a measured value and its bound; without a sign it is for information."""

    what: str
    measured: float
    sign: Literal[">=", "<=", ""] = ""
    wanted: float = 0
    cells: str = ""

    @property
    def is_ok(self) -> bool:
        return self.measured >= self.wanted if self.sign != "<=" else self.measured <= self.wanted


def list_samples(columns: Iterable[Array], clusters: Array | None = None) -> list[evaluation.Sample]:
    return [evaluation.make_sample(column, clusters) for column in columns]


# ------------------------------------------------------------------ The gate


def draw_run(random: Random, drop_at_1: float = 0.0, drop: float = 0.0) -> Array:
    """Return the scores of a run, shape (8, N_QUESTIONS): what a split has, and what a judge adds to it.

    Recall@1 implies recall@5. Without the document nothing is cited rightly; otherwise some of three gold
    sentences, and some others. The evidence has some of the words of sentences that are missed. An answer's
    score is a level that goes with its citations. `drop` lowers the mean of every measure by about as much,
    `drop_at_1` that of recall@1 alone.
    """
    at_1 = random.random(N_QUESTIONS) < RECALL_AT_1 - drop - drop_at_1
    n_others = RECALL_AT_5 - RECALL_AT_1 + drop_at_1
    at_5 = at_1 | (random.random(N_QUESTIONS) < n_others / (1 - RECALL_AT_1 + drop + drop_at_1))
    skill = random.beta(2.1 - drop, 0.9 + drop, N_QUESTIONS)
    right = random.binomial(3, skill) * at_5
    wrong = random.binomial(2, 0.45 * (1 - skill)) + 2 * ~at_5
    precision = right / np.maximum(right + wrong, 1)
    recall = right / 3
    f1 = 2 * right / (3 + right + wrong)
    evidence = recall + (3 - right) * random.uniform(0, 0.1, N_QUESTIONS)
    level = np.round(5 * skill * (0.4 + 0.6 * at_5) + random.normal(0.5, 1, N_QUESTIONS) - 2 * drop)
    answer = np.clip(level, 1, 5) / 5
    return np.stack([at_1, at_5, precision, recall, f1, answer, evidence, (answer + evidence) / 2])


class Case(NamedTuple):
    """How a run differs from its baseline, and how often one of some measures may or should be worse."""

    what: str
    drops: Mapping[str, float]
    counted: Sequence[int]
    sign: Literal[">=", "<="]
    wanted: float


CASES = (
    Case("no change: false alarms", {}, range(8), "<=", 0.07),
    Case("recall@1 alone from 0.8 to 0.7: noticed", {"drop_at_1": 0.1}, [0], ">=", 0.25),
    Case("all measures by 10 points: noticed", {"drop": 0.1}, range(8), ">=", 0.58),
)


def measure_gate(runs: int) -> Iterator[Row]:
    """Compare independent runs with a baseline, by the measures of a split with and without a judge."""
    for kind, n_measures in MEASURES.items():
        for case in CASES:
            random = np.random.default_rng(1)
            n_worse = 0
            for _ in range(runs):
                gaps = draw_run(random, **case.drops) - draw_run(random)
                tests = evaluation.paired_drop_tests(list_samples(gaps[:n_measures]))
                n_worse += min(tests[index].p_adjusted for index in case.counted[:n_measures]) <= 0.05
            yield Row(f"{kind}, {case.what}", n_worse / runs, case.sign, case.wanted)


def measure_drops() -> Iterator[Row]:
    """Show how large the drops are that `draw_run` makes, of many questions."""
    random = np.random.default_rng(0)
    means = [
        np.mean([draw_run(random, drop=drop).mean(axis=1) for _ in range(500)], axis=0) for drop in (0, 0.1)
    ]
    lost = means[0] - means[1]
    yield Row("all measures by 10 points: the smallest drop", lost.min())
    yield Row("all measures by 10 points: the largest drop", lost.max())


# ------------------------------------------------------------------ False alarms of several systems

N_SYSTEMS = (1, 2, 5, 10)


def measure_false_alarms(runs: int) -> Iterator[Row]:
    """Compare unchanged systems with a baseline: how often one of them is worse by one of its measures.

    "Adjusted alone": each system is tested as if it were the only one.
    """
    for n_systems in N_SYSTEMS:
        random = np.random.default_rng(4)
        n_worse = 0
        n_worse_alone = 0
        for _ in range(runs):
            columns: list[Array] = []
            is_worse_alone = False
            for _ in range(n_systems):
                gaps = list((draw_run(random) - draw_run(random))[:5])
                columns += gaps
                tests = evaluation.paired_drop_tests(list_samples(gaps))
                is_worse_alone |= min(test.p_adjusted for test in tests) <= 0.05
            tests = evaluation.paired_drop_tests(list_samples(columns))
            n_worse += min(test.p_adjusted for test in tests) <= 0.05
            n_worse_alone += is_worse_alone
        yield Row(f"{n_systems} unchanged systems, 5 measures: false alarms", n_worse / runs, "<=", 0.07)
        yield Row(f"{n_systems} unchanged systems, each adjusted alone", n_worse_alone / runs)


# ------------------------------------------------------------------ Intervals of means

N_DOCUMENTS = (5, 8, 13, 24, 60, 200)
LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)
SHAPES: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {  # probabilities and values
    **{f"hits, p {p}": ((1 - p, p), (0, 1)) for p in (0.5, 0.8, 0.95, 0.98)},
    "levels, even": ((0.1, 0.2, 0.4, 0.2, 0.1), LEVELS),
    "levels, 60 % fives": ((0.03, 0.05, 0.1, 0.22, 0.6), LEVELS),
    "levels, 90 % fives": ((0.02, 0.01, 0.02, 0.05, 0.9), LEVELS),
    "levels, 98 % fives": ((0.02, 0.98), (1, 5)),
    "levels, 95 % threes": ((0.05, 0.95), (2, 3)),
    "F1": ((0.3, 0.05, 0.1, 0.15, 0.4), (0, 0.3, 0.5, 0.7, 1)),
    "combined": ((0.05, 0.15, 0.3, 0.3, 0.2), (0.3, 0.5, 0.65, 0.8, 0.95)),
}
LAYOUTS = (
    ("1", 0.0),
    ("5", 0.0),
    ("5", 0.3),
    ("5", 0.8),
    ("1 to 10", 0.3),
    ("1 to 10", 0.8),
)  # questions, ICC
FAR_FROM_AN_EDGE = ("hits, p 0.5", "hits, p 0.8", "levels, even", "F1", "combined")


def draw_sizes(questions: str, n_documents: int) -> Array:
    """Return the number of questions about each document."""
    if questions == "1 to 10":
        return np.random.default_rng(5).integers(1, 11, n_documents)
    return np.full(n_documents, int(questions))


def measure_means(runs: int) -> Iterator[Row]:
    """Count the intervals that hold the true mean, and measure their width: a row per shape and layout.

    The answers about a document share a normal variable, whose part of the variance is the ICC. Levels are on
    a scale from 0, as in a split, where a missing judgement counts 0; those by 95 % threes on one from 1.
    """
    for shape, (probabilities, values) in SHAPES.items():
        lowest = 1 if "threes" in shape else 0
        for questions, icc in LAYOUTS:
            cells = []
            for n_documents in N_DOCUMENTS:
                sizes = draw_sizes(questions, n_documents)
                scores = draw_clustered(probabilities, values, sizes, icc, runs)
                clusters = np.repeat(np.arange(n_documents), sizes)
                highest = 5 if "levels" in shape else 1
                ends = np.array(
                    [
                        evaluation.compute_mean_interval(evaluation.Sample(row, clusters), lowest, highest)
                        for row in scores
                    ]
                )
                cells.append(describe_cell(ends, float(np.dot(probabilities, values)), scores.mean(axis=1)))
            what = f"mean, {shape}, {questions} a document, ICC {icc}"
            least = min(cell.covered for cell in cells)
            yield Row(what, least, ">=", 0.92 if questions in ("1", "5") else 0.9, format_cells(cells))
            if shape in FAR_FROM_AN_EDGE and questions in ("1", "5"):
                widest = max(cell.width for cell in cells[3:])
                yield Row(f"{what}: width from 24 documents on", widest, "<=", 1.2)


class Cell(NamedTuple):
    """The share of intervals that hold the truth, and their width, as a part of 3.92 true standard errors."""

    covered: float
    width: float


def describe_cell(ends: Array, truth: float, estimates: Array) -> Cell:
    covered = np.mean((ends[:, 0] <= truth + 1e-9) & (truth <= ends[:, 1] + 1e-9))
    width = np.mean(ends[:, 1] - ends[:, 0]) / (2 * 1.96 * estimates.std() + 1e-9)
    return Cell(float(covered), float(width))


def format_cells(cells: Iterable[Cell]) -> str:
    return "  ".join(f"{cell.covered:.2f}/{cell.width:.2f}" for cell in cells)


def draw_clustered(
    probabilities: Sequence[float], values: Sequence[float], sizes: Array, icc: float, runs: int
) -> Array:
    random = np.random.default_rng(1)
    quantiles = [NormalDist().inv_cdf(min(p, 1 - 1e-12)) for p in np.cumsum(probabilities)[:-1]]
    documents = random.normal(0, 1, (runs, len(sizes)))
    noise = random.normal(0, 1, (runs, int(sizes.sum())))
    latent = np.sqrt(icc) * np.repeat(documents, sizes, axis=1) + np.sqrt(1 - icc) * noise
    return np.asarray(np.array(values)[np.searchsorted(quantiles, latent)])


# ------------------------------------------------------------------ Intervals of differences

CHANGES = {  # share of the pairs of hits that are better, and worse
    f"hits, +{better} -{worse}": (better, worse)
    for better, worse in ((0.3, 0.2), (0.1, 0.05), (0.05, 0.02), (0.03, 0.0))
}
N_COMPARED = (13, 24, 40, 60, 100)


def draw_differences(random: Random, kind: str, shape: tuple[int, int]) -> Array:
    if kind in CHANGES:
        better, worse = CHANGES[kind]
        return random.choice([1.0, -1.0, 0.0], shape, p=[better, worse, 1 - better - worse])
    if kind == "evidence, all change a little":
        return np.clip(random.normal(0.03, 0.1, shape), -1, 1)
    return np.clip(random.normal(0.1, 0.3, shape), -1, 1) * (random.random(shape) < 0.1)


def measure_differences(runs: int) -> Iterator[Row]:
    """Count the intervals of differences that hold the true one, and measure their width."""
    for kind in (*CHANGES, "evidence, all change a little", "evidence, a tenth changes"):
        random = np.random.default_rng(2)
        truth = float(draw_differences(random, kind, (1000, 1000)).mean())
        for size in (1, 5):
            cells = []
            for n_documents in N_COMPARED:
                clusters = np.repeat(np.arange(n_documents), size)
                gaps = draw_differences(random, kind, (runs, len(clusters)))
                ends = np.array(
                    [
                        evaluation.compute_difference_interval(evaluation.Sample(row, clusters), 1)
                        for row in gaps
                    ]
                )
                cells.append(describe_cell(ends, truth, gaps.mean(axis=1)))
            least = min(cell.covered for cell in cells)
            yield Row(f"difference, {kind}, {size} a document", least, ">=", 0.92, format_cells(cells))


# ------------------------------------------------------------------ People's mean


def measure_peoples_mean(runs: int) -> Iterator[Row]:
    """Count the intervals of people's mean that hold the true one, with 20 and 30 nearly equal labels."""
    for shape in ("levels, 95 % threes", "levels, 90 % fives", "levels, 98 % fives"):
        probabilities, values = SHAPES[shape]
        truth = float(np.dot(probabilities, values))
        for n_labels in (20, 30):
            random = np.random.default_rng(6)
            n_covered = 0
            for _ in range(runs):
                answers = random.choice(values, 300, p=probabilities)
                judged = np.clip(np.round(answers + random.normal(0, 1, 300)), 1, 5)
                labels = [*answers[:n_labels].tolist(), *[None] * (300 - n_labels)]
                _, low, high, _ = evaluation.corrected_mean(judged.tolist(), labels, bounds=(1, 5))
                n_covered += (low or 0) <= truth <= (high or 0)
            yield Row(f"people's mean, {shape}, {n_labels} labels", n_covered / runs, ">=", 0.9)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"default: {RUNS}")
    parser.add_argument("--quick", action="store_true", help="draw 10 runs: does it work?")
    arguments = parser.parse_args()
    runs = 10 if arguments.quick else arguments.runs
    print(f"{'measured':<72} {'value':>7}  {'wanted':>8}  ok")
    is_ok = True
    rows = (
        *measure_drops(),
        *measure_gate(runs),
        *measure_false_alarms(runs),
        *measure_means(5 * runs),
        *measure_differences(5 * runs),
        *measure_peoples_mean(5 * runs),
    )
    for row in rows:
        wanted = f"{row.sign} {row.wanted}" if row.sign else ""
        print(f"{row.what:<72} {row.measured:>7.3f}  {wanted:>8}  {'ok' if row.is_ok else 'NO'}  {row.cells}")
        is_ok = is_ok and (row.is_ok or arguments.quick)
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
