"""The program as a process: how it is loaded, what it takes, and what lost calls and killed runs cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import evaluation

from conftest import LLAMA, Project, Serve, judge_scores, mentions, posix_only
from groq_server import drop, model_gone, score_reply

PROGRAM = evaluation.__file__


@posix_only
def test_only_predictions_of_known_questions_are_built(small: Project) -> None:
    """10 MB of others take little memory, and are counted and named by their first ten IDs."""
    text = ", ".join(f'"x-{number}y": {{}}' for number in range(500_000))
    small.submission("in/eve")
    small.write("in/eve/dev_own_output.json", f"{{{text}}}")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(PROGRAM).parent)!r}); import evaluation, resource; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "evaluation.main(['dev', '--submissions', 'in/eve', '--judge', '--quiet']); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout.splitlines()[-1]) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 150_000
    assert mentions(done.stderr.splitlines(), "predictions for IDs that no question has: 500000, e.g. x-0y")


# ------------------------------------------------------------------ Lost replies, and who judged


def test_calls_whose_reply_was_lost_are_counted(small: Project, serve: Serve) -> None:
    """They may have to be paid: the budget and the price count what they were expected to take."""
    server = serve(drop())
    outcome = small.run("dev", "--max-usd", "0.0001", "--workers", "1")
    assert mentions(outcome.err, "error: judging ended early: $0.000", "could exceed --max-usd")
    expected_usd = 0.0
    for call in server.calls:
        characters = sum(len(message["content"]) for message in call.body["messages"])
        expected_usd += (characters / 4 * 0.05 + call.body["max_completion_tokens"] * 0.08) / 1e6
    assert 0 < expected_usd <= 0.0001 + expected_usd / len(server.calls)
    assert outcome.code == 3


def test_without_a_key_the_model_counts_that_answers_the_present_requests(
    small: Project, serve: Serve
) -> None:
    """Three versions of the answers were judged by the old model, the last one by its successor."""
    for version in range(3):
        small.predictions("strong", {f"q00{n}": {"answer": f"Version {version} of {n}."} for n in (1, 2)})
        serve(score_reply(2))
        small.run()
    small.predictions("strong", {"q001": {"answer": "Version 2 of 1."}, "q002": {"answer": "New."}})
    serve(lambda call: model_gone(LLAMA) if call.body["model"] == LLAMA else score_reply(4))
    assert judge_scores(small.run()) == {"q001": 4, "q002": 4}
    outcome = small.run("dev", GROQ_API_KEY="")
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 4}, 0)
    graded = evaluation.grade("dev")["strong"]["llm_judge"]
    assert json.loads(json.dumps(graded["avg_answer_score"])) == 4
