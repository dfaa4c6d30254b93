"""Measure the judge engine against the loopback server, each figure as a ratio within one run.

    python tests/bench_judge.py [--only NAME...] [--quick]

Prints one table: what, measured, wanted, ok. Exit code 0 if every row is ok, else 1. The server is a process
of its own, so that its work is not taken for the engine's. Times run from nothing to the last judgement.

Batches are prepared and submitted by one process and collected by another, so that neither has memory of the
other. Each is handed 100,000 requests. Its memory is the peak of what is resident, less what was so before:
interpreter, packages, clients, questions and requests. Included are keys, lines, journal and outcomes. Times
leave out how long the service takes to answer: it is done with the requests before they are collected.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

import groq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import evaluation  # noqa: E402

JUDGEMENTS = 500
LATENCY_S = 0.2
REQUESTS_PER_MINUTE, TOKENS_PER_MINUTE = 600, 6_000
TOKEN_MINUTE_S = 1.0  # a free account's minute is so short here, and its latency shrinks with it
FAULTY_LATENCY_S, FAULTY_DEADLINE_S = 0.02, 1.0
BATCHED, BATCHED_QUICK = 100_000, 10_000
LINES_A_SECOND, MOST_MB = 5_000, 300

Body = dict[str, Any]
Outcomes = Mapping[int, evaluation.Judgement | evaluation.Failure]


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, and what it must be at least or at most, if anything."""

    what: str
    measured: float
    sign: Literal[">=", "<=", ""] = ""
    wanted: float = 0.0

    @property
    def ok(self) -> bool:
        bounds = {">=": self.measured >= self.wanted, "<=": self.measured <= self.wanted}
        return bounds.get(self.sign, True)

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "NO"
        wanted = f"{self.sign} {self.wanted:<6g}" if self.sign else "-"
        measured = f"{self.measured:.0f}" if self.measured >= 1000 else f"{self.measured:.4g}"
        return f"{self.what:<81} {measured:>8}  {wanted:<9} {verdict}"


Rows = Iterator[Row]


# ---------------------------------------------------------------------------------------------- what is asked
def sample() -> tuple[evaluation.Split, evaluation.System, list[evaluation.JudgeRequest]]:
    """The sample train split, its judged system, and what the program asks about it."""
    split, [hand_in], _ = evaluation.read_all("train")
    [judged] = [system for system in hand_in.systems if system.name == "strong"]
    return split, judged, evaluation.judge_requests(split, hand_in)


def sample_bodies(count: int) -> list[Body]:
    """So many different requests: those of the sample split, with as many seeds as it takes."""
    requests = sample()[2]
    model = evaluation.DEFAULT_JUDGE_MODEL
    return [
        evaluation.build_request_body(model, requests[n % len(requests)].messages, repeat=n // len(requests))
        for n in range(count)
    ]


def write_made_up_split(folder: Path, count: int) -> None:
    scale = {level: f"Level {level}." for level in evaluation.RUBRIC_LEVELS}
    common = {"doc_id": "d", "evidence_sentences": [], "rubric": {"description": "Right?", "scale": scale}}
    rows = [common | {"question": f"What is {n}?", "answer": f"It is {n}."} for n in range(1, count + 1)]
    answers = {f"q{n:03d}": {"answer": f"Perhaps {n}."} for n in range(1, count + 1)}
    gold = folder / evaluation.QUESTIONS_FILE.format(split="dev")
    gold.parent.mkdir(parents=True)
    gold.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "dev_strong_output.json").write_text(json.dumps(answers), encoding="utf-8")


# ----------------------------------------------------------------------------------------------- who is timed
@contextmanager
def server(*arguments: object) -> Iterator[str]:
    """The loopback server with these arguments; its url."""
    command = [sys.executable, str(ROOT / "tests" / "groq_server.py"), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@dataclass(frozen=True)
class Run:
    """What so many judgements took, and what the engine made of them."""

    judgements: int
    seconds: float
    processor_s: float
    outcomes: Outcomes
    counts: evaluation.CallCounts

    @property
    def rate(self) -> float:
        return self.judgements / self.seconds

    @property
    def processor_ms(self) -> float:
        return self.processor_s / self.judgements * 1000

    @property
    def scores(self) -> dict[int, int]:
        found = self.outcomes.items()
        return {place: one.score for place, one in found if isinstance(one, evaluation.Judgement)}


def timed(judgements: int, work: Callable[[], tuple[Outcomes, evaluation.CallCounts] | None]) -> Run:
    wall_s, processor_s = time.perf_counter(), time.process_time()
    outcomes, counts = work() or ({}, evaluation.CallCounts())
    wall_s, processor_s = time.perf_counter() - wall_s, time.process_time() - processor_s
    return Run(judgements, wall_s, processor_s, outcomes, counts)


def engine(url: str, bodies: Sequence[Body], workers: int = evaluation.WORKERS) -> Run:
    def work() -> tuple[Outcomes, evaluation.CallCounts]:
        with ExitStack() as resources:
            pool = evaluation.CallPool(
                evaluation.groq_call(evaluation.groq_clients("any", url, workers, resources))
            )
            pacer = evaluation.Pacer(workers, time.monotonic())
            judge = evaluation.Engine(pool, pacer, warn=evaluation.note)
            return dict(judge.outcomes(bodies)), judge.counts

    return timed(len(bodies), work)


def bare_client(url: str, bodies: Sequence[Body], threads: int) -> Run:
    """The package's client and nothing else; with one thread, a plain loop."""

    def work() -> None:
        with (
            groq.Groq(api_key="any", base_url=url, max_retries=0) as client,
            ThreadPoolExecutor(threads) as pool,
        ):
            list(pool.map(lambda body: client.chat.completions.create(**body), bodies))

    return timed(len(bodies), work)


def bare_async_client(url: str, bodies: Sequence[Body], in_flight: int) -> Run:
    async def loop() -> None:
        rest = iter(bodies)

        async def worker(client: groq.AsyncGroq) -> None:
            for body in rest:
                await client.chat.completions.create(**body)

        async with groq.AsyncGroq(api_key="any", base_url=url, max_retries=0) as client:
            await asyncio.gather(*(worker(client) for _ in range(in_flight)))

    return timed(len(bodies), lambda: asyncio.run(loop()))


# ------------------------------------------------------------------------------------------- what is measured
def speed(quick: bool) -> Rows:
    """No limits: how near to workers / latency, and at what cost beside the bare clients."""
    bodies = sample_bodies(JUDGEMENTS)
    with server("--latency", LATENCY_S) as url:
        bare_client(url, bodies[:2], 1)  # what the package does once is charged to nobody
        loop = bare_client(url, bodies[: 10 if quick else 25], 1)
        threads = bare_client(url, bodies[: 200 if quick else None], 16)
        few, many = engine(url, bodies, 16), engine(url, bodies, 100)
        unthreaded = bare_async_client(url, bodies, 100)
    yield Row("16 workers: rate against workers / latency", few.rate * LATENCY_S / 16, ">=", 0.9)
    yield Row("16 workers: rate against a sequential loop's", few.rate / loop.rate, ">=", 0.9 * 16)
    rates = f"{many.rate:.0f} and {unthreaded.rate:.0f} a second"
    yield Row(f"100 workers: rate against AsyncGroq's ({rates})", many.rate / unthreaded.rate, ">=", 0.9)
    costs = f"{few.processor_ms:.1f} and {threads.processor_ms:.1f} ms"
    cost = few.processor_ms / threads.processor_ms
    yield Row(f"16 workers: processor time a judgement against the client's ({costs})", cost, "<=", 2)


def paced(limit: str, run: Run, share: float) -> Rows:
    yield Row(f"{limit}: rate against the allowed", share, ">=", 0.97)
    yield Row(f"{limit}: refusals (429)", run.counts.refusals, "<=", evaluation.WORKERS)
    yield Row(f"{limit}: scored of {run.judgements}", len(run.scores), ">=", run.judgements)


def requests(quick: bool) -> Rows:
    """A limit of requests a minute, with nothing left of it at the start."""
    bodies = sample_bodies(100 if quick else JUDGEMENTS)
    with server("--latency", LATENCY_S, "--rpm", REQUESTS_PER_MINUTE, "--start-empty") as url:
        run = engine(url, bodies)
    share = run.rate * 60 / REQUESTS_PER_MINUTE
    yield from paced(f"{REQUESTS_PER_MINUTE} requests a minute", run, share)


def tokens(quick: bool) -> Rows:
    """A limit of tokens a minute, with nothing left of it at the start; and how many a prompt takes."""
    bodies = sample_bodies(60 if quick else JUDGEMENTS)
    limits = ("--tpm", TOKENS_PER_MINUTE, "--start-empty", "--minute", TOKEN_MINUTE_S)
    with server("--latency", LATENCY_S * TOKEN_MINUTE_S / 60, *limits) as url:
        run = engine(url, bodies)
    used = run.counts.usage.prompt + run.counts.usage.completion
    share = used / run.seconds * TOKEN_MINUTE_S / TOKENS_PER_MINUTE
    yield from paced(f"{TOKENS_PER_MINUTE} tokens a minute", run, share)
    yield prompt_size()


def prompt_size() -> Row:
    """Characters sent against those of the texts that a judge must see."""
    split, system, asked = sample()
    sent = needed = 0
    for request in asked:
        question = split.questions[request.place]
        rubric = question.rubric or evaluation.Rubric("", {})
        answer = system.predictions[question.id].answer
        texts = (question.text, question.answer, answer, rubric.description, *rubric.levels.values())
        sent += sum(len(message["content"]) for message in request.messages)
        needed += sum(map(len, texts))
    each = sent / len(asked) / evaluation.CHARS_PER_TOKEN
    return Row(f"Prompt of {each:.0f} tokens against the text that must be sent", sent / needed, "<=", 1.35)


def faults(quick: bool) -> Rows:
    """Garbage, 5xx, dropped and hung calls; what the scores must be is known from a run without."""
    bodies = sample_bodies(JUDGEMENTS)
    usual_s, evaluation.DEADLINE_S = evaluation.DEADLINE_S, FAULTY_DEADLINE_S
    with server("--latency", FAULTY_LATENCY_S) as url:
        calm = engine(url, bodies, 16)
    with server("--latency", FAULTY_LATENCY_S, "--faults") as url:
        rough = engine(url, bodies, 16)
    evaluation.DEADLINE_S = usual_s
    on_scale = [score for score in rough.scores.values() if score in range(1, evaluation.TOP_SCORE + 1)]
    same = rough.scores.items() & calm.scores.items()
    name = "18 % of calls faulty"
    yield Row(f"{name}: scored of {JUDGEMENTS}", len(rough.scores), ">=", JUDGEMENTS)
    yield Row(f"{name}: on the scale", len(on_scale), ">=", JUDGEMENTS)
    yield Row(f"{name}: scored as without faults", len(same), ">=", JUDGEMENTS)
    yield Row(f"{name}: requests a judgement", rough.counts.calls / JUDGEMENTS, "<=", 1.25)


def program(folder: Path, url: str, *options: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {evaluation.KEY_VARIABLE: "any", evaluation.BASE_URL_VARIABLE: url}
    command = [sys.executable, str(ROOT / "evaluation.py"), "dev", *options]
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=silent, stderr=silent)


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def crash(quick: bool) -> Rows:
    """kill -9 half way through a run of the whole program, and the same command again."""
    count = 100 if quick else 200
    with tempfile.TemporaryDirectory() as temporary, server("--latency", LATENCY_S / 2) as url:
        killed, whole = Path(temporary, "killed"), Path(temporary, "whole")
        for folder in (killed, whole):
            write_made_up_split(folder, count)
        with program(killed, url) as process:
            while lines_in(killed / evaluation.JOURNAL_FILE.format(split="dev")) < count / 2:
                assert process.poll() is None, "the program ended before its time"
                time.sleep(0.01)
            process.kill()
        codes = [program(killed, url).wait()]
        paid_twice = stats_of(url)["asked_again"]
        codes.append(program(whole, url).wait())
        results = {(folder / "dev_evaluation.json").read_bytes() for folder in (killed, whole)}
    name = f"kill -9 half way through {count}"
    yield Row(f"{name}: judgements paid twice", paid_twice, "<=", evaluation.WORKERS)
    yield Row(f"{name}: runs that failed, results that differ", sum(codes) + len(results) - 1, "<=", 0)


def many_requests(count: int) -> list[evaluation.JudgeRequest]:
    """So many different requests: the sample's questions and answers, each answer with a number to it."""
    split, system, asked = sample()
    made = []
    for number in range(count):
        request = asked[number % len(asked)]
        question = split.questions[request.place]
        assert question.rubric is not None
        answer = f"{system.predictions[question.id].answer} ({number})"
        build = partial(evaluation.build_rubric_messages, question, question.rubric, answer)
        about = (request.system, f"q{number:06d}", number, "written", 0)
        made.append(evaluation.JudgeRequest(*about, build))
    return made


def resident_mb() -> float:
    """What of this process is in memory at the moment; where no /proc tells, the most there ever was."""
    statm = Path("/proc/self/statm")
    return (
        int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6 if statm.exists() else peak_mb()
    )


def peak_mb() -> float:
    """The most of this process that was ever in memory."""
    import resource  # which Windows has not

    return in_mb(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def in_mb(maxrss: int) -> float:
    """Of what the system counts in kilobytes, and macOS in bytes."""
    return maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def quiet(line: str) -> None:
    """Say nothing."""


def judge_in_batches(journal_path: str, url: str, count: int, submits: bool) -> None:
    """One run of the judge, for a process of its own; prints as JSON what it took."""
    os.chdir(ROOT)
    requests = many_requests(count)
    with ExitStack() as resources:
        service = evaluation.groq_clients("any", url, evaluation.WORKERS, resources)
        evaluation.BatchService(service).batch_of("")  # what the package does once is charged to nobody
        gc.collect()
        before_mb, began_s = resident_mb(), time.perf_counter()
        journal = resources.enter_context(closing(evaluation.Journal(journal_path)))
        shared: dict[str, Any] = {
            "journals": {"": journal},
            "time_utc": lambda: "2026-11-21T00:00:00+00:00",
            "progress": evaluation.progress_bar,
        }
        most = evaluation.BATCH_LINES
        about: dict[str, Any] = {"submits": submits, "waits": False, "most_lines": most, "warn": quiet}
        batches = evaluation.Batches(evaluation.BatchService(service), **about, **shared)
        pacer = evaluation.Pacer(evaluation.WORKERS, time.monotonic())
        engine = evaluation.Engine(evaluation.CallPool(evaluation.groq_call(service)), pacer, warn=quiet)
        model = evaluation.DEFAULT_JUDGE_MODEL
        run = evaluation.GroqJudge(engine, model=model, strict=True, fresh=False, batches=batches, **shared)(
            requests
        )
        seconds = time.perf_counter() - began_s
    scored = sum(isinstance(outcome, evaluation.Judgement) for outcome in run.outcomes)
    more_mb = peak_mb() - before_mb
    print(json.dumps({"seconds": seconds, "mb": more_mb, "scored": scored}))


def in_own_process(*arguments: object) -> dict[str, float]:
    """What `judge_in_batches` says."""
    code = f"import bench_judge; bench_judge.judge_in_batches(*{arguments!r})"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=ROOT / "tests", stdout=subprocess.PIPE, check=True)
    told: dict[str, float] = json.loads(ran.stdout)
    return told


def have_it_done(url: str) -> None:
    """Look at all batches until each has ended."""
    with groq.Groq(api_key="any", base_url=url, timeout=300) as client:
        for made in client.batches.list().data:
            while client.batches.retrieve(made.id).status != "completed":
                pass


def stats_of(url: str) -> dict[str, Any]:
    with urlopen(url + "/stats") as answer:
        stats: dict[str, Any] = json.load(answer)
    return stats


def command_peak_mb(folder: Path, url: str, *options: str) -> float:
    """The most memory that the whole program takes."""
    process = program(folder, url, *options)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return in_mb(used.ru_maxrss)


def in_batches(quick: bool) -> Rows:
    """Batches, beside calls: prepared and submitted, collected, and asked a third time."""
    count = BATCHED_QUICK if quick else BATCHED
    with server() as url:
        direct = engine(url, sample_bodies(JUDGEMENTS), 100)
    with tempfile.TemporaryDirectory() as temporary, server("--polls", 2) as url:
        journal = str(Path(temporary, "journal.jsonl"))
        sent = in_own_process(journal, url, count, True)
        have_it_done(url)
        got = in_own_process(journal, url, count, False)
        in_own_process(journal, url, count, True)
        stats = stats_of(url)
    name = f"{count} in batches"
    yield Row("Calls, 100 workers, a service that answers at once: judged a second", direct.rate)
    yield Row(
        f"{name}: lines a second, prepared and submitted", count / sent["seconds"], ">=", LINES_A_SECOND
    )
    yield Row(f"{name}: lines a second, collected", count / got["seconds"], ">=", LINES_A_SECOND)
    yield Row(f"{name}: scored", got["scored"], ">=", count)
    yield Row(f"{name}: requests paid twice", stats["paid_twice"] + stats["calls"], "<=", 0)
    yield Row(f"{name}: lines that were sent more than once", stats["batch_lines"] - count, "<=", 0)
    yield Row(f"{name}: MB over the interpreter's own, to prepare and submit", sent["mb"], "<=", MOST_MB)
    yield Row(f"{name}: MB over the interpreter's own, to collect", got["mb"], "<=", MOST_MB)
    with tempfile.TemporaryDirectory() as temporary, server("--polls", 2) as url:
        write_made_up_split(Path(temporary), count)
        most_mb = command_peak_mb(Path(temporary), url, "--batch")
        yield Row(f"The whole command, {count} questions: MB in all, to prepare and submit", most_mb)
        have_it_done(url)
        yield Row("The whole command: MB in all, to collect and grade", command_peak_mb(Path(temporary), url))


# ---------------------------------------------------------------------------------------------------- command
BENCHES: Mapping[str, Callable[[bool], Rows]] = {
    "speed": speed,
    "requests": requests,
    "tokens": tokens,
    "faults": faults,
    "crash": crash,
    "batch": in_batches,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the judge engine against the loopback server.")
    names = ", ".join(BENCHES)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=BENCHES, metavar="NAME", help=names)
    parser.add_argument("--quick", action="store_true", help="smaller samples")
    args = parser.parse_args()
    os.chdir(ROOT)
    print(f"{'what':<81} {'measured':>8}  {'wanted':<9} ok")
    rows = []
    for name in args.only:
        for row in BENCHES[name](args.quick):
            print(row, flush=True)
            rows.append(row)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
