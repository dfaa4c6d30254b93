"""The program as a process: how it is loaded, what it takes, and what lost calls and killed runs cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import evaluation

from conftest import Project, Serve, mentions, posix_only
from groq_server import drop

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
