"""What every test has at hand: a small project in an empty folder, the program run in it, and a service."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import evaluation
import httpx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, settings

from groq_server import Call, GroqServer, Reply, score_reply, too_large

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is loaded: the workers share the cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The names of the module that tests may use beside its importable functions: clocks, fakes and their types,
# and what bench_statistics.py simulates.
SEAMS: tuple[str, ...] = ("BACKOFF_S", "GRACE_S", "PATIENCE_S", "RateLimiter", "RateLimit")
SEAMS += ("Sample", "make_sample", "compute_p_values", "compute_mean_interval", "compute_difference_interval")

SUMMARY_CRITERIA = (
    "criterion_1_claim_relevance",
    "criterion_2_perspective_claim_alignment",
    "criterion_3_perspective_distinctness",
    "criterion_4_coverage_of_core_arguments",
    "criterion_5_factual_grounding",
)
README = Path(__file__).resolve().parent.parent / "README.md"
REFERENCE_NUMBERS = Path(__file__).with_name("reference_numbers.json")
KEY = "gsk_loopback0123456789"
QUESTIONS_FILE = "NLP Project Data/dev_final_jsonl.txt"
RESULTS = "dev_evaluation.json"
LLAMA = "llama-3.1-8b-instant"  # JSON mode
GPT_OSS = "openai/gpt-oss-20b"  # has strict schemas
JUDGE = GPT_OSS  # the default judge
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is encrypted, and reading them takes long
SCALE = {str(level): f"level {level}" for level in range(1, 6)}

posix_only = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files, links, modes, pipes and shell")

Answer = Callable[[Call], Reply]
Serve = Callable[..., GroqServer]
Embed = Callable[[Mapping[str, Sequence[float]]], list[list[str]]]


# The examples of property tests are always the same ones, unless --hypothesis-profile=random asks for others.
ONE_FOLDER = [HealthCheck.function_scoped_fixture]  # each example makes its own files in it
ALWAYS: Any = {"deadline": None, "suppress_health_check": ONE_FOLDER}
NO_SHRINKING = [Phase.generate]  # to shrink a failure takes a minute
settings.register_profile("fixed", derandomize=True, max_examples=100, phases=NO_SHRINKING, **ALWAYS)
settings.register_profile(
    "random", derandomize=False, database=None, max_examples=5_000, print_blob=True, **ALWAYS
)
settings.load_profile("fixed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skipped test fails, unless README.md contains the reason."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and os.environ.get("CI") == "true":
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in README.read_text("utf-8"):
            report.outcome = "failed"
            report.longrepr = f"skipped, which is a failure with CI=true: {reason}"
    return report


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize a test by a table: name of the case -> its values."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


def reject_stepwise(sums: npt.NDArray[Any], level: float) -> npt.NDArray[Any]:
    """Return which samples of differences, rows of sums by cluster, have a mean that is not 0.

    All signs are flipped in turn. What has a larger |z| than all but a share `level` of the flips have
    anywhere is rejected, and all is repeated without it.
    """
    signs = np.array(list(itertools.product((1, -1), repeat=sums.shape[1])))
    z = abs(signs @ (sums / np.sqrt((sums**2).sum(axis=1, keepdims=True))).T)
    rejected = np.zeros(len(sums), bool)
    while not rejected.all():
        largest = z[:, ~rejected].max(axis=1)
        p = (largest[:, np.newaxis] >= z[0] - 1e-9).mean(axis=0)
        if rejected[p <= level].all():
            break
        rejected |= p <= level
    return rejected


def grade_numbers(clusters: Sequence[Any] | None = None, **systems: Sequence[float]) -> Any:
    """Grade systems whose answers are numbers from 0 to 1, with items of a cluster about one question.

    The measure `share` is the number, the method `exact` whether it is 1.
    """
    rows: dict[str, Any] = {}
    for name, values in systems.items():
        rows[name] = []
        for place, value in enumerate(values):
            about = place if clusters is None else clusters[place]
            row = {"id": place, "question": f"Question {about}?", "gold": "1", "answer": str(value)}
            rows[name].append(row)
    measures: Any = {"share": lambda item: float(item.prediction)}
    return evaluation.grade_answers(rows, methods=["exact"], measures=measures)


def mean_interval(values: Sequence[float], clusters: Sequence[Any] | None = None) -> Any:
    """Return the interval of the mean of numbers from 0 to 1."""
    return grade_numbers(clusters, own=values)["own"]["measures"]["share"]["ci95"]


def reference_numbers(name: str) -> Any:
    """Return what another package calculated, with its input: see make_reference_numbers.py."""
    return json.loads(REFERENCE_NUMBERS.read_bytes())[name]


def mentions(lines: Sequence[str], *words: str) -> bool:
    """Return whether a single one of these lines contains all of these words."""
    return any(all(word in line for word in words) for line in lines)


def blocks(out: str) -> dict[str, str]:
    """Return the blocks of the console: title -> text below it."""
    titled = re.split(r"^={60}\n(.+)\n={60}\n+", out, flags=re.MULTILINE)[1:]
    return dict(zip(titled[::2], titled[1::2], strict=True))


def json_lines(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def fake_module(name: str, **members: object) -> ModuleType:
    """Return a module with these members, which the import system finds once it is in sys.modules."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(members)
    return module


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

    @property
    def usage_error(self) -> str:
        """The line of stderr that says what is wrong with the command; the last one says what to read."""
        assert self.err[-1].startswith("see: evaluation.py ")
        return self.err[-2]


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

    def read(self, name: str) -> Any:
        """Return the content of a JSON file."""
        return json.loads((self.folder / name).read_bytes())

    def table(self, name: str) -> list[dict[str, str]]:
        """Return the rows of a CSV file as a spreadsheet reads them."""
        text = (self.folder / name).read_bytes().decode("utf-8-sig")
        return list(csv.DictReader(io.StringIO(text, newline="")))

    def questions(self, *rows: Mapping[str, Any], split: str = "dev") -> None:
        self.write(f"NLP Project Data/{split}_final_jsonl.txt", json_lines(*rows))

    def predictions(self, system: str, rows: Mapping[str, Any], split: str = "dev") -> None:
        self.write(f"{split}_{system}_output.json", rows)

    def submission(self, folder: str, **systems: object) -> None:
        """Write a folder with the predictions of each of these systems."""
        (self.folder / folder).mkdir(parents=True, exist_ok=True)  # without systems, too
        for system, content in systems.items():
            self.write(f"{folder}/dev_{system}_output.json", content)

    def documents(self, *documents: Mapping[str, Any]) -> None:
        for row in documents:
            self.write(f"corpus/{row['doc_id']}.json", row)

    def files(self) -> dict[str, bytes]:
        """Return the content of every file by its path in the folder."""
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}

    def run(self, *arguments: str, **environment: str) -> Outcome:
        """The program with these arguments (default: dev), and with these variables for this run alone.

        What causes the exit codes 1 and 3 is always a line that begins with a word of its own.
        """
        self.capture.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            code = evaluation.main(arguments or ("dev",))
        outcome = self.outcome(code, *self.capture.readouterr())
        words = {line.partition(":")[0] for line in outcome.err}
        assert ("worse" in words) == (code == 1)
        assert code != 3 or words & {"missing", "error"}
        assert code != 0 or not words & {"missing", "error"}
        return outcome

    def outcome(self, code: int, out: str, err: str) -> Outcome:
        exists = (self.folder / RESULTS).exists()
        return Outcome(code, out, err.splitlines(), self.read(RESULTS) if exists else None)

    def run_unprivileged(self, *arguments: str) -> Outcome:
        """Run the program in a process to which file permissions apply, even if the tests run as root.

        Such a process keeps its user, who may be the only one allowed to read the interpreter's files.
        """
        command = [sys.executable, evaluation.__file__, *(arguments or ("dev",))]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            rights = "-dac_override,-dac_read_search"
            command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return self.outcome(done.returncode, done.stdout, done.stderr)


def add_answer_ids(project: Project, decisions: str) -> str:
    """Return decisions with each one's answer_id in front. People's files have it: it must never change."""
    header, *lines = decisions.strip("\n").split("\n")
    gold = {}
    for place, line in enumerate(project.files()[QUESTIONS_FILE].decode().splitlines(), start=1):
        row = json.loads(line)
        row.setdefault("question_id", f"q{place:03}")
        gold[row["question_id"]] = row
    texts = [f"answer_id,{header}"]
    for line in lines:
        cells = dict(zip(header.split(","), next(csv.reader([line])), strict=False))
        owner, name = cells.get("submission", ""), cells.get("system", "")
        if owner not in ("", name.partition("/")[0]):
            name = f"{owner}/{name}".strip("/")
        predicted = find_prediction(project, name, cells["question_id"])
        answer_id = hash_answer(
            gold.get(cells["question_id"]), predicted, cells.get("criterion") == "support"
        )
        texts.append(f"{answer_id},{line}")
    return "\n".join(texts) + "\n"


def find_prediction(project: Project, name: str, question_id: str) -> Mapping[str, Any]:
    """Return the prediction of a system, or of the first one of a submission."""
    for path in sorted(project.folder.rglob("dev_*_output.json")):
        owner = "" if path.parent == project.folder else unicodedata.normalize("NFC", path.parent.name)
        system = path.name.removeprefix("dev_").removesuffix("_output.json")
        if name in (system if not owner else f"{owner}/{system}", owner.strip().removeprefix("'"), owner):
            with suppress(ValueError):
                return dict(json.loads(path.read_bytes()).get(question_id, {}))
    return {}


def hash_answer(gold: Mapping[str, Any] | None, prediction: Mapping[str, Any], covers_citations: bool) -> str:
    if gold is None:
        return "a0"
    rubric = gold.get("rubric", {"description": "", "scale": dict.fromkeys(SCALE, "")})
    texts = [gold["question_id"], gold["question"], gold["answer"], rubric["description"]]
    texts += [*rubric["scale"].values(), prediction.get("answer", "")]
    if covers_citations:
        texts += ["citations", *prediction["evidence_sentences"]]
    return "a" + hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:15]


def assert_refused(project: Project, *arguments: str, **environment: str) -> list[str]:
    """Run, assert that nothing is printed or written, and return what stderr says is wrong."""
    before = project.files()
    outcome = project.run(*arguments, **environment)
    assert (outcome.code, outcome.out, project.files()) == (2, "", before)
    *problems, last = outcome.err
    counted = f"error: problems in the input: {len(problems)}; nothing was graded or written."
    assert last == counted or last.startswith("see: evaluation.py ")
    return problems


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


def first_question(project: Project) -> Project:
    """Leave the first question alone in the gold set: one that is judged with one call."""
    line, *_ = project.files()[QUESTIONS_FILE].splitlines(keepends=True)
    project.write(QUESTIONS_FILE, line)
    return project


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a service that gives this reply, or what this function of the call gives, and have it asked.

    Further arguments are those of GroqServer. A second service of a test takes the place of the first, at the
    same address: to the program it is the same endpoint.
    """
    monkeypatch.setattr(evaluation, "BACKOFF_S", 0.001)
    monkeypatch.setattr(evaluation, "GRACE_S", 0.1)
    monkeypatch.setattr(httpx, "create_ssl_context", lambda: NO_CERTIFICATES)
    port = 0
    with ExitStack() as servers:

        def serve(answer: Answer | Reply, **options: Any) -> GroqServer:
            nonlocal port
            servers.close()
            given = answer if callable(answer) else lambda _: answer
            server = servers.enter_context(GroqServer(given, port=port, **options))
            port = server.port
            monkeypatch.setenv("GROQ_API_KEY", KEY)
            monkeypatch.setenv("GROQ_BASE_URL", server.url)
            return server

        yield serve


@pytest.fixture
def embed(monkeypatch: pytest.MonkeyPatch) -> Embed:
    """Install a fake embedding model: these texts have these vectors. Returns the batches it encodes."""

    def embed(vectors: Mapping[str, Sequence[float]]) -> list[list[str]]:
        batches: list[list[str]] = []

        def encode(texts: Sequence[str], **options: object) -> list[Sequence[float]]:
            batches.append(list(texts))
            return [vectors[text] for text in texts]

        model = fake_module("model", encode=encode)
        package = fake_module("sentence_transformers", SentenceTransformer=lambda name, **options: model)
        monkeypatch.setitem(sys.modules, "sentence_transformers", package)
        return batches

    return embed


def prompt_of(call: Call) -> str:
    return str(call.body["messages"][1]["content"])


def pasted(call: Call, name: str = "answer") -> str:
    """What stands in a request below the marker line of this name, up to the next marker line."""
    prompt = f"\n{prompt_of(call)}"
    [marker] = re.findall(r"^\[(\w+) question\]$", prompt, re.MULTILINE)
    return prompt.split(f"\n[{marker} {name}]\n")[1].split(f"\n[{marker} ")[0]


Score = int | float | None | list[int] | Reply  # None: the call fails; a list: one score per repeat
JudgeWith = Callable[[Mapping[str, Sequence[Score]]], GroqServer]
FAILED_CALL = too_large()
FIRST_SEED = 20240229  # of a judge's request; each repeat adds one


@pytest.fixture
def judge_with(project: Project, serve: Serve) -> JudgeWith:
    """Start a judge with these scores: system -> a score per question, in the order of the questions file.

    The system of a submission is "folder/system". Equal answers to a question must have equal scores.
    """

    def judge_with(scores: Mapping[str, Sequence[Score]]) -> GroqServer:
        def answer(call: Call) -> Reply:
            score = find_score(project, scores, call)
            if isinstance(score, list):
                score = score[call.body["seed"] - FIRST_SEED]
            if isinstance(score, Reply):
                return score
            return FAILED_CALL if score is None else score_reply(score, f"Worth {score}.")

        return serve(answer)

    return judge_with


def find_score(project: Project, scores: Mapping[str, Sequence[Score]], call: Call) -> Score:
    """Return the score for the answer in a request. A sanitized answer is matched by similarity."""
    lines = (project.folder / QUESTIONS_FILE).read_text("utf-8").splitlines()
    candidates: dict[str, Score] = {}
    for path, given in scores.items():
        folder, _, system = path.rpartition("/")
        file = project.folder / folder / f"dev_{system}_output.json"
        predictions = json.loads(file.read_text("utf-8"))
        for number, (line, score) in enumerate(zip(lines, given, strict=True), start=1):
            row = json.loads(line)
            prediction = predictions.get(row.get("question_id", f"q{number:03d}"), {})
            answer = prediction.get("answer", "")
            if not answer.strip():
                continue  # is not sent to a judge
            text = f"{row['question']}\n{answer}"
            assert candidates.setdefault(text, score) == score, f"two scores for the same answer: {text}"
    asked = f"{pasted(call, 'question')}\n{pasted(call)}"
    if asked in candidates:
        return candidates[asked]
    [closest] = difflib.get_close_matches(asked, candidates, n=1, cutoff=0)
    return candidates[closest]


def first(*replies: Reply, then: Reply) -> Answer:
    """Answer the first calls with these replies, in order, and all later calls with the last one."""
    return lambda call: replies[call.number] if call.number < len(replies) else then


def by_document(replies: Mapping[str, Reply]) -> Answer:
    """Answer by the document in the question, which is the d1 of "What is d1?"."""
    return lambda call: replies[asked_document(call)]


def asked_document(call: Call) -> str:
    return pasted(call, "question").removeprefix("What is ").rstrip("?")


def asked(server: GroqServer) -> list[str]:
    """Return the documents that the calls were about, sorted."""
    return sorted(map(asked_document, server.calls))


def write_many(project: Project, count: int) -> None:
    """Write a split of so many questions. Answer 0 belongs to document d0 and question q001, and so on."""
    project.questions(*(question(f"d{number}") for number in range(count)))
    project.documents(*(document(f"d{number}", "It rained.") for number in range(count)))
    project.predictions("strong", {f"q{n + 1:03d}": {"answer": f"Answer {n}."} for n in range(count)})


def judge_block(outcome: Outcome) -> dict[str, Any]:
    """Return the judge's results for the system `strong`."""
    block: dict[str, Any] = outcome.results["strong"]["llm_judge"]
    return block


def judge_row(outcome: Outcome, question_id: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = judge_block(outcome)["per_question"]
    return next(row for row in rows if row["question_id"] == question_id)


def judge_scores(outcome: Outcome) -> dict[str, float]:
    return {row["question_id"]: row["answer_score_raw"] for row in judge_block(outcome)["per_question"]}


def below_the_averages(outcome: Outcome) -> list[str]:
    """Return the lines that follow the average scores in the judge's block of the console."""
    _, _, lines = blocks(outcome.out)["LLM_JUDGE EVALUATION RESULTS"].partition("Combined Score (0-1): ")
    return lines.strip().split("\n")[1:]


def journal_entries(project: Project) -> list[dict[str, Any]]:
    lines = (project.folder / "dev_judgements.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]
