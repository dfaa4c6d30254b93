"""Free answers: the rows that are read, and every method as a table of hand-computed cases."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import evaluation
import pytest
import sacrebleu

from conftest import README, Embed, Project, fake_module, mentions, table

Row = dict[str, Any]
Cases = Mapping[str, tuple[Row, float]]  # a row and its score


def grade(project: Project, rows: object, *options: str, file: str = "a.json") -> Any:
    """Grade these rows and return the results."""
    project.write(file, rows)
    outcome = project.run("answers", file, "--overwrite", *options)
    assert (outcome.code, outcome.err) == (0, [])
    return project.read("a_answers.json")


def check_scores(project: Project, method: str, cases: Cases, *options: str) -> None:
    """Grade a row per case with one method and compare the scores."""
    rows = [{"id": name, **row} for name, (row, _) in cases.items()]
    results = grade(project, rows, "--method", method, *options)
    scores = {row["id"]: row["scores"][method] for row in results["detailed_results"]}
    assert scores == pytest.approx({name: expected for name, (_, expected) in cases.items()})


RAGAS = {"user_input": "What?", "retrieved_contexts": ["Oil.", "Fat."], "response": "b, c", "reference": "a"}
OLD_RAGAS = {"question": "What?", "contexts": ["Oil.", "Fat."], "answer": "b, c", "ground_truth": "a"}
LISTS = ("detailed_results", "annotations", "results", "case_results", "items", "data")
JSON_LISTS = '"[""Oil."", ""Fat.""]";"b, c";"[""a"", ""d""]"'
FORMS: dict[str, object] = {
    "a list": [RAGAS],
    "of ragas 0.1": [OLD_RAGAS | {"ground_truths": ["a", "d"], "faithfulness": 0.5}],
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps([RAGAS]).encode(),
    "JSON lines": json.dumps(RAGAS) + "\n\n",
    **{name: {"summary": {"n": 1}, name: [RAGAS]} for name in LISTS},
    "the first that is a list": {"results": {"mean": 1}, "data": [RAGAS], "items": [RAGAS]},
}
CSV_FORMS: dict[str, object] = {
    "a comma, lists of Python": f"{','.join(RAGAS)}\nWhat?,\"['Oil.', 'Fat.']\",\"b, c\",a\n",
    "a semicolon, lists of JSON": f"question;contexts;answer;ground_truths\r\nWhat?;{JSON_LISTS}\r\n",
    "a tab": "question\tcontext\tresponse\treference\nWhat?\t['Oil.', 'Fat.']\tb, c\ta\n",
    "a byte order mark": f"\ufeffQuestion;Contexts;Answer;Ground_Truths\n\n;;\nWhat?;{JSON_LISTS}\n",
}


@table("file, forms", {"JSON": ("a.json", FORMS), "CSV": ("a.csv", CSV_FORMS)})
def test_forms_of_a_file(project: Project, file: str, forms: Mapping[str, object]) -> None:
    row = {"id": "1", "input": "What?", "gold": "a", "prediction": "b, c", "context": ["Oil.", "Fat."]}
    for name, content in forms.items():
        [found] = grade(project, content, file=file)["detailed_results"]
        assert {field: found[field] for field in row} == row, name


GOLD_NAMES = ("expected_answer", "gold", "expected", "ground_truth", "reference")
PREDICTION_NAMES = ("generated_answer", "prediction", "generated", "response", "output")
QUESTION_NAMES = ("question", "input", "query", "user_input")
CONTEXT_NAMES = ("context", "contexts", "retrieved_contexts")
NAMES = (
    *(*GOLD_NAMES, "ground_truths", *PREDICTION_NAMES, "answer", *QUESTION_NAMES, *CONTEXT_NAMES),
    *("expected_sources", "sources"),
)
FIELDS: dict[str, tuple[Row, Row]] = {
    **{name: ({name: "Oil"}, {"gold": "Oil"}) for name in (*GOLD_NAMES, "answer")},
    **{f"{name} and answer": ({name: "a", "answer": "b"}, {"prediction": "b"}) for name in GOLD_NAMES},
    **{name: ({"gold": "a", name: "b"}, {"prediction": "b"}) for name in PREDICTION_NAMES},
    **{name: ({"gold": "a", name: "b"}, {"input": "b"}) for name in QUESTION_NAMES},
    **{name: ({"gold": "a", name: ["b"]}, {"context": ["b"]}) for name in CONTEXT_NAMES},
    "ground_truths": ({"ground_truths": ["a", "b"], "answer": "b"}, {"gold": "a", "prediction": "b"}),
    "sources": ({"gold": "a", "sources": ["d"]}, {"sources": ["d"]}),
    "expected_sources": ({"gold": "a", "expected_sources": ["d"]}, {"expected_sources": ["d"]}),
    "the first name counts": ({"expected": "3", "gold": "2", "expected_answer": "1"}, {"gold": "1"}),
    "a system's name before answer": ({"gold": "a", "answer": "b", "output": "c"}, {"prediction": "c"}),
    "null is not there": ({"expected_answer": "a", "prediction": None, "response": "b"}, {"prediction": "b"}),
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


def test_numbers_labels_and_keywords_in_csv(project: Project) -> None:
    """An empty cell is missing. A verdict may be yes, true or 1."""
    content = "gold,output,correct,latency_ms,tokens_input,keywords\na,a,Yes,12.5,3,b\nb,a,0,,4,\n"
    results = grade(project, content, file="a.csv")
    first, second = results["detailed_results"]
    assert (first["label"], second["label"]) == (True, False)
    assert first["scores"] == {"exact": 1, "keyword": 0, "latency_ms": 12.5, "input_tokens": 3}
    assert second["scores"] == {"exact": 0, "keyword": 0, "latency_ms": None, "input_tokens": 4}
    assert results["total_input_tokens"] == 7


NO_GOLD = ("a.json: [0]: no gold answer", *GOLD_NAMES, "answer", "ground_truths")
OTHER_CODE = ("a.csv:", "not UTF-8", "save it as CSV UTF-8")
PROBLEMS: dict[str, tuple[object, tuple[str, ...]]] = {  # bytes and text are of a CSV file
    "no gold answer": ([{"question": "What?", "response": "b"}], NO_GOLD),
    "a blank one is missing": ([{"expected_answer": " ", "gold": "a", "answer": "b"}], NO_GOLD),
    "no gold answers": ([{"ground_truths": [], "answer": "b"}], NO_GOLD),
    "no answer": (
        [{"reference": "a"}],
        ("a.json:1: no row has a system's answer", *PREDICTION_NAMES, "answer"),
    ),
    "UTF-16": ("gold,output\nÖl,Öl\n".encode("utf-16"), OTHER_CODE),
    "UTF-16 without a mark": ("gold,output\nÖl,Öl\n".encode("utf-16-le"), OTHER_CODE),
    "Windows in Europe": ("gold,output\nÖl,Öl\n".encode("cp1252"), OTHER_CODE),
    "Windows in Korea": ("gold,output\n계좌,계좌\n".encode("cp949"), OTHER_CODE),
    "no rows": ("gold,output\n", ("a.csv: no rows",)),
    "no number": ("gold,output,latency_ms\na,a,fast\n", ("a.csv:2: latency_ms: ",)),
    "a negative amount": ([{"gold": "a", "latency_ms": -1}], ("a.json: [0]: ", "latency_ms")),
    "a context without text": ([{"gold": "a", "context": ["x", {"id": 5}]}], ("a.json: [0]: ", "context")),
    "of 400 digits": ([{"gold": "a", "input_tokens": 10**400}], ("a.json: [0]: ", "input_tokens")),
}


@table("content, words", PROBLEMS)
def test_problems_are_named_with_file_row_and_field(
    project: Project, content: object, words: tuple[str, ...]
) -> None:
    """Those of all files. A blank gold answer is no reason to take another field."""
    name = "a.json" if isinstance(content, list) else "a.csv"
    project.write(name, content)
    outcome = project.run("answers", name, "b.json")
    assert (outcome.code, len(outcome.err), list(project.files())) == (2, 3, [name])
    assert mentions(outcome.err, *words)
    assert mentions(outcome.err, "b.json: file not found")


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_unknown_fields_like_known_ones_are_a_warning(project: Project, name: str) -> None:
    rows = [{"gold": "a", "output": "a", "retrieved_context": "b", "Expected Sources": "d", "note": "c"}]
    content = "\n".join(",".join(cells) for cells in (rows[0], rows[0].values()))
    project.write(name, rows if name == "a.json" else content)
    outcome = project.run("answers", name)
    assert outcome.code == 0
    assert mentions(outcome.err, name, '"retrieved_context"', 'did you mean "retrieved_contexts"?')
    assert mentions(outcome.err, name, "xpected", 'did you mean "expected_sources"?')
    assert not mentions(outcome.err, "note")


HELP = dict.fromkeys(("similarity", "semantic_fixed", "semantic_dynamic", "hybrid"), "sentence-transformers")
HELP |= {"exact": "gold answer", "keyword": "contains", "keyword_legacy": "0.5"}
HELP |= {"bleu": "sacrebleu", "llm_judge": "--protocol"}


def test_help_and_readme_explain_every_method_and_name_every_field(project: Project) -> None:
    outcome = project.run("answers", "--help")
    lines = outcome.out.splitlines()
    for method, words in HELP.items():
        [line] = [line for line in lines if line.split()[:1] == [method]]
        assert words in line, method
    assert (outcome.code, max(map(len, lines)) <= 100) == (0, True)
    assert {*NAMES, "keywords", "category", "correct"} <= set(re.findall(r"\w+", outcome.out))
    assert set(NAMES) <= set(re.findall(r"`(\w+)`", README.read_text("utf-8")))


Texts = dict[str, tuple[str | list[str], str, bool]]  # gold, predicted, whether they are equal
EXACT: Texts = {
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
}
FORMULAS: Texts = {
    "not and implies": ("¬P → Q", "! p->Q", True),
    "all of them": ("¬(P ∧ Q) ↔ (¬P \u2228 ¬Q)", "!(p&&q)<->(!p||!q)", True),
    "an article is a variable": ("a ∧ b", "b", False),
    "parentheses count": ("(P)", "P", False),
}


@table("normalize, cases", {"text": ("text", EXACT), "formula": ("formula", FORMULAS)})
def test_exact_match(normalize: str, cases: Texts) -> None:
    for name, (gold, predicted, expected) in cases.items():
        assert evaluation.exact_match(gold, predicted, normalize) is expected, name
        if isinstance(gold, str):
            assert evaluation.exact_match(predicted, gold, normalize) is expected, name


KEYWORDS: Cases = {
    "the gold answer": ({"gold": "whale oil", "prediction": "It was Whale  Oil."}, 1),
    "not the gold answer": ({"gold": "whale oil", "prediction": "It was oil."}, 0),
    "a keyword": ({"gold": "whale oil", "prediction": "Oil was burned", "keywords": ["fat", "oil"]}, 1),
    "keywords replace the gold answer": ({"gold": "oil", "prediction": "oil", "keywords": ["fat"]}, 0),
    "punctuation separates words": ({"gold": "x", "prediction": "the oil-lamp", "keywords": ["oil lamp"]}, 1),
    "part of a word": ({"gold": "oil", "prediction": "a turmoil"}, 0),
    "part of a number": ({"gold": "1", "prediction": "In 2015 there were 310."}, 0),
    "part of a Korean word": ({"gold": "x", "prediction": "계좌를 만듭니다", "keywords": ["계좌"]}, 1),
    "an article that means something": ({"gold": "Hepatitis A", "prediction": "It is hepatitis B."}, 0),
    "an accepted answer": ({"gold": "four", "expected_options": ["4"], "prediction": "It has 4."}, 1),
}


def test_keyword(project: Project) -> None:
    """`keyword_legacy` gives half a point for a miss."""
    check_scores(project, "keyword", KEYWORDS)
    legacy = {name: (row, max(score, 0.5)) for name, (row, score) in KEYWORDS.items()}
    check_scores(project, "keyword_legacy", legacy)


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
    """The texts of rows with Hangul, here into letters; other rows are tokenized by sacrebleu."""

    def split_letters(text: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(form=letter) for letter in text.replace(" ", "")]

    kiwi = fake_module("kiwi", tokenize=split_letters)
    package = fake_module("kiwipiepy", Kiwi=lambda: kiwi, __version__="1.2.3")
    monkeypatch.setitem(sys.modules, "kiwipiepy", package)
    korean = {"gold": KOREAN_GOLD, "expected_options": ["oil"], "prediction": KOREAN}
    rows = [korean, {"gold": "oil", "prediction": "oil lamp"}, {"gold": "계\ud800", "prediction": "oil"}]
    results = grade(project, json.dumps(rows), "--method", "bleu")
    gold, text = (" ".join(sentence.replace(" ", "")) for sentence in (KOREAN_GOLD, KOREAN))
    expected = sacrebleu.sentence_bleu(text, [gold], tokenize="none").score / 100
    scores = [row["scores"]["bleu"] for row in results["detailed_results"]]
    assert scores == pytest.approx([expected, math.sqrt(1 / 2 * 1 / 2), 0])
    assert mentions([results["bleu_tokens"]], "13a", "kiwipiepy 1.2.3")
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    outcome = project.run("answers", "a.json", "--method", "bleu", "--overwrite")
    assert mentions(outcome.out.splitlines(), "tokens: 13a, of Korean by white space")
    assert mentions(outcome.out.splitlines(), "install", "kiwipiepy")


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


def test_similarity_and_semantic_fixed(project: Project, embed: Embed) -> None:
    """Each text is encoded once, all in one batch; those of blank answers are not needed."""
    batches = embed(DIRECTIONS)
    check_scores(project, "similarity", SIMILARITIES)
    assert [sorted(batch) for batch in batches] == [sorted(DIRECTIONS)]
    for threshold, options in {0.75: [], 0.6: ["--threshold", "0.6"]}.items():
        decided = {name: (row, float(cosine >= threshold)) for name, (row, cosine) in SIMILARITIES.items()}
        check_scores(project, "semantic_fixed", decided, *options)


def test_a_model_that_cannot_be_loaded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not downloaded, which may take minutes to fail. The message is one line."""

    def refuse(name: str, local_files_only: bool, **options: object) -> None:
        assert local_files_only
        raise OSError(f"no model {name}\nand more lines")

    package = fake_module("sentence_transformers", SentenceTransformer=refuse)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    project.write("a.json", [RAGAS])
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
        row = {"id": str(number), "question": "Where?", "gold": "gold", "prediction": text}
        rows.append({**row, "correct": verdict})
    return rows, vectors


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
    """All rows are of one question, so the threshold is chosen on all of them."""
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


def write_shared_questions(project: Project, embed: Embed) -> None:
    """Write two files of 40 rows on 20 questions. From 0.7 on answers are right, but for one."""
    rows, vectors = rows_of([0.6, 0.66, 0.7, 0.8] * 20 + [0.9], "0011" * 19 + "0010")
    embed(vectors)
    for number, row in enumerate(rows):
        row["question"] = f"Where is {number % 20}?"
    project.write("a.json", rows[:40])
    project.write("b.json", rows[40:])


@table(
    "share, n_questions",
    {"none": ([], 10), "0.05": (["--validation", "0.05"], 1), "0.3": (["--validation", "0.3"], 6)},
)
def test_the_threshold_is_chosen_on_a_share_of_the_questions(
    project: Project, embed: Embed, share: list[str], n_questions: int
) -> None:
    """The same questions in all files, and in every run. The figures are of the other rows."""
    write_shared_questions(project, embed)
    command = ("answers", "a.json", "b.json", "--method", "semantic_dynamic", *share)
    outcome = project.run(*command)
    files = [project.read(f"{stem}_answers.json") for stem in "ab"]
    [chosen, other] = [content["semantic_dynamic"] for content in files]
    assert chosen == other
    assert (chosen["rows"], chosen["other_rows"]) == (4 * n_questions, 80 - 4 * n_questions)
    rows = [row for content in files for row in content["detailed_results"] if "label" in row]
    tuned = {row["input"] for row in rows if row.get("tuned")}
    others = [row for row in rows if not row.get("tuned")]
    assert len(tuned) == n_questions
    assert not tuned & {row["input"] for row in others}
    counts = Counter((row["label"], row["scores"]["semantic_dynamic"] == 1) for row in others)
    right = counts[True, True]
    figures = {
        "accuracy": (right + counts[False, False]) / len(others),
        "precision": right / (right + counts[False, True]),
        "recall": right / (right + counts[True, False]),
    }
    assert {name: chosen[name] for name in figures} == pytest.approx(figures)
    shown = f"on the {len(others)} others: accuracy {figures['accuracy']:.3f}, F1 {chosen['f1']:.3f}"
    assert mentions(outcome.out.splitlines(), shown)
    project.run(*command, "--overwrite")
    assert project.read("b_answers.json") == files[1]


def test_labels_are_those_of_people(project: Project, embed: Embed) -> None:
    """Without them there are no figures: what counts as right for its similarity says nothing."""
    write_shared_questions(project, embed)
    rows = project.read("a.json")
    machine = rows[:4] + [{**row, "correct": True, "decision_method": "llm"} for row in rows[4:]]
    options = ("--method", "semantic_dynamic", "exact")
    chosen = grade(project, machine, *options, "--criterion", "accuracy")["semantic_dynamic"]
    assert (chosen["rows"], chosen["other_rows"], chosen["criterion"]) == (2, 2, "accuracy")
    chosen = grade(project, {"judge_model": "m", "items": rows}, *options)["semantic_dynamic"]
    assert (chosen["proxy"], chosen["rows"], chosen["other_rows"]) == (True, 20, 20)
    assert (chosen["accuracy"], chosen["f1"], chosen["figures_reason"]) == (None, None, "no person's labels")
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


FAITHFULNESS: dict[str, tuple[str, object, float | None]] = {  # answer, context, share of its words
    "all words": ("The lamp burned oil.", ["Oil burned in the lamp."], 1),
    "half of them": ("Lamps burned.", ["It burned."], 1 / 2),
    "of several sentences": ("Cats burned whale oil. Dogs!", ["oil"], 1 / 5),
    "repeated words count once": ("Oil, oil, oil and fat", ["oil"], 1 / 2),
    "nothing": ("Cats sleep\nDogs bark", ["oil"], 0),
    "function words do not count": ("It is. Oil.", ["oil"], 1),
    "not is no function word": ("not oil", ["oil"], 1 / 2),
    "no context": ("Oil.", [], None),
    "no content words": ("It is so.", ["oil"], None),
    "Korean": ("해지는 불가합니다. 수 없음", ["해지는 가능"], 1 / 3),
    "other full stops": ("계좌。해지。", ["계좌"], 1 / 2),
}


def test_faithfulness_latency_and_tokens(project: Project) -> None:
    """`answers` reads two names of token counts, and adds them up."""
    rows: list[Row] = []
    for name, (answer, context, _) in FAITHFULNESS.items():
        rows.append({"id": name, "gold": "a", "prediction": answer, "context": context, "latency_ms": 100})
        rows[-1] |= {"tokens_input": 10, "output_tokens": 3}
    results = grade(project, rows, "--method", "exact")
    for row in results["detailed_results"]:
        assert row["scores"].get("verifier_faithfulness") == pytest.approx(FAITHFULNESS[row["id"]][2]), row[
            "id"
        ]
    amounts = {"latency_ms": 100, "input_tokens": 10, "output_tokens": 3}
    assert {name: results["measures"][name]["mean"] for name in amounts} == amounts
    assert (results["total_input_tokens"], results["total_output_tokens"]) == (110, 33)
