"""Data warnings: what silently lowers a score, and what is similar to it but is no reason for a warning."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from conftest import QUESTIONS_FILE as QUESTIONS
from conftest import Outcome, Project, document, mentions, question, table

STRONG, SIMPLE = "dev_strong_output.json", "dev_simple_output.json"
Files = dict[str, Any]


def answer(doc_id: str, **changes: Any) -> dict[str, Any]:
    """Return a prediction that retrieves and cites the right things, with these changes."""
    right = {"question": f"What is {doc_id}?", "answer": "It is.", "retrieved_docs": [doc_id]}
    return {**right, "evidence_sentences": ["S1"], **changes}


ASKED = [question("d1"), question("d2")]
ANSWERED = {"q001": answer("d1"), "q002": answer("d2")}
CORPUS = {"d1.json": document("d1", "It rained."), "d2.json": document("d2", "It snowed.")}
WITHOUT_D1 = {"d2.json": CORPUS["d2.json"]}


def grade(
    project: Project,
    questions: list[dict[str, Any]] = ASKED,
    predictions: Mapping[str, Any] | str = ANSWERED,
    corpus: Mapping[str, Any] = CORPUS,
) -> Outcome:
    """Grade these files. The default ones are no reason for a warning."""
    project.questions(*questions)
    project.write(STRONG, predictions)
    for name, content in corpus.items():
        project.write(f"corpus/{name}", content)
    return project.run()


def warnings(outcome: Outcome) -> list[str]:
    return [line for line in outcome.err if line.startswith("warning: ")]


def asked(**changes: Any) -> Files:
    """Return questions of which the first has these changes."""
    return {"questions": [question(**{"doc_id": "d1", "question": "What is d1?", **changes}), ASKED[1]]}


def answered(first: dict[str, Any], second: dict[str, Any] = ANSWERED["q002"], **more: Any) -> Files:
    return {"predictions": {"q001": first, "q002": second, **more}}


def retrieving(first: list[str], second: list[str]) -> Files:
    return answered(answer("d1", retrieved_docs=first), answer("d2", retrieved_docs=second))


Rows = dict[str, Any]
HOSTILE: dict[str, Callable[[int], Rows]] = {  # predictions of about so many characters
    "a long question ID": lambda n: {f"q{'0' * n}x": answer("d1")},
    "a long ID of a question": lambda n: {f"q{'0' * n}1": answer("d1")},
    "many question IDs": lambda n: {f"q{i}x": {} for i in range(n // 12)},
    "a long document ID": lambda n: retrieves(f"d{'0' * n}x"),
    "many document IDs": lambda n: retrieves(*(f"x{i}" for i in range(n // 9))),
    "names of a document": lambda n: retrieves(*(f"{'./' * i}d1" for i in range(n // 60)), cited=["S0"]),
    "a long sentence ID": lambda n: retrieves("d1", cited=[f"s{'0' * n}x{'0' * n}-"]),
    "a sentence ID of words": lambda n: retrieves("d1", cited=["a_" * n]),
    "many sentence IDs": lambda n: retrieves("d1", cited=[f"s{i}" for i in range(n // 9)]),
    "a sentence ID of digits": lambda n: retrieves("d1", cited=[int("1" * 4_000)] * (n // 4_000)),
}


def retrieves(*doc_ids: str, cited: Sequence[object] = ("S1",)) -> Rows:
    return {"q001": answer("d1", retrieved_docs=list(doc_ids), evidence_sentences=list(cited))}


def spend(project: Project, rows: Rows) -> tuple[float, int]:
    """Grade predictions and return the seconds of processor and the most bytes that it took."""
    project.predictions("strong", rows)
    tracemalloc.start()
    started_s = time.process_time()
    try:
        assert project.run("dev", "--report", "html").code == 0
        return time.process_time() - started_s, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", HOSTILE)
def test_time_and_memory_are_linear_in_the_ids_of_a_file(project: Project, name: str) -> None:
    project.questions(*ASKED)
    project.documents(document("d1", *["It rained."] * 1_000), CORPUS["d2.json"])
    project.predictions("strong", ANSWERED)
    project.run("dev", "--report", "html")  # which imports what it needs
    seconds, size = spend(project, HOSTILE[name](4_000))
    twice = [spend(project, HOSTILE[name](16 * 4_000)) for _ in range(2)]  # threads of other tests may end
    more_seconds, more_size = map(min, zip(*twice, strict=True))
    assert more_seconds < 4 * seconds + 0.5  # of a busy processor; what is quadratic takes far more
    assert more_size < 4 * size + 4_000_000


def test_ids_are_shortened_on_pages(project: Project) -> None:
    ids = [f"S{'0' * 5_000}{i}" for i in range(30)]
    grade(project, **answered(answer("d1", evidence_sentences=["S1", *ids])))
    project.run("dev", "--report", "html", "md")
    for form in ("html", "md"):
        page = (project.folder / f"dev_evaluation.{form}").read_text("utf-8")
        assert "0" * 201 not in page.replace("<wbr>", "")
    assert "(30 in all)" in (project.folder / "dev_evaluation.html").read_text("utf-8")


SWAPPED = answered(answer("d2"), answer("d1"))
UNKNOWN_TEXT = answered(answer("d1"), answer("d2", question="What is d7?"))
TWICE = '{"q002": {}, "q001": {}, "q002": {"retrieved_docs": ["d2"]}}'
DRAFTS = [question("d1", synthetic=True), question("d2", synthetic=True, reviewed=True)]
THREE: Files = {"questions": [*ASKED, question("d3")], **answered({}, {}, q003=answer("d3"))}
TWO_LEVELS_MISSING = {"scale": {**dict.fromkeys("135", "x"), "4": " "}}
UNREAD = "answer that cannot be read, counted as not given"
NOT_RETRIEVED = "retrieved IDs unlike those of the documents"
AS_IN_CORPUS = "write them as in the corpus"
AS_IN_DOCUMENTS = "S1; write them as in the documents"
CITED = "cited IDs unlike those of the sentences"


def three(questions: list[dict[str, Any]] | None = None, **changes: Any) -> Files:
    """Return three questions, and predictions for them that differ but for these changes; ... removes."""
    questions = questions or [*ASKED, question("d3")]
    predictions = {}
    for number in (1, 2, 3):
        row = answer(f"d{number}", answer=f"It is {number}.") | changes
        predictions[f"q00{number}"] = {name: value for name, value in row.items() if value is not ...}
    corpus = {**CORPUS, "d3.json": document("d3", "It froze.")}
    return {"questions": questions, "predictions": predictions, "corpus": corpus}


def citing(*names: str, **more: Any) -> Files:
    """Return predictions of which the first cites these sentences, and the second S1."""
    return answered(answer("d1", evidence_sentences=list(names), **more))


def long(*cited: str, **changes: Any) -> Files:
    """Return predictions that cite these sentences of d1, which has five, beside a retrieved plain text."""
    row = answer("d1", evidence_sentences=list(cited), retrieved_docs=["d1", "notes"])
    corpus = {**CORPUS, "d1.json": document("d1", *"abcde"), "notes.txt": "[13] It rained."}
    return {**answered(row), "corpus": corpus, **changes}


def of_sentences(number: int, *cited: str) -> Files:
    """Return predictions that cite these of the sentences of d1, and the only sentence of d2."""
    return {**citing(*cited), "corpus": {**CORPUS, "d1.json": document("d1", *"abcdefg"[:number])}}


IN_GOLD = {"gold/d1.json": CORPUS["d1.json"], **WITHOUT_D1}
FOLDER_IN_GOLD = {**asked(doc_id="gold/d1"), **retrieving(["d1"], []), "corpus": IN_GOLD}
OTHER_IDS = "IDs unlike those of the questions"
EVIDENCE_FIELD = 'q001; did you mean "evidence_sentences"?'
DOCS_FIELD = 'q001; did you mean "retrieved_docs"?'
WARNINGS: dict[str, tuple[Files, str, str, int, str]] = {
    "a misspelt field of a question": (
        asked(reviewd=True),
        *(QUESTIONS, 'unknown field "reviewd"', 1, 'line 1; did you mean "reviewed"?'),
    ),
    "an ID twice in a ranking": (
        retrieving(["d1", "d1"], ["d2"]),
        *(STRONG, "rankings with an ID twice", 1, "q001"),
    ),
    "a blank behind an ID": (
        retrieving(["d1 "], ["d2"]),
        *(STRONG, NOT_RETRIEVED, 1, f"d1  for d1; {AS_IN_CORPUS}"),
    ),
    "drafted by a model": ({"questions": DRAFTS}, QUESTIONS, "a model drafted", 1, "q001"),
    "incomplete rubric": (asked(rubric=TWO_LEVELS_MISSING), QUESTIONS, "lack a level", 1, "q001 lacks 2, 4"),
    "empty rubric": (asked(rubric={}), QUESTIONS, "lack a level", 1, "q001 lacks 1, 2, 3, 4, 5"),
    "no documents": ({"corpus": {}}, QUESTIONS, "not in the corpus", 2, "d1"),
    "few documents": ({**THREE, "corpus": WITHOUT_D1}, QUESTIONS, "not in the corpus", 2, "d1"),
    "half of the documents": ({"corpus": WITHOUT_D1}, QUESTIONS, "not in the corpus", 1, "d1"),
    "gold sentences of a missing document": (
        {**asked(evidence_sentences=["S9"]), "corpus": WITHOUT_D1},
        *(QUESTIONS, "not in the corpus", 1, "d1"),
    ),
    "half of the sentences cited": (of_sentences(5, "S1", "S2"), STRONG, "cite half or more", 2, "q001"),
    "all of the sentences cited": (of_sentences(3, "S1", "S2", "S3"), STRONG, "cite half", 2, "q001"),
    "unknown gold sentences": (
        asked(evidence_sentences=["S9", "S1", "S10"]),
        *(QUESTIONS, "gold sentences", 1, "q001: S10, S9 in d1"),
    ),
    "no prediction": ({"predictions": {"q001": answer("d1")}}, STRONG, "without a prediction", 1, "q002"),
    "no predictions": ({"predictions": {}}, STRONG, "without a prediction", 2, "q001"),
    "unknown IDs": (answered(answer("d1"), q9={}, q3={}), STRONG, "predictions for", 2, "q9"),
    "prediction twice": ({"predictions": TWICE}, STRONG, "more than once", 1, "q002"),
    "swapped": (SWAPPED, STRONG, "another text than the question's", 2, "q001"),
    "question of another split": (UNKNOWN_TEXT, STRONG, "another text than the question's", 1, "q002"),
    "folder in the gold ID": (FOLDER_IN_GOLD, STRONG, NOT_RETRIEVED, 1, f"d1 for gold/d1; {AS_IN_CORPUS}"),
    "another case and folder in the retrieved IDs": (
        retrieving(["D1"], ["Corpus\\D2.json"]),
        *(STRONG, NOT_RETRIEVED, 2, f"D1 for d1; {AS_IN_CORPUS}"),
    ),
    "retrieved IDs of no document": (
        retrieving(["d7", "d1"], ["gold/d8"]),
        *(STRONG, "retrieved IDs that no document of the corpus has", 2, "d7"),
    ),
    "question IDs in another form": (
        {"predictions": {"Q1": answer("d1"), "2": answer("d2")}},
        *(STRONG, OTHER_IDS, 2, "Q1 for q001; write them as in the questions file"),
    ),
    "numbers as question IDs": (
        {**asked(question_id="1"), "predictions": {"q01": answer("d1"), "q002": answer("d2")}},
        *(STRONG, OTHER_IDS, 1, "q01 for 1; write them as in the questions file"),
    ),
    "evidence is not read": (
        three(evidence_sentences=..., evidence=["S1"]),
        *(STRONG, 'unknown field "evidence"', 3, EVIDENCE_FIELD),
    ),
    "retrieved_doc is not read": (
        three(retrieved_docs=..., retrieved_doc=["d1"]),
        *(STRONG, 'unknown field "retrieved_doc"', 3, DOCS_FIELD),
    ),
    "Answer is not read, in half of the predictions": (
        answered({**answer("d1", answer=None), "Answer": "It is."}),
        *(STRONG, 'unknown field "Answer"', 1, 'q001; did you mean "answer"?'),
    ),
    "response is not read": (
        answered({**answer("d1", answer=None), "response": "It is."}),
        *(STRONG, 'unknown field "response"', 1, 'q001; did you mean "answer"?'),
    ),
    "cited IDs in lower case": (citing("s1"), STRONG, CITED, 1, f"s1 for {AS_IN_DOCUMENTS}"),
    "with a prefix": (citing("bikes_S1", "d1: s01"), *(STRONG, CITED, 2, f"bikes_S1 for {AS_IN_DOCUMENTS}")),
    "unknown cited sentences": (citing("S9", "S1"), STRONG, "cited IDs that neither", 1, "S9 of q001"),
    "cited IDs of another retrieved document": (
        {**citing("T7", retrieved_docs=["e1", "d1"]), "corpus": {**CORPUS, "e1.json": document("e1", "x")}},
        *(STRONG, "cited IDs that neither", 1, "T7 of q001"),
    ),
    "cited IDs without their prefix": (citing("1"), STRONG, CITED, 1, f"1 for {AS_IN_DOCUMENTS}"),
    **{
        f"cited as {name} beside a plain text": (
            long(name),
            *(STRONG, CITED, 1, f"{name} for {right}; write them as in the documents"),
        )
        for name, right in {"3": "S3", "[S4]": "S4", "doc#S2": "S2"}.items()
    },
    "a prediction of another type": (
        {"predictions": {"q001": [], "q002": answer("d2")}},
        *(STRONG, "cannot be read, counted as blank", 1, "q001: Expected object, got array"),
    ),
    "an answer of another type": (
        {"predictions": {"q001": answer("d1"), "q002": answer("d2", answer=["x"])}},
        *(STRONG, UNREAD, 1, "q002: answer: Expected str, got array"),
    ),
    "all answers the same": (three(answer="No."), *(STRONG, "all answers are the same", 3, "q001")),
}


@table("files, file, word, count, example", WARNINGS)
def test_warning_on_stderr_and_in_the_results(
    project: Project, files: Files, file: str, word: str, count: int, example: str
) -> None:
    outcome = grade(project, **files)
    [line] = warnings(outcome)
    assert line.startswith(f"warning: {file}: ")
    assert line.endswith(f"e.g. {example}")
    assert word in line
    assert re.search(rf"\b{count}\b", line.partition(", e.g. ")[0])
    assert outcome.results["strong"]["run"]["warnings"] == [line.removeprefix("warning: ")]
    assert outcome.code == 0


@table(
    "files",
    {
        "nothing is wrong": {},
        "less than half of the sentences cited": of_sentences(6, "S1", "S2"),
        "only gold sentences cited": of_sentences(2, "S1"),
        "text that begins with a bracket": {"corpus": {"d1.txt": "[1] It rained.", **WITHOUT_D1}},
        "no gold sentences": {**asked(evidence_sentences=[]), **citing()},
        "blank answer": answered(answer("d1", answer=" ")),
        "no question text": answered(answer("d1", question="")),
        "question text in another case and spacing": answered(answer("d1", question="  WHAT is\n\td1? ")),
        "wrong documents retrieved": retrieving(["d2"], ["d1"]),
        "other fields beside the known ones": three(evidence=["S1"], answers=["x"], retrieved_doc=["d1"]),
        "fields with other meanings": three(evidence_sentences=..., evidence_docs=["d1"], sources=["d1"]),
        "empty fields": three(retrieved_docs=[], evidence_sentences=None, evidence=[]),
        "citations of a retrieved document": {
            **citing("E9", retrieved_docs=["d1", "e1"]),
            "corpus": {**CORPUS, "e1.json": {"sentences": [{"sid": "E9", "text": ""}]}},
        },
        "unknown citations beside a plain text": long("13"),
        "numbers and booleans for texts": answered(
            answer("d1", answer=1902, retrieved_docs=["d1", {"doc_id": "d2"}]), answer("d2", answer=True)
        ),
        "citations of a document without sentences": {
            **citing("x", retrieved_docs=["e1"]),
            "corpus": {**CORPUS, "e1.txt": "It snowed."},
        },
    },
)
def test_no_warning(project: Project, files: Files) -> None:
    outcome = grade(project, **files)
    assert warnings(outcome) == []
    assert outcome.results["strong"]["run"]["warnings"] == []


def test_numbers_and_booleans_count_as_their_texts(project: Project) -> None:
    corpus = {"1.json": {"sentences": [{"sid": "7", "text": "It rained."}]}, "d2.json": CORPUS["d2.json"]}
    questions = [question("1", evidence_sentences=["7"]), ASKED[1]]
    row = {"answer": 1.5, "evidence_sentences": [7], "retrieved_docs": [{"doc_id": 1}, True]}
    outcome = grade(project, questions, {"q001": row, "q002": {"answer": False}}, corpus)
    results = outcome.results["strong"]
    retrieved = results["retrieval"]["per_question"][0]
    assert (retrieved["retrieved_top_1"], retrieved["recall_at_1"]) == ("1", 1)
    assert results["citation"]["per_question"][0]["pred_sentences"] == ["7"]
    project.run("dev", "--report", "csv")
    lines = (project.folder / "dev_evaluation.csv").read_text("utf-8-sig").splitlines()
    assert [line.rsplit(",", 1)[1] for line in lines] == ["system_answer", "1.5", "false"]


def test_the_first_retrieved_documents_are_those_of_the_best_ranks(project: Project) -> None:
    others = [{"doc_id": f"x{rank}", "rank": rank} for rank in range(1200, 3, -1)]
    rows = {"q001": answer("d1", retrieved_docs=[*others, {"doc_id": "d1", "rank": 3}])}
    outcome = grade(project, predictions=rows)
    assert outcome.results["strong"]["retrieval"]["recall_at_1"] == 1


def test_of_many_misspelt_fields_ten_are_shown(project: Project) -> None:
    """What is blank is told before what fields may be meant; no text of others is long."""
    odd = {f"{'_' * n}answer": "x" for n in range(1, 21)}
    rows = {"q001": {"retrieved_docs": ["d1"], **odd}, "q002": {"answers" + "_" * 500: "It is."}}
    outcome = grade(project, [*ASKED, question("d3")], {**rows, "q003": {}, "q" * 90_000: {}})
    lines = warnings(outcome)
    assert mentions(lines[:3], "all answers are blank")
    assert sum("with the unknown field" in line for line in lines) == 10
    assert max(map(len, outcome.err)) < 500


def test_warning_about_questions_is_printed_once(project: Project) -> None:
    project.write(SIMPLE, {"q002": answer("d2")})
    outcome = grade(project, corpus={})
    lines = [line.removeprefix("warning: ") for line in warnings(outcome)]
    assert [line.partition(": ")[0] for line in lines] == [QUESTIONS, SIMPLE]
    assert outcome.results["simple"]["run"]["warnings"] == lines
    assert outcome.results["strong"]["run"]["warnings"] == lines[:1]
