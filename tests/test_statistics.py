"""Intervals, tests and agreement: by hand, against other implementations, and in simulations."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import evaluation
import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests

from conftest import all_kept

ROOT = Path(__file__).resolve().parent.parent
NORMAL = statistics.NormalDist()
repeatable = settings(derandomize=True, deadline=None, max_examples=60)
shares = st.floats(0, 1)
Array = np.ndarray[Any, np.dtype[Any]]


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize by rows: what the case is -> its values."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


def some(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------------------------ Student's t
@pytest.mark.parametrize("df", [4, 5, 7, 12, 23, 59, 1000, 99_999])
@pytest.mark.parametrize("p", [0.025, 0.05, 0.5, 0.9, 0.975])
def test_student_t_quantile(p: float, df: int) -> None:
    accuracy = 4e-4 if df < 12 else 2e-6
    assert evaluation.student_t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=accuracy, abs=1e-12)


# -------------------------------------------------------------------------------------------------- intervals
@table(
    "values, clusters, expected",
    {
        "nothing": ([], None, None),
        "nothing, no clusters": ([], [], None),
        "four values": ([1, 2, 3, 4], None, None),
        "four clusters": ([1, 2, 3, 4, 5, 6], "aabbcd", None),
        "five values, all the same": ([0.25] * 5, None, (0.25, 0.25)),
        "five clusters, the same mean each": ([1, 0, 1, 0, 0.5, 0.5, 0.5, 1, 0], "aabbcdeff", (0.5, 0.5)),
        "many zeros": ([0] * 300, None, (0, 0)),
    },
)
def test_bootstrap_interval(
    values: list[float], clusters: Sequence[str] | None, expected: tuple[float, float] | None
) -> None:
    assert evaluation.bootstrap_interval(values, clusters) == expected


def test_every_column_has_an_interval_or_none_has() -> None:
    columns = [[0, 1, 0, 1, 1, 0], [0.5] * 6]
    assert evaluation.bootstrap_intervals(columns, "aabbcd") == [None, None]
    assert evaluation.bootstrap_intervals([], "abcdef") == evaluation.bootstrap_intervals([]) == []
    found = evaluation.bootstrap_intervals(columns, "abcdef")
    assert found == [evaluation.bootstrap_interval(column, "abcdef") for column in columns]


def tail(clusters: int, confidence: float = 0.95) -> float:
    """The tail of the expanded percentile interval, by scipy."""
    t = stats.t.ppf((1 + confidence) / 2, clusters - 1)
    return float(stats.norm.cdf(-math.sqrt(clusters / (clusters - 1)) * t))


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("sizes", [[1] * 40, [1, 4, 2, 3] * 5, [3] * 8])
def test_intervals_are_those_of_scipy_with_wider_percentiles(sizes: list[int], confidence: float) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = some(1).random(len(clusters)) + some(2).random(len(sizes))[clusters]
    sums = np.bincount(clusters, values)
    expected = stats.bootstrap(
        (sums, np.array(sizes, float)),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        method="percentile",
        n_resamples=10_000,
        confidence_level=1 - 2 * tail(len(sizes), confidence),
        rng=some(3),
    ).confidence_interval
    found = evaluation.bootstrap_interval(values.tolist(), clusters.tolist(), confidence=confidence)
    assert found == pytest.approx(tuple(expected), abs=0.08 * (expected.high - expected.low))


def test_the_percentiles_are_interpolated_between_resamples() -> None:
    values = some(4).random(9)
    weights = evaluation._resample_weights(9, 2_000, 0)
    expected = np.quantile(weights @ values / 9, [tail(9), 1 - tail(9)])
    assert evaluation.bootstrap_interval(values.tolist(), resamples=2_000) == pytest.approx(
        expected, abs=1e-4
    )


def test_a_resample_draws_as_many_clusters_as_there_are_each_equally_often() -> None:
    weights = evaluation._resample_weights(13, 10_000, 0)
    assert (weights.shape, weights.dtype) == ((10_000, 13), np.uint8)
    assert set(weights.sum(axis=1).tolist()) == {13}
    assert stats.chisquare(weights.sum(axis=0)).pvalue > 0.001
    counts = np.bincount(weights.ravel(), minlength=14)
    expected = stats.binom.pmf(np.arange(14), 13, 1 / 13) * weights.size
    assert np.abs(counts - expected).max() < 5 * math.sqrt(weights.size) / 2
    assert len(np.unique(weights, axis=0)) > 9_900


@table(
    "clusters, asked, made",
    {
        "few": (13, 10_000, 10_000),
        "200": (200, 10_000, 10_000),
        "500": (500, 10_000, 4_000),
        "1,000": (1_000, 10_000, 2_000),
        "fewer asked for": (13, 200, 200),
    },
)
def test_many_clusters_are_resampled_less_often(
    clusters: int, asked: int, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []

    def weights(*shape: int) -> Array:
        shapes.append(shape)
        return np.ones((2, clusters), np.uint8)

    monkeypatch.setattr(evaluation, "_resample_weights", weights)
    evaluation.bootstrap_interval([1.0] * clusters, resamples=asked, seed=7)
    assert shapes == [(clusters, made, 7)]


def test_measures_share_the_resamples() -> None:
    evaluation._resample_weights.cache_clear()
    for _ in range(2):
        evaluation.bootstrap_intervals([[0, 1, 0, 1, 1, 0, 1]] * 3)
    assert evaluation._resample_weights.cache_info().misses == 1


MANY = [place * 7 % 11 / 10 for place in range(40)]
THIRTEEN = [place % 13 for place in range(40)]


@table(
    "seed, interval, p",
    {"0": (0, (0.435714285714, 0.574549784877), 0.072), "1": (1, (0.4375, 0.575), 0.08)},
)
def test_the_same_input_gives_the_same_bytes_anywhere(
    seed: int, interval: tuple[float, float], p: float
) -> None:
    assert evaluation.bootstrap_interval(MANY, THIRTEEN, seed=seed) == interval
    assert evaluation.paired_test(MANY, [0.6] * 40, resamples=999, seed=seed) == p


@given(st.lists(shares, min_size=5, max_size=30), st.randoms(use_true_random=False))
@repeatable
def test_what_an_interval_is_for_any_values(values: list[float], randomly: Any) -> None:
    clusters = [randomly.randrange(8) for _ in values]
    found = evaluation.bootstrap_interval(values, clusters, resamples=200)
    assert (found is None) == (len(set(clusters)) < 5)
    if found:
        assert min(values) - 1e-12 <= found[0] <= found[1] <= max(values) + 1e-12
        named = [f"document {cluster}" for cluster in clusters]
        assert evaluation.bootstrap_interval(values, named, resamples=200) == found
        twice = evaluation.bootstrap_interval([*values, *values], [*clusters, *clusters], resamples=200)
        assert twice == pytest.approx(found, abs=1e-11)
    alone = evaluation.bootstrap_interval(values, resamples=200)
    assert alone == evaluation.bootstrap_interval(values, range(len(values)), resamples=200)


@table(
    "clusters",
    {
        "names": [f"document {number}" for number in THIRTEEN],
        "an array of names": np.array([f"document {number}" for number in THIRTEEN]),
        "an array of numbers": np.array(THIRTEEN),
        "in another order": np.array([12 - number for number in THIRTEEN]),
        "some of the numbers": np.array([2 * number for number in THIRTEEN]),
        "numbers beyond how many they are": np.array([10**9 * number for number in THIRTEEN]),
        "negative numbers": np.array([-number for number in THIRTEEN]),
        "numbers with a fraction": np.array([number / 2 for number in THIRTEEN]),
    },
)
def test_clusters_are_what_has_the_same_label_whatever_labels_are(clusters: Any) -> None:
    assert evaluation.bootstrap_interval(MANY, clusters) == evaluation.bootstrap_interval(MANY, THIRTEEN)
    assert evaluation.paired_test(MANY, [0.6] * 40, clusters) == evaluation.paired_test(
        MANY, [0.6] * 40, THIRTEEN
    )


@table(
    "call",
    {
        "columns": lambda: evaluation.bootstrap_intervals([[1.0] * 6, [1.0] * 5]),
        "clusters": lambda: evaluation.bootstrap_interval([1.0] * 6, "abcde"),
        "differences": lambda: evaluation.paired_tests([[1.0] * 6, [1.0] * 5]),
        "the two of a pair": lambda: evaluation.paired_test([1.0, 2.0], [1.0]),
        "clusters of a pair": lambda: evaluation.paired_test([1.0, 2.0], [1.0, 2.0], "a"),
        "raters": lambda: evaluation.cohen_kappa([1, 2], [1]),
        "rows of ratings": lambda: evaluation.krippendorff_alpha([[1, 2], [1]]),
        "labels": lambda: evaluation.corrected_mean([1.0, 2.0], [1.0]),
        "clusters of labels": lambda: evaluation.corrected_mean([1.0, 2.0], [1.0, None], "a"),
    },
)
def test_lengths_that_differ(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"length|argument"):
        call()


# ---------------------------------------------------------------------------------------------------- pairs
@table(
    "a, b, clusters, p",
    {
        "nothing": ([], [], None, 1),
        "one": ([1], [0], None, 1),
        "the same": ([1, 2, 3], [1, 2, 3], None, 1),
        "four of four": ([2, 3, 4, 5], [1, 1, 1, 1], None, 2 / 16),
        "three of four": ([1, 1, 1, 0], [0, 0, 0, 1], None, 10 / 16),
        "ten of ten": ([1] * 10, [0] * 10, None, 2 / 1024),
        "ten in one cluster": ([1] * 10, [0] * 10, [0] * 10, 1),
        "six in two clusters": ([1] * 6, [0] * 6, "aaabbb", 1 / 2),
        "clusters that are not side by side": ([1] * 6, [0] * 6, "abcabc", 1 / 4),
        "a cluster of no difference": ([1, 1, 1, 0], [0, 0, 0, 1], "abcc", 1 / 2),
        "ties but for what floats lose": ([0.1, 0.2, 0, 0.4], [0, 0, 0.3, 0], None, 10 / 16),
    },
)
def test_paired_test(a: list[float], b: list[float], clusters: Sequence[Any] | None, p: float) -> None:
    assert evaluation.paired_test(a, b, clusters) == p
    assert evaluation.paired_test(b, a, clusters) == p


@pytest.mark.parametrize("n", [2, 5, 9, 13])
@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_all_sign_flips_are_those_of_scipy(n: int, decimals: int) -> None:
    a, b = some(n).normal(0.5, 1, n).round(decimals), some(n + 1).normal(0, 1, n).round(decimals)
    expected = stats.permutation_test(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert evaluation.paired_test(a.tolist(), b.tolist()) == pytest.approx(expected.pvalue, abs=1e-12)


def test_flips_of_clusters_are_flips_of_their_sums() -> None:
    clusters = np.repeat(np.arange(10), [1, 2, 3, 4, 2] * 2)
    differences = some(5).normal(0.3, 1, len(clusters))
    sums = np.bincount(clusters, differences).tolist()
    found = evaluation.paired_tests([differences.tolist()], clusters.tolist())
    assert found == pytest.approx(evaluation.paired_tests([sums]), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [14, 15, 17])
def test_random_sign_flips_are_a_sample_of_all(n: int, seed: int) -> None:
    differences = some(4).normal(0.4, 1, n).tolist()
    [exact] = evaluation.paired_tests([differences], resamples=2**n)
    [found] = evaluation.paired_tests([differences], seed=seed)
    hits = round(found * 10_001) - 1
    assert found == (hits + 1) / 10_001
    assert 0.01 < exact < 0.5
    assert stats.binomtest(hits, 10_000, exact).pvalue > 0.001


@table(
    "clusters, asked, flips, hits",
    {
        "all": (13, 2**13, 2**13, [2]),
        "one more than all": (13, 2**13 + 1, 2**13, [2]),
        "not all": (13, 8_000, 8_001, range(1, 9)),
        "random": (60, 10_000, 10_001, [1]),
        "fewer asked for": (60, 99, 100, [1]),
        "20,000 clusters": (20_000, 10_000, 10_001, [1]),
        "200,000 clusters": (200_000, 10_000, 10_001, [1]),
    },
)
def test_how_many_flips_are_made(clusters: int, asked: int, flips: int, hits: Collection[int]) -> None:
    [p] = evaluation.paired_tests([np.ones(clusters)], resamples=asked)
    assert p in [hit / flips for hit in hits]


def test_columns_are_tested_each_by_itself() -> None:
    columns = some(6).normal(0.3, 1, (5, 20)).tolist()
    clusters = [place // 2 for place in range(20)]
    found = evaluation.paired_tests(columns, clusters)
    assert found == [evaluation.paired_test(column, [0.0] * 20, clusters) for column in columns]
    assert evaluation.paired_tests([], clusters) == evaluation.paired_tests([]) == []
    assert evaluation.paired_tests([[], []]) == [1, 1]


@given(st.lists(st.tuples(shares, shares), max_size=16), st.integers(0, 3))
@repeatable
def test_what_a_p_is_for_any_pairs(pairs: list[tuple[float, float]], seed: int) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    p = evaluation.paired_test(a, b, resamples=300, seed=seed)
    assert 0 < p <= 1
    assert p == evaluation.paired_test(b, a, resamples=300, seed=seed)
    assert p == evaluation.paired_test(a, b, range(len(a)), resamples=300, seed=seed)
    assert evaluation.paired_test(a, b, [0] * len(a), resamples=300, seed=seed) == 1


# -------------------------------------------------------------------------------------------- many p-values
@table(
    "p_values, adjusted",
    {
        "none": ([], []),
        "one": ([0.03], [0.03]),
        "two": ([0.5, 0.01], [0.5, 0.02]),
        "at most 1": ([0.75, 0.5], [1, 1]),
        "none below one before it": ([0.01, 0.02, 0.021], [0.03, 0.04, 0.04]),
        "ties": ([0.25, 0.25], [0.5, 0.5]),
    },
)
def test_holm(p_values: list[float], adjusted: list[float]) -> None:
    assert evaluation.holm(p_values) == pytest.approx(adjusted, abs=1e-15)


@given(st.lists(shares, min_size=1, max_size=20))
@settings(repeatable, max_examples=20)
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    found = evaluation.holm(p_values)
    with all_kept():  # multipletests has all garbage collected
        expected = multipletests(p_values, method="holm")[1]
    assert found == pytest.approx(expected.tolist(), abs=1e-15)
    assert all(p <= q <= 1 for p, q in zip(p_values, found, strict=True))


# -------------------------------------------------------------------------------------------------- agreement
@table(
    "a, b, weights, kappa",
    {
        "nothing": ([], [], None, None),
        "one value only": ([3, 3], [3, 3], "quadratic", None),
        "one value each": ([3, 3], [4, 4], "quadratic", 0),
        "the same": ([1, 2, 5], [1, 2, 5], None, 1),
        "chance": ([1, 1, 2, 2], [1, 2, 1, 2], None, 0),
        "the opposite": ([1, 2], [2, 1], None, -1),
        "words": (["yes", "no", "no"], ["yes", "no", "yes"], None, 0.4),
        "near, unweighted": ([1, 5, 3], [1, 5, 4], None, 4 / 7),
        "near, linear": ([1, 5, 3], [1, 5, 4], "linear", 1 - 3 / 17),
        "near, quadratic": ([1, 5, 3], [1, 5, 4], "quadratic", 1 - 3 / 51),
        "the values are the scale": ([1, 10, 1], [1, 10, 10], "quadratic", 0.4),
    },
)
def test_cohen_kappa(a: list[Any], b: list[Any], weights: str | None, kappa: float | None) -> None:
    assert evaluation.cohen_kappa(a, b, weights) == pytest.approx(kappa, abs=1e-12)
    assert evaluation.cohen_kappa(b, a, weights) == pytest.approx(kappa, abs=1e-12)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_that_of_scikit_learn(weights: str | None, seed: int) -> None:
    a = some(seed).choice([1, 2, 4, 5], 30)  # nobody gave a 3: it is still between 2 and 4
    b = np.clip(a + some(seed + 9).integers(-1, 2, 30), 1, 5)
    expected = cohen_kappa_score(a, b, labels=[1, 2, 3, 4, 5], weights=weights)
    assert evaluation.cohen_kappa(a.tolist(), b.tolist(), weights) == pytest.approx(expected, abs=1e-12)


FOUR_RATERS = [  # the example of Krippendorff 2011
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


@table(
    "ratings, level, alpha",
    {
        "nobody": ([], "nominal", None),
        "nothing": ([[], []], "ordinal", None),
        "one rater": ([[1, 2, 3]], "interval", None),
        "no item rated twice": ([[1, None, 3], [None, 2, None]], "nominal", None),
        "one value only": ([[3, 3], [3, 3]], "interval", None),
        "one value only, but for items rated once": ([[3, 3, 5], [3, 3, None]], "ordinal", None),
        "the same": ([[1, 2, 5], [1, 2, 5]], "ordinal", 1),
        "always another": ([[1, 2], [2, 1]], "nominal", -0.5),
        "words": ([["a", "b", None], ["a", "a", "b"]], "nominal", 0),
        "published, nominal": (FOUR_RATERS, "nominal", 0.743),
        "published, ordinal": (FOUR_RATERS, "ordinal", 0.815),
        "published, interval": (FOUR_RATERS, "interval", 0.849),
    },
)
def test_krippendorff_alpha(ratings: list[list[Any]], level: str, alpha: float | None) -> None:
    assert evaluation.krippendorff_alpha(ratings, level) == pytest.approx(alpha, abs=5e-4)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@pytest.mark.parametrize("seed", range(5))
def test_alpha_is_that_of_the_package_of_its_name(level: str, seed: int) -> None:
    truth = some(seed).integers(1, 6, 25)
    ratings = np.clip(truth + some(seed + 9).integers(-1, 2, (4, 25)), 1, 5).astype(float)
    ratings[some(seed + 99).random((4, 25)) < 0.4] = np.nan
    expected = krippendorff.alpha(reliability_data=ratings, level_of_measurement=level)
    gaps = [[None if math.isnan(value) else int(value) for value in row] for row in ratings.tolist()]
    assert evaluation.krippendorff_alpha(gaps, level) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(*[st.none() | st.integers(1, 5)] * 3), max_size=12), st.randoms())
@repeatable
def test_alpha_knows_neither_raters_nor_the_order_of_items(rows: list[Any], randomly: Any) -> None:
    ratings = list(zip(*rows, strict=True))
    randomly.shuffle(rows)
    for level in ("nominal", "ordinal", "interval"):
        found = evaluation.krippendorff_alpha(ratings, level)
        assert found is None or found <= 1
        shuffled = list(zip(*rows, strict=True))[::-1]
        assert evaluation.krippendorff_alpha(shuffled, level) == pytest.approx(found, abs=1e-12)


# ---------------------------------------------------------------------------------- means that people correct
@table(
    "judge, human, clusters, expected",
    {
        "nothing": ([], [], None, (None, None, None)),
        "no label": ([4, 5], [None, None], None, (None, None, None)),
        "one label": ([4, 5], [3, None], None, (3.5, None, None)),
        "four labels": ([4] * 6, [3, 5, 3, 5, None, None], None, (4, None, None)),
        "labels in four clusters": ([4] * 6, [3, 5, 3, 5, 3, None], "aabcde", (3.8, None, None)),
        "always the same error": ([4] * 6, [3.5] * 5 + [None], None, (3.5, 3.5, 3.5)),
    },
)
def test_corrected_mean(
    judge: list[float], human: list[float | None], clusters: str | None, expected: tuple[float | None, ...]
) -> None:
    assert evaluation.corrected_mean(judge, human, clusters) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("clustered", [True, False])
def test_with_all_labelled_it_is_the_clustered_mean_of_people(clustered: bool) -> None:
    clusters = np.repeat(np.arange(12), [1, 2, 3] * 4) if clustered else np.arange(24)
    human, judge = some(8).integers(1, 6, 24), some(9).integers(1, 6, 24)
    fit = OLS(human, np.ones(24)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    expected = [human.mean(), *fit.conf_int()[0]]
    found = evaluation.corrected_mean(judge.tolist(), human.tolist(), clusters.tolist())
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_corrected_mean_by_hand() -> None:
    judge = [4, 2, 5, 3, 4, 1, 2, 3]
    human = [3, 2, 4, 4, 3, None, None, None]
    # mean 3 - 2/5; influence (judge - 3) / 8 + (error + 2/5) / 5 of the labelled; 8/5 - 4/5 = 0.8 of squares
    squares = (1 / 8 - 3 / 25) ** 2 + (-1 / 8 + 2 / 25) ** 2 + (2 / 8 - 3 / 25) ** 2 + (7 / 25) ** 2
    squares += (1 / 8 - 3 / 25) ** 2 + (4 + 1 + 0) / 64
    half = stats.t.ppf(0.95, 4) * math.sqrt(5 / 4 * squares)
    found = evaluation.corrected_mean(judge, human, confidence=0.9)
    assert found == pytest.approx((2.6, 2.6 - half, 2.6 + half), rel=4e-4)


@given(st.lists(st.tuples(shares, shares, st.integers(0, 9)), min_size=1, max_size=30))
@repeatable
def test_a_constant_bias_of_the_judge_changes_nothing(rows: list[tuple[float, float, int]]) -> None:
    judge, human, clusters = ([row[place] for row in rows] for place in range(3))
    labels = [score if place % 3 else None for place, score in enumerate(human)]
    found = evaluation.corrected_mean(judge, labels, clusters)
    assert evaluation.corrected_mean([x + 2 for x in judge], labels, clusters) == pytest.approx(
        found, abs=1e-9
    )
    complete = evaluation.corrected_mean(judge, human, clusters)
    assert complete[0] == pytest.approx(statistics.fmean(human), abs=1e-12)


# --------------------------------------------------------------------------------------- what values are like
NOTHING = dict.fromkeys(("mean", "median", "std", "min", "q1", "q3", "max"))


@table(
    "values, mean, median, std, extremes, quartiles",
    {
        "one": ([4], 4, 4, None, (4, 4), (4, 4)),
        "two": ([1, 2], 1.5, 1.5, math.sqrt(0.5), (1, 2), (1.25, 1.75)),
        "in any order": ([5, 1, 3], 3, 3, 2, (1, 5), (2, 4)),
        "half scores": ([2.5, 4.5, 1, 4], 3, 3.25, math.sqrt(7.5 / 3), (1, 4.5), (2.125, 4.125)),
        "all the same": ([0.1] * 3, 0.1, 0.1, 0, (0.1, 0.1), (0.1, 0.1)),
    },
)
def test_values_described(
    values: list[float],
    mean: float,
    median: float,
    std: float | None,
    extremes: tuple[float, float],
    quartiles: tuple[float, float],
) -> None:
    figures = {"mean": mean, "median": median, "std": std, "min": extremes[0]}
    figures |= {"q1": quartiles[0], "q3": quartiles[1], "max": extremes[1]}
    assert evaluation.described(values) == pytest.approx(figures, abs=1e-12)


def test_of_no_values_nothing_is_described() -> None:
    assert evaluation.described([]) == NOTHING


@given(st.lists(st.integers(2, 10).map(lambda half: half / 2), min_size=2, max_size=40))
@repeatable
def test_values_are_described_as_by_numpy(values: list[float]) -> None:
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    expected = {"mean": np.mean(values), "median": median, "std": np.std(values, ddof=1), "min": min(values)}
    expected |= {"q1": q1, "q3": q3, "max": max(values)}
    found = evaluation.described(values)
    assert found == pytest.approx(expected, abs=1e-12)
    assert list(found) == list(NOTHING)
    assert (found["median"], found["std"]) == (statistics.median(values), statistics.stdev(values))


# ------------------------------------------------------------------------------------------ what else is kept
def test_nothing_but_numpy_itself_is_imported() -> None:
    code = """
import sys, numpy, evaluation
before = set(sys.modules)
evaluation.bootstrap_interval([1.0, 0.5, 0.0] * 5)
evaluation.paired_tests([[1.0, 0.5, 0.0] * 5, [0.5] * 15])
print(sorted(name for name in set(sys.modules) - before if name.startswith("numpy")))
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------ simulations
# Each document has an effect of its own, half of the variance: the questions on it stand or fall together.
# Seeds are fixed, so a test gives the same figure each time. With 2,000 runs a coverage of 95 % is found to
# within 1 % (two standard errors), one of 50 % to within 2.2 %.
SIXTY = [2, 3, 4] * 20
THIRTEEN_OF_24 = [1] * 5 + [2] * 5 + [3] * 3
RUNS = 2_000


def documents(sizes: Sequence[int]) -> Array:
    return np.repeat(np.arange(len(sizes)), sizes)


def effects(random: np.random.Generator, sizes: Sequence[int], *shape: int) -> Array:
    """Standard normal values whose correlation within a document is 1/2."""
    shared = random.standard_normal((*shape, len(sizes)))[..., documents(sizes)]
    return math.sqrt(0.5) * (shared + random.standard_normal((*shape, sum(sizes))))


def scores(random: np.random.Generator, sizes: Sequence[int]) -> tuple[Array, float]:
    """Rubric scores, more 4 and 5 than 1 and 2, and the mean they are drawn from."""
    steps = (-1.5, -0.8, -0.2, 0.6)
    latent = effects(random, sizes, RUNS)
    return 1.0 + sum(latent > step for step in steps), 1 + sum(1 - NORMAL.cdf(step) for step in steps)


def hits(share: float) -> Callable[[np.random.Generator, Sequence[int]], tuple[Array, float]]:
    """Hits and misses, with the share of hits beta distributed over documents: a correlation of 1/2."""

    def drawn(random: np.random.Generator, sizes: Sequence[int]) -> tuple[Array, float]:
        shares = random.beta(share, 1 - share, (RUNS, len(sizes)))[:, documents(sizes)]
        return (random.random(shares.shape) < shares).astype(float), share

    return drawn


MODELS: Mapping[str, Callable[[np.random.Generator, Sequence[int]], tuple[Array, float]]] = {
    "normal": lambda random, sizes: (effects(random, sizes, RUNS), 0.0),
    "scores": scores,
    "hits": hits(0.7),
}


def coverage(values: Array, truth: float, clusters: Sequence[int] | None, resamples: int) -> float:
    """The share of rows whose interval holds the truth; some rows at a time, as memory allows."""
    covered = 0
    for start in range(0, len(values), 250):
        found = evaluation.bootstrap_intervals(
            list(values[start : start + 250]), clusters, resamples=resamples
        )
        covered += sum(interval is not None and interval[0] <= truth <= interval[1] for interval in found)
    return covered / len(values)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("sizes", "least", "most"), [(SIXTY, 0.93, 0.97), (THIRTEEN_OF_24, 0.92, 1)], ids=["60", "13"]
)
def test_intervals_cover_when_documents_differ(
    model: str, sizes: list[int], least: float, most: float
) -> None:
    values, truth = MODELS[model](some(len(sizes)), sizes)
    clusters = documents(sizes).tolist()
    assert least <= coverage(values, truth, clusters, 4_000) <= most
    assert coverage(values[:1_000], truth, None, 1_000) < least


def test_what_is_nearly_always_right_is_covered_less_in_few_documents() -> None:
    values, truth = hits(0.9)(some(1), THIRTEEN_OF_24)
    clusters = documents(THIRTEEN_OF_24).tolist()
    assert 0.8 < coverage(values, truth, clusters, 4_000) < 0.9  # one run in seven has no miss in it at all


def discoveries(
    sizes: Sequence[int], clusters: Sequence[int] | None, runs: int, resamples: int, lead: float = 0
) -> float:
    """The share of runs in which at least one of three pairs of systems is told apart after Holm."""
    random = some(len(sizes))
    systems = effects(random, sizes, 1, runs) + effects(random, sizes, 3, runs)  # some questions are harder
    systems[0] += lead
    columns = [systems[i] - systems[j] for i, j in itertools.combinations(range(3), 2)]
    found = [evaluation.paired_tests(list(column), clusters, resamples=resamples) for column in columns]
    return sum(min(evaluation.holm(p_values)) <= 0.05 for p_values in zip(*found, strict=True)) / runs


@pytest.mark.parametrize(
    ("sizes", "resamples"), [(SIXTY, 2_000), (THIRTEEN_OF_24, 2**13)], ids=["60", "13, exact"]
)
def test_equal_systems_are_rarely_told_apart(sizes: list[int], resamples: int) -> None:
    clusters = documents(sizes).tolist()
    told_apart = discoveries(sizes, clusters, 6_000, resamples)  # to within 0.6 %
    assert 0.03 < told_apart <= 0.05
    assert discoveries(sizes, None, 1_000, 1_000) > 0.1
    assert discoveries(sizes, clusters, 300, resamples, lead=1.5) > 0.9


@pytest.mark.parametrize(
    ("sizes", "labels", "least"), [(SIXTY, 60, 0.93), (THIRTEEN_OF_24, 12, 0.92)], ids=["60", "13"]
)
def test_corrected_means_cover_when_the_judge_is_biased(sizes: list[int], labels: int, least: float) -> None:
    random, clusters, runs = some(len(sizes)), documents(sizes).tolist(), 1_500
    people = effects(random, sizes, runs)
    judge = 0.8 * people + 0.7 + 0.5 * effects(random, sizes, runs)
    unlabelled = random.random(people.shape).argsort(axis=1) >= labels
    human = np.where(unlabelled, None, people)
    rows = zip(judge.tolist(), human.tolist(), strict=True)
    found = [evaluation.corrected_mean(*row, clusters)[1:] for row in rows]
    intervals = [(low, high) for low, high in found if low is not None and high is not None]
    assert len(intervals) > 0.99 * runs
    assert least <= sum(low <= 0 <= high for low, high in intervals) / len(intervals) <= 0.97
    assert coverage(judge[:200], 0.0, clusters, 1_000) < 0.5
