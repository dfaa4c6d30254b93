"""Judged grades never vanish: journal without a key, previous results, changed grades, a budget, cron."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from conftest import (
    README,
    Outcome,
    Project,
    Serve,
    by_document,
    journal_entries,
    judge_block,
    judge_scores,
    mentions,
    question,
    table,
    write_many,
)
from groq_server import completion, error, model_gone, score_reply

RESULTS, PREVIOUS, JOURNAL = "dev_evaluation.json", "dev_evaluation.previous.json", "dev_judgements.jsonl"
SCORE = '{"rationale": "As the rubric says.", "score": 3}'


@pytest.fixture
def four(project: Project) -> Project:
    write_many(project, 4)
    return project


def keep_lines(project: Project, count: int) -> None:
    """Drop all but the first lines of the journal."""
    lines = (project.folder / JOURNAL).read_text("utf-8").splitlines(keepends=True)
    project.write(JOURNAL, "".join(lines[:count]))


def test_without_a_key_the_journal_gives_all_grades(four: Project, serve: Serve) -> None:
    server = serve(score_reply(3))
    judged = four.run()
    before = four.files()
    again = four.run(GROQ_API_KEY="")
    assert (again.code, len(server.calls)) == (0, 4)
    assert (four.files(), again.out) == (before, judged.out)
    assert not mentions(again.err, "GROQ_API_KEY")


def test_without_a_key_grades_by_the_successor_count(four: Project, serve: Serve) -> None:
    serve(lambda call: score_reply(4) if "oss" in call.body["model"] else model_gone())
    four.run()
    again = four.run(GROQ_API_KEY="")
    assert again.code == 0
    assert judge_block(again)["judge_model"] == "openai/gpt-oss-20b"
    assert set(judge_scores(again).values()) == {4}


def test_without_a_key_missing_grades_are_bounded(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    four.run()
    keep_lines(four, 3)
    before = four.files()
    outcome = four.run("dev", "--fresh", GROQ_API_KEY="")
    assert mentions(outcome.err, "error: --fresh needs GROQ_API_KEY")
    assert (outcome.code, four.files()) == (2, before)
    outcome = four.run(GROQ_API_KEY="")
    assert outcome.code == 3
    assert mentions(outcome.err, "warning: set GROQ_API_KEY for the remaining 1 of 4 judgements")
    block = judge_block(outcome)
    assert len(block["unjudged_questions"]) == 1
    assert block["score_bounds"]["answer"] == [(3 + 3 + 3 + 1) / 4, (3 + 3 + 3 + 5) / 4]


def test_without_a_key_and_a_journal_judging_is_skipped(four: Project) -> None:
    outcome = four.run()
    assert outcome.code == 0
    assert outcome.err[-1] == "GROQ_API_KEY is not set: answers are not judged."
    assert "llm_judge" not in outcome.results["strong"]


def test_wrong_key_does_not_hide_the_grades_in_the_journal(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    four.run()
    keep_lines(four, 3)
    serve(error(401, "invalid_api_key", "Invalid API Key"))
    outcome = four.run()
    assert outcome.code == 3
    assert mentions(outcome.err, "error: judging ended: HTTP 401")
    assert sorted(judge_scores(outcome).values()) == [0, 3, 3, 3]


VERDICT = completion('{"reasoning": "So it is.", "correct": "yes"}')


def test_answers_are_judged_by_the_journal_and_kept(project: Project, serve: Serve) -> None:
    project.write("bot.json", [{"input": "Who?", "gold": "Ann Bee", "prediction": "Bee, Ann C."}])
    serve(VERDICT)
    arguments = ("answers", "bot.json", "--method", "exact", "llm_judge", "--overwrite")
    assert project.run(*arguments).code == 0
    judged = project.files()
    assert project.run(*arguments, GROQ_API_KEY="").code == 0
    assert (project.files(), "bot_answers_judgements.jsonl" in judged) == (judged, True)
    outcome = project.run("answers", "bot.json", "--method", "exact")
    assert mentions(outcome.err, "kept as bot_answers.previous.json")
    assert project.files()["bot_answers.previous.json"] == judged["bot_answers.json"]


LOSING: dict[str, tuple[list[str], bool]] = {  # arguments, whether there is a journal
    "the journal is empty": ([], False),
    "another model": (["--judge-model", "openai/gpt-oss-120b"], True),
    "a part of the questions": (["--limit", "2"], False),
    "another system": (["--systems", "simple"], True),
    "no judge": (["--no-judge"], True),
}


@table("arguments, has_journal", LOSING)
def test_results_with_grades_that_would_be_lost_are_kept(
    four: Project, serve: Serve, arguments: list[str], has_journal: bool
) -> None:
    four.predictions("simple", {})
    serve(score_reply(3))
    four.run()
    judged = four.files()[RESULTS]
    if not has_journal:
        (four.folder / JOURNAL).unlink()
    outcome = four.run("dev", *arguments, GROQ_API_KEY="")
    assert four.files()[PREVIOUS] == judged
    kept = f"{RESULTS} had judged scores that the new file lacks: kept as {PREVIOUS}"
    assert f"warning: {kept}" in outcome.err
    again = four.run("dev", *arguments, GROQ_API_KEY="")  # the last results have no grades to be kept
    assert four.files()[PREVIOUS] == judged
    assert not mentions(again.err, "kept as")


def test_previous_results_are_numbered_and_never_replaced(four: Project, serve: Serve) -> None:
    contents = []
    for score in (3, 4, 5):
        serve(score_reply(score))
        four.run("dev", "--fresh", "--judge", "strong", "--judge-model", f"model-{score}")
        contents.append(four.files()[RESULTS])
    files = four.files()
    assert files[PREVIOUS] == contents[0]
    assert files["dev_evaluation.previous.2.json"] == contents[1]
    assert files[RESULTS] == contents[2]


def test_results_that_cannot_be_read_are_kept(four: Project) -> None:
    four.write(RESULTS, '{"strong": {"llm_judge": 5}}')
    assert mentions(four.run().err, f"kept as {PREVIOUS}")
    assert json.loads(four.files()[PREVIOUS]) == {"strong": {"llm_judge": 5}}


def test_changed_grades_are_named(four: Project, serve: Serve) -> None:
    serve(score_reply(4))
    assert judge_block(four.run())["avg_answer_score"] == 4
    four.predictions(
        "strong",
        {"q001": {"answer": "Score: 5"}, "q002": {"answer": "New."}, "q003": {"answer": "Answer 2."}},
    )
    serve(by_document({"d0": score_reply(2), "d1": score_reply(5), "d2": score_reply(4)}))
    outcome = four.run()
    changed = "warning: strong: 3 grades changed: q001 4 -> 1 (flagged), q002 4 -> 5, q004 4 -> 1"
    assert changed in outcome.err
    changes = outcome.results["strong"]["run"]["changes"]
    assert [change["question_id"] for change in changes] == ["q001", "q002", "q004"]
    assert changes[1] == {"question_id": "q002", "before": 4, "after": 5, "flagged": False}
    again = four.run()
    assert again.results["strong"]["run"]["changes"] == []
    assert not mentions(again.err, "changed")
    four.run("dev", "--no-judge")  # the grades are kept as the previous results
    serve(score_reply(3))
    assert mentions(four.run("dev", "--fresh").err, "grades changed: q002 5 -> 3, q003 4 -> 3")


def test_judging_ends_before_it_costs_more(four: Project, serve: Serve) -> None:
    server = serve(completion(SCORE, prompt_tokens=2_000_000, completion_tokens=0))  # 0.10 dollars each
    outcome = four.run("dev", "--max-usd", "0.25", "--workers", "1")
    assert (outcome.code, len(server.calls)) == (3, 2)
    assert mentions(outcome.err, "error: judging ended early: $0.2000 are spent", "--max-usd")
    assert len(journal_entries(four)) == 2
    assert four.run("dev", "--max-usd", "1").code == 0
    assert len(server.calls) == 4


UNSENT = {  # options, exit code, message
    "nothing to spend": ("--max-usd 0", 3, "judging ended early: $0.0000 are spent"),
    "a batch": ("--max-usd 0.00001 --batch", 3, "judging ended early: the batch is estimated at $0.0"),
    "unknown price": ("--max-usd 1 --judge-model own", 2, "--max-usd: the price of own is unknown"),
    "unknown price of a batch": ("--max-usd 1 --judge-model own --batch", 2, "the price of own"),
}


@table("options, code, message", UNSENT)
def test_budget_ends_judging_before_anything_is_sent(
    four: Project, serve: Serve, options: str, code: int, message: str
) -> None:
    server = serve(score_reply(3))
    outcome = four.run("dev", *options.split())
    assert mentions(outcome.err, "error: ", message, "--max-usd")
    assert (outcome.code, server.visits, server.calls) == (code, [], [])


def test_quiet_leaves_warnings_only(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    assert mentions(four.run().err, "Judge: 4 calls")
    assert four.run("dev", "--quiet").err == []
    four.questions(question("d0"), question("d0"))
    err = four.run("dev", "--quiet").err
    assert err[-1] == f"{len(err) - 1} warnings"
    assert all(line.startswith("warning: ") for line in err[:-1])


@pytest.mark.skipif(not os.path.exists("/bin/sh"), reason="cron needs a shell")
def test_cron_line_mails_only_if_something_is_wrong(four: Project, serve: Serve) -> None:
    [block] = re.findall(r"^```cron\n(.+?)\n```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    command = block.splitlines()[-1].split(" ", 5)[5]
    assert "%" not in command  # which ends a line of cron
    command = command.replace(".venv/bin/python evaluation.py", f"{sys.executable} -m evaluation")
    command = command.replace("/srv/grading", ".")
    server = serve(score_reply(3))
    for split in ("train", "test"):
        four.questions(question("d0"), split=split)
        four.predictions("strong", {"q001": {"answer": "It is d0."}}, split=split)
    four.write("dev_strong_output.json", "{")
    environment = {name: os.environ[name] for name in ("GROQ_API_KEY", "GROQ_BASE_URL")}
    environment |= {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(README.parent)}
    done = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True)
    problem, end = done.stderr.splitlines()  # and not a word about the other splits
    assert (problem, end[:6]) == ("dev_strong_output.json:1: JSON is cut off", "error:")
    assert done.stdout == "dev: exit 2\n"
    assert len(server.calls) == 2
    assert (four.folder / "test.log").read_text("utf-8").startswith("Evaluating test")


def test_submissions_keep_their_previous_results(project: Project, serve: Serve) -> None:
    project.questions(question("d1"), question("d2"))
    project.submission("ann", strong={"q001": {"answer": "One."}, "q002": {"answer": "Two."}})
    serve(score_reply(4))
    project.run("dev", "--outputs", "ann")
    outcome: Outcome = project.run("dev", "--outputs", "ann", "--no-judge")
    assert mentions(outcome.err, "kept as", "dev_evaluation.previous.json")


def test_predictions_that_would_be_lost_are_kept(four: Project, serve: Serve) -> None:
    file, journal = "dev_own_output.json", "dev_generate_judgements.jsonl"
    arguments = ("generate", "dev", "--pipeline", "llm", "--system", "own")
    serve(completion('{"answer": "So."}'))
    four.run(*arguments)
    complete = four.files()[file]
    four.write(journal, four.files()[journal].splitlines(keepends=True)[0])
    outcome = four.run(*arguments, GROQ_API_KEY="")
    assert outcome.code == 3
    assert mentions(outcome.err, "set GROQ_API_KEY for the remaining 3 of 4 judgements")
    assert four.files()["dev_own_output.previous.json"] == complete
    assert len(json.loads(four.files()[file])) == 1
