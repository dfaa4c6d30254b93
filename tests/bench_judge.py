"""Measure judging with the whole program against the loopback server.

    python tests/bench_judge.py [--only NAME...] [--quick]

Prints a table: what is measured, the value, the wanted bound, ok. The exit code is 0 if every row is ok, else
1. The program is a process of its own. Rates are those that the server sees, from the first call to the last.
Minutes are real: `pacing` takes seven of them. With --quick samples are small, the two benchmarks of limits
run only if they are named, and a time that is out of bounds does not count.
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import groq

from groq_server import Call, Faults, GroqServer, Limits, Reply, score_reply, scripted_score

ROOT = Path(__file__).resolve().parent.parent
JOURNAL, RESULTS = "dev_judgements.jsonl", "dev_evaluation.json"
WORKERS = 8  # by default

JUDGEMENTS = 500
LATENCY_S = 0.2
TIMEOUT = ("--timeout", "2")  # where calls hang

Body = dict[str, Any]


class Row(NamedTuple):
    """A line of the table: a measured value and its bound."""

    what: str
    measured: float
    sign: Literal[">=", "<="]
    wanted: float
    is_time: bool = False


Rows = Iterator[Row]


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


def run_program(folder: Path, url: str, *options: str) -> int:
    """Run the program and return its exit code."""
    with start_program(folder, url, *options) as process:
        return process.wait()


class Judged(NamedTuple):
    """What the server saw of a run that judged."""

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
        run_program(folder, server.url, *options)
        first_s, last_s = server.calls[0].arrived_s, server.calls[-1].arrived_s
        bodies = [call.body for call in server.calls]
    return Judged(bodies, last_s - first_s, first_s - began_s, server.status_counts[429])


def read_results(folder: Path) -> Any:
    """Return the judge's results for `strong`."""
    return json.loads((folder / RESULTS).read_bytes())["strong"]["llm_judge"]


def read_scores(folder: Path) -> dict[str, float]:
    """Return the score of every question that has one."""
    rows = read_results(folder)["per_question"]
    return {row["question_id"]: row["answer_score_raw"] for row in rows if row["failure"] is None}


async def send_all(url: str, bodies: Sequence[Body], in_flight: int) -> None:
    """Send the bodies with the package's asynchronous client."""
    semaphore = asyncio.Semaphore(in_flight)

    async def send(client: groq.AsyncGroq, body: Body) -> None:
        async with semaphore:
            await client.chat.completions.create(**body)

    async with groq.AsyncGroq(api_key="any", base_url=url, max_retries=0) as client:
        await asyncio.gather(*(send(client, body) for body in bodies))


def throughput(quick: bool) -> Rows:
    """No limits: the rate beside workers / latency, and beside the package's asynchronous client."""
    count = 320 if quick else JUDGEMENTS  # full rounds of 16 calls
    with new_split(count) as folder:
        few = judge(folder, "--workers", "16", latency_s=LATENCY_S)
        (folder / JOURNAL).unlink()
        many = judge(folder, "--workers", "100", latency_s=LATENCY_S)
    with start_server(LATENCY_S) as url:
        asyncio.run(send_all(url, few.bodies[:2], 1))  # imports and certificates are not measured
        began_s = time.perf_counter()
        asyncio.run(send_all(url, few.bodies, 100))
        async_rate = count / (time.perf_counter() - began_s)
    few_rate, many_rate = count / (few.seconds + LATENCY_S), count / (many.seconds + LATENCY_S)
    rates = f"{many_rate:.0f} and {async_rate:.0f} per second"
    yield Row("16 workers: rate against workers / latency", few_rate * LATENCY_S / 16, ">=", 0.9, True)
    yield Row(f"100 workers: rate against AsyncGroq's ({rates})", many_rate / async_rate, ">=", 1, True)


LIMITS = {  # limits, judgements, with --quick
    "30 requests a minute": (Limits(requests_per_minute=30), 80, 50),
    "8,000 tokens a minute": (Limits(tokens_per_minute=8_000), 80, 40),
    "250,000 tokens a minute": (Limits(tokens_per_minute=250_000), 1_500, 900),
}


def pacing(quick: bool) -> Rows:
    """Limits of an account, of which a full minute is left at the start."""
    for name, (limits, many, few) in LIMITS.items():
        count = few if quick else many
        with new_split(count) as folder:
            judged = judge(folder, latency_s=LATENCY_S, limits=limits)
            usage = read_results(folder)["usage"]
            n_scored = len(read_scores(folder))
        if limits.requests_per_minute:
            limit, used = limits.requests_per_minute, count
        else:
            limit = limits.tokens_per_minute or 0
            used = usage["prompt_tokens"] + usage["completion_tokens"]
        share = used / (limit + limit / 60 * judged.seconds)
        yield Row(f"{name}: used of what was allowed", share, ">=", 0.95, True)
        yield Row(f"{name}: refusals per 100 calls", 100 * judged.refusals / len(judged.bodies), "<=", 20)
        yield Row(f"{name}: scored of {count}", n_scored, ">=", count)


def below(quick: bool) -> Rows:
    """600 requests a minute that are enforced over two seconds, and over half a second."""
    count = 200 if quick else JUDGEMENTS
    for requests in (20, 5):
        limits = Limits(600, start_full=False, enforced_share=requests / 600)
        for workers in (8, 64):
            with new_split(count) as folder:
                judged = judge(folder, "--workers", str(workers), latency_s=LATENCY_S, limits=limits)
            allowed = min(10 * judged.idle_s, requests) + 10 * judged.seconds
            name = f"at most {requests} at once of 600 a minute, {workers} workers"
            yield Row(f"{name}: used of what was allowed", count / allowed, ">=", 0.9, True)
            yield Row(f"{name}: refusals per 100 calls", 100 * judged.refusals / len(judged.bodies), "<=", 20)


def faults(quick: bool) -> Rows:
    """Garbage, 5xx, dropped and hung calls. The scores must be those of a run without faults."""
    count = 100 if quick else JUDGEMENTS
    options = ("--workers", "16")
    with new_split(count) as calm, new_split(count) as rough:
        judge(calm, *options, latency_s=0.02)
        answer = Faults(scripted_score)
        judged = judge(rough, *options, *TIMEOUT, latency_s=0.02, answer=answer)
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
        codes = [run_program(killed, server.url)]
        paid_twice = len(server.calls) - len({json.dumps(call.body) for call in server.calls})
        codes.append(run_program(whole, server.url))
        differ = (killed / RESULTS).read_bytes() != (whole / RESULTS).read_bytes()
    name = f"kill -9 half way through {count}"
    yield Row(f"{name}: judgements paid twice", paid_twice, "<=", WORKERS)
    yield Row(f"{name}: runs that failed, results that differ", sum(codes) + differ, "<=", 0)


BENCHMARKS = {run.__name__: run for run in (throughput, pacing, below, faults, kill)}
LONG = ("pacing", "below")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure judging against the loopback server.")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="use small samples: does it work?")
    args = parser.parse_args()
    print(f"{'what':<81} {'measured':>8}  {'wanted':<9} ok")
    all_ok = True
    for name in args.only or [name for name in BENCHMARKS if not args.quick or name not in LONG]:
        for what, value, sign, wanted, is_time in BENCHMARKS[name](args.quick):
            ok = value >= wanted if sign == ">=" else value <= wanted
            measured = f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
            print(f"{what:<81} {measured:>8}  {sign} {wanted:<6g} {'ok' if ok else 'NO'}", flush=True)
            all_ok = all_ok and (ok or (args.quick and is_time))
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
