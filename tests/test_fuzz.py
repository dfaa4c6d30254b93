"""Random options and files: the exit code is 0, 2 or 3, whatever a user gives. Nothing is sent."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Project, document, question

COMMANDS = (
    "dev",
    "check",
    "answers none_such.json",
    "agreement none_such.json a.json",
    "summaries",
    "generate dev --pipeline bm25",
    "questions",
    "dev --submissions .",
)
WORDS = "0 -1 3 0.5 1e9 nan é a,b q001 dev strong corpus . none.json dev_strong_output.json /dev/zero [ * --"
VALUES = (*WORDS.split(), "", " ", "csv", "9" * 400, "1" * 30, "\udcff")
FILES: dict[str, Any] = {
    "NLP Project Data/dev_final_jsonl.txt": question(),
    "dev_strong_output.json": {"q001": {"answer": "It is d1.", "evidence_sentences": ["S1"]}},
    "corpus/d1.json": document("d1", "It rained.", "It snowed."),
    "dev_judgements.jsonl": {"key": "k", "score": 4, "rationale": "So."},
    "a.json": [{"gold": "a", "prediction": "c", "correct": False}],
    "none_such.json": [{"gold": "a", "prediction": "b", "correct": True}],
}
DAMAGES = (
    *(b"", b"[", b"null", b"[" * 100_000, b"\xff", b"\0", b"1" * 5_000, b'{"q001": [1e999]}', b'"\\ud800"'),
    *(b'{"a": 1}\n' * 3, b'{"": {"": []}}', b'{"q001": {"answer": 7, "retrieved_docs": {}}}'),
)


@functools.cache
def list_options(project: Project, command: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"--[a-z-]+", project.run(command, "--help").out))))


@pytest.mark.timeout(600)  # with --hypothesis-profile=random it takes a minute
@given(data=st.data())
def test_no_input_raises(project: Project, data: st.DataObject) -> None:
    for name, content in FILES.items():
        project.write(name, json.dumps(content) + "\n")
    command = data.draw(st.sampled_from(COMMANDS))
    arguments = command.split()
    for option in data.draw(st.lists(st.sampled_from(list_options(project, arguments[0])), max_size=2)):
        arguments += [option, *data.draw(st.lists(st.sampled_from(VALUES), max_size=1))]
    for name in data.draw(st.lists(st.sampled_from(list(FILES)), max_size=2)):
        content = json.dumps(FILES[name]).encode()
        cut = data.draw(st.integers(0, len(content)))
        project.write(name, data.draw(st.sampled_from((*DAMAGES, content[:cut], content[:cut] + b"\xc3"))))
    outcome = project.run(*arguments)
    assert outcome.code in (0, 2, 3), (arguments, outcome.err)
    for name in os.listdir(project.folder):
        path = project.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
