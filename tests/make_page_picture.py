"""Make tests/page.png, the README's picture of the HTML page: python tests/make_page_picture.py

It grades the sample train split in a temporary folder. No model judges here: the scores come from a stand-in
on this machine, which counts the words that an answer shares with the gold answer. Needs Chromium.
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

from browser import find_browser
from groq_server import Call, GroqServer, Reply, score_reply

ROOT = Path(__file__).resolve().parent.parent
OPENED = "q007"


def judge_by_words(call: Call) -> Reply:
    """1 to 5 by the share of the gold answer's words that the answer has."""
    prompt = call.body["messages"][1]["content"]
    pasted = dict(re.findall(r"^\[\w+ (\w+)\]\n(.*?)\n(?=\[)", prompt, re.MULTILINE | re.DOTALL))
    gold, answer = (set(pasted[name].lower().split()) for name in ("reference", "answer"))
    share = len(gold & answer) / len(gold)
    return score_reply(
        1 + min(4, int(share * 8)), f"{len(gold & answer)} of {len(gold)} words of the gold answer."
    )


def main() -> None:
    picture = ROOT / "tests/page.png"
    with tempfile.TemporaryDirectory() as folder, GroqServer(judge_by_words) as server:
        for name in ("corpus", "NLP Project Data"):
            shutil.copytree(ROOT / name, Path(folder, name))
        for file in ROOT.glob("train_*_output.json"):
            shutil.copy(file, folder)
        environment = {**os.environ, "GROQ_API_KEY": "any", "GROQ_BASE_URL": server.url}
        command = [sys.executable, str(ROOT / "evaluation.py"), "train", "--report", "html"]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1120, "height": 900})
            page.goto(Path(folder, "train_evaluation.html").as_uri() + f"#{OPENED}")
            page.screenshot(path=picture)
            browser.close()
    with Image.open(picture) as image:
        image.quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    main()
