"""Measure how cost grows with the work, each figure as a ratio within one run.

    python tests/bench_scale.py [--only NAME...] [--rounds N]

100,000 questions, two systems, 10 retrieved documents a prediction, no judge: the whole process against one
that only reads the same files with json.loads, and against pytrec_eval and ranx computing nothing but the two
recalls. Each is a process of its own; they take turns, and the best of the rounds counts. To have the last
two, which nothing else here needs: pip install pytrec_eval-terrier ranx

Prints one table: what, measured, wanted, ok. Exit code 0 if every row is ok or could not be measured, else 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import evaluation  # noqa: E402

QUESTIONS, FEW_QUESTIONS = 100_000, 10_000
QUESTIONS_A_DOCUMENT, OTHERS_A_DOCUMENT = 50, 9  # about each gold document, and beside it for retrieval
RETRIEVED = 10
RIGHT = {"simple": 0.6, "strong": 0.9}  # how often the gold document is among the retrieved
LABELS = {
    "question_type": ("fact", "reasoning", "comparison", "summary"),
    "edge_case_type": ("none", "none", "ambiguous", "no answer"),
    "source_dataset": ("articles", "letters", "minutes"),
}
WORDS = (
    "lamp",
    "oil",
    "tide",
    "harbour",
    "clock",
    "seed",
    "bread",
    "metre",
    "press",
    "signal",
    "wind",
    "glass",
)

EVALUATION = (str(ROOT / "evaluation.py"), "dev")
IMPORT_NUMPY = ("-c", "import numpy")
READ_FILES = """
import json
from pathlib import Path
for system in ("simple", "strong"):
    json.loads(Path(f"dev_{system}_output.json").read_bytes())
"""
READ_RUNS = """
import json
from pathlib import Path
lines = Path("NLP Project Data/dev_final_jsonl.txt").read_text(encoding="utf-8").splitlines()
gold = {f"q{place:03d}": {json.loads(line)["doc_id"]: 1} for place, line in enumerate(lines, start=1)}
def runs():
    for system in ("simple", "strong"):
        rows = json.loads(Path(f"dev_{system}_output.json").read_bytes())
        yield {
            name: {entry["doc_id"]: entry["score"] for entry in row["retrieved_docs"]}
            for name, row in rows.items()
        }
"""
PYTREC_EVAL = f"""
import pytrec_eval
{READ_RUNS}
evaluator = pytrec_eval.RelevanceEvaluator(gold, {{"recall_1", "recall_5"}})
for run in runs():
    scores = evaluator.evaluate(run).values()
    print([sum(score[name] for score in scores) / len(scores) for name in ("recall_1", "recall_5")])
"""
RANX = f"""
from ranx import Qrels, Run, evaluate
{READ_RUNS}
qrels = Qrels(gold)
for run in runs():
    print(evaluate(qrels, Run(run), ["recall@1", "recall@5"]))
"""


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, and what it may be at most; None if it could not be measured."""

    what: str
    measured: float | None
    wanted: float

    @property
    def ok(self) -> bool:
        return self.measured is None or self.measured <= self.wanted

    def __str__(self) -> str:
        measured = "-" if self.measured is None else f"{self.measured:.3g}"
        verdict = "-" if self.measured is None else "ok" if self.ok else "NO"
        return f"{self.what:<88} {measured:>8}  <= {self.wanted:<5g} {verdict}"


Rows = Iterator[Row]


# --------------------------------------------------------------------------------------------- what is graded
FOLDERS: list[Path] = []  # taken away at the end


def temporary_folder() -> Path:
    FOLDERS.append(Path(tempfile.mkdtemp(prefix="bench_scale_")))
    return FOLDERS[-1]


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=7)).capitalize() + "."


def gold_row(rng: random.Random, doc_id: str) -> dict[str, object]:
    row = {"doc_id": doc_id, "question": sentence(rng), "answer": sentence(rng), "evidence_sentences": ["S1"]}
    return row | {label: rng.choice(values) for label, values in LABELS.items()}


def prediction(
    rng: random.Random, text: object, doc_id: str, documents: Sequence[str], right: float
) -> object:
    found = [name for name in rng.sample(documents, RETRIEVED) if name != doc_id]
    if rng.random() < right:
        found.insert(min(int(rng.expovariate(0.7)), RETRIEVED - 1), doc_id)
    ranked = enumerate(found[:RETRIEVED], start=1)
    entries = [{"doc_id": name, "score": round(20 / (rank + 1), 4), "rank": rank} for rank, name in ranked]
    cited = [f"S{rng.randint(1, 2)}"]
    return {"question": text, "answer": "No.", "evidence_sentences": cited, "retrieved_docs": entries}


@cache
def made_up_split(count: int) -> Path:
    """A folder with so many questions, two systems and the corpus; the same bytes for the same count."""
    folder, rng = temporary_folder(), random.Random(count)
    documents = [f"d{number:05d}" for number in range(count // QUESTIONS_A_DOCUMENT)]
    everything = [*documents, *(f"{name}-{n}" for name in documents for n in range(OTHERS_A_DOCUMENT))]
    (folder / evaluation.CORPUS_DIR).mkdir()
    for name in documents:
        rows = [{"sid": f"S{place}", "text": sentence(rng)} for place in (1, 2, 3)]
        text = json.dumps({"doc_id": name, "sentences": rows})
        (folder / evaluation.CORPUS_DIR / f"{name}.json").write_text(text, encoding="utf-8")
    gold = [gold_row(rng, documents[place % len(documents)]) for place in range(count)]
    path = folder / evaluation.QUESTIONS_FILE.format(split="dev")
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in gold), encoding="utf-8")
    for system, right in RIGHT.items():
        rows = {
            f"q{place:03d}": prediction(rng, row["question"], str(row["doc_id"]), everything, right)
            for place, row in enumerate(gold, start=1)
        }
        path = folder / evaluation.PREDICTIONS_FILE.format(split="dev", system=system)
        path.write_text(json.dumps(rows), encoding="utf-8")
    return folder


@cache
def sample_split() -> Path:
    """A folder with the sample data."""
    folder = temporary_folder()
    for name in (evaluation.CORPUS_DIR, Path(evaluation.QUESTIONS_FILE).parts[0]):
        shutil.copytree(ROOT / name, folder / name)
    for path in ROOT.glob("*_output.json"):
        shutil.copy(path, folder)
    return folder


# ----------------------------------------------------------------------------------------------- who is timed
def seconds(folder: Path, arguments: Sequence[str]) -> float:
    """How long a Python process takes from its start to its end."""
    environment = {name: value for name, value in os.environ.items() if name != evaluation.KEY_VARIABLE}
    command = [sys.executable, *arguments]
    start_s = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start_s


def best_of(rounds: int, *processes: tuple[Path, Sequence[str]]) -> list[float]:
    """The best time of each process, all of them taking turns."""
    times = [[seconds(*process) for process in processes] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def peak_gb(folder: Path, arguments: Sequence[str]) -> float | None:
    """The most memory that a Python process held, in GB; None where the system does not count it."""
    if importlib.util.find_spec("resource") is None:
        return None
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, capture_output=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, sys.executable, *arguments]
    run = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    unit = 1 if sys.platform == "darwin" else 1024
    return int(run.stdout) * unit / 1e9


# ------------------------------------------------------------------------------------------- what is measured
def against(rounds: int) -> Rows:
    """The whole process, against what others need for a part of it."""
    folder = made_up_split(QUESTIONS)
    files = [folder / evaluation.PREDICTIONS_FILE.format(split="dev", system=name) for name in RIGHT]
    size = f"{QUESTIONS} questions, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB"
    others = {
        "json": ("json.loads of the predictions", READ_FILES, 3.0),
        "pytrec_eval": ("pytrec_eval, the two recalls", PYTREC_EVAL, 1.5),
        "ranx": ("ranx, the two recalls", RANX, 0.4),
    }
    there = [name for name in others if importlib.util.find_spec(name)]
    if "ranx" in there:
        seconds(folder, ("-c", RANX))  # what it compiles once is charged to nobody
    processes = [(folder, ("-c", others[name][1])) for name in there]
    whole_s, *other_s = best_of(rounds, (folder, EVALUATION), *processes)
    times_s = dict(zip(there, other_s, strict=True))
    for name, (what, _, wanted) in others.items():
        if name in times_s:
            took = f"{whole_s:.1f} and {times_s[name]:.1f} s"
            yield Row(f"{size}: time against {what} ({took})", whole_s / times_s[name], wanted)
        else:
            yield Row(f"{size}: time against {what}: not installed", None, wanted)


def growth(rounds: int) -> Rows:
    """Ten times the questions."""
    few, many = (made_up_split(count) for count in (FEW_QUESTIONS, QUESTIONS))
    few_s, many_s = best_of(rounds, (few, EVALUATION), (many, EVALUATION))
    took = f"{few_s:.2f} and {many_s:.1f} s"
    yield Row(f"{FEW_QUESTIONS} to {QUESTIONS} questions: time ({took})", many_s / few_s, 11)


def memory(rounds: int) -> Rows:
    """The most that is held at one time."""
    peak = peak_gb(made_up_split(QUESTIONS), EVALUATION)
    missing = ": not counted on this system" if peak is None else ""
    yield Row(f"{QUESTIONS} questions: peak memory in GB{missing}", peak, 1.2)


def start(rounds: int) -> Rows:
    """The sample data, where starting is all."""
    folder = sample_split()
    few_s, numpy_s = best_of(5 * rounds, (folder, EVALUATION), (folder, IMPORT_NUMPY))
    took = f"{few_s * 1000:.0f} and {numpy_s * 1000:.0f} ms"
    yield Row(f"The sample questions: time against importing numpy ({took})", few_s / numpy_s, 1.5)


# ---------------------------------------------------------------------------------------------------- command
BENCHES: Mapping[str, Callable[[int], Rows]] = {
    "against": against,
    "growth": growth,
    "memory": memory,
    "start": start,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how cost grows with the work.")
    names = ", ".join(BENCHES)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=BENCHES, metavar="NAME", help=names)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the best of N (default: 3)")
    args = parser.parse_args()
    print(f"{'what':<88} {'measured':>8}  {'wanted':<8} ok")
    rows = []
    try:
        for name in args.only:
            for row in BENCHES[name](args.rounds):
                print(row, flush=True)
                rows.append(row)
    finally:
        for folder in FOLDERS:
            shutil.rmtree(folder)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
