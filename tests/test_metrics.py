"""Retrieval, citation and evidence scores by hand, and the blocks of the results file."""

from __future__ import annotations

import evaluation
import pytest

from conftest import JudgeWith, Project, question, table

Ids = list[str]


@table(
    "retrieved, gold, k, expected",
    {
        "first of one": (["d1"], ["d1"], 1, 1),
        "second, k is 1": (["d2", "d1"], ["d1"], 1, 0),
        "second, k is 2": (["d2", "d1"], ["d1"], 2, 1),
        "k is 0": (["d1"], ["d1"], 0, 0),
        "nothing retrieved": ([], ["d1"], 5, 0),
        "no gold": (["d1"], [], 5, 0),
        "one of two gold": (["d1", "d3"], ["d1", "d2"], 2, 0.5),
        "duplicate gold": (["d1"], ["d1", "d1"], 1, 1),
        "another folder": (["d1"], ["gold/d1"], 1, 0),
    },
)
def test_recall_at_k(retrieved: Ids, gold: Ids, k: int, expected: float) -> None:
    assert evaluation.recall_at_k(retrieved, gold, k) == expected


@table(
    "covered, gold, expected",
    {"sets": (["a", "a", "c"], ["a", "b", "b", "b"], 0.5), "none": ([], ["a"], 0), "no gold": (["a"], [], 0)},
)
def test_cover_at_k(covered: Ids, gold: Ids, expected: float) -> None:
    assert evaluation.cover_at_k(covered, gold) == expected


@table(
    "gold, predicted, precision, recall, f1",
    {
        "the same": (["S1", "S2"], ["S2", "S1"], 1, 1, 1),
        "one of two": (["S1", "S2"], ["S1"], 1, 1 / 2, 2 / 3),
        "one of three is right": (["S1", "S2"], ["S2", "S3", "S4"], 1 / 3, 1 / 2, 0.4),
        "nothing predicted": (["S1"], [], 0, 0, 0),
        "no gold": ([], ["S1"], 0, 0, 0),
        "duplicates": (["S1", "S1"], ["S1", "S2", "S2"], 1 / 2, 1, 2 / 3),
        "another case": (["S1"], ["s1"], 0, 0, 0),
    },
)
def test_citations(gold: Ids, predicted: Ids, precision: float, recall: float, f1: float) -> None:
    scores = evaluation.citation_scores(gold, predicted)
    assert scores == pytest.approx((precision, recall, f1), abs=1e-12)


SENTENCES = {"S1": "The lamp burned oil.", "S2": "Oil was dear.", "S3": "the LAMP\tburned\u3000bright"}
SENTENCES |= {"S4": "oil oil oil", "S5": " "}


@table(
    "gold, predicted, sentences, score",
    {
        "the gold sentence": (["S1"], ["S1"], SENTENCES, 1),
        "three of four words, any case and spacing": (["S1"], ["S3"], SENTENCES, 3 / 4),
        "punctuation is part of a word": (["S1"], ["S2"], SENTENCES, 0),
        "one of two sentences, four of seven words": (["S1", "S2"], ["S1"], SENTENCES, 4 / 7),
        "a word in both gold sentences counts once": (["S1", "S3"], ["S1"], SENTENCES, 4 / 5),
        "an unknown ID": (["S1"], ["S9"], SENTENCES, 0),
        "no gold, nothing predicted": ([], [], SENTENCES, 1),
        "no gold, something predicted": ([], ["S1"], SENTENCES, 0),
        "no document: share of IDs": (["S1", "S2", "S2"], ["S2", "S3", "S2"], None, 1 / 2),
        "unknown gold sentence: share of IDs": (["S1", "S9"], ["S3", "S9"], SENTENCES, 1 / 2),
        "gold sentence without words: share of IDs": (["S5"], ["S5"], SENTENCES, 1),
    },
)
def test_evidence(gold: Ids, predicted: Ids, sentences: dict[str, str] | None, score: float) -> None:
    assert evaluation.evidence_score(gold, predicted, sentences) == pytest.approx(score, abs=1e-12)


@table(
    "ranks, first",
    {
        "by rank": ((2, 1), "d1"),
        "no rank: as listed": ((None, None), "d2"),
        "equal ranks": ((2, 2), None),
        "a score": ((0.9, 0.7), None),
        "a rank is missing": ((1, None), None),
    },
)
def test_order_of_retrieved_documents(
    small: Project, ranks: tuple[float | None, float | None], first: str | None
) -> None:
    """Ranks that are no ranks count as not given."""
    entries = [{"doc_id": name, "rank": rank} for name, rank in zip(("d2", "d1"), ranks, strict=True)]
    complete = {"question": "What is d1?", "answer": "", "evidence_sentences": [], "retrieved_docs": entries}
    small.predictions("strong", {"q001": complete, "q002": {"retrieved_docs": entries}})
    rows = small.run().results["strong"]["retrieval"]["per_question"]
    assert [row["retrieved_top_1"] for row in rows] == [first, first]


@table("evidence", {"with gold evidence": ["S1"], "without gold evidence": []})
def test_missing_prediction_is_a_miss(small: Project, judge_with: JudgeWith, evidence: Ids) -> None:
    """Without gold evidence an empty prediction scores 1 for evidence, and a missing one 0."""
    small.questions(question("d1", evidence_sentences=evidence))
    small.predictions("strong", {})
    judge_with({"strong": [None]})
    results = small.run().results["strong"]
    row = results["llm_judge"]["per_question"][0]
    assert results["retrieval"]["recall_at_5"] == 0
    assert results["citation"]["f1_sum"] == 0
    assert (row["answer_score_raw"], row["evidence_score"], row["combined_score"]) == (1, 0, 0.1)
    small.predictions("strong", {"q001": {}})
    row = small.run().results["strong"]["llm_judge"]["per_question"][0]
    assert row["evidence_score"] == (0 if evidence else 1)


def test_words_of_evidence_are_compared_after_nfc() -> None:
    sentences = {"S1": "Caf\u00e9 Zo\u00eb", "S2": "cafe\u0301 zoe\u0308"}
    assert evaluation.evidence_score(["S1"], ["S2"], sentences) == 1
