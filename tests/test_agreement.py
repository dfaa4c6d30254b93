"""Agreement between judges, and between judges and people: the command `agreement`."""

from __future__ import annotations

import csv
import itertools
import json
import random
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import evaluation
import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student_t

from conftest import (
    FIRST_SEED,
    JUDGE,
    LLAMA,
    RESULTS,
    JudgeWith,
    Project,
    Serve,
    assert_refused,
    blocks,
    json_lines,
    mean_interval,
    mentions,
    pasted,
    question,
    reference_numbers,
    table,
)
from groq_server import Call, Reply, completion, score_reply

Row = dict[str, Any]

ALONE = "items that only one rater has, which do not count"
UNRELATED = "pairs of raters without an item in common"
OF_ALL = "Fleiss' kappa and Krippendorff's alpha"
CONTRADICTED = "items that one rater decided differently, which do not count for this rater"


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
        rows = [{"question_id": f"q{n}", "answer_score_raw": score} for n, score in enumerate(values)]
        results[system] = {"llm_judge": {"judge_model": "big/model", "per_question": rows}}
    return results


def agree(project: Project, files: Mapping[str, object], *arguments: str, people: object = None) -> Any:
    """Write JSON, and people's JSON or CSV, run the command and return (outcome, results or None)."""
    for name, content in files.items():
        project.write(f"{name}.json", content)
    if people is not None:
        name = "people.csv" if isinstance(people, str) else "people.json"
        project.write(name, people)
        arguments += ("--human", name)
    if "--eval-dir" not in arguments:
        arguments = (*(f"{name}.json" for name in files), *arguments)
    outcome = project.run("agreement", "--quiet", *arguments)
    path = project.folder / "agreement.json"
    return outcome, json.loads(path.read_bytes()) if path.exists() else None


def compare(project: Project, *judges: object, options: tuple[str, ...] = (), people: object = None) -> Any:
    """Return the results for judges a, b, c, ... whose files have this content. Each may have own items."""
    files = dict(zip("abcd", judges, strict=False))
    outcome, results = agree(project, files, *options, people=people)
    alone = results["items_of_one"]
    warnings = [f"warning: {ALONE}: {len(alone)}, e.g. {alone[0]}"] if alone else []
    assert (outcome.code, outcome.err[:1]) == (0, warnings)
    return results


# ------------------------------------------------------------------ Statistics


@table(
    "a, b, kappa",
    {
        "chance": ([1, 1, 2, 2], [1, 2, 1, 2], 0),
        "words": (["yes", "no", "no"], ["yes", "no", "yes"], 0.4),
        "near": ([1, 5, 3], [1, 5, 4], 1 - 3 / 51),
        "the values are the scale": ([1, 10, 1], [1, 10, 10], 0.4),
        **{
            f"scikit-learn {n}": tuple(row.values()) for n, row in enumerate(reference_numbers("cohen_kappa"))
        },
    },
)
def test_kappa(project: Project, a: list[Any], b: list[Any], kappa: float) -> None:
    """Of verdicts, and of scores with quadratic weights. The references lack a value of the scale."""
    key = "correct" if "no" in a else "score"
    for one, other in ((a, b), (b, a)):
        [pair] = compare(project, scores(*one, key=key), scores(*other, key=key))["all"]["pairs"]
        assert pair["kappa"] == pytest.approx(kappa, abs=1e-12)


def test_fleiss_kappa(project: Project) -> None:
    """Of all pairs of raters 2/3 agree, by chance 1/2."""
    results = compare(project, answers("yes", "yes", "no"), answers("yes", "no", "no"))
    assert results["all"]["fleiss_kappa"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("kind", ["correct", "score"])
def test_the_coefficients_equal_those_of_other_packages(project: Project, kind: str) -> None:
    """Three judges with gaps: kappa of each pair, Fleiss' kappa of the complete items, alpha of all."""
    expected = reference_numbers("agreement")[kind]
    results = compare(project, *(scores(*ratings, key=kind) for ratings in expected["judges"]))["all"]
    assert [pair["kappa"] for pair in results["pairs"]] == pytest.approx(expected["kappas"], abs=1e-9)
    for name in ("fleiss_kappa", "krippendorff_alpha"):
        assert results[name] == pytest.approx(expected[name], abs=1e-9)
    by_hand = compare(project, answers("yes", "yes", "no", ...), answers("yes", "no", "no", "yes"))["all"]
    assert by_hand["fleiss_kappa"] == pytest.approx(1 / 3)  # of all pairs of ratings 2/3 agree, by chance 1/2


@pytest.mark.parametrize("key", ["correct", "score"])
def test_the_interval_of_kappa_is_a_percentile_bootstrap(project: Project, key: str) -> None:
    """Compare it with independent resamples; percentiles are expanded for few items."""
    n, generator = 40, np.random.default_rng(7)
    values = [0, 1] if key == "correct" else [1, 2, 3, 4, 5]
    a = generator.choice(values, n)
    b = np.where(generator.random(n) < 0.6, a, generator.choice(values, n))
    kappas = []
    for _ in range(2000):
        drawn = generator.integers(0, n, n)
        observed = ((a[drawn] - b[drawn]) ** 2).mean()  # also the share of verdicts that differ
        expected = ((a[drawn][:, np.newaxis] - b[drawn]) ** 2).mean()
        kappas.append(1 - observed / expected)
    tail = 100 * norm.cdf((n / (n - 1)) ** 0.5 * student_t.ppf(0.025, n - 1))
    [pair] = compare(project, scores(*a.tolist(), key=key), scores(*b.tolist(), key=key))["all"]["pairs"]
    interval = np.percentile(kappas, [tail, 100 - tail])
    assert pair["ci95"]["kappa"] == pytest.approx(interval.tolist(), abs=0.05)


def test_a_kappa_that_is_undefined_is_null(project: Project) -> None:
    """So is the interval of more than 25 different scores."""
    outcome, results = agree(project, {"a": scores(3, 3), "b": scores(3, 3)})
    reason = "only one value was given"
    for means in ("a - b: no interval of Cohen's kappa", f"All items: no interval of {OF_ALL}"):
        assert f"{means}: {reason}" in outcome.out.splitlines()
    [pair] = results["all"]["pairs"]
    assert (pair["kappa"], pair["ci95"]["kappa"]) == (None, None)
    assert (results["all"]["fleiss_kappa"], results["all"]["krippendorff_alpha"]) == (None, None)
    [pair] = compare(project, scores(*range(30)), scores(*range(1, 31)))["all"]["pairs"]
    assert (pair["kappa"] is None, pair["ci95"]["kappa"]) == (False, None)


def test_items_are_matched_by_input_gold_and_prediction(project: Project) -> None:
    others = [row(0), row(1, gold="another"), row(2, prediction="another"), row(3, input="another")]
    results = compare(project, answers("yes", "yes", "yes", "yes"), others[::-1])["all"]
    assert (results["pairs"][0]["items"], results["items"], results["items_of_several"]) == (1, 7, 1)
    of_two_systems = [{**row(0), "system": system} for system in ("x", "y")]
    assert compare(project, of_two_systems, of_two_systems)["all"]["items"] == 2


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
    for block in second.values():
        block["llm_judge"]["judge_model"] = "other"
    results = compare(project, first, second)
    [pair] = results["all"]["pairs"]
    assert (pair["items"], pair["agreement"], pair["agreement_within_1"]) == (4, 0.5, 0.5)
    counts = [list(judge.values())[:4] for judge in results["judges"]]
    assert counts == [["big/model", 5, 1, 1], ["other", 5, 1, 0]]
    widest = results["disagreements"][0]
    assert (widest["system"], widest["question_id"]) == ("strong", "q1")


def test_forms_of_a_verdict(project: Project) -> None:
    verdicts = ["yes", "Yes ", True, "true", 1, 1.0, "1", "no", False, "False", 0, "0", "", None]
    people = {"annotations": [row(number, verdict) for number, verdict in enumerate(verdicts)]}
    results = compare(project, answers(*["yes"] * 7, *["no"] * 5, "yes", "yes"), people)
    assert (results["all"]["pairs"][0]["items"], results["all"]["pairs"][0]["kappa"]) == (12, 1.0)
    assert results["judges"][1]["undecided"] == 2


FILL_IN = "fill in score or correct, or name a column for each rater: --columns rater=NAME,NAME"


def agreements(results: Any) -> dict[str, float]:
    """Return the agreement of the two judges on each source."""
    return {name: source["pairs"][0]["agreement"] for name, source in results["sources"].items()}


@pytest.mark.parametrize("judge", ["people (people)", "majority"])
def test_a_judge_may_have_the_name_of_a_person_or_a_vote(project: Project, judge: str) -> None:
    files = {judge: scores(4, 3, 2), "b": scores(4, 2, 2)}
    _, results = agree(project, files, people=scores(4, 3, 1))
    shares = {row["judge"]: row["accuracy"] for row in results["people"]["judges"]}
    assert shares == {judge: pytest.approx(2 / 3), "b": pytest.approx(1 / 3)}
    assert results["people"]["votes"][0]["accuracy"] == pytest.approx(1 / 2)


def test_the_widest_disagreements_come_first(project: Project) -> None:
    files: list[object] = [scores(1, 3, 4, 2, 5), scores(1, 1, 5, 2, 1), scores(1, 3, 5, 3, 5)]
    results = compare(project, *files, options=("--samples", "3"))
    widest = [item["input"] for item in results["disagreements"]]
    assert (results["items_apart"], widest) == (4, ["Q4?", "Q1?", "Q2?"])
    assert results["disagreements"][0]["decisions"] == {"a": 5, "b": 1, "c": 5}
    files = [answers("yes", "yes"), answers("yes", "no"), answers("yes", "no"), answers("no", "yes")]
    evenly_split, other = compare(project, *files)["disagreements"]
    assert (evenly_split["input"], other["input"]) == ("Q1?", "Q0?")
    assert evenly_split["decisions"] == {"a": True, "b": False, "c": False, "d": True}
    assert set(evenly_split["reasoning"].values()) == {"why 1"}


def judged(source: str, *verdicts: object, **fields: Any) -> Row:
    """Return a judge's file on a source, in the form of another program."""
    run = {"source_file": f"runs/{source}.json", "run_name": f"run of {source}", **fields}
    results = [
        {"question": f"Q{n}?", "expected": f"g{n}", "generated": f"p{n}", "correct": verdict, **run}
        for n, verdict in enumerate(verdicts)
    ]
    return {"items": results}


def test_the_files_of_a_folder(project: Project) -> None:
    """Judges are named by file or subfolder, sources by `source_file`, else `run_name`, else the file."""
    files: dict[str, object] = {"evals/labels": [row(0, True)], "evals/readme": "not a judge"}
    for judge, verdicts in (("x", (True, False, True)), ("y", (True, True, True))):
        files |= {
            f"evals/s1__judge-{judge}": judged("s1", *verdicts, judge_model="big/x"),
            f"evals/s2__judge-{judge}": judged("s2", *verdicts, source_file=None),
            f"evals/s3__judge-{judge}": judged("s3", True, source_file=None, run_name=" "),
            f"evals/{judge}/bank": {**answers("yes", "no"), "judge_model": "ignored"},
        }
    files["evals/s1"] = judged("s1", None, None, None)  # not judged
    outcome, results = agree(project, files, "--eval-dir", "evals", "--samples", "1")
    assert (outcome.code, outcome.err) == (0, ["files without a score, ignored: 3, e.g. evals/labels.json"])
    assert [(judge["judge"], judge["decisions"]) for judge in results["judges"]] == [("x", 9), ("y", 9)]
    assert [len(judge["files"]) for judge in results["judges"]] == [4, 4]
    assert results["all"]["pairs"][0]["items"] == 9
    thirds = dict.fromkeys(("runs/s1", "run of s2"), pytest.approx(2 / 3))
    assert agreements(results) == {**thirds, "s3": 1.0, "bank": 1.0}
    assert {"SOURCE: BANK", "SOURCE: S3"} <= blocks(outcome.out).keys()
    assert results["items_apart"] == 2
    assert [item["source"] for item in results["disagreements"]] == ["runs/s1"]
    _, results = agree(project, {}, "--eval-dir", "evals", "--samples", "-1")
    assert results["disagreements"] == []


def test_no_common_item_is_a_warning(project: Project) -> None:
    """A pair without one is no row; nothing could be compared if all pairs are."""
    files = {"evals/s1__judge-x": judged("s1", True), "evals/s2__judge-y": judged("s2", True)}
    people = [row(0, True, run_name="run of s2")]
    outcome, results = agree(project, files, "--eval-dir", "evals", people=people)
    unrelated = [f"missing: {UNRELATED}: 3", f"warning: {ALONE}: 2, e.g. Q0?"]
    assert (outcome.code, outcome.err[:2]) == (3, unrelated)
    assert (results["all"]["pairs"], results["people"]["judges"]) == ([], [])
    last_year = judged_eight()  # the questions' IDs are the same
    for n, decision in enumerate(last_year["strong"]["llm_judge"]["per_question"]):
        decision["answer_id"] = f"b{n}"
    last_year["strong"]["llm_judge"]["judge_model"] = "other"
    outcome, _ = agree(project, {"now": judged_eight(), "last": last_year})
    assert (outcome.code, outcome.err[0]) == (3, f"missing: {UNRELATED}: 1")


def test_raters_of_whom_some_have_an_item_in_common(project: Project) -> None:
    """Of four raters, two each rate the same items: two of six pairs are rows."""
    table = "item,rater,score\nx,ann,3\nx,bob,4\ny,eve,1\ny,joe,2\nz,joe,5\n"
    project.write("crowd.csv", table)
    outcome = project.run("agreement", "--quiet", "crowd.csv")
    warnings = [f"warning: {UNRELATED}: 4", f"warning: {ALONE}: 1, e.g. z"]
    assert (outcome.code, outcome.err[:2]) == (0, warnings)
    results = project.read("agreement.json")
    assert [(pair["judge"], pair["with"]) for pair in results["all"]["pairs"]] == [
        ("ann", "bob"),
        ("eve", "joe"),
    ]
    assert (results["items_of_one"], results["pairs_without_items"]) == (["z"], 4)


def test_sources_are_compared_without_their_ending(project: Project) -> None:
    """Judged rows name the file, people's file names the run."""
    files = {
        "x": judged("s", True, False, source_file="s.json"),
        "y": judged("s", True, True, source_file="s.json"),
    }
    people = [row(0, True, run_name="s"), row(1, False, run_name="s")]
    outcome, results = agree(project, files, "x.json", "y.json", people=people)
    assert (outcome.code, outcome.err) == (0, [])
    assert [pair["accuracy"] for pair in results["people"]["judges"]] == [1.0, 0.5]


Counts = tuple[int, int]
BOTH = [row(0, True), row(1, True)]
LABELS: dict[str, tuple[object, Counts, Counts, int]] = {
    # the labels; items and too strict ones of judge x, of judge y; items that a judge decided differently
    "of any source": (BOTH, (1, 0), (1, 1), 2),
    "of a row's source": ([row(n, True, source="runs/t.json") for n in (0, 1)], (2, 1), (2, 1), 1),
    "of its file": (
        [{**row, "source_file": "runs/s.json", "run_name": "r"} for row in BOTH],
        (1, 0),
        (2, 2),
        1,
    ),
    "of another source": ([{**row, "run_name": "r"} for row in BOTH], (0, 0), (0, 0), 1),
}


@table("labels, of_x, of_y, n_contradicted", LABELS)
def test_labels_are_for_their_source(
    project: Project, labels: object, of_x: Counts, of_y: Counts, n_contradicted: int
) -> None:
    """Judge x has s.json twice. What a judge decided differently in the sources of a label is left out."""
    files = {
        "evals/1__judge-x": judged("s", True, True),
        "evals/2__judge-x": judged("s", False, True),
        "evals/s__judge-y": judged("s", False, False),
        "evals/t__judge-x": judged("t", False, True, True),
        "evals/t__judge-y": judged("t", False, True, True),
    }
    outcome, results = agree(project, files, "--eval-dir", "evals", people=labels)
    assert agreements(results) == {"runs/s": 0.0, "runs/t": 1.0}  # whatever people say
    [pair] = results["all"]["pairs"]
    assert (pair["items"], pair["agreement"]) == (4, 0.75)
    rows = {judge["judge"]: (judge["items"], judge["too_strict"]) for judge in results["people"]["judges"]}
    assert (rows.get("x", (0, 0)), rows.get("y", (0, 0))) == (of_x, of_y)
    assert mentions(outcome.err, f"warning: {CONTRADICTED}: {n_contradicted}, e.g. Q0?")
    assert outcome.code == 0


def test_intervals_resample_questions(project: Project) -> None:
    """Ten answers to a question that are rated alike tell no more than one."""
    draw = random.Random(1)
    raters = [[draw.random() < 0.6 for _ in range(40)] for _ in range(3)]
    found = []
    for count in (1, 10):
        files = []
        for rater in raters:
            items = itertools.product(enumerate(rater), range(count))
            files.append([row(n, verdict, prediction=f"p{copy}") for (n, verdict), copy in items])
        found.append(compare(project, *files[:2], people=files[2]))
    one, ten = found
    assert (ten["all"]["items"], ten["all"]["pairs"][0]["questions"]) == (400, 40)
    for part, rows in (("all", "pairs"), ("people", "judges"), ("people", "votes")):
        for first, second in zip(one[part][rows], ten[part][rows], strict=True):
            assert None not in first["ci95"].values()
            first["ci95"].pop("krippendorff_alpha", None)  # it corrects for the number of ratings
            second["ci95"].pop("krippendorff_alpha", None)
            assert second["ci95"] == first["ci95"]
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
    files[0]["detailed_results"].append(row(6, None))
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
    assert {row["with"] for row in rows.values()} == {"people"}
    # "unanimous" means all judges; the majority needs two
    assert [(vote["left_out"], vote["fewer_judges"]) for vote in people["votes"]] == [(1, 1), (2, 2)]
    assert rows["a"]["kappa"] == pytest.approx(8 / 13)  # agreement 0.8, by chance 0.48


def test_scores_are_compared_with_those_of_people(project: Project) -> None:
    """The majority are more than half: two of three judges, three of four. From 0 to 1 all are within 1."""
    people = scores(1, 1, 4, 5)
    kind, right = compare(project, scores(2, 3, 4, 4), people, people=people)["people"]["judges"]
    assert (kind["accuracy"], kind["accuracy_within_1"]) == (0.25, 0.75)
    assert (kind["too_kind"], kind["too_strict"]) == (2, 1)
    assert (right["accuracy"], right["kappa"]) == (1.0, 1.0)
    judges = [scores(2, 2, 2), scores(2, 2, 1), scores(3, 2, 2), scores(4, 5, None)]
    majority, _ = compare(project, *judges, people=scores(2, 2, 2))["people"]["votes"]
    assert (majority["items"], majority["left_out"], majority["accuracy"]) == (2, 1, 1.0)
    for levels, within in (((0, 1, 2), 2 / 3), ((0, 1, 1), None)):
        [pair] = compare(project, scores(*levels), scores(0, 0, 0))["all"]["pairs"]
        assert pair.get("agreement_within_1") == within


# ------------------------------------------------------------------ People's tables


def judged_split() -> Row:
    """Return a split's results. Answers of `strong` have the IDs a to e; a person decided on the last two."""
    results = split_results(strong=[5, 3, 1, 4, 5], simple=[4, 4, 4, 4])
    for row, answer_id in zip(results["strong"]["llm_judge"]["per_question"], "abcde", strict=True):
        row["answer_id"] = answer_id
        if answer_id in "de":
            row["judge_score"] = 2 if answer_id == "d" else None
    return results


PEOPLE_FORMS: dict[str, tuple[str, str, list[str]]] = {  # header, row and options
    "a row per rating": ("item,rater,score", "{id},ann,{score}", []),
    "semicolons and capitals": ("Item;Rater;Score", " strong/{question} ;ann;{score}", []),
    "by system and question": ("system\tquestion_id\tscore", "strong\t{question}\t{score}", []),
    "a column per rater": ("item,ann,note", "{id},{score},sure", ["--columns", "rater=ann"]),
}


@table("header, form, options", PEOPLE_FORMS)
def test_people_and_a_split(project: Project, header: str, form: str, options: list[str]) -> None:
    """The judge gave 5, 3, 1 and, before a person's decision, 2; people gave 5, 4, 1 and 3."""
    rows = [form.format(id="abcd"[n], question=f"q{n}", score=score) for n, score in enumerate((5, 4, 1, 3))]
    results = compare(project, judged_split(), options=tuple(options), people="\n".join([header, *rows]))
    assert (results["compared"], results["all"]["pairs"], results["people"]["votes"]) == ("score", [], [])
    assert [judge["undecided"] for judge in results["judges"]] == [1]
    [judge] = results["people"]["judges"]
    figures = [judge[name] for name in ("items", "accuracy", "accuracy_within_1", "too_kind", "too_strict")]
    assert figures == [4, 0.5, 1.0, 0, 2]
    assert judge["kappa"] == pytest.approx(1 - (2 / 4) / (74 / 16))  # squares of 5312 - 5413, of all pairs


def fill_in(project: Project, score: Callable[[dict[str, str]], str]) -> list[dict[str, str]]:
    """Write scores in the label sheet, and return the rows that it had."""
    path = project.folder / "dev_labels.csv"
    rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines(keepends=True)))
    with path.open("w", encoding="utf-8", newline="") as file:
        sheet = csv.DictWriter(file, rows[0])
        sheet.writeheader()
        sheet.writerows({**row, "score": score(row)} for row in rows)
    return rows


@table("words", {"words": "yes no no yes", "capitals": "True FALSE False true", "numbers": "1 0 0.0 1"})
def test_a_judge_of_answers_is_compared_with_verdicts_of_people(project: Project, words: str) -> None:
    """Kappa is then plain. Each of the nine ratings counts, of which six are the judge's."""
    judge = {"detailed_results": [row(n, verdict, id=f"i{n}") for n, verdict in enumerate("1101")]}
    cells = words.split()
    columns = [*(f"i{n},{cell},{cell}," for n, cell in enumerate(cells[:3])), f"i3,{cells[0]},{cells[1]},"]
    wide = "\n".join(["item,ann,bob,eve", *columns]) + cells[0]
    results = compare(project, judge, options=("--columns", "rater=ann,bob,eve"), people=wide)
    [judge_row] = results["people"]["judges"]
    assert (results["compared"], judge_row["items"], judge_row["ratings"]) == ("correct", 4, 9)
    assert judge_row["accuracy"] == pytest.approx(6 / 9)
    by_chance = (7 * 4 + 2 * 5) / 81  # the judge has seven yes and two no, the people four and five
    assert judge_row["kappa"] == pytest.approx((6 / 9 - by_chance) / (1 - by_chance))


def test_people_among_themselves(project: Project) -> None:
    """A judge is compared with each of their ratings. Without a judge, theirs are a file like a judge's."""
    people = "item,rater,score\na,ann,5\na,bob,4\nb,ann,3\nb,bob,3\nc,ann,1\nc,bob,3\n"
    outcome, found = agree(project, {"judge": judged_split()}, people=people)
    assert "ann - bob" in blocks(outcome.out)["PEOPLE AMONG THEMSELVES"]
    results = found["people"]
    [judge] = results["judges"]  # 5, 3, 1 and 5, 3, 1 and 4, 3, 3
    assert (judge["accuracy"], judge["too_kind"], judge["too_strict"]) == (pytest.approx(4 / 6), 1, 1)
    assert (judge["items"], judge["ratings"], judge["accuracy_within_1"]) == (3, 6, pytest.approx(5 / 6))
    [pair] = results["among_people"]["pairs"]
    assert (pair["items"], pair["kappa"]) == (3, pytest.approx(1 - (5 / 3) / (27 / 9)))  # 531 and 433
    few = "have a rating other than the most common one: 2"
    assert pair.pop("ci95_reason") == {"kappa": f"fewer than 5 questions {few}"}
    assert project.run("agreement", "people.csv").code == 0
    alone = project.read("agreement.json")
    assert ([judge["judge"] for judge in alone["judges"]], "people" in alone) == (["ann", "bob"], False)
    assert alone["all"]["pairs"][0].pop("ci95_reason") == {"kappa": f"fewer than 5 items {few}"}
    assert alone["all"]["pairs"] == [pair]


FULL = [row(n, n != 1, id=f"i{n}") for n in range(3)]  # yes, no, yes, with all texts
ASKED = "question,ground_truth,response,correct"
ANSWERED: list[Row] = [
    {"query": f"Q{n}?", "ground_truths": [f"g{n}", "x"], "answer": f"p{n}", "correct": n < 2}
    for n in range(3)
]
OPTIONS = "question;expected_options;response;correct\n" + "".join(
    f'Q{n}?;"[""g{n}"", ""x""]";p{n};{int(n < 2)}\n' for n in range(3)
)
RATING_FORMS: dict[str, tuple[str, object]] = {  # a file with the ratings yes, yes, no of the same answers
    "CSV of texts": ("x.csv", f"{ASKED}\nQ0?,g0,p0,1\nQ1?,g1,p1,1\nQ2?,g2,p2,0\n"),
    "CSV with the ID for reading": ("x.csv", f"id,{ASKED}\n9,Q0?,g0,p0,1\n9,Q1?,g1,p1,1\n9,Q2?,g2,p2,0\n"),
    "answer beside a gold answer": ("x.json", ANSWERED),
    "a list in a cell": ("x.csv", OPTIONS),
}
NAMED_FORMS: dict[str, tuple[str, object]] = {
    "CSV of items": ("x.csv", "item,correct\ni0,yes\ni1,yes\ni2,no\n"),
    "CSV of scores": ("x.csv", "id;score\ni0;1\ni1;1\ni2;0\n"),
    "JSON of items": ("x.json", [{"item": f"i{n}", "correct": n < 2} for n in range(3)]),
    "JSON lines of IDs": ("x.jsonl", json_lines(*({"id": f"i{n}", "correct": int(n < 2)} for n in range(3)))),
}


@table("name, content", RATING_FORMS | NAMED_FORMS)
@pytest.mark.parametrize("option", [[], ["--human"]])
def test_forms_of_ratings(project: Project, name: str, content: object, option: list[str]) -> None:
    """Texts are those that `answers` reads. People may also name the answers of another file."""
    if (name, content) in NAMED_FORMS.values():
        option = ["--human"]
    project.write("full.json", FULL)
    project.write(name, content)
    outcome = project.run("agreement", "--quiet", "full.json", *option, name)
    assert (outcome.code, outcome.err) == (0, [])
    results = project.read("agreement.json")
    [pair] = results["people"]["judges"] if option else results["all"]["pairs"]
    rate = pair["accuracy"] if option else pair["agreement"]
    assert (results["compared"], pair["items"], rate) == ("correct", 3, pytest.approx(1 / 3))


def test_texts_count_before_an_id(project: Project) -> None:
    """A row whose texts no judge has is named, and does not count: they may be of last year's answers."""
    full = {"full": [row(n, id=str(n)) for n in range(3)]}
    people = [row(f"other {n}", id=str(n)) for n in range(3)]
    people = [row(0, id="7"), row(1, id="1") | {"gold": "another"}, *people]
    outcome, results = agree(project, full, people=people)
    found = results["people"]
    assert (outcome.code, found["items"], found["judges"][0]["items"]) == (3, 1, 1)
    what = "no judge has, which do not count: 4, e.g. Q1?; a judge has names such as Q0?"
    assert outcome.err[0] == f"missing: people.json: ratings of items that {what}"
    by_id = "ID,Question,correct\n0,Q0?,yes\n1,Q1?,no\n"  # the question is for reading
    [judge] = agree(project, full, people=by_id)[1]["people"]["judges"]
    assert (judge["items"], judge["accuracy"]) == (2, 0.5)


def test_judges_that_only_name_their_items(project: Project) -> None:
    project.write("a.csv", "item,score\nx,1\ny,5\nz,3\n")
    project.write("b.csv", "item,score\nz,3\nx,2\nw,4\n")
    outcome = project.run("agreement", "a.csv", "b.csv")
    assert "Krippendorff's ordinal alpha of the 2 items" in outcome.out
    [pair] = project.read("agreement.json")["all"]["pairs"]
    assert (pair["judge"], pair["with"], pair["items"], pair["agreement"]) == ("a", "b", 2, 0.5)


def test_ratings_of_answers_that_no_judge_has_do_not_count(project: Project) -> None:
    """An answer ID that is given counts alone: the answer to q1 is another one now."""
    people = "answer_id,system,question_id,score\na,strong,q0,5\nold,strong,q1,3\n"
    outcome, results = agree(project, {"judge": judged_split()}, people=people)
    assert (outcome.code, results["people"]["items"]) == (3, 1)
    assert mentions(outcome.err, "missing: people.csv", "no judge has", "1, e.g. old")


def test_a_person_of_whom_no_rating_is_of_a_judged_answer_is_left_out(project: Project) -> None:
    """Of the others all is compared as it is without that person."""
    known = "item,rater,score\na,ann,5\nb,ann,4\nold,ann,\n"  # what has no score is no rating
    found = []
    for labels in (known, known + "x,bob,3\ny,bob,4\n"):
        outcome, results = agree(project, {"judge": judged_split()}, people=labels)
        found.append(results["people"])
    assert (outcome.code, found[0]) == (3, {**found[1], "files": found[0]["files"]})
    what = "ratings of items that no judge has, which do not count: 2, e.g. x; a judge has names such as a"
    assert outcome.err[0] == f"missing: people.csv: {what}"


NO_SCORE = f"people.csv:1: no row has a score: {FILL_IN}"
UNKNOWN = "error: people.csv: no rating is of an answer that a judge has: found "
NOT_NAMED = "people.csv:2: what was judged is missing or blank: expected answer_id, question and prediction, "
NOT_NAMED += "item, id or question_id, "
NO_NUMBER = "people.csv:2: score: expected a number, yes or no, got "
VERDICTS = "error: verdicts and scores cannot be compared: yes or no by people, scores by big/model"
BAD_TABLES = {
    "no rating": ("answer_id,score,note\na,,?\n", NO_SCORE),
    "no column of ratings": ("item,note\na,so\n", NO_SCORE),
    "another criterion": (
        "question_id,system,criterion,score\nq0,strong,polite,1\n",
        f"{UNKNOWN}strong/q0; a judge",
    ),
    "unknown items": ("item,score\nx,3\n", f"{UNKNOWN}x; a judge has names such as a"),
    "an ID in place of an answer's ID": ("answer_id,score\nq0,4\n", f"{UNKNOWN}q0; a judge"),
    "no item": ("name,score\na,3\n", NOT_NAMED),
    "names of columns": ("Frage,Antwort,correct\nQ,A,yes\n", f"{NOT_NAMED}found frage, antwort, correct"),
    "several answers": ("item,score\nq1,3\n", "people.csv:2: q1 is the name of 2 answers"),
    "a decimal comma": ("item;score\na;4,5\n", f"{NO_NUMBER}4,5"),
    "not a number": ("item,score\na,inf\n", f"{NO_NUMBER}inf"),
    "two names of one field": ("id,item,score\na,q1,4\n", "people.csv: columns for id: id, item: "),
    "verdicts on scores": ("item,correct\na,yes\n", VERDICTS),
}


@table("content, start", BAD_TABLES)
def test_problems_of_people_s_tables(project: Project, content: str, start: str) -> None:
    outcome, _ = agree(project, {"judge": judged_split()}, people=content)
    assert (outcome.code, outcome.err[0][: len(start)]) == (2, start)


# ------------------------------------------------------------------ Console, reports and problems

JUDGES_TABLE = """\
Judge   Decisions  Left out  Undecided  Files
a               6         0          0      1
b               5         1          1      1
people          2         0          0      1
"""
FEW = "fewer than 5 questions have a rating other than the most common one: 3"
PAIRS_TABLE = f"""\
Pair   Items  Questions          Agreement  Cohen's kappa
a - b      5          5  0.60 [0.06, 1.00]           0.17
a - b: no interval of Cohen's kappa: {FEW}
"""
PEOPLE_TABLE = """\
Judge      Items  Questions  Ratings  Too kind  Too strict  Accuracy  Cohen's kappa
a              2          2        2         0           0      1.00           1.00
b              2          2        2         1           0      0.50           0.00
majority       1          1        1         0           0      1.00            n/a
unanimous      1          1        1         0           0      1.00            n/a
"""


def test_perfect_agreement_has_an_interval_but_its_kappa_has_none(project: Project) -> None:
    """All resamples of questions have kappa 1: that knows no variance."""
    judge = answers(*["yes", "no"] * 10)
    outcome, results = agree(project, {"a": judge, "b": judge})
    [pair] = results["all"]["pairs"]
    assert (pair["agreement"], pair["kappa"], pair["ci95"]["kappa"]) == (1, 1, None)
    # 20 + 1.9207 of 23.8415, and t(19) = 2.09302 times sqrt(1.9207 * (0.91944^2 + 0.08056^2)) / 23.8415
    assert pair["ci95"]["agreement"] == pytest.approx([0.807144, 1], abs=3e-4)
    reason = "resamples of questions have the same"
    assert pair["ci95_reason"] == {"kappa": reason}
    assert f"a - b: no interval of Cohen's kappa: {reason}" in outcome.out.splitlines()


def test_the_console_and_reports(project: Project) -> None:
    a = answers("yes", "no", "yes", "no", "yes", "yes")
    b = answers("yes", "yes", "yes", "no", "no")["detailed_results"]
    b += [row(5, decision_method="exact"), row(6, None)]
    options = ("--samples", "1", "--report", "md", "html")
    outcome, _ = agree(project, {"a": a, "b": b}, *options, people=[row(0, 1), row(1, 0)])
    assert (outcome.code, outcome.err) == (0, [f"warning: {ALONE}: 1, e.g. Q5?", "1 warning"])
    printed = blocks(outcome.out)
    assert list(printed)[1:3] == ["ALL ITEMS", "COMPARED WITH PEOPLE: PEOPLE"]
    judges, items, people, disagreements, _ = printed.values()
    assert judges.startswith(JUDGES_TABLE)
    assert items.startswith(PAIRS_TABLE)
    assert "Fleiss' kappa of the 5 items that all judged: 0.17" in items.splitlines()
    assert "Krippendorff's nominal alpha of the 5 items that several judged: 0.25" in items.splitlines()
    assert f"All items: no interval of {OF_ALL}: {FEW}" in items.splitlines()
    columns = list(map(str.split, people.splitlines()[1:5]))
    assert [line.split() for line in PEOPLE_TABLE.splitlines()[1:]] == [cells[:8] for cells in columns]
    assert mentions(people.splitlines(), "Left out of the majority vote: tied 1, with fewer judges 0")
    assert mentions(disagreements.splitlines(), '"Q1?"', '"g1"', '"p1"', "a no", "b yes")
    assert all("unanimous" in (project.folder / f"agreement.{form}").read_text() for form in ("md", "html"))


MANY = scores(*range(2_000))
TAKEN = "which is read or written as well: rename one"
BAD_USAGE = {
    "one judge": ("a.json ./a.json", "agreement needs two judges, or one and --human, got a"),
    "people alone": ("--human a.json", "agreement needs two judges, or one and --human, got none"),
    "too many scores": ("many.json more.json", "there are 2000 different scores, more than 1000: round them"),
    "an input": ("a.json b.json --out ./b.json", f"./b.json would replace b.json, {TAKEN}"),
    "an input in another case": ("a.json b.json --out B.json", f"B.json would replace b.json, {TAKEN}"),
    "a report over an input": (
        "a.json many.md --report md --out many",
        f"many.md would replace many.md, {TAKEN}",
    ),
}


@table("arguments, message", BAD_USAGE)
def test_bad_usage(project: Project, arguments: str, message: str) -> None:
    for name, content in {"a": answers("yes"), "b": answers("yes"), "many": MANY, "more": MANY}.items():
        project.write(f"{name}.json", content)
    project.write("many.md", answers("yes"))
    assert assert_refused(project, "agreement", "--quiet", *arguments.split()) == [f"error: {message}"]


def test_the_problems_of_all_files_are_listed(project: Project) -> None:
    rows = [{"id": 1, "score": "maybe"}, {"id": 2, "score": "high"}, {"input": "q", "score": 1}]
    split = {"strong": {"llm_judge": {"per_question": [{"question_id": "q1", "answer_score_raw": "high"}]}}}
    files = {"rows": rows, "split": split, "undecided": [row(0, None)], "torn": "[{"}
    names = [f"{name}.json" for name in (*files, "missing")]
    for name, content in files.items():
        project.write(f"{name}.json", content)
    assert assert_refused(project, "agreement", *names, "--eval-dir", "nowhere") == [
        "nowhere: no files *__judge-NAME.json, nor a folder for each judge",
        "rows.json: [0]: score: expected a number, yes or no, got maybe",
        "rows.json: [1]: score: expected a number, yes or no, got high",
        "rows.json: [2]: what was judged is missing or blank: expected answer_id, question and prediction, "
        "item, id or question_id, found input, score",
        "split.json: strong: [0]: score: expected a number, yes or no, got high",
        f"undecided.json:1: no row has a score: {FILL_IN}",
        "torn.json:1: JSON is cut off",
        f"missing.json: file not found in {project.folder}; found split.json",
    ]


# ------------------------------------------------------------------ A judge and the people who check it

ROOT = Path(evaluation.__file__).resolve().parent
# What version 5 had in the results of the split for the same sheet
TRAIN = {
    "ratings": 23,
    "raters": 2,
    "items": 15,
    "questions": 15,
    "documents": 11,
    "most_common_label": 1,
    "most_common_label_share": 0.391304347826087,
    "krippendorff_alpha": 0.6889410318022975,
    "accuracy": 0.5652173913043478,
    "accuracy_within_1": 0.7391304347826086,
    "kappa": 0.7540106951871658,
    "people_minus_judge": -0.6,
    "ci95": {
        "accuracy": [0.365349202239, 0.746418195354],
        "accuracy_within_1": [0.479137698841, 0.914297299957],
        "kappa": [0.421791263615, 0.918548608392],
        "krippendorff_alpha": [0.23182441701, 0.869492521235],
        "people_minus_judge": [-1.3458224717, 0.181218333349],
    },
}
AMONG_PEOPLE = 0.7254672897196262


def judge_by_text(call: Call) -> Reply:
    return score_reply(1 + zlib.crc32(pasted(call).encode()) % 5)


def test_the_figures_of_a_judge_and_people_on_the_sample_split(project: Project, serve: Serve) -> None:
    """Two people score 15 answers, and not always as the judge does."""
    for name in ("corpus", "NLP Project Data"):
        shutil.copytree(ROOT / name, project.folder / name, dirs_exist_ok=True)
    for path in ROOT.glob("train_*_output.json"):
        shutil.copy(path, project.folder)
    serve(judge_by_text)
    assert project.run("train", "--label-sheet").code == 0
    sheet = project.folder / "train_labels.csv"
    labels = []
    for row in list(csv.DictReader(sheet.read_text("utf-8-sig").splitlines(keepends=True)))[:15]:
        judged = 1 + zlib.crc32(row["answer"].encode()) % 5
        for rater in ("ann", "bob"):
            change = zlib.crc32((row["answer_id"] + rater).encode()) % 4
            score = min(5, max(1, judged + (0, 0, 1, -2)[change]))
            if rater == "ann" or change:
                labels.append((row["question_id"], row["answer_id"], score, rater))
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("question_id", "answer_id", "score", "rater"), *labels])
    project.run("train")
    outcome = project.run("agreement", "--quiet", "train_evaluation.json", "--human", "train_labels.csv")
    assert (outcome.code, outcome.err) == (0, [])
    people = project.read("agreement.json")["people"]
    [judge] = people["judges"]
    assert {name: judge[name] for name in TRAIN} == TRAIN
    assert people["among_people"]["krippendorff_alpha"] == pytest.approx(AMONG_PEOPLE, abs=1e-15)


JUDGED = [4, 2, 5, 3, 4, 1, 5, 3]
DOCUMENTS = ["d1", "d2", "d3", "d4", "d5", "d6", "d6", "d1"]


def judged_eight(documents: Sequence[str] = DOCUMENTS, judged: Sequence[int] = JUDGED, **more: Any) -> Row:
    """Return results of a split: scores of answers a0, a1, ... to questions about these documents."""
    asked = [{"question_id": f"q{n}", "gold_doc_id": name} for n, name in enumerate(documents)]
    rows = []
    for n, score in enumerate(judged):
        row = {"question_id": f"q{n}", "answer_id": f"a{n}", "answer_score_raw": score, "judge_score": score}
        rows.append({**row, "answer_rationale": "So."})
    judge = {"judge_model": "big/model", "per_question": rows}
    return {"strong": {"retrieval": {"per_question": asked}, "llm_judge": judge, **more}}


def compare_with(project: Project, people: Sequence[int | None], judge: Row | None = None) -> Any:
    """Return the judge's figures, and the lines below the table."""
    rows = [f"a{n},{score}" for n, score in enumerate(people) if score is not None]
    labels = "\n".join(["answer_id,score", *rows])
    outcome, results = agree(project, {"judge": judge or judged_eight()}, people=labels)
    assert (outcome.code, outcome.err) == (0, [])
    [found] = results["people"]["judges"]
    return found, blocks(outcome.out)["COMPARED WITH PEOPLE: PEOPLE"].splitlines()


def test_judge_and_people_by_hand(project: Project) -> None:
    people = [4, 3, 5, 1, 4, 2]
    found, lines = compare_with(project, people)
    assert (found["ratings"], found["questions"]) == (6, 6)
    assert (found["accuracy"], found["accuracy_within_1"], found["people_minus_judge"]) == (3 / 6, 5 / 6, 0)
    assert found["kappa"] == pytest.approx(1 - 6 * 6 / 130, abs=1e-12)  # squares: 6 observed, 130 crosswise
    assert found["krippendorff_alpha"] == evaluation.krippendorff_alpha([JUDGED[:6], people], "ordinal")
    gap = mean_interval([(4 + gap) / 8 for gap in (0, 1, 0, -2, 0, 1)])  # from -4 to 4
    assert found["ci95"]["people_minus_judge"] == pytest.approx([8 * end - 4 for end in gap], abs=1e-9)
    few = "fewer than 5 documents have a rating other than the most common one: 4"  # which is 4
    assert (found["ci95"]["kappa"], found["ci95_reason"]["kappa"]) == (None, few)
    assert f"big/model: no interval of Cohen's kappa and Krippendorff's alpha: {few}" in lines
    assert "big/model: On average the judge is as high as people: 0.0 of 100 points of a grade." in lines


STRICT = "The judge is too strict to grade by its scores alone."
MEANINGS = {  # people's scores -> starts of the sentences on what they mean for grades
    "as the judge": (JUDGED[:6], []),
    "the other way round": ([2, 4, 1, 3, 2, 5], ["Kappa is below 0.4: "]),
    "a level lower": ([3, 1, 4, 2, 3, None, 4], ["The judge is too kind to grade by its scores alone."]),
    "lower, on three documents": ([2, 1, 3], []),
    "higher, on two documents": ([5, 4], []),
    "higher and random": ([5, 4, None, 5, 5, 4, None, 5], ["Kappa is below 0.4: ", STRICT]),
}


@table("people, starts", MEANINGS)
def test_poor_agreement(project: Project, people: list[int | None], starts: list[str]) -> None:
    lines = [line.removeprefix("big/model: ") for line in compare_with(project, people)[1]]
    found = [line for line in lines if line.startswith(("Kappa is", "The judge is"))]
    assert [line[: len(start)] for line, start in zip(found, starts, strict=True)] == starts
    assert mentions(lines, "On average the judge is ", " of 100 points of a grade.")


def test_what_kappa_cannot_tell(project: Project) -> None:
    """Few labels are no proof that a judge is useless, and nearly equal ones no poor agreement."""
    documents = [f"d{n:02d}" for n in range(40)]
    _, lines = compare_with(project, [5] * 29 + [4], judged_eight(documents, [5] * 30))
    alike = "big/model: 97% of people's labels are 5: kappa tells little then; exact agreement is 97%."
    assert (alike in lines, mentions(lines, "no basis")) == (True, False)
    assert mentions(
        lines, "no interval of Cohen's kappa", "fewer than 5 documents", " the most common one: 1"
    )
    judge = judged_eight(documents, [5, 4, 2, 1, 3, 5, 2, 4])
    _, lines = compare_with(project, [3, 5, 1, 4, 3, 2, 4, 5], judge)
    assert mentions(lines, "]: cannot tell yet, label more.")
    judge = judged_eight(documents, [1, 2, 3, 4, 5] * 8)
    _, lines = compare_with(project, [3, 5, 1, 4, 2] * 8, judge)
    assert "big/model: Kappa is below 0.4: the judge's scores alone are no basis for grades." in lines


def test_the_scale_of_a_gap_is_that_of_the_judge_and_people(project: Project) -> None:
    """Another judge's wider scale changes nothing."""
    judge, people = scores(1, 2, 3, 4, 5, 3), scores(2, 2, 4, 4, 5, 1)
    intervals = []
    for others in ([], [scores(0, 9, 3, 10, 5, 7)]):
        found = compare(project, judge, *others, people=people)
        intervals.append(found["people"]["judges"][0]["ci95"]["people_minus_judge"])
    gap = mean_interval([(4 + gap) / 8 for gap in (1, 0, 1, 0, 0, -2)])  # from -4 to 4
    assert intervals == [pytest.approx([8 * end - 4 for end in gap], abs=1e-9)] * 2


# ------------------------------------------------------------------ Which answers and raters are the same

CLASS = ("agreement", "--quiet", "dev_graded/*/dev_evaluation.json", "--human", "dev_labels.csv")


def grade_class(project: Project, serve: Serve) -> None:
    """Grade three students, of whom one and two give the same answers. The judge gives 3 to all."""
    project.questions(*(question(f"d{n}", question_id=f"q{n}") for n in range(6)))
    common = {f"q{n}": {"answer": "It is common."} for n in range(6)}
    own = {f"q{n}": {"answer": f"It is d{n}."} for n in range(6)}
    for name, rows in {"one": common, "two": common, "three": own}.items():
        project.submission(f"in/{name}", final=rows)
    serve(score_reply(3))
    assert project.run("dev", "--submissions", "in/*").code == 0


def test_a_class_is_compared_with_its_label_sheet(project: Project, serve: Serve) -> None:
    """Files of one judge are one rater's. Equal answers share a row of the sheet."""
    grade_class(project, serve)
    assert project.run("dev", "--submissions", "in/*", "--label-sheet").code == 0
    rows = fill_in(project, lambda row: "2" if "common" in row["answer"] else "4")
    assert [row["criterion"] for row in rows] == ["answer"] * 12
    outcome = project.run(*CLASS)
    assert (outcome.code, outcome.err) == (0, [])
    results = project.read("agreement.json")
    assert [row["judge"] for row in results["judges"]] == [JUDGE]
    [judge] = results["people"]["judges"]
    assert [judge[name] for name in ("items", "ratings", "too_kind", "too_strict")] == [12, 12, 6, 6]


def test_each_repeat_is_a_rater(project: Project, judge_with: JudgeWith, small: Project) -> None:
    judge_with({"strong": [[5, 3], [2, 2]]})
    small.run("dev", "--repeats", "2")
    assert small.run("agreement", RESULTS).code == 0
    results = small.read("agreement.json")
    assert [row["judge"] for row in results["judges"]] == [f"{JUDGE} #1", f"{JUDGE} #2"]
    [pair] = results["all"]["pairs"]
    assert (pair["items"], pair["agreement"], pair["agreement_within_1"]) == (2, 0.5, 0.5)


@pytest.mark.parametrize("options", [(), ("--all-decisions",)])
def test_repeats_are_those_of_a_judge_over_all_files(
    project: Project, serve: Serve, options: tuple[str, ...]
) -> None:
    """A student whose answers are all blank was not judged: that makes no third judge."""
    project.questions(*(question(f"d{n}", question_id=f"q{n}") for n in range(6)))
    project.submission("in/one", final={f"q{n}": {"answer": f"It is d{n}."} for n in range(6)})
    project.submission("in/two", final={f"q{n}": {"answer": ""} for n in range(6)})
    serve(lambda call: score_reply(4 if call.body["seed"] == FIRST_SEED else 2))
    assert project.run("dev", "--submissions", "in/*", "--repeats", "2").code == 0
    outcome = project.run("agreement", "--quiet", "dev_graded/*/dev_evaluation.json", *options)
    assert (outcome.code, outcome.err) == (0, [])
    results = project.read("agreement.json")
    assert [judge["judge"] for judge in results["judges"]] == [f"{JUDGE} #1", f"{JUDGE} #2"]
    n_items = 12 if options else 6
    assert [judge["decisions"] for judge in results["judges"]] == [n_items, n_items]
    assert results["all"]["items_of_all"] == n_items


# The mean in a file without its repeats, and another rating -> equal, at most 1 apart, the gap
MEANS = [(4.5, 5, 0, 1, 0.5), (4.5, 4, 0, 1, -0.5), (2.5, 4, 0, 0, 1.5), (4, 4, 1, 1, 0)]


@pytest.mark.parametrize(("mean", "other", "equal", "near", "gap"), MEANS)
def test_a_mean_is_no_level(
    project: Project, mean: float, other: int, equal: float, near: float, gap: float
) -> None:
    """It is the same number beside people and beside a judge."""
    found = compare(project, scores(mean), scores(other), people=scores(other))
    [pair] = found["all"]["pairs"]
    [judge, _] = found["people"]["judges"]
    assert (pair["agreement"], pair["agreement_within_1"]) == (equal, near)
    assert (judge["accuracy"], judge["accuracy_within_1"], judge["people_minus_judge"]) == (equal, near, gap)


def test_each_criterion_is_a_group(project: Project) -> None:
    polite = [{"question_id": f"q{n}", "answer_id": f"a{n}", "judge_score": n % 2} for n in range(8)]
    rows = [f"a{n},{name},{score}" for n in range(8) for name, score in (("answer", 3), ("Polite", n % 2))]
    people = "\n".join(["answer_id,criterion,score", *rows, "a0,kind,1"])
    judge = judged_eight(polite={"per_question": polite})
    outcome, results = agree(project, {"judge": judge}, people=people)
    assert results["people"]["judges"][0]["accuracy"] == 2 / 8
    [judge_row] = results["criteria"]["polite"]["people"]["judges"]
    assert (judge_row["accuracy"], judge_row["ratings"]) == (1, 8)
    assert "COMPARED WITH PEOPLE: PEOPLE, BY POLITE" in blocks(outcome.out)
    assert outcome.code == 3  # for a row by a criterion that no judge has
    assert mentions(outcome.err, "people.csv: ratings of items that no judge has", ": 1, e.g. a0")


def test_repeats_and_own_criteria_of_answers(project: Project, serve: Serve) -> None:
    """What needed no judge is left out; an own criterion is a group."""
    rows = [{"id": f"i{n}", "question": f"Q{n}?", "gold": "Yes.", "prediction": f"A{n}."} for n in range(3)]
    project.write("log.json", [*rows, {**rows[0], "id": "same", "prediction": "yes"}])

    def answer(call: Call) -> Reply:
        word = "yes" if call.body["seed"] == FIRST_SEED else "no"
        reply = {"reasoning": "So.", "correct": word, "rationale": "So.", "decision": "yes"}
        return completion(json.dumps(reply))

    serve(answer)
    command = ("answers", "log.json", "--method", "llm_judge", "--repeats", "2")
    assert project.run(*command, "--criteria", "polite=Is it?").code == 0
    assert project.run("agreement", "log_answers.json").code == 0
    results = project.read("agreement.json")
    assert [row["judge"] for row in results["judges"]] == [f"{JUDGE} #1", f"{JUDGE} #2"]
    assert (results["compared"], results["all"]["pairs"][0]["items"]) == ("correct", 3)
    assert results["all"]["pairs"][0]["agreement"] == 0
    polite = results["criteria"]["polite"]
    assert (polite["compared"], polite["all"]["pairs"][0]["agreement"]) == ("score", 1)


SUBMISSION_FORMS = [
    ("question_id,submission,score", "q1,three,4"),
    ("question_id,submission,system,score", "q1,three,final,4"),
    ("question_id,system,score", "q1,three/final,4"),
]


@pytest.mark.parametrize(("header", "row"), SUBMISSION_FORMS)
def test_labels_that_name_a_submission(project: Project, serve: Serve, header: str, row: str) -> None:
    grade_class(project, serve)
    project.write("dev_labels.csv", f"{header}\n{row}\n")
    assert project.run(*CLASS).code == 0
    assert project.read("agreement.json")["people"]["items"] == 1


def test_disagreements_in_a_class_say_whose_answer_it_is(project: Project, serve: Serve) -> None:
    grade_class(project, serve)
    shutil.copytree(project.folder / "dev_graded", project.folder / "first/dev_graded")
    serve(score_reply(5))
    assert project.run("dev", "--submissions", "in/*", "--model", LLAMA).code == 0
    project.run("agreement", "first/dev_graded/*/dev_evaluation.json", "dev_graded/*/dev_evaluation.json")
    found = {row["system"] for row in project.read("agreement.json")["disagreements"]}
    assert found == {"one/final", "three/final"}


OWN = [  # a criterion, people's words for the first two answers, and the judge's reply
    ("polite", ["yes", "no"], {"rationale": "So.", "decision": "yes"}),
    ("support", ["full", "none"], {"rationale": "So.", "support": "full"}),
]


@pytest.mark.parametrize(("criterion", "words", "reply"), OWN)
def test_people_use_words(small: Project, serve: Serve, criterion: str, words: list[str], reply: Row) -> None:
    """What needed no judge, as an answer that cites nothing, is no decision of the judge."""
    own = completion(json.dumps(reply))
    serve(lambda call: score_reply(4) if "rubric level" in str(call.body) else own)
    cited = {"answer": "It is d1.", "evidence_sentences": ["S1"]}
    uncited = {"answer": "It is d2." if criterion == "polite" else "No idea."}
    small.predictions("strong", {"q001": cited, "q002": uncited})
    value = "support" if criterion == "support" else "polite=Is it polite?"
    assert small.run("dev", "--criteria", value).code == 0
    rows = [f"q00{n},strong,{criterion},{word}" for n, word in enumerate(words, start=1)]
    small.write("people.csv", "\n".join(["question_id,system,criterion,score", *rows]))
    assert small.run("agreement", RESULTS, "--human", "people.csv").code == 0
    results = small.read("agreement.json")
    n_decisions = 2 if criterion == "polite" else 1
    kind = "correct" if criterion == "polite" else "score"  # people said yes or no
    assert (results["compared"], results["judges"][0]["decisions"]) == (kind, n_decisions)
    [judge] = results["people"]["judges"]
    assert (judge["items"], judge["accuracy"]) == (n_decisions, 1 / n_decisions)


def test_answers_that_are_judged_by_own_criteria_alone(project: Project, serve: Serve) -> None:
    project.write("log.json", [{"question": f"Q{n}?", "answer": f"A{n}."} for n in range(3)])
    serve(completion('{"rationale": "So.", "decision": "yes"}'))
    for model in (JUDGE, LLAMA):
        command = ("answers", "log.json", "--criteria", "direct=Is it?", "--model", model, "--out", model)
        assert project.run(*command).code == 0
    outcome = project.run("agreement", "--quiet", f"{JUDGE}/*.json", f"{LLAMA}/*.json")
    assert (outcome.code, outcome.err) == (0, [])
    assert project.read("agreement.json")["all"]["items_of_all"] == 3


def test_a_judge_as_a_model_and_as_the_name_of_a_file_is_one_rater(project: Project) -> None:
    files = {
        "one": {**answers("yes", "no"), "judge_model": JUDGE},
        "two__judge-openai-gpt-oss-20b": answers(..., ..., "yes"),
        "other__judge-x": answers("yes", "yes", "yes"),
    }
    outcome, results = agree(project, files)
    assert (outcome.code, [row["judge"] for row in results["judges"]]) == (0, [JUDGE, "x"])
    assert results["all"]["items_of_all"] == 3


# ------------------------------------------------------------------ How files are read


def test_a_column_for_each_rater(project: Project) -> None:
    """Only if they are named, or an index might be a rater; a column `score` beside them does not count."""
    content = "item;Ann;bob;score\na;4.5;4.5;1\nb;;3;2\nc;1;1;3\n"
    project.write("t.csv", content)
    outcome = project.run("agreement", "t.csv", "--columns", "rater=Ann,bob")
    read, alone, _ = outcome.err
    assert (outcome.code, read) == (0, "t.csv: 5 ratings, a column for each rater: Ann, bob")
    assert alone == f"warning: {ALONE}: 1, e.g. b"
    results = project.read("agreement.json")
    assert [judge["undecided"] for judge in results["judges"]] == [0, 0]  # an empty cell is no rating
    [pair] = results["all"]["pairs"]
    assert (pair["judge"], pair["with"], pair["items"], pair["agreement"]) == ("Ann", "bob", 2, 1.0)
    [read] = results["read"]
    assert read == {"file": "t.csv", "ratings": 5, "form": "a column for each rater: Ann, bob"}
    refused = assert_refused(project, "agreement", "t.csv", "--columns", "rater=ann,eve")
    assert refused == ["t.csv: --columns rater=eve: found item, ann, bob, score"]
    project.write("t.csv", content.replace("score", "index"))
    assert assert_refused(project, "agreement", "t.csv") == [f"t.csv:1: no row has a score: {FILL_IN}"]
    refused = assert_refused(project, "agreement", "t.csv", "--columns", "rater=item,bob")
    assert refused[0] == "t.csv: --columns rater=item: it names what was rated"


SECOND = "delete one, or give each answer an ID of its own"
BAD_RATINGS = {  # content -> the problem, after the name of the file
    "an item twice": ("item,score\na,1\nb,2\na,2\n", f"4: a second rating of a by t: {SECOND}"),
    "equal ratings": (
        "item,rater,score\na,ann,1\na,bob,1\na,ann,1\n",
        f"4: a second rating of a by ann: {SECOND}",
    ),
    "an answer ID twice": ("answer_id,score\na,1\na,1\n", f"3: a second rating of a by t: {SECOND}"),
    "a blank rater": ("item,rater,score\na,ann,1\nb,,1\nc,,\n", "3: rater is blank, and other rows name one"),
    "a blank criterion": (
        "item,criterion,score\na,,1\nb,polite,1\n",
        "2: criterion is blank, and other rows name one",
    ),
    "verdicts and scores": (
        "item,correct,score\na,yes,3\n",
        "2: correct and score: leave one of them blank",
    ),
}


@table("content, problem", BAD_RATINGS)
def test_what_a_table_of_ratings_may_not_have(project: Project, content: str, problem: str) -> None:
    project.write("t.csv", content)
    assert assert_refused(project, "agreement", "t.csv") == [f"t.csv:{problem}"]


GOOD_RATINGS = {
    "other criteria": "item,rater,criterion,score\na,ann,polite,1\na,ann,kind,1\na,bob,polite,1\n",
    "other systems": "system,question_id,rater,score\nx,q1,ann,1\ny,q1,ann,2\nx,q1,bob,2\ny,q1,bob,2\n",
    "other submissions": "submission,id,rater,score\nx,1,ann,1\ny,1,ann,2\nx,1,bob,2\ny,1,bob,2\n",
    "equal texts": "question,gold,answer,rater,score\nQ,g,p,ann,1\nQ,g,p,ann,1\nQ,g,p,bob,1\n",
    "one of two is rated": "item,rater,score\na,ann,1\na,ann,\na,bob,1\n",
    "nobody has a rater": "item,rater,score\na,,1\nb,,2\n",
}


@table("content", GOOD_RATINGS)
def test_what_is_no_second_rating(project: Project, content: str) -> None:
    project.write("t.csv", content)
    project.write("u.csv", content)
    assert project.run("agreement", "t.csv", "u.csv").code == 0


def test_what_stems_name_are_several_judges(project: Project) -> None:
    """A file's name is that of a judge as it stands; `gpt 4` and `gpt-4` are two."""
    _, results = agree(project, {"gpt 4": scores(1, 2), "gpt-4": scores(1, 2)}, "gpt 4.json", "gpt-4.json")
    assert [judge["judge"] for judge in results["judges"]] == ["gpt 4", "gpt-4"]


def test_people_rate_equal_answers_of_several_systems(project: Project) -> None:
    split = split_results(simple=[3], strong=[3])
    for block in split.values():
        block["llm_judge"]["per_question"][0]["answer_id"] = "a1"
    results = compare(project, split, people="system,question_id,score\nsimple,q0,3\nstrong,q0,3\n")
    assert results["people"]["judges"][0]["accuracy"] == 1
