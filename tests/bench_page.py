"""Measure the page of a large hand-in: how big it is, how long it takes to render and to open.

    python tests/bench_page.py [--questions N] [--rounds N]

2,000 questions, each about a document of its own, two systems, every answer judged by a stand-in. The program
runs as a process of its own. Chromium opens the page and one with a single question in turns; the median of
the rounds counts. Every figure stands as it is, and as a ratio to that of the page with a single question.

Prints one table: what, measured, ratio, wanted, ok. Exit code 0 if every row is ok, else 1.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import evaluation  # noqa: E402

from browser import ARGUMENTS, find_browser  # noqa: E402

QUESTIONS, SENTENCES = 2_000, 25
LEVEL_CHARS, ANSWER_CHARS, SENTENCE_CHARS = 90, 300, 80
TYPES = ("fact", "reasoning", "comparison", "summary")
WORDS = ("lamp", "oil", "tide", "harbour", "clock", "seed", "bread", "metre", "press", "signal", "wind")
PAGE = "dev_evaluation.html"
MEGABYTE = 1_000_000


# --------------------------------------------------------------------------------------------- what is graded
def prose(rng: random.Random, chars: int) -> str:
    """Words of so many characters in all."""
    return " ".join(rng.choices(WORDS, k=chars // 4))[:chars].strip().capitalize()


def write_split(folder: Path, questions: int, sentence_chars: int = SENTENCE_CHARS) -> None:
    """A split of so many questions, and two systems that answer them all, with texts as long as real ones."""
    rng = random.Random(1)
    for name in ("corpus", "NLP Project Data"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sids = [f"S{place}" for place in range(1, SENTENCES + 1)]
    rows: list[str] = []
    systems: dict[str, dict[str, object]] = {name: {} for name in evaluation.SYSTEMS}
    for place in range(1, questions + 1):
        document = {
            "doc_id": f"d{place}",
            "sentences": [{"sid": sid, "text": prose(rng, sentence_chars)} for sid in sids],
        }
        (folder / f"corpus/d{place}.json").write_text(json.dumps(document), encoding="utf-8")
        scale = {level: prose(rng, LEVEL_CHARS) for level in evaluation.RUBRIC_LEVELS}
        row = {
            "doc_id": f"d{place}",
            "question": f"{prose(rng, 90)}?",
            "answer": prose(rng, ANSWER_CHARS),
            "evidence_sentences": rng.sample(sids, 2),
            "rubric": {"description": prose(rng, LEVEL_CHARS), "scale": scale},
            "question_type": rng.choice(TYPES),
        }
        rows.append(json.dumps(row) + "\n")
        for predictions in systems.values():
            predictions[f"q{place:03d}"] = {
                "answer": prose(rng, ANSWER_CHARS),
                "evidence_sentences": rng.sample(sids, 2),
                "retrieved_docs": [f"d{place}", "d1", "d2", "d3", "d4"],
            }
    (folder / "NLP Project Data/dev_final_jsonl.txt").write_text("".join(rows), encoding="utf-8")
    for name, predictions in systems.items():
        (folder / f"dev_{name}_output.json").write_text(json.dumps(predictions), encoding="utf-8")


def judge(requests: Sequence[evaluation.JudgeRequest]) -> evaluation.JudgeRun:
    """A stand-in: every score equally often, each with a rationale as long as a judge may make it."""
    rng = random.Random(2)
    outcomes = (evaluation.Judgement(rng.randint(1, 5), prose(rng, 200)) for _ in requests)
    return evaluation.JudgeRun("stand-in", "stand-in", tuple(outcomes))


ARGUMENTS_JUDGED = ("dev", "--judge", *evaluation.SYSTEMS, "--report", "html")


def grade() -> None:
    """Grade the current folder. The last line on stdout says how long it took, and the peak of memory."""
    spent: list[float] = []

    def render(report: evaluation.Report) -> str:
        started = time.perf_counter()
        page = evaluation.render_page(report)
        spent.append(time.perf_counter() - started)
        return page

    evaluation.connect_judge = lambda *_, **__: judge
    evaluation.REPORTS = {**evaluation.REPORTS, "html": {evaluation.REPORT_PAGE: render}}
    started = time.perf_counter()
    code = evaluation.main(ARGUMENTS_JUDGED)
    total = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
    print(json.dumps({"code": code, "run_s": total, "render_s": spent[0], "peak_mib": peak}))


# ----------------------------------------------------------------------------------------------- measurements
class Row(NamedTuple):
    """One line of the table; what may be at most has no bound where it is infinite."""

    what: str
    measured: float
    small: float  # the same of the page with a single question
    wanted: float = float("inf")

    @property
    def ok(self) -> bool:
        return self.measured < self.wanted

    def __str__(self) -> str:
        bound = f"< {self.wanted:g}" if self.wanted < float("inf") else "-"
        ratio = f"{self.measured / self.small:.1f}"
        return f"{self.what:<52} {self.measured:>9.3f} {ratio:>9} {bound:>6} {'ok' if self.ok else 'NO'}"


def written(folder: Path, questions: int) -> dict[str, float]:
    """Write the page; its size, and what the program took."""
    write_split(folder, questions)
    command = [sys.executable, __file__, "--grade"]
    run = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    if figures["code"] != 0:
        raise SystemExit(f"the program ended with {figures['code']}")
    return {**figures, "page_mb": (folder / PAGE).stat().st_size / MEGABYTE}


TIMES = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const {loadEventEnd} = performance.getEntriesByType("navigation")[0];
  return paint && loadEventEnd ? {load_s: loadEventEnd / 1000, paint_s: paint.startTime / 1000} : null;
}"""


def opened(browser: Browser, path: Path) -> dict[str, float]:
    """Seconds from navigation to `load` and to the first paint, in a window of its own."""
    page = browser.new_page()
    page.goto(path.as_uri())
    times: Any = page.wait_for_function(TIMES).json_value()
    page.close()
    return dict(times)


def measure(questions: int, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench_page_") as name:
        folders = {"large": Path(name, "large"), "small": Path(name, "small")}
        found = {
            "large": written(folders["large"], questions),
            "small": written(folders["small"], 1),
        }
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
            times: dict[str, list[dict[str, float]]] = {which: [] for which in folders}
            for _ in range(rounds):
                for which, folder in folders.items():
                    times[which].append(opened(browser, folder / PAGE))
            browser.close()
    for which, rows in times.items():
        for figure in ("load_s", "paint_s"):
            found[which][figure] = statistics.median(row[figure] for row in rows)
    rows = {
        "size of the page, MB": ("page_mb", 10),
        "program, s": ("run_s",),
        "of which rendering the page, s": ("render_s",),
        "program, peak of memory, MiB": ("peak_mib",),
        "Chromium, navigation to load, s": ("load_s", 2),
        "Chromium, navigation to first contentful paint, s": ("paint_s", 2),
    }
    return [
        Row(what, found["large"][figure], found["small"][figure], *wanted)
        for what, (figure, *wanted) in rows.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grade", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.grade:
        grade()
        return 0
    if find_browser() is None:
        raise SystemExit("there is no Chromium here")
    rows = measure(arguments.questions, arguments.rounds)
    print(f"{'what':<52} {'measured':>9} {'ratio':>9} {'wanted':>6}")
    print(*rows, sep="\n")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
