"""Make the README's pictures, tests/page.png and tests/leaderboard.png: python tests/make_page_picture.py

Grades the sample split `dev`, of whose page the first question is shown, and a small class made of the sample
submissions. A local server is the judge. Its reasons for the answers of `strong` are written by hand; others
are scored by shared words. Needs Chromium.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Locator, Page, sync_playwright

from browser import ARGUMENTS, find_browser
from groq_server import Call, GroqServer, Reply, score_reply

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("cleo", "dana", "emil", "gil", "kim")
WIDTH, HEIGHT = 1120, 600  # of a picture at most, in pixels
MARGIN = 10
REASONS = {  # beginning of an answer -> score and reason
    "The corner fittings and": (3, "Tantlinger is right. The patent was given up, not licensed."),
    "One kilogram of dried": (2, "Three stigmas are right; 75,000 flowers and two kilograms are not."),
    "The rocking of a ship": (5, "Names both troubles and each of Harrison's inventions against them."),
    "Gutenberg had borrowed": (3, "Has lawsuit and fighting, but neither Schöffer nor Subiaco and Venice."),
    "At Bidston Arthur": (1, "Invents twenty-four people; the document gives no number."),
    "He did not in fact": (5, "Corrects the question and explains the difference by distance."),
}


def judge(call: Call) -> Reply:
    texts = dict(re.findall(r"(?ms)^\[\w+ (\w+)\]\n(.*?)\n(?=\[)", call.body["messages"][1]["content"]))
    for beginning, (score, reason) in REASONS.items():
        if texts["answer"].startswith(beginning):
            return score_reply(score, reason)
    gold = set(texts["reference"].lower().split())
    n_shared = len(gold & set(texts["answer"].lower().split()))
    return score_reply(1 + min(4, int(n_shared / len(gold) * 8)), "Some of the gold answer is there.")


def write_class(folder: Path) -> None:
    """Write submissions: each is right on other questions than the next, and one is cut off."""
    samples = ROOT / "tests/samples/submissions"
    shutil.copytree(samples, folder / "submissions")
    strong = json.loads((samples / "ann/dev_final_output.json").read_text("utf-8"))
    simple = json.loads((samples / "bob/dev_bm25_output.json").read_text("utf-8"))
    for number, name in enumerate(NAMES, start=1):
        rows = {key: (strong, simple)[number >> place & 1][key] for place, key in enumerate(strong)}
        path = folder / f"submissions/{name}/dev_final_output.json"
        path.parent.mkdir()
        path.write_text(json.dumps(rows)[: 900 if name == "kim" else None], "utf-8")


def grade(folder: Path, url: str, *options: str) -> None:
    environment = {**os.environ, "GROQ_API_KEY": "any", "GROQ_BASE_URL": url}
    command = [sys.executable, str(ROOT / "evaluation.py"), "dev", "--report", "html", *options]
    subprocess.run(command, cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL)


def take_picture(page: Page, top: float, bottom: float, name: str) -> None:
    """Save a part of the page. One that is too high is made smaller."""
    clip: FloatRect = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
    picture = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    picture.thumbnail((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    picture.quantize(64).save(ROOT / "tests" / name, optimize=True)


def find_edges(locator: Locator) -> tuple[float, float]:
    box = locator.bounding_box()
    assert box is not None
    return box["y"], box["y"] + box["height"]


def main() -> None:
    with tempfile.TemporaryDirectory() as name, GroqServer(judge) as server, sync_playwright() as playwright:
        folder = Path(name)
        for part in ("corpus", "NLP Project Data"):
            shutil.copytree(ROOT / part, folder / part)
        for path in ROOT.glob("dev_*_output.json"):
            shutil.copy(path, folder)
        write_class(folder)
        grade(folder, server.url)
        grade(folder, server.url, "--submissions", "submissions/*")
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 3000}, color_scheme="light")

        page.goto((folder / "dev_evaluation.html").as_uri())
        top, _ = find_edges(page.locator("section:has(.question)"))
        first = page.locator(".question").first
        first.locator("summary").click()
        _, bottom = find_edges(first.locator(".cards"))
        take_picture(page, top, bottom + MARGIN, "page.png")

        page.goto((folder / "dev_leaderboard.html").as_uri())
        _, bottom = find_edges(page.locator(".sortable").first)
        take_picture(page, 0, bottom + MARGIN, "leaderboard.png")


if __name__ == "__main__":
    main()
