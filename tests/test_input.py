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

from conftest import QUESTIONS_FILE as QUESTIONS
from conftest import JudgeWith, Project, assert_refused, document, mentions, posix_only, question, table

PREDICTIONS = "dev_strong_output.json"
RESULTS = "dev_evaluation.json"
DOCUMENT = "corpus/d1.json"
OLD_RESULTS: dict[str, object] = {"old": {}}


def test_all_problems_of_all_files_are_listed(small: Project) -> None:
    wrong = json.dumps(question("d2", answer=1, question_id="x"))
    good = json.dumps(question("d3"))
    small.write(QUESTIONS, f"{json.dumps(question())}\n\n[]\n{wrong}\n{good}\n")
    small.write(DOCUMENT, "")
    small.write("corpus/d3.json", [])
    small.write("dev_simple_output.json", [{"answer": "It is."}])
    small.write(PREDICTIONS, b"\xff")
    small.write(RESULTS, OLD_RESULTS)
    assert sorted(assert_refused(small)) == [
        f"{QUESTIONS}:3: Expected object, got array",
        f"{QUESTIONS}:4: answer: Expected str, got int",
        f"{DOCUMENT}:1: the file is empty",
        "corpus/d3.json: Expected object, got array",
        'dev_simple_output.json: expected an object by question ID, {"q001": {...}, ...}, got a list',
        f"{PREDICTIONS}:1: not UTF-8: byte 0xff; save as UTF-8, a spreadsheet as CSV UTF-8",
    ]


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # the path of a socket must be short
        listener.bind(path.name)
        os.chdir(Path(__file__).parent)


@posix_only
@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT])
@table(
    "make, what",
    {
        "a directory": (Path.mkdir, "a directory"),
        "a FIFO": (lambda path: os.mkfifo(path), "not a file"),
        "a socket": (bind_socket, "not a file"),
    },
)
def test_what_is_no_file(small: Project, file: str, make: Callable[[Path], None], what: str) -> None:
    (small.folder / file).unlink()
    make(small.folder / file)
    os.chdir(small.folder)
    assert assert_refused(small) == [f"{file}: cannot be read: {what}"]


@posix_only
def test_a_device_and_a_journal_that_is_a_fifo(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk_any")
    os.mkfifo(small.folder / "dev_judgements.jsonl")
    assert small.run().err[-1] == "error: dev_judgements.jsonl: not a file"
    (small.folder / PREDICTIONS).unlink()
    (small.folder / PREDICTIONS).symlink_to("/dev/zero")
    assert assert_refused(small) == [f"{PREDICTIONS}: cannot be read: not a file"]


def test_a_submission_has_a_largest_size(small: Project) -> None:
    """100 MB. The user's own files may have 1 GB."""
    rows = {"q001": {"answer": "x" * 100_000_000}}
    small.predictions("simple", rows)
    small.submission("s/anna", strong=rows)
    small.submission("s/bob", strong={"q001": {"answer": "x" * 99_900_000}})
    assert small.run("dev", "--systems", "simple").code == 0
    outcome = small.run("dev", "--submissions", "s/anna", "s/bob", "--judge")
    assert mentions(outcome.err, "s/anna/dev_strong_output.json: cannot be read: 100 MB, more than 100")
    assert "1 of 2 submissions graded; not graded: anna" in outcome.out


@posix_only
def test_input_without_read_permission(small: Project) -> None:
    (small.folder / PREDICTIONS).chmod(0)
    outcome = small.run_unprivileged()
    assert (outcome.code, outcome.results) == (2, None)
    assert f"{PREDICTIONS}: cannot be read: Permission denied" in outcome.err


EXPECTED = "file not found in {}: expected dev_NAME_output.json"


@table(
    "name, arguments, message",
    {
        "form": ("dev_bm25.json", "", f"dev_*_output.json: {EXPECTED}; found dev_bm25.json"),
        "system": (
            "dev_x_output.json",
            "--systems strong",
            f"{PREDICTIONS}: {EXPECTED}; found dev_x_output.json",
        ),
        "folder": ("team1/dev.json", "--submissions teem1", "error: --submissions: not a folder: teem1"),
        "overrides": ("ovr.csv", "--overrides over.csv", "over.csv: file not found in {}; found ovr.csv"),
        "no folder": ("x", "--overrides no/o.csv", "no/o.csv: file not found"),
    },
)
def test_missing_file(small: Project, name: str, arguments: str, message: str) -> None:
    if name.startswith("dev_"):
        (small.folder / PREDICTIONS).unlink()
    small.write(name, {})
    outcome = small.run("dev", *arguments.split())
    assert (outcome.code, outcome.results) == (2, None)
    assert message.format(small.folder) in outcome.err


@posix_only
def test_link_that_leads_nowhere(small: Project) -> None:
    (small.folder / PREDICTIONS).unlink()
    (small.folder / PREDICTIONS).symlink_to("/nowhere")
    found = f"{EXPECTED.format(small.folder)}; found {PREDICTIONS}"
    assert assert_refused(small, "dev", "--systems", "strong") == [f"{PREDICTIONS}: {found}"]


def test_missing_questions_file(small: Project) -> None:
    (small.folder / QUESTIONS).rename(small.folder / "NLP Project Data/dev_final.jsonl")
    assert assert_refused(small) == [f"{QUESTIONS}: file not found; found dev_final.jsonl"]


@pytest.mark.parametrize("indent", [None, 1])
def test_list_of_questions(small: Project, indent: int | None) -> None:
    rows = [json.loads(line) for line in (small.folder / QUESTIONS).read_text("utf-8").splitlines()]
    expected = small.run().results
    small.write(QUESTIONS, json.dumps(rows, indent=indent))
    assert small.run().results["strong"]["citation"] == expected["strong"]["citation"]
    rows[1]["answer"] = 1
    small.write(QUESTIONS, json.dumps(rows, indent=indent))
    assert assert_refused(small) == [f"{QUESTIONS}: [1]: answer: Expected str, got int"]
    small.write(QUESTIONS, f"[\n{json.dumps(question())},\n")
    assert assert_refused(small) == [f"{QUESTIONS}:2: JSON is cut off"]


def test_of_many_problems_in_a_file_the_first_ten_are_listed(small: Project) -> None:
    small.questions(*(question(f"d{number}", answer=number) for number in range(21)))
    small.write("dev_simple_output.json", [])
    outcome = small.run()
    own = [line for line in outcome.err if line.startswith(QUESTIONS)]
    assert len(own) == 10
    problem = "answer: Expected str, got int (and 11 more problems in this file)"
    assert own[-1] == f"{QUESTIONS}:10: {problem}"
    assert outcome.err[-1] == "error: problems in the input: 22; nothing was graded or written."


READ, NOT_READ = ("words", 1.0), ("ids", 0.0)
Evidence = Callable[..., Any]


@pytest.fixture
def evidence(project: Project, judge_with: JudgeWith) -> Evidence:
    """Grade citations of S2 instead of S1. Their words are the same: the score shows if they were read."""

    def evidence(*doc_ids: str) -> tuple[Any, list[tuple[str, float]]]:
        project.questions(*(question(doc_id, question=f"{n}?") for n, doc_id in enumerate(doc_ids)))
        prediction = {"answer": "Yes.", "evidence_sentences": ["S2"]}
        project.predictions("strong", {f"q{n:03d}": prediction for n in range(1, len(doc_ids) + 1)})
        judge_with({"strong": [3] * len(doc_ids)})
        outcome = project.run()
        rows = outcome.results["strong"]["llm_judge"]["per_question"]
        return outcome, [(row["evidence_method"], row["evidence_score"]) for row in rows]

    return evidence


def plant(project: Project, doc_id: str) -> None:
    """Write a document where this ID leads to as a path."""
    project.write(str(Path("corpus") / f"{doc_id}.json"), document(doc_id, "It rained.", "It rained."))


def test_documents_inside_the_corpus_are_read(project: Project, evidence: Evidence) -> None:
    inside = ("d1", "gold/2024/d1", "./d1", "d1.v2", "a..b", "Öl und Wärme")
    for doc_id in inside:
        plant(project, doc_id)
    assert evidence(*inside)[1] == [READ] * len(inside)


def test_documents_outside_the_corpus_are_not_opened(project: Project, evidence: Evidence) -> None:
    outside = ["../d1", "gold/../../d1", "../elsewhere/d1"]
    project.write("corpus/gold/other.json", document())
    for doc_id in outside:
        with suppress(OSError):
            plant(project, doc_id)
    outcome, scores = evidence(*outside)
    assert mentions(outcome.err, "warning:", QUESTIONS, "not in the corpus", "3, e.g. ..")
    assert scores == [NOT_READ] * 3


def test_documents_with_an_impossible_name_are_missing(project: Project, evidence: Evidence) -> None:
    outcome, scores = evidence("d\0001", "d" * 300, "d/" * 3000)
    assert mentions(outcome.err, "warning:", QUESTIONS, "not in the corpus", r"3, e.g. d\x001")
    assert (outcome.code, scores) == (0, [NOT_READ] * 3)


@posix_only
def test_links_are_followed_only_inside_the_corpus(project: Project, evidence: Evidence) -> None:
    plant(project, "../secret/d1")
    plant(project, "d2")
    links = {"d1.json": "secret/d1.json", "gold": "secret", "d3.json": "corpus/d2.json"}
    for link, target in links.items():
        (project.folder / "corpus" / link).symlink_to(project.folder / target)
    outcome, scores = evidence("d1", "gold/d1", "d3")
    assert mentions(outcome.err, "warning:", QUESTIONS, "not in the corpus", "2, e.g. d1")
    assert scores == [NOT_READ, NOT_READ, READ]


def test_failed_write_leaves_the_old_results(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    small.write(RESULTS, OLD_RESULTS)
    before = small.files().keys()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    outcome = small.run()
    assert (outcome.code, outcome.results, small.files().keys()) == (2, OLD_RESULTS, before)
    space = [line for line in outcome.err if "No space left" in line]
    assert space == ["error: dev_evaluation.json: No space left on device"]


def test_same_input_gives_the_same_bytes_in_any_process(small: Project) -> None:
    cited = [f"S{number}" for number in range(9)]
    renamed = [f"{number}/d1" for number in range(9)]
    small.questions(*(question(f"d{number}", evidence_sentences=cited) for number in range(7)))
    row = {"evidence_sentences": cited, "retrieved_docs": renamed}
    for system in ("simple", "strong"):
        small.predictions(system, {"q001": row, "q002": row})
    here = (small.run().out, small.files()[RESULTS])
    command = [sys.executable, evaluation.__file__, "dev"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert (run.stdout, small.files()[RESULTS]) == here


@posix_only
def test_only_predictions_of_known_questions_are_built(small: Project) -> None:
    """10 MB of others take little memory, and are counted and named by their first ten IDs."""
    text = ", ".join(f'"x-{number}y": {{}}' for number in range(500_000))
    small.submission("in/eve")
    small.write("in/eve/dev_own_output.json", f"{{{text}}}")
    program = Path(evaluation.__file__).parent
    code = (
        f"import sys; sys.path.insert(0, {str(program)!r}); import evaluation, resource; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "evaluation.main(['dev', '--submissions', 'in/eve', '--judge', '--quiet']); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout.splitlines()[-1]) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 150_000
    assert mentions(done.stderr.splitlines(), "predictions for IDs that no question has: 500000, e.g. x-0y")
