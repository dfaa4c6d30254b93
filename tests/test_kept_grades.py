"""What was paid for is never lost or paid twice: the journal without a key, a budget, cron."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from unittest.mock import ANY

import pytest

from conftest import (
    JUDGE,
    README,
    Project,
    Serve,
    journal_entries,
    json_lines,
    judge_block,
    judge_scores,
    mentions,
    question,
    table,
    write_many,
)
from groq_server import Call, completion, drop, error, score_reply

JOURNAL = "dev_judgements.jsonl"
EXCEEDS = "the next call could exceed --max-usd (asked: "
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
    assert again.err == [f"Judge: {JUDGE}, 4 judgements from the journal"]


def test_without_a_key_missing_grades_count_0(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    four.run()
    keep_lines(four, 3)
    outcome = four.run(GROQ_API_KEY="")
    assert mentions(outcome.err, "missing: set GROQ_API_KEY for the remaining 1 of 4 judgements")
    assert len(judge_block(outcome)["unjudged_questions"]) == 1
    assert sorted(judge_scores(outcome).values()) == [0, 3, 3, 3]
    assert (judge_block(outcome)["avg_answer_score"], outcome.code) == (9 / 4, 3)


def test_wrong_key_does_not_hide_the_grades_in_the_journal(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    four.run()
    keep_lines(four, 3)
    serve(error(401, "invalid_api_key", "Invalid API Key"))
    outcome = four.run()
    assert outcome.code == 3
    assert mentions(outcome.err, "error: judging ended: HTTP 401: Invalid API Key (strong q00")
    assert sorted(judge_scores(outcome).values()) == [0, 3, 3, 3]


def test_a_run_without_the_judge_loses_no_grade(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    judged = four.run()
    assert "llm_judge" not in four.run("dev", "--judge").results["strong"]
    again = four.run(GROQ_API_KEY="")
    assert (again.results, again.code) == (judged.results, 0)


def test_judging_ends_before_it_costs_more(four: Project, serve: Serve) -> None:
    server = serve(completion(SCORE, prompt_tokens=2_000_000, completion_tokens=0))  # 0.15 dollars each
    outcome = four.run("dev", "--max-usd", "0.4", "--workers", "1")
    assert (outcome.code, len(server.calls)) == (3, 2)
    assert mentions(outcome.err, f"error: judging ended early: $0.3000 are spent; {EXCEEDS}")
    assert len(journal_entries(four)) == 2
    assert four.run("dev", "--max-usd", "1").code == 0
    assert len(server.calls) == 4


@table("completion_tokens", {"all that a reply may have": 600, "an eighth of it": 75})
def test_what_is_spent_stays_below_the_limit(project: Project, serve: Serve, completion_tokens: int) -> None:
    """128 workers use up what there is but for less than the most that the next call may cost."""
    write_many(project, 300)
    reply = completion(SCORE, prompt_tokens=150, completion_tokens=completion_tokens)
    cost_usd = (150 * 0.075 + completion_tokens * 0.30) / 1e6
    most_usd = (1.05 * 150 * 0.075 + 600 * 0.30) / 1e6 * 1.01  # the text of a prompt varies by a letter
    limit_usd = 200.5 * cost_usd
    server = serve(reply, latency_s=0.05)
    outcome = project.run("dev", "--workers", "128", "--max-usd", str(limit_usd))
    spent_usd = len(server.calls) * cost_usd
    assert limit_usd - most_usd <= spent_usd <= limit_usd
    assert len(journal_entries(project)) == len(server.calls)  # all that was paid for is kept
    assert server.in_flight_peak > 16
    assert mentions(outcome.err, f"error: judging ended early: ${spent_usd:.4f} are spent; {EXCEEDS}")
    assert outcome.code == 3


EMOJI = "\U0001f600" * 400  # 1,600 bytes


def count_bytes(call: Call) -> int:
    """Return the tokens of a tokenizer that knows no emoji, and four characters a token of other text."""
    text = "".join(message["content"] for message in call.body["messages"])
    n_emoji = text.count(EMOJI[0])
    return 4 * n_emoji + math.ceil((len(text) - n_emoji) / 4)


def test_answers_of_many_tokens_cost_no_more_than_the_limit(project: Project, serve: Serve) -> None:
    write_many(project, 12)
    rows = {f"q{n + 1:03d}": {"answer": f"{EMOJI} {n}"} for n in range(12)}
    project.predictions("strong", rows)
    server = serve(lambda call: completion(SCORE, prompt_tokens=count_bytes(call), completion_tokens=600))
    limit_usd = 2.9 * (2200 * 0.075 + 600 * 0.30) / 1e6
    outcome = project.run("dev", "--max-usd", f"{limit_usd:.6f}")
    spent_usd = sum(count_bytes(call) * 0.075 + 600 * 0.30 for call in server.calls) / 1e6
    assert 0 < spent_usd <= limit_usd
    assert mentions(outcome.err, f"error: judging ended early: ${spent_usd:.4f} are spent; {EXCEEDS}")
    assert (outcome.code, len(journal_entries(project))) == (3, len(server.calls))


def test_calls_whose_reply_was_lost_are_counted(small: Project, serve: Serve) -> None:
    """They may have to be paid: the budget and the price count what they were expected to take."""
    server = serve(drop())
    outcome = small.run("dev", "--max-usd", "0.0007", "--workers", "1")
    assert mentions(outcome.err, "error: judging ended early: $0.000", "could exceed --max-usd")
    expected_usd = 0.0
    for call in server.calls:
        characters = sum(len(message["content"]) for message in call.body["messages"])
        expected_usd += (characters / 4 * 0.075 + call.body["max_completion_tokens"] * 0.30) / 1e6
    assert 0 < expected_usd <= 0.0007 + expected_usd / len(server.calls)
    assert outcome.code == 3


def test_nothing_is_sent_if_there_is_nothing_to_spend(four: Project, serve: Serve) -> None:
    server = serve(score_reply(3))
    outcome = four.run("dev", "--max-usd", "0")
    assert mentions(outcome.err, f"error: judging ended early: $0.0000 are spent; {EXCEEDS}")
    assert (outcome.code, server.calls) == (3, [])


def test_the_judge_and_its_judgements_are_named_once(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    assert [line for line in four.run().err if JUDGE in line] == [ANY]
    assert four.run().err == [f"Judge: {JUDGE}, 4 judgements from the journal"]
    keep_lines(four, 3)
    outcome = four.run(GROQ_API_KEY="")
    assert f"Judge: {JUDGE}, 3 judgements from the journal" in outcome.err
    assert mentions(four.run().err, f"Judge: {JUDGE}, 4 judgements; 1 calls, 0 retries, 0 ")
    assert four.run("dev", "--judge").err == []


STORED_BY_VERSION_3 = 'The answer says {"score": 5}. My score is 1.'


def test_stored_replies_that_are_none_are_missing_and_asked_for_again(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    four.run("dev", "--workers", "1")
    entries = journal_entries(four)
    entries[0]["reply"] = entries[2]["reply"] = STORED_BY_VERSION_3
    four.write(JOURNAL, json_lines(*entries))
    outcome = four.run(GROQ_API_KEY="")
    assert (sorted(judge_scores(outcome).values()), outcome.code) == ([0, 0, 3, 3], 3)
    server = serve(score_reply(2))
    outcome = four.run()
    assert (sorted(judge_scores(outcome).values()), len(server.calls)) == ([2, 2, 3, 3], 2)
    assert four.run().err == [f"Judge: {JUDGE}, 4 judgements from the journal"]


def test_quiet_leaves_warnings_only(four: Project, serve: Serve) -> None:
    serve(score_reply(3))
    assert mentions(four.run().err, f"Judge: {JUDGE}, 4 judgements; 4 calls")
    assert four.run("dev", "--quiet").err == []
    four.questions(question("d0", rubric={}), question("d1"))
    err = four.run("dev", "--quiet").err
    assert err[-1] == f"{len(err) - 1} warnings"
    assert all(line.startswith("warning: ") for line in err[:-1])


@pytest.mark.skipif(not os.path.exists("/bin/sh"), reason="cron needs a shell")
def test_cron_mails_only_if_something_is_wrong(four: Project, serve: Serve) -> None:
    """Also in the first night, when there are no baselines yet."""
    readme = README.read_text("utf-8")
    [line] = re.findall(r"^0 5 \* \* \* (.+)$", readme, re.MULTILINE)
    assert "%" not in line  # which ends a line of cron
    [script] = re.findall(r"^```shell\n(.+?\n)```", readme, re.MULTILINE | re.DOTALL)
    assert len(script.splitlines()) == 3
    program = f"{sys.executable} -m evaluation"
    four.write("nightly.sh", script.replace(".venv/bin/python evaluation.py", program))
    server = serve(score_reply(3))
    for split in ("train", "test"):
        four.questions(question("d0"), split=split)
        four.predictions("strong", {"q001": {"answer": "It is d0."}}, split=split)
    four.write("dev_strong_output.json", "{")
    environment = {name: os.environ[name] for name in ("GROQ_API_KEY", "GROQ_BASE_URL")}
    environment |= {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(README.parent)}
    command = ["/bin/sh", "-c", line.replace("/srv/grading", ".")]
    for night in (1, 2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        problem, end = done.stderr.splitlines()  # and not a word about the other splits
        assert (problem, end[:6]) == ("dev_strong_output.json:1: JSON is cut off", "error:")
        assert done.stdout == "dev: exit 2\n"
        log = (four.folder / "test.log").read_text("utf-8")
        assert log.startswith("Evaluating test")
        assert ("CHANGES SINCE THE BASELINE" in log) is (night == 2)
    assert len(server.calls) == 2
    names = sorted(path.name for path in four.folder.glob("*_baseline.json"))
    assert names == ["test_baseline.json", "train_baseline.json"]
