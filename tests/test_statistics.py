"""Intervals, tests and agreement: by hand, and compared with other implementations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import evaluation
import numpy as np
import pytest
from scipy import stats

from conftest import grade_numbers, mean_interval, reference_numbers, reject_stepwise, table

Row = dict[str, Any]


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@table(
    "values, clusters, expected",
    {
        "four values": ([1, 2, 3, 4], None, None),
        "four clusters": ([1, 2, 3, 4, 5, 6], "aabbcd", None),
        "five equal values": ([2.25] * 5, None, (2.25, 2.25)),
        "five clusters with the same mean": ([3, 2, 3, 2, 2.5, 2.5, 2.5, 3, 2], "aabbcdeff", (2.5, 2.5)),
    },
)
def test_interval_of_numbers(values: list[float], clusters: str | None, expected: Any) -> None:
    assert mean_interval(values, clusters) == expected


@table(
    "hits, clusters, low, high",
    {
        # 5 + 1.9207 of 8.8415 hits: 0.78276; on both sides t(4) = 2.77645 times
        # sqrt(1.9207 * (0.78276^2 + 0.21724^2)) / 8.8415
        "all of 5": ([1] * 5, None, 0.429218, 1),
        "all of 40": ([1] * 40, None, 0.894986, 1),
        "none of 40": ([0] * 40, None, 0, 0.105014),
        # all of a document are alike: each of the added ones counts twice, and varies as two alike
        "ten pairs, half of them": ([1, 0] * 10, [*range(10), *range(10)], 0.184013, 0.815987),
        "twelve in six documents": ([1, 1] * 3 + [0, 0] * 3, "aabbccddeeff", 0.066035, 0.933965),
        # each document has one hit of two, less than chance lets vary: as if the answers were independent
        "one of two everywhere": ([1, 0] * 6, "aabbccddeeff", 0.340979, 0.659021),
        "all equal, twelve in six documents": ([1] * 12, "aabbccddeeff", 0.505042, 1),
        "four documents": ([1, 0] * 4, "aabbccdd", None, None),
    },
)
def test_interval_of_hits(hits: list[int], clusters: Any, low: float | None, high: float | None) -> None:
    """Agresti and Coull's, with t in place of z."""
    interval = mean_interval(hits, clusters)
    assert interval == (None if low is None else pytest.approx((low, high), abs=3e-4))


def test_interval_of_hits_is_near_statsmodels() -> None:
    hits = [int(place % 3 > 0) for place in range(600)]
    expected = reference_numbers("agresti_coull_400_of_600")
    assert mean_interval(hits, range(600)) == pytest.approx(tuple(expected), abs=2e-4)


@table(
    "scores, lowest, highest",
    {
        "thirty equal levels": ([3] * 30, 1, 5),
        "thirty fives": ([5] * 30, 1, 5),
        "no points at all": ([0] * 30, 0, 5),
        "one other than thirty": ([3] * 29 + [4], 1, 5),
    },
)
def test_no_interval_of_a_mean_has_no_width(scores: list[int], lowest: int, highest: int) -> None:
    width = highest - lowest
    shares = [(score - lowest) / width for score in scores]
    low, high = mean_interval(shares)
    assert 0 <= low <= sum(shares) / len(shares) <= high <= 1
    assert 0.1 < (high - low) * width < 0.7


def test_an_interval_does_not_jump_if_one_score_changes() -> None:
    """From all hits to all but one, and from equal scores to scores that are nearly equal."""
    ends = [mean_interval([1 - step / 100] + [1] * 39) for step in (0, 1, 10, 50, 100)]
    assert all(abs(before[0] - after[0]) < 0.04 for before, after in itertools.pairwise(ends))
    equal = mean_interval([0.5] * 40)
    nearly = mean_interval([0.5] * 39 + [0.5001])
    assert nearly == pytest.approx(equal, abs=0.002)


@pytest.mark.parametrize("icc", [0, 1])
def test_interval_of_scores_that_are_far_from_an_edge_is_that_of_students_t(icc: int) -> None:
    """Of 200 documents with five scores each the added ones hardly matter; errors are clustered."""
    documents = np.repeat(np.arange(200), 5)
    noise = generator(5).uniform(-0.2, 0.2, (2, 1000))
    scores = 0.5 + (noise[0][documents] if icc else noise[1])
    means = scores.reshape(200, 5).mean(axis=1)
    margin = stats.t.ppf(0.975, 199) * means.std(ddof=1) / math.sqrt(200)
    low, high = mean_interval(scores.tolist(), documents.tolist())
    assert (low, high) == pytest.approx((scores.mean() - margin, scores.mean() + margin), abs=0.06 * margin)


def test_interval_of_equal_scores_of_ten_thousand_questions() -> None:
    """One document in two has half of the questions: the interval knows that they are no independent ones."""
    documents = [place % 5_000 if place % 2 else 0 for place in range(10_000)]
    assert mean_interval([1] * 10_000)[0] == pytest.approx(0.9996, abs=1e-4)
    assert mean_interval([1] * 10_000, documents)[0] < 0.5


@table(
    "gaps, clusters, expected",
    {
        # 24 documents and one up, one down: typical 1; t(25) = 2.05954 * sqrt(2 * 26 / 25) / 26
        "nothing changed": ([0] * 24, None, (-0.114244, 0.114244)),
        # center 3 / 62, sum of squares 5 - 62 * (3 / 62)^2; t(61) = 1.99962
        "three of sixty are better": ([1] * 3 + [0] * 57, None, (-0.023290, 0.120065)),
        # sums of documents: five of 2 and one of 0; typical 2, size 2
        "five of six documents": ([1] * 10 + [0] * 2, "aabbccddeeff", (0.002980, 1)),
        "four documents": ([1, 0] * 4, "aabbccdd", None),
    },
)
def test_interval_of_differences(gaps: list[int], clusters: Any, expected: Any) -> None:
    """One document up and one down are added, each of the size of a typical change (Bonett & Price 2012)."""
    graded = grade_numbers(clusters, better=gaps, worse=[0] * len(gaps))
    [interval] = [row["ci95"] for row in graded["better"]["comparison"] if row["measure"] == "exact"]
    assert interval == (None if expected is None else pytest.approx(expected, abs=3e-4))


def expanded_tail(clusters: int) -> float:
    """Return the tail of the expanded percentile interval, from scipy's quantiles."""
    t = stats.t.ppf(0.975, clusters - 1)
    return float(stats.norm.cdf(-math.sqrt(clusters / (clusters - 1)) * t))


@pytest.mark.parametrize("sizes", [[1] * 40, [1, 4, 2, 3] * 5, [3] * 8])
def test_interval_equals_scipys_with_expanded_percentiles(sizes: list[int]) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = generator(1).random(len(clusters)) + generator(2).random(len(sizes))[clusters]
    expected = stats.bootstrap(
        (np.bincount(clusters, values), np.array(sizes, float)),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        method="percentile",
        n_resamples=10_000,
        confidence_level=1 - 2 * expanded_tail(len(sizes)),
        rng=generator(3),
    ).confidence_interval
    interval = mean_interval(values.tolist(), [f"{cluster:02}" for cluster in clusters])
    assert interval == pytest.approx(tuple(expected), abs=0.08 * (expected.high - expected.low))


FORTY = [float(place * 7 % 11) for place in range(40)]
THIRTEEN = [place % 13 for place in range(40)]
NAMES = [f"document {number:02}" for number in THIRTEEN]


def test_same_input_gives_the_same_bytes_everywhere() -> None:
    assert mean_interval(FORTY, NAMES) == (4.357142857143, 5.745497848774)
    assert compute_p_values([[value - 6 for value in FORTY]])[0] == 811 / 10_001


@table(
    "clusters",
    {
        "names": NAMES,
        "large numbers": np.array([10**9 * number for number in THIRTEEN]),
        "negative numbers": np.array([number - 13 for number in THIRTEEN]),
        "names and numbers": [f"d{number}" if number < 10 else (number,) for number in THIRTEEN],
    },
)
def test_cluster_labels_may_be_anything_that_has_the_same_order(clusters: Any) -> None:
    assert evaluation.make_sample(FORTY, clusters).clusters.tolist() == THIRTEEN


def test_figures_do_not_depend_on_the_order_of_the_items() -> None:
    """Clusters are drawn in the order of their labels."""
    order = generator(7).permutation(40).tolist()
    values = [FORTY[place] for place in order]
    names = [NAMES[place] for place in order]
    assert mean_interval(values, names) == mean_interval(FORTY, NAMES)
    gaps = [[value - 6 for value in column] for column in (values, FORTY)]
    assert compute_p_values(gaps[:1], names)[0] == compute_p_values(gaps[1:], NAMES)[0]


def test_different_lengths_are_an_error() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        evaluation.make_sample([1.0] * 6, "abcde")
    with pytest.raises(ValueError, match=r"is shorter than argument 1$"):
        evaluation.krippendorff_alpha([[1, 2], [1]])


@table(
    "a, b, clusters, p",
    {
        "nothing": ([], [], None, 1),
        "the same": ([1, 2, 3], [1, 2, 3], None, 1),
        "four of four": ([2, 3, 4, 5], [1, 1, 1, 1], None, 2 / 16),
        "three of four": ([1, 1, 1, 0], [0, 0, 0, 1], None, 10 / 16),
        "ten in one cluster": ([1] * 10, [0] * 10, [0] * 10, 1),
        "six in two clusters": ([1] * 6, [0] * 6, "aaabbb", 1 / 2),
        "clusters in turns": ([1] * 6, [0] * 6, "abcabc", 1 / 4),
        "a cluster without difference": ([1, 1, 1, 0], [0, 0, 0, 1], "abcc", 1 / 2),
        "ties except for rounding": ([0.1, 0.2, 0, 0.4], [0, 0, 0.3, 0], None, 10 / 16),
    },
)
def test_paired_test(a: list[float], b: list[float], clusters: Sequence[Any] | None, p: float) -> None:
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    assert compute_p_values([gaps, [-gap for gap in gaps]], clusters)[0].tolist() == [p, p]


@table(
    "a, b, p",
    {
        "nothing": ([], [], 1),
        "the same": ([1, 2], [1, 2], 1),
        "all six fell": ([0] * 6, [1] * 6, 1 / 64),
        "all six rose": ([1] * 6, [0] * 6, 1),
        "three of four fell": ([0, 0, 0, 1], [1, 1, 1, 0], 5 / 16),
    },
)
def test_one_sided_paired_test(a: list[float], b: list[float], p: float) -> None:
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    assert compute_p_values([gaps], is_one_sided=True)[0].tolist() == [p]


FOUR, SIX = [1.0] * 4, [1.0] * 6
FAMILIES: dict[
    str, tuple[list[list[float]], list[int], list[int], list[int]]
] = {  # samples of a cluster for each value, p, adjusted p, stepwise adjusted p: of 16 or 64 flips
    "one": ([FOUR], [2], [2], [2]),
    "the same twice": ([FOUR, FOUR], [2, 2], [2, 2], [2, 2]),
    "one that is 0 does not count": ([FOUR, [0.0] * 4], [2, 16], [2, 16], [2, 16]),
    # z is 2 and sqrt(2): the second has it in the 8 flips with two equal signs, the first in 2 of these
    "one within the other": ([FOUR, [1, 1, 0, 0]], [2, 8], [2, 8], [2, 8]),
    # sqrt(2) in 8 flips each, 4 of them in common
    "apart": ([[0, 0, 1, 1], [1, 1, 0, 0]], [8, 8], [12, 12], [12, 12]),
    # z is sqrt(6) in 2 flips each. At least 4 / sqrt(6) has each in 14 flips, 4 of them in common: 24
    # have it in one of both, and 14 if the first one is rejected.
    "a step": ([SIX, [1, 1, 1, 1, 1, -1]], [2, 14], [4, 24], [4, 14]),
    # z is 1.41 and 1.39, the second in 4 flips, which is less than the step before has
    "no p below that of a step before": ([[1, 1, 0, 0], [1, 1, 1, -0.5]], [8, 4], [8, 8], [8, 8]),
}


def compute_p_values(columns: Sequence[Sequence[float]], clusters: Any = None, **options: Any) -> Any:
    samples = [evaluation.make_sample(column, clusters) for column in columns]
    return evaluation.compute_p_values(samples, **options)


@table("columns, alone, adjusted, stepwise", FAMILIES)
def test_families_by_hand(columns: Any, alone: list[int], adjusted: list[int], stepwise: list[int]) -> None:
    n_flips = 2 ** len(columns[0])
    for is_stepwise, expected in ((False, adjusted), (True, stepwise)):
        p, p_adjusted = compute_p_values(columns, is_stepwise=is_stepwise)
        assert (p * n_flips).tolist() == alone
        assert (p_adjusted * n_flips).tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_stepwise_rejects_what_is_rejected_in_repetitions(seed: int) -> None:
    random = generator(seed)
    sums = random.integers(-2, 4, (12, 8)) + random.normal(0, 0.1, (12, 8)) * (seed % 2)
    _, p_adjusted = compute_p_values(sums.tolist(), is_stepwise=True)
    assert len(set(p_adjusted)) > 2
    for level in (0.02, 0.05, 0.1, 0.3, 0.5):
        assert (p_adjusted <= level).tolist() == reject_stepwise(sums, level).tolist()


def test_the_order_of_a_large_family_does_not_matter() -> None:
    sums = generator(1).integers(-1, 4, (450, 7)).astype(float)
    _, p_adjusted = compute_p_values(sums.tolist(), is_stepwise=True)
    for level in (0.05, 0.2, 0.5):
        assert (p_adjusted <= level).tolist() == reject_stepwise(sums, level).tolist()
    _, turned = compute_p_values(sums[::-1].tolist(), is_stepwise=True)
    assert turned[::-1].tolist() == p_adjusted.tolist()


def test_a_family_of_random_flips_is_that_of_its_samples() -> None:
    """Of 60 clusters: p is that of each sample alone, and the adjusted p of two that are alike, too."""
    gaps = generator(2).normal(0.1, 1, (3, 60)).tolist()
    p, p_adjusted = compute_p_values(gaps, is_one_sided=True)
    alone = [float(compute_p_values([column], is_one_sided=True)[0][0]) for column in gaps]
    assert p.tolist() == alone
    assert (p_adjusted >= p).all()
    _, doubled = compute_p_values([gaps[0], [2 * gap for gap in gaps[0]]], is_one_sided=True)
    assert doubled.tolist() == [alone[0], alone[0]]


@table(
    "clusters, flips, hits",
    {"all": (13, 2**13, [2]), "not all": (14, 10_001, range(1, 9)), "many clusters": (20_000, 10_001, [1])},
)
def test_number_of_sign_flips(clusters: int, flips: int, hits: Collection[int]) -> None:
    assert compute_p_values([[1.0] * clusters])[0] in [hit / flips for hit in hits]


FOUR_RATERS = [  # the example of Krippendorff 2011
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


@table(
    "ratings, level, alpha",
    {
        "no items": ([[], []], "ordinal", None),
        "no item rated twice": ([[1, None, 3], [None, 2, None]], "nominal", None),
        "one value, except for items rated once": ([[3, 3, 5], [3, 3, None]], "ordinal", None),
        "the same": ([[1, 2, 5], [1, 2, 5]], "ordinal", 1),
        "always different": ([[1, 2], [2, 1]], "nominal", -0.5),
        "published, nominal": (FOUR_RATERS, "nominal", 0.743),
        "published, ordinal": (FOUR_RATERS, "ordinal", 0.815),
        "published, interval": (FOUR_RATERS, "interval", 0.849),
    },
)
def test_krippendorff_alpha(ratings: list[list[Any]], level: str, alpha: float | None) -> None:
    assert evaluation.krippendorff_alpha(ratings, level) == pytest.approx(alpha, abs=5e-4)


def test_nan_is_no_rating() -> None:
    with pytest.raises(ValueError, match="NaN is no value"):
        evaluation.krippendorff_alpha([[1, math.nan], [1, 2]])


@pytest.mark.parametrize("row", reference_numbers("krippendorff_alpha"))
def test_alpha_equals_that_of_the_krippendorff_package(row: Row) -> None:
    for level in ("nominal", "ordinal", "interval"):
        assert evaluation.krippendorff_alpha(row["ratings"], level) == pytest.approx(row[level], abs=1e-12)
