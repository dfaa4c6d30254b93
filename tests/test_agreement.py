"""Agreement between judges, and with people: the statistics, what is matched, and the command."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import statistics
from html.parser import HTMLParser
from typing import Any

import evaluation
import krippendorff
import numpy as np
import pytest
from evaluation import InputError, Problem
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import aggregate_raters
from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_fleiss

from conftest import Outcome, Project

FLEISS_1971 = [  # as it is told of in textbooks: 10 subjects, 14 raters, 5 categories
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]
RELIABILITY_DATA = [  # Krippendorff 2011: four observers, twelve units; 0 stands for a gap
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]
HOSTILE = "<script>alert(1)</script>|=cmd()\n# head\x1b[31m"


def row(name: object, correct: object = "yes", **more: Any) -> dict[str, Any]:
    """One row of an answers result."""
    about = {"input": f"Q{name}?", "gold": f"g{name}", "prediction": f"p{name}", "correct": correct}
    return {**about, "reasoning": f"why {name}", "decision_method": "llm", **more}


def answers(*verdicts: object, model: str | None = None) -> dict[str, Any]:
    """An answers result with these decisions on items 0, 1, 2, ...; ... has no row."""
    rows = [row(place, value) for place, value in enumerate(verdicts) if value is not ...]
    return {"judge_model": model, "detailed_results": rows}


def scores(*values: object, key: str = "score") -> list[dict[str, Any]]:
    return [{"input": f"Q{place}?", "prediction": "p", key: value} for place, value in enumerate(values)]


def split_results(**systems: list[Any]) -> dict[str, Any]:
    """A split's results with these scores of q0, q1, ...; None for one that failed."""
    return {
        name: {
            "retrieval": {},
            "llm_judge": {
                "judge_model": "big/model",
                "per_question": [
                    {
                        "question_id": f"q{place}",
                        "answer_score_raw": score or 0,
                        "answer_rationale": "because",
                        "failure": "lost" if score is None else None,
                    }
                    for place, score in enumerate(values)
                ],
            },
        }
        for name, values in systems.items()
    }


def agree(project: Project, *arguments: str) -> tuple[Outcome, Any]:
    """What the command left behind, and its results file (None if none)."""
    outcome = project.run("agreement", *arguments)
    path = project.folder / "agreement.json"
    return outcome, json.loads(path.read_bytes()) if path.exists() else None


def compared(project: Project, *files: object, options: tuple[str, ...] = ()) -> Any:
    """The results for judges a, b, c, ... whose files hold this."""
    names = [f"{letter}.json" for letter, _ in zip("abcdefgh", files, strict=False)]
    for name, content in zip(names, files, strict=True):
        project.write(name, content)
    outcome, results = agree(project, *names, *options)
    assert (outcome.code, outcome.err) == (0, [])
    return results


# -- The statistics.


def test_fleiss_kappa_is_that_of_the_textbook() -> None:
    assert evaluation.fleiss_kappa(FLEISS_1971) == pytest.approx(0.210, abs=5e-4)
    assert evaluation.fleiss_kappa(FLEISS_1971) == pytest.approx(statsmodels_fleiss(FLEISS_1971), abs=1e-12)
    assert evaluation.fleiss_kappa(np.array(FLEISS_1971)) == evaluation.fleiss_kappa(FLEISS_1971)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "counts",
    [[], [[]], [[1, 0], [0, 1]], [[3, 0], [3, 0]], [[0, 0]]],
    ids=["no", "empty", "one", "same", "0"],
)
def test_fleiss_kappa_is_none_where_it_is_undefined(counts: list[list[int]]) -> None:
    assert evaluation.fleiss_kappa(counts) is None


def test_fleiss_kappa_needs_as_many_raters_everywhere() -> None:
    with pytest.raises(ValueError, match="differ in how many raters"):
        evaluation.fleiss_kappa([[2, 0], [3, 0]])


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_the_reliability_data(level: str, alpha: float) -> None:
    gaps = [[value or None for value in ratings] for ratings in RELIABILITY_DATA]
    assert evaluation.krippendorff_alpha(gaps, level) == pytest.approx(alpha, abs=5e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["correct", "score"])
def test_the_figures_are_those_of_other_packages(project: Project, kind: str, seed: int) -> None:
    """Three judges and gaps: each pair's kappa, Fleiss' kappa of the full items, alpha of all."""
    randomly = random.Random(seed)
    choices: list[Any] = [0, 1, None] if kind == "correct" else [1, 2, 3, 4, 5, None]
    table = [[randomly.choice(choices) for _ in range(40)] for _ in range(3)]
    results = compared(project, *(scores(*ratings, key=kind) for ratings in table))
    block = results["all"]
    for found, (a, b) in zip(block["pairs"], ((0, 1), (0, 2), (1, 2)), strict=True):
        both = [(x, y) for x, y in zip(table[a], table[b], strict=True) if x is not None and y is not None]
        ones, others = zip(*both, strict=True)
        weights = "quadratic" if kind == "score" else None
        kappa = cohen_kappa_score(ones, others, labels=choices[:-1], weights=weights)
        assert found["kappa"] == pytest.approx(kappa, abs=1e-9)
        assert found["items"] == len(both)
        assert found["agreement"] == pytest.approx(statistics.mean(x == y for x, y in both))
        low, high = found["ci95"]["kappa"]
        assert -1 <= low < kappa < high <= 1
    full = [ratings for ratings in zip(*table, strict=True) if None not in ratings]
    assert block["items_of_all"] == len(full)
    fleiss = statsmodels_fleiss(aggregate_raters(np.array(full))[0])
    assert block["fleiss_kappa"] == pytest.approx(fleiss, abs=1e-9)
    gaps = [[np.nan if value is None else value for value in ratings] for ratings in table]
    level = "ordinal" if kind == "score" else "nominal"
    alpha = krippendorff.alpha(reliability_data=gaps, level_of_measurement=level)
    assert block["krippendorff_alpha"] == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize("values", [(0, 1), (1, 2, 3, 4, 5), (1.5, 2.25, 1e6)])
def test_the_interval_is_that_of_the_kappas_of_resamples(values: tuple[float, ...]) -> None:
    randomly = random.Random(3)
    a, b = ([randomly.choice(values) for _ in range(12)] for _ in range(2))
    drawn = evaluation._resample_weights(12, 300, 0)
    kappas = []
    for weights in drawn:
        places = np.repeat(np.arange(12), weights)
        kappa = evaluation.cohen_kappa([a[i] for i in places], [b[i] for i in places], "quadratic")
        kappas += [] if kappa is None else [kappa]
    [expected] = evaluation._percentiles(np.array(kappas).reshape(-1, 1), 12, 0.95)
    assert evaluation.kappa_interval(a, b, resamples=300) == pytest.approx(expected, abs=1e-9)


def test_intervals_that_there_are_not() -> None:
    assert evaluation.kappa_interval([], []) is None
    assert evaluation.kappa_interval([0, 1, 0, 1], [0, 1, 0, 1]) is None
    assert evaluation.kappa_interval([3] * 9, [3] * 9) is None
    assert evaluation.kappa_interval([0.1] * 9, [0.1] * 9) is None
    with pytest.raises(ValueError, match="zip"):
        evaluation.kappa_interval([1, 2], [1])


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Raters who are right in nine of ten cases each have kappa 0.64; one test in a few hundred draws."""
    hits, noise = 0, np.random.default_rng(5)
    for _ in range(100):
        truth = noise.integers(0, 2, 60)
        a, b = (np.where(noise.random(60) < 0.9, truth, 1 - truth).tolist() for _ in range(2))
        low, high = evaluation.kappa_interval(a, b, resamples=500) or (math.nan, math.nan)
        hits += low <= 0.64 <= high
    assert hits / 100 == pytest.approx(0.95, abs=0.04)


# -- What is compared.


def test_items_are_matched_by_input_gold_and_prediction(project: Project) -> None:
    others = [row(0), row(1, gold="another"), row(2, prediction="another"), row(3, input="another")]
    results = compared(project, answers("yes", "yes", "yes", "yes"), {"detailed_results": others[::-1]})
    [pair] = results["all"]["pairs"]
    assert (pair["items"], results["all"]["items"], results["all"]["items_of_several"]) == (1, 7, 1)


def test_what_one_file_has_twice_is_two_items(project: Project) -> None:
    twice = {"detailed_results": [row(0, "yes"), row(0, "no")]}
    [pair] = compared(project, twice, twice)["all"]["pairs"]
    assert (pair["items"], pair["agreement"], pair["kappa"]) == (2, 1.0, 1.0)


@pytest.mark.parametrize("method", ["exact", "semantic", "no_llm"])
def test_what_no_judge_decided_is_left_out_unless_asked_for(project: Project, method: str) -> None:
    files = [answers("yes", "no", "yes"), answers("yes", "no", "no")]
    for content in files:
        content["detailed_results"][0]["decision_method"] = method
    results = compared(project, *files)
    assert results["all"]["pairs"][0]["items"] == 2
    assert [judge["left_out"] for judge in results["judges"]] == [1, 1]
    kept = compared(project, *files, options=("--all-decisions",))
    assert kept["all"]["pairs"][0]["items"] == 3
    assert [judge["left_out"] for judge in kept["judges"]] == [0, 0]


def test_blank_answers_of_a_split_are_left_out_and_failures_are_undecided(project: Project) -> None:
    files = [split_results(strong=[3, None, 1, 4]), split_results(strong=[4, 2, 1, 5])]
    for content in files:
        content["strong"]["llm_judge"]["per_question"][2]["answer_rationale"] = "No answer was given."
    results = compared(project, *files)
    assert results["all"]["pairs"][0]["items"] == 2
    counts = [(one["decisions"], one["left_out"], one["undecided"]) for one in results["judges"]]
    assert counts == [(2, 1, 1), (3, 1, 0)]


def test_split_results_are_matched_by_system_and_question(project: Project) -> None:
    one = split_results(strong=[1, 5], simple=[2, 2], **{"odd?": [3]})
    other = split_results(simple=[2, 4], strong=[1, 3])
    results = compared(project, one, other)
    [pair] = results["all"]["pairs"]
    assert (pair["items"], pair["agreement"], pair["agreement_within_1"]) == (4, 0.5, 0.5)
    assert [judge["judge"] for judge in results["judges"]] == ["big/model", "big/model (2)"]
    widest = results["disagreements"][0]
    assert (widest["system"], widest["question_id"]) == ("strong", "q1")


def test_a_real_results_file_is_read(small: Project) -> None:
    judged = split_results(strong=[3, 4])
    assert small.run("dev").code == 0
    graded = json.loads((small.folder / "dev_evaluation.json").read_bytes())
    graded["strong"]["llm_judge"] = judged["strong"]["llm_judge"]
    results = compared(small, graded, split_results(strong=[3, 5]))
    assert results["all"]["pairs"][0]["items"] == 2


@pytest.mark.parametrize("yes", ["yes", "Yes ", True, "true", 1, 1.0, "1"])
@pytest.mark.parametrize("no", ["no", False, "False", 0, "0"])
def test_every_way_to_say_yes_and_no(project: Project, yes: object, no: object) -> None:
    persons = {"annotations": [row(0, yes), row(1, no), row(2, ""), row(3, None)]}
    results = compared(project, answers("yes", "no", "yes", "yes"), persons)
    assert results["all"]["pairs"][0]["kappa"] == 1.0
    assert results["judges"][1]["undecided"] == 2


def test_a_judge_has_the_name_of_its_model_or_of_its_file(project: Project) -> None:
    files = [answers("yes", model="m"), answers("no", model="m"), answers("no"), answers("yes", model=" ")]
    results = compared(project, *files)
    assert [judge["judge"] for judge in results["judges"]] == ["m", "m (2)", "c", "d"]


def test_a_folder_for_each_judge_and_a_file_for_each_source(project: Project) -> None:
    for judge, verdict in (("x", "yes"), ("y", "no")):
        project.write(f"evals/{judge}/bank.json", answers("yes", "no", "yes", model="ignored"))
        project.write(f"evals/{judge}/news.json", answers("yes", verdict))
        project.write(f"evals/{judge}/notes.txt", "no source")
    project.write("evals/readme.json", "no judge")
    outcome, results = agree(project, "--eval-dir", "evals")
    assert outcome.code == 0
    assert [judge["judge"] for judge in results["judges"]] == ["x", "y"]
    assert {name: block["items"] for name, block in results["sources"].items()} == {"bank": 3, "news": 2}
    assert [results["sources"][name]["pairs"][0]["agreement"] for name in ("bank", "news")] == [1.0, 0.5]
    assert results["all"]["pairs"][0]["items"] == 5
    assert [apart["source"] for apart in results["disagreements"]] == ["news"]
    assert "\nSOURCE: BANK\n" in outcome.out


def test_a_person_who_names_no_source_is_compared_at_each(project: Project) -> None:
    for judge in "xy":
        for source in ("bank", "news"):
            project.write(f"evals/{judge}/{source}.json", answers("yes", "no"))
    project.write("one.json", [row(0, "yes"), row(1, "no", source="news"), row(9, "no")])
    _, results = agree(project, "--eval-dir", "evals", "--human", "one.json")
    assert [judge["items"] for judge in results["people"]["judges"]] == [3, 3]
    assert (results["people"]["items"], results["people"]["items_without_judge"]) == (4, 1)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (answers("yes", "yes"), answers("yes", "yes"), "only one value was given"),
        (answers("yes", ..., ...), answers(..., "no", "yes"), "no item in common"),
        (scores(3, 3), scores(3, 3), "only one value was given"),
    ],
)
def test_a_kappa_that_cannot_be_defined_is_null_with_the_reason(
    project: Project, first: object, second: object, reason: str
) -> None:
    results = compared(project, first, second)
    [pair] = results["all"]["pairs"]
    assert (pair["kappa"], pair["kappa_reason"]) == (None, reason)
    assert (pair["ci95"]["kappa"], pair["ci95_reason"]) == (None, "fewer than 5 items")
    for figure in ("fleiss_kappa", "krippendorff_alpha"):
        assert (results["all"][figure], results["all"][f"{figure}_reason"]) == (None, reason)
    assert f"a - b: no kappa: {reason}" in agree(project, "a.json", "b.json")[0].out


def test_the_widest_disagreements_come_first(project: Project) -> None:
    files = [scores(1, 3, 4, 2, 5), scores(1, 1, 5, 2, 1), scores(1, 3, 5, 3, 5)]
    results = compared(project, *files, options=("--samples", "3"))
    assert results["items_apart"] == 4
    assert [apart["input"] for apart in results["disagreements"]] == ["Q4?", "Q1?", "Q2?"]
    assert results["disagreements"][0]["decisions"] == {"a": 5, "b": 1, "c": 5}


def test_of_verdicts_the_most_evenly_split_come_first(project: Project) -> None:
    files = [answers("yes", "yes"), answers("yes", "no"), answers("yes", "no"), answers("no", "yes")]
    results = compared(project, *files)
    assert [apart["input"] for apart in results["disagreements"]] == ["Q1?", "Q0?"]
    apart = results["disagreements"][0]
    assert apart["decisions"] == {"a": True, "b": False, "c": False, "d": True}
    assert set(apart["reasoning"].values()) == {"why 1"}


def test_on_a_scale_from_0_to_1_nothing_is_said_of_within_1(project: Project) -> None:
    [pair] = compared(project, scores(0.2, 0.4, 1.0), scores(0.2, 0.6, 0.8))["all"]["pairs"]
    assert "agreement_within_1" not in pair
    assert pair["agreement"] == pytest.approx(1 / 3)
    [pair] = compared(project, scores(11 / 3, 2), scores(8 / 3, 5))["all"]["pairs"]
    assert pair["agreement_within_1"] == 0.5  # a third more or less is still 1


# -- People.


def test_people_say_who_is_right_too_kind_or_too_strict(project: Project) -> None:
    files = [
        answers("yes", "yes", "no", "yes", "no", ...),
        answers("yes", "no", "no", "yes", "yes", ...),
        answers("yes", "yes", "no", "no", ..., "yes"),
    ]
    project.write("people.json", {"annotations": [row(n, n in (0, 3)) for n in range(7)]})
    results = compared(project, *files, options=("--human", "people.json"))
    people = results["people"]
    assert (people["items"], people["items_without_judge"]) == (7, 1)
    found = {one["judge"]: one for one in (*people["judges"], *people["votes"])}
    counted = {
        name: (one["items"], one["accuracy"], one["too_kind"], one["too_strict"])
        for name, one in found.items()
    }
    assert counted == {
        "a": (5, 0.8, 1, 0),
        "b": (5, 0.8, 1, 0),
        "c": (5, 0.4, 2, 1),
        "majority": (4, 0.75, 1, 0),  # item 4 is tied; item 5 has one judge, so there is no vote
        "unanimous": (2, 1.0, 0, 0),  # 0 and 2
    }
    assert [one["left_out"] for one in people["votes"]] == [1, 3]
    assert found["a"]["kappa"] == pytest.approx(cohen_kappa_score([1, 1, 0, 1, 0], [1, 0, 0, 1, 0]))


def test_people_who_score_say_by_how_much_at_each_level(project: Project) -> None:
    project.write("people.json", scores(1, 1, 4, 5))
    files = [scores(2, 3, 4, 4), scores(1, 1, 4, 5)]
    results = compared(project, *files, options=("--human", "people.json"))
    kind, right = results["people"]["judges"]
    assert kind["judge_minus_human_by_level"] == {"1": 1.5, "4": 0.0, "5": -1.0}
    assert (kind["accuracy"], kind["accuracy_within_1"]) == (0.25, 0.75)
    assert (kind["too_kind"], kind["too_strict"], right["accuracy"], right["kappa"]) == (2, 1, 1.0, 1.0)


def test_what_people_decided_counts_whatever_the_method(project: Project) -> None:
    project.write("people.json", [row(0, "yes", decision_method="exact"), row(1, "no")])
    files = [answers("yes", "no"), answers("yes", "no")]
    results = compared(project, *files, options=("--human", "people.json"))
    assert results["people"]["judges"][0]["items"] == 2


def test_a_pattern_that_names_people_too_does_not_make_them_a_judge(project: Project) -> None:
    for name in ("a", "b", "people"):
        project.write(f"{name}.json", answers("yes", "no"))
    outcome, results = agree(project, "*.json", "--human", "people.json")
    assert (outcome.code, [judge["judge"] for judge in results["judges"]]) == (0, ["a", "b"])


# -- The command.

CONSOLE = """
============================================================
AGREEMENT BETWEEN JUDGES
============================================================

Judge   Decisions  Left out  Undecided  Files
a               6         0          0  a.json
b               5         1          1  b.json
people          2         0          0  people.json
In brackets: 95 % intervals: bootstrap over items, where there are 5 or more. Kappa is Cohen's.

============================================================
ALL ITEMS
============================================================

Pair   Items          Agreement       Cohen's kappa
a - b      5  0.60 [0.00, 1.00]  0.17 [-0.92, 1.00]
Fleiss' kappa of the 5 items that all judged: 0.17
Krippendorff's alpha of the 5 items that several judged: 0.25

============================================================
BESIDE PEOPLE: PEOPLE
============================================================

Judge      Items  Too kind  Too strict  Accuracy  Cohen's kappa
a              2         0           0      1.00           1.00
b              2         1           0      0.50           0.00
majority       1         0           0      1.00            n/a
unanimous      1         0           0      1.00            n/a
Of 2 items 0 have no judge's decision.
Left out of the majority vote, being tied: 1
Left out of the unanimous vote, being not unanimous: 1
majority: no kappa: only one value was given
unanimous: no kappa: only one value was given

============================================================
DISAGREEMENTS: 1 OF 2, THE WIDEST FIRST
============================================================

input "Q1?", gold "g1", prediction "p1": a no, b yes

============================================================
Agreement saved to: agreement.json
============================================================
"""


def test_the_console_to_the_letter(project: Project) -> None:
    project.write("a.json", answers("yes", "no", "yes", "no", "yes", "yes"))
    rows = [*answers("yes", "yes", "yes", "no", "no")["detailed_results"], row(5, decision_method="exact")]
    project.write("b.json", {"detailed_results": [*rows, row(6, None)]})
    project.write("people.json", [row(0, 1), row(1, 0)])
    outcome, _ = agree(project, "a.json", "b.json", "--human", "people.json", "--samples", "1")
    assert (outcome.code, outcome.err) == (0, [])
    assert outcome.out == CONSOLE


def test_the_same_input_gives_the_same_bytes(project: Project) -> None:
    files = [answers(*random.Random(seed).choices(["yes", "no"], k=30)) for seed in range(3)]
    compared(project, *files, options=("--report", "md", "csv", "html"))
    names = [f"agreement.{suffix}" for suffix in ("json", "md", "csv", "html")]
    before = [(project.folder / name).read_bytes() for name in names]
    compared(project, *files, options=("--report", "md", "csv", "html"))
    assert [(project.folder / name).read_bytes() for name in names] == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.json",), "error: agreement is between two judges or more, found 1"),
        (("a.json", "./a.json"), "error: agreement is between two judges or more, found 1"),
        ((), "error: agreement is between two judges or more, found 0"),
        (
            ("a.json", "score.json"),
            "error: verdicts and scores cannot be compared: a gave verdicts, score scores",
        ),
        (("a.json", "b.json", "--out", "b.json"), "error: b.json is an input: name another file with --out"),
        (("a.json", "b.json", "--out", "no/x.json"), "error: no/x.json: No such file or directory; nothing "),
    ],
)
def test_what_cannot_be_done_is_said(project: Project, arguments: tuple[str, ...], said: str) -> None:
    project.write("a.json", answers("yes"))
    project.write("b.json", answers("yes"))
    project.write("score.json", scores(3))
    before = {path.name: path.read_bytes() for path in project.folder.iterdir()}
    outcome, _ = agree(project, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err[-1].startswith(said)
    assert {path.name: path.read_bytes() for path in project.folder.iterdir()} == before


def test_verdicts_are_compared_where_all_have_both(project: Project) -> None:
    both = {"detailed_results": [row(0, "yes", score=4), row(1, "no", score=2)]}
    assert compared(project, both, both)["compared"] == "correct"
    project.write("b.json", [row(0, None, score=4), row(1, None, score=3)])
    assert agree(project, "a.json", "b.json")[1]["compared"] == "score"


def test_every_problem_of_every_file_is_listed(project: Project) -> None:
    project.write(
        "rows.json", '{"detailed_results": [\n{"input": "q", "correct": "maybe"},\n{"score": true}\n]}'
    )
    project.write("split.json", '{"strong": {"llm_judge": {"per_question":\n[{"question_id": "q1"}]}}}')
    project.write("list.json", [{"system": "s", "question_id": "q", "score": 10**12}])
    project.write("none.json", {"annotations": [row(0, None)]})
    project.write("torn.json", "[{")
    project.write("empty.json", "")
    project.write("number.json", "5")
    project.write("other.json", {"simple": {"retrieval": {}}})
    names = ("rows", "split", "list", "none", "torn", "empty", "number", "other", "gone")
    outcome, results = agree(project, *(f"{name}.json" for name in names), "--eval-dir", "nowhere")
    assert (outcome.code, outcome.out, results) == (2, "", None)
    none = "expected decisions (correct, score, or a split's llm_judge), found none"
    assert outcome.err == [
        'rows.json:2: expected yes or no in detailed_results[0].correct, found "maybe"',
        "rows.json:3: expected what was judged in detailed_results[1].input, found nothing",
        "rows.json:3: expected a number in detailed_results[1].score, found true",
        "split.json:2: expected a number in strong.llm_judge.per_question[0].answer_score_raw, found nothing",
        "list.json:1: expected a number in [0].score, found 1000000000000",
        f"none.json:1: {none}",
        "torn.json:1: expected JSON, found a fault at column 3 "
        "(Expecting property name enclosed in double quotes)",
        "empty.json:1: expected JSON, found an empty file",
        "number.json:1: expected a list, found 5",
        f"other.json:1: {none}",
        "gone.json:1: expected a file, found nothing of that name",
        "nowhere:1: expected a folder for each judge, in it .json files, found none",
        "error: problems in the input: 12; nothing was graded or written.",
    ]


@pytest.mark.parametrize("text", ["null", "{}", "[]", "[" * 9000, "[" + "9" * 5000 + "]", '{"a": null}'])
def test_files_that_are_none_are_a_problem_and_no_traceback(text: str) -> None:
    problems: list[Problem] = []
    assert evaluation.parse_decisions(text, "f.json", problems) == ("", [])
    assert len(problems) == 1
    assert str(InputError(problems)).startswith("f.json:1: expected ")


class Tags(HTMLParser):
    """Every tag of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


def test_hostile_texts_stay_texts(project: Project) -> None:
    rows = [row(n, n % 2, gold=HOSTILE, prediction=HOSTILE, reasoning=HOSTILE) for n in range(6)]
    for source in (HOSTILE.replace("/", "").replace("\n", ""), "=plain"):
        name = source[:30]
        for row_ in rows:
            row_["source"] = name
        project.write(f"{len(name)}.json", {"judge_model": HOSTILE, "detailed_results": rows})
    names = sorted(path.name for path in project.folder.iterdir())
    flipped = json.loads((project.folder / names[0]).read_text("utf-8"))
    flipped["detailed_results"] = [
        one | {"correct": 1 - one["correct"]} for one in flipped["detailed_results"]
    ]
    project.write("third.json", flipped | {"judge_model": "=cmd|' /C calc'!A0"})
    options = ("--human", "third.json", "--report", "md", "csv", "html", "--out", "out.json")
    project.write("fourth.json", flipped | {"judge_model": "+1"})
    outcome, _ = agree(project, *names, "fourth.json", *options)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert "\n# head" not in outcome.out
    page = (project.folder / "out.html").read_text("utf-8")
    assert Tags(page).tags.count("script") == 1  # the page's own
    assert "&lt;script&gt;" in page
    markdown = (project.folder / "out.md").read_text("utf-8")
    assert "<script>" not in markdown
    assert "\n# head" not in markdown
    assert not any(line.startswith("|") and line.count(" | ") > 6 for line in markdown.splitlines())
    cells = [cell for line in csv.reader(io.StringIO(csv_of(project))) for cell in line]
    assert not any(cell.startswith(("=", "@")) for cell in cells)
    assert "'+1" in cells


def csv_of(project: Project) -> str:
    return (project.folder / "out.csv").read_bytes().decode("utf-8-sig")


def test_the_csv_has_a_row_for_each_pair_and_all(project: Project) -> None:
    project.write("people.json", [row(0, 1), row(1, 0)])
    files = [answers("yes", "no", "yes"), answers("yes", "no", "no"), answers("yes", "yes", "no")]
    compared(project, *files, options=("--human", "people.json", "--report", "csv"))
    text = (project.folder / "agreement.csv").read_bytes().decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    about = [(one["judge"], one["with"], one["items"]) for one in rows]
    people = [(name, "people", "2") for name in ("a", "b", "c")]
    votes = [("majority", "people", "2"), ("unanimous", "people", "1")]
    pairs = [("a", "b", "3"), ("a", "c", "3"), ("b", "c", "3"), ("all", "", "3")]
    assert about == [*people, *votes, *pairs]
    assert rows[4]["kappa_reason"] == "only one value was given"
    assert float(rows[-1]["fleiss_kappa"]) == pytest.approx(1 / 10)


def test_a_report_that_cannot_be_written_is_left_out(project: Project) -> None:
    (project.folder / "agreement.md").mkdir()
    project.write("a.json", answers("yes"))
    project.write("b.json", answers("no"))
    outcome, results = agree(project, "a.json", "b.json", "--report", "md", "csv")
    assert outcome.code == 3
    assert results["items_apart"] == 1
    assert outcome.err == ["error: agreement.md is skipped: [Errno 22] not a regular file: 'agreement.md'"]
    assert "Agreement saved to: agreement.json, agreement.csv" in outcome.out


def test_help_names_every_option(project: Project) -> None:
    outcome = project.run("agreement", "--help")
    assert outcome.code == 0
    for option in evaluation.AGREEMENT_OPTIONS:
        assert option.replace("files", "FILE") in outcome.out


def test_a_split_knows_nothing_of_these_options(project: Project) -> None:
    assert project.run("dev", "--eval-dir", "x").code == 2
    assert project.run("agreement", "--report", "png").code == 2
