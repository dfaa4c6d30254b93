"""Files: what is accepted, what is refused and in which words, and what stands on the disk afterwards."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import evaluation
import pytest
from evaluation import Judgement, JudgeRequest, JudgeRun

from conftest import QUESTIONS_FILE as QUESTIONS
from conftest import Outcome, Project, document, question

PREDICTIONS = "dev_strong_output.json"
DOCUMENT = "corpus/d1.json"
RESULTS = "dev_evaluation.json"
OLD_RESULTS: dict[str, object] = {"old": {}}

posix_only = pytest.mark.skipif(os.name == "nt", reason="FIFOs, links and modes as POSIX has them")
not_as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root"
)


def listing(project: Project) -> list[Path]:
    return sorted(project.folder.rglob("*"))


def assert_refused(project: Project, *problems: str) -> None:
    """Exactly these problems are listed, nothing is graded, no file comes or goes, old results stay."""
    project.write(RESULTS, OLD_RESULTS)
    before = listing(project)
    outcome = project.run()
    summary = f"error: problems in the input: {len(problems)}; nothing was graded or written."
    assert outcome.err == [*problems, summary]
    assert (outcome.code, outcome.out) == (2, "")
    assert (outcome.results, listing(project)) == (OLD_RESULTS, before)


def give_three(requests: Sequence[JudgeRequest]) -> JudgeRun:
    outcomes = tuple(Judgement(3, "Half of it.") for _ in requests)
    return JudgeRun(requested_model="m", model="m", outcomes=outcomes)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are judged, so that the evidence scores show what was read of the corpus."""
    monkeypatch.setattr(evaluation, "connect_judge", lambda *_, **__: give_three)


# ------------------------------------------------------------------ What is refused

NO_NAME = "Expecting property name enclosed in double quotes"
TRAILING_COMMA = (
    "a fault at column 17 (Illegal trailing comma before end of object)"
    if sys.version_info >= (3, 13)
    else f"a fault at column 18 ({NO_NAME})"
)
TOO_DEEP = "something nested too deep"
TOO_LONG = "a number too long to be read"
DEEP = "[" * 100_000
DIGITS = "1" * 5000
QUESTION = json.dumps(question()) + "\n"
NO_MAPPING = "1: expected an object (question ID -> prediction), found"

FAULTY_FILES: dict[str, dict[str, tuple[str | bytes, list[str]]]] = {
    QUESTIONS: {
        "trailing comma": ('{"doc_id": "d-1",}', [f"1: expected JSON, found {TRAILING_COMMA}"]),
        "extra data": ("{} {}", ["1: expected JSON, found a fault at column 4 (Extra data)"]),
        "cut off": (
            QUESTION + '{"doc_id": "d',
            ["2: expected JSON, found a fault at column 12 (Unterminated string starting at)"],
        ),
        "pretty-printed": (
            '{\n"doc_id": "d1"\n}\n',
            [
                f"1: expected JSON, found a fault at column 2 ({NO_NAME})",
                "2: expected JSON, found a fault at column 9 (Extra data)",
                "3: expected JSON, found a fault at column 1 (Expecting value)",
            ],
        ),
        "BOM inside": (
            QUESTION + "\ufeff" + QUESTION,
            [
                "2: expected JSON, found a fault at column 1 (Unexpected UTF-8 BOM (decode using utf-8-sig))",
            ],
        ),
        "Latin-1": (QUESTION.encode() + b'"\xe9"', ["2: expected UTF-8 text, found the byte 0xe9"]),
        "UTF-16": (b"\xff\xfe{\0}\0", ["1: expected UTF-8 text, found the byte 0xff"]),
        "lists": (
            "[]\n[{}]\n",
            ["1: expected an object, found an empty list", "2: expected an object, found a list"],
        ),
        "null": ("\n\nnull\n", ["3: expected an object, found null"]),
        "empty": ("", ["1: expected one question (a JSON object) a line, found an empty file"]),
        "blank": (" \n\r\n\t", ["1: expected one question (a JSON object) a line, found an empty file"]),
        "deep": (QUESTION + DEEP, [f"2: expected JSON, found {TOO_DEEP}"]),
        "5000 digits": (QUESTION + DIGITS, [f"2: expected JSON, found {TOO_LONG}"]),
    },
    PREDICTIONS: {
        "trailing comma": (
            '{"q001": {},\n}',
            [
                "1: expected JSON, found a fault at column 12 (Illegal trailing comma before end of object)"
                if sys.version_info >= (3, 13)
                else f"2: expected JSON, found a fault at column 1 ({NO_NAME})"
            ],
        ),
        "comma missing": (
            '{"q001": {}\n "q002": {}}',
            ["2: expected JSON, found a fault at column 2 (Expecting ',' delimiter)"],
        ),
        "colon missing": (
            '{"q001" {}}',
            ["1: expected JSON, found a fault at column 9 (Expecting ':' delimiter)"],
        ),
        "single quotes": ("{'q001': {}}", [f"1: expected JSON, found a fault at column 2 ({NO_NAME})"]),
        "extra data": ("{}\n{}", ["2: expected JSON, found a fault at column 1 (Extra data)"]),
        "cut off": ('{"q001": {},\n', [f"2: expected JSON, found a fault at column 1 ({NO_NAME})"]),
        "cut off behind other faults": (
            '{"q001": 1,\n"q002": {"answer": "No',
            [
                "1: expected an object in q001, found 1",
                "2: expected JSON, found a fault at column 20 (Unterminated string starting at)",
            ],
        ),
        "Latin-1": (b'{"q001":\n{"answer": "\xe9"}}', ["2: expected UTF-8 text, found the byte 0xe9"]),
        "a list": ("[{}]", [f"{NO_MAPPING} a list"]),
        "an empty list": ("[]", [f"{NO_MAPPING} an empty list"]),
        "null": ("null", [f"{NO_MAPPING} null"]),
        "a string": ('"q001"', [f'{NO_MAPPING} "q001"']),
        "empty": ("", [f"{NO_MAPPING} an empty file"]),
        "blank": ("\n \n", [f"{NO_MAPPING} an empty file"]),
        "deep": (
            '{"q001": {},\n"q002": ' + DEEP,
            ["2: expected JSON, found a fault at column 9 (nested too deep)"],
        ),
        "5000 digits": (
            '{"q001": ' + DIGITS,
            ["1: expected JSON, found a fault at column 10 (a number too long to be read)"],
        ),
    },
    DOCUMENT: {
        "trailing comma": ('{"sentences": [],}', [f"1: expected JSON, found {TRAILING_COMMA}"]),
        "extra data": (
            '{"sentences": []}\n[]',
            ["2: expected JSON, found a fault at column 1 (Extra data)"],
        ),
        "cut off": ('{"sentences": [', ["1: expected JSON, found a fault at column 16 (Expecting value)"]),
        "plain text": ("It rained.", ["1: expected JSON, found a fault at column 1 (Expecting value)"]),
        "Latin-1": (b'{"sentences":\n["\xe9"]}', ["2: expected UTF-8 text, found the byte 0xe9"]),
        "a list": ("[{}]", ["1: expected an object, found a list"]),
        "null": ("null", ["1: expected an object, found null"]),
        "empty": ("", ["1: expected JSON, found an empty file"]),
        "deep": (DEEP, [f"1: expected JSON, found {TOO_DEEP}"]),
        "5000 digits": (DIGITS, [f"1: expected JSON, found {TOO_LONG}"]),
    },
    "corpus/d1.txt": {
        "Latin-1": (b"caf\xe9", ["1: expected UTF-8 text, found the byte 0xe9"]),
    },
}


@pytest.mark.parametrize(
    ("file", "content", "faults"),
    [
        pytest.param(file, content, faults, id=f"{Path(file).name}: {name}")
        for file, rows in FAULTY_FILES.items()
        for name, (content, faults) in rows.items()
    ],
)
def test_a_file_that_cannot_be_read(
    small: Project, file: str, content: str | bytes, faults: list[str]
) -> None:
    (small.folder / DOCUMENT).unlink()
    small.write(file, content)
    assert_refused(small, *(f"{file}:{fault}" for fault in faults))


def faulty(**changes: Any) -> dict[str, Any]:
    return question(**changes)


def sentences(*rows: object) -> dict[str, object]:
    return {"doc_id": "d1", "sentences": [*rows]}


FAULTY_FIELDS: dict[str, list[tuple[object, str]]] = {
    QUESTIONS: [
        (faulty(question_id=7), "expected a string that is not blank in question_id, found 7"),
        (faulty(question_id=""), 'expected a string that is not blank in question_id, found ""'),
        (faulty(doc_id=...), "expected a string that is not blank in doc_id, found nothing"),
        (faulty(doc_id=None), "expected a string that is not blank in doc_id, found null"),
        (faulty(doc_id=["d1"]), "expected a string that is not blank in doc_id, found a list"),
        (faulty(question=...), "expected a string that is not blank in question, found nothing"),
        (faulty(question=" \n"), r'expected a string that is not blank in question, found " \n"'),
        (faulty(answer=...), "expected a string in answer, found nothing"),
        (faulty(answer=None), "expected a string in answer, found null"),
        (faulty(answer=True), "expected a string in answer, found true"),
        (faulty(evidence_sentences=...), "expected a list in evidence_sentences, found nothing"),
        (faulty(evidence_sentences=None), "expected a list in evidence_sentences, found null"),
        (faulty(evidence_sentences="S1"), 'expected a list in evidence_sentences, found "S1"'),
        (faulty(evidence_sentences={}), "expected a list in evidence_sentences, found an empty object"),
        (
            faulty(evidence_sentences=["S1", 2]),
            "expected a string that is not blank in evidence_sentences[1], found 2",
        ),
        (faulty(rubric=["good"]), "expected an object in rubric, found a list"),
        (faulty(rubric="x" * 61), f'expected an object in rubric, found "{"x" * 55}..."'),
        (faulty(rubric={"description": 1}), "expected a string in rubric.description, found 1"),
        (faulty(rubric={"scale": []}), "expected an object in rubric.scale, found an empty list"),
        (faulty(rubric={"scale": {"3": {"a": 1}}}), "expected a string in rubric.scale.3, found an object"),
        (faulty(question_type=1), "expected a string in question_type, found 1"),
        (faulty(edge_case_type=False), "expected a string in edge_case_type, found false"),
        (faulty(source_dataset=[]), "expected a string in source_dataset, found an empty list"),
        (faulty(source=0.5), "expected a string in source, found 0.5"),
    ],
    PREDICTIONS: [
        ({"q001": None}, "expected an object in q001, found null"),
        ({"q001": ["It is."]}, "expected an object in q001, found a list"),
        ({"q001": {"question": 1}}, "expected a string in q001.question, found 1"),
        ({"q001": {"answer": ["a"]}}, "expected a string in q001.answer, found a list"),
        ({"q001": {"answer": 42}}, "expected a string in q001.answer, found 42"),
        (
            {"q001": {"evidence_sentences": "S1"}},
            'expected a list in q001.evidence_sentences, found "S1"',
        ),
        (
            {"q001": {"evidence_sentences": [None]}},
            "expected a string that is not blank in q001.evidence_sentences[0], found null",
        ),
        (
            {"q001": {"retrieved_docs": {"d1": 1}}},
            "expected a list in q001.retrieved_docs, found an object",
        ),
        (
            {"q001": {"retrieved_docs": ["d1", 2]}},
            "expected a string that is not blank in q001.retrieved_docs[1], found 2",
        ),
        (
            {"q001": {"retrieved_docs": [["d1"]]}},
            "expected a string that is not blank in q001.retrieved_docs[0], found a list",
        ),
        (
            {"q001": {"retrieved_docs": [{"doc_id": None}]}},
            "expected a string that is not blank in q001.retrieved_docs[0].doc_id, found null",
        ),
        (
            {"q001": {"retrieved_docs": [{"doc_id": "d1", "rank": "1"}]}},
            'expected a number in q001.retrieved_docs[0].rank, found "1"',
        ),
        (
            {"q001": {"retrieved_docs": [{"doc_id": "d1", "rank": True}]}},
            "expected a number in q001.retrieved_docs[0].rank, found true",
        ),
        (
            {"q001": {"retrieved_docs": [{"doc_id": "d1", "rank": math.nan}]}},
            "expected a number in q001.retrieved_docs[0].rank, found NaN",
        ),
    ],
    DOCUMENT: [
        ({"doc_id": "d1"}, "expected a list in sentences, found nothing"),
        ({"sentences": None}, "expected a list in sentences, found null"),
        ({"sentences": {"S1": "Rain."}}, "expected a list in sentences, found an object"),
        (sentences("Rain."), 'expected an object in sentences[0], found "Rain."'),
        (
            sentences({"sid": 1, "text": ""}),
            "expected a string that is not blank in sentences[0].sid, found 1",
        ),
        (
            sentences({"id": " ", "text": ""}),
            'expected a string that is not blank in sentences[0].id, found " "',
        ),
        (sentences({"sid": "S1", "text": None}), "expected a string in sentences[0].text, found null"),
        (sentences({"sid": "S1", "text": 5}), "expected a string in sentences[0].text, found 5"),
    ],
}
MISSING_MEMBERS: list[tuple[str, object, str]] = [
    (
        PREDICTIONS,
        {"q001": {"retrieved_docs": [{"rank": 1}]}},
        "expected a string that is not blank in q001.retrieved_docs[0].doc_id, found nothing",
    ),
    (DOCUMENT, sentences({"sid": "S1"}), "expected a string in sentences[0].text, found nothing"),
    (
        DOCUMENT,
        sentences({"text": ""}),
        "expected a string that is not blank in sentences[0].sid, found nothing",
    ),
]


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        *(
            pytest.param(file, content, fault, id=f"{Path(file).name}: {fault}")
            for file, rows in FAULTY_FIELDS.items()
            for content, fault in rows
        ),
        *(pytest.param(*row, id=f"{Path(row[0]).name}: {row[2]}") for row in MISSING_MEMBERS),
    ],
)
def test_a_field_of_a_wrong_type(small: Project, file: str, content: object, fault: str) -> None:
    small.write(file, content)
    assert_refused(small, f"{file}:1: {fault}")


MANY_LINES = """{
  "q001": {
    "retrieved_docs": [
      "d1",
      {
        "rank": "first",
        "doc_id": 2
      }
    ],
    "answer": 1
  },

  "q002": null, "q003": [],
  "q004": {}
}
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_fault_in_predictions_is_given_the_line_of_its_value(small: Project, newline: str) -> None:
    small.write(PREDICTIONS, MANY_LINES.replace("\n", newline))
    assert_refused(
        small,
        f"{PREDICTIONS}:10: expected a string in q001.answer, found 1",
        f"{PREDICTIONS}:7: expected a string that is not blank in q001.retrieved_docs[1].doc_id, found 2",
        f'{PREDICTIONS}:6: expected a number in q001.retrieved_docs[1].rank, found "first"',
        f"{PREDICTIONS}:13: expected an object in q002, found null",
        f"{PREDICTIONS}:13: expected an object in q003, found an empty list",
    )


def test_a_fault_in_a_document_is_given_the_line_of_its_value(small: Project) -> None:
    small.write(DOCUMENT, '{"sentences": [\n{"sid": "S1", "text": ""},\n{"sid":\n2, "text": ""}]}')
    assert_refused(small, f"{DOCUMENT}:4: expected a string that is not blank in sentences[1].sid, found 2")


def test_all_faults_of_all_files_are_listed_in_one_go(small: Project) -> None:
    wrong = json.dumps(question("d2", answer=1, rubric=2))
    small.write(QUESTIONS, f"{QUESTION}\n[]\n{wrong}\n{json.dumps(question('d3'))}\n")
    small.write(DOCUMENT, "")
    small.write("corpus/d3.json", [])
    small.write("dev_simple_output.json", '{"q001": 1')
    small.write(PREDICTIONS, b"\xff")
    assert_refused(
        small,
        f"{QUESTIONS}:3: expected an object, found an empty list",
        f"{QUESTIONS}:4: expected a string in answer, found 1",
        f"{QUESTIONS}:4: expected an object in rubric, found 2",
        f"{DOCUMENT}:1: expected JSON, found an empty file",
        "corpus/d3.json:1: expected an object, found an empty list",
        "dev_simple_output.json:1: expected an object in q001, found 1",
        "dev_simple_output.json:1: expected JSON, found a fault at column 11 (Expecting ',' delimiter)",
        f"{PREDICTIONS}:1: expected UTF-8 text, found the byte 0xff",
    )


@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT])
@pytest.mark.parametrize(
    ("make", "found"),
    [
        pytest.param(Path.mkdir, "a directory", id="directory"),
        pytest.param(
            lambda path: os.mkfifo(path), "something that is not a file", id="FIFO", marks=posix_only
        ),
    ],
)
def test_something_else_where_a_file_belongs(
    small: Project, file: str, make: Callable[[Path], None], found: str
) -> None:
    (small.folder / file).unlink()
    make(small.folder / file)
    assert_refused(small, f"{file}:1: expected a file, found {found}")


@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT])
def test_a_file_that_refuses_to_be_read(small: Project, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    read_bytes = Path.read_bytes

    def deny(path: Path) -> bytes:
        if path == Path(file):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", deny)
    assert_refused(small, f"{file}:1: expected a file that can be read, found Permission denied")


@not_as_root
@pytest.mark.parametrize("file", [QUESTIONS, PREDICTIONS, DOCUMENT])
def test_a_file_without_read_permission(small: Project, file: str) -> None:
    (small.folder / file).chmod(0)
    assert_refused(small, f"{file}:1: expected a file that can be read, found Permission denied")


@not_as_root
def test_a_corpus_that_may_not_be_entered(small: Project) -> None:
    (small.folder / "corpus").chmod(0)
    assert_refused(
        small,
        f"{DOCUMENT}:1: expected a file that can be read, found Permission denied",
        "corpus/d2.json:1: expected a file that can be read, found Permission denied",
    )


def test_no_folder_of_questions(small: Project) -> None:
    (small.folder / QUESTIONS).unlink()
    (small.folder / QUESTIONS).parent.rmdir()
    assert_refused(small, f"{QUESTIONS}:1: expected a file, found nothing of that name")


def test_no_system_has_a_predictions_file(small: Project) -> None:
    (small.folder / PREDICTIONS).unlink()
    assert_refused(
        small,
        "dev_simple_output.json:1: expected a file, found nothing of that name",
        "dev_strong_output.json:1: expected a file, found nothing of that name",
    )


# ------------------------------------------------------------------ What is simply accepted


def figures(outcome: Outcome) -> dict[str, Any]:
    """The results without their `run` blocks, which hold the hash of each file."""
    return {
        system: {name: block for name, block in blocks.items() if name != "run"}
        for system, blocks in outcome.results.items()
    }


NEW_FIELD = '{"new": [NaN, {"x": null}], '
ACCEPTED: dict[str, tuple[str, Callable[[str], str]]] = {
    "BOM in questions": (QUESTIONS, lambda text: "\ufeff" + text),
    "BOM in predictions": (PREDICTIONS, lambda text: "\ufeff" + text),
    "BOM in a document": (DOCUMENT, lambda text: "\ufeff" + text),
    "CRLF in questions": (QUESTIONS, lambda text: text.replace("\n", "\r\n")),
    "CRLF in predictions": (PREDICTIONS, lambda text: text.replace(", ", ",\r\n")),
    "CRLF in a document": (DOCUMENT, lambda text: text.replace(", ", ",\r\n")),
    "blank lines in questions": (QUESTIONS, lambda text: "\n" + text.replace("\n", "\n\n \t\r\n")),
    "blank lines in predictions": (PREDICTIONS, lambda text: f"\n\n{text}\n\n".replace(", ", "\n\n,\n")),
    "blank lines in a document": (DOCUMENT, lambda text: f"\n\n{text}\n\n".replace(", ", "\n\n,\n")),
    "no newline at the end of questions": (QUESTIONS, str.rstrip),
    "U+2028 in a question": (QUESTIONS, lambda text: text.replace("What is", "What\u2028is")),
    "U+2028 in an answer": (PREDICTIONS, lambda text: text.replace("It is", "It\u2028is")),
    "unknown fields of a question": (
        QUESTIONS,
        lambda text: text.replace('{"doc_id"', NEW_FIELD + '"doc_id"'),
    ),
    "unknown fields of a prediction": (
        PREDICTIONS,
        lambda text: text.replace('{"quest', NEW_FIELD + '"quest'),
    ),
    "unknown fields of a document": (DOCUMENT, lambda text: text.replace("{", NEW_FIELD)),
    "null for what may be missing": (
        PREDICTIONS,
        lambda text: text.replace('"evidence_sentences"', '"retrieved_docs": null, "evidence_sentences"'),
    ),
    "a retrieval score of NaN": (
        PREDICTIONS,
        lambda text: text.replace('"d2"]', '{"doc_id": "d2", "score": NaN}]'),
    ),
    "a lone surrogate in an answer": (PREDICTIONS, lambda text: text.replace("It is", r"\ud800 is")),
    "id for sid": (DOCUMENT, lambda text: text.replace('"sid"', '"id"')),
}


@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize(("file", "change"), ACCEPTED.values(), ids=ACCEPTED)
def test_is_simply_accepted(small: Project, file: str, change: Callable[[str], str]) -> None:
    text = (small.folder / file).read_bytes().decode()
    assert change(text) != text
    plain = small.run()
    small.write(file, change(text))
    changed = small.run()
    assert (changed.code, changed.err, figures(changed)) == (0, plain.err, figures(plain))


@pytest.mark.usefixtures("judge")
def test_a_document_named_txt_may_hold_json(small: Project) -> None:
    plain = small.run()
    (small.folder / DOCUMENT).rename(small.folder / "corpus/d1.txt")
    assert figures(small.run()) == figures(plain)


@pytest.mark.parametrize(("there", "absent"), [("simple", "strong"), ("strong", "simple")])
def test_one_system_without_a_file_is_said_and_the_other_is_graded(
    project: Project, there: str, absent: str
) -> None:
    project.questions(question())
    project.documents(document())
    project.predictions(there, {"q001": {}})
    outcome = project.run()
    assert (outcome.code, list(outcome.results)) == (0, [there])
    assert outcome.err[-2:] == [
        f"dev_{absent}_output.json is not there: graded without it.",
        "GROQ_API_KEY is not set: answers are not judged.",
    ]


def test_of_two_predictions_with_one_id_the_last_counts(small: Project) -> None:
    small.write(PREDICTIONS, '{"q001": {"retrieved_docs": ["d1"]}, "q001": {"retrieved_docs": ["d2"]}}')
    assert small.run().results["strong"]["retrieval"]["per_question"][0]["retrieved_top_1"] == "d2"


def test_two_questions_with_one_id_are_both_graded(small: Project) -> None:
    small.questions(question("d1", question_id="q001"), question("d2", question_id="q001"))
    assert small.run().results["strong"]["retrieval"]["total"] == 2


def test_a_lone_surrogate_is_written_as_its_escape(small: Project) -> None:
    small.write(PREDICTIONS, r'{"q001": {"retrieved_docs": ["\ud800"]}, "q002": {}}')
    small.run()
    assert r'"retrieved_top_1": "\ud800"' in (small.folder / RESULTS).read_bytes().decode()


# ------------------------------------------------------------------ What a doc_id may open

READ, NOT_READ = ("words", 1.0), ("ids", 0.0)


def evidence(project: Project, doc_id: str) -> tuple[Outcome, tuple[str, float]]:
    """A run that cites S2 for S1, whose words are the same: only who reads the document can know."""
    project.questions(question(doc_id))
    project.predictions("strong", {"q001": {"answer": "Yes.", "evidence_sentences": ["S2"]}})
    outcome = project.run()
    row = outcome.results["strong"]["llm_judge"]["per_question"][0]
    return outcome, (row["evidence_method"], row["evidence_score"])


def plant(project: Project, doc_id: str) -> None:
    """A document where `doc_id` leads to, if it is taken for a path as it is."""
    project.write(str(Path("corpus") / f"{doc_id}.json"), document(doc_id, "It rained.", "It rained."))


def warned(kind: str, doc_id: str) -> str:
    return f"warning: {QUESTIONS}: gold documents {kind}: 1, e.g. {doc_id}"


@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize("doc_id", ["d1", "gold/d1", "gold/2024/d1", "./d1", "d1.v2", "a..b", "Öl und Wärme"])
def test_a_document_inside_the_corpus_is_read(project: Project, doc_id: str) -> None:
    plant(project, doc_id)
    assert evidence(project, doc_id)[1] == READ


@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize(
    "doc_id",
    [
        "../d1",
        "..",
        "gold/../../d1",
        "../corpus/d1",
        "{folder}/d1",
        "..\\d1",
        "gold\\..\\..\\d1",
        "\\d1",
        "C:d1",
        "C:/d1",
        "C:\\d1",
    ],
)
def test_a_document_outside_the_corpus_is_not_opened(project: Project, doc_id: str) -> None:
    doc_id = doc_id.format(folder=project.folder.as_posix())
    project.write("corpus/gold/other.json", document())
    with suppress(OSError):
        plant(project, doc_id)
    outcome, score = evidence(project, doc_id)
    assert outcome.err[0] == warned("outside the corpus folder, not opened", doc_id)
    assert score == NOT_READ


@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize(
    ("doc_id", "shown"),
    [
        pytest.param("d\0001", "d1", id="NUL"),
        pytest.param("d" * 300, "d" * 200, id="300 characters"),
        pytest.param("d/" * 3000, "d/" * 100, id="3000 folders"),
        pytest.param("\ud800", "", id="lone surrogate"),
    ],
)
def test_a_document_whose_name_no_file_can_have_is_missing(project: Project, doc_id: str, shown: str) -> None:
    outcome, score = evidence(project, doc_id)
    assert outcome.err[0] == warned("that are not in the corpus", shown)
    assert (outcome.code, score) == (0, NOT_READ)


@posix_only
@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize(
    ("link", "target", "doc_id"),
    [
        pytest.param("corpus/d1.json", "secret/d1.json", "d1", id="file"),
        pytest.param("corpus/gold", "secret", "gold/d1", id="folder"),
        pytest.param("corpus/gold", ".", "gold/secret/d1", id="folder above"),
    ],
)
def test_a_link_that_leads_out_of_the_corpus_is_not_followed(
    project: Project, link: str, target: str, doc_id: str
) -> None:
    plant(project, "../secret/d1")
    project.write("corpus/other.json", document())
    (project.folder / link).symlink_to(project.folder / target)
    outcome, score = evidence(project, doc_id)
    assert outcome.err[0] == warned("outside the corpus folder, not opened", doc_id)
    assert score == NOT_READ


@posix_only
@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize(
    ("link", "target", "file"),
    [
        pytest.param("corpus/d1.json", "corpus/d2.json", "corpus/d2.json", id="inside the corpus"),
        pytest.param("corpus", "elsewhere", "elsewhere/d1.json", id="the corpus itself"),
    ],
)
def test_a_link_that_stays_in_the_corpus_is_followed(
    project: Project, link: str, target: str, file: str
) -> None:
    project.write(file, document("d1", "It rained.", "It rained."))
    (project.folder / link).symlink_to(project.folder / target)
    assert evidence(project, "d1")[1] == READ


# ------------------------------------------------------------------ What is written


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_results_and_no_temporary_file(
    small: Project, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    small.write(RESULTS, OLD_RESULTS)
    before = listing(small)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    outcome = small.run()
    assert (outcome.code, outcome.results, listing(small)) == (2, OLD_RESULTS, before)
    assert outcome.err[-1] == "error: dev_evaluation.json: No space left on device; nothing was written."


def test_a_directory_where_the_results_belong(small: Project) -> None:
    (small.folder / RESULTS).mkdir()
    before = listing(small)
    assert evaluation.main(["dev"]) == 2
    assert listing(small) == before
    assert small.capture.readouterr().err.endswith("; nothing was written.\n")


@not_as_root
def test_a_folder_that_may_not_be_written(small: Project) -> None:
    small.folder.chmod(0o500)
    outcome = small.run()
    small.folder.chmod(0o700)
    assert (outcome.code, outcome.results) == (2, None)
    assert outcome.err[-1].endswith(": Permission denied; nothing was written.")


def test_the_results_are_complete_before_they_get_their_name(
    small: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, seen = os.replace, []

    def look(source: Path, target: Path) -> None:
        seen.append((json.loads(source.read_bytes()).keys(), source.parent == target.parent, target.exists()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    small.run()
    assert seen == [({"strong"}, True, False)]


@posix_only
def test_results_behind_a_link_are_written_there_and_the_link_stays(small: Project) -> None:
    target = small.write("elsewhere/results.json", OLD_RESULTS)
    (small.folder / RESULTS).symlink_to(target)
    small.run()
    assert (small.folder / RESULTS).is_symlink()
    assert list(json.loads(target.read_bytes())) == ["strong"]


@posix_only
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)], ids=oct)
def test_the_mode_of_the_results_follows_the_umask(small: Project, mask: int, mode: int) -> None:
    old_mask = os.umask(mask)
    try:
        small.run()
    finally:
        os.umask(old_mask)
    assert (small.folder / RESULTS).stat().st_mode & 0o777 == mode


def test_the_same_input_gives_the_same_bytes(small: Project) -> None:
    cited = [f"S{place}" for place in range(9)]
    small.questions(question(evidence_sentences=cited))
    renamed = [f"{place}/d1" for place in range(9)]
    small.predictions("strong", {"q001": {"evidence_sentences": cited, "retrieved_docs": renamed}})
    written = set()
    for seed in "12":
        command = [sys.executable, evaluation.__file__, "dev"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        written.add((small.folder / RESULTS).read_bytes())
    assert len(written) == 1


@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize("block", ["retrieval", "citation", "llm_judge"])
def test_every_row_has_a_line_of_its_own(small: Project, block: str) -> None:
    rows = small.run().results["strong"][block]["per_question"]
    lines = (small.folder / RESULTS).read_text(encoding="utf-8").split("\n")
    assert len(rows) == 2
    assert {json.dumps(row) for row in rows} <= {line.strip(" ,") for line in lines}


def test_a_figure_that_cannot_be_had_is_null_and_not_nan(small: Project) -> None:
    small.questions(question(evidence_sentences=[]))
    small.run()
    text = (small.folder / RESULTS).read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["strong"]["citation"]["avg_f1"] is None
