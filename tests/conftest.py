"""What every test has at hand: a small project in an empty folder, the program run in it, and a service."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evaluation
import httpx
import pytest

from groq_server import BatchScript, Call, Disturb, GroqServer, Limits, Reply

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is loaded: the workers share the cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

KEY = "gsk_loopback0123456789"
QUESTIONS_FILE = "NLP Project Data/dev_final_jsonl.txt"
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is encrypted, and reading them takes long
SCALE = {str(level): f"level {level}" for level in range(1, 6)}

Answer = Callable[[Call], Reply]
Serve = Callable[..., GroqServer]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """While tests are loaded and listed, nearly all that is made stays: garbage is collected once, after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()  # so that all is old from now on, and is seldom looked through again


@contextmanager
def all_kept() -> Iterator[None]:
    """What is there by now is passed over: looking through all of it for garbage takes half a second."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def question(doc_id: str = "d1", **changes: Any) -> dict[str, Any]:
    """A gold question about `doc_id`, whole and valid but for the changes; a change to ... leaves one out."""
    row = {
        "doc_id": doc_id,
        "question": f"What is {doc_id}?",
        "answer": f"It is {doc_id}.",
        "evidence_sentences": ["S1"],
        "rubric": {"description": f"Is it {doc_id}?", "scale": SCALE},
        "source_dataset": "sets",
        "source": "here",
        "question_type": "fact",
        "edge_case_type": "none",
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


def document(doc_id: str = "d1", *texts: str) -> dict[str, Any]:
    """A structured document whose sentences S1, S2, ... have these texts."""
    sentences = [{"sid": f"S{place}", "text": text} for place, text in enumerate(texts, start=1)]
    return {"doc_id": doc_id, "sentences": sentences}


@dataclass(frozen=True)
class Outcome:
    """What a run left behind: exit code, stdout, the lines on stderr and the results file (None if none)."""

    code: int
    out: str
    err: list[str]
    results: Any


@dataclass(frozen=True)
class Project:
    """A folder to grade in. The program runs in this process, with the folder as its current directory."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def write(self, name: str, content: object) -> Path:
        """A file: bytes as they are, text as UTF-8, anything else as JSON."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, (bytes, str)):
            content = json.dumps(content, ensure_ascii=False)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path

    def questions(self, *rows: Mapping[str, Any], split: str = "dev") -> None:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        self.write(f"NLP Project Data/{split}_final_jsonl.txt", lines)

    def predictions(self, system: str, rows: Mapping[str, Any], split: str = "dev") -> None:
        self.write(f"{split}_{system}_output.json", rows)

    def hand_in(self, folder: str, **systems: object) -> None:
        """A folder with the predictions of each of these systems."""
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for system, content in systems.items():
            self.write(f"{folder}/dev_{system}_output.json", content)

    def documents(self, *documents: Mapping[str, Any]) -> None:
        for row in documents:
            self.write(f"corpus/{row['doc_id']}.json", row)

    def run(self, *arguments: str) -> Outcome:
        """The program with these arguments (default: dev)."""
        self.capture.readouterr()
        code = evaluation.main(arguments or ("dev",))
        out, err = self.capture.readouterr()
        path = self.folder / "dev_evaluation.json"
        results = json.loads(path.read_bytes()) if path.exists() else None
        return Outcome(code, out, err.splitlines(), results)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    """An empty folder, no key in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("GROQ_API_KEY", "GROQ_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path, capsys)


@pytest.fixture
def small(project: Project) -> Project:
    """Two questions over two documents, and a `strong` that answers both, right and wrong."""
    project.questions(question("d1"), question("d2", evidence_sentences=["S1", "S2"]))
    project.documents(document("d1", "The lamp burned oil."), document("d2", "It rained.", "It snowed."))
    project.predictions(
        "strong",
        {
            "q001": {"question": "What is d1?", "answer": "It is d1.", "evidence_sentences": ["S1"]},
            "q002": {"question": "What is d2?", "answer": "No idea.", "retrieved_docs": ["d1", "d2"]},
        },
    )
    return project


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a service that gives this reply, or what this function of the call gives, and have it asked."""
    monkeypatch.setattr(evaluation, "BACKOFF_S", 0.01)
    monkeypatch.setattr(evaluation, "GRACE_S", 0.1)
    monkeypatch.setattr(evaluation, "POLL_S", 0.001)
    monkeypatch.setattr(evaluation, "MAX_POLL_S", 0.002)
    monkeypatch.setattr(httpx, "create_ssl_context", lambda: NO_CERTIFICATES)
    with ExitStack() as servers:

        def serve(
            answer: Answer | Reply,
            limits: Limits | None = None,
            latency_s: float = 0.0,
            batches: BatchScript | Sequence[BatchScript] | None = None,
            disturb: Disturb | None = None,
            page: int | None = None,
        ) -> GroqServer:
            given = answer if callable(answer) else lambda _: answer
            about: dict[str, Any] = {"limits": limits, "latency_s": latency_s, "page": page}
            server = servers.enter_context(GroqServer(given, **about, batches=batches, disturb=disturb))
            monkeypatch.setenv("GROQ_API_KEY", KEY)
            monkeypatch.setenv("GROQ_BASE_URL", server.url)
            return server

        yield serve


def prompt_of(call: Call) -> str:
    return str(call.body["messages"][1]["content"])


def pasted(call: Call, name: str = "answer") -> str:
    """What stands in a request below the marker line of this name, up to the next marker line."""
    prompt = f"\n{prompt_of(call)}"
    [marker] = re.findall(r"^\[(\w+) question\]$", prompt, re.MULTILINE)
    return prompt.split(f"\n[{marker} {name}]\n")[1].split(f"\n[{marker} ")[0]
