"""Make tests/page.png, the picture in the README: python tests/make_page_picture.py

Grades a small class, made of the sample submissions. A local server is the judge. Its reasons for the answers
on the picture are written by hand; others are scored by shared words. Needs Chromium.
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
from playwright.sync_api import sync_playwright

from browser import ARGUMENTS, find_browser
from groq_server import Call, GroqServer, Reply, score_reply

ROOT = Path(__file__).resolve().parent.parent
GRADE = ("dev", "--report", "html", "--submissions", "submissions/*")
NAMES = ("cleo", "dana", "emil", "fatma", "gil", "hana", "ivo", "jun", "kim", "lena")
WIDTH, GAP = 1120, 12  # pixels
PAGES = {  # -> what is shown at the end
    "dev_graded/ann/dev_evaluation.html": ".question:nth-child(6)",
    "dev_leaderboard.html": ".sortable",
}
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


def main() -> None:
    picture = Image.new("RGB", (WIDTH, 4000), "#888")
    top = 0
    with tempfile.TemporaryDirectory() as name, GroqServer(judge) as server, sync_playwright() as playwright:
        folder = Path(name)
        for part in ("corpus", "NLP Project Data"):
            shutil.copytree(ROOT / part, folder / part)
        write_class(folder)
        environment = {**os.environ, "GROQ_API_KEY": "any", "GROQ_BASE_URL": server.url}
        command = [sys.executable, str(ROOT / "evaluation.py"), *GRADE]
        subprocess.run(command, cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 2000}, color_scheme="light")
        for path, last in PAGES.items():
            page.goto((folder / path).as_uri())
            box = page.locator(last).first.bounding_box() or {"y": 0, "height": 0}
            height = int(box["y"] + box["height"]) + 10
            shot = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
            picture.paste(Image.open(io.BytesIO(shot)), (0, top))
            top += height + GAP
    picture.crop((0, 0, WIDTH, top - GAP)).quantize(64).save(ROOT / "tests/page.png", optimize=True)


if __name__ == "__main__":
    main()
