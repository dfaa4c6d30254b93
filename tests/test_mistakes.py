"""A test of mistakes: nothing that people do wrong changes a figure without a word.

PLACES are small valid inputs. Each is run once; then every mistake that fits one of its files is made in a
fresh copy. The run with the mistake must end in one of three ways:

- no figure is another one;
- exit code 2, and a line names the file or option, and the thing;
- what changed is named: a line has the file or option and the field, ID, line or number of rows.

Such a line is one that the valid run does not have. It stands on the console, in the leaderboard's first box
or in a grade's reason. Whatever request the judge gets has a score of its own, so no change of a text that it
sees stays without effect.

What is no mistake is not made: a blank where a value may be missing, another legal text, a cut inside the
last cell of a row or inside a text, which nobody can know.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import evaluation
import httpx
import pytest

from conftest import (
    JUDGE,
    KEY,
    NO_CERTIFICATES,
    SCALE,
    SUMMARY_CRITERIA,
    Outcome,
    Project,
    hash_answer,
    json_lines,
    mentions,
    posix_only,
    prompt_of,
    table,
)
from groq_server import Call, GroqServer, Reply, completion

Row = dict[str, Any]

QUESTIONS = "NLP Project Data/dev_final_jsonl.txt"
PREDICTIONS = "dev_final_output.json"
OVERRIDES = "dev_overrides.csv"
HISTORY = "dev_graded/history.csv"
SUMMARIES = "results/merged-summaries/results-merged-5-1.json"
GOLD_SUMMARIES = "data/theperspective/data.jsonl"
MERGED = "data/merged-corpus/merged-5.json"


# ------------------------------------------------------------------ Files of rows


@dataclass(frozen=True)
class Table:
    """A file of rows: "lines" and "list" of JSON, "by ID" (an object of rows), "object" (one row), "csv"."""

    form: str
    rows: list[Row]
    id: str = ""  # the field that says which row it is
    label: str = ""  # what messages call it, if not by its name
    optional: str = ""  # the fields that may be blank
    ids: str = ""  # the fields that say what a row or its part is about

    @property
    def text(self) -> str:
        if self.form == "csv":
            return self.write_csv(",")
        if self.form == "by ID":
            rows = [f"{json.dumps(row.pop(self.id))}: {json.dumps(row)}" for row in map(dict, self.rows)]
            return "{\n" + ",\n".join(rows) + "\n}\n"
        if self.form == "list":
            return "[\n" + ",\n".join(map(json.dumps, self.rows)) + "\n]\n"
        return json_lines(*self.rows)

    def write_csv(self, delimiter: str) -> str:
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        writer.writerows([self.rows[0], *map(list_cells, self.rows)])
        return stream.getvalue()

    @property
    def changed(self) -> int:
        """The row that mistakes change: the second one."""
        return min(1, len(self.rows) - 1)

    def find_line(self) -> int:
        """Return the line of this row."""
        return self.changed + (1 if self.form in ("lines", "object") else 2)

    def edit(self, name: str, change: Callable[[Row], Row]) -> Table:
        """Change the objects with this field in the row; of a CSV file in all rows, which are alike."""
        rows = [
            edit_objects(row, name, change) if self.form == "csv" or place == self.changed else row
            for place, row in enumerate(self.rows)
        ]
        return replace(self, rows=rows)

    def set(self, name: str, value: object) -> Table:
        """Give the field another value in the row."""
        rows = list(self.rows)
        change = partial(replace_value, name=name, value=value)
        rows[self.changed] = edit_objects(rows[self.changed], name, change, only_first=True)
        return replace(self, rows=rows)


class Again(str):
    """A name that an object has beside an equal one."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def replace_value(row: Row, name: str, value: object) -> Row:
    return {**row, name: value}


def list_cells(row: Row) -> list[object]:
    return [json.dumps(cell) if isinstance(cell, (list, dict)) else cell for cell in row.values()]


def edit_objects(value: Any, name: str, change: Callable[[Row], Row], *, only_first: bool = False) -> Any:
    """Return the value with the objects changed that have this field, in a list all or the first."""
    edit = partial(edit_objects, name=name, change=change, only_first=only_first)
    if isinstance(value, list):
        return [item if place and only_first else edit(item) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return change(value) if name in value else {key: edit(member) for key, member in value.items()}


def list_fields(value: Any) -> dict[str, Any]:
    """Return the names in a row, however deep, with their first values."""
    fields: dict[str, Any] = {}
    if isinstance(value, dict):
        fields = {name: member for name, member in value.items() if not name.isdigit()}
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        fields = {**list_fields(member), **fields}
    return fields


# ------------------------------------------------------------------ Places


@dataclass(frozen=True)
class Place:
    """A valid input: files, and the command that reads them."""

    command: str
    files: Mapping[str, Table | str]
    spared: tuple[str, ...] = ()  # the files in which no mistakes are made

    def read(self, file: str) -> str:
        content = self.files[file]
        return content if isinstance(content, str) else content.text


def ask(number: int, doc_id: str, text: str, *evidence: str) -> Row:
    rubric = {"description": f"Is it {text}?", "scale": SCALE}
    row = {"question_id": f"q{number:03}", "doc_id": doc_id, "question": f"What is {text}?", "answer": text}
    return {**row, "evidence_sentences": [*evidence], "rubric": rubric}


def predict(number: int, answer: str, cited: str, *retrieved: str) -> Row:
    """Return a prediction. The documents stand in another order than that of their ranks."""
    ranked = [{"doc_id": doc_id, "rank": rank} for rank, doc_id in enumerate(retrieved, start=1)]
    row = {"question_id": f"q{number:03}", "question": f"What is {answer}?", "answer": answer}
    return {**row, "evidence_sentences": [cited], "retrieved_docs": ranked[::-1]}


def write_document(doc_id: str, *texts: str) -> Table:
    sentences = [{"sid": f"S{place}", "text": text} for place, text in enumerate(texts, start=1)]
    return Table(
        "object", [{"doc_id": doc_id, "sentences": sentences}], label=doc_id, optional="text", ids="sid"
    )


GOLD = {
    QUESTIONS: Table(
        "lines",
        [ask(11, "d1", "oil", "S1"), ask(12, "d2", "rain", "S1", "S2"), ask(13, "d3", "ice", "S2")],
        "question_id",
        ids="question_id doc_id evidence_sentences",
    ),
    "corpus/d1.json": write_document("d1", "The lamp burned oil.", "It smelled."),
    "corpus/d2.json": write_document("d2", "It rained.", "Streets were wet."),
    "corpus/d3.json": write_document("d3", "It froze.", "Lakes were ice."),
}
PREDICTED = Table(
    "by ID",
    [
        predict(11, "oil", "S1", "d1", "d2"),
        predict(12, "rain", "S2", "d2", "d1"),
        predict(13, "ice", "S2", "d3"),
    ],
    "question_id",
    optional="question answer",
    ids="question_id doc_id evidence_sentences",
)


def decide(question_id: str, score: str, reason: str) -> Row:
    """Return a decision about an answer of ann."""
    rows = [
        row
        for whole in (GOLD[QUESTIONS], PREDICTED)
        for row in whole.rows
        if row["question_id"] == question_id
    ]
    row = {
        "submission": "ann",
        "system": "final",
        "question_id": question_id,
        "score": score,
        "reason": reason,
    }
    return {**row, "answer_id": hash_answer(rows[0], rows[1], covers_citations=False)}


OTHERS = Table(
    "by ID", [predict(11, "gas", "S1", "d1"), predict(12, "rain", "S1", "d1", "d2")], "question_id"
)
CRITERIA = Table(
    "list",
    [
        {"name": "polite", "description": "Is it polite?"},
        {"name": "brevity", "description": "How short is it?", "scale": SCALE},
    ],
    "name",
)
DECISIONS = Table(
    "csv",
    [decide("q011", "2", "Too short."), decide("q013", "4", "Nearly.")],
    "question_id",
    optional="submission system",
    ids="question_id answer_id",
)
ROWS = [{name: row[name] for name in row if name != "submission"} for row in DECISIONS.rows]
DECISIONS_OF_SPLIT = replace(DECISIONS, rows=ROWS)
GRADES = [("2026-01-05", "ann", "10.5"), ("2026-01-05", "bob", "20.5"), ("2026-01-06", "ann", "30.5")]
EARLIER = Table(
    "csv",
    [
        {"date": date, "submission": owner, "points": points, "system": "final", "judge": "some/judge"}
        for date, owner, points in GRADES
    ],
    "submission",
    optional="date points system judge",
    ids="submission",
)
FREE: list[Row] = [
    {"id": "oil", "question": "What burned?", "gold": "whale oil", "expected_options": ["fat", "oil"]},
    {"id": "rain", "question": "What fell?", "gold": "rain", "expected_options": ["water", "drops"]},
    {"id": "ice", "question": "How many?", "gold": "4", "expected_options": ["four", "a few"]},
]
GIVEN: list[Row] = [
    {
        "prediction": "oil",
        "category": "things",
        "keywords": ["oil", "fat"],
        "latency_ms": 120,
        "input_tokens": 9,
    },
    {
        "prediction": "drops",
        "category": "weather",
        "keywords": ["wet", "drop"],
        "latency_ms": 4,
        "input_tokens": 7,
    },
    {
        "prediction": "five",
        "category": "things",
        "keywords": ["four", "4"],
        "latency_ms": 40,
        "input_tokens": 8,
    },
]
FOUND: list[Row] = [
    {"expected_sources": ["d1", "d2"], "sources": ["d1"], "context": ["The lamp burned oil.", "It smelled."]},
    {"expected_sources": ["d2", "d3"], "sources": ["d2", "d3"], "context": ["It rained drops.", "Wet."]},
    {"expected_sources": ["d3", "d4"], "sources": ["d3", "d1"], "context": ["There were five.", "Six."]},
]
ANSWERS = [{**asked, **given, **found} for asked, given, found in zip(FREE, GIVEN, FOUND, strict=True)]
MAY_BE_BLANK = "id expected_options prediction category keywords expected_sources sources context "
MAY_BE_BLANK += "latency_ms input_tokens"


def rate(rater: str, *scores: int) -> list[Row]:
    """Return ratings of the items a, b, c, ... by two criteria."""
    rows = []
    for item, score in zip("abcd", scores, strict=True):
        rows.append({"item": item, "rater": rater, "criterion": "clear", "score": score})
        rows.append({"item": item, "rater": rater, "criterion": "short", "score": 6 - score})
    return rows


RATINGS = [*rate("ann", 1, 2, 4, 5), *rate("bob", 2, 2, 4, 3)]
HUMAN = rate("eve", 1, 3, 4, 4)


def debate(topic: str) -> tuple[Row, Row, Row]:
    """Return a summary, a gold summary and the web documents of a topic."""
    query = f"{topic}: good?"
    claims = [(f"{topic} is good.", "It is cheap.", "w1"), (f"{topic} is bad.", "It smells.", "http://a.b")]
    sides = [
        {"claim": claim, "perspectives": [{"text": text, "evidence_docs": [doc]}]}
        for claim, text, doc in claims
    ]
    gold = {"id": topic, "title": query, "t1": f"{topic} helps.", "response1": ["It lights."]}
    gold |= {"favor_ids": ["w1"], "t2": f"{topic} harms.", "response2": ["It burns."], "against_ids": ["w2"]}
    web = [{"id": "http://a.b", "content": f"{topic} on the web."}]
    return {"id": topic, "query": query, "summary": sides}, gold, {"query": query, "merged": web}


DEBATES = [*zip(*map(debate, ("Oil", "Gas", "Tar")), strict=True)]

PLACES = {
    "split": Place(
        "dev --criteria mine.json",
        {
            **GOLD,
            PREDICTIONS: PREDICTED,
            "mine.json": CRITERIA,
            OVERRIDES: DECISIONS_OF_SPLIT,
        },
        spared=("corpus/d1.json", "corpus/d3.json"),
    ),
    "class": Place(
        "dev --submissions in/ann in/bob",
        {
            **GOLD,
            f"in/ann/{PREDICTIONS}": replace(PREDICTED, label="ann"),
            f"in/bob/{PREDICTIONS}": OTHERS,
            OVERRIDES: DECISIONS,
            HISTORY: EARLIER,
        },
        spared=(f"in/bob/{PREDICTIONS}", "corpus/d1.json", "corpus/d2.json", "corpus/d3.json"),
    ),
    "answers": Place(
        "answers bot.json --method exact keyword f1",
        {"bot.json": Table("list", ANSWERS, "id", "bot", MAY_BE_BLANK)},
    ),
    "table": Place(
        "answers bot.csv --method exact keyword f1",
        {"bot.csv": Table("csv", ANSWERS, "id", "bot", MAY_BE_BLANK)},
    ),
    "ratings": Place(
        "agreement r.json --human people.csv",
        {
            "r.json": Table("list", RATINGS, "item", optional="score"),
            "people.csv": Table("csv", HUMAN, "item", optional="score"),
        },
    ),
    "summaries": Place(
        "summaries",
        {
            SUMMARIES: Table("list", [*DEBATES[0]], "id", "merged 5", optional="claim text"),
            GOLD_SUMMARIES: Table("lines", [*DEBATES[1]], "id"),
            MERGED: Table("list", [*DEBATES[2]], "query", "merged 5", optional="content"),
        },
    ),
    "options": Place(
        "dev @course.args",
        {
            **GOLD,
            PREDICTIONS: PREDICTED,
            "course.args": "--systems final\n--criteria polite='Is it polite?'\n",
        },
        spared=(PREDICTIONS, *GOLD),
    ),
}


# ------------------------------------------------------------------ Mistakes


@dataclass(frozen=True)
class Mistake:
    """Another content of a file, or the same one elsewhere; and what names it."""

    place: str
    file: str
    content: bytes
    names: tuple[str, ...] = ()  # a line about the file that has one of them names the mistake
    id: str = ""  # so does a line about any file that has this ID
    n_rows: int | None = None  # and one that says how many rows there are
    to: str = ""  # where the file is instead: then a line about it is enough


SYNONYMS = {
    "answer": "response",
    "answer_id": "hash",
    "claim": "title",
    "criterion": "measure",
    "date": "day",
    "description": "text",
    "doc_id": "document",
    "evidence_sentences": "citations",
    "expected_options": "options",
    "favor_ids": "favour_ids",
    "gold": "solution",
    "judge": "model",
    "item": "answer",
    "latency_ms": "latency",
    "name": "title",
    "perspectives": "arguments",
    "points": "grade",
    "prediction": "reply",
    "query": "topic",
    "question_id": "number",
    "reason": "comment",
    "retrieved_docs": "documents",
    "scale": "levels",
    "score": "mark",
    "sid": "number",
    "submission": "student",
    "summary": "claims",
    "t1": "claim1",
    "title": "topic",
}
UNSEEN = ("rank", "evidence_docs", "content")  # of objects in a row's list, which may have any more fields
Changes = Iterator[tuple[str, Table, str]]  # what is wrong, the table, another name of it


def misname(whole: Table) -> Changes:
    """Give a field, or a column, a name that is not its own, or another value behind its own one."""
    for name, value in list_fields(whole.rows[whole.changed]).items():
        others = [name[:-1] if name.endswith("s") else f"{name}s", name.capitalize(), SYNONYMS.get(name, "")]
        if whole.form == "by ID" and name == whole.id:
            continue  # it is no field, but the name of the row
        if name in UNSEEN:
            others = []
        for other in filter(None, others):
            yield f"{other} for {name}", whole.edit(name, partial(rename, old=name, new=other)), other
        if whole.form != "by ID":  # programs write predictions: of their names only IDs are looked at
            yield f"{name} twice", whole.edit(name, partial(add, name=name, value=value)), name


def rename(row: Row, old: str, new: str) -> Row:
    return {new if name == old else name: value for name, value in row.items()}


def add(row: Row, name: str, value: Any) -> Row:
    """Return the row with the name again, and another value of the same type."""
    if isinstance(value, (int, float)):
        return {**row, Again(name): value + 1}
    return {**row, Again(name): f"{value}x" if isinstance(value, str) else type(value)()}


def miswrite(whole: Table) -> Changes:
    """Give a value another form, or leave it blank."""
    fields = list_fields(whole.rows[whole.changed])
    for name, value in fields.items():
        forms: list[object] = [] if name in whole.optional.split() else [""]
        if name in whole.ids.split():
            texts = value if isinstance(value, list) else [value]
            for spell in SPELLINGS:
                spelt = [spell(text) for text in texts]
                forms.append(spelt if isinstance(value, list) else spelt[0])
        if isinstance(value, (int, float)) or re.fullmatch(r"\d+(\.\d+)?", str(value)):
            forms += [float(value), f"{value}", f"{value},0".replace(".", ""), "n/a"]
            forms += [] if name in whole.optional.split() else ["NaN", math.nan]
        elif isinstance(value, list) and isinstance(value[0], str):
            forms += [str(value), *["; ".join(value)] * (whole.form == "csv")]
        for form in forms:
            if repr(form) != repr(value):
                shown = name if re.fullmatch(r"\d*|n/a", f"{form}") else f"{form}"  # tables have these, too
                if name == "doc_id" and shown == name:
                    shown = f"e.g. {form}"
                yield f"{name} is {form!r}", whole.set(name, form), shown
    if "rank" in fields:
        yield "ranks are scores", whole.edit("rank", lambda row: {**row, "rank": 0.9 / row["rank"]}), "rank"
        yield "ranks are equal", whole.edit("rank", lambda row: {**row, "rank": 1}), "rank"
        yield "a rank lacks", whole.set("rank", None), "rank"


SPELLINGS: tuple[Callable[[str], str], ...] = (
    str.swapcase,
    lambda text: f"{text} ",
    lambda text: f"{text}.json",
    lambda text: re.sub(r"\D+0*(?=\d)", "", text),
)


def misplace(whole: Table) -> Changes:
    """A row stands there twice, or its header does."""
    row = whole.rows[whole.changed]
    if whole.form != "object":
        yield "row twice", replace(whole, rows=[*whole.rows, row]), str(row[whole.id])
    if whole.form == "csv":
        header = {name: name for name in row}
        yield (
            "header twice",
            replace(whole, rows=[*whole.rows, header, *whole.rows]),
            f":{len(whole.rows) + 2}",
        )


def cut(whole: Table, text: str) -> Iterator[tuple[str, str]]:
    """Yield the beginnings of a file that somebody can know to be cut off, or whose rows can be counted."""
    width = len(whole.rows[0])
    for tenth in (1, 3, 4, 6, 7, 9):
        kept = text[: len(text) * tenth // 10]
        last = next(csv.reader([kept.rpartition("\n")[2]]), [])
        if whole.form != "csv" or len(last) < width:
            yield f"cut at {tenth}/10", kept
    yield "cut in its last row", text[: text.rstrip("\n").rfind("," if whole.form == "csv" else "\n") - 1]


def encode(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield a text as other programs write it."""
    yield "UTF-16", text.encode("utf-16")
    yield "UTF-8 with a byte-order mark", text.encode("utf-8-sig")
    yield "CRLF", text.replace("\n", "\r\n").encode()


def archive(name: str, content: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as package:
        package.writestr(name, content)
    return stream.getvalue()


def move(file: str, text: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield (what is wrong, the new path, the content)."""
    folder, slash, name = file.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    content = text.encode()
    yield "named by a browser", f"{folder}{slash}{stem} (1).{suffix}", content
    yield "in another case", f"{folder}{slash}{stem.upper()}.{suffix}", content
    yield "in a zip", f"{folder}{slash}{stem}.zip", archive(name, text)
    if file != OVERRIDES:  # elsewhere may be those of another course
        yield "in a subfolder", f"{folder}{slash}sub/{name}", content


def list_mistakes() -> dict[str, Mistake]:
    """Return every mistake in every file of every place, by its name."""
    mistakes: dict[str, Mistake] = {}
    for title, place in PLACES.items():
        for file, content in place.files.items():
            if file not in place.spared:
                for what, mistake in make_mistakes(title, file, content):
                    mistakes[f"{title}: {file.rpartition('/')[2]}: {what}"] = mistake
    return mistakes


def make_mistakes(place: str, file: str, content: Table | str) -> Iterator[tuple[str, Mistake]]:
    text = content if isinstance(content, str) else content.text
    for what, encoded in encode(text):
        yield what, Mistake(place, file, encoded, ("UTF-8", "UTF-16"))
    if file != HISTORY:  # without it a class is graded for the first time
        for what, path, moved in move(file, text):
            yield what, Mistake(place, file, moved, to=path)
    if isinstance(content, str):
        return
    id = str(content.rows[content.changed].get(content.id, "")) or content.label
    line = content.find_line()
    for what, changed, name in (*misname(content), *miswrite(content), *misplace(content)):
        field = what.rpartition(" for ")[2].partition(" ")[0]  # of "x for y", "x is y" and "x twice"
        names = (f":{line}", f"[{content.changed}]", name, field)
        yield what, Mistake(place, file, changed.text.encode(), names, id)
    for what, kept in cut(content, text):
        line = kept.count("\n") + 1
        n_rows = max(0, kept.count("\n") - (content.form == "csv"))
        yield what, Mistake(place, file, kept.encode(), ("cut off", "no rows", f":{line}"), n_rows=n_rows)
    if len(content.rows) > 1 and file not in (HISTORY, "mine.json"):  # of these, a row less is another wish
        rows = [row for row in content.rows if row is not content.rows[content.changed]]
        yield (
            "row left out",
            Mistake(place, file, replace(content, rows=rows).text.encode(), (), id, len(rows)),
        )
    if content.form == "csv":
        yield "semicolons", Mistake(place, file, content.write_csv(";").encode(), ())


MISTAKES = list_mistakes()


# ------------------------------------------------------------------ The three endings


@dataclass(frozen=True)
class Run:
    """What a run says, and its figures."""

    code: int
    lines: list[str]
    figures: dict[str, float | str]

    @property
    def said(self) -> str:
        return "\n".join([f"exit code {self.code}", *self.lines])

    def must_end(self, code: int, *words: str) -> None:
        """Assert that it ends with this exit code, and that a line has all of these words."""
        assert self.code == code, self.said
        assert mentions(self.lines, *words), self.said


@dataclass
class Valid:
    """A place's files, with the journal, and its run."""

    files: dict[str, bytes]
    run: Run


RESULTS = ["dev_evaluation.json", "dev_graded/*/*.json", "*_answers.json", "agreement.json"]
RESULTS += ["results/evaluation/*/*.json"]
NO_FIGURES = {"run", "setup", "usage", "inputs", "read", "timestamp", "warnings", "files"}
GRADE_COLUMNS = ("points", "previous", "previous_date", "rank", "decisions", "missing")


def list_figures(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield each number of a results file with its path."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name not in NO_FIGURES:
                yield from list_figures(member, f"{path}.{name}")
    elif isinstance(value, list):
        for place, member in enumerate(value):
            yield from list_figures(member, f"{path}.{place}")
    elif isinstance(value, (int, float)):
        yield path, value


def read_run(project: Project, outcome: Outcome) -> Run:
    """Return the run, with the figures of all results and grades."""
    figures: dict[str, float | str] = {}
    lines = [*outcome.err, *outcome.out.splitlines()]
    for pattern in RESULTS:
        for place, path in enumerate(sorted(project.folder.glob(pattern))):
            figures.update(list_figures(json.loads(path.read_bytes()), f"{pattern}[{place}]"))
    if (project.folder / "dev_grades.csv").exists():
        for row in project.table("dev_grades.csv"):
            figures.update({f"{row['submission']}.{name}": row[name] for name in GRADE_COLUMNS})
            lines += [f"{row['submission']}: {reason}" for reason in row["reason"].split(";")]
        page = project.files()["dev_leaderboard.md"].decode().replace("\\", "")
        lines += page.partition("## Needs attention")[2].partition("\n## ")[0].splitlines()
    return Run(outcome.code, lines, figures)


def score(call: Call) -> Reply:
    """Give every request scores of its own, whatever it asks for."""
    number = zlib.crc32(json.dumps(call.body["messages"]).encode())
    level = {name: (number >> place) % 3 for place, name in enumerate(SUMMARY_CRITERIA)}
    word = "yes" if number % 2 else "no"
    reply = {"rationale": "So.", "score": number % 5 + 1, "decision": word, "correct": word}
    if "web reference" in prompt_of(call) or "perspectives" in prompt_of(call):
        reply = {"explanations": dict.fromkeys(SUMMARY_CRITERIA, "So."), "scores": level}
    return completion(json.dumps(reply))


@pytest.fixture(scope="module")
def server() -> Iterator[GroqServer]:
    with pytest.MonkeyPatch.context() as patch, GroqServer(score) as server:
        patch.setattr(evaluation, "BACKOFF_S", 0.001)
        patch.setattr(evaluation, "GRACE_S", 0.1)
        patch.setattr(httpx, "create_ssl_context", lambda: NO_CERTIFICATES)
        yield server


@pytest.fixture
def judged(project: Project, server: GroqServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty folder, and a judge."""
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    monkeypatch.setenv("GROQ_BASE_URL", server.url)
    return project


VALID: dict[str, Valid] = {}


def prepare(project: Project, title: str) -> Valid:
    """Return the files of a place, the journal among them, and their run. The folder is empty again."""
    if title not in VALID:
        place = PLACES[title]
        inputs = {file: place.read(file).encode() for file in place.files}
        run_in(project, place.command, inputs)
        journals = {name: data for name, data in project.files().items() if name.endswith("judgements.jsonl")}
        clear(project)
        run = run_in(project, place.command, {**inputs, **journals})
        assert (run.code, run.figures != {}) == (0, True), run.said
        VALID[title] = Valid({**inputs, **journals}, run)
        clear(project)
    return VALID[title]


def run_in(project: Project, command: str, files: Mapping[str, bytes]) -> Run:
    """Write the files and run the command."""
    for name, data in files.items():
        project.write(name, data)
    return read_run(project, project.run(*command.split()))


def clear(project: Project) -> None:
    for path in project.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@table("mistake", MISTAKES)
def test_no_mistake_changes_a_figure_without_a_word(judged: Project, mistake: Mistake) -> None:
    place = PLACES[mistake.place]
    valid = prepare(judged, mistake.place)
    files = {name: data for name, data in valid.files.items() if name != mistake.file}
    run = run_in(judged, place.command, {**files, mistake.to or mistake.file: mistake.content})
    if run.code != 2 and run.figures == valid.run.figures:
        return
    lines = [line for line in run.lines if line not in valid.run.lines]
    said = "\n".join([f"exit code {run.code}, and no line names it:", *lines])
    assert any(is_named(mistake, place, line) for line in lines), said


def is_named(mistake: Mistake, place: Place, line: str) -> bool:
    """Return whether the line has the file and the thing, or the number of rows."""
    labels = {file: content.label for file, content in place.files.items() if isinstance(content, Table)}
    own = [mistake.file.rpartition("/")[2], mistake.to.rpartition("/")[2], FORMS.get(mistake.file)]
    others = [*(file.rpartition("/")[2] for file in place.files), *labels.values()]
    if mistake.n_rows is not None and has_word(line, str(mistake.n_rows)):
        return has_word(line, *own, "Loaded", labels.get(SUMMARIES))
    if has_word(line, mistake.id) and has_word(line, *others):
        return True
    is_enough = bool(mistake.to) or has_word(line, *mistake.names, mistake.id)
    return is_enough and has_word(line, *own, labels.get(mistake.file))


FORMS = {PREDICTIONS: "dev_*_output.json", SUMMARIES: "results/merged-summaries/*.json"}


def has_word(line: str, *words: str | None) -> bool:
    """Return whether one of these words is in the line, and not only as a part of another."""
    forms = [re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", re.escape(word)) for word in words if word]
    return any(re.search(form, line) for form in forms)


# ------------------------------------------------------------------ What must happen exactly


@table(
    "place, command, words",
    {
        "fail-under twice": ("split", "+ --fail-under f1=0.1 --fail-under recall@1=50", "--fail-under"),
        "systems twice": ("split", "+ --systems final --systems final", "--systems"),
        "judge twice": ("split", "+ --judge final --judge final", "--judge"),
        "report twice": ("split", "+ --report md --report csv", "--report"),
        "submissions twice": ("class", "+ --submissions in/ann", "--submissions"),
        "method twice": ("answers", "+ --method f1", "--method"),
        "human twice": ("ratings", "+ --human people.csv", "--human"),
        "in two options files": ("options", "+ @course.args", "--systems"),
        "answers are never below 1": ("split", "+ --fail-under answer=1", "--fail-under answer=1"),
        "a share on the scale 1 to 5": ("split", "+ --fail-under answer=0.8", "--fail-under answer=0.8"),
        "more than 5 on this scale": ("split", "+ --fail-under answer=5.5", "--fail-under answer=5.5"),
        "a percentage for a share": ("split", "+ --fail-under f1=65", "--fail-under f1=65"),
        "a share for a percentage": ("split", "+ --fail-under recall@1=0.5", "--fail-under recall@1=0.5"),
        "a share below 0": ("answers", "+ --fail-under exact=-1", "--fail-under exact=-1"),
        "a threshold of no method": ("answers", "+ --threshold 0.5", "--threshold semantic_fixed"),
        "embeddings of no method": ("answers", "+ --embedding-model any", "--embedding-model"),
        "f1 is not normalized": (
            "answers",
            "answers bot.json --method f1 --normalize formula",
            "--normalize",
        ),
        "a model without a judge": ("answers", "+ --model any", "--model llm_judge"),
        "a protocol without a judge": ("answers", "+ --protocol fraction", "--protocol llm_judge"),
        "the best without a judge": ("answers", "+ --judge-top 2", "--judge-top llm_judge"),
        "repeats without a judge": ("answers", "+ --repeats 2", "--repeats llm_judge"),
        "a limit beside plot": ("summaries", "summaries --plot s.json --limit 1", "--limit --plot"),
        "indices beside plot": ("summaries", "summaries --plot s.json --indices 0", "--indices --plot"),
        "a limit of the web": ("summaries", "summaries --web-metrics --limit 1", "--limit --web-metrics"),
        "systems of a kit": (
            "split",
            "check dev --student-kit kit --systems final",
            "--systems --student-kit",
        ),
        "the top of a model": ("split", "generate dev --pipeline llm --top-k 2", "--top-k llm"),
    },
)
def test_an_option_acts_or_is_a_usage_error(judged: Project, place: str, command: str, words: str) -> None:
    valid = prepare(judged, place)
    run = run_in(judged, command.replace("+", PLACES[place].command), valid.files)
    run.must_end(2, *words.split())
    assert run.lines[-1].startswith("see: evaluation.py ")
    assert judged.files() == valid.files


@table(
    "place, command",
    {
        "thresholds that can be missed": ("split", "+ --fail-under answer=5 f1=0.001 recall@1=100 polite=1"),
        "a judge looks for an exact match first": ("answers", "+ llm_judge --normalize formula"),
        "what stands in scripts": ("split", "+ --systems final --repeats 1 --rpm 9 --max-usd 9 --workers 2"),
    },
)
def test_options_that_act(judged: Project, place: str, command: str) -> None:
    run = run_in(judged, command.replace("+", PLACES[place].command), prepare(judged, place).files)
    assert run.code in (0, 1), run.said


def run_changed(project: Project, title: str, files: Mapping[str, object], command: str = "+") -> Run:
    """Run the command of a place, or one in it, with other files; what is ... is not there."""
    valid = prepare(project, title)
    for name, content in files.items():
        if content is not ...:
            project.write(name, content)
    others = {name: data for name, data in valid.files.items() if name not in files}
    return run_in(project, command.replace("+", PLACES[title].command), others)


@table(
    "content, words",
    {
        "UTF-16": ("--systems final".encode("utf-16"), "course.args UTF-8"),
        "a quote that is not closed": ("--systems final\n--criteria polite='Is it?\n", "course.args:2"),
        "an option on two lines": ("--systems final\n--systems final\n", "--systems"),
    },
)
def test_an_options_file_is_read_like_any_other(judged: Project, content: bytes | str, words: str) -> None:
    run = run_changed(judged, "options", {"course.args": content})
    run.must_end(2, *words.split())


def test_an_options_file_that_is_not_there_has_a_sentence(judged: Project) -> None:
    for files in ({"course.args": ...}, {"course.args": ..., "course.args/x": ""}):
        run = run_changed(judged, "options", files)
        assert (run.code, mentions(run.lines, "course.args"), mentions(run.lines, "Errno")) == (
            2,
            True,
            False,
        )


@pytest.mark.parametrize("command", ["dev @course.args --systems final", "dev --systems final @course.args"])
def test_the_command_line_replaces_an_option_of_the_file(judged: Project, command: str) -> None:
    run = run_changed(judged, "options", {"course.args": "--systems other\n--judge final\n"}, command)
    run.must_end(0, "--systems", "course.args")
    assert judged.read("dev_evaluation.json").keys() == {"final"}


def test_a_backslash_in_an_options_file_is_itself(judged: Project) -> None:
    content = '--out grades\\dev\n--criteria "polite=Is \\"it\\" polite?"\n'
    assert run_changed(judged, "options", {"course.args": content}).code == 0
    results = judged.read(str(Path("grades\\dev") / "dev_evaluation.json"))
    assert "polite" in results["final"]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("in/ann/dev_final_output (1).json", 3),
        ("in/ann/dev_final_output-1.json", 3),
        ("in/ann/dev_final_output.json.txt", 3),
        ("in/ann/dev_new_outputs.json", 3),
        ("in/ann/DEV_new_output.json", 3),
        ("in/ann/new/dev_final_output.json", 3),
        ("in/ann/work.zip", 3),
        ("dev_overrides (1).csv", 0),
        ("dev_overrides.xlsx", 0),
        ("dev_override.csv", 0),
        ("dev_appeal.md", 0),
        ("dev_appeal (1).txt", 0),
    ],
)
def test_what_a_class_does_not_read_is_in_its_box(judged: Project, file: str, code: int) -> None:
    run = run_changed(judged, "class", {file: PREDICTED.text})
    run.must_end(code, "| ", *file.removeprefix("in/").split("/"))
    assert run.figures == VALID["class"].run.figures


@pytest.mark.parametrize(
    "file", ["dev_final_output (1).json", "dev_final_output.json.txt", "Dev_x_output.json"]
)
def test_what_a_split_does_not_read_is_a_warning(judged: Project, file: str) -> None:
    run = run_changed(judged, "split", {file: PREDICTED.text})
    run.must_end(0, "warning: ", file)


def test_a_zip_is_no_submission(judged: Project) -> None:
    run = run_changed(judged, "class", {"in/cem.zip": archive("x", "")}, "+ in/cem.zip")
    run.must_end(3, "| ", "cem.zip", "unpack it")
    assert {row["submission"] for row in judged.table("dev_grades.csv")} == {"ann", "bob"}


def test_no_other_system_stands_in_for_a_final_that_cannot_be_read(judged: Project) -> None:
    files = {f"in/ann/{PREDICTIONS}": '{"q011": ', "in/ann/dev_bm25_output.json": OTHERS.text}
    run = run_changed(judged, "class", files)
    [ann, _] = judged.table("dev_grades.csv")
    assert (run.code, ann["submission"], ann["points"]) == (3, "ann", "")
    assert mentions([ann["reason"]], PREDICTIONS)


def ask_with(**changes: object) -> str:
    """Return the questions with another second one; what is ... is left out."""
    first, second, third = GOLD[QUESTIONS].rows
    second = {name: value for name, value in {**second, **changes}.items() if value is not ...}
    return json_lines(first, second, third)


@table(
    "files, words",
    {
        "a document that is not there": ({"corpus/d2.json": ...}, "d2"),
        "a sentence that is not there": ({QUESTIONS: ask_with(evidence_sentences=["S99"])}, "S99"),
        "no rubric": ({QUESTIONS: ask_with(rubric=...)}, "q012"),
        "no gold answer": ({QUESTIONS: ask_with(answer=" ")}, "q012"),
        "a misspelt field": (
            {QUESTIONS: ask_with(evidence_sentences=..., evidence_sentence=["S1"])},
            "evidence_sentence q012",
        ),
    },
)
def test_points_rest_on_checked_gold(judged: Project, files: Mapping[str, object], words: str) -> None:
    run = run_changed(judged, "class", files)
    run.must_end(3, "| ", *words.split())


def test_a_number_in_place_of_an_id_never_becomes_another_question(judged: Project) -> None:
    rows = [
        {name: value for name, value in row.items() if name != "question_id"} for row in GOLD[QUESTIONS].rows
    ]
    predicted = [{**row, "question_id": f"q{n:03}"} for n, row in enumerate(PREDICTED.rows, start=1)]
    files = {QUESTIONS: json_lines(*rows), HISTORY: ..., OVERRIDES: ...}
    files |= {f"in/{name}/{PREDICTIONS}": replace(PREDICTED, rows=predicted).text for name in ("ann", "bob")}
    assert run_changed(judged, "class", files).code == 0
    judged.write(QUESTIONS, json_lines(*rows[1:]))
    run = run_in(judged, PLACES["class"].command, {})
    run.must_end(2, "q002", "q001", "question_id")


HEADER = "question_id,answer_id,score,reason\n"


@table(
    "title, files, command, words",
    {
        "decisions of no bytes": ("split", {OVERRIDES: ""}, "+", OVERRIDES),
        "decisions without a column": ("split", {OVERRIDES: "question_id,answer_id,score\n"}, "+", "reason"),
        "decisions with another": ("split", {OVERRIDES: f"student,{HEADER}"}, "+", f"{OVERRIDES} student"),
        "a folder of decisions": ("split", {OVERRIDES: ..., f"{OVERRIDES}/x": ""}, "+", OVERRIDES),
        "an appeal in UTF-16": (
            "class",
            {"dev_appeal.txt": "Write to us.".encode("utf-16")},
            "+ --report html",
            "dev_appeal.txt UTF-8",
        ),
        "an appeal in Windows-1252": (
            "class",
            {"dev_appeal.txt": "Für Änderungen".encode("cp1252")},
            "+ --report html",
            "dev_appeal.txt UTF-8",
        ),
        "a list of gold answers in a cell": (
            "table",
            {"bot.csv": 'question,gold,prediction\nWhere?,"[""Lisbon"", ""Lisboa""]",Lisboa\n'},
            "+",
            "bot.csv:2 options",
        ),
        "a row that is cut off": (
            "table",
            {"bot.csv": "question,gold,prediction\nWhere?,here,here\nWho?,I"},
            "+",
            "bot.csv:3",
        ),
        "tokens with a separator": (
            "table",
            {"bot.csv": "question,gold,prediction,input_tokens\nWhere?,here,here,1.200\n"},
            "+",
            "bot.csv:2 1.200",
        ),
        "a decimal comma": (
            "table",
            {"bot.csv": 'question,gold,prediction,latency_ms\nWhere?,here,here,"1250,5"\n'},
            "+",
            "bot.csv:2 1250,5",
        ),
        "a path that fits two members": (
            "answers",
            {"bot.json": [{"question": "Who?", "Soll": "x", "soll": "y", "prediction": "x"}]},
            "answers bot.json --columns gold=SOLL",
            "Soll soll",
        ),
        "submissions that differ in case": (
            "class",
            {f"more/ANN/{PREDICTIONS}": OTHERS.text},
            "+ more/ANN",
            "ann ANN",
        ),
        "a report in place of its input": (
            "answers",
            {"answers.csv": "question,gold,prediction,system\nQ?,g,g,a\nQ?,g,h,b\n"},
            "answers answers.csv --report csv",
            "answers.csv",
        ),
        "systems that differ in case": (
            "answers",
            {"t.csv": "question,gold,prediction,system\nQ?,g,g,GPT\nQ?,g,h,gpt\n"},
            "answers t.csv",
            "GPT gpt",
        ),
        "a folder of results that is a file": ("answers", {"old": "x"}, "+ --out old", "old folder"),
        "results of a split below a file": ("split", {"old": "x"}, "+ --out old/new", "old/new folder"),
        "a level below 1": (
            "split",
            {QUESTIONS: ask_with(rubric={"scale": {"0": "Nothing."}})},
            "+",
            "dev_final_jsonl.txt:2 rubric scale",
        ),
        "results in place of ratings": ("ratings", {}, "+ --out r.json", "r.json"),
        "a position that no file has": ("summaries", {}, "+ --indices 0,60", "--indices 60"),
    },
)
def test_input_that_is_refused(
    judged: Project, title: str, files: Mapping[str, object], command: str, words: str
) -> None:
    run = run_changed(judged, title, files, command)
    run.must_end(2, *words.split())
    assert not [name for name in judged.files() if "_evaluation." in name or "_answers." in name]


def test_spreadsheets_leave_blank_cells_out_at_the_end_of_a_row(judged: Project) -> None:
    content = "question,gold,prediction,category\nWhere?,here,here,a\nWho?,I,I\n"
    assert run_changed(judged, "table", {"bot.csv": content}).code == 0
    assert judged.read("bot_answers.json")["measures"]["exact"]["n"] == 2


@posix_only
def test_a_link_to_decisions_is_followed(judged: Project) -> None:
    prepare(judged, "split")
    judged.write("elsewhere.csv", DECISIONS_OF_SPLIT.text)
    (judged.folder / OVERRIDES).symlink_to("elsewhere.csv")
    assert run_changed(judged, "split", {OVERRIDES: ...}).figures == VALID["split"].run.figures


@table(
    "title, files, command, words",
    {
        "a document twice in a ranking": (
            "split",
            {PREDICTIONS: PREDICTED.set("retrieved_docs", ["d2", "d2", "d1"]).text},
            "+",
            f"warning: {PREDICTIONS} q012",
        ),
        "every sentence is cited": (
            "split",
            {
                PREDICTIONS: replace(
                    PREDICTED, rows=[{**r, "evidence_sentences": ["S1", "S2"]} for r in PREDICTED.rows]
                ).text
            },
            "+",
            f"warning: {PREDICTIONS} sentences cite",
        ),
        "a document in two files": ("split", {"corpus/d1.txt": "The lamp."}, "check dev", "d1.json d1.txt"),
        "the ID of another document": (
            "split",
            {"corpus/d3.json": {**GOLD["corpus/d3.json"].rows[0], "doc_id": "d4"}},
            "check dev",
            "d3 d4",
        ),
        "options with a semicolon": (
            "table",
            {"bot.csv": "question,ground_truths,prediction\nWhere?,Lisbon; Lisboa,Lisboa\n"},
            "+",
            "warning: bot options Lisboa",
        ),
    },
)
def test_what_ruins_a_figure_is_a_warning(
    judged: Project, title: str, files: Mapping[str, object], command: str, words: str
) -> None:
    run = run_changed(judged, title, files, command)
    run.must_end(0, *words.split())


# ------------------------------------------------------------------ What is asked


NOT_ASKED = {
    "methods without a judge": ("answers", "+"),
    "nobody to judge": ("split", "dev --judge --overrides none"),
    "a class with nobody to judge": ("class", "+ --judge --overrides none"),
    "bm25": ("split", "generate dev --pipeline bm25 --system other"),
}


@table("title, command", NOT_ASKED)
def test_a_model_is_chosen_only_where_there_is_a_request(
    judged: Project, monkeypatch: pytest.MonkeyPatch, title: str, command: str
) -> None:
    """A server of which no model is known stands in nobody's way."""
    files: dict[str, object] = dict.fromkeys((HISTORY, OVERRIDES), ...)
    files |= {name: ... for name in prepare(judged, title).files if name.endswith("judgements.jsonl")}
    monkeypatch.setenv("GROQ_BASE_URL", "http://127.0.0.1:9/v1")
    assert run_changed(judged, title, files, command).code == 0


def test_blank_answers_and_functions_need_no_model(judged: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_BASE_URL", "http://127.0.0.1:9/v1")
    judged.write("b.json", [{"question": "Who?", "gold": "I", "prediction": " "}])
    assert judged.run("answers", "b.json", "--method", "llm_judge").code == 0
    rows = [{"question": "Who?", "gold": "I", "prediction": "You"}]
    evaluation.grade_answers(rows, methods=["llm_judge"], judge=lambda item: 1.0)


def test_no_reply_is_paid_for_twice(judged: Project, server: GroqServer) -> None:
    """Of one file, of several, and from Python."""
    rows = [{"question": f"Who {n}?", "gold": "I", "prediction": "You"} for n in range(3)]
    judged.write("bot.json", rows[:2])
    judged.write("b.json", rows[2:])
    before = len(server.calls)
    for files, n_calls in ((["bot.json"], 2), (["bot.json", "b.json"], 3), (["b.json"], 3)):
        assert judged.run("answers", *files, "--method", "llm_judge").code == 0
        assert len(server.calls) - before == n_calls
    results = evaluation.grade_answers("bot.json", methods=["llm_judge"], judge=JUDGE)
    assert results["bot"]["measures"]["llm_judge"]["n"] == 2


# ------------------------------------------------------------------ Numbers


@table(
    "gold, answer, is_equal",
    {
        "4 and 4.0": (4, 4.0, True),
        "4.0 and 4": (4.0, 4, True),
        "4.0 and the text 4": (4.0, "4", True),
        "the text 4 and 4.0": ("4", 4.0, True),
        "4.0 and the text 4.0": (4.0, "4.0", True),
        "4.5 and the text 4.5": (4.5, "4.5", True),
        "4.5 and 4": (4.5, 4, False),
    },
)
def test_a_whole_number_has_two_texts(gold: object, answer: object, is_equal: bool) -> None:
    row = {"question": "How many?", "gold": gold, "prediction": answer}
    results = evaluation.grade_answers([row], methods=["exact"])
    [only] = results.values()
    assert only["measures"]["exact"]["mean"] == is_equal


@pytest.mark.parametrize("empty", [math.nan, None, ""])
def test_an_empty_amount_is_left_out(empty: object) -> None:
    rows = [{"question": "Q?", "gold": "a", "prediction": "a", "latency_ms": value} for value in (empty, 30)]
    [only] = evaluation.grade_answers(rows, methods=["exact"]).values()
    assert (only["measures"]["latency_ms"]["n"], only["measures"]["latency_ms"]["mean"]) == (1, 30)
