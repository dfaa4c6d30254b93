"""The README: its commands run, its output is real, its changes of the program apply."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import evaluation
import pytest
from hypothesis import settings

from conftest import Project, Serve, fake_module
from groq_server import Call, Reply, completion

ROOT = Path(evaluation.__file__).resolve().parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
IN_SAMPLES = "(cd tests/samples && ../../.venv/bin/python ../../evaluation.py "
SERVER = "GROQ_BASE_URL=http://127.0.0.1:11434/v1 GROQ_API_KEY=any "  # here it is a loopback server


def read_blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(README) if name == language]


COMMANDS = [line.strip() for block in read_blocks("sh") for line in block.splitlines() if line.strip()]
# .ci/run runs the others.
SHOWN = [line for line in COMMANDS if ".venv/" not in line or line.startswith(IN_SAMPLES)]

DRAFT = """{"question": "What did the box carry?", "answer": "The box carried goods.",
"evidence_sentences": ["S1"], "rubric": ["none", "one", "two", "three", "all"]}"""
REPLIES = {  # what an instruction contains -> the reply
    "criterion_1": '{"explanations": {}, "scores": {%s}}',
    '"correct"': '{"reasoning": "The same.", "correct": "yes"}',
    '"support"': '{"rationale": "They say so.", "support": "full"}',
    '"decision"': '{"rationale": "It is.", "decision": "yes"}',
    '"told"': '{"told": true, "answer": "Goods.", "sentences": ["D1.S1"]}',
    '"rubric": [': DRAFT,
    '{"answer"': '{"answer": "I do not know."}',
    '"score"': '{"rationale": "Some of it is right.", "score": 3}',
}


def reply(call: Call) -> Reply:
    """Reply in the form that the instructions ask for."""
    instructions = call.body["messages"][0]["content"]
    text = next(text for part, text in REPLIES.items() if part in instructions)
    names = dict.fromkeys(re.findall(r"criterion_\d\w+", instructions))
    return completion(text.replace("%s", ", ".join(f'"{name}": 2' for name in names)))


@pytest.fixture
def clone(project: Project) -> Project:
    """The project as it is after installation, with submissions in place."""
    for name in ("corpus", "NLP Project Data", "tests/samples"):
        shutil.copytree(ROOT / name, project.folder / name)
    shutil.copytree(ROOT / "tests/samples/submissions", project.folder / "submissions")
    for path in ROOT.glob("*_output.json"):
        shutil.copy(path, project.folder)
    project.write("course.args", *read_blocks("args"))
    return project


def fill_in_labels(path: Path) -> None:
    header, *rows = csv.reader(path.read_text("utf-8-sig").splitlines(keepends=True))
    for row in rows[:20]:
        row[header.index("score")] = "3"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_every_command_runs(clone: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(reply)
    assert len(SHOWN) >= 13
    for line in SHOWN:
        if line.startswith("cp "):
            shutil.copy(*(clone.folder / name for name in line.split()[1:]))
            continue
        monkeypatch.chdir(clone.folder / "tests/samples" if line.startswith(IN_SAMPLES) else clone.folder)
        words = line.removeprefix(SERVER).removeprefix("python evaluation.py ")
        if line.startswith(IN_SAMPLES):
            words = line.removeprefix(IN_SAMPLES).removesuffix(")")
        outcome = clone.run(*shlex.split(words))
        assert outcome.code == 0, (line, outcome.err)
        if "--label-sheet" in line:
            fill_in_labels(clone.folder / "dev_labels.csv")
    shutil.copy(ROOT / "tests/samples/overrides.csv", clone.folder / "dev_overrides.csv")
    assert "dev_overrides.csv" in clone.run("dev", "@course.args").out
    written = "".join(path.read_text("utf-8") for path in clone.folder.rglob("dev_evaluation.json"))
    keys = re.findall(r"`(\w+)`", README.partition("- **The results** have ")[2].partition("\n- **")[0])
    assert len(keys) >= 10
    assert [key for key in keys if f'"{key}"' not in written] == []


def test_prices_are_those_of_a_dry_run(clone: Project) -> None:
    pattern = r"^\| `([\w./-]+)`, .+ \| ([\d.]+), ([\d.]+) \| \$([\d.]+) \|$"
    models = re.findall(pattern, README, re.MULTILINE)
    assert len(models) == 3
    for model, *prices in models:
        usd_in, usd_out, usd_each = map(float, prices)
        out = clone.run("dev", "--dry-run", "--model", model).out.partition("Calls to make")[2]
        calls, tokens_in, tokens_out, cost = map(float, re.findall(r"\d+\.?\d*", out)[:4])
        assert round((tokens_in * usd_in + tokens_out * usd_out) / 1e6, 4) == cost
        assert float(f"{cost / calls:.0e}") == usd_each


def test_output_is_real(clone: Project) -> None:
    [block] = read_blocks("text")
    printed = iter(clone.run("dev").out.splitlines())
    for line in block.replace("...\n", "").splitlines():  # in this order; a table may have more columns
        cells = re.split(" {2,}", line)
        assert any(all(cell in row for cell in cells) for row in printed), line


class Frame:
    """What the example needs of a data frame."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        return self.rows


def test_example_in_python_runs(clone: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = read_blocks("python")
    serve(reply)
    monkeypatch.setitem(sys.modules, "pandas", fake_module("pandas", DataFrame=Frame))
    before = clone.files()
    exec(compile(block, "README.md", "exec"), {})
    tables = clone.capture.readouterr().out
    assert tables.startswith("100.0\nSystem ")
    assert [name in tables for name in ("words", "keyword", "polite")] == [True] * 3
    assert clone.files().keys() - before.keys() == {"answers_judgements.jsonl"}


def apply_change(source: str, change: str) -> str:
    """Apply a change to the program. Each part of it, between lines that begin with @@, has one place."""
    for part in re.split(r"^@@.*\n", change, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        old = "".join(line[1:] or line for line in lines if not line.startswith("+"))
        new = "".join(line[1:] or line for line in lines if not line.startswith("-"))
        if new not in source:  # somebody may have made it
            assert source.count(old) == 1, old
            source = source.replace(old, new)
    return source


@pytest.fixture
def changed(clone: Project) -> Project:
    """The project after the README's change of the program."""
    [change] = read_blocks("diff")
    clone.write("evaluation.py", apply_change((ROOT / "evaluation.py").read_text("utf-8"), change))
    return clone


def run_program(project: Project, *arguments: str) -> str:
    program = [sys.executable, "evaluation.py", *arguments]
    return subprocess.run(program, cwd=project.folder, capture_output=True, text=True, check=True).stdout


def test_a_measure_can_be_added(changed: Project) -> None:
    """MRR of 24 questions: the gold document is first for 21, second for two, and not there for one."""
    assert "MRR" in run_program(changed, "train", "--systems", "simple")  # on the console of one system, too
    assert "MRR" in run_program(changed, "train", "--report", "csv")
    retrieval = changed.read("train_evaluation.json")["simple"]["retrieval"]
    assert retrieval["mrr"] == pytest.approx(22 / 24)
    low, high = retrieval["ci95"]["mrr"]
    assert low < 22 / 24 < high
    rows = csv.DictReader((changed.folder / "train_evaluation.csv").read_text("utf-8-sig").splitlines())
    scores = [row["reciprocal_rank"] for row in rows if row["system"] == "simple"]
    assert Counter(map(float, scores)) == {1: 21, 0.5: 2, 0: 1}


SECTIONS = """Words used here|Quick start|A course step by step|After the exam|Questions and answers|Commands
Judging|From Python|Cron and CI|Files|Measures|Work on the program"""


def test_form() -> None:
    """Short, in a newcomer's order, and without the braces that Markdown drops from a formula."""
    assert len(README.split()) <= 2500
    prose = BLOCK.sub("", README).splitlines()
    assert [line for line in prose if len(line) > 120 and not line.startswith("|")] == []
    sections = [line.removeprefix("## ") for line in prose if line.startswith("## ")]
    assert sections == re.split(r"[|\n]", SECTIONS)
    assert re.findall(r"\$[^$]*\\[{}][^$]*\$", README) == []


def test_names_of_the_program_are_there() -> None:
    path = README.partition("## Work on the program")[2].partition("```")[0]
    names = re.findall(r"`(main|[a-z]+_\w+|[A-Z_]+)`", path)
    assert len(names) >= 17
    assert [name for name in names if not hasattr(evaluation, name)] == []


def test_random_examples_have_a_profile() -> None:
    [name] = re.findall(r"--hypothesis-profile=(\w+)", README)
    assert settings.get_profile(name).derandomize is False


def test_pictures_are_there_and_not_high() -> None:
    names = re.findall(r"!\[.+\]\((.+\.png)\)", README)
    assert len(names) == 2
    for name in names:
        header = (ROOT / name).read_bytes()[:24]
        width, height = struct.unpack(">II", header[16:])  # of a PNG
        assert (width <= 1200, height <= 600) == (True, True), name
