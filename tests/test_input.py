"""Input files, problems in them, documents that may be opened, and how the results file is written."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import evaluation
import pytest

from conftest import KEY, JudgeWith, Outcome, Project, document, mentions, question, table
from conftest import QUESTIONS_FILE as QUESTIONS

PREDICTIONS = "dev_strong_output.json"
DOCUMENT = "corpus/d1.json"
RESULTS = "dev_evaluation.json"
OLD_RESULTS: dict[str, object] = {"old": {}}

posix_only = pytest.mark.skipif(os.name == "nt", reason="needs FIFOs, links and modes of POSIX")


def list_files(project: Project) -> list[Path]:
    return sorted(project.folder.rglob("*"))


def assert_refused(project: Project, *problems: tuple[str, ...]) -> None:
    """Check that each problem has a line with these words, and that nothing is graded or written."""
    project.write(RESULTS, OLD_RESULTS)
    before = list_files(project)
    outcome = project.run()
    for words in problems:
        assert mentions(outcome.err, *words), (words, outcome.err)
    assert len(outcome.err) == len(problems) + 1
    assert mentions(outcome.err[-1:], "error:", f" {len(problems)}")
    assert (outcome.code, outcome.out) == (2, "")
    assert (outcome.results, list_files(project)) == (OLD_RESULTS, before)


# --------------------------------------------------------------------------------------- What is refused


def test_all_problems_of_all_files_are_listed(small: Project) -> None:
    wrong = json.dumps(question("d2", answer=1, question_id="x"))
    good = json.dumps(question("d3"))
    small.write(QUESTIONS, f"{json.dumps(question())}\n\n[]\n{wrong}\n{good}\n")
    small.write(DOCUMENT, "")
    small.write("corpus/d3.json", [])
    small.write("dev_simple_output.json", {"q001": {}, "q002": None, "q003": {"answer": 1}})
    small.write(PREDICTIONS, b"\xff")
    assert_refused(
        small,
        (f"{QUESTIONS}:3", "object"),
        (f"{QUESTIONS}:4", "answer"),
        (DOCUMENT,),
        ("corpus/d3.json", "object"),
        ("dev_simple_output.json", "q002", "object"),
        ("dev_simple_output.json", "q003", "answer"),
        (PREDICTIONS, "UTF-8"),
    )


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # the path of a socket must be short
        listener.bind(path.name)
        os.chdir(Path(__file__).parent)


def write_sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.write(b"{}")
        stream.truncate(10**8)


@posix_only
@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT])
@table(
    "make, word",
    {
        "a directory": (Path.mkdir, "directory"),
        "a FIFO": (lambda path: os.mkfifo(path), "not a file"),
        "a socket": (bind_socket, "not a file"),
        "a sparse file": (write_sparse, "sparse"),
    },
)
def test_something_else_in_place_of_a_file(
    small: Project, file: str, make: Callable[[Path], None], word: str
) -> None:
    (small.folder / file).unlink()
    make(small.folder / file)
    os.chdir(small.folder)
    assert_refused(small, (file, word))


@posix_only
def test_a_device_and_a_journal_that_is_a_fifo(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    os.mkfifo(small.folder / "dev_judgements.jsonl")
    assert small.run().err[-1] == "error: dev_judgements.jsonl: not a file"
    (small.folder / PREDICTIONS).unlink()
    (small.folder / PREDICTIONS).symlink_to("/dev/zero")
    assert_refused(small, (PREDICTIONS, "not a file"))


def test_predictions_have_a_largest_size(small: Project) -> None:
    outcome = small.run("dev", "--max-file-mb", "0.0001")
    assert mentions(outcome.err, f"{PREDICTIONS}: ", "more than --max-file-mb 0.0001")
    assert (outcome.code, outcome.results) == (2, None)
    small.write("a.json", [{"gold": "x" * 200, "prediction": "y"}])
    outcome = small.run("answers", "a.json", "--max-file-mb", "0.0001")
    assert mentions(outcome.err, "a.json: ", "more than --max-file-mb 0.0001")


@posix_only
@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT, "corpus"])
def test_input_without_read_permission(small: Project, file: str) -> None:
    (small.folder / file).chmod(0)
    outcome = small.run_unprivileged()
    assert (outcome.code, outcome.results) == (2, None)
    assert mentions(outcome.err, file, "Permission denied")


EXPECTED = "file not found in {}: expected dev_NAME_output.json"


@table(
    "name, arguments, message",
    {
        "another form": (
            "dev_mybm25.json",
            [],
            f"dev_*_output.json: {EXPECTED}; found dev_mybm25.json",
        ),
        "another system": (
            "dev_simple_output.json",
            ["--systems", "strong"],
            f"dev_strong_output.json: {EXPECTED}; found dev_simple_output.json",
        ),
        "folder": ("team1/dev.json", ["--outputs", "teem1"], "teem1: folder not found in {}; found team1"),
        "labels": (
            "lables.csv",
            ["--human", "labels.csv"],
            "labels.csv: file not found in {}; found lables.csv",
        ),
        "no folder": ("x", ["--human", "no/l.csv"], "no/l.csv: file not found: there is no folder {}/no"),
        "journal": (
            "j.old",
            ["--import-judgements", "j.jsonl"],
            "j.jsonl: file not found in {}; found j.old",
        ),
        "journal that is a folder": ("x/y", ["--import-judgements", "x"], "x: not a file"),
    },
)
def test_missing_file(small: Project, name: str, arguments: list[str], message: str) -> None:
    if name.startswith("dev_"):
        (small.folder / PREDICTIONS).unlink()
    small.write(name, {})
    outcome = small.run("dev", *arguments)
    assert (outcome.code, outcome.results) == (2, None)
    assert message.format(small.folder) in outcome.err


@posix_only
@table(
    "link, arguments, what",
    {
        "predictions": (PREDICTIONS, [], "file"),
        "labels": ("labels.csv", ["--human", "labels.csv"], "file"),
        "submission": ("team", ["--outputs", "team"], "folder"),
    },
)
def test_link_that_leads_nowhere(small: Project, link: str, arguments: list[str], what: str) -> None:
    (small.folder / link).unlink(missing_ok=True)
    (small.folder / link).symlink_to("/nowhere")
    outcome = small.run("dev", *arguments)
    problem = f"{link}: {what} not found: a link to /nowhere, which does not exist"
    assert (outcome.code, outcome.err[0]) == (2, problem)


def test_missing_questions_file(small: Project) -> None:
    (small.folder / QUESTIONS).rename(small.folder / "NLP Project Data/dev_final.jsonl")
    folder = small.folder / "NLP Project Data"
    assert_refused(small, (f"{QUESTIONS}: file not found in {folder}; found dev_final.jsonl",))


@pytest.mark.parametrize("indent", [None, 1])
def test_list_of_questions(small: Project, indent: int | None) -> None:
    rows = [json.loads(line) for line in (small.folder / QUESTIONS).read_text("utf-8").splitlines()]
    expected = small.run().results
    small.write(QUESTIONS, json.dumps(rows, indent=indent))
    assert small.run().results["strong"]["citation"] == expected["strong"]["citation"]
    rows[1]["answer"] = 1
    text = json.dumps(rows, indent=indent)
    small.write(QUESTIONS, text)
    line = 1 + text[: text.rindex("{", 0, text.index('"answer": 1'))].count("\n")
    assert_refused(small, (f"{QUESTIONS}:{line}: [1]: answer: expected a string, got 1",))


def test_list_of_questions_that_is_cut_off(small: Project) -> None:
    small.write(QUESTIONS, f"[\n{json.dumps(question())},\n")
    assert_refused(small, (f"{QUESTIONS}:2: JSON is cut off",))


def test_many_problems_of_a_kind(small: Project) -> None:
    predictions: dict[str, Any] = {f"q{number:03d}": {"answer": number} for number in range(1, 21)}
    predictions["q005"]["question"] = 5
    predictions["q021"] = None
    small.predictions("strong", predictions)
    small.write("dev_simple_output.json", {"q001": {"answer": 1}})
    outcome = small.run()
    answers = [line for line in outcome.err if "strong" in line and " answer: " in line]
    assert len(answers) == 10
    assert answers[-1] == f"{PREDICTIONS}:1: q010: answer: expected a string, got 10 (and 10 more like this)"
    others = [line.partition(":1: ")[2] for line in outcome.err if line not in answers]
    assert others[0].startswith("q001: answer: ")
    assert [line.split(",")[0] for line in others[1:3]] == [
        "q005: question: expected a string",
        "q021: expected an object",
    ]
    assert outcome.err[-1] == "error: problems in the input: 23; nothing was graded or written."


# ---------------------------------------------------------------------------- Which documents are opened

READ, NOT_READ = ("words", 1.0), ("ids", 0.0)


Evidence = Callable[[str], tuple[Outcome, tuple[str, float]]]


@pytest.fixture
def evidence(project: Project, judge_with: JudgeWith) -> Evidence:
    """Grade a citation of S2 instead of S1. Their words are the same: the score shows if they were read."""

    def evidence(doc_id: str) -> tuple[Outcome, tuple[str, float]]:
        project.questions(question(doc_id))
        project.predictions("strong", {"q001": {"answer": "Yes.", "evidence_sentences": ["S2"]}})
        judge_with({"strong": [3]})
        outcome = project.run()
        row = outcome.results["strong"]["llm_judge"]["per_question"][0]
        return outcome, (row["evidence_method"], row["evidence_score"])

    return evidence


def plant(project: Project, doc_id: str) -> None:
    """Write a document where this ID leads to as a path."""
    project.write(str(Path("corpus") / f"{doc_id}.json"), document(doc_id, "It rained.", "It rained."))


@pytest.mark.parametrize("doc_id", ["d1", "gold/2024/d1", "./d1", "d1.v2", "a..b", "Öl und Wärme"])
def test_document_inside_the_corpus_is_read(project: Project, evidence: Evidence, doc_id: str) -> None:
    plant(project, doc_id)
    assert evidence(doc_id)[1] == READ


OUTSIDE = ["../d1", "..", "gold/../../d1", "../corpus/d1", "{folder}/d1"]
OUTSIDE += ["..\\d1", "gold\\..\\..\\d1", "\\d1", "C:d1", "C:/d1", "C:\\d1"]


@pytest.mark.parametrize("doc_id", OUTSIDE)
def test_document_outside_the_corpus_is_not_opened(project: Project, evidence: Evidence, doc_id: str) -> None:
    doc_id = doc_id.format(folder=project.folder.as_posix())
    project.write("corpus/gold/other.json", document())
    with suppress(OSError):
        plant(project, doc_id)
    outcome, score = evidence(doc_id)
    assert mentions(outcome.err, "warning:", QUESTIONS, "outside the corpus", doc_id)
    assert score == NOT_READ


@table(
    "doc_id, shown",
    {
        "NUL": ("d\0001", "d1"),
        "300 characters": ("d" * 300, "d" * 200),
        "3,000 folders": ("d/" * 3000, "d/" * 100),
        "lone surrogate": ("\ud800", ""),
    },
)
def test_document_with_an_impossible_name_is_missing(
    project: Project, evidence: Evidence, doc_id: str, shown: str
) -> None:
    outcome, score = evidence(doc_id)
    assert mentions(outcome.err, "warning:", QUESTIONS, "not in the corpus", f"e.g. {shown}")
    assert (outcome.code, score) == (0, NOT_READ)


@posix_only
@table(
    "link, target, doc_id",
    {
        "file": ("corpus/d1.json", "secret/d1.json", "d1"),
        "folder": ("corpus/gold", "secret", "gold/d1"),
    },
)
def test_link_out_of_the_corpus_is_not_followed(
    project: Project, evidence: Evidence, link: str, target: str, doc_id: str
) -> None:
    plant(project, "../secret/d1")
    project.write("corpus/other.json", document())
    (project.folder / link).symlink_to(project.folder / target)
    outcome, score = evidence(doc_id)
    assert mentions(outcome.err, "warning:", QUESTIONS, "outside the corpus", doc_id)
    assert score == NOT_READ


@posix_only
def test_link_inside_the_corpus_is_followed(project: Project, evidence: Evidence) -> None:
    plant(project, "d2")
    (project.folder / "corpus/d1.json").symlink_to(project.folder / "corpus/d2.json")
    assert evidence("d1")[1] == READ


# ---------------------------------------------------------------------------------- The results file


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_leaves_the_old_results(
    small: Project, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    small.write(RESULTS, OLD_RESULTS)
    before = list_files(small)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    outcome = small.run()
    assert (outcome.code, outcome.results, list_files(small)) == (2, OLD_RESULTS, before)
    assert mentions(outcome.err[-1:], "error: dev_evaluation.json", "No space left on device")


@posix_only
def test_folder_without_write_permission(small: Project) -> None:
    small.folder.chmod(0o500)
    outcome = small.run_unprivileged()
    assert (outcome.code, outcome.results) == (2, None)
    assert mentions(outcome.err[-1:], "error:", "Permission denied")


@posix_only
def test_results_behind_a_link_are_written_there(small: Project) -> None:
    target = small.write("elsewhere/results.json", OLD_RESULTS)
    (small.folder / RESULTS).symlink_to(target)
    small.run()
    assert (small.folder / RESULTS).is_symlink()
    assert list(json.loads(target.read_bytes())) == ["strong"]


def test_same_input_gives_the_same_bytes_in_any_process(small: Project) -> None:
    cited = [f"S{number}" for number in range(9)]
    renamed = [f"{number}/d1" for number in range(9)]
    small.questions(*(question(f"d{number}", evidence_sentences=cited) for number in range(7)))
    row = {"evidence_sentences": cited, "retrieved_docs": renamed}
    for system in ("simple", "strong"):
        small.predictions(system, {"q001": row, "q002": row})
    written = set()
    for seed in "12":
        command = [sys.executable, evaluation.__file__, "dev", "--by", "question_type"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(command, env=environment, check=True, capture_output=True)
        written.add((run.stdout, (small.folder / RESULTS).read_bytes()))
    assert len(written) == 1
