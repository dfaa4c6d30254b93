"""Measure by simulation what comparisons and the gate notice, and how often intervals hold the truth.

    python tests/bench_statistics.py [--runs N] [--quick]

Prints a table: what is measured, the value, the wanted bound, ok. A row of intervals has the least coverage
of all numbers of documents, then for each the coverage and the width, as a part of what the truth needs. A
row of pairs has the largest share of false verdicts, then the share for each number of documents. The exit
code is 0 if every row is ok, else 1. Every run of the program draws the same samples. It takes a quarter of
an hour. A row of fewer samples than usual, as all have with --quick, may miss its bound by its Monte Carlo
error.
"""

from __future__ import annotations

import argparse
import itertools
import math
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
    error: float = 0  # by which the value may miss the bound

    @property
    def is_ok(self) -> bool:
        if self.sign == "<=":
            return self.measured <= self.wanted + self.error
        return self.measured >= self.wanted - self.error


def find_error(wanted: float, runs: int, usual: int = RUNS) -> float:
    """Return the Monte Carlo error of a share, or of a width as a part of another one, of few runs."""
    if runs >= usual:
        return 0
    variance = wanted * (1 - wanted) if wanted < 1 else wanted**2 / 2
    return 4 * math.sqrt(variance / runs)


def adjust(columns: Iterable[Array], clusters: Array | None = None, **options: bool) -> Array:
    """Return the adjusted p-values of columns of differences."""
    samples = [evaluation.make_sample(column, clusters) for column in columns]
    return evaluation.compute_p_values(samples, **options)[1]


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
                p_values = adjust(gaps[:n_measures], is_one_sided=True)
                n_worse += min(p_values[index] for index in case.counted[:n_measures]) <= 0.05
            error = find_error(case.wanted, runs)
            yield Row(f"{kind}, {case.what}", n_worse / runs, case.sign, case.wanted, error=error)


N_SYSTEMS = (1, 2, 5, 10)


def measure_false_alarms(runs: int) -> Iterator[Row]:
    """Compare unchanged systems with a baseline: how often one of them is worse by one of its measures."""
    for n_systems in N_SYSTEMS:
        random = np.random.default_rng(4)
        n_worse = 0
        for _ in range(runs):
            columns: list[Array] = []
            for _ in range(n_systems):
                columns += list((draw_run(random) - draw_run(random))[:5])
            n_worse += adjust(columns, is_one_sided=True).min() <= 0.05
        what = f"{n_systems} unchanged systems, 5 measures: false alarms"
        yield Row(what, n_worse / runs, "<=", 0.07, error=find_error(0.07, runs))


SHARED = {"hits": 0, "F1": 1, "combined": 2}  # the measures of `draw_systems`
DOCUMENTS = ((13, 5), (24, 1), (60, 5))  # and questions about each
FULL_RUNS = {2: RUNS, 5: RUNS, 10: RUNS // 2, 40: RUNS // 2}  # by the number of systems
TRUTHS = ("all are equal", "one is better", "half are better", "one varies more", "few answers differ")


def draw_systems(random: Random, truth: str, n_systems: int, documents: Array) -> Array:
    """Return scores, shape (3, n_systems, n_questions): hits, and two shares that go with them.

    How hard a document and a question are is the same for all. Better systems come first.
    """
    n_questions = len(documents)
    hard = random.normal(0, 0.7, documents.max() + 1)[documents] + random.normal(0, 0.7, n_questions)
    skill = np.zeros(n_systems)
    skill[: list_groups(truth, n_systems)[1]] = 1
    latent = skill[:, np.newaxis] - hard + random.normal(0, 0.8, (n_systems, n_questions))
    # A system does well or badly with a document as a whole, too.
    latent += random.normal(0, 0.5, (n_systems, documents.max() + 1))[:, documents]
    if truth == "few answers differ":
        is_drawn = random.random(latent.shape) < 0.1
        latent = np.where(is_drawn, latent, random.permutation(latent)[0])
    cited = random.binomial(3, 1 / (1 + np.exp(-latent)))
    if truth == "few answers differ":
        cited = np.where(is_drawn, cited, cited[0])
    hits = latent > -0.8
    f1 = hits * 2 * cited / (3 + cited)
    combined = np.clip(np.round(2.5 + latent), 1, 5) / 10 + f1 / 2
    if truth == "one varies more":
        noise = random.normal(0, 0.5, (2, n_questions))
        f1[0] += noise[0]
        combined[0] += noise[1]
    return np.stack([hits, f1, combined])


def list_groups(truth: str, n_systems: int) -> tuple[int, int, int]:
    """Return where groups of equal systems begin and end: 0, the end of the better ones, and that of all."""
    n_better = {"one is better": 1, "half are better": n_systems // 2}.get(truth, 0)
    return 0, n_better, n_systems


def measure_pairs(few: float) -> Iterator[Row]:
    """Count how often a measure has a verdict on a pair of equal systems: a row for each truth and number."""
    for truth, (n_systems, usual) in itertools.product(TRUTHS, FULL_RUNS.items()):
        if truth in ("one is better", "half are better") and n_systems == 2:
            continue
        runs = max(10, round(few * usual))
        pairs = list(itertools.combinations(range(n_systems), 2))
        _, n_better, _ = list_groups(truth, n_systems)
        are_equal = np.array([(one < n_better) == (other < n_better) for one, other in pairs])
        random = np.random.default_rng(7)
        shares = []
        for n_documents, size in DOCUMENTS:
            documents = np.repeat(np.arange(n_documents), size)
            n_false = 0
            for _ in range(runs):
                for scores in draw_systems(random, truth, n_systems, documents):
                    gaps = [scores[one] - scores[other] for one, other in pairs]
                    p_values = adjust(gaps, documents, is_stepwise=True)
                    n_false += (p_values[are_equal] <= 0.05).any()
            shares.append(n_false / runs / len(SHARED))
        cells = "  ".join(f"{share:.3f}" for share in shares)
        what = f"{n_systems} systems, {truth}: false verdicts of a measure"
        yield Row(what, max(shares), "<=", 0.07, cells, find_error(0.07, runs, usual))


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
LAYOUTS = (("1", 0.0), ("5", 0.0), ("5", 0.3), ("5", 0.8), ("1 to 10", 0.3), ("1 to 10", 0.8))
FAR_FROM_AN_EDGE = ("hits, p 0.5", "hits, p 0.8", "levels, even", "F1", "combined")


def draw_sizes(questions: str, n_documents: int) -> Array:
    """Return the number of questions about each document."""
    if questions == "1 to 10":
        return np.random.default_rng(5).integers(1, 11, n_documents)
    return np.full(n_documents, int(questions))


def measure_means(runs: int) -> Iterator[Row]:
    """Count the intervals that hold the true mean, and measure their width: a row per shape and layout.

    The answers about a document share a normal variable, whose part of the variance is the ICC. Levels are on
    a scale from 1: all are judged.
    """
    for shape, (probabilities, values) in SHAPES.items():
        lowest, highest = (1, 5) if "levels" in shape else (0, 1)
        for questions, icc in LAYOUTS:
            cells = []
            for n_documents in N_DOCUMENTS:
                sizes = draw_sizes(questions, n_documents)
                scores = draw_clustered(probabilities, values, sizes, icc, runs)
                clusters = np.repeat(np.arange(n_documents), sizes)
                ends = np.array(
                    [
                        evaluation.compute_mean_interval(evaluation.Sample(row, clusters), lowest, highest)
                        for row in scores
                    ]
                )
                cells.append(describe_cell(ends, float(np.dot(probabilities, values)), scores.mean(axis=1)))
            what = f"mean, {shape}, {questions} a document, ICC {icc}"
            least = min(cell.covered for cell in cells)
            wanted = 0.92 if questions in ("1", "5") else 0.9
            error = find_error(wanted, runs, 5 * RUNS)
            yield Row(what, least, ">=", wanted, format_cells(cells), error)
            if shape in FAR_FROM_AN_EDGE and questions in ("1", "5"):
                widest = max(cell.width for cell in cells[3:])
                error = find_error(1.2, runs, 5 * RUNS)
                yield Row(f"{what}: width from 24 documents on", widest, "<=", 1.2, error=error)


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
            error = find_error(0.92, runs, 5 * RUNS)
            yield Row(f"difference, {kind}, {size} a document", least, ">=", 0.92, format_cells(cells), error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"default: {RUNS}")
    parser.add_argument("--quick", action="store_true", help="draw 10 runs: does it work?")
    arguments = parser.parse_args()
    runs = 10 if arguments.quick else arguments.runs
    print(f"{'measured':<72} {'value':>7}  {'wanted':>8}  ok")
    is_ok = True
    rows = (
        *measure_gate(runs),
        *measure_false_alarms(runs),
        *measure_pairs(runs / RUNS),
        *measure_means(5 * runs),
        *measure_differences(5 * runs),
    )
    for row in rows:
        wanted = f"{row.sign} {row.wanted}" if row.sign else ""
        print(f"{row.what:<72} {row.measured:>7.3f}  {wanted:>8}  {'ok' if row.is_ok else 'NO'}  {row.cells}")
        is_ok = is_ok and row.is_ok
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
