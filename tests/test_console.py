"""The console to the letter: stdout, help, exit codes, and consoles that cannot show every character."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path
from unittest.mock import MagicMock, Mock

import evaluation
import pytest

from conftest import (
    RESULTS,
    JudgeWith,
    Project,
    Serve,
    assert_refused,
    document,
    fake_module,
    mentions,
    posix_only,
    question,
    table,
)
from groq_server import error, score_reply

NO_KEY = "GROQ_API_KEY"

# The whole text of a split has one place, here. Other tests look for the lines that they are about.
HEADER = """\
Evaluating dev split outputs...
Questions file: NLP Project Data/dev_final_jsonl.txt
Loaded 7 questions
"""
SYSTEM = """
============================================================
Evaluating: dev_{}_output.json
============================================================

Loaded predictions for {} questions

============================================================
RETRIEVAL EVALUATION RESULTS
============================================================

Total Questions: 7

Recall@1: {}
Recall@5: {}

============================================================
CITATION EVALUATION RESULTS
============================================================

Total Questions: 7
Questions with Evidence: 7

--- OVERALL CITATION METRICS (all questions) ---
Average Precision: {}
Average Recall: {}
Average F1: {}
"""
JUDGED = """
============================================================
LLM_JUDGE EVALUATION RESULTS
============================================================

Total Questions: 7
Questions with Rubrics: 7
Lambda Weight (answer vs evidence): 0.50

--- OVERALL SCORES ---
Average Answer Score (1-5): 4.00
Average Evidence Score (0-1): 1.0000
Average Combined Score (0-1): 0.90
"""
COMPARISON = """
============================================================
SYSTEM COMPARISON
============================================================

System           Recall@1 %           Recall@5 %             Precision                Recall
simple     28.6 [0.0, 73.3]   85.7 [39.9, 100.0]  0.429 [0.227, 0.643]  0.857 [0.399, 1.000]
strong  100.0 [56.0, 100.0]  100.0 [56.0, 100.0]  1.000 [0.560, 1.000]  1.000 [0.560, 1.000]

System                    F1             Answer              Evidence              Combined
simple  0.571 [0.306, 0.818]                n/a                   n/a                   n/a
strong  1.000 [0.560, 1.000]  4.00 [2.45, 5.00]  1.000 [0.560, 1.000]  0.900 [0.631, 1.000]

95 % intervals in brackets, by 7 gold documents.
Answer|judge:openai/gpt-oss-20b|repeats:1|prompt:PROMPT|v:VERSION

--- PAIRED DIFFERENCES (sign flips over documents, adjusted for the pairs of a measure) ---
Pair             Measure     n               Difference  p (adj.)  Verdict
strong - simple  Recall@1 %  7     +71.4 [-0.3, +100.0]    0.0625  no significant difference
strong - simple  Recall@5 %  7     +14.3 [-35.1, +57.3]    1.0000  no significant difference
strong - simple  Precision   7  +0.571 [+0.119, +0.770]    0.0156  better
strong - simple  Recall      7  +0.143 [-0.351, +0.573]    1.0000  no significant difference
strong - simple  F1          7  +0.429 [+0.043, +0.624]    0.0156  better
Over five measures, equal systems get some verdict in one of ten to one of five runs.

============================================================
Evaluation results saved to: dev_evaluation.json
============================================================
"""


def test_everything_that_a_split_prints(project: Project, judge_with: JudgeWith) -> None:
    """`strong` is right everywhere. `simple` finds two documents first, and cites a wrong sentence, too."""
    numbers = range(1, 8)
    project.questions(*(question(f"d{n}") for n in numbers))
    project.documents(*(document(f"d{n}", "It rained.", "So it did.") for n in numbers))
    both = {"evidence_sentences": ["S1", "S2"]}
    simple = {f"q00{n}": {"retrieved_docs": ["x", f"d{n}"], **both} for n in numbers}
    simple["q001"]["retrieved_docs"] = ["d1"]
    simple["q004"]["retrieved_docs"] = ["d4"]
    del simple["q007"]
    project.predictions("simple", simple)
    right = {"answer": "It is.", "evidence_sentences": ["S1"]}
    project.predictions("strong", {f"q00{n}": {**right, "retrieved_docs": [f"d{n}"]} for n in numbers})
    judge_with({"strong": [5, 4, 5, 4, 5, 4, 1]})
    outcome = project.run()
    systems = [
        SYSTEM.format("simple", 6, "2/7 = 28.57%", "6/7 = 85.71%", "0.4286", "0.8571", "0.5714"),
        SYSTEM.format("strong", 7, *["7/7 = 100.00%"] * 2, *["1.0000"] * 3),
    ]
    prompt_hash = outcome.results["strong"]["llm_judge"]["prompt_hash"]
    comparison = COMPARISON.replace("PROMPT", prompt_hash[:8]).replace("VERSION", evaluation.VERSION)
    assert (outcome.code, outcome.out) == (0, HEADER + "".join(systems) + JUDGED + comparison)


@pytest.fixture
def both(small: Project) -> Project:
    """Add a `simple` to `small` that answers one question half right."""
    row = {"retrieved_docs": [{"doc_id": "d2"}], "evidence_sentences": ["S1", "S3"]}
    small.predictions("simple", {"q002": row})
    return small


RETRIEVAL, CITATION, JUDGE = (f"{name} EVALUATION RESULTS" for name in ("RETRIEVAL", "CITATION", "LLM_JUDGE"))
SAVED = "Evaluation results saved to: dev_evaluation.json"


def find_titles(out: str) -> list[str]:
    return re.findall(r"^={60}\n(.+)\n={60}$", out, re.MULTILINE)


def test_two_systems_without_a_judge(both: Project) -> None:
    outcome = both.run()
    simple, strong = (f"Evaluating: dev_{name}_output.json" for name in ("simple", "strong"))
    titles = [simple, RETRIEVAL, CITATION, strong, RETRIEVAL, CITATION, "SYSTEM COMPARISON", SAVED]
    assert find_titles(outcome.out) == titles
    warning = "warning: dev_simple_output.json: "
    assert outcome.code == 0
    assert outcome.err == [
        f"{warning}questions without a prediction, counted as misses: 1, e.g. q001",
        f"{warning}cited IDs that neither the gold document nor a retrieved one has: 1, e.g. S3 of q002",
        "GROQ_API_KEY is not set: answers are not judged.",
        "2 warnings",
    ]


BY_NAME = {  # options, exit code without a key
    "nothing": ("", 0),
    "a model": ("--model own", 3),
    "a system": ("--judge strong", 3),
    "criteria": ("--criteria support", 3),
    "repeats": ("--repeats 2", 3),
    "a system that is not judged": ("--model own --systems simple", 0),
    "no system": ("--model own --judge", 0),
    "a dry run": ("--model own --dry-run", 0),
    "a label sheet": ("--model own --label-sheet", 0),
}


@table("options, code", BY_NAME)
def test_a_judge_that_is_asked_for_by_name_is_a_promise(both: Project, options: str, code: int) -> None:
    outcome = both.run("dev", *options.split())
    line = "error: judging ended: set GROQ_API_KEY: a judge was asked for by name"
    assert (outcome.code, line in outcome.err) == (code, code == 3)
    assert ("missing: all judgements" in outcome.err) == (code == 3)


def test_a_class_whose_judge_is_asked_for_by_name_is_not_graded_without_it(small: Project) -> None:
    small.write("in/ann/dev_final_output.json", {"q001": {"answer": "New."}})
    before = small.files()
    outcome = small.run("dev", "--submissions", "in/ann", "--repeats", "2")
    text = "no answer is judged: set GROQ_API_KEY: a judge was asked for by name"
    assert (outcome.code, f"error: no results were written: {text}" in outcome.err) == (3, True)
    assert small.files() == before


def test_one_system_is_not_compared(small: Project, judge_with: JudgeWith) -> None:
    outcome = small.run()
    titles = ["Evaluating: dev_strong_output.json", RETRIEVAL, CITATION, "SCORES", SAVED]
    assert find_titles(outcome.out) == titles
    assert [NO_KEY in line for line in outcome.err] == [True]
    judge_with({"strong": [5, 2]})
    assert find_titles(small.run().out)[3:] == [JUDGE, "SCORES", SAVED]


NOT_AVAILABLE = ("Precision", "Recall", "F1", "Answer Score (1-5)", "Evidence Score (0-1)")


def test_average_of_nothing_is_not_available(small: Project, judge_with: JudgeWith) -> None:
    small.questions(question("d1", evidence_sentences=[], rubric=None))
    judge_with({"strong": [None]})
    lines = small.run().out.splitlines()
    assert [name for name in NOT_AVAILABLE if f"Average {name}: n/a" not in lines] == []


HOSTILE = "id\x1b[31m\x07\b\x7f\x9b2J\u202e\u2066\u200b\u2028\u2029\x85\ud800\r\n\0"
SHOWN = r"id\x1b[31m\x07\x08\x7f\x9b2J\u202e\u2066\u200b "  # on one line


def assert_harmless(text: str) -> None:
    """Check that line ends are the only control characters."""
    categories = ("Cc", "Cf", "Cs", "Zl", "Zp")
    assert {char for char in text if unicodedata.category(char) in categories} <= {"\n"}


def test_ids_cannot_control_the_console(project: Project, judge_with: JudgeWith) -> None:
    project.questions(question(HOSTILE, question_id=HOSTILE, evidence_sentences=[HOSTILE]))
    prediction = {"answer": HOSTILE, "retrieved_docs": [f"gold/{HOSTILE}"]}
    project.write("dev_strong_output.json", json.dumps({HOSTILE: prediction, f"x{HOSTILE}": {}}))
    judge_with({"strong": [error(413, "too_large", HOSTILE)]})
    outcome = project.run()
    assert outcome.code == 3
    assert_harmless(outcome.out + "\n".join(outcome.err))
    assert mentions(outcome.err, "not in the corpus", f"e.g. {SHOWN}")
    assert mentions(outcome.err, "dev_strong_output.json", f"e.g. x{SHOWN}")
    assert mentions(outcome.err, "judging failed", f": {SHOWN}")


COMMAND = [sys.executable, evaluation.__file__, "dev"]


def test_console_that_knows_only_ascii(small: Project) -> None:
    small.predictions("strong", {"q001": {}, "q002": {}, "Größe": {}})
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    run = subprocess.run(COMMAND, env=environment, check=True, capture_output=True)
    assert mentions(run.stderr.decode("ascii").splitlines(), "warning: ", "e.g. Gr\\xf6\\xdfe")


@posix_only
@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "| :"])
def test_closed_stream_costs_no_results(small: Project, serve: Serve, redirection: str) -> None:
    server = serve(score_reply(4))
    script = f'"$@" {redirection}'
    run = subprocess.run(["sh", "-c", script, "sh", *COMMAND], check=False, capture_output=True)
    assert (run.returncode, len(server.calls)) == (0, 2)
    assert b"Traceback" not in run.stdout + run.stderr
    assert small.read("dev_evaluation.json")["strong"]["llm_judge"]["avg_answer_score"] == 4


@posix_only
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("option", ["--help", "-V"])
def test_help_that_stdout_does_not_take(small: Project, option: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, option]
        run = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (run.returncode, run.stderr) == (3, "error: stdout: No space left on device\n")


@posix_only
def test_help_for_a_reader_who_has_gone(small: Project) -> None:
    script = ["sh", "-c", '"$@" --help | :', "sh", *COMMAND]
    closed = subprocess.run(script, check=False, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


@posix_only
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_for_stdout_is_an_error_and_costs_no_results(small: Project) -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(COMMAND, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 3
    assert mentions(run.stderr.splitlines(), "error: stdout: No space left on device")
    assert "Traceback" not in run.stderr
    assert small.read("dev_evaluation.json")["strong"]["retrieval"]["recall_at_1"] == 0


UNKNOWN = "splits with questions: dev"
SPLIT = "letters, digits, . and -, but no _"
WHOLE = "expected a whole number from 1 to 1,000,000,000, got"
THRESHOLD = "argument --fail-under: expected [SYSTEM:]MEASURE=VALUE, got"
UNREAD = "not UTF-8: byte 0x{}; save as UTF-8, a spreadsheet as CSV UTF-8"
NO_JUDGE = "is not used without llm_judge or hybrid"
BAD_USAGE: dict[str, tuple[str, str]] = {
    "command": ("anwsers a.json", f"unknown command or split anwsers: did you mean answers?; {UNKNOWN}"),
    "unlike any command": ("final", f"unknown command or split final; {UNKNOWN}"),
    "nearly a split": ("dve", f"unknown command or split dve: did you mean dev?; {UNKNOWN}"),
    "with _": ("week_3", f"unknown command or split week_3: expected {SPLIT}; {UNKNOWN}"),
    "no command": ("''", f"unknown command or split '': expected {SPLIT}; {UNKNOWN}"),
    "option": ("dev --jugde a", "unrecognized arguments: --jugde a: did you mean --judge?"),
    "option with =": ("dev --reprot=md", "unrecognized arguments: --reprot=md: did you mean --report?"),
    "an empty argument": ("dev ''", "unrecognized arguments: ''"),
    "unlike any option": ("dev --colour", "unrecognized arguments: --colour"),
    "method": ("answers a.json --method exat", "argument --method: invalid choice: 'exat' (choose from "),
    "kind": ("questions --kinds comparision", "argument --kinds: invalid choice: 'comparision' (choose "),
    "field": ("answers a.json --columns glod=x", "argument --columns: expected FIELD=PATH, got "),
    "of a command": ("generate dev --pipeline llm -x", "unrecognized arguments: -x"),
    "required": ("generate dev", "the following arguments are required: --pipeline"),
    "two splits": ("dev test", "unrecognized arguments: test"),
    "too many": ("dev --repeats 21", "argument --repeats: expected a whole number from 1 to 20, got '21'"),
    "no value": ("dev --model", "argument --model: expected one argument"),
    "choice": ("--report md pdf", "argument --report: invalid choice: 'pdf' (choose from "),
    "400 digits": (f"--rpm {'9' * 400}", f"argument --rpm: {WHOLE} '{'9' * 20}'"),
    "no time": ("--timeout 0.0", "argument --timeout: expected a number from 0.001 to 1,000,000, got '0.0'"),
    "none": ("questions --per-document 0", f"argument --per-document: {WHOLE} '0'"),
    "a split with _": ("check week1_b", f"no questions of week1_b: expected {SPLIT}; {UNKNOWN}"),
    "a split without a name": ("check ''", "argument SPLIT: expected a name, got ''"),
    "a split to check": ("check dve", f"no questions of dve: did you mean dev?; {UNKNOWN}"),
    "a split last": ("--report md dev", "argument --report: invalid choice: 'dev' (choose from "),
    "no folder": ("dev --submissions ''", "argument --submissions: expected a name, got ''"),
    "no baseline": ("dev --baseline ' '", "argument --baseline: expected a name, got ' '"),
    "200 characters": (f"dev --fail-under {'x' * 200}", f"{THRESHOLD} '{'x' * 200}'"),
    "201 characters": (f"dev --fail-under {'x' * 201}", f"{THRESHOLD} '{'x' * 200}...'"),
    "threshold": ("dev --fail-under f1", f"{THRESHOLD} 'f1'"),
    "system": ("dev --judge stron", "--judge: unknown system: stron; the systems are strong"),
    "protocol of criteria": (
        "answers a.json --criteria polite=Polite? --protocol quality",
        f"--protocol {NO_JUDGE}",
    ),
    "a file that names itself": ("dev @loop.txt", "unrecognized arguments: @loop.txt"),
}
for unused in ("--model m", "--judge-top 2", "--repeats 1"):
    flag = unused.split()[0]
    BAD_USAGE[flag] = (f"answers a.json {unused}", f"{flag} {NO_JUDGE} or --criteria")
for arguments, message in {
    "answers a.json --threshold 0.75": "--threshold is not used without semantic_fixed",
    "answers a.json --threshold 0.75 --method exact similarity": "--threshold is not used without ",
    "answers a.json --embedding-model m --method exact": "--embedding-model is not used without ",
    "answers a.json --normalize text --method f1": "--normalize is not used without exact or keyword or ",
    "answers a.json --normalize text --method llm_judge --protocol quality": "--normalize is not used ",
    "answers a.json --protocol verdict": f"--protocol {NO_JUDGE}",
    "summaries --plot a.json --limit 1": "--limit is not used beside --plot",
    "summaries --plot a.json --indices 1": "--indices is not used beside --plot",
    "summaries --plot a.json --summary-file b": "--summary-file is not used beside --plot",
    "summaries --web-metrics --model m": "--model is not used beside --web-metrics",
    "summaries --web-metrics --plot a.json": "--plot is not used beside --web-metrics",
    "summaries --web-metrics --dry-run": "--dry-run is not used beside --web-metrics",
    "check dev --student-kit kit --systems strong": "--systems is not used beside --student-kit",
    "check dev --student-kit kit --submissions a": "--submissions is not used beside --student-kit",
    "generate dev --pipeline llm --top-k 5": "--top-k is not used beside --pipeline llm",
    "dev --judge strong --judge strong": "--judge is given twice: give all its values at once",
    "dev --fail-under f1=1 --judge strong --fail-under=f1=2": "--fail-under is given twice: ",
    "dev --submissions a --quiet --submissions b": "--submissions is given twice: ",
    "agreement a.json --human b.json --human c.json": "--human is given twice: ",
    "dev @twice.txt": "--systems is given twice: ",
    "dev @once.txt @once.txt": "--systems is given twice: ",
}.items():
    BAD_USAGE[arguments] = (arguments, message)


@table("arguments, message", BAD_USAGE)
def test_bad_usage(small: Project, arguments: str, message: str) -> None:
    small.write("loop.txt", "@loop.txt")
    small.write("once.txt", "--systems strong")
    small.write("twice.txt", "--systems strong\n--systems simple")
    small.write("a.json", [{"question": "Who?", "gold": "Bee", "answer": "Bee"}])
    outcome = small.run(*shlex.split(arguments))
    assert outcome.usage_error.startswith(f"error: {message.format(folder=small.folder)}")
    assert (outcome.code, outcome.out, outcome.results) == (2, "", None)


@table(
    "arguments, command",
    {
        "of a split": ("dev --jugde a", "dev "),
        "of a command": ("answers --method exat", "answers "),
        "while running": ("dev --judge stron", "dev "),
        "unknown command": ("anwsers", ""),
        "no command": ("--jugde a", ""),
    },
)
def test_the_help_that_an_error_names(small: Project, arguments: str, command: str) -> None:
    outcome = small.run(*arguments.split())
    assert (outcome.code, len(outcome.err)) == (2, 2)
    assert outcome.err[1] == f"see: evaluation.py {command}--help"
    assert small.run(*outcome.err[1].split()[2:]).code == 0


@posix_only
@pytest.mark.parametrize("arguments", ["dev", "check dev", "dev --report md"])
def test_a_folder_without_questions(small: Project, monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    (small.folder / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    outcome = small.run(*arguments.split())
    assert outcome.code == 2
    assert mentions(outcome.err, "NLP Project Data/dev_final_jsonl.txt: file not found")


def test_a_run_without_enough_memory(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=MemoryError))
    outcome = small.run("dev")
    message = "error: there is not enough memory: nothing was written"
    assert (outcome.code, outcome.out, outcome.err) == (2, "", [message])


def test_any_split_that_has_questions(small: Project) -> None:
    small.questions(question("d1"), split="week3.b-2")
    small.predictions("strong", {"q001": {}}, split="week3.b-2")
    outcome = small.run("week3.b-2")
    assert (outcome.code, outcome.out.splitlines()[0]) == (0, "Evaluating week3.b-2 split outputs...")
    assert list(small.read("week3.b-2_evaluation.json")) == ["strong"]
    outcome = small.run("week4")
    assert mentions(outcome.err, "unknown command or split week4", "splits with questions: dev, week3.b-2")


def test_the_name_of_a_command_is_no_split(small: Project) -> None:
    small.questions(question("d1"), split="check")
    assert small.run("check", "dev").out.startswith("strong: 2 of 2 questions answered")


CHOICES = {"--rpm 60 dev": "dev simple strong", "dev --systems strong": "strong", "--systems=dev dev": "dev"}


@table("arguments, systems", {pair[0]: pair for pair in CHOICES.items()})
def test_split_and_choices(both: Project, arguments: str, systems: str) -> None:
    both.predictions("dev", {"q001": {}})
    outcome = both.run(*arguments.split())
    assert (outcome.code, sorted(outcome.results)) == (0, systems.split())


def test_options_from_a_file(both: Project) -> None:
    """Quotes group words, # begins a comment."""
    lines = ["# of this course", "--systems simple strong  # both", "", "--judge"]
    lines.append("--out 'my results#1'")
    both.write("my options.txt", "\r\n".join(lines))
    outcome = both.run("dev", "@my options.txt", "--report", "md")
    assert (outcome.code, list(both.read("my results#1/dev_evaluation.json"))) == (0, ["simple", "strong"])


FILES_OF_OPTIONS = {
    "missing": (None, "opts.txt: file not found in {}"),
    "no text": (b"\x89PNG", f"opts.txt:1: {UNREAD.format('89')}"),
    "UTF-16": ("--quiet".encode("utf-16"), f"opts.txt:1: {UNREAD.format('ff')}"),
    "an open quote": (b"--quiet\n--out 'a b\n", "opts.txt:2: a quote is not closed"),
    "a quote that a backslash escapes": (rb'--out "grades\dev\"', "opts.txt:1: a quote is not closed"),
}


@table("content, problem", FILES_OF_OPTIONS)
def test_a_file_of_options_that_cannot_be_read(both: Project, content: bytes | None, problem: str) -> None:
    if content is not None:
        (both.folder / "opts.txt").write_bytes(content)
    assert assert_refused(both, "dev", "@opts.txt") == [problem.format(both.folder)]


WORDS = {  # of an options file
    r"grades\dev": r"grades\dev",
    r'"my grades\dev"': r"my grades\dev",
    r'"\\server\my share"': r"\\server\my share",
    r"'my grades\'": "my grades\\",
    r"it\'s": "it's",
    r'"say \"it\'s\""': 'say "it\'s"',
    r"""'say "it"'#not this""": 'say "it"',
    r"""a"b 'c'"'d "e'""": """ab 'c'd "e""",
}


@posix_only
@table("text, name", {text: (text, name) for text, name in WORDS.items()})
def test_quotes_and_backslashes_in_a_file_of_options(both: Project, text: str, name: str) -> None:
    """A backslash escapes a quote; any other is itself, as in paths. A byte-order mark is skipped."""
    both.write("opts.txt", f"\ufeff--out {text}")
    assert both.run("dev", "@opts.txt").code == 0
    assert (both.folder / name / RESULTS).exists()


@pytest.mark.parametrize(
    "words", [["@opts.txt", "--systems", "simple"], ["--systems", "simple", "@opts.txt"]]
)
def test_the_command_line_replaces_what_the_file_says(both: Project, words: list[str]) -> None:
    both.write("opts.txt", "--systems strong # one\n--report md")
    outcome = both.run("dev", *words)
    assert (outcome.code, list(outcome.results)) == (0, ["simple"])
    assert outcome.err[0] == "opts.txt: the command line replaces --systems"
    assert (both.folder / "dev_evaluation.md").exists()


@pytest.mark.parametrize(
    "command", ["dev", "check", "answers", "agreement", "summaries", "generate", "questions"]
)
def test_help(project: Project, command: str) -> None:
    text = project.run(command, "--help").out
    title = "[SPLIT]" if command == "dev" else command
    assert text.startswith(f"usage: evaluation.py {title} ... [options]\n")
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) <= 80


def test_version_and_overview(project: Project) -> None:
    version = f"evaluation.py {evaluation.VERSION}\n"
    assert [project.run(option).out for option in ("--version", "-V")] == [version] * 2
    overview = project.run("--help").out
    assert (len(overview.splitlines()) <= 30, project.run("-h").out) == (True, overview)


FOLDER = os.path.dirname(evaluation.__file__)
INSTALL = f'run "{sys.executable}" -m pip install -r "{FOLDER}/requirements.txt"'


@table(
    "change, message",
    {
        "old Python": (
            "sys.version_info = (3, 8, 0); sys.modules['argparse'] = None",
            f"evaluation.py needs Python 3.10 or later, this is {sys.version.split()[0]}",
        ),
        "no packages, and a path with spaces": (
            "sys.modules['msgspec'] = None; sys.executable = '/my apps/python'",
            "cannot import msgspec: " + INSTALL.replace(sys.executable, "/my apps/python"),
        ),
    },
)
def test_set_up_that_lacks_something(change: str, message: str) -> None:
    code = f"import runpy, sys; {change}; runpy.run_path({evaluation.__file__!r}, run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("package", ["groq", "tqdm"])
def test_package_for_judging_is_missing(
    small: Project, judge_with: JudgeWith, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    judge_with({"strong": [5, 2]})
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)  # otherwise no progress bar is needed
    monkeypatch.setitem(sys.modules, package, None)
    assert small.run().err[-1:] == [f"error: cannot import {package}: {INSTALL}"]


@table("arguments, split", {"default": ([], "train"), "given": (["test"], "test")})
def test_split_is_train_by_default(project: Project, arguments: list[str], split: str) -> None:
    project.questions(question(), split=split)
    project.predictions("strong", {"q001": {}}, split=split)
    assert evaluation.main(arguments) == 0
    assert project.capture.readouterr().out.startswith(f"Evaluating {split} split outputs...\n")
    assert (project.folder / f"{split}_evaluation.json").exists()


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_progress_of_judging(
    both: Project, judge_with: JudgeWith, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """The tqdm package shows it on a terminal only, if it is not disabled, and after a second."""
    bar = MagicMock()
    bar.__enter__.return_value = bar
    open_bar = Mock(return_value=bar)
    monkeypatch.setitem(sys.modules, "tqdm", fake_module("tqdm", tqdm=open_bar))
    judge_with({"strong": [5, 2]})
    both.run("dev", *options)
    open_bar.assert_called_once()
    settings = {"total": 2, "desc": "Judging", "delay": 1.0, "disable": True if options else None}
    assert settings.items() <= open_bar.call_args.kwargs.items()
    assert bar.update.call_count == 2
    bar.__exit__.assert_called_once()
