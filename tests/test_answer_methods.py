"""Free answers: the rows that are read, and every method as a table of hand-computed cases."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import evaluation
import pytest
import sacrebleu

from conftest import Embed, Project, fake_module, mentions, table

Row = dict[str, Any]
Cases = Mapping[str, tuple[Row, float]]  # a row and its score


def grade(project: Project, rows: object, *options: str) -> Any:
    """Grade these rows and return the results."""
    project.write("a.json", rows)
    outcome = project.run("answers", "a.json", "--overwrite", *options)
    assert (outcome.code, outcome.err) == (0, [])
    return project.read("a_answers.json")


def check_scores(project: Project, method: str, cases: Cases) -> None:
    """Grade a row per case with one method and compare the scores."""
    results = grade(project, [{"id": name, **row} for name, (row, _) in cases.items()], "--method", method)
    scores = {row["id"]: row["scores"][method] for row in results["detailed_results"]}
    assert scores == pytest.approx({name: expected for name, (_, expected) in cases.items()})


ROW = {"question": "What burned?", "expected_answer": "Oil", "generated_answer": "oil"}
LISTS = ("detailed_results", "annotations", "results", "case_results", "items", "data")


@table(
    "content",
    {
        "a list": [ROW],
        "a byte order mark": b"\xef\xbb\xbf" + json.dumps([ROW]).encode(),
        **{name: {"summary": {"n": 1}, name: [ROW]} for name in LISTS},
        "the first that is a list": {"results": {"mean": 1}, "data": [ROW], "items": [ROW]},
    },
)
def test_forms_of_a_file(project: Project, content: object) -> None:
    [row] = grade(project, content)["detailed_results"]
    assert (row["id"], row["input"], row["gold"], row["prediction"]) == ("1", "What burned?", "Oil", "oil")


FIELDS: dict[str, tuple[Row, Row]] = {
    **{name: ({name: "Oil"}, {"gold": "Oil"}) for name in ("expected", "ground_truth", "answer")},
    **{name: ({"gold": "a", name: "b"}, {"prediction": "b"}) for name in ("prediction", "generated")},
    **{name: ({"gold": "a", name: "b"}, {"input": "b"}) for name in ("question", "input", "query")},
    "the first name counts": ({"answer": "5", "expected": "3", "gold": "2"}, {"gold": "2"}),
    "null and blank do not count": ({"expected_answer": None, "gold": "", "answer": "5"}, {"gold": "5"}),
    "options without a gold answer": ({"expected_options": ["a", "b"], "gold": ""}, {"gold": "a"}),
    "a boolean": ({"gold": True, "prediction": False}, {"gold": "true", "prediction": "false"}),
    "no prediction": ({"gold": "a", "prediction": None}, {"prediction": "", "input": ""}),
    "id before question_id": ({"gold": "a", "id": "x", "question_id": "y"}, {"id": "x"}),
    "category": ({"gold": "a", "category": "c"}, {"category": "c"}),
    "Korean": ({"질문": 1, "gold": "계좌", "query": "무엇?"}, {"gold": "계좌", "input": "무엇?"}),
}


def test_fields(project: Project) -> None:
    rows = grade(project, [fields for fields, _ in FIELDS.values()])["detailed_results"]
    for (name, (_, expected)), row in zip(FIELDS.items(), rows, strict=True):
        assert {field: row[field] for field in expected} == expected, name


def test_all_problems_are_reported_with_line_and_field(project: Project) -> None:
    wrong = {"gold": "a", "latency_ms": -1, "context": ["x", 5], "input_tokens": 10**400}
    project.write("a.json", f'{{"n": 1,\n"items": [\n{json.dumps(ROW)},\n{json.dumps(wrong)}]}}')
    outcome = project.run("answers", "a.json", "b.json")
    for words in ("latency_ms", "context: passage 2: expected a string or an object", "input_tokens"):
        assert mentions(outcome.err, "a.json:4:", words), words
    assert (outcome.code, mentions(outcome.err, "b.json: file not found")) == (2, True)
    assert not mentions(outcome.err, "a.json:3:")


@table(
    "gold, predicted, expected",
    {
        "case": ("Whale Oil", "whale oil", True),
        "punctuation": ("whale oil.", "(whale) oil!", True),
        "a hyphen is no space": ("well-known", "well known", False),
        "articles": ("The lamp of a keeper", "lamp of an keeper", True),
        "an article after punctuation": ('"The" lamp', "lamp", True),
        "more words": ("whale oil", "it was whale oil", False),
        "Korean": ("계좌 입니다.", "계좌  입니다", True),
        "an article is not another": ("A", "The", False),
        "a sign alone": ("+", "-", False),
        "one of several": (["four", "4"], "4", True),
        "none of several": (["four", "4"], "5", False),
        "no gold answer": ([], "4", False),
    },
)
def test_exact_match(gold: str | list[str], predicted: str, expected: bool) -> None:
    assert evaluation.exact_match(gold, predicted) is expected
    if isinstance(gold, str):
        assert evaluation.exact_match(predicted, gold) is expected


@table(
    "gold, predicted, expected",
    {
        "not and implies": ("¬P → Q", "! p->Q", True),
        "all of them": ("¬(P ∧ Q) ↔ (¬P \u2228 ¬Q)", "!(p&&q)<->(!p||!q)", True),
        "an article is a variable": ("a ∧ b", "b", False),
        "parentheses count": ("(P)", "P", False),
    },
)
def test_exact_match_of_formulas(gold: str, predicted: str, expected: bool) -> None:
    assert evaluation.exact_match(gold, predicted, normalize="formula") is expected


KEYWORDS: Cases = {
    "the gold answer": ({"gold": "whale oil", "prediction": "It was Whale  Oil."}, 1),
    "not the gold answer": ({"gold": "whale oil", "prediction": "It was oil."}, 0),
    "a keyword": ({"gold": "whale oil", "prediction": "Oil was burned", "keywords": ["fat", "oil"]}, 1),
    "keywords replace the gold answer": ({"gold": "oil", "prediction": "oil", "keywords": ["fat"]}, 0),
    "several words": ({"gold": "x", "prediction": "the oil-lamp", "keywords": ["oil lamp"]}, 0),
    "part of a word": ({"gold": "x", "prediction": "계좌를 만듭니다", "keywords": ["계좌"]}, 1),
    "an accepted answer": ({"gold": "four", "expected_options": ["4"], "prediction": "It has 4."}, 1),
}


def test_keyword(project: Project) -> None:
    """`keyword_legacy` gives half a point for a miss."""
    check_scores(project, "keyword", KEYWORDS)
    legacy = {name: (row, max(score, 0.5)) for name, (row, score) in KEYWORDS.items()}
    check_scores(project, "keyword_legacy", legacy)


# ------------------------------------------------------------------ BLEU


BLEU: Cases = {
    "too short": ({"gold": "the lamp burned oil", "prediction": "the lamp burned"}, math.exp(1 - 4 / 3)),
    "nothing in common": ({"gold": "the lamp", "prediction": "some oil"}, 0),
    "the best of several": ({"gold": "fat", "expected_options": ["oil"], "prediction": "oil"}, 1),
    "smoothed": ({"gold": "oil lamp", "prediction": "oil light"}, math.sqrt(1 / 2 * 1 / 2)),
}


def test_bleu(project: Project) -> None:
    check_scores(project, "bleu", BLEU)


KOREAN_GOLD = "금현물 거래는 주식계좌에서 가능합니다."
KOREAN = "거래는 주식계좌에서 가능합니다."


def test_bleu_splits_korean_into_morphemes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of rows with Hangul; other rows are tokenized by sacrebleu."""
    tokenized: list[str] = []

    def split_letters(texts: Sequence[str]) -> list[list[SimpleNamespace]]:
        tokenized.extend(texts)
        return [[SimpleNamespace(form=letter) for letter in text.replace(" ", "")] for text in texts]

    kiwi = fake_module("kiwi", tokenize=split_letters)
    package = fake_module("kiwipiepy", Kiwi=lambda: kiwi, __version__="1.2.3")
    monkeypatch.setitem(sys.modules, "kiwipiepy", package)
    rows = [
        {"gold": KOREAN_GOLD, "expected_options": ["oil"], "prediction": KOREAN},
        {"gold": "oil", "prediction": "oil lamp"},
        {"gold": KOREAN_GOLD, "prediction": "oil"},
        {"gold": "계\ud800", "prediction": "gas"},
    ]
    results = grade(project, json.dumps(rows), "--method", "bleu")
    gold, text = (" ".join(sentence.replace(" ", "")) for sentence in (KOREAN_GOLD, KOREAN))
    korean = sacrebleu.sentence_bleu(text, [gold], tokenize="none").score / 100
    expected = [korean, math.sqrt(1 / 2 * 1 / 2), 0, 0]
    assert [row["scores"]["bleu"] for row in results["detailed_results"]] == pytest.approx(expected)
    assert tokenized == [KOREAN, KOREAN_GOLD, "oil", "oil", KOREAN_GOLD, "gas", "계?"]
    assert mentions([results["bleu_tokens"]], "13a", "kiwipiepy 1.2.3")
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    outcome = project.run("answers", "a.json", "--method", "bleu", "--overwrite")
    assert mentions(outcome.out.splitlines(), "tokens: 13a, of Korean by white space")
    assert mentions(outcome.out.splitlines(), f"run {sys.executable} -m pip install kiwipiepy")


# ------------------------------------------------------------------ Similarity

DIRECTIONS = {"east": (2, 0), "north": (0, 3), "west": (-1, 0), "between": (3, 4), "nowhere": (0, 0)}
SIMILARITIES: Cases = {
    "the same": ({"gold": "east", "prediction": "east"}, 1),
    "a right angle": ({"gold": "east", "prediction": "north"}, 0),
    "opposite": ({"gold": "east", "prediction": "west"}, 0),
    "between": ({"gold": "east", "prediction": "between"}, 0.6),
    "the best of two": ({"gold": "east", "expected_options": ["north"], "prediction": "between"}, 0.8),
    "a zero vector": ({"gold": "east", "prediction": "nowhere"}, 0),
    "nothing predicted": ({"gold": "south", "prediction": " "}, 0),
}


def test_similarity(project: Project, embed: Embed) -> None:
    """Each text is encoded once, all in one batch; those of blank answers are not needed."""
    batches = embed(DIRECTIONS)
    check_scores(project, "similarity", SIMILARITIES)
    assert [sorted(batch) for batch in batches] == [sorted(DIRECTIONS)]


def test_a_model_that_cannot_be_loaded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not downloaded, which may take minutes to fail. The message is one line."""

    def refuse(name: str, local_files_only: bool, **options: object) -> None:
        assert local_files_only
        raise OSError(f"no model {name}\nand more lines")

    package = fake_module("sentence_transformers", SentenceTransformer=refuse)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    project.write("a.json", [ROW])
    outcome = project.run("answers", "a.json", "--method", "similarity", "--embedding-model", "m")
    [error] = outcome.err
    assert mentions([error], "error: ", "embedding model m", "no model m", "download it once: python -c")
    assert outcome.code == 2


def rows_of(similarities: Sequence[float], correct: str = "") -> tuple[list[Row], dict[str, Sequence[float]]]:
    """Return rows of these similarities, and embeddings that give them. `correct` has 1, 0 or - per row."""
    vectors: dict[str, Sequence[float]] = {"gold": (1, 0)}
    rows = []
    for number, cosine in enumerate(similarities):
        text = f"at {cosine}"
        vectors[text] = {0.6: (3.0, 4.0), 0.8: (4.0, 3.0)}.get(cosine, (cosine, math.sqrt(1 - cosine**2)))
        verdict = {"1": True, "0": False}.get(correct[number : number + 1])
        rows.append({"id": str(number), "gold": "gold", "prediction": text, "correct": verdict})
    return rows, vectors


@table("options, expected", {"0.75": ([], [1, 1, 0, 0]), "0.6": (["--threshold", "0.6"], [1, 1, 1, 0])})
def test_semantic_fixed(project: Project, embed: Embed, options: list[str], expected: list[int]) -> None:
    rows, vectors = rows_of([1.0, 0.8, 0.6, 0.2])
    embed(vectors)
    results = grade(project, rows, "--method", "semantic_fixed", *options)
    assert [row["scores"]["semantic_fixed"] for row in results["detailed_results"]] == expected


DYNAMIC: dict[str, tuple[list[float], str, float, str]] = {  # similarities, labels, threshold, criterion
    "human labels": ([0.4, 0.62, 0.66, 0.7, 0.95], "00111", 0.65, "f1"),
    "exactly a threshold": ([0.58, 0.6, 0.62], "011", 0.6, "f1"),
    "the lowest of equals": ([0.52, 0.58, 0.88], "001", 0.6, "f1"),
    "F1, not accuracy": ([0.6, 0.7, 0.7, 0.7], "1000", 0.5, "f1"),
    "no answer is correct": ([0.6, 0.72], "00", 0.75, "accuracy"),
    "only labelled rows": ([0.56, 0.7, 0.99], "01-", 0.6, "f1"),
    "no labels: similarity above 0.9": ([0.3, 0.84, 0.91, 0.99], "", 0.85, "accuracy"),
}


@table("case", DYNAMIC)
def test_semantic_dynamic(project: Project, embed: Embed, case: tuple[list[float], str, float, str]) -> None:
    similarities, correct, threshold, criterion = case
    rows, vectors = rows_of(similarities, correct)
    embed(vectors)
    results = grade(project, rows, "--method", "semantic_dynamic")
    choice = results["semantic_dynamic"]
    assert (choice["threshold"], choice["criterion"], choice["proxy"]) == (threshold, criterion, not correct)
    assert (choice["rows"], choice["other_rows"]) == (len(correct.replace("-", "") or similarities), 0)
    assert (choice["accuracy"], choice["f1"]) == (None, None)  # there are no other rows
    one_class = len(set(correct) - {"-"}) == 1
    assert mentions(results["warnings"], "labels are no") is one_class
    scores = [row["scores"]["semantic_dynamic"] for row in results["detailed_results"]]
    assert scores == [float(similarity >= threshold) for similarity in similarities]


def test_one_threshold_for_all_files(project: Project, embed: Embed) -> None:
    """Of 120 labelled rows in two files, 60 are for tuning. From 0.7 on answers are correct, but for one."""
    rows, vectors = rows_of([0.6, 0.66, 0.7, 0.8] * 30 + [0.9], "0011" * 29 + "0010")
    embed(vectors)
    machine = rows[:2] + [{**row, "correct": True, "decision_method": "llm"} for row in rows[2:]]
    project.write("a.json", rows[:60])
    project.write("b.json", rows[60:])
    options = ("--method", "semantic_dynamic", "exact", "--validation", "0.5")
    project.run("answers", "a.json", "b.json", *options)
    files = [project.read(f"{stem}_answers.json") for stem in "ab"]
    [chosen, other] = [content["semantic_dynamic"] for content in files]
    assert chosen == other
    assert (chosen["threshold"], chosen["rows"], chosen["other_rows"]) == (0.7, 60, 60)
    others = [row for content in files for row in content["detailed_results"] if not row.get("tuned")]
    labelled = [row for row in others if "label" in row]
    assert (len(others), len(labelled)) == (61, 60)
    right = [row["label"] == (row["scores"]["semantic_dynamic"] == 1) for row in labelled]
    assert chosen["accuracy"] == pytest.approx(sum(right) / 60)
    pooled = files[0]["pooled"]["labels"]
    assert pooled["semantic_dynamic"] == {"n": 60, **{key: chosen[key] for key in list(pooled["exact"])[:4]}}
    assert pooled["exact"] == {"n": 120, "accuracy": 61 / 120, "precision": None, "recall": 0.0, "f1": 0.0}
    assert files[1]["labels"]["semantic_dynamic"]["n"] < 60
    # A machine's verdicts are no labels; with --criterion accuracy others decide.
    results = grade(project, machine, *options, "--criterion", "accuracy")
    assert (results["semantic_dynamic"]["rows"], results["semantic_dynamic"]["criterion"]) == (2, "accuracy")
    assert results["labels"]["exact"]["n"] == 2
    results = grade(project, {"judge_model": "m", "items": rows}, *options)
    choice = results["semantic_dynamic"]
    assert (choice["proxy"], choice["other_rows"] > 0, "labels" in results) == (True, True, False)
    assert (choice["accuracy"], choice["f1"], choice["figures_reason"]) == (None, None, "no person's labels")
    console = project.run("answers", "a.json", *options, "--overwrite").out
    assert "accuracy n/a, F1 n/a (no person's labels)" in " ".join(console.split())


RUN = {"run_name": "r", "model": "m", "condition": "few", "finetuned": False, "few_shot": 3, "seed": 0}


def test_rows_keep_what_they_say_of_their_run(project: Project) -> None:
    """What a file says at its top is said by each row; `answers` reads its results again."""
    passages = [{"text": "One.", "id": 1}, "Two.", {"content": "Three."}, {"page_content": "Four."}]
    row = {"gold": "a", "prediction": "a", "context": passages, "sources": [{"id": "d"}], "seed": 7}
    content = {**RUN, "source_file": "f", "items": [row, {"gold": "a", "context": {"text": "One."}}]}
    first, second = grade(project, content)["detailed_results"]
    assert {name: first[name] for name in RUN} == {**RUN, "seed": 7}
    assert (first["context"], first["sources"]) == (["One.", "Two.", "Three.", "Four."], ["d"])
    assert (second["seed"], second["source_file"], second["context"]) == (0, "f", ["One."])
    assert "sources" not in second
    project.run("answers", "a_answers.json")
    assert project.read("a_answers_answers.json")["detailed_results"] == [first, second]


def test_totals_and_figures_of_all_files(project: Project) -> None:
    rows = [{"question": "Q?", "gold": "a", "prediction": "a", "tokens_input": 10, "tokens_output": 2}]
    project.write("a.json", rows)
    project.write("b.json", [*rows, {**rows[0], "question": "R?", "prediction": "b", "tokens_input": 5}])
    project.run("answers", "a.json", "b.json", "--method", "exact")
    results = project.read("a_answers.json")
    assert (results["total_input_tokens"], results["total_output_tokens"]) == (10, 2)
    pooled = results["pooled"]
    assert (pooled["total_input_tokens"], pooled["measures"]["exact"]["n"]) == (25, 3)
    assert pooled["measures"]["exact"]["mean"] == pytest.approx(2 / 3)


# ------------------------------------------------------------------ Sources and context


SOURCES: dict[str, tuple[Row, float | None, float | None]] = {  # recall, precision
    "one of two": ({"expected_sources": ["d1", "d2"], "sources": ["d2", "d3", "d4"]}, 1 / 2, 1 / 3),
    "repeated": ({"expected_sources": ["d1"], "sources": ["d1", "d1", "d2"]}, 1, 1 / 2),
    "a number": ({"expected_sources": [2], "sources": ["2"]}, 1, 1),
    "an object": ({"expected_sources": ["T"], "sources": [{"title": "T", "id": 3}]}, 1, 1),
    "no source": ({"expected_sources": ["d1"], "sources": []}, 0, 0),
    "case counts": ({"expected_sources": ["d1"], "sources": ["D1"]}, 0, 0),
    "none expected": ({"sources": ["d1"]}, None, None),
}


def test_context_recall_and_precision(project: Project) -> None:
    rows = [{"id": name, "gold": "a", "prediction": "a", **row} for name, (row, _, _) in SOURCES.items()]
    for row in grade(project, rows, "--method", "exact")["detailed_results"]:
        measured = (row["scores"].get("context_recall"), row["scores"].get("context_precision"))
        assert measured == SOURCES[row["id"]][1:], row["id"]
    unmeasured = grade(project, [rows[-1]], "--method", "exact")  # none expected
    assert unmeasured["measures"].keys() == {"exact"}


FAITHFULNESS: dict[str, tuple[str, object, float | None, list[str]]] = {
    "all words": ("The lamp burned oil.", ["Oil burned in the lamp."], 1, []),
    "half of a sentence is enough": ("Lamps burned.", ["It burned."], 1 / 2, []),
    "less than half": ("Cats burned whale oil.", ["oil"], 1 / 4, ["Cats burned whale oil."]),
    "one sentence of two": ("The oil burned. Cats sleep!", ["oil burned"], 1 / 2, ["Cats sleep!"]),
    "repeated words count once": ("Oil, oil, oil and fat", ["oil"], 1 / 2, []),
    "nothing": ("Cats sleep\nDogs bark", ["oil"], 0, ["Cats sleep", "Dogs bark"]),
    "a sentence of function words": ("It is. Oil.", ["oil"], 1, []),
    "not is no function word": ("not oil", ["oil"], 1 / 2, []),
    "no context": ("Oil.", [], None, []),
    "no content words": ("It is so.", ["oil"], None, []),
    "Korean": ("해지는 불가합니다. 수 없음", ["해지는 가능"], 1 / 3, ["수 없음"]),
    "other full stops": ("계좌。해지。", ["계좌"], 1 / 2, ["해지。"]),
}


def test_faithfulness_latency_and_tokens(project: Project) -> None:
    usage = {"latency_ms": 100, "input_tokens": 10, "output_tokens": 3}
    rows = [
        {"id": name, "gold": "a", "prediction": answer, "context": context, **usage}
        for name, (answer, context, _, _) in FAITHFULNESS.items()
    ]
    results = grade(project, rows, "--method", "exact")
    for row in results["detailed_results"]:
        _, _, share, unsupported = FAITHFULNESS[row["id"]]
        assert row["scores"].get("verifier_faithfulness") == pytest.approx(share), row["id"]
        assert row.get("unsupported", []) == unsupported, row["id"]
    assert {name: results["measures"][name]["mean"] for name in usage} == usage
