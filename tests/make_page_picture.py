"""Make tests/page.png, the picture in the README: python tests/make_page_picture.py

Grades a small class, made of the sample submissions, in a temporary folder. A local server is the judge. Its
reasons for the answers on the picture are written by hand; other answers are scored by the words that they
share with the gold answer. Needs Chromium.
"""

from __future__ import annotations

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
WIDTH = 1120
PAGES = {  # -> what is shown at the end
    "dev_graded/ann/dev_evaluation.html": ".question:nth-child(3)",
    "dev_leaderboard.html": ".sortable",
}
REASONS = {  # beginning of an answer -> score and reason
    "The corner fittings and": (3, "Tantlinger is right. The patent was given up, not licensed."),
    "One kilogram of dried": (2, "Three stigmas are right; 75,000 flowers and two kilograms are not."),
    "The rocking of a ship": (5, "Names both troubles and each of Harrison's inventions against them."),
    "Gutenberg had borrowed": (
        3,
        "The lawsuit and the fighting, but neither Schöffer nor Subiaco and Venice.",
    ),
    "At Bidston Arthur": (1, "Invents twenty-four people; the document gives no number."),
    "He did not in fact": (5, "Corrects the question and explains the difference by distance."),
}


def judge(call: Call) -> Reply:
    prompt = call.body["messages"][1]["content"]
    texts = dict(re.findall(r"^\[\w+ (\w+)\]\n(.*?)\n(?=\[)", prompt, re.MULTILINE | re.DOTALL))
    for beginning, (score, reason) in REASONS.items():
        if texts["answer"].startswith(beginning):
            return score_reply(score, reason)
    gold = set(texts["reference"].lower().split())
    n_shared = len(gold & set(texts["answer"].lower().split()))
    return score_reply(1 + min(4, int(n_shared / len(gold) * 8)), "Some of the gold answer is there.")


def write_class(folder: Path) -> None:
    """Write twelve submissions: each is right on other questions than the next, and one is cut off."""
    samples = ROOT / "tests/samples/submissions"
    shutil.copytree(samples, folder / "submissions")
    strong = json.loads((samples / "ann/dev_final_output.json").read_text("utf-8"))
    simple = json.loads((samples / "bob/dev_bm25_output.json").read_text("utf-8"))
    names = ("cleo", "dana", "emil", "fatma", "gil", "hana", "ivo", "jun", "kim", "lena")
    for number, name in enumerate(names, start=1):
        rows = {key: (strong, simple)[number >> place & 1][key] for place, key in enumerate(strong)}
        path = folder / f"submissions/{name}/dev_final_output.json"
        path.parent.mkdir()
        path.write_text(json.dumps(rows)[: 900 if name == "kim" else None], "utf-8")


def main() -> None:
    picture = ROOT / "tests/page.png"
    with tempfile.TemporaryDirectory() as name, GroqServer(judge) as server:
        folder = Path(name)
        for part in ("corpus", "NLP Project Data"):
            shutil.copytree(ROOT / part, folder / part)
        write_class(folder)
        environment = {**os.environ, "GROQ_API_KEY": "any", "GROQ_BASE_URL": server.url}
        command = [
            sys.executable,
            str(ROOT / "evaluation.py"),
            "dev",
            "--report",
            "html",
            "--outputs",
            "submissions/*",
        ]
        subprocess.run(command, cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
            page = browser.new_page(viewport={"width": WIDTH, "height": 2000}, color_scheme="light")
            images = []
            for path, last in PAGES.items():
                page.goto((folder / path).as_uri())
                box = page.locator(last).first.bounding_box() or {"y": 0, "height": 0}
                height = box["y"] + box["height"] + 10
                picture.write_bytes(page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height}))
                with Image.open(picture) as image:
                    images.append(image.copy())
            browser.close()
    whole = Image.new("RGB", (WIDTH, sum(image.height + 12 for image in images) - 12), "#888")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height + 12
    whole.quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    main()
