"""Measure judging with the whole program against the loopback server.

    python tests/bench_judge.py [--only NAME...] [--quick]

Prints a table: what is measured, the value, the wanted bound, ok. The exit code is 0 if every row is ok, else
1. The program is a process of its own. Rates are those that the server sees, from the first call to the last.
Processor time and memory are compared with a run of the same command that has nothing to send, so that
start-up, reading and statistics cancel out. Calls that hang are given up after a minute: `faults` takes one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import groq

from groq_server import BatchScript, Call, Faults, GroqServer, Limits, Reply, score_reply, scripted_score

ROOT = Path(__file__).resolve().parent.parent
JOURNAL, RESULTS = "dev_judgements.jsonl", "dev_evaluation.json"
WORKERS = 8  # by default

JUDGEMENTS = 500
LATENCY_S = 0.2
REQUESTS_PER_MINUTE, TOKENS_PER_MINUTE = 600, 6_000
TOKEN_MINUTE_S = 1.0  # length of the minute for the limit of tokens; the latency shrinks with it
BATCHED, BATCHED_QUICK = 100_000, 10_000
SUBMITTED_PER_SECOND, COLLECTED_PER_SECOND, MAX_MB = 1_000, 5_000, 300

Body = dict[str, Any]


class Row(NamedTuple):
    """A line of the table: a measured value and its bound."""

    what: str
    measured: float
    sign: Literal[">=", "<="]
    wanted: float


Rows = Iterator[Row]


# ------------------------------------------------------------------ Inputs


@contextmanager
def new_split(count: int) -> Iterator[Path]:
    """Write a dev split of so many questions of the sample. The answers are numbered: no two are equal."""
    sample = (ROOT / "NLP Project Data/train_final_jsonl.txt").read_text("utf-8").splitlines()
    answers = list(json.loads((ROOT / "train_strong_output.json").read_text("utf-8")).values())
    questions, predictions = [], {}
    for number in range(count):
        place = number % len(sample)
        question_id = f"q{number:06d}"
        questions.append(json.dumps({**json.loads(sample[place]), "question_id": question_id}) + "\n")
        predictions[question_id] = {"answer": f"{answers[place]['answer']} ({number})"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "NLP Project Data").mkdir()
        (folder / "NLP Project Data/dev_final_jsonl.txt").write_text("".join(questions), encoding="utf-8")
        (folder / "dev_strong_output.json").write_text(json.dumps(predictions), encoding="utf-8")
        (folder / "corpus").symlink_to(ROOT / "corpus")
        yield folder


# ------------------------------------------------------------------ Processes


@contextmanager
def start_server(latency_s: float) -> Iterator[str]:
    """Start the server as a process of its own, for clients in this process. Yields its URL."""
    command = [sys.executable, str(ROOT / "tests" / "groq_server.py"), str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def start_program(folder: Path, url: str, *options: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"GROQ_API_KEY": "any", "GROQ_BASE_URL": url}
    command = [sys.executable, str(ROOT / "evaluation.py"), "dev", *options]
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=silent, stderr=silent)


class Used(NamedTuple):
    code: int
    processor_s: float
    peak_mb: float


def run_program(folder: Path, url: str, *options: str) -> Used:
    process = start_program(folder, url, *options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    peak_mb = usage.ru_maxrss * bytes_per_unit / 1e6
    return Used(process.returncode, usage.ru_utime + usage.ru_stime, peak_mb)


class Judged(NamedTuple):
    """What the server saw of a run that judged."""

    used: Used
    bodies: list[Body]
    seconds: float  # from the first call to the last
    idle_s: float  # from the server's start to the first call
    refusals: int  # 429


def give_score(call: Call) -> Reply:
    return score_reply(scripted_score(call))


def judge(
    folder: Path,
    *options: str,
    answer: Callable[[Call], Reply] = give_score,
    latency_s: float = 0.0,
    limits: Limits | None = None,
) -> Judged:
    """Judge a split against a server in this process."""
    began_s = time.monotonic()
    with GroqServer(answer, limits=limits, latency_s=latency_s) as server:
        used = run_program(folder, server.url, *options)
        first_s, last_s = server.calls[0].arrived_s, server.calls[-1].arrived_s
        bodies = [call.body for call in server.calls]
    return Judged(used, bodies, last_s - first_s, first_s - began_s, server.status_counts[429])


def read_results(folder: Path) -> Any:
    """Return the judge's results for `strong`."""
    return json.loads((folder / RESULTS).read_bytes())["strong"]["llm_judge"]


def read_scores(folder: Path) -> dict[str, float]:
    """Return the score of every question that has one."""
    rows = read_results(folder)["per_question"]
    return {row["question_id"]: row["answer_score_raw"] for row in rows if row["failure"] is None}


# ------------------------------------------------------------------ The package's own clients


def time_client(url: str, bodies: Sequence[Body], threads: int) -> tuple[float, float]:
    """Send the bodies with the package's client. Returns calls per second and processor time per call."""
    with (
        groq.Groq(api_key="any", base_url=url, max_retries=0) as client,
        ThreadPoolExecutor(threads) as pool,
    ):
        wall_s, processor_s = time.perf_counter(), time.process_time()
        list(pool.map(lambda body: client.chat.completions.create(**body), bodies))
        wall_s, processor_s = time.perf_counter() - wall_s, time.process_time() - processor_s
    return len(bodies) / wall_s, processor_s / len(bodies)


async def send_all(url: str, bodies: Sequence[Body], in_flight: int) -> None:
    """Send the bodies with the package's asynchronous client."""
    remaining = iter(bodies)

    async def work(client: groq.AsyncGroq) -> None:
        for body in remaining:
            await client.chat.completions.create(**body)

    async with groq.AsyncGroq(api_key="any", base_url=url, max_retries=0) as client:
        await asyncio.gather(*(work(client) for _ in range(in_flight)))


# ------------------------------------------------------------------ Benchmarks


def throughput(quick: bool) -> Rows:
    """No limits: the rate beside workers / latency, and the cost beside the package's clients."""
    count = 320 if quick else JUDGEMENTS  # full rounds of 16 calls
    with new_split(count) as folder:
        few = judge(folder, "--workers", "16", latency_s=LATENCY_S)
        with start_server(LATENCY_S) as url:
            stored = run_program(folder, url, "--workers", "16")
            time_client(url, few.bodies[:2], 1)  # imports and certificates are not measured
            loop_rate, _ = time_client(url, few.bodies[: 10 if quick else 25], 1)
            _, client_s = time_client(url, few.bodies, 16)
            began_s = time.perf_counter()
            asyncio.run(send_all(url, few.bodies, 100))
            async_rate = count / (time.perf_counter() - began_s)
        (folder / JOURNAL).unlink()
        many = judge(folder, "--workers", "100", latency_s=LATENCY_S)
    few_rate, many_rate = count / (few.seconds + LATENCY_S), count / (many.seconds + LATENCY_S)
    program_s = (few.used.processor_s - stored.processor_s) / count
    rates = f"{many_rate:.0f} and {async_rate:.0f} per second"
    costs = f"{program_s * 1000:.1f} and {client_s * 1000:.1f} ms"
    yield Row("16 workers: rate against workers / latency", few_rate * LATENCY_S / 16, ">=", 0.9)
    yield Row("16 workers: rate against a sequential loop's", few_rate / loop_rate, ">=", 0.9 * 16)
    yield Row(f"100 workers: rate against AsyncGroq's ({rates})", many_rate / async_rate, ">=", 0.9)
    yield Row(f"16 workers: processor time against the client's ({costs})", program_s / client_s, "<=", 2)


def paced(name: str, folder: Path, judged: Judged, count: int, share: float) -> Rows:
    yield Row(f"{name}: used of what was allowed", share, ">=", 0.97)
    yield Row(f"{name}: refusals (429)", judged.refusals, "<=", WORKERS)
    yield Row(f"{name}: scored of {count}", len(read_scores(folder)), ">=", count)


def pacing(quick: bool) -> Rows:
    """Limits of requests and of tokens per minute, with nothing left at the start."""
    count = 100 if quick else JUDGEMENTS
    limits = Limits(requests_per_minute=REQUESTS_PER_MINUTE, start_full=False)
    with new_split(count) as folder:
        judged = judge(folder, latency_s=LATENCY_S, limits=limits)
        allowed = REQUESTS_PER_MINUTE / 60 * (min(judged.idle_s, 60) + judged.seconds)
        yield from paced(f"{REQUESTS_PER_MINUTE} requests a minute", folder, judged, count, count / allowed)
    count = 60 if quick else JUDGEMENTS
    minute_s = TOKEN_MINUTE_S
    limits = Limits(tokens_per_minute=TOKENS_PER_MINUTE, start_full=False, seconds_per_minute=minute_s)
    with new_split(count) as folder:
        judged = judge(folder, latency_s=LATENCY_S * minute_s / 60, limits=limits)
        usage = read_results(folder)["usage"]
        tokens = usage["prompt_tokens"] + usage["completion_tokens"]
        allowed = TOKENS_PER_MINUTE / minute_s * (min(judged.idle_s, minute_s) + judged.seconds)
        yield from paced(f"{TOKENS_PER_MINUTE} tokens a minute", folder, judged, count, tokens / allowed)


def below(quick: bool) -> Rows:
    """A limit of requests per minute that is enforced over two seconds, and over half a second."""
    count = 200 if quick else JUDGEMENTS
    for requests in (20, 5):
        share = requests / REQUESTS_PER_MINUTE
        limits = Limits(REQUESTS_PER_MINUTE, start_full=False, enforced_share=share)
        for workers in (8, 64):
            with new_split(count) as folder:
                judged = judge(folder, "--workers", str(workers), latency_s=LATENCY_S, limits=limits)
            allowed = min(REQUESTS_PER_MINUTE / 60 * judged.idle_s, requests)
            allowed += REQUESTS_PER_MINUTE / 60 * judged.seconds
            name = f"at most {requests} at once of {REQUESTS_PER_MINUTE} a minute, {workers} workers"
            yield Row(f"{name}: used of what was allowed", count / allowed, ">=", 0.9)
            yield Row(f"{name}: refusals per 100 calls", 100 * judged.refusals / count, "<=", 20)


def faults(quick: bool) -> Rows:
    """Garbage, 5xx, dropped and hung calls. The scores must be those of a run without faults."""
    count = 100 if quick else JUDGEMENTS
    with new_split(count) as calm, new_split(count) as rough:
        judge(calm, "--workers", "16", latency_s=0.02)
        judged = judge(rough, "--workers", "16", latency_s=0.02, answer=Faults(scripted_score))
        scores, expected = read_scores(rough), read_scores(calm)
    name = "18 % of calls faulty"
    yield Row(f"{name}: scored of {count}", len(scores), ">=", count)
    yield Row(f"{name}: scored as without faults", len(scores.items() & expected.items()), ">=", count)
    yield Row(f"{name}: calls per judgement", len(judged.bodies) / count, "<=", 1.25)


def kill(quick: bool) -> Rows:
    """Kill the program half way through and run the same command again."""
    count = 100 if quick else 200
    with (
        new_split(count) as killed,
        new_split(count) as whole,
        GroqServer(give_score, latency_s=LATENCY_S / 2) as server,
    ):
        with start_program(killed, server.url) as process:
            journal = killed / JOURNAL
            while not journal.exists() or journal.read_bytes().count(b"\n") < count / 2:
                assert process.poll() is None, "the program ended too early"
                time.sleep(0.01)
            process.kill()
        codes = [run_program(killed, server.url).code]
        paid_twice = len(server.calls) - len({json.dumps(call.body) for call in server.calls})
        codes.append(run_program(whole, server.url).code)
        differ = (killed / RESULTS).read_bytes() != (whole / RESULTS).read_bytes()
    name = f"kill -9 half way through {count}"
    yield Row(f"{name}: judgements paid twice", paid_twice, "<=", WORKERS)
    yield Row(f"{name}: runs that failed, results that differ", sum(codes) + differ, "<=", 0)


def batch(quick: bool) -> Rows:
    """Batches: submitted, collected, and the same command again with nothing left to do."""
    count = BATCHED_QUICK if quick else BATCHED
    with new_split(count) as folder, GroqServer(give_score, batches=BatchScript(polls=2)) as server:
        unjudged = run_program(folder, server.url, "--no-judge")
        submitting = run_program(folder, server.url, "--batch")
        finish_batches(server.url)
        collecting = run_program(folder, server.url)
        stored = run_program(folder, server.url, "--batch")
        n_scored = len(read_scores(folder))
    n_sent = sum(len(batch.lines) for batch in server.batches.values())
    paid_twice = server.paid_twice + len(server.calls)
    name = f"{count} in batches"
    submit_rate = count / (submitting.processor_s - unjudged.processor_s)
    collect_rate = count / max(collecting.processor_s - stored.processor_s, 0.01)
    yield Row(f"{name}: lines per second, audited and submitted", submit_rate, ">=", SUBMITTED_PER_SECOND)
    yield Row(f"{name}: lines per second, collected", collect_rate, ">=", COLLECTED_PER_SECOND)
    yield Row(f"{name}: scored", n_scored, ">=", count)
    yield Row(f"{name}: requests paid twice", paid_twice, "<=", 0)
    yield Row(f"{name}: lines sent more than once", n_sent - count, "<=", 0)
    for step, used in (("submit", submitting), ("collect", collecting)):
        more_mb = used.peak_mb - unjudged.peak_mb
        yield Row(f"{name}: MB more than without a judge, to {step}", more_mb, "<=", MAX_MB)


def finish_batches(url: str) -> None:
    """Retrieve all batches until each has ended."""
    with groq.Groq(api_key="any", base_url=url, timeout=300) as client:
        for created in client.batches.list().data:
            while client.batches.retrieve(created.id).status != "completed":
                pass


# ------------------------------------------------------------------ Command line

BENCHMARKS: dict[str, Callable[[bool], Rows]] = {
    run.__name__: run for run in (throughput, pacing, below, faults, kill, batch)
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure judging against the loopback server.")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="use smaller samples")
    args = parser.parse_args()
    print(f"{'what':<81} {'measured':>8}  {'wanted':<9} ok")
    all_ok = True
    for name in args.only:
        for what, value, sign, wanted in BENCHMARKS[name](args.quick):
            ok = value >= wanted if sign == ">=" else value <= wanted
            measured = f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
            print(f"{what:<81} {measured:>8}  {sign} {wanted:<6g} {'ok' if ok else 'NO'}", flush=True)
            all_ok = all_ok and ok
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
