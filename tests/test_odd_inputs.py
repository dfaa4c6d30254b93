"""Odd input files: which are accepted and what is read from them, which are refused and how this is reported.

The cases are the lines of odd_inputs.jsonl. A line without a name is a base, whose fields many cases share:

    command    the arguments of the program
    files      file name -> content: text, {"base64": ...} or {"repeat": [text, times, ...]}; null for no file
    journal    where judgements are stored, for commands that use a judge
    asked      the keys of the requests that the command makes; each gets a judgement in the journal
    score      the scores of these judgements, in turns; `parts` their parts, if any
    results    the results file, or "stdout" for the number of calls that a dry run shows

A case also has

    name       what is odd
    exit       the exit code
    kind       what the message is about (see MESSAGES); of an accepted file, why it is accepted
    where      [file, line, key, field] that the message names: the line, or the key of a row; null need not
               be named. [] for a message that does not begin with a file
    mentions   texts that one line of stderr contains
    result     key -> all of its values in the results file, in order
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import evaluation
import httpx
import pytest

from conftest import KEY, NO_CERTIFICATES, Project, json_lines, mentions, table

CLOSED_PORT = "http://127.0.0.1:9"  # all judgements are stored: a request would be a fault
CALLS_TO_MAKE = r"calls to make\D*(\d+)|(\d+) calls"

MESSAGES = {
    "blank": r"blank|empty",
    "cut-off": r"JSON|cut off|truncated",
    "empty-file": r"empty|blank|no (rows|lines)",
    "exists": r"exists|already|--overwrite",
    "file-missing": r"not found|nothing of that name|no such file|does not exist|missing",
    "missing-field": r"missing|required|nothing|lacks|has no|without|needs",
    "mixed": r"cannot be (compared|mixed)|both|verdicts",
    "no-gold": r"no gold answer",
    "no-rows": r"empty|no |none|only|at least one|nothing|rows|list|without",
    "not-a-file": r"director|folder|not a (regular )?file",
    "not-a-number": r"number|int|float",
    "not-a-verdict": r"yes or no|true or false|verdict",
    "not-csv": r"CSV|quot",
    "not-json": r"JSON",
    "not-utf8": r"UTF-?8",
    "null-for-item": r"input|cannot be compared",
    "out-of-range": r"from -?\d|between|range|at least|at most|[<>]=|0, 1 or 2|too (large|small)|number",
    "repeated": r"more than once|repeat|twice|two|duplicate|already|one score",
    "too-deep": r"nest|deep|recursion",
    "unknown-id": r"unknown|no question|ID of a question|not (a|an|in|the)",
    "unknown-system": r"unknown|no system|name of a system|not (a|an|in|the)",
    "wrong-type": r"expected|must be|should be|is not|not an?\b",
}


def read_table() -> dict[str, dict[str, Any]]:
    """Return the cases by name, each with what it takes from its base."""
    lines = Path(__file__).with_name("odd_inputs.jsonl").read_text(encoding="utf-8").splitlines()
    bases: dict[str, dict[str, Any]] = {}
    cases: dict[str, dict[str, Any]] = {}
    for line in lines:
        row = json.loads(line)
        if "name" not in row:
            bases[row["base"]] = row
            continue
        base = bases[row["base"]]
        assert row["name"] not in cases
        cases[row["name"]] = {**base, **row, "files": {**base["files"], **row["files"]}}
    return cases


def decode_content(content: Any) -> bytes:
    """Return the bytes of a file as the table gives them."""
    if isinstance(content, str):
        return content.encode("utf-8")
    if "base64" in content:
        return base64.b64decode(content["base64"])
    texts = content["repeat"]
    return "".join(text * times for text, times in zip(texts[::2], texts[1::2], strict=True)).encode("utf-8")


def journal_lines(case: dict[str, Any]) -> str:
    """Return a journal with a reply to every request of the case."""
    lines = []
    for place, key in enumerate(case["asked"]):
        score = case["score"][place % len(case["score"])]
        reply: dict[str, Any] = {"rationale": "Stored.", "score": score}
        if case["command"][0] == "answers":
            reply = {"reasoning": "Stored.", "correct": "yes" if score else "no"}
        if case["command"][0] == "summaries":
            reply = {"explanations": {}, "scores": case["parts"]}
        lines.append({"key": key, "reply": json.dumps(reply)})
    return json_lines(*lines)


def values_of(value: Any, key: str) -> Iterator[Any]:
    """Yield every value that the key has in a JSON value, in order."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from [member] if name == key else values_of(member, key)
    elif isinstance(value, list):
        for item in value:
            yield from values_of(item, key)


def read_result(project: Project, case: dict[str, Any], out: str) -> dict[str, list[Any]]:
    """Return the values that the case compares."""
    if case["results"] == "stdout":
        calls = re.search(CALLS_TO_MAKE, out, re.IGNORECASE)
        assert calls, out
        return {"calls": [int(calls[1] or calls[2])]}
    [path] = project.folder.glob(case["results"])
    results = json.loads(path.read_bytes(), parse_constant=pytest.fail)
    return {key: list(values_of(results, key)) for key in case["result"]}


def is_reported(case: dict[str, Any], line: str) -> bool:
    """Return whether a line of stderr says what is wrong, and where."""
    about = MESSAGES[case["kind"]]
    if not case["where"]:
        return re.search(about, line, re.IGNORECASE) is not None
    file, number, name, field = case["where"]
    if not line.startswith(f"{file}:"):
        return False
    message = line.removeprefix(f"{file}:")
    place = f" {name}:" if number is None else f"{number}:"
    if (number or name) and not message.startswith(place):
        return False
    return (field or "") in message and re.search(about, message, re.IGNORECASE) is not None


CASES = read_table()


@table("case", CASES)
def test_odd_input(project: Project, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    if "journal" in case:
        project.write(case["journal"], journal_lines(case))
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        monkeypatch.setenv("GROQ_BASE_URL", CLOSED_PORT)
        monkeypatch.setattr(evaluation, "BACKOFF_S", 0.001)
        monkeypatch.setattr(httpx, "create_ssl_context", lambda: NO_CERTIFICATES)
    for name, content in case["files"].items():
        if content is not None:
            project.write(name, decode_content(content))
    before = project.files()
    outcome = project.run(*case["command"])
    assert outcome.code == case["exit"], outcome.err
    if case["exit"] == 0:
        assert read_result(project, case, outcome.out) == case["result"]
    else:
        assert any(is_reported(case, line) for line in outcome.err), outcome.err
    if case["exit"] == 2:
        assert project.files() == before
    assert mentions(["", *outcome.err], *case.get("mentions", [])), outcome.err


def test_every_kind_of_refusal_is_in_the_table() -> None:
    refused = {case["kind"] for case in CASES.values() if case["exit"] != 0}
    assert refused == set(MESSAGES)
