"""Free answers: every make of row that is read, and every method, as tables of hand-computed cases."""

from __future__ import annotations

import hashlib
import json
import math
import random
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evaluation
import pytest
import sacrebleu
from evaluation import Classification, Faithfulness, Item, Problem, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

repeatable = settings(derandomize=True, deadline=None, max_examples=60)


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize by rows: what the case is -> its values."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


def item(gold: str | Sequence[str], prediction: str = "", **more: Any) -> Item:
    return Item(
        more.pop("id", "1"), "", (gold,) if isinstance(gold, str) else tuple(gold), prediction, **more
    )


def parsed(content: object) -> tuple[tuple[Item, ...], list[str]]:
    """The items of a file, and what is wrong with it."""
    problems: list[Problem] = []
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    items = evaluation.parse_items(text, "f.json", problems)
    return items, [str(problem).removeprefix("f.json:") for problem in problems]


def one(**fields: Any) -> Item:
    """The item that a row of these fields is."""
    [found], problems = parsed([fields])
    assert problems == []
    return found


# ---------------------------------------------------------------------------------------------------- reading
ROW = {"question": "What burned?", "expected_answer": "Oil", "generated_answer": "oil"}
ROW_ITEM = Item("1", "What burned?", ("Oil",), "oil")


@table(
    "content",
    {
        "a list": [ROW],
        "one line": json.dumps(ROW),
        "an object of many lines": json.dumps(ROW, indent=2),
        **{name: {"summary": {"n": 1}, name: [ROW]} for name in evaluation.ITEM_ROWS},
        "the first that is a list": {"results": {"mean": 1}, "data": [ROW], "items": [ROW]},
        "the first of two": {"data": [{}], "annotations": [ROW], "results": [{}]},
        "white space around": f" \n\t{json.dumps([ROW])}\r\n",
    },
)
def test_rows_stand_in_any_of_these(content: object) -> None:
    assert parsed(content) == ((ROW_ITEM,), [])


@table(
    "end",
    {"LF": "\n", "CRLF": "\r\n", "blank lines": "\n\n  \n", "an indent": "\n  "},
)
def test_json_lines(end: str) -> None:
    items, problems = parsed(end.join(json.dumps({**ROW, "id": name}) for name in "abc") + end)
    assert ([row.id for row in items], problems) == (["a", "b", "c"], [])


@pytest.mark.parametrize("name", ["expected_answer", "gold", "expected", "ground_truth", "answer"])
def test_names_of_the_gold_answer(name: str) -> None:
    assert one(**{name: "Oil"}).accepted == ("Oil",)


@pytest.mark.parametrize("name", ["generated_answer", "prediction", "generated"])
def test_names_of_the_prediction(name: str) -> None:
    assert one(gold="Oil", **{name: "oil"}).prediction == "oil"


@pytest.mark.parametrize("name", ["question", "input", "query"])
def test_names_of_the_question(name: str) -> None:
    assert one(gold="Oil", **{name: "What?"}).question == "What?"


@table(
    "fields, expected",
    {
        "all golds, the first by rank": ({"answer": "5", "expected": "3", "gold": "2"}, {"accepted": ("2",)}),
        "null and blank are passed over": (
            {"expected_answer": None, "gold": "", "answer": "5"},
            {"accepted": ("5",)},
        ),
        "options": ({"expected_options": ["a", "b", "a"]}, {"accepted": ("a", "b")}),
        "options and a gold": ({"expected_options": ["a", "b"], "gold": "b"}, {"accepted": ("b", "a")}),
        "options and an empty gold": ({"expected_options": ["a"], "gold": ""}, {"accepted": ("a",)}),
        "no options and a gold": ({"expected_options": [], "gold": "a"}, {"accepted": ("a",)}),
        "a number": ({"gold": 42, "prediction": 42.0}, {"accepted": ("42",), "prediction": "42.0"}),
        "a boolean": ({"gold": True, "prediction": False}, {"accepted": ("true",), "prediction": "false"}),
        "no prediction": ({"gold": "a", "prediction": None}, {"prediction": "", "question": ""}),
        "a blank prediction": ({"gold": "a", "prediction": " \n"}, {"prediction": ""}),
        "ID": ({"gold": "a", "id": "x", "question_id": "y"}, {"id": "x"}),
        "question ID": ({"gold": "a", "question_id": 7}, {"id": "7"}),
        "labels": ({"gold": "a", "category": "c", "model": "m"}, {"category": "c", "model": "m"}),
        "keywords": ({"gold": "a", "keywords": ["x", 5]}, {"keywords": ("x", "5")}),
        "a context": ({"gold": "a", "context": "x"}, {"context": ("x",)}),
        "contexts": ({"gold": "a", "context": ["x", "y"]}, {"context": ("x", "y")}),
        "amounts": (
            {"gold": "a", "latency_ms": 0, "input_tokens": 1.5, "output_tokens": 2},
            {"latency_ms": 0, "input_tokens": 1.5, "output_tokens": 2},
        ),
        "sources": ({"gold": "a", "sources": ["d1", 2]}, {"sources": ("d1", "2")}),
        "sources as objects": (
            {"gold": "a", "sources": [{"title": "T", "score": 1}, {"doc_id": "d"}, {"title": "T", "id": 3}]},
            {"sources": ("T", "d", "3")},
        ),
        "sources by the name that is expected": (
            {"gold": "a", "expected_sources": ["T", "U"], "sources": [{"id": 1, "title": "T"}]},
            {"expected_sources": ("T", "U"), "sources": ("T",)},
        ),
        "unknown fields": ({"gold": "a", "difficulty": {"x": [None]}, "score": "high"}, {"accepted": ("a",)}),
        "Korean": (
            {"질문": 1, "gold": "계좌입니다", "query": "무엇?"},
            {"accepted": ("계좌입니다",), "question": "무엇?"},
        ),
    },
)
def test_fields(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = one(**fields)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_row_with_nothing_but_a_gold_answer() -> None:
    assert parsed([{"gold": "a"}, {"gold": "b"}])[0] == (Item("1", "", ("a",)), Item("2", "", ("b",)))


@table(
    "value, expected",
    {
        **{repr(value): (value, True) for value in ("yes", "Yes ", "TRUE", "1", True, 1, 1.0)},
        **{repr(value): (value, False) for value in ("no", "False", "0", False, 0)},
        **{repr(value): (value, None) for value in (None, "")},
    },
)
def test_a_persons_verdict(value: object, expected: bool | None) -> None:
    assert one(gold="a", correct=value).correct is expected


ROWS = f"rows: a list, one object a line, or an object with a list as {', '.join(evaluation.ITEM_ROWS)}"
NO_GOLD = "expected a text that is not blank, or a number in"


@table(
    "content, expected",
    {
        "nothing": ("", ["1: expected JSON, found an empty file"]),
        "white space": (" \n", ["2: expected JSON, found an empty file"]),
        "an empty list": ("\n[]", [f"2: expected {ROWS}, found an empty list"]),
        "an empty list of rows": (
            '{"results":\n[]}',
            [f"2: expected {ROWS} in results, found an empty list"],
        ),
        "an object": ({"results": {}, "model": "m"}, [f"1: expected {ROWS}, found an object"]),
        "a text": ('"x"', [f'1: expected {ROWS}, found "x"']),
        "no gold": (
            '[{"gold": "a"},\n {"query": "b"}]',
            [f"2: {NO_GOLD} [1].expected_answer, found nothing"],
        ),
        "a blank gold": ('[{"answer": " "}]', [f"1: {NO_GOLD} [0].expected_answer, found nothing"]),
        "an empty gold": ('[{"expected_answer": ""}]', [f'1: {NO_GOLD} [0].expected_answer, found ""']),
        "no object": ('[{"gold": "a"}, 5]', ["1: expected an object in [1], found 5"]),
        "no JSON": (
            '[{"gold": "a"}',
            ["1: expected JSON, found a fault at column 15 (Expecting ',' delimiter)"],
        ),
        "a broken object": (
            '{"results": [\n {"gold": "a"},\n {"gold": "b"}\n}',
            ["4: expected JSON, found a fault at column 1 (Expecting ',' delimiter)"],
        ),
        "not a number": ('[{"gold": NaN}]', [f"1: {NO_GOLD} [0].gold, found NaN"]),
    },
)
def test_what_is_no_file_of_rows(content: object, expected: list[str]) -> None:
    assert parsed(content)[1] == expected


def test_all_that_is_wrong_is_said_at_once_with_its_line() -> None:
    rows = [
        {"gold": "a", "latency_ms": -1, "correct": "maybe"},
        {"gold": ["a"], "keywords": "k"},
        {"gold": "fine", "prediction": "fine"},
        {"gold": "a", "sources": ["d", {"name": "x"}], "context": ["x", 5], "expected_options": ["b", None]},
        {"prediction": {}, "gold": "a", "id": []},
        {"gold": "a", "input_tokens": 10**400, "output_tokens": 1e308},
    ]
    items, problems = parsed('{"n": 1,\n"items": [\n' + ",\n".join(map(json.dumps, rows)) + "]}")
    assert [row.prediction for row in items] == ["fine"]
    assert problems == [
        "3: expected a number from 0 to 2^53 in items[0].latency_ms, found -1",
        '3: expected yes or no in items[0].correct, found "maybe"',
        "4: expected a text that is not blank, or a number in items[1].gold, found a list",
        '4: expected a list in items[1].keywords, found "k"',
        "6: expected a text that is not blank, or a number in items[3].expected_options[1], found null",
        f"6: expected {evaluation.SOURCE.name} in items[3].sources[1], found an object",
        "6: expected a string in items[3].context[1], found 5",
        "7: expected a text or a number in items[4].prediction, found an empty object",
        f"8: expected a number from 0 to 2^53 in items[5].input_tokens, found 1{'0' * 55}...",
        "8: expected a number from 0 to 2^53 in items[5].output_tokens, found 1e+308",
    ]


def test_broken_json_lines() -> None:
    lines = ['{"gold": "a"', '{"gold": "b"}', "oops", "", '{"query": "c"}', "[]", " {}", '{"gold": "d"} x']
    items, problems = parsed("\n".join(lines))
    assert [row.accepted for row in items] == [("b",)]
    assert problems == [
        "1: expected JSON, found a fault at column 13 (Expecting ',' delimiter)",
        "3: expected JSON, found a fault at column 1 (Expecting value)",
        "5: expected a text that is not blank, or a number in expected_answer, found nothing",
        "6: expected an object, found an empty list",
        "7: expected a text that is not blank, or a number in expected_answer, found nothing",
        "8: expected JSON, found a fault at column 15 (Extra data)",
    ]


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "답.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([ROW], ensure_ascii=False).encode())
    problems: list[Problem] = []
    assert evaluation.read_file(str(path), evaluation.parse_items, problems)[1] == (ROW_ITEM,)
    assert problems == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = [name for _, names in evaluation.ITEM_FIELDS.values() for name in names]


@repeatable
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), JSON_VALUES, max_size=6), min_size=1, max_size=3))
def test_whatever_a_row_holds_it_is_an_item_or_a_problem(rows: list[dict[str, Any]]) -> None:
    items, problems = parsed(rows)
    assert (len(items) == len(rows)) == (problems == [])
    for row in items:
        assert row.accepted
        assert all(text.strip() for text in row.accepted)
        assert all(
            type(text) is str
            for text in (*row[:2], *row.accepted, row.prediction, *row.sources, *row.context)
        )
    assert parsed("\n".join(map(json.dumps, rows)))[0] == items


# --------------------------------------------------------------------------------------------- exact, keyword
@table(
    "gold, predicted, expected",
    {
        "the same": ("Oil", "Oil", True),
        "case": ("Whale Oil", "whale oil", True),
        "punctuation": ("whale oil.", "(whale) oil!", True),
        "punctuation inside a word": ("U.S.A.", "usa", True),
        "an apostrophe": ("keeper's", "keepers", True),
        "a hyphen joins": ("well-known", "wellknown", True),
        "a hyphen is no space": ("well-known", "well known", False),
        "articles": ("The lamp of a keeper", "lamp of an keeper", True),
        "an article inside a word": ("theatre", "atre", False),
        "an article after punctuation": ('"The" lamp', "lamp", True),
        "white space": ("whale\t oil\n", " whale oil", True),
        "another word": ("whale oil", "seal oil", False),
        "more words": ("whale oil", "it was whale oil", False),
        "order": ("whale oil", "oil whale", False),
        "nothing predicted": ("oil", "", False),
        "numbers as they are written": ("42", "42.0", False),
        "Korean": ("계좌 입니다.", "계좌  입니다", True),
        "an article alone": ("A", "a.", True),
        "an article is not nothing": ("A", "", False),
        "an article is no other": ("A", "The", False),
        "a sign alone": ("+", "-", False),
        "the same sign": ("+", " +", True),
        "one of several": (["four", "4"], "4", True),
        "none of several": (["four", "4"], "5", False),
        "none at all": ([], "4", False),
    },
)
def test_exact_match_of_text(gold: str | list[str], predicted: str, expected: bool) -> None:
    assert evaluation.exact_match(gold, predicted) is expected
    if isinstance(gold, str):
        assert evaluation.exact_match(predicted, gold) is expected


@table(
    "gold, predicted, expected",
    {
        "and": ("P ∧ Q", "p&&q", True),
        "or": ("P \u2228 Q", "p || q", True),
        "not": ("¬P", "! p", True),
        "then": ("P → Q", "P->Q", True),
        "both ways": ("P ↔ Q", "P <-> Q", True),
        "all of them": ("¬(P ∧ Q) ↔ (¬P \u2228 ¬Q)", "!(p&&q)<->(!p||!q)", True),
        "one way is not both": ("P → Q", "P <-> Q", False),
        "an article is a name": ("a ∧ b", "b", False),
        "signs count": ("(P)", "P", False),
        "line ends": ("P ∧\n Q", "P ∧ Q", True),
    },
)
def test_exact_match_of_formulas(gold: str, predicted: str, expected: bool) -> None:
    assert evaluation.exact_match(gold, predicted, normalize="formula") is expected
    assert evaluation.exact([item(gold, predicted)], "formula") == [float(expected)]


def test_an_unknown_normalizer() -> None:
    with pytest.raises(KeyError):
        evaluation.exact_match("a", "a", "none")


@repeatable
@given(st.text())
def test_normalizing_again_changes_nothing(text: str) -> None:
    for normalized in evaluation.NORMALIZERS.values():
        assert normalized(normalized(text)) == normalized(text)


@repeatable
@given(st.text(string.ascii_letters + string.punctuation + " "))
def test_text_of_words_is_normalized_as_squad_does(text: str) -> None:
    bare = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    words = [word for word in bare.split() if word not in ("a", "an", "the")]
    if words:
        assert evaluation.normalized_text(text) == " ".join(words)


@table(
    "gold, prediction, keywords, expected",
    {
        "the gold answer": ("whale oil", "It was Whale  Oil.", (), 1),
        "without the gold answer": ("whale oil", "It was oil.", (), 0),
        "a keyword": ("whale oil", "Oil was burned", ("fat", "oil"), 1),
        "keywords go before the gold answer": ("whale oil", "whale oil", ("fat",), 0),
        "of several words": ("x", "the oil-lamp", ("oil lamp",), 0),
        "a part of a word": ("x", "계좌를 만듭니다", ("계좌",), 1),
        "one of several golds": (["four", "4"], "It has 4.", (), 1),
        "nothing predicted": ("x", "", (), 0),
    },
)
def test_keyword(gold: str, prediction: str, keywords: tuple[str, ...], expected: int) -> None:
    asked = [item(gold, prediction, keywords=keywords)]
    assert evaluation.keyword(asked) == [expected]
    assert evaluation.keyword_legacy(asked) == [1 if expected else 0.5]


# ------------------------------------------------------------------------------------------------------- BLEU
WORDS = st.lists(st.sampled_from(["the", "lamp", "oil", "burned", "night", "Oil."]), max_size=9).map(" ".join)


@table(
    "gold, prediction, expected",
    {
        "the same": ("the lamp burned oil at night", "the lamp burned oil at night", 1),
        "one word": ("oil", "oil", 1),
        "three of four words": ("the lamp burned oil", "the lamp burned", math.exp(1 - 4 / 3)),
        "nothing in common": ("the lamp", "some oil", 0),
        "nothing predicted": ("the lamp", "", 0),
        "case counts": ("OIL", "oil", 0),
        "the best of several": (["fat", "oil"], "oil", 1),
        "one wrong of two words": (
            "oil lamp",
            "oil light",
            math.sqrt(1 / 2 * 1 / 2),
        ),  # smoothed: 1 / (2 * 1)
    },
)
def test_bleu(gold: str, prediction: str, expected: float) -> None:
    assert evaluation.bleu([item(gold, prediction)]) == [pytest.approx(expected)]


@repeatable
@given(WORDS.filter(bool), WORDS)
def test_bleu_is_that_of_sacrebleu(gold: str, prediction: str) -> None:
    theirs = sacrebleu.sentence_bleu(prediction, [gold]).score / 100
    assert evaluation.bleu([item(gold, prediction)]) == [pytest.approx(theirs)]


GOLD_KO, ANSWER_KO = "금현물 거래는 주식계좌에서 가능합니다.", "거래는 주식계좌에서 가능합니다."


def test_korean_is_divided_by_white_space_and_the_rest_as_ever() -> None:
    asked = [item(GOLD_KO, ANSWER_KO), item("Oil, then.", "Oil, then!")]
    korean = sacrebleu.sentence_bleu(ANSWER_KO, [GOLD_KO], tokenize="none").score / 100
    other = sacrebleu.sentence_bleu("Oil, then!", ["Oil, then."]).score / 100
    assert evaluation.bleu(asked) == pytest.approx([korean, other])


def test_korean_is_divided_as_one_is_told_and_each_text_once() -> None:
    calls = []

    def letters(texts: Sequence[str]) -> list[list[str]]:
        calls.append(list(texts))
        return [[*text.replace(" ", "")] for text in texts]

    asked = [item((GOLD_KO, "oil"), ANSWER_KO), item("oil", "oil lamp"), item(GOLD_KO, "oil")]
    cut = {text: " ".join(text.replace(" ", "")) for text in (GOLD_KO, ANSWER_KO)}
    theirs = sacrebleu.sentence_bleu(cut[ANSWER_KO], [cut[GOLD_KO]], tokenize="none").score / 100
    usual = sacrebleu.sentence_bleu("oil lamp", ["oil"]).score / 100
    assert evaluation.bleu(asked, letters) == pytest.approx([theirs, usual, 0])
    assert calls == [[ANSWER_KO, GOLD_KO, "oil"]]


def test_the_tokenisation_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    assert evaluation.load_korean_tokens([item("oil", "lamp")])[1] == "13a"
    tokens, name = evaluation.load_korean_tokens([item("oil", "계좌")])
    assert name == "13a, of Korean by white space (by morphemes: pip install kiwipiepy)"
    assert list(tokens([GOLD_KO])) == [GOLD_KO.split()]


def test_kiwi_divides_korean_where_it_is_installed() -> None:
    package = pytest.importorskip("kiwipiepy", reason="needs a tagger: pip install kiwipiepy")
    tokens, name = evaluation.load_korean_tokens([item(GOLD_KO)])
    assert name == f"13a, of Korean by morphemes (kiwipiepy {package.__version__})"
    assert [list(one) for one in tokens(["계좌는", "\ud800"])] == [["계좌", "는"], ["?"]]


def test_without_sacrebleu_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UsageError, match=r"^bleu needs the package sacrebleu: pip install sacrebleu$"):
        evaluation.bleu([item("a", "a")])


# ------------------------------------------------------------------------------------------------- similarity
VECTORS = {"east": (2, 0), "north": (0, 3), "west": (-1, 0), "between": (3, 4), "nowhere": (0, 0)}


@table(
    "gold, prediction, expected",
    {
        "the same": ("east", "east", 1),
        "at a right angle": ("east", "north", 0),
        "opposite": ("east", "west", 0),
        "between": ("east", "between", 0.6),
        "the best of several": (["east", "west", "north"], "between", 0.8),
        "no direction": ("east", "nowhere", 0),
        "nothing predicted": ("east", " ", 0),
    },
)
def test_similarity(gold: str, prediction: str, expected: float) -> None:
    found = evaluation.similarity([item(gold, prediction)], lambda texts: [VECTORS[text] for text in texts])
    assert found == [pytest.approx(expected)]


def test_each_text_is_embedded_once() -> None:
    calls = []

    def embed(texts: Sequence[str]) -> list[tuple[int, int]]:
        calls.append(list(texts))
        return [VECTORS[text] for text in texts]

    asked = [item("east", "north"), item("north", "east"), item("west", ""), item("east", "east")]
    assert evaluation.similarity(asked, embed) == [0, 0, 0, 1]
    assert calls == [["north", "east"]]
    assert evaluation.similarity([item("east")], embed) == [0]
    assert evaluation.similarity([], embed) == []
    assert len(calls) == 1


def test_a_model_that_cannot_be_loaded_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(name: str, local_files_only: bool) -> None:
        asked.append(local_files_only)
        raise OSError(f"no model {name}\nand many more lines")

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=refuse))
    with pytest.raises(UsageError, match=r"^the embedding model m cannot be loaded: no model m$"):
        evaluation.load_embedder("m")
    assert asked == [True, False]
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UsageError, match=r"^similarity needs the package sentence-transformers: pip install"):
        evaluation.load_embedder()


# ------------------------------------------------------------------------------------------------- thresholds
def test_the_thresholds_are_the_numbers_that_people_write() -> None:
    assert evaluation.SEMANTIC_THRESHOLDS == (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


@table(
    "truth, predicted, expected",
    {
        "nothing": ("", "", (None, None, None, None)),
        "all right": ("10", "10", (1, 1, 1, 1)),
        "all wrong": ("10", "01", (0, 0, 0, 0)),
        "none is yes": ("00", "00", (1, None, None, None)),
        "none predicted": ("10", "00", (1 / 2, None, 0, 0)),
        "none to be found": ("00", "10", (1 / 2, 0, None, 0)),
        "mixed": ("11100", "11011", (2 / 5, 1 / 2, 2 / 3, 4 / 7)),
    },
)
def test_classification(truth: str, predicted: str, expected: tuple[float | None, ...]) -> None:
    yes, said = (list(map("1".__eq__, text)) for text in (truth, predicted))
    assert evaluation.classification(yes, said) == Classification(*expected)


def test_classification_of_other_lengths() -> None:
    with pytest.raises(ValueError, match="zip"):
        evaluation.classification([True], [])


def numbered(count: int, correct: Sequence[bool | None] = ()) -> list[Item]:
    verdicts = [*correct, *[None] * (count - len(correct))]
    return [item("a", "a", id=str(place), correct=verdict) for place, verdict in enumerate(verdicts)]


@table(
    "similarities, correct, threshold, criterion, figures",
    {
        "people's line": ([0.4, 0.62, 0.66, 0.7, 0.95], "00111", 0.65, "f1", (1, 1, 1, 1)),
        "exactly on a threshold": ([0.64, 0.65, 0.66], "011", 0.65, "f1", (1, 1, 1, 1)),
        "of equals the lowest": ([0.52, 0.58, 0.88], "001", 0.6, "f1", (1, 1, 1, 1)),
        "F1, not accuracy": ([0.6, 0.7, 0.7, 0.7], "1000", 0.5, "f1", (1 / 4, 1 / 4, 1, 2 / 5)),
        "people found none correct": ([0.6, 0.72], "00", 0.75, "accuracy", (1, None, None, None)),
        "only rows that people saw": ([0.56, 0.7, 0.99], "01-", 0.6, "f1", (1, 1, 1, 1)),
        "a gap is no row": ([None, 0.58, 0.72], "101", 0.6, "f1", (1, 1, 1, 1)),
    },
)
def test_a_threshold_by_peoples_verdicts(
    similarities: list[float | None],
    correct: str,
    threshold: float,
    criterion: str,
    figures: tuple[float, ...],
) -> None:
    verdicts = [{"1": True, "0": False, "-": None}[sign] for sign in correct]
    found = evaluation.semantic_dynamic(numbered(len(verdicts), verdicts), similarities)
    assert (found.threshold, found.criterion, found.proxy) == (threshold, criterion, False)
    assert found.figures == pytest.approx(Classification(*figures))


def test_a_threshold_by_the_proxy() -> None:
    found = evaluation.semantic_dynamic(numbered(4), [0.3, 0.84, 0.91, 0.99])
    assert found == (0.85, "accuracy", True, 4, (1, 1, 1, 1))
    assert evaluation.semantic_dynamic([], []) == (0.5, "accuracy", True, 0, (None, None, None, None))


@table(
    "count, labelled, share, rows",
    {
        "few rows: all": (30, 0, 0.1, 30),
        "at least fifty": (100, 0, 0.1, 50),
        "a share": (1000, 0, 0.1, 100),
        "a share of those that people saw": (1000, 600, 0.1, 60),
        "few that people saw": (1000, 7, 0.1, 7),
        "all": (200, 0, 1, 200),
    },
)
def test_how_many_rows_a_threshold_is_found_on(count: int, labelled: int, share: float, rows: int) -> None:
    items = numbered(count, [True] * labelled)
    assert evaluation.semantic_dynamic(items, [0.5] * count, share).rows == rows


def test_the_validation_part_is_drawn_by_hash_and_not_by_place() -> None:
    items = numbered(1000)
    drawn = sorted(items, key=lambda one: hashlib.sha256(f"3 {one.id}".encode()).digest())[:100]
    ids = {one.id for one in drawn}
    items = [one._replace(correct=one.id in ids) for one in items]
    # On the part drawn everybody is right, elsewhere nobody, so only these very rows give an accuracy of 1.
    found = evaluation.semantic_dynamic(items, [0.95] * 1000, seed=3)
    assert (found.rows, found.figures.accuracy) == (100, 1)
    other = evaluation.semantic_dynamic(items, [0.95] * 1000, seed=4)
    assert other.figures.accuracy is not None
    assert other.figures.accuracy < 0.5
    random.Random(1).shuffle(items)
    assert evaluation.semantic_dynamic(items, [0.95] * 1000, seed=3) == found


# ------------------------------------------------------------------------------------------- sources, context
@table(
    "expected, sources, recall, precision",
    {
        "the same": (("d1", "d2"), ("d2", "d1"), 1, 1),
        "one of two, and two more": (("d1", "d2"), ("d2", "d3", "d4"), 1 / 2, 1 / 3),
        "twice is once": (("d1",), ("d1", "d1", "d2"), 1, 1 / 2),
        "no source": (("d1",), (), 0, 0),
        "none expected": ((), ("d1",), None, None),
        "another": (("d1",), ("D1",), 0, 0),
    },
)
def test_context_recall_and_precision(
    expected: tuple[str, ...], sources: tuple[str, ...], recall: float | None, precision: float | None
) -> None:
    asked = [item("a", expected_sources=expected, sources=sources), item("a", sources=("d",))]
    assert evaluation.context_recall(asked) == [recall, None]
    assert evaluation.context_precision(asked) == [precision, None]


def test_where_nobody_wrote_sources_down_there_is_nothing_to_measure() -> None:
    asked = [item("a", expected_sources=("d1",))]
    assert (evaluation.context_recall(asked), evaluation.context_precision(asked)) == ([None], [None])


@table(
    "answer, context, score, unsupported",
    {
        "all of it": ("The lamp burned oil.", ["Oil burned in the lamp."], 1, ()),
        "over several texts": ("The lamp burned oil.", ["A lamp.", "Oil burned."], 1, ()),
        "half of a sentence will do": ("Lamps burned.", ["It burned."], 1 / 2, ()),
        "less than half": ("Cats burned whale oil.", ["oil"], 1 / 4, ("Cats burned whale oil.",)),
        "a sentence of two": ("The oil burned. Cats sleep!", ["oil burned"], 1 / 2, ("Cats sleep!",)),
        "a word counts once": ("Oil, oil, oil and fat", ["oil"], 1 / 2, ()),
        "nothing of it": ("Cats sleep\nDogs bark", ["oil"], 0, ("Cats sleep", "Dogs bark")),
        "a number": ("In 1823, or 5.", ["1823"], 1 / 2, ()),
        "a sentence of function words": ("It is. Oil.", ["oil"], 1, ()),
        "not is no function word": ("not oil", ["oil"], 1 / 2, ()),
        "no context": ("Oil.", [], None, ()),
        "an empty context": ("Oil.", [" "], None, ()),
        "no content": ("It is so.", ["oil"], None, ()),
        "no answer": ("", ["oil"], None, ()),
        "Korean": ("해지는 불가합니다. 수 없음", ["해지는 가능"], 1 / 3, ("수 없음",)),
        "full stops of other scripts": ("계좌。해지。", ["계좌"], 1 / 2, ("해지。",)),
    },
)
def test_verifier_faithfulness(
    answer: str, context: list[str], score: float | None, unsupported: tuple[str, ...]
) -> None:
    expected = None if score is None else pytest.approx(score)
    assert evaluation.verifier_faithfulness(answer, context) == Faithfulness(expected, unsupported)


SIMPLE = st.builds(
    item, st.text(min_size=1), st.text(), keywords=st.lists(st.text(min_size=1), max_size=2).map(tuple)
)


@repeatable
@given(st.lists(SIMPLE, max_size=3))
def test_every_method_gives_each_item_a_figure_from_0_to_1(items: list[Item]) -> None:
    methods = (evaluation.exact, evaluation.keyword, evaluation.keyword_legacy, evaluation.bleu)
    for scores in (method(items) for method in methods):
        assert len(scores) == len(items)
        assert all(score is not None and 0 <= score <= 1 for score in scores)
    for one in items:
        share = evaluation.verifier_faithfulness(one.prediction, one.accepted).score
        assert share is None or 0 <= share <= 1
