"""Measure time and memory of grading without a judge, as ratios within one run.

    python tests/bench_scale.py [--rounds N] [--against FILE]

- 100,000 questions, two systems, 10 retrieved documents per prediction: the whole process against a process
  that only reads the same files with json.loads, and its peak memory.
- The sample dev split: the whole process against `import numpy`.

Time is processor time. The processes take turns, and the best of N rounds counts. With --against, another
evaluation.py is measured in the same rounds. The exit code is 0 if every figure is as required.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "evaluation.py"

N_QUESTIONS = 100_000
N_DOCUMENTS = 2_000
N_RETRIEVED = 10
HIT_RATES = {"simple": 0.6, "strong": 0.9}  # share of predictions that retrieve the gold document
TEXT = "lamp oil tide harbour clock seed bread metre press signal wind glass"
WORDS = TEXT.split()
LABELS = {
    "question_type": ("fact", "reasoning", "comparison", "summary"),
    "edge_case_type": ("none", "none", "ambiguous", "no answer"),
    "source_dataset": ("articles", "letters", "minutes"),
}

READ_FILES = """
import json
from pathlib import Path
for path in Path().glob("dev_*_output.json"):
    json.loads(path.read_bytes())
"""

# A small process measures, because the peak of a child is at least that of its parent. Linux counts in KiB.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
mib = 2**20 if sys.platform == "darwin" else 2**10
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / mib)
"""


class Cost(NamedTuple):
    seconds: float
    peak_mib: float


def measure(folder: Path, arguments: Sequence[str]) -> Cost:
    """Run Python with these arguments in a folder, without a key for the judge."""
    environment = {name: value for name, value in os.environ.items() if name != "GROQ_API_KEY"}
    command = [sys.executable, "-c", MEASURE, sys.executable, *arguments]
    run = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    seconds, peak_mib = run.stdout.split()
    return Cost(float(seconds), float(peak_mib))


def measure_in_turns(folder: Path, commands: Sequence[Sequence[str]], rounds: int) -> list[Cost]:
    """Return the least cost of each command, in their order."""
    costs: list[list[Cost]] = [[] for _ in commands]
    for _ in range(rounds):
        for command, own_costs in zip(commands, costs, strict=True):
            own_costs.append(measure(folder, command))
    return [Cost(*map(min, zip(*own_costs, strict=True))) for own_costs in costs]


def make_sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=7)).capitalize() + "."


def make_question(rng: random.Random, doc_id: str) -> dict[str, object]:
    labels = {name: rng.choice(values) for name, values in LABELS.items()}
    texts = {"question": make_sentence(rng), "answer": make_sentence(rng)}
    return {**labels, "doc_id": doc_id, **texts, "evidence_sentences": ["S1"]}


def make_prediction(
    rng: random.Random, question: dict[str, object], doc_ids: Sequence[str], hit_rate: float
) -> dict[str, object]:
    ids = [doc_id for doc_id in rng.sample(doc_ids, N_RETRIEVED) if doc_id != question["doc_id"]]
    if rng.random() < hit_rate:
        ids.insert(min(int(rng.expovariate(0.7)), N_RETRIEVED - 1), str(question["doc_id"]))
    ranked = enumerate(ids[:N_RETRIEVED], start=1)
    return {
        "question": question["question"],
        "answer": "No.",
        "evidence_sentences": [f"S{rng.randint(1, 2)}"],
        "retrieved_docs": [
            {"doc_id": doc_id, "score": round(20 / (rank + 1), 4), "rank": rank} for rank, doc_id in ranked
        ],
    }


def write_large_split(folder: Path) -> None:
    """Write questions, predictions and gold documents; the same bytes each time."""
    rng = random.Random(1)
    gold_ids = [f"d{number:05d}" for number in range(N_DOCUMENTS)]
    doc_ids = [f"d{number:05d}" for number in range(10 * N_DOCUMENTS)]
    (folder / "corpus").mkdir(parents=True)
    for doc_id in gold_ids:
        sentences = [{"sid": f"S{number}", "text": make_sentence(rng)} for number in (1, 2, 3)]
        content = json.dumps({"doc_id": doc_id, "sentences": sentences})
        (folder / f"corpus/{doc_id}.json").write_text(content, encoding="utf-8")
    questions = [make_question(rng, gold_ids[number % N_DOCUMENTS]) for number in range(N_QUESTIONS)]
    (folder / "NLP Project Data").mkdir()
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    (folder / "NLP Project Data/dev_final_jsonl.txt").write_text(lines, encoding="utf-8")
    for system, hit_rate in HIT_RATES.items():
        predictions = {}
        for number, question in enumerate(questions, start=1):
            predictions[f"q{number:03d}"] = make_prediction(rng, question, doc_ids, hit_rate)
        (folder / f"dev_{system}_output.json").write_text(json.dumps(predictions), encoding="utf-8")


def copy_sample_split(folder: Path) -> None:
    for name in ("corpus", "NLP Project Data"):
        shutil.copytree(ROOT / name, folder / name)
    for path in ROOT.glob("dev_*_output.json"):
        shutil.copy(path, folder)


def print_row(what: str, measured: float, limit: float | None) -> bool:
    """Print a figure and return whether it is as required."""
    ok = limit is None or measured <= limit
    required = "-" if limit is None else f"<= {limit:g}"
    print(f"{what:<72} {measured:>8.2f}  {required:<7} {'ok' if ok else 'NO'}", flush=True)
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the best of N (default: 3)")
    parser.add_argument("--against", type=Path, metavar="FILE", help="measure this evaluation.py, too")
    arguments = parser.parse_args()
    programs = {"evaluation.py": PROGRAM}
    if arguments.against:
        programs[str(arguments.against)] = arguments.against.resolve()
    commands = [(str(program), "dev") for program in programs.values()]
    all_ok = True
    with tempfile.TemporaryDirectory(prefix="bench_scale_") as name:
        large, sample = Path(name, "large"), Path(name, "sample")
        write_large_split(large)
        copy_sample_split(sample)
        *costs, json_cost = measure_in_turns(large, [*commands, ("-c", READ_FILES)], arguments.rounds)
        print(f"{N_QUESTIONS} questions; json.loads of the predictions takes {json_cost.seconds:.2f} s")
        for index, (program, cost) in enumerate(zip(programs, costs, strict=True)):
            limits = (1.7, 800) if index == 0 else (None, None)
            all_ok &= print_row(f"{program}: time / json.loads", cost.seconds / json_cost.seconds, limits[0])
            all_ok &= print_row(f"{program}: peak MiB", cost.peak_mib, limits[1])
        rounds = 5 * arguments.rounds
        *costs, numpy_cost = measure_in_turns(sample, [*commands, ("-c", "import numpy")], rounds)
        print(f"Sample dev split; import numpy takes {1000 * numpy_cost.seconds:.0f} ms")
        for index, (program, cost) in enumerate(zip(programs, costs, strict=True)):
            limit = 2.7 if index == 0 else None
            all_ok &= print_row(f"{program}: time / import numpy", cost.seconds / numpy_cost.seconds, limit)
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
