"""Measure the page of a large split: its size and the time to open it in Chromium.

    python tests/bench_page.py [--quick]

2,000 questions, each about a document of its own, and two systems, judged by the loopback server; times are
the median of five. With --quick 200 questions, once. The exit code is 0 if every figure is as required.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from bench_scale import PROGRAM, WORDS, print_row
from browser import ARGUMENTS, find_browser
from groq_server import GroqServer, score_reply

SYSTEMS = ("simple", "strong")
LEVEL_CHARS, SENTENCE_CHARS, QUESTION_CHARS, RATIONALE_CHARS, ANSWER_CHARS = 90, 80, 90, 200, 300
PAGE = "dev_evaluation.html"
GRADE = (str(PROGRAM), "dev", "--judge", *SYSTEMS, "--report", "html")

# Seconds from navigation to the load event and to the first paint; null until both are known.
TIMES = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const {loadEventEnd} = performance.getEntriesByType("navigation")[0];
  return paint && loadEventEnd ? {load_s: loadEventEnd / 1000, paint_s: paint.startTime / 1000} : null;
}"""


def make_text(rng: random.Random, n_chars: int) -> str:
    return " ".join(rng.choices(WORDS, k=n_chars // 4))[:n_chars].strip().capitalize()


def write_split(folder: Path, n_questions: int) -> None:
    """Write a split and two systems that answer all questions, with texts as long as real ones."""
    rng = random.Random(1)
    sids = [f"S{number}" for number in range(1, 26)]
    questions = []
    predictions: dict[str, dict[str, object]] = {system: {} for system in SYSTEMS}
    for name in ("corpus", "NLP Project Data"):
        (folder / name).mkdir(parents=True)
    for number in range(1, n_questions + 1):
        sentences = [{"sid": sid, "text": make_text(rng, SENTENCE_CHARS)} for sid in sids]
        document = {"doc_id": f"d{number}", "sentences": sentences}
        (folder / f"corpus/d{number}.json").write_text(json.dumps(document), encoding="utf-8")
        scale = {str(level): make_text(rng, LEVEL_CHARS) for level in range(1, 6)}
        question = {
            "doc_id": f"d{number}",
            "question": f"{make_text(rng, QUESTION_CHARS)}?",
            "answer": make_text(rng, ANSWER_CHARS),
            "evidence_sentences": rng.sample(sids, 2),
            "rubric": {"description": make_text(rng, LEVEL_CHARS), "scale": scale},
            "question_type": rng.choice(("fact", "reasoning", "comparison", "summary")),
        }
        questions.append(json.dumps(question) + "\n")
        for rows in predictions.values():
            answer = {"answer": make_text(rng, ANSWER_CHARS), "evidence_sentences": rng.sample(sids, 2)}
            rows[f"q{number:03d}"] = {**answer, "retrieved_docs": [f"d{number}", "d1", "d2", "d3", "d4"]}
    (folder / "NLP Project Data/dev_final_jsonl.txt").write_text("".join(questions), encoding="utf-8")
    for system, rows in predictions.items():
        (folder / f"dev_{system}_output.json").write_text(json.dumps(rows), encoding="utf-8")


def write_page(folder: Path) -> None:
    rationale = make_text(random.Random(2), RATIONALE_CHARS)
    with GroqServer(lambda call: score_reply(1 + call.number % 5, rationale)) as server:
        environment = {**os.environ, "GROQ_API_KEY": "gsk_loopback", "GROQ_BASE_URL": server.url}
        subprocess.run([sys.executable, *GRADE], cwd=folder, env=environment, check=True, capture_output=True)


def open_page(path: Path, rounds: int) -> dict[str, float]:
    """Return the median of each time."""
    measured: list[dict[str, float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        for _ in range(rounds):
            page = browser.new_page()
            page.goto(path.as_uri())
            measured.append(page.wait_for_function(TIMES).json_value())
            page.close()
        browser.close()
    return {name: statistics.median(times[name] for times in measured) for name in ("load_s", "paint_s")}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="use a small split: does it work?")
    n_questions, n_rounds = (200, 1) if parser.parse_args().quick else (2_000, 5)
    if find_browser() is None:
        raise SystemExit("no Chromium found")
    with tempfile.TemporaryDirectory(prefix="bench_page_") as name:
        write_split(Path(name), n_questions)
        write_page(Path(name))
        size_mb = Path(name, PAGE).stat().st_size / 1e6
        times = open_page(Path(name, PAGE), n_rounds)
    all_ok = print_row("size of the page, MB", size_mb, 10.0)
    all_ok &= print_row("Chromium, navigation to load, s", times["load_s"], 2.0)
    all_ok &= print_row("Chromium, navigation to first contentful paint, s", times["paint_s"], 2.0)
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
