"""Odd input files: which are accepted and what is read from them, which are refused and how this is reported.

The cases are in odd_inputs/, a file for each kind of input. They change the projects in projects.txt. There

    = KIND (PROJECT): FILE   begins the cases that change this file of this project
    == NAME                  begins a case, or a project

and below stand statements. What is indented below a statement is the content of the file that it names.

    as PROJECT               takes over everything from this project, as every case does from its own
    run ARGUMENTS            what the program is called with
    file NAME                a file; "no file NAME" removes one
    asks KEY ...             the keys of the requests that the command makes
    replies in NAME          the journal, with these replies to the requests
    reads from NAME          what the results contain: KEY = all of its values, in order; of stdout the number
                             of calls that a dry run shows
    reads KEY = VALUES       other values
    line 2: TEXT             another second line in the FILE
    OLD => NEW               another text for OLD, which is there once
    cut after TEXT           nothing behind TEXT, which is there once
    exit 2: LINE             a refusal, and a line of stderr; ... stands for any text
    says LINE                a line of stderr

In contents <E9> is this byte, <U+2028> this character, <[ x 9> nine brackets, <UTF-16 TEXT> text in UTF-16,
<key 1> the first key of the project, and <end> at the end of a file takes its last newline away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import evaluation
import httpx
import pytest

from conftest import KEY, NO_CERTIFICATES, Project, json_lines, table

FOLDER = Path(__file__).with_name("odd_inputs")
CLOSED_PORT = "http://127.0.0.1:9"  # all judgements are stored: a request would be a fault
CALLS_TO_MAKE = r"calls to make\D*(\d+)|(\d+) calls"
MARKS = {  # in contents, and their bytes
    rb"<CR>": lambda mark: b"\r",
    rb"<BOM>": lambda mark: "\ufeff".encode(),
    rb"<U\+([0-9A-F]{4})>": lambda mark: chr(int(mark[1], 16)).encode(),
    rb"<([0-9A-F]{2})>": lambda mark: bytes([int(mark[1], 16)]),
    rb"<(.+?) x (\d+)>": lambda mark: mark[1] * int(mark[2]),
    rb"<UTF-16 ([^<>]+)>": lambda mark: mark[1].decode().encode("utf-16-le"),
    rb"<end>\n": lambda mark: b"",
}


@dataclass
class Case:
    """A project to run the program in, and what is then expected."""

    changed: str = ""  # the file that cases change
    command: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    journal: str = ""
    replies: list[str] = field(default_factory=list)
    results: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    says: str = ""  # a line of stderr

    def encode(self, text: str) -> bytes:
        for number, key in enumerate(self.keys, start=1):
            text = text.replace(f"<key {number}>", key)
        content = text.encode()
        for mark, encoded in MARKS.items():
            content = re.sub(mark, encoded, content)
        return content

    def replace(self, old: bytes, new: bytes) -> None:
        assert self.files[self.changed].count(old) == 1, old
        self.files[self.changed] = self.files[self.changed].replace(old, new)

    def take(self, statement: str, below: list[str]) -> None:
        """Do what a statement says, with the lines that are indented below it."""
        word, _, rest = statement.partition(" ")
        second, _, name = rest.partition(" ")
        old, changes, new = statement.partition(" => ")
        if changes:
            self.replace(self.encode(old), self.encode(new))
        elif word == "line":
            lines = self.files[self.changed].split(b"\n")
            lines[int(second[:-1]) - 1] = self.encode(name)
            self.files[self.changed] = b"\n".join(lines)
        elif word == "cut":
            kept = self.encode(name)
            self.replace(kept + self.files[self.changed].partition(kept)[2], kept)
        elif word == "run":
            self.command = rest.split()
        elif word == "file":
            self.files[rest] = self.encode("".join(f"{line}\n" for line in below))
        elif word == "no":
            del self.files[name]
        elif word == "asks":
            self.keys = self.encode(rest).decode().split()
        elif word == "replies":
            self.journal = name
            self.replies = below
        elif word == "reads" and second == "from":
            self.results = name
            self.values = dict(map(read_values, below))
        elif word == "reads":
            self.values.update([read_values(rest)])
        elif word == "exit":
            self.code = int(second[:-1])
            self.says = name
        else:
            assert word == "says", statement
            self.says = rest


def read_values(text: str) -> tuple[str, Any]:
    key, _, values = text.partition(" = ")
    return key, json.loads(values)


def read_sections(text: str, begin: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section."""
    for section in re.split(rf"^{begin} ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = section.partition("\n")
        yield title, rest


def read_case(text: str, projects: dict[str, Case], case: Case) -> Case:
    """Return the case with the statements of this text."""
    for part in re.split(r"\n(?! |$)", text.rstrip("\n")):
        statement, *below = part.split("\n")
        if statement.startswith("as "):
            case = deepcopy(projects[statement.removeprefix("as ")])
        elif statement:
            case.take(statement, [line.removeprefix("    ") for line in below if line])
    return case


def read_cases() -> dict[str, Case]:
    """Return the cases by name."""
    projects: dict[str, Case] = {}
    for name, text in read_sections((FOLDER / "projects.txt").read_text("utf-8"), "=="):
        projects[name] = read_case(text, projects, Case())
    cases: dict[str, Case] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for title, group in read_sections(path.read_text("utf-8"), "="):
            kind, project, changed = re.split(r" \(|\): ", title)
            for name, text in read_sections(group, "=="):
                assert f"{kind}: {name}" not in cases
                case = deepcopy(projects[project])
                case.changed = changed
                cases[f"{kind}: {name}"] = read_case(text, projects, case)
    return cases


CASES = read_cases()


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Yield every value that the key has in a JSON value, in order."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from [member] if name == key else values_of(member, key)
    elif isinstance(value, list):
        for item in value:
            yield from values_of(item, key)


def read_result(project: Project, case: Case, out: str) -> dict[str, list[Any]]:
    """Return the values that the case compares."""
    if case.results == "stdout":
        calls = re.search(CALLS_TO_MAKE, out, re.IGNORECASE)
        assert calls, out
        return {"calls": [int(calls[1] or calls[2])]}
    [path] = project.folder.glob(case.results)
    results = json.loads(path.read_bytes(), parse_constant=pytest.fail)
    results.pop("read", None)  # its columns have the names of fields
    return {key: list(values_of(results, key)) for key in case.values}


def is_said(expected: str, err: list[str]) -> bool:
    """Return whether a line of stderr is the expected one, in which ... stands for any text."""
    pattern = ".*".join(map(re.escape, expected.split("...")))
    return any(re.fullmatch(pattern, line) for line in err)


@table("case", CASES)
def test_odd_input(project: Project, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    if case.journal:
        lines = zip(case.keys, case.replies, strict=False)
        project.write(case.journal, json_lines(*({"key": key, "reply": reply} for key, reply in lines)))
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        monkeypatch.setenv("GROQ_BASE_URL", CLOSED_PORT)
        monkeypatch.setattr(evaluation, "BACKOFF_S", 0.001)
        monkeypatch.setattr(httpx, "create_ssl_context", lambda: NO_CERTIFICATES)
    for name, content in case.files.items():
        project.write(name, content)
    before = project.files()
    outcome = project.run(*case.command)
    assert outcome.code == case.code, outcome.err
    if case.code == 0:
        assert read_result(project, case, outcome.out) == case.values
    if case.code == 2:
        assert project.files() == before
    if case.says:
        assert is_said(case.says, outcome.err), outcome.err
