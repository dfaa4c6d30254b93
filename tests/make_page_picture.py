"""Make tests/page.png, the picture of the HTML page in the README: python tests/make_page_picture.py

Grades the sample train split in a temporary folder. The judge is a local server that scores an answer by the
words it shares with the gold answer. Needs Chromium.
"""

from __future__ import annotations

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
OPENED_QUESTION = "q007"
GRADE = ("train", "--judge", "simple", "strong", "--report", "html")


def judge_by_words(call: Call) -> Reply:
    """Score from 1 to 5 by the share of the gold answer's words that the answer contains."""
    prompt = call.body["messages"][1]["content"]
    texts = dict(re.findall(r"^\[\w+ (\w+)\]\n(.*?)\n(?=\[)", prompt, re.MULTILINE | re.DOTALL))
    gold = set(texts["reference"].lower().split())
    answer = set(texts["answer"].lower().split())
    n_shared = len(gold & answer)
    score = 1 + min(4, int(n_shared / len(gold) * 8))
    return score_reply(score, f"{n_shared} of {len(gold)} words of the gold answer.")


def main() -> None:
    picture = ROOT / "tests/page.png"
    with tempfile.TemporaryDirectory() as folder, GroqServer(judge_by_words) as server:
        for name in ("corpus", "NLP Project Data"):
            shutil.copytree(ROOT / name, Path(folder, name))
        for file in ROOT.glob("train_*_output.json"):
            shutil.copy(file, folder)
        environment = {**os.environ, "GROQ_API_KEY": "any", "GROQ_BASE_URL": server.url}
        command = [sys.executable, str(ROOT / "evaluation.py"), *GRADE]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
            page = browser.new_page(viewport={"width": 1120, "height": 900})
            page.goto(Path(folder, "train_evaluation.html").as_uri() + f"#{OPENED_QUESTION}")
            page.screenshot(path=picture)
            browser.close()
    with Image.open(picture) as image:
        image.quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    main()
