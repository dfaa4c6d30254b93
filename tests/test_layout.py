"""The file keeps its order: constants, nouns, pure verbs, effects, assembly, command line."""

from __future__ import annotations

import ast
import doctest
import re
import statistics
import subprocess
import sys
from bisect import bisect_right
from functools import cache
from pathlib import Path

import evaluation

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "evaluation.py").read_text(encoding="utf-8")
BANNER = re.compile(r"^# -{66} (\d+\. .+)$", re.MULTILINE)
PURE_SECTIONS = {1, 2, 3, 4, 5, 6, 7, 11}
EFFECTS = {"print", "open", "os", "sys", "time", "random", "Path"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


BANNERS = [line for line, text in enumerate(SOURCE.splitlines(), start=1) if BANNER.match(text)]


def section_of(line: int) -> int:
    return bisect_right(BANNERS, line)


@cache
def tree() -> ast.Module:
    return ast.parse(SOURCE)


@cache
def functions() -> list[Function]:
    return [node for node in ast.walk(tree()) if isinstance(node, Function)]


def names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def definitions() -> dict[str, int]:
    """Each function and class at the top of the file, and the line on which it ends."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: node.end_lineno or 0 for node in tree().body if isinstance(node, kinds)}


def test_the_contents_are_the_banners() -> None:
    contents = (evaluation.__doc__ or "").partition("Contents\n")[2].split("\n")
    assert [line.strip() for line in contents if line.strip()] == BANNER.findall(SOURCE)


def test_the_script_metadata_are_the_requirements() -> None:
    block = SOURCE.partition("# /// script\n")[2].partition("# ///\n")[0]
    named = re.findall(r'"([^"]+)"', block.partition("dependencies")[2])
    assert named == (ROOT / "requirements.txt").read_text(encoding="utf-8").split()
    assert SOURCE.startswith("# /// script\n")


def test_no_function_in_a_pure_section_names_an_effect() -> None:
    found = [
        f"{function.name}: {name}"
        for function in functions()
        if section_of(function.lineno) in PURE_SECTIONS
        for name in sorted(names_in(function) & EFFECTS)
    ]
    assert found == []


def test_only_the_command_line_prints() -> None:
    printing = {section_of(function.lineno) for function in functions() if "print" in names_in(function)}
    assert printing == {12}


def test_functions_use_only_what_stands_above_them() -> None:
    ends = definitions()
    found = [
        f"{node.name} (line {node.lineno}) uses {name}"
        for node in tree().body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        for name in sorted(names_in(node) & set(ends) - {node.name})
        if ends[name] > node.lineno
    ]
    assert found == []


def test_functions_are_short() -> None:
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions()}
    assert statistics.median(lengths.values()) <= 12
    assert {name: length for name, length in lengths.items() if length > 60} == {}
    assert len(SOURCE.splitlines()) < 10_000


def test_public_names_have_a_docstring() -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    public = [node for node in tree().body if isinstance(node, kinds) and not node.name.startswith("_")]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


def test_the_examples_in_the_docstrings_hold() -> None:
    outcome = doctest.testmod(evaluation)
    assert (outcome.failed, outcome.attempted >= 8) == (0, True)


def test_importing_the_file_loads_no_package() -> None:
    code = "import sys, evaluation; print(sorted({'groq', 'numpy', 'tqdm', 'matplotlib'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_only_the_plots_need_another_package() -> None:
    optional = set(evaluation.REPORT_PACKAGES.values())
    importing = {
        function.name: name
        for function in functions()
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name,)
        if name.split(".")[0] in optional
    }
    assert set(importing) == {"plain_style", "draw_spreads"}
    assert evaluation.REPORT_PACKAGES.keys() <= evaluation.REPORTS.keys()


def test_no_two_reports_are_the_same_file() -> None:
    names = [file for by_file in evaluation.REPORTS.values() for file in by_file]
    assert len(set(names)) == len(names)
    assert all(name.startswith("{split}_") for name in names)


def test_nothing_else_stands_at_the_top() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    tops = {line.strip('"').split("/")[0] for line in listed.stdout.splitlines()}
    samples = {
        f"{split}_{system}_output.json" for split in evaluation.SPLITS for system in evaluation.SYSTEMS
    }
    named = {"evaluation.py", "corpus", "NLP Project Data", "requirements.txt", "README.md", "tests"}
    assert {name for name in tops if not name.startswith(".")} <= named | samples
