"""Input files, problems in them, documents that may be opened, and how the results file is written."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import evaluation
import pytest

from conftest import QUESTIONS_FILE as QUESTIONS
from conftest import JudgeWith, Outcome, Project, document, mentions, question, table

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


@posix_only
@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT])
@table(
    "make, word",
    {
        "a directory": (Path.mkdir, "directory"),
        "a FIFO": (lambda path: os.mkfifo(path), "not a file"),
    },
)
def test_something_else_in_place_of_a_file(
    small: Project, file: str, make: Callable[[Path], None], word: str
) -> None:
    (small.folder / file).unlink()
    make(small.folder / file)
    assert_refused(small, (file, word))


@posix_only
@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT, "corpus"])
def test_input_without_read_permission(small: Project, file: str) -> None:
    (small.folder / file).chmod(0)
    outcome = small.run_unprivileged()
    assert (outcome.code, outcome.results) == (2, None)
    assert mentions(outcome.err, file, "Permission denied")


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
