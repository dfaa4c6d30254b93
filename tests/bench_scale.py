"""Measure time and memory of grading without a judge, as ratios within one run.

    python tests/bench_scale.py [--rounds N] [--against FILE] [--folder DIR] [--quick]

- A large split: the whole process against a process that only reads the same files with json.loads, and its
  peak memory. It is as heavy as real data: 100,000 questions with rubrics (116 MB), predictions with long
  answers and 10 retrieved documents each (127 MB), predictions without retrieval (29 MB), 5,000 documents.
- The sample dev split: the whole process against `import numpy`.

Time is processor time. The processes take turns, and the best of N rounds counts. With --against, another
evaluation.py is measured in the same rounds. With --folder, the large split is kept in DIR; if DIR exists,
it is used as it is. The exit code is 0 if every figure is as required. With --quick the large split is small,
and no figure has a bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

Question = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "evaluation.py"

N_QUESTIONS, N_QUICK = 100_000, 2_000
N_DOCUMENTS = 5_000
N_SENTENCES = 20  # of a document
N_RETRIEVED = 10
SIDS = [f"S{number}" for number in range(1, N_SENTENCES + 1)]
TEXT = "lamp oil tide harbour clock seed bread metre press signal wind glass"
WORDS = TEXT.split()
LABELS = {
    "question_type": ("fact", "reasoning", "comparison", "summary"),
    "edge_case_type": ("none", "none", "ambiguous", "no answer"),
    "source_dataset": ("articles", "letters", "minutes"),
}
QUESTIONS_FILE = "NLP Project Data/dev_final_jsonl.txt"
PREDICTIONS_FILES = "dev_*_output.json"

READ_FILES = f"""
import json
from pathlib import Path
with open("{QUESTIONS_FILE}", encoding="utf-8") as lines:
    questions = [json.loads(line) for line in lines]
predictions = [json.loads(path.read_bytes()) for path in Path().glob("{PREDICTIONS_FILES}")]
"""

# A small process measures, because the peak of a child is at least that of its parent. Linux counts in KiB.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
mib = 2**20 if sys.platform == "darwin" else 2**10
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / mib)
"""


class SystemStyle(NamedTuple):
    """How a system answers the questions of the large split."""

    hit_rate: float  # share of gold sentences that it cites, and of gold documents that it retrieves
    n_sentences: int  # of an answer
    retrieves: bool


STYLES = {"simple": SystemStyle(0.6, 13, True), "strong": SystemStyle(0.8, 2, False)}


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


def make_sentences(rng: random.Random, n_sentences: int) -> list[str]:
    """Make sentences of 2 to 6 words, most of which are two words in one: "lampoil"."""
    words = [*WORDS, *map("".join, itertools.permutations(WORDS, 2))]
    return [" ".join(rng.choices(words, k=rng.randint(2, 6))).capitalize() + "." for _ in range(n_sentences)]


def make_text(rng: random.Random, pool: Sequence[str], n_sentences: int) -> str:
    return " ".join(rng.choices(pool, k=n_sentences))


def make_question(rng: random.Random, pool: Sequence[str], doc_id: str) -> Question:
    labels = {name: rng.choice(values) for name, values in LABELS.items()}
    scale = {str(level): make_text(rng, pool, 3) for level in range(1, 6)}
    return {
        "doc_id": doc_id,
        **labels,
        "question": make_text(rng, pool, 3),
        "answer": make_text(rng, pool, 2),
        "evidence_sentences": rng.sample(SIDS, rng.randint(1, 3)),
        "rubric": {"description": make_text(rng, pool, 2), "scale": scale},
    }


def make_prediction(
    rng: random.Random, pool: Sequence[str], question: Question, doc_ids: Sequence[str], style: SystemStyle
) -> dict[str, object]:
    cited = [sid for sid in question["evidence_sentences"] if rng.random() < style.hit_rate]
    prediction = {
        "question": question["question"],
        "answer": make_text(rng, pool, style.n_sentences),
        "evidence_sentences": [*cited, rng.choice(SIDS)],
    }
    if style.retrieves:
        prediction["retrieved_docs"] = make_ranking(rng, question["doc_id"], doc_ids, style.hit_rate)
    return prediction


def make_ranking(
    rng: random.Random, gold_id: str, doc_ids: Sequence[str], hit_rate: float
) -> list[dict[str, object]]:
    """Rank documents; the gold one is among them with the probability `hit_rate`, most often first."""
    ids = [doc_id for doc_id in rng.sample(doc_ids, N_RETRIEVED + 1) if doc_id != gold_id]
    if rng.random() < hit_rate:
        ids.insert(min(int(rng.expovariate(0.7)), N_RETRIEVED - 1), gold_id)
    ranked = enumerate(ids[:N_RETRIEVED], start=1)
    return [{"doc_id": doc_id, "score": round(20 / (rank + 1), 4), "rank": rank} for rank, doc_id in ranked]


def write_large_split(folder: Path, n_questions: int) -> None:
    """Write questions, predictions and documents; the same bytes each time."""
    rng = random.Random(1)
    pool = make_sentences(rng, 10_000)
    doc_ids = [f"doc{number:05d}" for number in range(N_DOCUMENTS)]
    (folder / "corpus").mkdir(parents=True)
    for doc_id in doc_ids:
        sentences = [{"sid": sid, "text": make_text(rng, pool, 3)} for sid in SIDS]
        content = json.dumps({"doc_id": doc_id, "sentences": sentences})
        (folder / f"corpus/{doc_id}.json").write_text(content, encoding="utf-8")
    questions = [make_question(rng, pool, doc_ids[number % N_DOCUMENTS]) for number in range(n_questions)]
    (folder / QUESTIONS_FILE).parent.mkdir()
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    (folder / QUESTIONS_FILE).write_text(lines, encoding="utf-8")
    for system, style in STYLES.items():
        predictions = {}
        for number, question in enumerate(questions, start=1):
            predictions[f"q{number:03d}"] = make_prediction(rng, pool, question, doc_ids, style)
        path = folder / PREDICTIONS_FILES.replace("*", system)
        path.write_text(json.dumps(predictions), encoding="utf-8")


def copy_sample_split(folder: Path) -> None:
    for name in ("corpus", "NLP Project Data"):
        shutil.copytree(ROOT / name, folder / name)
    for path in ROOT.glob(PREDICTIONS_FILES):
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
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the large split here, or use it")
    parser.add_argument("--quick", action="store_true", help="use a small split once: does it work?")
    arguments = parser.parse_args()
    n_questions, n_rounds = (N_QUICK, 1) if arguments.quick else (N_QUESTIONS, arguments.rounds)
    programs = {"evaluation.py": PROGRAM}
    if arguments.against:
        programs[str(arguments.against)] = arguments.against.resolve()
    commands = [(str(program), "dev") for program in programs.values()]
    all_ok = True
    with tempfile.TemporaryDirectory(prefix="bench_scale_") as name:
        large, sample = arguments.folder or Path(name, "large"), Path(name, "sample")
        if not large.exists():
            write_large_split(large, n_questions)
        copy_sample_split(sample)
        *costs, json_cost = measure_in_turns(large, [*commands, ("-c", READ_FILES)], n_rounds)
        print(f"{n_questions} questions; json.loads of their files takes {json_cost.seconds:.2f} s")
        for index, (program, cost) in enumerate(zip(programs, costs, strict=True)):
            limits = (1.6, 700) if index == 0 and not arguments.quick else (None, None)
            all_ok &= print_row(f"{program}: time / json.loads", cost.seconds / json_cost.seconds, limits[0])
            all_ok &= print_row(f"{program}: peak MiB", cost.peak_mib, limits[1])
        rounds = 5 * n_rounds
        *costs, numpy_cost = measure_in_turns(sample, [*commands, ("-c", "import numpy")], rounds)
        print(f"Sample dev split; import numpy takes {1000 * numpy_cost.seconds:.0f} ms")
        for index, (program, cost) in enumerate(zip(programs, costs, strict=True)):
            limit = 2.4 if index == 0 and not arguments.quick else None
            all_ok &= print_row(f"{program}: time / import numpy", cost.seconds / numpy_cost.seconds, limit)
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
