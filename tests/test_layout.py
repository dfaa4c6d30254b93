"""The files of the project agree with each other: banners, metadata, top-level files, README and options."""

from __future__ import annotations

import ast
import doctest
import re
import symtable
import sys
from bisect import bisect
from pathlib import Path

import evaluation

from conftest import SEAMS, Project

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "evaluation.py").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BANNER = re.compile(r"^# -{20,} (\d+\. .+)$", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMANDS = ("dev", "check", "answers", "agreement", "summaries", "generate", "questions")
OTHER_OPTIONS = {"--hypothesis-profile"}  # of programs other than evaluation.py
MAX_BYTES = 524_287  # from one more on, a hosting site shows the file without colours; never raise this
MAX_NAMES = 712  # functions and classes: each is a name to learn


def test_contents_of_the_docstring_are_the_banners() -> None:
    contents = (evaluation.__doc__ or "").partition("Contents\n")[2].split("\n")
    banners = BANNER.findall(SOURCE)
    assert [line.strip() for line in contents if line.strip()] == banners
    assert [int(banner.split(".")[0]) for banner in banners] == list(range(1, len(banners) + 1))


def test_script_metadata_are_the_requirements() -> None:
    assert SOURCE.startswith("# /// script\n")
    block = SOURCE.partition("# /// script\n")[2].partition("# ///\n")[0]
    dependencies = re.findall(r'"([^"]+)"', block.partition("dependencies")[2])
    assert dependencies == (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()


def test_the_program_stays_within_its_bounds() -> None:
    assert len(SOURCE.encode()) <= MAX_BYTES
    functions = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.FunctionDef)]
    names = re.findall(r"^ *(?:def|class) ", SOURCE, re.MULTILINE)
    assert len(names) <= MAX_NAMES
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 60] == []


def test_no_section_uses_a_name_that_a_later_one_defines() -> None:
    """But Console, through which all is printed. Annotations do not count, as they are not evaluated."""
    banners = [number for number, line in enumerate(SOURCE.split("\n"), start=1) if BANNER.match(line)]
    sections: dict[str, int] = {}  # of each name, the one that defines it
    for node in ast.parse(SOURCE).body:
        names = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
        for target in (*getattr(node, "targets", ()), getattr(node, "target", None)):
            names += [part.id for part in ast.walk(target or ast.Pass()) if isinstance(part, ast.Name)]
        for name in names:
            sections.setdefault(name, bisect(banners, node.lineno))
    scopes = symtable.symtable(SOURCE, "evaluation.py", "exec").get_children()
    forward = set()
    for scope in scopes:
        scopes += scope.get_children()
        own = bisect(banners, scope.get_lineno())
        for symbol in scope.get_symbols():
            if symbol.is_global() and symbol.is_referenced() and sections.get(symbol.get_name(), 0) > own:
                forward.add(symbol.get_name())
    assert forward == {"Console"}


def test_examples_in_the_docstrings_are_right() -> None:
    outcome = doctest.testmod(evaluation)
    assert outcome.failed == 0
    assert outcome.attempted >= 8


def test_only_functions_import_optional_and_slow_packages() -> None:
    imported = re.findall(r"^(?:import|from) (\w+)", SOURCE, re.MULTILINE)
    assert set(imported) - sys.stdlib_module_names <= {"msgspec", "numpy"}


def test_old_python_can_parse_the_file_and_say_what_is_needed() -> None:
    ast.parse(SOURCE, feature_version=(3, 7))


def test_tests_use_only_public_names_and_seams() -> None:
    allowed = {*evaluation.__all__, *SEAMS, "VERSION", "SPLITS", "SYSTEMS"}
    used = set()
    for path in (ROOT / "tests").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "evaluation":
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "evaluation":
                used.add(node.attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
                target, name, *_ = node.args
                if ast.unparse(target) == "evaluation":
                    used.add(ast.literal_eval(name))
    assert {name for name in used if not name.startswith("__")} <= allowed


def options_of(project: Project, command: str) -> set[str]:
    outcome = project.run(command, "--help")
    assert outcome.code == 0
    return set(OPTION.findall(outcome.out))


def test_overview_names_every_command_and_no_other_option(project: Project) -> None:
    overview = project.run("--help").out
    assert all(re.search(rf"^    .*\b{command}\b", overview, re.MULTILINE) for command in COMMANDS)
    assert set(OPTION.findall(overview)) <= options_of(project, "dev") | options_of(project, "answers")


def test_every_option_in_the_readme_exists(project: Project) -> None:
    options = set().union(*(options_of(project, command) for command in COMMANDS))
    assert set(OPTION.findall(README)) - OTHER_OPTIONS <= options
