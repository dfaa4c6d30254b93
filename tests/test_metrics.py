"""Every measure and every reading of a score, as tables of cases with hand-computed values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import evaluation
import pytest
from evaluation import Failure, Judgement, JudgeRequest, JudgeRun, NotAScore

from conftest import Project, document, question


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize by rows: what the case is -> its values."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


# ------------------------------------------------------------------------------------- retrieval and citation
@table(
    "retrieved, gold, k, expected",
    {
        "first of one": (["d1"], ["d1"], 1, 1),
        "second, looked at one": (["d2", "d1"], ["d1"], 1, 0),
        "second, looked at two": (["d2", "d1"], ["d1"], 2, 1),
        "last of five": (["d2", "d3", "d4", "d5", "d1"], ["d1"], 5, 1),
        "sixth, looked at five": (["d2", "d3", "d4", "d5", "d6", "d1"], ["d1"], 5, 0),
        "fewer than k": (["d1"], ["d1"], 5, 1),
        "nothing retrieved": ([], ["d1"], 5, 0),
        "no gold": (["d1"], [], 5, 0),
        "one of two gold": (["d1", "d3"], ["d1", "d2"], 2, 0.5),
        "both of two gold": (["d2", "d1"], ["d1", "d2"], 2, 1),
        "gold named twice": (["d1"], ["d1", "d1"], 1, 1),
        "a repeated one takes two places": (["d2", "d2", "d1"], ["d1"], 2, 0),
        "another folder": (["d1"], ["gold/d1"], 1, 0),
        "another case": (["D1"], ["d1"], 1, 0),
        "the first none": (["d1"], ["d1"], 0, 0),
    },
)
def test_recall_at_k(retrieved: list[str], gold: list[str], k: int, expected: float) -> None:
    assert evaluation.recall_at_k(retrieved, gold, k) == expected


@table(
    "gold, predicted, precision, recall, f1",
    {
        "the same": (["S1", "S2"], ["S2", "S1"], 1, 1, 1),
        "one of two found": (["S1", "S2"], ["S1"], 1, 1 / 2, 2 / 3),
        "one of three right": (["S1", "S2"], ["S2", "S3", "S4"], 1 / 3, 1 / 2, 0.4),
        "all and one more": (["S1", "S2"], ["S1", "S2", "S3"], 2 / 3, 1, 0.8),
        "nothing in common": (["S1"], ["S2"], 0, 0, 0),
        "nothing predicted": (["S1"], [], 0, 0, 0),
        "no gold": ([], ["S1"], 0, 0, 0),
        "neither": ([], [], 0, 0, 0),
        "duplicates count once": (["S1", "S1"], ["S1", "S2", "S2"], 1 / 2, 1, 2 / 3),
        "another case": (["S1"], ["s1"], 0, 0, 0),
        "a longer ID": (["S1"], ["S10"], 0, 0, 0),
    },
)
def test_citation_scores(
    gold: list[str], predicted: list[str], precision: float, recall: float, f1: float
) -> None:
    found = evaluation.citation_scores(gold, predicted)
    assert found == pytest.approx((precision, recall, f1), abs=1e-12)


# --------------------------------------------------------------------------------------------------- evidence
SENTENCES = {
    "S1": "The lamp burned oil.",
    "S2": "Oil was dear.",
    "S3": "the LAMP\tburned\u3000bright",
    "S4": "oil oil oil",
    "S5": " ",
}


@table(
    "gold, predicted, sentences, score",
    {
        "the gold sentence": (["S1"], ["S1"], SENTENCES, 1),
        "another one, three words of four": (["S1"], ["S3"], SENTENCES, 3 / 4),
        "a full stop belongs to its word": (["S1"], ["S2"], SENTENCES, 0),
        "case does not": (["S2"], ["S4"], SENTENCES, 1 / 3),
        "one of two gold, four words of seven": (["S1", "S2"], ["S1"], SENTENCES, 4 / 7),
        "words of both gold count once, four of five": (["S1", "S3"], ["S1"], SENTENCES, 4 / 5),
        "two others together": (["S2", "S3"], ["S1", "S4"], SENTENCES, 4 / 7),
        "more than the gold costs nothing": (["S1"], ["S1", "S2", "S3"], SENTENCES, 1),
        "a repeated word counts once": (["S4"], ["S2"], SENTENCES, 1),
        "an ID that the document lacks": (["S1"], ["S9"], SENTENCES, 0),
        "nothing predicted": (["S1"], [], SENTENCES, 0),
        "no gold, nothing predicted": ([], [], SENTENCES, 1),
        "no gold, something predicted": ([], ["S1"], SENTENCES, 0),
        "no document: IDs": (["S1", "S2"], ["S1", "S3"], None, 1 / 2),
        "no document: IDs once each": (["S1", "S2", "S2"], ["S2", "S2"], None, 1 / 2),
        "no document, no gold, nothing predicted": ([], [], None, 1),
        "no document, no gold, something predicted": ([], ["S1"], None, 0),
        "one gold sentence lacking: IDs": (["S1", "S9"], ["S3", "S9"], SENTENCES, 1 / 2),
        "gold without a word: IDs": (["S5"], ["S5"], SENTENCES, 1),
    },
)
def test_evidence_score(
    gold: list[str], predicted: list[str], sentences: dict[str, str] | None, score: float
) -> None:
    assert evaluation.evidence_score(gold, predicted, sentences) == pytest.approx(score, abs=1e-12)


@table(
    "gold, sentences, method",
    {
        "all gold sentences there": (["S1", "S2"], SENTENCES, "words"),
        "no gold": ([], SENTENCES, "words"),
        "some without a word": (["S1", "S5"], SENTENCES, "words"),
        "none with a word": (["S5"], SENTENCES, "ids"),
        "one gold sentence lacking": (["S1", "S9"], SENTENCES, "ids"),
        "no sentences": (["S1"], {}, "ids"),
        "no document": (["S1"], None, "ids"),
        "no gold, no document": ([], None, "ids"),
    },
)
def test_evidence_method(gold: list[str], sentences: dict[str, str] | None, method: str) -> None:
    assert evaluation.evidence_method(gold, sentences) == method


@table(
    "files, doc_id, score, method",
    {
        "JSON": ({"corpus/d1.json": document("d1", "a b", "b c")}, "d1", 1 / 2, "words"),
        "JSON in a text file": ({"corpus/d1.txt": document("d1", "a b", "b c")}, "d1", 1 / 2, "words"),
        "in a folder": ({"corpus/gold/d1.json": document("d1", "a b", "b c")}, "gold/d1", 1 / 2, "words"),
        "id for sid": (
            {"corpus/d1.json": {"sentences": [{"id": "S1", "text": "a b"}, {"id": "S2", "text": "b c"}]}},
            "d1",
            1 / 2,
            "words",
        ),
        "plain text": ({"corpus/d1.txt": "S1 a b\nS2 b c"}, "d1", 0, "ids"),
        "text that looks like JSON": ({"corpus/d1.txt": '{"sentences": ['}, "d1", 0, "ids"),
        "missing": ({}, "d1", 0, "ids"),
        "without the gold sentence": ({"corpus/d1.json": document("d1")}, "d1", 0, "ids"),
        "outside the corpus": ({"d1.json": document("d1", "a b", "b c")}, "../d1", 0, "ids"),
    },
)
def test_evidence_by_the_kind_of_document(
    project: Project, files: dict[str, object], doc_id: str, score: float, method: str
) -> None:
    project.questions(question(doc_id))
    project.predictions("strong", {"q001": {"answer": "Yes.", "evidence_sentences": ["S2"]}})
    for name, content in files.items():
        project.write(name, content)
    [row] = graded(Asked(q001=4))["llm_judge"]["per_question"]
    assert (row["evidence_score"], row["evidence_method"]) == (score, method)


# --------------------------------------------------------------------------------------------- means and sums
@table(
    "values, expected",
    {
        "none": ([], None),
        "one": ([0.25], 0.25),
        "two": ([1, 2], 1.5),
        "zeros count": ([0, 0, 1, 0], 0.25),
        "ten tenths": ([0.1] * 10, 0.1),
        "a small one between large ones": ([1e16, 3, -1e16], 1),
    },
)
def test_mean(values: list[float], expected: float | None) -> None:
    assert evaluation.mean(values) == expected


@table("score, share", {"failed": (0, 0), "lowest": (1, 0.2), "middle": (3, 0.6), "highest": (5, 1)})
def test_normalized_answer_score(score: int, share: float) -> None:
    assert evaluation.normalized_answer_score(score) == pytest.approx(share, abs=1e-12)


@table(
    "answer, evidence, weight, combined",
    {
        "nothing": (0, 0, {}, 0),
        "everything": (1, 1, {}, 1),
        "half each, unless told": (0.8, 0.25, {}, 0.525),
        "evidence alone": (0.8, 0.25, {"weight": 0}, 0.25),
        "answer alone": (0.8, 0.25, {"weight": 1}, 0.8),
        "three quarters answer": (0.8, 0.4, {"weight": 0.75}, 0.7),
    },
)
def test_combined_score(answer: float, evidence: float, weight: dict[str, float], combined: float) -> None:
    assert evaluation.combined_score(answer, evidence, **weight) == pytest.approx(combined, abs=1e-12)


# ------------------------------------------------------------------------------------------ the judge's reply
@table(
    "value, score",
    {
        "lowest": (1, 1),
        "highest": (5, 5),
        "4.0": (4.0, 4),
        '"4"': ("4", 4),
        '"4.0"': ("4.0", 4),
        '"4.00"': ("4.00", 4),
        "space around it": (" 4\n", 4),
    },
)
def test_a_value_that_is_a_score(value: object, score: int) -> None:
    found = evaluation.parse_choice(value)
    assert (found, type(found)) == (score, int)


@table(
    "value, found",
    {
        "0": (0, "0"),
        "6": (6, "6"),
        "-1": (-1, "-1"),
        "3.5": (3.5, "3.5"),
        "true": (True, "true"),
        "false": (False, "false"),
        "null": (None, "null"),
        "NaN": (math.nan, "NaN"),
        "infinity": (math.inf, "Infinity"),
        '"0"': ("0", '"0"'),
        '"6"': ("6", '"6"'),
        '"3.5"': ("3.5", '"3.5"'),
        '"04"': ("04", '"04"'),
        '"4/5"': ("4/5", '"4/5"'),
        '"four"': ("four", '"four"'),
        '"true"': ("true", '"true"'),
        "blank": (" ", '" "'),
        "an Arabic-Indic four": ("\u0664", '"\u0664"'),
        "a list": ([4], "a list"),
        "an object": ({"score": 4}, "an object"),
    },
)
def test_a_value_that_is_no_score(value: object, found: str) -> None:
    with pytest.raises(NotAScore) as caught:
        evaluation.parse_choice(value)
    assert str(caught.value) == f"the score must be a whole number from 1 to 5, not {found}"


@table(
    "reply, score, rationale",
    {
        "bare": ('{"rationale": "Right.", "score": 4}', 4, "Right."),
        "score first": ('{"score": 4, "rationale": "Right."}', 4, "Right."),
        "space around it": ('\n {"score": 4, "rationale": "Right."} \n', 4, "Right."),
        "fenced": ('```\n{"score": 4, "rationale": "Right."}\n```', 4, "Right."),
        "fenced as json": ('```json\n{"score": 4, "rationale": "Right."}\n```', 4, "Right."),
        "prefixed": ('Here it is: {"score": 4, "rationale": "Right."}', 4, "Right."),
        "followed": ('{"score": 4, "rationale": "Right."} I hope that helps.', 4, "Right."),
        "braces in the prose": ('By {the rubric}: {"score": 4, "rationale": "Right."}', 4, "Right."),
        "braces in the rationale": ('{"rationale": "It says {\\"score\\": 1}.", "score": 4}', 4, None),
        "in a list": ('[{"score": 4, "rationale": "Right."}]', 4, "Right."),
        "an object without a score before it": ('{} {"score": 4, "rationale": "Right."}', 4, "Right."),
        "more members": ('{"score": 4, "level": 2, "rationale": "Right."}', 4, "Right."),
        "a string": ('{"score": "4", "rationale": "Right."}', 4, "Right."),
        "4.0": ('{"score": 4.0, "rationale": "Right."}', 4, "Right."),
        "the same score twice": ('{"score": 4, "rationale": "Right."} {"score": "4"}', 4, "Right."),
        "no rationale": ('{"score": 4}', 4, ""),
        "a rationale that is no text": ('{"score": 4, "rationale": ["Right."]}', 4, ""),
    },
)
def test_a_reply_that_holds_a_score(reply: str, score: int, rationale: str | None) -> None:
    found = evaluation.parse_judgement(reply)
    assert found == Judgement(score, found.rationale if rationale is None else rationale)


NO_SCORE, TWO_SCORES = "it holds no JSON object with a score", "it holds more than one score"


@table(
    "reply, complaint",
    {
        "nothing": ("", NO_SCORE),
        "prose": ("I would give it a 4.", NO_SCORE),
        "a bare number": ("4", NO_SCORE),
        "an empty object": ("{}", NO_SCORE),
        "another name": ('{"Score": 4}', NO_SCORE),
        "inside another object": ('{"result": {"score": 4}}', NO_SCORE),
        "cut off": ('{"rationale": "Right.", "score": 4', NO_SCORE),
        "nested too deep to be read": ('{"score":' * 2_000, NO_SCORE),
        "two scores": ('{"score": 4} {"score": 2}', TWO_SCORES),
        "two scores in one object": ('{"score": 4, "score": 2}', NO_SCORE),
        "a score and none": ('{"score": 4} {"score": 9}', "a whole number from 1 to 5, not 9"),
        "0": ('{"score": 0}', "a whole number from 1 to 5, not 0"),
        "6": ('{"score": 6}', "a whole number from 1 to 5, not 6"),
        "3.5": ('{"score": 3.5}', "a whole number from 1 to 5, not 3.5"),
        "true": ('{"score": true}', "a whole number from 1 to 5, not true"),
        "null": ('{"score": null}', "a whole number from 1 to 5, not null"),
        "NaN": ('{"score": NaN}', "a whole number from 1 to 5, not NaN"),
        "too large for a float": ('{"score": 1e999}', "a whole number from 1 to 5, not Infinity"),
    },
)
def test_a_reply_that_holds_no_score(reply: str, complaint: str) -> None:
    with pytest.raises(NotAScore) as caught:
        evaluation.parse_judgement(reply)
    assert str(caught.value).endswith(complaint)


# ------------------------------------------------------------------------------------------------------ texts
@table(
    "text, shown",
    {
        "plain": ("What is d1?", "What is d1?"),
        "letters of any script": ("é 漢 한 ع 😀", "é 漢 한 ع 😀"),
        "a line break and a tab": ("a\r\nb\tc", "abc"),
        "a colour": ("\x1b[31mred", "[31mred"),
        "a C1 control": ("a\x9bb", "ab"),
        "backspace and NUL": ("a\b\0b", "ab"),
        "a change of direction": ("a\u202eb", "ab"),
        "what has no width": ("a\u200b\ufeffb", "ab"),
        "line separators": ("a\u2028\u2029b", "ab"),
        "half a surrogate pair": ("a\ud800b", "ab"),
    },
)
def test_printable(text: str, shown: str) -> None:
    assert evaluation.printable(text) == shown


@table(
    "text, sent",
    {
        "plain": ("a b", "a b"),
        "any script": ("é 漢", "é 漢"),
        "half a surrogate pair": ("a\ud800", "a"),
    },
)
def test_visible(text: str, sent: str) -> None:
    assert evaluation.visible(text) == sent


def test_a_fence_marker_is_derived_from_the_texts() -> None:
    markers = [evaluation.fence_marker(texts) for texts in (["a", "b"], ["a", "b"], ["a", "c"])]
    assert markers[0] == markers[1] != markers[2]
    assert [len(marker) for marker in markers] == [8, 8, 8]


@table(
    "texts, marker",
    {
        "in none": (["7"], "76543210"),
        "in one": (["a", "on 76543210."], "76543210f"),
        "a longer one too": (["76543210f", "a"], "76543210fe"),
    },
)
def test_a_fence_marker_stands_in_none_of_the_texts(
    texts: list[str], marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        hashlib, "sha256", lambda data: SimpleNamespace(hexdigest=lambda: "76543210fedcba98" * 4)
    )
    assert evaluation.fence_marker(texts) == marker


@table(
    "value, words",
    {
        "text": ("d1", '"d1"'),
        "any script": ("漢", '"漢"'),
        "a line break": ("a\nb", '"a\\nb"'),
        "sixty characters": ("x" * 58, '"' + "x" * 58 + '"'),
        "a longer text": ("x" * 59, '"' + "x" * 55 + '..."'),
        "a number": (4.5, "4.5"),
        "a longer number": (10**60, "1" + "0" * 55 + "..."),
        "true": (True, "true"),
        "null": (None, "null"),
        "an empty list": ([], "an empty list"),
        "a list": ([1], "a list"),
        "an empty object": ({}, "an empty object"),
        "an object": ({"a": 1}, "an object"),
    },
)
def test_describe(value: object, words: str) -> None:
    assert evaluation.describe(value) == words


# ------------------------------------------------------------------------------------------------- JSON texts
@table(
    "text, members",
    {
        "an empty object": ("{}", []),
        "an empty list": (" [ ] ", []),
        "an object": ('{"a": 1, "b": [2]}', [("a", 1, 6), ("b", [2], 14)]),
        "a list": ('[true, {"a": 1}]', [(0, True, 1), (1, {"a": 1}, 7)]),
        "a key that occurs twice": ('{"a":1,"a":2}', [("a", 1, 5), ("a", 2, 11)]),
        "an escaped key": ('{"\\u0061\\"": 1}', [('a"', 1, 13)]),
        "space everywhere": ('\n{\t"a"\r\n:\n1 }\n', [("a", 1, 10)]),
    },
)
def test_json_members(text: str, members: list[tuple[str | int, object, int]]) -> None:
    start = text.index(text.strip())
    values, end = evaluation.json_members(text, start, evaluation.json_value)
    assert (values, text[end:].strip()) == ([(key, value) for key, value, _ in members], "")
    assert evaluation.json_places(text, start) == {key: offset for key, _, offset in members}


@table(
    "text, column, reason",
    {
        "not closed": ('{"a": 1', 8, "Expecting ',' delimiter"),
        "no comma": ('{"a": 1 "b": 2}', 9, "Expecting ',' delimiter"),
        "no quotes": ("{a: 1}", 2, "Expecting property name enclosed in double quotes"),
        "no colon": ('{"a" 1}', 6, "Expecting ':' delimiter"),
        "no value": ('{"a": }', 7, "Expecting value"),
        "the wrong bracket": ('{"a": 1]', 8, "Expecting ',' delimiter"),
    },
)
def test_a_text_that_is_no_json(text: str, column: int, reason: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        evaluation.json_members(text, 0, evaluation.json_value)
    assert (caught.value.colno, caught.value.msg) == (column, reason)


@pytest.mark.parametrize("text", ["[1,]", '{"a": 1,}', '["\\x"]', '[{"a" 1}]', "[01]", "[tru]", '["\n"]'])
def test_a_fault_is_what_json_says(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as caught:
        evaluation.json_members(text, 0, evaluation.json_value)
    assert (caught.value.pos, caught.value.msg) == (expected.value.pos, expected.value.msg)


LOCATED = """{
  "docs": [
    "d1",
    {

      "rank": 7}],
  "twice": 1,
  "twice": 2,
  "last": 3}"""
NEVER, ALWAYS = evaluation.Kind("another", lambda value: False), evaluation.Kind("any", lambda value: True)


def objects(shape: evaluation.Shape) -> evaluation.Shape:
    return (lambda value: isinstance(value, dict), ALWAYS, shape)


@table(
    "shape, line",
    {
        "the value itself": (NEVER, 1),
        "a member": ({"docs": NEVER}, 2),
        "an item": ({"docs": [(lambda value: value == "d1", ALWAYS, NEVER)]}, 3),
        "a later item": ({"docs": [objects(NEVER)]}, 4),
        "inside an item": ({"docs": [objects({"rank": NEVER})]}, 6),
        "behind a nested one": ({"last": NEVER}, 9),
        "a key that occurs twice: the last": ({"twice": NEVER}, 8),
        "a member that is not there": ({"other": NEVER}, 1),
        "a member that an inner object lacks": ({"docs": [objects({"doc_id": NEVER})]}, 4),
    },
)
def test_a_problem_has_the_line_of_its_value(shape: evaluation.Shape, line: int) -> None:
    problems: list[evaluation.Problem] = []
    assert evaluation.JsonText(f"\n{LOCATED}", "file", problems).parse(shape) is None
    assert [problem.line for problem in problems] == [1 + line]


def test_lines_are_right_in_any_order() -> None:
    problems: list[evaluation.Problem] = []
    evaluation.JsonText(LOCATED, "file", problems).parse({"last": NEVER, "docs": NEVER, "twice": NEVER})
    assert [problem.line for problem in problems] == [9, 2, 8]


@table(
    "rows, ids",
    {
        "by place": ([{}, {}, {}], ["q001", "q002", "q003"]),
        "given": ([{"question_id": "a"}, {"question_id": "7"}], ["a", "7"]),
        "given to some": ([{"question_id": "a"}, {}, {"question_id": None}], ["a", "q002", "q003"]),
        "a thousand": ([{}] * 1000, [f"q{place:03}" for place in range(1, 1001)]),
    },
)
def test_question_ids(rows: list[dict[str, Any]], ids: list[str]) -> None:
    text = "\n\n".join(json.dumps(question(**row)) for row in rows)
    problems: list[evaluation.Problem] = []
    assert [found.id for found in evaluation.parse_questions(text, "file", problems)] == ids
    assert problems == []


@table(
    "entries, ids",
    {
        "plain IDs as listed": (["d2", "d1"], ["d2", "d1"]),
        "entries without a rank as listed": ([{"doc_id": "d2"}, {"doc_id": "d1"}], ["d2", "d1"]),
        "by rank": ([{"doc_id": "d2", "rank": 2}, {"doc_id": "d1", "rank": 1}], ["d1", "d2"]),
        "by rank from zero": ([{"doc_id": "d2", "rank": 1}, {"doc_id": "d1", "rank": 0}], ["d1", "d2"]),
        "by rank, not as text": ([{"doc_id": "d2", "rank": 10}, {"doc_id": "d1", "rank": 9}], ["d1", "d2"]),
        "not by score": (
            [{"doc_id": "d2", "score": 1, "rank": 1}, {"doc_id": "d1", "score": 9, "rank": 2}],
            ["d2", "d1"],
        ),
        "one without a rank: as listed": ([{"doc_id": "d2", "rank": 2}, {"doc_id": "d1"}], ["d2", "d1"]),
        "one rank null: as listed": (
            [{"doc_id": "d2", "rank": 2}, {"doc_id": "d1", "rank": None}],
            ["d2", "d1"],
        ),
        "one plain ID: as listed": ([{"doc_id": "d2", "rank": 2}, "d1"], ["d2", "d1"]),
        "the same rank: as listed": (
            [{"doc_id": "d2", "rank": 1}, {"doc_id": "d1", "rank": 1}],
            ["d2", "d1"],
        ),
        "null": (None, []),
        "nothing": ([], []),
    },
)
def test_the_order_of_retrieved_documents(entries: object, ids: list[str]) -> None:
    text = json.dumps({"q001": {"retrieved_docs": entries}})
    problems: list[evaluation.Problem] = []
    predictions, _ = evaluation.parse_predictions(text, "file", problems)
    assert list(predictions["q001"].retrieved) == ids
    assert problems == []


# --------------------------------------------------------------------------------------------- a whole system
class Asked:
    """A judge with its verdicts by question ID: a score, or a reason for having none."""

    def __init__(self, **verdicts: int | str) -> None:
        self.verdicts = verdicts
        self.requests: list[JudgeRequest] = []

    def __call__(self, requests: Sequence[JudgeRequest]) -> JudgeRun:
        self.requests.extend(requests)
        verdicts = [self.verdicts[request.question_id] for request in requests]
        outcomes = [Failure(v) if isinstance(v, str) else Judgement(v, f"Level {v}.") for v in verdicts]
        return JudgeRun("asked-for", "used", tuple(outcomes))


def graded(judge: evaluation.Judge | None, system: str = "strong") -> Any:
    split, hand_ins, _ = evaluation.read_all("dev")
    return evaluation.evaluate_split(split, hand_ins, judge)[0][0][system]


TOO_FEW = "fewer than 5 documents: 2"


def test_the_retrieval_block(small: Project) -> None:
    rows = [
        ("q001", "d1", None, 0, 0),
        ("q002", "d2", "d1", 0, 1),
    ]
    names = ("question_id", "gold_doc_id", "retrieved_top_1", "recall_at_1", "recall_at_5")
    assert graded(None)["retrieval"] == {
        "recall_at_1": 0,
        "recall_at_5": 1,
        "total": 2,
        "per_question": [dict(zip(names, row, strict=True)) for row in rows],
        "recall_at_1_pct": 0,
        "recall_at_5_pct": 50,
        "ci95": {"recall_at_1_pct": None, "recall_at_5_pct": None},
        "ci95_reason": TOO_FEW,
    }


def test_the_citation_block(small: Project) -> None:
    rows = [
        ("q001", "d1", ["S1"], ["S1"], 1, 1, 1),
        ("q002", "d2", ["S1", "S2"], [], 0, 0, 0),
    ]
    names = ("question_id", "gold_doc_id", "gold_sentences", "pred_sentences", "precision", "recall", "f1")
    assert graded(None)["citation"] == {
        "total_questions": 2,
        "questions_with_evidence": 2,
        "precision_sum": 1,
        "recall_sum": 1,
        "f1_sum": 1,
        "per_question": [dict(zip(names, row, strict=True)) for row in rows],
        "avg_precision": 0.5,
        "avg_recall": 0.5,
        "avg_f1": 0.5,
        "ci95": {"avg_precision": None, "avg_recall": None, "avg_f1": None},
        "ci95_reason": TOO_FEW,
    }


def test_the_sums_and_means_of_the_judge_block(small: Project) -> None:
    block = graded(Asked(q001=4, q002=2))["llm_judge"]
    del block["per_question"]
    assert block == {
        "total_questions": 2,
        "questions_with_rubrics": 2,
        "answer_score_sum": 6,
        "evidence_score_sum": 1,
        "combined_score_sum": pytest.approx(0.9 + 0.2, abs=1e-12),
        "lambda_weight": 0.5,
        "requested_model": "asked-for",
        "judge_model": "used",
        "failed_questions": [],
        "unjudged_questions": [],
        "flagged_questions": [],
        "usage": {
            "judgements": 2,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "cached_tokens": 0,
            "cost_usd": None,
        },
        "avg_answer_score": 3,
        "avg_evidence_score": 0.5,
        "avg_combined_score": pytest.approx(0.55, abs=1e-12),
        "ci95": dict.fromkeys(("avg_answer_score", "avg_evidence_score", "avg_combined_score")),
        "ci95_reason": TOO_FEW,
    }


def test_a_row_of_the_judge_block(small: Project) -> None:
    row = graded(Asked(q001=4, q002=2))["llm_judge"]["per_question"][0]
    assert row == {
        "question_id": "q001",
        "answer_score_raw": 4,
        "answer_score_normalized": 0.8,
        "answer_rationale": "Level 4.",
        "failure": None,
        "evidence_score": 1,
        "evidence_method": "words",
        "combined_score": 0.9,
        "gold_sentences": ["S1"],
        "pred_sentences": ["S1"],
        "flags": [],
    }


def test_sentences_are_listed_once_and_sorted(small: Project) -> None:
    small.questions(question("d1", evidence_sentences=["S3", "S1", "S3"]))
    small.predictions("strong", {"q001": {"evidence_sentences": ["S2", "S10", "S2"]}})
    results = graded(Asked())
    for block in ("citation", "llm_judge"):
        row = results[block]["per_question"][0]
        assert (row["gold_sentences"], row["pred_sentences"]) == (["S1", "S3"], ["S10", "S2"]), block


def test_a_failed_judgement_counts_zero_and_says_why(small: Project) -> None:
    block = graded(Asked(q001="no reply", q002=2))["llm_judge"]
    row = block["per_question"][0]
    assert (row["answer_score_raw"], row["answer_score_normalized"], row["combined_score"]) == (0, 0, 0.5)
    assert (row["failure"], row["answer_rationale"]) == ("no reply", "")
    assert (block["failed_questions"], block["avg_answer_score"]) == (["q001"], 1)


@table(
    "answer",
    {"empty": {"answer": ""}, "blank": {"answer": " \n\u3000"}, "null": {"answer": None}, "missing": {}},
)
def test_a_blank_answer_scores_1_without_a_call(small: Project, answer: dict[str, Any]) -> None:
    small.predictions("strong", {"q001": answer, "q002": {"answer": "Rain."}})
    judge = Asked(q002=5)
    block = graded(judge)["llm_judge"]
    row = block["per_question"][0]
    assert (row["answer_score_raw"], row["answer_rationale"]) == (1, "No answer was given.")
    assert (block["failed_questions"], [request.question_id for request in judge.requests]) == ([], ["q002"])


@table("evidence", {"evidence": ["S1"], "no evidence": []})
def test_a_missing_prediction_is_a_miss_everywhere(small: Project, evidence: list[str]) -> None:
    small.questions(question("d1", evidence_sentences=evidence))
    small.predictions("strong", {})
    results = graded(Asked())
    row = results["llm_judge"]["per_question"][0]
    assert results["retrieval"]["recall_at_5"] == 0
    assert results["citation"]["f1_sum"] == 0
    assert (row["answer_score_raw"], row["evidence_score"], row["combined_score"]) == (1, 0, 0.1)


def test_a_missing_prediction_stays_in_every_denominator(small: Project) -> None:
    first = {"answer": "It is d1.", "evidence_sentences": ["S1"], "retrieved_docs": ["d1"]}
    small.predictions("strong", {"q001": first})
    results = graded(Asked(q001=5))
    blocks = [results[name] for name in ("citation", "llm_judge")]
    means = {name: value for block in blocks for name, value in block.items() if name.startswith("avg")}
    assert results["retrieval"]["recall_at_1_pct"] == 50
    assert means == {
        "avg_precision": 0.5,
        "avg_recall": 0.5,
        "avg_f1": 0.5,
        "avg_answer_score": 3,
        "avg_evidence_score": 0.5,
        "avg_combined_score": pytest.approx((1 + 0.1) / 2, abs=1e-12),
    }


def test_a_question_without_evidence_is_no_part_of_the_citation_block(small: Project) -> None:
    small.questions(question("d1", evidence_sentences=[]), question("d2"))
    block = graded(None)["citation"]
    assert [row["question_id"] for row in block["per_question"]] == ["q002"]
    assert (block["total_questions"], block["questions_with_evidence"]) == (2, 1)


@table("rubric", {"null": None, "missing": ...})
def test_a_question_without_a_rubric_is_not_judged(small: Project, rubric: Any) -> None:
    small.questions(question("d1", rubric=rubric), question("d2"))
    judge = Asked(q002=2)
    block = graded(judge)["llm_judge"]
    assert [row["question_id"] for row in block["per_question"]] == ["q002"]
    assert (block["total_questions"], block["questions_with_rubrics"]) == (2, 1)
    assert [request.question_id for request in judge.requests] == ["q002"]


def test_only_strong_is_judged(small: Project) -> None:
    small.predictions("simple", {"q001": {"answer": "A lamp."}})
    judge = Asked(q001=4, q002=2)
    assert "llm_judge" not in graded(judge, "simple")
    assert {request.system for request in judge.requests} == {"strong"}


def test_without_a_judge_there_is_no_judge_block(small: Project) -> None:
    assert list(graded(None)) == ["retrieval", "citation", "slices", "run"]


def test_a_judge_that_is_not_to_be_had_leaves_no_zeros(small: Project) -> None:
    def judge(requests: Sequence[JudgeRequest]) -> JudgeRun:
        raise evaluation.JudgeUnavailable("wrong key")

    with pytest.raises(evaluation.JudgeUnavailable, match="wrong key"):
        graded(judge)


@table(
    "change, block, means",
    {
        "no evidence": ({"evidence_sentences": []}, "citation", ["avg_precision", "avg_recall", "avg_f1"]),
        "no rubric": (
            {"rubric": None},
            "llm_judge",
            ["avg_answer_score", "avg_evidence_score", "avg_combined_score"],
        ),
    },
)
def test_a_mean_of_nothing_is_none(
    small: Project, change: dict[str, Any], block: str, means: list[str]
) -> None:
    small.questions(question("d1", **change))
    found = graded(Asked(q001=4))[block]
    assert [found[name] for name in means] == [None, None, None]
