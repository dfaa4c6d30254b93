"""`check`: everything is validated and counted, nothing is judged or written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import evaluation
import pytest

from conftest import QUESTIONS_FILE, Project, Serve, document, json_lines, mentions, question, table
from groq_server import score_reply

SMALL = "strong: 2 of 2 questions answered, 1 with citations, 1 with retrieval\n"


def test_counts_of_each_system_and_nothing_else(small: Project, serve: Serve) -> None:
    server = serve(score_reply(5))
    small.predictions("zebra", {"q001": {"answer": "It is."}, "q002": {}})
    before = small.files()
    outcome = small.run("check", "dev")
    zebra = "zebra: 1 of 2 questions answered, 0 with citations, 0 with retrieval; not answered: q002\n"
    assert (outcome.code, outcome.out) == (0, SMALL + zebra)
    no_citations = "warning: zebra: no citations, which counts 0 where there is gold evidence"
    assert outcome.err == [no_citations, "1 warning"]
    assert small.run("check", "dev", "--systems", "zebra").out == zebra
    assert (small.files(), server.calls) == (before, [])


def test_problems_of_all_files_are_shown(small: Project) -> None:
    small.write("corpus/d1.json", {"sentences": 1})
    small.write("team/dev_own_output.json", '{"q001": {"answer":')
    small.write("team/dev_strong_output.json", [])
    small.submission("fine", strong={"q001": {"answer": "It is."}})
    before = small.files()
    outcome = small.run("check", "dev", "--submissions", "team", "none", "fine")
    assert [line.split(": ")[0] for line in outcome.err] == [
        *("warning", "warning", "warning", "corpus/d1.json"),
        *("team/dev_strong_output.json", "team/dev_own_output.json:1", "none"),
        *("error", "3 warnings"),
    ]
    assert mentions(outcome.err, "error: problems in the input: 4;")
    assert outcome.out.splitlines() == [
        "team/strong: cannot be graded",
        "team/own: cannot be graded",
        "fine/strong: 1 of 2 questions answered, 0 with citations, 0 with retrieval; not answered: q002",
        "1 can be graded, 2 cannot",
    ]
    assert (outcome.code, small.files()) == (2, before)


@pytest.mark.parametrize("command", ["dev", "dev --dry-run", "check dev"])
def test_what_cannot_be_graded_is_exit_code_3_everywhere(small: Project, command: str) -> None:
    small.submission("anna", strong={"q001": {"answer": "It is."}, "q002": {}})
    small.submission("bob", strong=[])
    outcome = small.run(*command.split(), "--submissions", "anna", "bob")
    assert outcome.code == 3
    assert mentions(outcome.err, "bob/dev_strong_output.json", '{"q001": {...}, ...}, got a list')
    assert ("1 can be graded, 1 cannot" in outcome.out.splitlines()) == ("check" in command)


def test_predictions_of_a_malformed_question_are_not_unknown(small: Project) -> None:
    small.write(QUESTIONS_FILE, f"{json.dumps(question())}\n{json.dumps(question('d2', answer=1))}\n")
    outcome = small.run("check", "dev")
    assert [line.partition(": ")[0] for line in outcome.err] == [f"{QUESTIONS_FILE}:2", "error"]


def test_students_check_in_the_kit_which_has_nothing_of_the_gold(small: Project) -> None:
    small.questions(question("d2"), question("d1", question_id="x"))
    small.write("corpus/more/d3.txt", "Lamps.")
    small.write("corpus/notes.md", "The gold is S1.")
    for name in ("dev_final_jsonl.txt", ".hidden.json", ".old/d4.json"):  # which are no documents
        small.write(f"corpus/{name}", question())
    small.write("dev_labels.csv", "gold")
    (small.folder / "kit").mkdir()  # an empty folder is fine
    outcome = small.run("check", "dev", "--student-kit", "kit")
    assert (outcome.code, outcome.out) == (0, "Student kit saved to: kit\n")
    files = {name.removeprefix("kit/"): data for name, data in small.files().items() if "kit/" in name}
    documents = {f"corpus/{name}" for name in ("d1.json", "d2.json", "more/d3.txt")}
    assert files.keys() == {"README.md", "evaluation.py", "requirements.txt", QUESTIONS_FILE, *documents}
    rows = {"q001": "What is d2?", "x": "What is d1?"}
    expected = [{"question_id": name, "question": text} for name, text in rows.items()]
    assert list(map(json.loads, files[QUESTIONS_FILE].splitlines())) == expected
    assert all(files[name] == small.files()[name] for name in documents)
    readme = files["README.md"].decode()
    for line in ("`python3 -m venv .venv`", ".venv/bin/python -m pip", "On Windows, run `py -m venv .venv`"):
        assert line in readme
    assert "## How points are computed\n\nPoints are 100 times the mean of all questions. " in readme
    [command] = [line for line in readme.splitlines() if "evaluation.py" in line]
    arguments = command.partition("python evaluation.py ")[2].partition("`")[0].split()

    def check() -> tuple[int, list[str], str]:
        program = [sys.executable, "evaluation.py", *arguments]
        done = subprocess.run(program, cwd=small.folder / "kit", capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines(), done.stdout

    assert check()[::2] == (0, "no predictions yet\n")
    row = {"answer": "a", "retrieved_docs": ["D2"]}
    small.write("kit/dev_final_output.json", {"q001": row, "X": {"answer": "b"}, "q9": {"answer": "c"}})
    code, err, out = check()
    counts = "final: 1 of 2 questions answered, 0 with citations, 1 with retrieval"
    assert (code, out) == (0, f"{counts}; not answered: x\n")
    assert mentions(err, "IDs unlike those", "X for x")
    assert mentions(err, "IDs that no question has", "q9")
    assert mentions(err, "retrieved IDs unlike", "D2 for d2")


def test_a_json_file_that_is_no_document_stops_the_kit(small: Project) -> None:
    small.write("corpus/gold.json", question())
    outcome = small.run("check", "dev", "--student-kit", "kit")
    assert mentions(outcome.err, "corpus/gold.json: sentences is missing or blank")
    assert (outcome.code, (small.folder / "kit").exists()) == (2, False)


def test_documents_that_are_named_twice_or_wrongly(small: Project) -> None:
    small.write("corpus/d1.txt", "The lamp burned gas.")
    small.write("corpus/d2.json", document("d3", "It rained.", "It snowed."))
    outcome = small.run("check", "dev")
    warnings = [line.partition(f"{QUESTIONS_FILE}: ")[2] for line in outcome.err]
    assert (
        "documents in two files, of which the first counts: 1, e.g. corpus/d1.json, corpus/d1.txt" in warnings
    )
    assert "documents with the doc_id of another: 1, e.g. d3 in d2" in warnings
    assert small.run("dev", "--judge").err == []  # These are warnings of `check`.


def test_a_document_that_cannot_be_read_is_a_problem_without_gold(small: Project) -> None:
    small.write(QUESTIONS_FILE, json_lines({"question_id": "a", "question": "Why?"}))
    small.predictions("strong", {"a": {"answer": "So.", "evidence_sentences": ["S1"]}})
    assert small.run("check", "dev").code == 0
    small.write("corpus/d1.json", "{")
    outcome = small.run("check", "dev")
    assert (mentions(outcome.err, "corpus/d1.json:1: JSON is cut off"), outcome.code) == (True, 2)


def test_students_are_warned_of_a_single_mistake(small: Project) -> None:
    """Where most predictions are right, too."""
    small.write("corpus/field-notes/log.txt", "It rained.")
    small.questions(*(question(question_id=f"q{n}", question=f"What is {n}?") for n in range(10)))
    assert small.run("check", "dev", "--student-kit", "kit").code == 0
    right = {"answer": "It is.", "evidence_sentences": ["S1"], "retrieved_docs": ["d1"]}
    rows: dict[str, dict[str, Any]] = {f"q{n}": {**right, "answer": f"It is {n}."} for n in range(9)}
    rows["q1"]["evidence"] = rows["q1"].pop("evidence_sentences")
    rows["q2"]["retrieved_docs"] = ["log"]
    rows["q3"]["retrieved_docs"] = ["d1x"]
    rows["q4"] = {**right, "evidence_sentences": ["S77"], "retrieved_docs": []}
    rows["q5"]["answer"] = ""
    rows["q6"]["answer"] = " "
    small.write("kit/dev_own_output.json", rows)
    program = [sys.executable, "evaluation.py"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        folder = small.folder / "kit"
        return subprocess.run([*program, *arguments], cwd=folder, capture_output=True, text=True, check=False)

    done = run("check", "dev")
    assert done.stdout.endswith("; not answered: q5, q6, q9\n")
    file = "warning: dev_own_output.json: "
    assert [line.removeprefix(file) for line in done.stderr.splitlines()] == [
        "questions without a prediction, counted as misses: 1, e.g. q9",
        "retrieved IDs unlike those of the documents: 1, e.g. log for field-notes/log; write them as in the "
        "corpus",
        "retrieved IDs that no document of the corpus has: 1, e.g. d1x",
        "cited IDs that neither the gold document nor a retrieved one has: 1, e.g. S77 of q4",
        'rows with the unknown field "evidence": 1, e.g. q1; did you mean "evidence_sentences"?',
        "5 warnings",
    ]
    done = run("dev")
    assert "questions without gold answers, as students have them; check predictions with" in done.stderr
    assert done.returncode == 2


def test_a_kit_needs_no_file_beside_the_program(small: Project) -> None:
    program = small.folder / "elsewhere" / "evaluation.py"
    program.parent.mkdir()
    program.write_bytes(Path(evaluation.__file__).read_bytes())
    command = [sys.executable, str(program), "check", "dev", "--student-kit", "kit"]
    subprocess.run(command, cwd=small.folder, check=True)
    requirements = Path(evaluation.__file__).with_name("requirements.txt").read_bytes()
    assert small.files()["kit/requirements.txt"] == requirements


NOT_EMPTY = "is not an empty folder: name another one, or move it away"


@table(
    "options, message",
    {
        "a folder with something in it": (["corpus"], f"error: corpus {NOT_EMPTY}"),
        "a file": (["dev_strong_output.json"], f"error: dev_strong_output.json {NOT_EMPTY}"),
        "a question": (["kit", "--quiet"], f"{QUESTIONS_FILE}: doc_id is missing or blank"),
    },
)
def test_a_kit_is_whole_or_not_written(small: Project, options: list[str], message: str) -> None:
    if "--quiet" in options:
        small.write(QUESTIONS_FILE, "{}")
    before = small.files()
    outcome = small.run("check", "dev", "--student-kit", *options)
    assert (outcome.code, small.files()) == (2, before)
    assert message in outcome.err


def test_mistakes_in_gold_are_found_before_anybody_has_submitted(small: Project) -> None:
    small.questions(
        question("d1"),
        question("d2", rubric=...),
        question("d3", answer=" \n", question="Which?"),
        question("notes", rubric=..., question="Why?"),
    )
    small.write("corpus/notes.txt", "Lamps.")
    small.write("dev_bm25.json", {})
    (small.folder / "dev_strong_output.json").unlink()
    before = small.files()
    outcome = small.run("check", "dev")
    assert (outcome.code, outcome.out, small.files()) == (0, "no predictions yet\n", before)
    assert mentions(outcome.err, "dev_*_output.json: file not found", "found dev_bm25.json")
    warnings = [line.partition(f"{QUESTIONS_FILE}: ")[2] for line in outcome.err if "warning: " in line]
    assert warnings == [
        "gold documents that are not in the corpus: 1, e.g. d3",
        "questions without a rubric, not judged: 2, e.g. q002",
        "questions with gold sentences that are not in their document: 1, e.g. q004: S1 in notes",
        "questions with a blank gold answer: 1, e.g. q003",
    ]
    (small.folder / "dev_bm25.json").rename(small.folder / "dev_own_output.json")
    outcome = small.run("check", "dev")
    assert (outcome.code, outcome.out[:4], len(outcome.err)) == (0, "own:", 7)


@table("arguments, name", {"here": ((), "strong"), "there": (("--submissions", "team"), "team/strong")})
def test_retrieved_documents_without_gold(small: Project, arguments: tuple[str, ...], name: str) -> None:
    ids = ("a", "b", "c")
    small.write(QUESTIONS_FILE, json_lines(*({"question_id": row, "question": f"Why {row}?"} for row in ids)))
    row = {"answer": "No idea.", "retrieved_docs": ["d1"], "evidence_sentences": ["d1_s1"]}
    predictions = dict.fromkeys(ids, row)
    small.predictions("strong", predictions)
    small.submission("team", strong=predictions)
    outcome = small.run("check", "dev", *arguments)
    line = f"{name}: 3 of 3 questions answered, 3 with citations, 3 with retrieval\n"
    assert outcome.out == line + ("1 can be graded, 0 cannot\n" if arguments else "")
    assert mentions(outcome.err, "warning: ", "cited IDs", "1, e.g. d1_s1 for S1")
    assert mentions(outcome.err, "warning: ", "all answers are the same", "e.g. a")
    assert (outcome.err[-1], outcome.code) == ("2 warnings", 0)


@table("retrieved, is_warned", {"odd": (["corpus/D1.json", "x"], True), "like": (["d1", "d2.json"], False)})
def test_retrieved_ids_without_gold(small: Project, retrieved: list[str], is_warned: bool) -> None:
    small.write(QUESTIONS_FILE, json_lines({"question_id": "a", "question": "Why?"}))
    small.predictions("strong", {"a": {"answer": "No idea.", "retrieved_docs": retrieved}})
    outcome = small.run("check", "dev")
    assert mentions(outcome.err, "retrieved IDs unlike", "corpus/D1.json for d1; write") == is_warned


def test_no_predictions_are_a_problem_if_some_are_expected(small: Project) -> None:
    (small.folder / "dev_strong_output.json").unlink()
    assert small.run("check", "dev").code == 0
    assert small.run("check", "dev", "--systems", "strong").code == 2
    small.write("corpus/d1.json", {"sentences": 1})
    outcome = small.run("check", "dev")
    assert (outcome.code, outcome.out) == (2, "no predictions yet\n")
    assert mentions(outcome.err, "error: problems in the input: 1;")  # that of the document
