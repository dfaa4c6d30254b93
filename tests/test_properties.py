"""What holds for every input, and the whole of a random split against an independent calculation."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import evaluation
import pytest
from evaluation import Failure, Judgement, JudgeRequest, JudgeRun
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from conftest import QUESTIONS_FILE, SCALE, question

Row = dict[str, Any]
repeatable = settings(derandomize=True, deadline=None, max_examples=100)
with_files = settings(repeatable, max_examples=30)

# ------------------------------------------------------------------------------------------- a random project


@dataclass(frozen=True)
class Case:
    """A split before it is written: raw rows, what stands in corpus/ by file name, and the judge's verdicts.

    A verdict is a score by question ID; 0 is a failure.
    """

    questions: list[Row]
    systems: dict[str, dict[str, Row]]
    documents: dict[str, object]
    verdicts: dict[str, int]
    line_end: str = "\n"
    opening: str = ""


DOC_IDS = ("d1", "d2", "gold/d3")
IDS = ("q001", "q002", "x", "q003", "q004")
CITATIONS: tuple[list[str], ...] = (
    [],
    ["S1"],
    ["S2"],
    ["S1", "S2"],
    ["S3", "S1", "S3"],
    ["S2", "S10"],
    ["S3", "S2"],
    ["s1"],
)
TEXTS = (
    ["Oil was dear.", "the LAMP\nburned\u3000oil", "The lamp burned oil."],
    ["É é oil", "oil OIL lamp", "lamp"],
    ["The lamp burned oil."],
)


def members(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    """Objects whose members each have one of their values; a member that draws ... is left out."""
    return st.fixed_dictionaries(values).map(
        lambda row: {name: value for name, value in row.items() if value is not ...}
    )


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    found: dict[str, object] = {}
    for doc_id in DOC_IDS:
        kind = draw(st.sampled_from([".json", ".json", ".txt", "plain", "missing"]))
        if kind == "plain":
            found[f"{doc_id}.txt"] = "S1 The lamp burned oil."
        elif kind != "missing":
            name = draw(st.sampled_from(["sid", "id"]))
            rows = [
                {name: f"S{n}", "text": text} for n, text in enumerate(draw(st.sampled_from(TEXTS)), start=1)
            ]
            found[doc_id + kind] = {"doc_id": doc_id, "sentences": rows}
    return found


@st.composite
def retrieved_docs(draw: st.DrawFn) -> list[str | Row]:
    """Documents with a rank each, with a rank for some, as plain IDs, or as a mixture."""
    ids = draw(st.lists(st.sampled_from([*DOC_IDS, "d3", "d4"]), max_size=7))
    step = draw(st.integers(1, 6))
    ranked = [{"doc_id": doc_id, "rank": (place * step + 3) % 7} for place, doc_id in enumerate(ids)]
    unranked = [{"doc_id": doc_id, "rank": None} for doc_id in ids]
    styles: list[list[str | Row]] = [
        [*ranked],
        [*ids],
        [*ranked[:2], *unranked[2:]],
        [*ids[:1], *ranked[1:]],
    ]
    return draw(st.sampled_from(styles))


predictions = members(
    answer=st.sampled_from(["Yes.", "Oil.", "é", "", " \n", None, ...]),
    evidence_sentences=st.sampled_from([*CITATIONS, None, ...]),
    retrieved_docs=retrieved_docs() | st.sampled_from([None, ...]),
)
RUBRIC = {"description": "Is it right?", "scale": SCALE}
questions = st.builds(
    dict.__or__,
    st.builds(
        question, st.sampled_from(DOC_IDS), rubric=st.just(...), evidence_sentences=st.sampled_from(CITATIONS)
    ),
    members(
        question_id=st.sampled_from([..., None, *IDS]),
        rubric=st.sampled_from([RUBRIC, RUBRIC, RUBRIC, None, ...]),
    ),
)
systems = st.lists(predictions, min_size=1, max_size=5).map(lambda rows: dict(zip(IDS, rows, strict=False)))
cases = st.builds(
    Case,
    questions=st.lists(questions, min_size=1, max_size=5),
    systems=st.fixed_dictionaries({"strong": systems}, optional={"simple": systems}),
    documents=documents(),
    verdicts=st.integers(0, 5).map(
        lambda first: {name: (first + place) % 6 for place, name in enumerate((*IDS, "q005"))}
    ),
    line_end=st.sampled_from(["\n", "\r\n", "\n \n"]),
    opening=st.sampled_from(["", "\ufeff"]),
)


def with_ids(case: Case) -> Case:
    """The case with IDs in its questions, each its own, so that they can change places."""
    rows = [row | {"question_id": name} for row, name in zip(case.questions, IDS, strict=False)]
    return replace(case, questions=rows)


named_cases = st.builds(with_ids, cases)


@contextmanager
def written(case: Case) -> Iterator[None]:
    """The case in files, in a folder that is the current directory for as long."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write(QUESTIONS_FILE, case.opening + case.line_end.join(map(json.dumps, case.questions)))
            for system, rows in case.systems.items():
                write(f"dev_{system}_output.json", case.opening + json.dumps(rows, indent=1))
            for name, content in case.documents.items():
                write(f"corpus/{name}", content if isinstance(content, str) else json.dumps(content))
            yield
        finally:
            os.chdir(before)


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def results_of(case: Case) -> Any:
    """The results file of the case, by way of its files and a judge that knows the verdicts."""

    def judge(requests: Sequence[JudgeRequest]) -> JudgeRun:
        ids = [request.question_id for request in requests]
        scores = [(name, case.verdicts[name]) for name in ids]
        return JudgeRun("m", "m", tuple(Judgement(n, name) if n else Failure(name) for name, n in scores))

    with written(case):
        split, read, _ = evaluation.read_all("dev")
    return json.loads(evaluation.render_results(evaluation.evaluate_split(split, read, judge)[0][0]))


# ------------------------------------------------------------------------------------ against the calculation


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Every plain value inside a JSON value by its path, and the length of every list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    else:
        yield path, value


@repeatable
@given(cases)
def test_every_figure_is_the_calculated_one(case: Case) -> None:
    results = results_of(case)
    assert set(results) == set(case.systems)
    for system, rows in case.systems.items():
        verdicts = case.verdicts if system == "strong" else None
        expected = oracle.blocks(case.questions, rows, case.documents, verdicts)
        others = {"slices", "run"} | ({"comparison"} if len(case.systems) > 1 else set())
        assert set(results[system]) - {"joint"} == {*expected, *others}
        wanted = dict(leaves(expected))
        found = {path: value for path, value in leaves(results[system]) if path in wanted}
        assert found == pytest.approx(wanted, abs=1e-12)


@with_files
@given(cases)
def test_every_failed_judgement_and_no_other_has_its_reason(case: Case) -> None:
    block = results_of(case)["strong"]["llm_judge"]
    failed = [row for row in block["per_question"] if row["failure"] is not None]
    assert [row["question_id"] for row in failed] == block["failed_questions"]
    assert [row["failure"] for row in failed] == block["failed_questions"]
    assert [row["answer_score_raw"] for row in failed] == [0] * len(failed)


# ------------------------------------------------------------------------------------------- of whole results


def figures(results: Any) -> Any:
    """The blocks of each system, rows and names in the order of the question IDs."""
    for blocks in results.values():
        for name in ("run", "comparison"):
            blocks.pop(name, None)
        for block in filter(lambda block: "per_question" in block, blocks.values()):
            block["per_question"].sort(key=lambda row: row["question_id"])
            block.get("failed_questions", []).sort()
    return results


def with_citations(case: Case, change: Any) -> Case:
    """The case with every list of sentence IDs changed, gold and predicted."""

    def changed(row: Row) -> Row:
        cited = row.get("evidence_sentences")
        return row | {"evidence_sentences": change(cited)} if cited else row

    return replace(
        case,
        questions=[changed(row) for row in case.questions],
        systems={
            name: {key: changed(row) for key, row in rows.items()} for name, rows in case.systems.items()
        },
    )


@with_files
@given(named_cases, st.data())
def test_the_order_of_questions_predictions_and_citations_changes_no_figure(
    case: Case, data: st.DataObject
) -> None:
    shuffled = with_citations(
        replace(
            case,
            questions=data.draw(st.permutations(case.questions)),
            systems={name: dict(reversed(rows.items())) for name, rows in case.systems.items()},
        ),
        lambda cited: cited[::-1],
    )
    assert figures(results_of(shuffled)) == figures(results_of(case))


@with_files
@given(cases)
def test_duplicates_in_citations_change_no_figure(case: Case) -> None:
    assert figures(results_of(with_citations(case, lambda cited: cited * 2))) == figures(results_of(case))


DENOMINATORS = ("total", "total_questions", "questions_with_evidence", "questions_with_rubrics")


@with_files
@given(named_cases, st.data())
def test_a_missing_prediction_changes_no_denominator_and_no_other_row(
    case: Case, data: st.DataObject
) -> None:
    lost = data.draw(st.sampled_from([row["question_id"] for row in case.questions]))
    rows = {name: row for name, row in case.systems["strong"].items() if name != lost}
    before = results_of(case)["strong"]
    after = results_of(replace(case, systems=case.systems | {"strong": rows}))["strong"]
    for name in ("retrieval", "citation", "llm_judge"):
        was, now = before[name], after[name]
        assert {key: now.get(key) for key in DENOMINATORS} == {key: was.get(key) for key in DENOMINATORS}
        kept = [[row for row in block["per_question"] if row["question_id"] != lost] for block in (was, now)]
        assert kept[0] == kept[1]


SHARES = ("precision", "recall", "f1", "evidence_score", "answer_score_normalized", "combined_score")


@with_files
@given(cases)
def test_scores_stay_between_0_and_1(case: Case) -> None:
    for blocks in results_of(case).values():
        for name in ("citation", "llm_judge"):
            block = blocks.get(name, {"per_question": []})
            shares = [row[key] for row in block["per_question"] for key in SHARES if key in row]
            averages = [block.get(f"avg_{key}") for key in SHARES]
            assert all(0 <= value <= 1 for value in (*shares, *averages) if value is not None)
        assert all(0 <= blocks["retrieval"][f"recall_at_{k}_pct"] <= 100 for k in (1, 5))


# -------------------------------------------------------------------------------------------- of one function

ids = st.lists(st.sampled_from("abcdef"), max_size=8)


@repeatable
@given(ids, ids, st.integers(0, 9), st.integers(0, 9))
def test_recall_grows_with_k(retrieved: list[str], gold: list[str], one: int, more: int) -> None:
    low, high = (evaluation.recall_at_k(retrieved, gold, k) for k in (one, one + more))
    assert 0 <= low <= high <= 1


@repeatable
@given(ids, ids)
def test_precision_is_recall_the_other_way_round(one: list[str], other: list[str]) -> None:
    precision, recall, f1 = evaluation.citation_scores(one, other)
    assert evaluation.citation_scores(other, one) == (recall, precision, f1)
    assert min(precision, recall) <= f1 + 1e-12
    assert f1 <= max(precision, recall) + 1e-12


@repeatable
@given(st.lists(st.sampled_from("ab"), min_size=1), ids, st.sampled_from("abcdef"), st.booleans())
def test_one_more_citation_never_lowers_the_evidence_score(
    gold: list[str], cited: list[str], more: str, structured: bool
) -> None:
    texts = {"a": "the lamp", "b": "the oil", "c": "THE rain", "d": "snow"} if structured else None
    before = evaluation.evidence_score(gold, cited, texts)
    assert 0 <= before <= evaluation.evidence_score(gold, [*cited, more], texts) <= 1


@repeatable
@given(st.lists(st.text("0123456789abcdef\ud800", max_size=12), max_size=3))
def test_a_fence_marker_stands_in_no_text(texts: list[str]) -> None:
    assert not any(evaluation.fence_marker(texts) in text for text in texts)


@repeatable
@given(st.text("a \t\n\r\x0b\x0c\x1c\x1e\x1b\x7f\x85\x9b\u2028\u2029\u202e\ufeff\ud800é漢"))
def test_what_is_printed_stays_on_its_line(text: str) -> None:
    shown = evaluation.printable(text)
    assert len(shown.splitlines()) <= 1
    assert evaluation.printable(shown) == shown


# ---------------------------------------------------------------------------------------------- of JSON texts

scalars = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-3, 9) | st.text('a"\\\n4{[é', max_size=4)
)
keys = st.sampled_from(["score", "rationale", "a", ""])
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)
containers = st.lists(json_values, max_size=3) | st.dictionaries(keys, json_values, max_size=3)
json_texts = st.builds(
    lambda value, indent: "\n " + json.dumps(value, indent=indent, ensure_ascii=False),
    containers,
    st.sampled_from([None, 1, "\t"]),
)


def places(value: Any, text: str, offset: int) -> Iterator[tuple[object, int]]:
    """Each value inside, with the offset that `json_places` gives it."""
    yield value, offset
    if isinstance(value, (dict, list)):
        inner = value if isinstance(value, dict) else dict(enumerate(value))
        found = evaluation.json_places(text, offset)
        assert found.keys() == inner.keys()
        for key, item in inner.items():
            yield from places(item, text, found[key])


@repeatable
@given(json_texts)
def test_json_places_finds_every_value(text: str) -> None:
    for value, offset in places(json.loads(text), text, 2):
        assert json.JSONDecoder().raw_decode(text, offset)[0] == value


@repeatable
@given(json_texts, st.data())
def test_predictions_refuse_what_json_refuses(text: str, data: st.DataObject) -> None:
    text = f'{{"q001": {{"x": {text}}}}}'
    place = data.draw(st.integers(1, len(text)))
    new = data.draw(st.sampled_from(["", *'{}[],:"\\ 0a']))
    damaged = text[:place] + new + text[place + 1 :]
    problems: list[evaluation.Problem] = []
    evaluation.parse_predictions(damaged, "file", problems)
    assert any(problem.expected == "JSON" for problem in problems) == no_json(damaged)


def no_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return True
    return False


shapes = st.recursive(
    st.sampled_from([evaluation.TEXT, evaluation.NAME, evaluation.NUMBER, evaluation.SCORE]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=1)
        | st.dictionaries(keys | keys.map(lambda name: f"{name}?"), inner, max_size=3)
        | st.tuples(st.just(lambda value: isinstance(value, dict)), inner, inner)
    ),
    max_leaves=5,
)


@repeatable
@given(json_texts, shapes)
def test_what_does_not_match_has_a_problem_and_what_matches_has_none(text: str, shape: Any) -> None:
    problems: list[evaluation.Problem] = []
    value = json.loads(text)
    evaluation.JsonText(text, "file", problems).compare(2, shape)
    assert evaluation.matcher(shape)(value) == (not problems)


def one_odd(usual: Any, odd: Any) -> st.SearchStrategy[Any]:
    """Lists in which at most one item is odd."""
    lists = st.lists(usual, max_size=3)
    return lists | st.builds(lambda before, item, after: [*before, item, *after], lists, odd, lists)


odd_names = st.sampled_from([" ", "", "\u3000", 3, None, {"doc_id": "d1"}])
names = st.sampled_from(["S1", "d2", " d3"])
odd_entries = [
    st.fixed_dictionaries({"doc_id": names, "rank": st.sampled_from([True, 1.5, "1"])}),
    st.fixed_dictionaries({"doc_id": odd_names, "rank": st.integers(-2, 2)}),
    st.dictionaries(st.sampled_from(["doc_id", "rank"]), names, max_size=2) | names | odd_names,
]
entries = st.fixed_dictionaries({"doc_id": names, "rank": st.integers(-2, 2)})
usual_members = {
    "question": st.just("lamp"),
    "answer": st.just(""),
    "evidence_sentences": one_odd(names, odd_names),
    "retrieved_docs": one_odd(entries, st.one_of(odd_entries)),
}
odd_member = st.builds(lambda name, value: {name: value}, st.sampled_from([*usual_members]), json_values)
predictions = st.builds(
    lambda usual, odd: usual | odd, st.fixed_dictionaries(usual_members), st.just({}) | odd_member
)


@settings(repeatable, max_examples=500)
@given(predictions)
def test_the_usual_way_to_a_prediction_is_the_other_way_made_short(value: object) -> None:
    usual = evaluation._usual_prediction(value)
    if usual is not None:
        assert evaluation.matcher(evaluation.PREDICTION_SHAPE)(value)
        assert usual == evaluation._prediction_from(value)


def score_or_none(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except evaluation.NotAScore:
        return None


@repeatable
@given(scalars | json_values | st.integers(1, 5).flatmap(lambda n: st.sampled_from([n, float(n), str(n)])))
def test_a_value_is_the_score_that_it_looks_like_or_none(value: object) -> None:
    looks = {str(n): n for n in range(1, 6)} | {f"{n}.0": n for n in range(1, 6)}
    assert score_or_none(lambda: evaluation.parse_choice(value)) == looks.get(str(value).strip())


@repeatable
@given(st.text('{}[]:,"score4. \n`') | json_texts)
def test_any_reply_is_a_judgement_or_refused(reply: str) -> None:
    assert score_or_none(lambda: evaluation.parse_judgement(reply).score) in (None, 1, 2, 3, 4, 5)
