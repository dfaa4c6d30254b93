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

from conftest import (
    README,
    Embed,
    Project,
    assert_refused,
    fake_module,
    json_lines,
    mentions,
    question,
    table,
)

Row = dict[str, Any]
Cases = Mapping[str, tuple[Row, float | None]]  # a row and its score


def grade(project: Project, rows: object, *options: str, file: str = "a.json") -> Any:
    """Grade these rows and return the results."""
    project.write(file, json.dumps(rows) if isinstance(rows, list) else rows)
    outcome = project.run("answers", file, "--quiet", *options)
    assert (outcome.code, outcome.err) == (0, [])
    return project.read("a_answers.json")


def check_scores(project: Project, method: str, cases: Cases, *options: str, measure: str = "") -> None:
    """Grade a row per case with one method, and compare the scores by it or by another measure."""
    rows = [{"id": name, **row} for name, (row, _) in cases.items()]
    results = grade(project, rows, "--method", method, *options)
    scores = {row["id"]: row["scores"].get(measure or method) for row in results["detailed_results"]}
    assert scores == pytest.approx({name: expected for name, (_, expected) in cases.items()})


RAGAS = {"user_input": "What?", "retrieved_contexts": ["Oil.", "Fat."], "response": "b, c", "reference": "a"}
OLD_RAGAS = {"question": "What?", "contexts": ["Oil.", "Fat."], "answer": "b, c", "ground_truth": "a"}
JSON_LISTS = '"[""Oil."", ""Fat.""]";"b, c";"[""a"", ""d""]"'
FORMS: dict[str, object] = {  # a row in each
    "a list": [RAGAS],
    "of ragas 0.1": [OLD_RAGAS | {"ground_truths": ["a", "d"], "faithfulness": 0.5}],
    "JSON lines": json.dumps(RAGAS | {"sources": [{"id": "d1"}]}) + "\n\n",
    "an object with one list of objects": {"summary": {"n": 1}, "names": ["s"], "b": [], "data": [RAGAS]},
    "CSV, a line for spreadsheets": "sep=;\r\nQuestion;Context;Answer;Gold;Expected Options\r\n"
    'What?;"[""Oil."", ""Fat.""]";b, c;a;d, e\r\n',
    "CSV, a tab": 'question\tcontext\tresponse\treference\nWhat?\t["Oil.", "Fat."]\tb, c\ta\n',
    "CSV, lists of JSON": f"\ufeffQuestion;Contexts;Answer;Ground_Truths\r\n\n;;\nWhat?;{JSON_LISTS}\n",
}


def test_forms_of_a_file(project: Project) -> None:
    row = {"id": "1", "input": "What?", "gold": "a", "prediction": "b, c", "context": ["Oil.", "Fat."]}
    for name, content in FORMS.items():
        file = {"CSV": "a.csv", "JSON lines": "a.jsonl"}.get(name.partition(",")[0], "a.json")
        [found] = grade(project, content, file=file)["detailed_results"]
        assert {field: found[field] for field in row} == row, name


GOLD_NAMES = ("expected_answer", "gold", "expected", "ground_truth", "reference", "expected_output", "target")
PREDICTION_NAMES: tuple[str, ...] = ("generated_answer", "prediction", "generated", "response")
PREDICTION_NAMES += ("output", "actual_output", "completion")
QUESTION_NAMES = ("question", "input", "query", "user_input", "instruction", "prompt", "inputs")
CONTEXT_NAMES = ("context", "contexts", "retrieved_contexts", "retrieval_context")
FIELDS: dict[str, tuple[Row, Row]] = {
    **{name: ({name: "Oil"}, {"gold": "Oil"}) for name in (*GOLD_NAMES, "reference_answer", "answer")},
    **{f"{name} and answer": ({name: "a", "answer": "b"}, {"prediction": "b"}) for name in GOLD_NAMES},
    **{name: ({"gold": "a", name: "b"}, {"prediction": "b"}) for name in PREDICTION_NAMES},
    **{name: ({"gold": "a", name: "b"}, {"input": "b"}) for name in QUESTION_NAMES},
    **{name: ({"gold": "a", name: ["b"]}, {"context": ["b"]}) for name in CONTEXT_NAMES},
    "ground_truths": ({"ground_truths": ["a", "b"], "answer": "b"}, {"gold": "a", "prediction": "b"}),
    "other case, a space": ({"Ground Truth": "a", "LLM-Output": "-", "Output": "b"}, {"prediction": "b"}),
    "answer beside a system's one": ({"answer": "a", "output": "b"}, {"gold": "a", "prediction": "b"}),
    "options without a gold answer": ({"expected_options": ["a", "b"], "gold": ""}, {"gold": "a"}),
    "a boolean": ({"gold": True, "prediction": False}, {"gold": "true", "prediction": "false"}),
    "no prediction": ({"gold": "a", "prediction": None}, {"prediction": "", "input": ""}),
}


def test_fields(project: Project) -> None:
    for name, (fields, expected) in FIELDS.items():
        other = {} if "prediction" in expected else {"generated_answer": "-"}
        [row] = grade(project, [fields | other])["detailed_results"]
        assert {field: row[field] for field in expected} == expected, name


def test_numbers_labels_and_keywords_in_csv(project: Project) -> None:
    """Empty cells are missing, and NaN in an amount. A verdict may be yes, true or 1. Tokens have a total."""
    content = "gold,output,correct,latency_ms,tokens_input,output_tokens,keywords\n"
    results = grade(project, f"{content}a,a,Yes,12.5,3.0,1,b\nb,a,0,NaN,4,1,\n", file="a.csv")
    first, second = results["detailed_results"]
    assert (first["label"], second["label"]) == (True, False)
    scores = {"exact": 1, "keyword": 0, "f1": 1, "latency_ms": 12.5, "input_tokens": 3, "output_tokens": 1}
    assert first["scores"] == scores
    assert second["scores"] == scores | {"exact": 0, "f1": 0, "latency_ms": None, "input_tokens": 4}
    assert (results["total_input_tokens"], results["total_output_tokens"]) == (7, 2)
    means = {name: measure["mean"] for name, measure in results["measures"].items()}
    assert means == scores | {"exact": 0.5, "f1": 0.5, "input_tokens": 3.5}


def no_answer(what: str, names: Sequence[str], found: str) -> str:
    field = "gold" if what == "gold answer" else "prediction"
    return f":1: no {what}, as {', '.join(names)}, answer; found {found}; name it with --columns {field}="


AMOUNT = "expected a number with a decimal point, as 1250.5"
TOKENS = "expected a whole number, as 1200"
ALL_GOLD_NAMES = (*GOLD_NAMES, "reference_answer")
NOT_UTF8 = "; save as UTF-8, a spreadsheet as CSV UTF-8"
PROBLEMS: dict[str, tuple[object, str]] = {  # content of a file, and what its problem says behind the name
    "no gold.json": ([{"response": "b"}], no_answer("gold answer", ALL_GOLD_NAMES, "response")),
    "blank.json": (
        [{"expected_answer": " ", "answer": "b"}, {"expected_answer": None, "answer": "c"}],
        ":1: no row can be graded: no gold answer",
    ),
    "none.json": ([{"ground_truths": [], "answer": "b"}], ":1: no row can be graded: no gold answer"),
    "no answer.json": ([{"gold": "a"}], no_answer("system's answer", (*PREDICTION_NAMES, "outputs"), "gold")),
    "utf-16.csv": ("gold,output\nÖl,Öl\n".encode("utf-16"), f":1: not UTF-8: byte 0xff{NOT_UTF8}"),
    "windows.csv": ("gold,output\nÖl,Öl\n".encode("cp1252"), f":2: not UTF-8: byte 0xd6{NOT_UTF8}"),
    "a table.xlsx": (b"PK\x03\x04\xff", f":1: not UTF-8: byte 0xff{NOT_UTF8}"),
    "other.csv": ("Frage,Soll\nWas?,a\n", no_answer("gold answer", ALL_GOLD_NAMES, "frage, soll")),
    "no rows.csv": ("gold,output\n", ":1: no rows"),
    "no number.csv": ("gold,output,latency_ms\na,a,fast\n", f":2: latency_ms: {AMOUNT}, got fast"),
    "numbers.csv": (
        'sep=,\ngold,output,input_tokens,latency_ms,correct\na,a,1.200,7,\nb,b,345,"1250,5",\na,a,1.000,,\n,,-1,x,x\n',
        f""":3: input_tokens: {TOKENS}, got 1.200
numbers.csv:4: latency_ms: {AMOUNT}, got 1250,5
numbers.csv:5: input_tokens: {TOKENS}, got 1.000""",
    ),
    "numbers.json": (
        [{"gold": "a", "output": "a", "output_tokens": 3.5}, {"gold": "a", "output": "", "latency_ms": True}],
        f""": [0]: output_tokens: {TOKENS}, got 3.5
numbers.json: [1]: latency_ms: {AMOUNT}, got true""",
    ),
    "lists.csv": (
        "gold;output;keywords;context\n[[Robot]]F p;a;[oil, fat];\na;a;oil, fat | wax;[1] Oil.\n",
        """:2: keywords: no JSON list, as ["a", "b"]; or rename the column: [oil, fat]
lists.csv:3: context: no JSON list, as ["a", "b"]; or rename the column: [1] Oil.""",
    ),
    "5,000 digits.json": (f'[{{"input_tokens": 1{"0" * 5000}}}]', ": a number has too many digits"),
    "no text.json": (
        [{"gold": "a", "output": "b", "context": ["x", {"id": 5}]}],
        ": [0]: context: expected a text, or an object with text",
    ),
}


def test_the_problems_of_all_files_are_named_with_row_and_field(project: Project) -> None:
    """A blank gold answer is no reason to take the system's answer."""
    for name, (content, _) in PROBLEMS.items():
        project.write(name, content)
    problems = [line for name, (_, problem) in PROBLEMS.items() for line in f"{name}{problem}".split("\n")]
    problems.append(f"missing.json: file not found in {project.folder}")
    assert assert_refused(project, "answers", *PROBLEMS, "missing.json") == problems


PROMPTFOO = {
    "results": {
        "results": [
            {"vars": {"q": "What?"}, "response": {"output": "oil"}, "assert": {"value": "Oil"}, "id": "p1"},
            {"vars": {"q": "Who?"}, "response": {"output": "Ann"}, "assert": {"value": "Bob"}, "id": "p2"},
            {"error": "timed out"},
        ]
    }
}
INSPECT = {
    "samples": [
        {"id": 1, "input": "Which?", "target": ["Oil", "Fat"], "output": {"completion": "fat"}},
        {"id": 2, "input": "Who?", "target": "Bob", "output": {"completion": "Ann"}},
    ]
}
EVALS = [
    {"spec": {"completion_fns": ["x"]}},
    {"type": "sampling", "sample_id": "s1", "data": {"prompt": [{"content": "?"}], "picked": ["oil"]}},
    {"type": "match", "sample_id": "s1", "data": {"expected": "Oil", "picked": "oil"}},
    {"type": "match", "sample_id": "s2", "data": {"expected": ["Bob"], "picked": "Ann"}},
]
OTHER_TOOLS: dict[str, tuple[str, object, str, str]] = {  # a file, its columns, and what is not graded
    "promptfoo's results": (
        "a.json",
        PROMPTFOO,
        "rows=results.results question=vars.q gold=assert.value prediction=response.output",
        "no gold answer, not graded: 1, e.g. [2]",
    ),
    "inspect's logs": ("a.json", INSPECT, "rows=samples gold=target prediction=output.completion", ""),
    "OpenAI's evals": (
        "a.jsonl",
        json_lines(*EVALS),
        "question=data.prompt.0.content gold=data.expected prediction=data.picked",
        "no gold answer, not graded: 2, e.g. line 1",
    ),
    "one name that is ours": ("a.csv", "Input,Soll,answer\nWhat?,Oil,oil\nWho?,Bob,Ann\n", "gold=Soll", ""),
    "a table": ("a.csv", "Frage;Soll;Ist\nWas?;Oil;oil\nWer?;Bob;Ann\n", "gold=Soll prediction=IST", ""),
}


GAPS = [
    {"question": "What?", "ground_truth": "Oil", "answer": "oil"},
    {"question": "Who?", "ground_truth": None, "answer": "Ann"},
    {"question": "When?", "ground_truth": float("nan"), "answer": "1902"},
    {"question": "Where?", "ground_truth": " ", "answer": "Ulm"},
    {"question": "Which?", "ground_truth": [], "answer": "a"},
    {"question": "How?", "answer": "so"},
    {"question": "Why?", "ground_truth": "Rain", "answer": "rain"},
]


def test_what_a_column_means_holds_for_every_row(project: Project) -> None:
    """A gap in the gold answers does not make the system's answer gold. The row is named (exit code 3)."""
    project.write("a.json", json.dumps(GAPS))
    outcome = project.run("answers", "a.json")
    line = "a.json: 7 rows; question: question, gold: ground_truth, prediction: answer"
    assert outcome.err[:2] == [line, "missing: a.json: no gold answer, not graded: 5, e.g. [1]"]
    assert outcome.code == 3
    results = project.read("a_answers.json")
    assert [row["prediction"] for row in results["detailed_results"]] == ["oil", "rain"]
    assert results["measures"]["exact"]["mean"] == 1.0
    assert results["complete"] is False
    assert results["read"] == {
        "file": "a.json",
        "rows": 7,
        "columns": {"question": "question", "gold": "ground_truth", "prediction": "answer"},
        "not_graded": {"no gold answer": [f"[{place}]" for place in range(1, 6)]},
    }


@table(
    "fields, names",
    {
        "gold": ({"expected": "Oil", "gold": None, "output": "oil"}, "gold: expected, gold"),
        "the same but for case": ({"gold": "Oil", "GOLD": "Fat", "output": "oil"}, "gold: gold, GOLD"),
        "prediction": ({"gold": "Oil", "output": "a", "answer": "b"}, "prediction: output, answer"),
        "question": ({"gold": "a", "output": "b", "query": "c", "input": "d"}, "question: query, input"),
    },
)
def test_two_names_of_a_field_are_a_problem(project: Project, fields: Row, names: str) -> None:
    project.write("a.json", json.dumps([fields]))
    field, _, column = names.partition(",")[0].partition(": ")
    advice = f"rename all but one, or for answers say --columns {field}={column}"
    assert assert_refused(project, "answers", "a.json") == [f"a.json: columns for {names}: {advice}"]
    assert project.run("answers", "a.json", "--columns", f"{field}={column}").code == 0


def test_an_id_that_repeats_within_a_system_is_a_problem(project: Project) -> None:
    """As by a program that logs a question once for each filter."""
    rows = [
        {"id": f"q{place}", "question": f"{place}?", "gold": "a", "output": answer, "filter": name}
        for place in range(2)
        for name, answer in (("strict", "b"), ("loose", "a"))
    ]
    project.write("a.json", rows)
    advice = "where the file has several systems, name their column with --columns system="
    assert assert_refused(project, "answers", "a.json") == [f"a.json:1: IDs repeat: q0, q1: {advice}"]
    outcome = project.run("answers", "a.json", "--columns", "system=filter")
    assert outcome.code == 0
    assert project.read("a_loose_answers.json")["measures"]["exact"]["mean"] == 1.0


def test_a_whole_name_counts_before_a_path(project: Project) -> None:
    """The ID of a row is kept beside such columns."""
    project.write("a.csv", "question_id,inputs.q,reference.answer,output\nq7,What?,Oil,oil\n")
    columns = ("gold=reference.answer", "question=inputs.q")
    assert project.run("answers", "a.csv", "--columns", *columns).code == 0
    [row] = project.read("a_answers.json")["detailed_results"]
    assert (row["id"], row["input"], row["gold"], row["correct"]) == ("q7", "What?", "Oil", True)


@table("name, content, columns, ungraded", OTHER_TOOLS)
def test_files_of_other_tools_are_read_by_the_names_of_their_columns(
    project: Project, name: str, content: object, columns: str, ungraded: str
) -> None:
    project.write(name, content)
    outcome = project.run("answers", name, "--columns", *columns.split())
    rows = project.read("a_answers.json")["detailed_results"]
    assert [row["correct"] for row in rows] == [True, False]
    assert outcome.code == (3 if ungraded else 0)
    assert mentions(outcome.err, f"missing: {name}: {ungraded}") == (ungraded != "")


NO_TEXT = "a.json: [0]: prediction: Expected str, got "
NO_LIST = "a.json: no list of rows: found {}: name one, for answers as --columns rows=PATH"
NOT_READ: dict[str, tuple[object, str]] = {
    "two lists": (
        {"a": [{"gold": "x", "output": "x"}], "b": [{"gold": "x", "output": "x"}]},
        "a.json: lists of rows: a, b: name one, for answers as --columns rows=a",
    ),
    "a table in columns": (
        {"question": ["What?", "Who?"], "gold": ["Oil", "Bob"], "answer": ["oil", "Ann"]},
        NO_LIST.format("question, gold, answer"),
    ),
    "rows by ID": ({"q7": {"question": "What?", "gold": "Oil", "answer": "oil"}}, NO_LIST.format("q7")),
    "one row": ({**RAGAS, "tags": ["s"]}, NO_LIST.format(", ".join([*RAGAS, "tags"]))),
    "a number": (7, NO_LIST.format("7")),
    "an answer and what was retrieved": (
        [{"gold": "Oil", "output": "oil", "keywords": "[oil"}],
        'a.json: [0]: keywords: no JSON list, as ["a", "b"]; or rename the column: [oil',
    ),
    "chat messages": (
        [{"input": [{"role": "user", "content": "What?"}], "gold": "Oil", "output": "oil"}],
        "a.json: [0]: question: Expected str, got array",
    ),
    "what pandas writes": (
        {"question": {"0": "What?"}, "gold": {"0": "Oil"}, "answer": {"0": "oil"}},
        NO_LIST.format("question, gold, answer"),
    ),
    "no rows": ([], "a.json:1: no rows: expected a list of rows, one object per line"),
    "a key twice": (
        '[{"gold": "Oil", "output": "oil", "gold": "fat"}]',
        'a.json: gold is there twice: {"gold": "fat", "output": "oil"}',
    ),
    "an unknown shape": ([{"gold": "Oil", "response": {"text": "oil", "cost": 1}}], NO_TEXT + "object"),
    "a list": ([{"gold": "Oil", "output": ["oil", "fat"]}], NO_TEXT + "array"),
    "an answer in an object": ([{"gold": "Oil", "completion": {"x": 1}}], NO_TEXT + "object"),
}


HEADER = "gold,output,keywords,sources\n"
NOT_READ_CSV = {
    "two tables in one": (
        f"{HEADER}Oil,oil,,\n{HEADER.title()}Fat,fat,,\n",
        "a.csv:3: the header again: delete this line",
    ),
    "cut off": (f"{HEADER}Oil,oil,,\nFat,f", "a.csv:3: cut off: cells and the line end are missing"),
    "keywords with a semicolon": (
        f"{HEADER}Oil,oil,whale; oil,\n",
        'a.csv:2: keywords: write ["a", "b"] or ["a; b"]: whale; oil',
    ),
    "sources on two lines": (
        f'{HEADER}Oil,oil,,"d1\nd2"\n',
        'a.csv:2: sources: write ["a", "b"] or ["a; b"]: d1 d2',
    ),
    "gold answers": (
        f'{HEADER}"[""Lisbon"", ""Lisboa""]",Lisboa,,\n',
        "a.csv:2: gold: several are options: name the column expected_options",
    ),
}


@table("content, problem", NOT_READ_CSV)
def test_what_cannot_be_read_of_a_csv_says_what_to_do(project: Project, content: str, problem: str) -> None:
    project.write("a.csv", content)
    assert assert_refused(project, "answers", "a.csv") == [problem]


def test_legal_cells_of_a_csv(project: Project) -> None:
    """Short rows are what spreadsheets write, and lists are JSON. A formula is a text, not a list."""
    cells = "gold,output,expected_options,keywords\n[[Robot]]F p,[[robot]]f p\nOil,fat,fat; wax\n"
    cells += 'Oil,d; e,"[""d; e""]"\n'
    project.write("a.csv", cells)
    outcome = project.run("answers", "a.csv", "--method", "exact")
    assert outcome.code == 0
    assert [row["scores"]["exact"] for row in project.read("a_answers.json")["detailed_results"]] == [1, 0, 1]
    assert mentions(outcome.err, "options that are one answer: 1, e.g. line 3: fat; wax; several are")


MISSPELT = {"keyword": "keywords", "source": "sources", "latency": "latency_ms"}
MISSPELT |= dict.fromkeys(("expected_option", "options"), "expected_options")


def test_misspelt_columns_are_named(project: Project) -> None:
    """But not what the row has under its name, nor a column of our own files."""
    rows: list[Row] = [{"gold": "Oil", "output": "oil", name: "1"} for name in MISSPELT]
    rows.append({"gold": "Oil", "output": "oil", "keywords": ["oil"], "keyword": "oil", "answer_id": "a1"})
    project.write("a.json", rows)
    warnings = [line for line in project.run("answers", "a.json").err if line.startswith("warning: ")]
    assert warnings == [
        f'warning: a.json: rows with the unknown field "{name}": 1, e.g. [{index}]; did you mean "{field}"?'
        for index, (name, field) in enumerate(MISSPELT.items())
    ]


def test_what_stands_beside_the_rows_is_kept(project: Project) -> None:
    beside = {"run_name": "r7", "model": "o3", "seed": 3, "few_shot": False}
    rows = [{"gold": "Oil", "output": "oil"}]
    results = grade(project, json.dumps({**beside, "settings": {}, "detailed": rows}))
    assert results["read"]["beside"] == beside


@table("content, problem", NOT_READ)
def test_what_cannot_be_read_says_what_to_do(project: Project, content: object, problem: str) -> None:
    project.write("a.json", content)
    assert assert_refused(project, "answers", "a.json") == [problem]


def test_rows_are_named_without_any_other_column(project: Project) -> None:
    lists = {"old": [{"gold": "x", "output": "y"}], "new": [{"gold": "Oil", "output": "oil"}]}
    project.write("a.json", lists)
    assert project.run("answers", "a.json", "--columns", "rows=new").code == 0
    [row] = project.read("a_answers.json")["detailed_results"]
    assert (row["gold"], row["correct"]) == ("Oil", True)


def test_several_systems_in_a_file(project: Project) -> None:
    """By a column `system`, or one that is named. Models are no systems unless it is said."""
    rows = [
        {"input": question, "expected": "Oil", "output": answer, "provider": {"id": name}}
        for question in ("What?", "Which?")
        for name, answer in (("openai:gpt", "oil"), ("groq:llama", "fat"))
    ]
    flat = [{**row, "system": row["output"]} for row in rows]
    for row in flat:
        del row["provider"]
    project.write("log.json", flat)
    assert mentions(project.run("answers", "log.json").err, "system: system")
    assert project.read("log_oil_answers.json")["measures"]["exact"]["mean"] == 1.0
    project.write("a.json", {"results": rows})
    assert project.run("answers", "a.json", "--columns", "system=provider.id").code == 0
    for name, exact in {"openai-gpt": 1.0, "groq-llama": 0.0}.items():
        results = project.read(f"a_{name}_answers.json")
        assert results["measures"]["exact"]["mean"] == exact
        assert len(results["comparison"]) == 3  # by three methods
        assert [row["id"] for row in results["detailed_results"]] == ["1", "2"]
    project.write("a.json", [*rows, {"input": "Why?", "expected": "Oil", "output": "oil"}])
    outcome = project.run("answers", "a.json", "--columns", "system=provider.id")
    assert outcome.code == 3
    assert mentions(outcome.err, "missing: a.json: no system, not graded: 1, e.g. [4]")


BLANK = {
    "JSON": ("a.json", [{"gold": "Oil", "output": ""}, {"gold": "Fat", "output": None}], []),
    "CSV": ("a.csv", "question,gold,output\nWhat?,Oil,\nWho?,Bob,\n", []),
    "a name of its own": ("a.csv", "Frage,Soll,Ist\nWas?,Oil,\nWer?,Bob,\n", ["gold=Soll", "prediction=Ist"]),
}


@table("file, content, columns", BLANK)
def test_blank_answers_are_graded(project: Project, file: str, content: object, columns: list[str]) -> None:
    """The system was down: that is no mistake in the file."""
    project.write(file, content)
    outcome = project.run("answers", file, *(["--columns", *columns] if columns else []))
    assert outcome.code == 0
    assert mentions(outcome.out.splitlines(), "a: missing or blank answers, counted as wrong: 2, e.g. 1")
    assert project.read("a_answers.json")["measures"]["exact"]["mean"] == 0


FIELD = "error: argument --columns: expected FIELD=PATH, got"


@table(
    "columns, start",
    {
        "an unknown field": ("answer=x", f"{FIELD} 'answer=x'; fields: rows, "),
        "no name": ("gold=", f"{FIELD} 'gold='; fields: rows, "),
        "no such rows": ("rows=data.rows gold=x", "a.json: no list of rows at data.rows"),
        "no such columns": ("gold=x prediction=y", "a.json: --columns gold=x: found id, input, target"),
        "one that no row has": ("gold=target question=Frage", "a.json: --columns question=Frage: found"),
        "a path that ends": ("prediction=output.text.x", "a.json: --columns prediction=output.text.x: found"),
        "a position of 5,000 digits": (
            f"prediction=target.{'9' * 5000}",
            f"a.json: --columns prediction=target.{'9' * 5000}: found id, input, target, output",
        ),
        "into text": ("prediction=output.completion.x", "a.json: --columns prediction=output.completion.x"),
    },
)
def test_columns_that_are_not_there(project: Project, columns: str, start: str) -> None:
    project.write("a.json", INSPECT)
    assert assert_refused(project, "answers", "a.json", "--columns", *columns.split())[0].startswith(start)


def test_a_path_that_fits_two_members(project: Project) -> None:
    project.write("a.json", [{"gold": "Oil", "out": {"Text": "oil", "text ": "fat"}}])
    columns = ("--columns", "prediction=out.TEXT")
    line = "--columns TEXT: is it Text or text ? Rename one"
    assert assert_refused(project, "answers", "a.json", *columns) == [f"error: {line}"]


HELP = {"exact": "gold answer", "keyword": "contains", "keyword_legacy": "0.5", "bleu": "sacrebleu"}
HELP |= {"f1": "F1 of the words"}
HELP |= dict.fromkeys(("similarity", "semantic_fixed", "semantic_dynamic", "hybrid"), "sentence-transformers")
HELP |= {"llm_judge": "--protocol"}


def test_help_explains_every_method_and_names_every_field(project: Project) -> None:
    outcome = project.run("answers", "--help")
    lines = outcome.out.splitlines()
    for method, words in HELP.items():
        assert mentions([line for line in lines if line.startswith(f"  {method} ")], words), method
    assert (outcome.code, max(map(len, lines)) <= 100) == (0, True)
    names = {*GOLD_NAMES, *PREDICTION_NAMES, *QUESTION_NAMES, *CONTEXT_NAMES, "ground_truths", "answer"}
    names |= {"expected_sources", "sources"}
    assert names | {"keywords", "category", "correct"} <= set(re.findall(r"\w+", outcome.out))
    assert "`answers --help` lists the methods and the field names" in README.read_text("utf-8")


EXACT: dict[str, tuple[str, str | list[str], str, bool]] = {  # normalization, gold, predicted, equal
    "case": ("text", "Whale Oil", "whale oil", True),
    "punctuation": ("text", "whale oil.", "(whale) oil!", True),
    "a point between digits": ("text", "3.5", "35", False),
    "a hyphen is no space": ("text", "well-known", "well known", False),
    "articles": ("text", "The lamp of a keeper", "lamp of an keeper", True),
    "more words": ("text", "whale oil", "it was whale oil", False),
    "an article is not another": ("text", "A", "The", False),
    "a sign alone": ("text", "+", "-", False),
    "one of several": ("text", ["four", "4"], "4", True),
    "none of several": ("text", ["four", "4"], "5", False),
    "no gold answer": ("text", [], "4", False),
    "not and implies": ("formula", "¬P → Q", "! p->Q", True),
    "all signs": ("formula", "¬(P ∧ Q) ↔ (¬P \u2228 ¬Q)", "!(p&&q)<->(!p||!q)", True),
    "an article is a variable": ("formula", "a ∧ b", "b", False),
    "parentheses count": ("formula", "(P)", "P", False),
}


def test_exact_match() -> None:
    for name, (normalize, gold, predicted, expected) in EXACT.items():
        assert evaluation.exact_match(gold, predicted, normalize) is expected, name


NUMBERS: dict[str, tuple[str, str, bool]] = {  # gold, predicted, the same number or word
    "a point": ("3.5", "35", False),
    "a minus": ("-5", "5", False),
    "a fraction": ("1/2", "12", False),
    "cents": ("$1.50", "$150", False),
    "a time": ("12:30", "1230", False),
    "a comma is a point": ("3.5", "3,5", True),
    "thousands": ("1000", "1,000", True),
    "thousands with a point": ("1000", "1.000", True),
    "millions": ("1000000", "1,000,000", True),
    "thousands and cents": ("1,000.50", "1.000,50", True),
    "four digits are no thousands": ("1000", "1,0000", False),
    "a start of zero": ("0.125", "0,125", True),
    "a start of zero is no thousand": ("0.125", "0125", False),
    "no start": (".5", "0.5", True),
    "no start is not nothing": (".5", "5", False),
    "three digits are thousands everywhere": ("3.141", "3141", True),
    "a minus before a currency": ("-$5", "$5", False),
    "the sign for minus": ("-5", "\N{MINUS SIGN}5", True),
    "a minus in parentheses": ("-5", "(-5)", True),
    "a minus in bold type": ("-5", "**-5**", True),
    "a bullet": ("oil", "- oil", True),
    "a unit": ("3.5kg", "35kg", False),
    "the end of a sentence": ("3", "3.", True),
    "a version": ("v1.2.3", "v123", False),
    "letters": ("USA", "U.S.A.", True),
    "several fields": ("1.2.3", "1,2,3", True),
}
SIGNS: dict[str, tuple[str, str, bool]] = {  # gold, predicted, the same text
    "an apostrophe": ("Alzheimer's", "Alzheimer\N{RIGHT SINGLE QUOTATION MARK}s", True),
    "quotes": ("Titanic", "\N{LEFT DOUBLE QUOTATION MARK}Titanic\N{RIGHT DOUBLE QUOTATION MARK}", True),
    "guillemets": ("Titanic", "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}Titanic\u00bb", True),
    "a hyphen that does not break": ("London-based", "London\N{NON-BREAKING HYPHEN}based", True),
    "a dash between years": ("1914-1918", "1914\N{EN DASH}1918", True),
    "a Chinese full stop": ("\u4e94\u5473\u5b50", "\u4e94\u5473\u5b50\u3002", True),
    "an inverted question mark": ("que", "\N{INVERTED QUESTION MARK}que?", True),
    "a decomposed letter": ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}", True),
    "full-width letters": ("AB12", "\uff21\uff22\uff11\uff12", True),
    "a superscript": ("10\N{SUPERSCRIPT TWO}", "102", False),
    "a subscript": ("H\N{SUBSCRIPT TWO}O", "H2O", False),
}
MINUS_WITHIN = {"a hyphen": ("x-5", "x5"), "a date": ("2026-11-23", "20261123")}  # for exact no signs


def test_an_answer_without_anything_to_see_is_blank(project: Project) -> None:
    cases = {"alike": case("\u200b", 0, "oil", expected_options=["\u200b"]), "a sign": case("oil", 1, "oil")}
    check_scores(project, "exact", cases)


def test_signs_of_numbers_count(project: Project) -> None:
    """For exact, keyword and F1 alike. A hyphen within a word stays what it is in SQuAD: nothing."""
    cases = {name: case(predicted, float(same), gold) for name, (gold, predicted, same) in NUMBERS.items()}
    cases |= {name: case(predicted, float(same), gold) for name, (gold, predicted, same) in SIGNS.items()}
    for method in ("exact", "keyword", "f1"):
        check_scores(project, method, cases)
    for name, (gold, predicted) in MINUS_WITHIN.items():
        assert evaluation.exact_match(gold, predicted), name
    assert not evaluation.exact_match("3.5", "35", "formula")


def test_hidden_characters_do_not_count(project: Project) -> None:
    texts = ("wha\u200ble oil", "whale\u00a0o\u00adil", "\u202ewhale oil\u2069", "\ufeffwhale\u2028oil")
    for method in ("exact", "keyword", "f1"):
        check_scores(project, method, {repr(text): case(text, 1, "whale oil") for text in texts})
        check_scores(project, method, {repr(text): case("whale oil", 1, text) for text in texts})
    assert evaluation.exact_match("p\u200b ∧ q", "p&&\u2060q", "formula")


def test_a_keyword_is_no_part_of_a_number(project: Project) -> None:
    within = ("It is 3.5.", "It is 1,005.", "It is -5 now.", "5/6 of it", "at 12:5", "at 5:12", "1.5%")
    cases = {text: case(text, 0, keywords=["5"]) for text in within}
    cases |= {text: case(text, 1, keywords=["5"]) for text in ("5.", "(5)", "x-5", "5, or 6", "5%", "$5")}
    check_scores(project, "keyword", cases)


TOKEN_F1: dict[str, tuple[str | list[str], str, float]] = {  # by hand: 2 common / (words + gold words)
    "the same": ("whale oil", "Whale oil!", 1),
    "articles do not count": ("the lamp", "a lamp", 1),
    "a part": ("whale oil", "It was whale oil.", 4 / 6),
    "nothing": ("whale oil", "fat", 0),
    "order does not count": ("whale oil", "oil of whale", 4 / 5),
    "a word counts as often as both have it": ("oil oil fat", "oil oil oil", 4 / 6),
    "repeated in the answer": ("oil", "oil oil oil", 2 / 4),
    "the best of several": (["fat of a sheep", "whale oil"], "whale oil", 1),
    "both are empty": ("", "", 1),
    "one is empty": ("oil", "", 0),
    "the other is empty": ("", "oil", 0),
    "numbers are words": ("3.5 kg", "35 kg", 2 / 4),
}


def test_token_f1(project: Project) -> None:
    """As SQuAD's evaluate-v2.0 has it. An answer that is blank is never right."""
    for name, (gold, predicted, expected) in TOKEN_F1.items():
        assert evaluation.token_f1(gold, predicted) == pytest.approx(expected), name
    sentence = case("It was whale oil.", 4 / 6, "whale oil", expected_options=["fat"])
    check_scores(project, "f1", {"sentence": sentence, "blank": case(" ", 0, "whale oil")})


def case(
    prediction: object, score: float | None, gold: object = "a", **fields: object
) -> tuple[Row, float | None]:
    return {"gold": gold, "prediction": prediction, **fields}, score


WHOLE_NUMBERS: Cases = {
    "a number and a text": case(4.0, 1, "4"),
    "a text and a number": case("4", 1, 4.0),
    "its JSON text": case("4.0", 1, 4.0),
    "two numbers": case(4, 1, 4.0),
    "another text": case("4.00", 0, 4.0),
    "two texts": case("4", 0, "4.0"),
    "no whole number": case("4", 0, 4.5),
}


def test_a_whole_number_is_the_text_with_and_without_a_point(project: Project) -> None:
    check_scores(project, "exact", WHOLE_NUMBERS)
    check_scores(project, "f1", WHOLE_NUMBERS)


KEYWORDS: Cases = {
    "the gold answer": case("It was Whale  Oil.", 1, "whale oil"),
    "not the gold answer": case("It was oil.", 0, "whale oil"),
    "a keyword": case("Oil was burned", 1, keywords=["fat", "oil"]),
    "keywords replace the gold answer": case("oil", 0, "oil", keywords=["fat"]),
    "punctuation separates words": case("the oil-lamp", 1, keywords=["oil lamp"]),
    "part of a word": case("a turmoil", 0, "oil"),
    "part of a number": case("In 2015 there were 310.", 0, "1"),
    "part of a Korean word": case("계좌를 만듭니다", 1, keywords=["계좌"]),
    "part of a Japanese text": case("東京です。", 1, keywords=["東京"]),
    "Katakana and half-width ones": case("ﾊｲ、東京タワーです", 1, keywords=["タワー"]),
    "part of a Chinese text": case("首都是北京市", 1, keywords=["北京"]),
    "part of a Thai text": case("เมืองหลวงคือกรุงเทพฯ", 1, keywords=["กรุงเทพ"]),
    "part of a Lao text": case("ນະຄອນຫຼວງວຽງຈັນ", 1, keywords=["ວຽງຈັນ"]),
    "part of a Khmer text": case("រាជធានីភ្នំពេញជា", 1, keywords=["ភ្នំពេញ"]),
    "part of a Burmese text": case("မြို့တော်ရန်ကုန်မြို့", 1, keywords=["ရန်ကုန်"]),
    "part of a Thai number": case("๑๕", 0, keywords=["๕"]),
    "a year in a Japanese text": case("2015年", 1, keywords=["2015"]),
    "part of a number in a Japanese text": case("2015年", 0, keywords=["15"]),
    "an article that means something": case("It is hepatitis B.", 0, "Hepatitis A"),
    "an accepted answer": case("It has 4.", 1, "four", expected_options=["4"]),
    "an exact match": case("Danube", 1, "the Danube"),
    "an exact match beside keywords": case("Danube", 0, "the Danube", keywords=["river"]),
}
FAITHFULNESS: Cases = {  # the share of an answer's words that are in its context
    "all words": case("The lamp burned oil.", 1, context="Oil burned in the lamp."),
    "of several sentences": case("Cats burned whale oil. Dogs!", 1 / 5, context="oil"),
    "repeated words count once": case("Oil, oil, oil and fat", 1 / 2, context="oil"),
    "function words do not count": case("It is. Oil.", 1, context="oil"),
    "not is no function word": case("not oil", 1 / 2, context="oil"),
    "no context": case("Oil.", None, context=[]),
    "no content words": case("It is so.", None, context="oil"),
    "Korean": case("해지는 불가합니다. 수 없음", 1 / 3, context="해지는 가능"),
}
SOURCES: dict[str, tuple[Any, Any, float | None, float | None]] = {  # expected, found, recall, precision
    "one of two": (["d1", "d2"], ["d2", "d3", "d4"], 1 / 2, 1 / 3),
    "repeated": (["d1"], ["d1", "d1", "d2"], 1, 1 / 2),
    "a number": ([2], ["2"], 1, 1),
    "an object": (["T"], [{"title": "T", "id": 3}], 1, 1),
    "an object of two names": (["T", "3"], [{"title": "T", "id": 3}, "x"], 1, 1 / 2),
    "no source": (["d1"], [], 0, 0),
    "none expected": ([], ["d1"], None, None),
}


def test_keyword_faithfulness_and_sources(project: Project) -> None:
    """`keyword_legacy` gives half a point for a miss. Where no row has sources, they are not measured."""
    check_scores(project, "keyword", KEYWORDS)
    legacy = {name: (row, max(score or 0, 0.5)) for name, (row, score) in KEYWORDS.items()}
    check_scores(project, "keyword_legacy", legacy)
    check_scores(project, "exact", FAITHFULNESS, measure="verifier_faithfulness")
    for place, measure in enumerate(("context_recall", "context_precision"), start=2):
        cases = {}
        for name, row in SOURCES.items():
            cases[name] = case("a", row[place], expected_sources=row[0], sources=row[1])
        check_scores(project, "exact", cases, measure=measure)
    for name in ("no source", "none expected"):
        assert grade(project, [cases[name][0]], "--method", "exact")["measures"].keys() == {"exact"}


BLEU: Cases = {
    "too short": case("the lamp burned", math.exp(1 - 4 / 3), "the lamp burned oil"),
    "nothing in common": case("some oil", 0, "the lamp"),
    "the best of several": case("oil", 1, "fat", expected_options=["oil"]),
    "punctuation is a word of its own": case("oil!", math.sqrt(1 / 2 * 1 / 2), "oil."),
    "smoothed": case("oil light", math.sqrt(1 / 2 * 1 / 2), "oil lamp"),
    "Korean": case("oil", 0, "계\ud800"),
}
KOREAN_GOLD = "금현물 거래는 주식계좌에서"
KOREAN = "거래는 주식계좌에서."


def test_bleu(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of rows with Hangul are split into morphemes, here into letters; sacrebleu splits the others."""

    def split_letters(text: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(form=letter) for letter in text.replace(" ", "")]

    kiwi = fake_module("kiwi", tokenize=split_letters)
    package = fake_module("kiwipiepy", Kiwi=lambda: kiwi, __version__="1.2.3")
    monkeypatch.setitem(sys.modules, "kiwipiepy", package)
    gold, text = (" ".join(sentence.replace(" ", "")) for sentence in (KOREAN_GOLD, KOREAN))
    expected = sacrebleu.sentence_bleu(text, [gold], tokenize="none").score / 100
    korean = case(KOREAN, expected, KOREAN_GOLD, expected_options=["oil"])
    check_scores(project, "bleu", {**BLEU, "morphemes": korean})
    assert project.read("a_answers.json")["bleu_tokens"] == "13a, of Korean by morphemes (kiwipiepy 1.2.3)"
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    printed = project.run("answers", "a.json", "--method", "bleu").out.splitlines()
    assert mentions(printed, "tokens: 13a, of Korean by white space")
    assert mentions(printed, "install", "kiwipiepy")


def test_a_question_of_a_split_without_a_gold_answer_is_a_miss(small: Project, embed: Embed) -> None:
    small.questions(question(answer=" "))
    batches = embed({})
    for method in ("exact", "bleu", "similarity"):
        assert small.run("answers", "dev", "--method", method).code == 0
        assert small.read("dev_strong_output_answers.json")["measures"][method]["mean"] == 0
    assert batches == []


DIRECTIONS = {"east": (2, 0), "north": (0, 3), "west": (-1, 0), "between": (3, 4), "nowhere": (0, 0)}
SIMILAR = {
    "the same": case("east", 1, "east"),
    "a right angle": case("north", 0, "east"),
    "opposite": case("west", 0, "east"),
    "between": case("between", 0.6, "east"),
    "the best of two": case("between", 0.8, "east", expected_options=["north"]),
    "a zero vector": case("nowhere", 0, "east"),
    "nothing predicted": case(" ", 0, "south"),
    "nothing that can be seen": case("\u200b", 0, "south"),
}


def test_similarity_and_semantic_fixed(project: Project, embed: Embed) -> None:
    """Each text is encoded once, all in one batch; those of blank answers are not needed."""
    batches = embed(DIRECTIONS)
    check_scores(project, "similarity", SIMILAR)
    assert [sorted(batch) for batch in batches] == [sorted(DIRECTIONS)]
    for threshold, options in {0.75: [], 0.6: ["--threshold", "0.6"]}.items():
        decided = {name: (row, float((cosine or 0) >= threshold)) for name, (row, cosine) in SIMILAR.items()}
        check_scores(project, "semantic_fixed", decided, *options)


def test_a_model_that_cannot_be_loaded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not downloaded, which may take minutes to fail. The message is one line."""

    def refuse(name: str, local_files_only: bool, **options: object) -> None:
        assert local_files_only
        raise OSError(f"no model {name}\nand more lines")

    package = fake_module("sentence_transformers", SentenceTransformer=refuse)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    project.write("a.json", [RAGAS])
    command = ("answers", "a.json", "--method", "similarity", "--embedding-model", "m")
    [problem] = assert_refused(project, *command)
    assert problem == (
        "error: the embedding model m is not on this machine (no model m); "
        "name its folder, or download it once: SentenceTransformer('m') in Python"
    )


def rows_of(similarities: Sequence[float], correct: str = "") -> tuple[list[Row], dict[str, Sequence[float]]]:
    """Return rows of these similarities, and embeddings that give them. `correct` has 1, 0 or - per row."""
    vectors: dict[str, Sequence[float]] = {"gold": (1, 0)}
    rows = []
    for number, cosine in enumerate(similarities):
        text = f"at {cosine}"
        vectors[text] = {0.6: (3.0, 4.0), 0.8: (4.0, 3.0)}.get(cosine, (cosine, math.sqrt(1 - cosine**2)))
        verdict = {"1": True, "0": False}.get(correct[number : number + 1])
        rows.append({"question": "Where?", "gold": "gold", "prediction": text, "correct": verdict})
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
    """All rows are of one question, so the threshold is chosen on all of them, and there are no figures."""
    similarities, correct, threshold, criterion = case
    rows, vectors = rows_of(similarities, correct)
    embed(vectors)
    results = grade(project, rows, "--method", "semantic_dynamic")
    expected: Row = {"threshold": threshold, "criterion": criterion, "proxy": not correct, "other_rows": 0}
    expected |= {"rows": len(correct.replace("-", "") or similarities), "accuracy": None, "f1": None}
    assert results["semantic_dynamic"].items() >= expected.items()
    scores = [row["scores"]["semantic_dynamic"] for row in results["detailed_results"]]
    assert scores == [float(similarity >= threshold) for similarity in similarities]


def write_shared_questions(project: Project, embed: Embed) -> None:
    """Write two files of 40 rows on 20 questions, and rows on others that nobody has judged.

    From 0.7 on answers are right, but for one.
    """
    rows, vectors = rows_of([0.6, 0.66, 0.7, 0.8] * 20 + [0.9] * 4, "0011" * 19 + "0010")
    embed(vectors)
    for number, row in enumerate(rows):
        row["question"] = f"Where is {number % 20 if number < 80 else number}?"
    project.write("a.json", rows[:40])
    project.write("b.json", rows[40:])


def test_the_threshold_is_chosen_on_half_of_the_questions(project: Project, embed: Embed) -> None:
    """The same questions in all files, and in every run. The figures are of the other rows."""
    write_shared_questions(project, embed)
    command = ("answers", "a.json", "b.json", "--method", "semantic_dynamic")
    outcome = project.run(*command)
    files = [project.read(f"{stem}_answers.json") for stem in "ab"]
    chosen = files[0]["semantic_dynamic"]
    assert (chosen["rows"], chosen["other_rows"]) == (40, 40)
    rows = [row for content in files for row in content["detailed_results"] if "label" in row]
    tuned = {row["input"] for row in rows if row.get("tuned")}
    others = [row for row in rows if not row.get("tuned")]
    assert (len(tuned), tuned & {row["input"] for row in others}) == (10, set())
    counts = Counter((row["label"], row["scores"]["semantic_dynamic"] == 1) for row in others)
    right = counts[True, True]
    accuracy = (right + counts[False, False]) / len(others)
    assert chosen["accuracy"] == pytest.approx(accuracy)
    assert chosen["precision"] == pytest.approx(right / (right + counts[False, True]))
    assert chosen["recall"] == pytest.approx(right / (right + counts[True, False]))
    f1 = 2 * right / (2 * right + counts[False, True] + counts[True, False])
    assert chosen["f1"] == pytest.approx(f1)
    shown = f"on the {len(others)} others: accuracy {accuracy:.3f}, F1 {f1:.3f}"
    assert mentions(outcome.out.splitlines(), shown)
    project.run(*command)
    assert [project.read(f"{stem}_answers.json") for stem in "ab"] == files


def test_labels_are_those_of_people(project: Project, embed: Embed) -> None:
    """Without them there are no figures: what counts as right for its similarity says nothing."""
    write_shared_questions(project, embed)
    rows = project.read("a.json")
    machine = rows[:4] + [{**row, "correct": True, "decision_method": "llm"} for row in rows[4:]]
    options = ("--method", "semantic_dynamic", "exact")
    chosen = grade(project, machine, *options)["semantic_dynamic"]
    assert (chosen["rows"], chosen["other_rows"]) == (2, 2)
    judged = [{**row, "judge_model": "m"} for row in rows]
    chosen = grade(project, judged, *options)["semantic_dynamic"]
    expected = {"proxy": True, "rows": 20, "other_rows": 20, "accuracy": None, "f1": None}
    reason = "no person's labels: a similarity above 0.9 counted as correct"
    assert chosen.items() >= {**expected, "figures_reason": reason}.items()
    console = project.run("answers", "a.json", *options).out
    assert f"accuracy n/a, F1 n/a ({reason})" in " ".join(console.split())


RUN = {"run_name": "r", "model": "m", "condition": "few", "finetuned": False, "few_shot": 3, "seed": 0}


def test_rows_keep_what_they_say_of_their_run(project: Project) -> None:
    """`answers` reads its results again."""
    passages = [{"text": "One.", "id": 1}, "Two.", {"content": "Three."}, {"page_content": "Four."}]
    row = {"gold": "a", "prediction": "a", "context": passages, "sources": [{"id": "d"}], **RUN}
    other = {"gold": "a", "context": {"text": "One."}, "seed": 0, "source_file": "f"}
    first, second = grade(project, [row, other])["detailed_results"]
    assert {name: first[name] for name in RUN} == RUN
    assert (first["context"], first["sources"]) == (["One.", "Two.", "Three.", "Four."], ["d"])
    assert (second["seed"], second["source_file"], second["context"]) == (0, "f", ["One."])
    assert "sources" not in second
    project.run("answers", "a_answers.json")
    assert project.read("a_answers_answers.json")["detailed_results"] == [first, second]
