# /// script
# requires-python = ">=3.11"
# dependencies = ["krippendorff==0.9.0", "numpy", "scikit-learn==1.9.1", "statsmodels==0.15.0"]
# ///
"""Write reference_numbers.json: what other packages calculate, for tests to compare with.

The tests need the numbers, not the packages, which have 200 MB. To make them again, install the packages
that are named above, and run: python tests/make_reference_numbers.py
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa
from statsmodels.stats.proportion import proportion_confint

FILE = Path(__file__).with_name("reference_numbers.json")
LEVELS = [1, 2, 3, 4, 5]

Row = dict[str, Any]


def make_kappas() -> list[Row]:
    """Weighted kappas of two raters who never agree on a 3, which lies between 2 and 4."""
    rows = []
    for seed in range(3):
        a = np.random.default_rng(seed).choice([1, 2, 4, 5], 30)
        b = np.clip(a + np.random.default_rng(seed + 9).integers(-1, 2, 30), 1, 5)
        row: Row = {"a": a.tolist(), "b": b.tolist()}
        row["quadratic"] = float(cohen_kappa_score(a, b, labels=LEVELS, weights="quadratic"))
        rows.append(row)
    return rows


def make_alphas() -> list[Row]:
    """Alphas of four raters who rate about 60 % of the items."""
    rows = []
    for seed in range(3):
        truth = np.random.default_rng(seed).integers(1, 6, 25)
        noise = np.random.default_rng(seed + 9).integers(-1, 2, (4, 25))
        ratings = np.clip(truth + noise, 1, 5).astype(float)
        ratings[np.random.default_rng(seed + 99).random((4, 25)) < 0.4] = np.nan
        row: Row = {"ratings": replace_gaps(ratings)}
        for level in ("nominal", "ordinal", "interval"):
            row[level] = float(krippendorff.alpha(ratings, level_of_measurement=level))
        rows.append(row)
    return rows


def replace_gaps(ratings: Any) -> list[list[int | None]]:
    return [[None if np.isnan(rating) else int(rating) for rating in row] for row in ratings]


def make_coefficients() -> dict[str, Row]:
    """Three judges with gaps: kappa of each pair, Fleiss' kappa of the complete items, alpha of all."""
    rows = {}
    for kind, choices in (("correct", [0, 1]), ("score", LEVELS)):
        ratings = np.random.default_rng(0).choice([*choices, np.nan], (3, 40))
        weights = "quadratic" if kind == "score" else None
        level: Any = "ordinal" if kind == "score" else "nominal"
        kappas = []
        for pair in itertools.combinations(ratings, 2):
            a, b = np.array(pair)[:, ~np.isnan(pair).any(axis=0)].astype(int)
            kappas.append(float(cohen_kappa_score(a, b, labels=choices, weights=weights)))
        complete = ratings[:, ~np.isnan(ratings).any(axis=0)].astype(int)
        rows[kind] = {
            "judges": replace_gaps(ratings),
            "kappas": kappas,
            "fleiss_kappa": float(fleiss_kappa(aggregate_raters(complete.T)[0])),
            "krippendorff_alpha": float(krippendorff.alpha(ratings, level_of_measurement=level)),
        }
    return rows


def main() -> None:
    share = proportion_confint(400, 600, method="agresti_coull")
    numbers = {
        "cohen_kappa": make_kappas(),
        "krippendorff_alpha": make_alphas(),
        "agreement": make_coefficients(),
        "agresti_coull_400_of_600": [float(end) for end in share],
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in numbers.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
