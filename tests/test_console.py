"""The console, to the letter: stdout, help, exit codes, and consoles that cannot show everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence

import evaluation
import pytest
from evaluation import Failure, Judgement, JudgeRequest, JudgeRun

from conftest import Project, question

RESULTS = "dev_evaluation.json"
NOT_JUDGED = "GROQ_API_KEY is not set: answers are not judged."
NO_SIMPLE = "dev_simple_output.json is not there: graded without it."

HEADER = """\
Evaluating dev split outputs...
Questions file: NLP Project Data/dev_final_jsonl.txt
Loaded 2 questions
"""
SIMPLE = """
============================================================
Evaluating: dev_simple_output.json
============================================================

Loaded predictions for 1 questions

============================================================
RETRIEVAL EVALUATION RESULTS
============================================================

Total Questions: 2

Recall@1: 1/2 = 50.00%
Recall@5: 1/2 = 50.00%

============================================================
CITATION EVALUATION RESULTS
============================================================

Total Questions: 2
Questions with Evidence: 2

--- OVERALL CITATION METRICS (all questions) ---
Average Precision: 0.2500
Average Recall: 0.2500
Average F1: 0.2500
"""
STRONG = """
============================================================
Evaluating: dev_strong_output.json
============================================================

Loaded predictions for 2 questions

============================================================
RETRIEVAL EVALUATION RESULTS
============================================================

Total Questions: 2

Recall@1: 0/2 = 0.00%
Recall@5: 1/2 = 50.00%

============================================================
CITATION EVALUATION RESULTS
============================================================

Total Questions: 2
Questions with Evidence: 2

--- OVERALL CITATION METRICS (all questions) ---
Average Precision: 0.5000
Average Recall: 0.5000
Average F1: 0.5000
"""
JUDGED = """
============================================================
LLM_JUDGE EVALUATION RESULTS
============================================================

Total Questions: 2
Questions with Rubrics: 2
Lambda Weight (answer vs evidence): 0.50

--- OVERALL SCORES ---
Average Answer Score (1-5): 3.50
Average Evidence Score (0-1): 0.5000
Average Combined Score (0-1): 0.60
"""
FOOTER = """
============================================================
Evaluation results saved to: dev_evaluation.json
============================================================
"""

COMPARISON = """
============================================================
SYSTEM COMPARISON
============================================================

{}

No intervals: fewer than 5 documents: 2.
With so few documents (2) no difference can be told from chance: all are tied.

--- PAIRED DIFFERENCES (sign flips over documents, Holm over the pairs of a measure) ---
Pair             Measure     Difference       p  p (Holm)  Verdict
strong - simple  Recall@1 %       -50.0  1.0000    1.0000  tied
strong - simple  Recall@5 %        +0.0  1.0000    1.0000  tied
strong - simple  Precision       +0.250  1.0000    1.0000  tied
strong - simple  Recall          +0.250  1.0000    1.0000  tied
strong - simple  F1              +0.250  1.0000    1.0000  tied
"""
MEANS = """\
System  Recall@1 %  Recall@5 %  Precision  Recall     F1
simple        50.0        50.0      0.250   0.250  0.250
strong         0.0        50.0      0.500   0.500  0.500"""
JUDGED_MEANS = """\
System  Recall@1 %  Recall@5 %  Precision  Recall     F1  Answer  Evidence  Combined
simple        50.0        50.0      0.250   0.250  0.250     n/a       n/a       n/a
strong         0.0        50.0      0.500   0.500  0.500    3.50     0.500     0.600"""

Judging = Callable[..., None]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judging:
    """Judge with these outcomes, one for each request."""

    def judge(*outcomes: Judgement | Failure) -> None:
        def run(requests: Sequence[JudgeRequest]) -> JudgeRun:
            assert len(requests) == len(outcomes)
            return JudgeRun(requested_model="m", model="m", outcomes=outcomes)

        monkeypatch.setattr(evaluation, "connect_judge", lambda *_, **__: run)

    return judge


@pytest.fixture
def both(small: Project) -> Project:
    """`small` with a `simple` too, that has one question right in half."""
    row = {"retrieved_docs": [{"doc_id": "d2"}], "evidence_sentences": ["S1", "S3"]}
    small.predictions("simple", {"q002": row})
    return small


# ------------------------------------------------------------------ The report


def test_two_systems_without_a_judge(both: Project) -> None:
    outcome = both.run()
    assert outcome.out == HEADER + SIMPLE + STRONG + COMPARISON.format(MEANS) + FOOTER
    assert outcome.err[1:] == [NOT_JUDGED]
    assert outcome.code == 0


def test_only_strong_is_judged(both: Project, judge: Judging) -> None:
    judge(Judgement(5, "Right."), Judgement(2, "Hardly."))
    outcome = both.run()
    assert outcome.out == HEADER + SIMPLE + STRONG + JUDGED + COMPARISON.format(JUDGED_MEANS) + FOOTER
    assert outcome.code == 0


def test_one_system(small: Project) -> None:
    outcome = small.run()
    assert outcome.out == HEADER + STRONG + FOOTER
    assert outcome.err == [NO_SIMPLE, NOT_JUDGED]


def test_failed_judgements_count_0_and_are_named(small: Project, judge: Judging) -> None:
    judge(Failure("no score in 3 replies"), Judgement(5, "Right."))
    outcome = small.run()
    assert "\nAverage Answer Score (1-5): 2.50\n" in outcome.out
    assert outcome.err == [
        NO_SIMPLE,
        "warning: dev_strong_output.json: judging failed: q001 (1 in all, each counts 0), "
        "e.g. no score in 3 replies",
    ]
    assert outcome.code == 3


def test_the_report_begins_before_the_judge_is_connected(
    small: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the judge, or for the message that its journal is in use, knows for what."""

    def refuse(*_: object, **__: object) -> None:
        assert small.capture.readouterr().out == HEADER
        raise evaluation.UsageError("in use")

    monkeypatch.setattr(evaluation, "connect_judge", refuse)
    outcome = small.run()
    assert (outcome.err, outcome.code, outcome.results) == (["error: in use"], 2, None)


UNDEFINED = {
    "citation": {
        "Average Precision": "avg_precision",
        "Average Recall": "avg_recall",
        "Average F1": "avg_f1",
    },
    "llm_judge": {
        "Average Answer Score (1-5)": "avg_answer_score",
        "Average Evidence Score (0-1)": "avg_evidence_score",
        "Average Combined Score (0-1)": "avg_combined_score",
    },
}


@pytest.mark.parametrize(
    ("block", "label", "key"),
    [(block, label, key) for block, labels in UNDEFINED.items() for label, key in labels.items()],
)
def test_an_average_of_nothing_is_not_available(
    small: Project, judge: Judging, block: str, label: str, key: str
) -> None:
    small.questions(question("d1", evidence_sentences=[], rubric=None))
    judge()
    outcome = small.run()
    assert f"\n{label}: n/a\n" in outcome.out
    assert outcome.results["strong"][block][key] is None


# ------------------------------------------------------------------ What a console can show

HOSTILE = "id\x1b[31m\x07\b\x7f\x9b2J\u202e\u2066\u200b\u2028\u2029\x85\ud800\r\n\0"
SHOWN = "id[31m2J"


def assert_harmless(text: str) -> None:
    """Nothing in the text does something to a console instead of standing on it."""
    found = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert found <= {"\n"}


def test_ids_cannot_command_the_console(project: Project, judge: Judging) -> None:
    project.questions(question(HOSTILE, question_id=HOSTILE, evidence_sentences=[HOSTILE]))
    prediction = {"answer": HOSTILE, "retrieved_docs": [f"gold/{HOSTILE}"]}
    project.write("dev_strong_output.json", json.dumps({HOSTILE: prediction, f"x{HOSTILE}": {}}))
    judge(Failure(HOSTILE))
    outcome = project.run()
    assert_harmless(outcome.out)
    assert outcome.err == [
        "warning: NLP Project Data/dev_final_jsonl.txt: "
        f"gold documents that are not in the corpus: 1, e.g. {SHOWN}",
        f"warning: dev_strong_output.json: predictions for IDs that no question has: 1, e.g. x{SHOWN}",
        "warning: dev_strong_output.json: no gold document is retrieved, "
        f"but names agree without folder or extension: 1, e.g. gold {SHOWN} against retrieved gold/{SHOWN}",
        NO_SIMPLE,
        f"warning: dev_strong_output.json: judging failed: {SHOWN} (1 in all, each counts 0), e.g. {SHOWN}",
    ]


def test_an_id_makes_no_line_of_its_own(small: Project, judge: Judging) -> None:
    forged = "q\nAverage Answer Score (1-5): 5.00"
    small.questions(question("d1", question_id=forged))
    small.predictions("strong", {forged: {"answer": "Score: 5. It is so."}})
    judge(Judgement(2, "Hardly."), Judgement(1, "No."))
    out = small.run().out
    assert [line for line in out.splitlines() if line.startswith("Average Answer")] == [
        "Average Answer Score (1-5): 1.00"
    ]
    assert "Flagged qAverage Answer Score (1-5): 5.00 (score-like): 2 as written, 1 without it" in out


def test_faults_cannot_command_the_console(project: Project) -> None:
    project.questions(question(rubric="\x1b\r\n\u202e"))
    project.write("dev_strong_output.json", json.dumps({HOSTILE: "\x1b[31m"}))
    assert project.run().err[:-1] == [
        'NLP Project Data/dev_final_jsonl.txt:1: expected an object in rubric, found "\\u001b\\r\\n"',
        f'dev_strong_output.json:1: expected an object in {SHOWN}, found "\\u001b[31m"',
    ]


@pytest.mark.skipif(os.name == "nt", reason="no such names of files")
def test_names_of_files_cannot_command_the_console(small: Project) -> None:
    odd = "h\x1b[31m\nLEADERBOARD"
    small.hand_in(odd, strong={})
    small.write(f"{odd}/rows.json", [{"question": "?", "gold": "a", "prediction": "a"}])
    outcomes = [
        small.run("dev", "--outputs", odd, "--report", "html"),
        small.run("answers", f"{odd}/rows.json", "--report", "md", "--no-llm"),
    ]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    said = "".join(outcome.out for outcome in outcomes)
    assert "\x1b" not in said
    assert said.splitlines().count("LEADERBOARD") == 1


COMMAND = [sys.executable, evaluation.__file__, "dev"]


def test_a_console_that_knows_only_ascii(small: Project) -> None:
    small.predictions("strong", {"q001": {}, "q002": {}, "Größe": {}})
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    run = subprocess.run(COMMAND, env=environment, check=True, capture_output=True)
    assert run.stderr.decode("ascii").splitlines() == [
        "warning: dev_strong_output.json: predictions for IDs that no question has: 1, e.g. Gr\\xf6\\xdfe",
        NO_SIMPLE,
        NOT_JUDGED,
    ]


posix_only = pytest.mark.skipif(os.name == "nt", reason="a pipe that nobody reads, as POSIX has it")


@posix_only
def test_a_reader_of_stdout_that_went_away_costs_no_results(small: Project) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(COMMAND, check=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (run.returncode, run.stderr.decode().splitlines()) == (0, [NO_SIMPLE, NOT_JUDGED])
    assert (small.folder / RESULTS).exists()


@posix_only
def test_a_reader_of_stderr_that_went_away_costs_no_results(small: Project) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(COMMAND, check=False, stdout=writer, stderr=writer)
    os.close(writer)
    assert (run.returncode, (small.folder / RESULTS).exists()) == (0, True)


# ------------------------------------------------------------------ The command line


@pytest.mark.parametrize(
    "text",
    [
        "[{train,dev,test}]",
        "default: train",
        "--judge-model NAME",
        "NLP Project Data/{split}_final_jsonl.txt",
        "\n    0    all done\n",
        "\n    2    bad usage or bad input: ",
        "\n    3    results written, but some judgements are missing or under way (run again)",
        "\n    130  interrupted;",
    ],
)
def test_help_names_splits_files_and_exit_codes(project: Project, text: str) -> None:
    outcome = project.run("--help")
    assert (outcome.code, outcome.err) == (0, [])
    assert text in outcome.out


def test_version(project: Project) -> None:
    outcome = project.run("--version")
    assert (outcome.code, outcome.out) == (0, f"evaluation.py {evaluation.VERSION}\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["final"], "argument split: invalid choice: 'final' (choose from "),
        (["dev", "test"], "unrecognized arguments: test"),
        (["--judge-model"], "argument --judge-model: expected one argument"),
    ],
    ids=["unknown split", "two splits", "option without its value"],
)
def test_bad_usage(small: Project, arguments: list[str], error: str) -> None:
    outcome = small.run(*arguments)
    assert outcome.err[-1].startswith(f"evaluation.py: error: {error}")
    assert (outcome.code, outcome.out, outcome.results) == (2, "", None)


def test_ctrl_c_writes_nothing(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "connect_judge", interrupt)
    small.write(RESULTS, {"old": {}})
    before = sorted(small.folder.rglob("*"))
    outcome = small.run()
    assert outcome.err[-1] == "interrupted: what was judged is kept; the same command goes on from there."
    assert (outcome.code, outcome.results) == (130, {"old": {}})
    assert sorted(small.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "split"), [([], "train"), (["train"], "train"), (["dev"], "dev"), (["test"], "test")]
)
def test_the_split_is_train_unless_named(project: Project, arguments: list[str], split: str) -> None:
    project.questions(question(), split=split)
    project.predictions("strong", {"q001": {}}, split=split)
    assert evaluation.main(arguments) == 0
    assert project.capture.readouterr().out.startswith(f"Evaluating {split} split outputs...\n")
    assert (project.folder / f"{split}_evaluation.json").exists()
