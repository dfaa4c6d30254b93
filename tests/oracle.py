"""An independent calculation of the results file, straight from the raw JSON rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Named = Sequence[tuple[str, Row]]  # question IDs and gold rows


def compute_blocks(
    questions: Sequence[Row],
    predictions: Mapping[str, Row],
    documents: Mapping[str, object],
    scores: Mapping[str, int] | None,
) -> dict[str, Any]:
    """Compute the blocks of one system.

    Args:
        questions: the gold rows.
        predictions: question ID -> row.
        documents: file name in corpus/ -> its JSON object or its text.
        scores: question text -> the judge's score, 0 if the call fails; None without a judge.
    """
    named = []
    for number, question in enumerate(questions, start=1):
        named.append((question.get("question_id") or "q" + str(number).zfill(3), question))
    blocks = {
        "retrieval": compute_retrieval(named, predictions),
        "citation": compute_citation(named, predictions),
    }
    if scores is not None:
        blocks["llm_judge"] = compute_judge_block(named, predictions, documents, scores)
    return blocks


def compute_retrieval(named: Named, predictions: Mapping[str, Row]) -> dict[str, Any]:
    rows = []
    for question_id, question in named:
        ids = order_retrieved(predictions.get(question_id) or {})
        row = {"question_id": question_id, "gold_doc_id": question["doc_id"]}
        row["retrieved_top_1"] = ids[0] if ids else None
        row["recall_at_1"] = 1 if question["doc_id"] in ids[:1] else 0
        row["recall_at_5"] = 1 if question["doc_id"] in ids[:5] else 0
        rows.append(row)
    block: dict[str, Any] = {"total": len(named), "per_question": rows}
    for measure in ("recall_at_1", "recall_at_5"):
        block[measure] = sum(row[measure] for row in rows)
        block[measure + "_pct"] = 100 * block[measure] / len(named)
    return block


def order_retrieved(prediction: Row) -> list[str]:
    entries = prediction.get("retrieved_docs") or []
    ids, by_rank = [], {}
    for entry in entries:
        if isinstance(entry, str):
            ids.append(entry)
        else:
            ids.append(entry["doc_id"])
            if entry.get("rank") is not None:
                by_rank[entry["rank"]] = entry["doc_id"]
    if not by_rank:
        return ids
    return [by_rank[rank] for rank in sorted(by_rank)] if len(by_rank) == len(entries) else []


def compute_citation(named: Named, predictions: Mapping[str, Row]) -> dict[str, Any]:
    rows = []
    for question_id, question in named:
        gold, predicted = list_cited(question), list_cited(predictions.get(question_id) or {})
        if not gold:
            continue
        row: dict[str, Any] = {"question_id": question_id, "gold_doc_id": question["doc_id"]}
        row |= {"gold_sentences": gold, "pred_sentences": predicted}
        common = count_common(gold, predicted)
        precision = common / len(predicted) if predicted else 0
        recall = common / len(gold)
        row |= {"precision": precision, "recall": recall}
        row["f1"] = 2 * precision * recall / (precision + recall) if common else 0
        rows.append(row)
    block: dict[str, Any] = {"total_questions": len(named), "questions_with_evidence": len(rows)}
    for measure in ("precision", "recall", "f1"):
        block[measure + "_sum"], block["avg_" + measure] = sum_and_mean([row[measure] for row in rows])
    return block | {"per_question": rows}


def count_common(gold: Sequence[str], predicted: Sequence[str]) -> int:
    return len([item for item in gold if item in predicted])


def list_cited(row: Row) -> list[str]:
    return sorted(set(row.get("evidence_sentences") or []))


def sum_and_mean(values: Sequence[float]) -> tuple[float, float | None]:
    total = float(sum(values))
    return total, total / len(values) if values else None


def compute_judge_block(
    named: Named, predictions: Mapping[str, Row], documents: Mapping[str, object], scores: Mapping[str, int]
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    failed = []
    for question_id, question in named:
        if question.get("rubric") is None:
            continue
        prediction = predictions.get(question_id)
        row: dict[str, Any] = {"question_id": question_id}
        if ((prediction or {}).get("answer") or "").strip() == "":
            score = 1
            row["answer_rationale"] = "No answer was given."
        else:
            score = scores[question["question"]]
            if score == 0:
                failed.append(question_id)
        sentences = find_sentences(documents, question["doc_id"])
        row["answer_score_raw"] = score
        row["answer_score_normalized"] = score / 5
        row["evidence_score"], row["evidence_method"] = score_evidence(question, prediction, sentences)
        row["combined_score"] = 0.5 * score / 5 + 0.5 * row["evidence_score"]
        row["gold_sentences"] = list_cited(question)
        row["pred_sentences"] = list_cited(prediction or {})
        rows.append(row)
    block: dict[str, Any] = {"total_questions": len(named), "lambda_weight": 0.5, "failed_questions": failed}
    block["questions_with_rubrics"] = block["questions_scored"] = len(rows)
    for key in ("answer_score_raw", "evidence_score", "combined_score"):
        name = key.removesuffix("_raw")
        block[name + "_sum"], block["avg_" + name] = sum_and_mean([row[key] for row in rows])
    return block | {"per_question": rows}


def find_sentences(documents: Mapping[str, object], doc_id: str) -> dict[str, str] | None:
    for name in (doc_id + ".json", doc_id + ".txt"):
        content = documents.get(name)
        if isinstance(content, dict):
            return {row["sid"] if "sid" in row else row["id"]: row["text"] for row in content["sentences"]}
    return None


def score_evidence(
    question: Row, prediction: Row | None, sentences: Mapping[str, str] | None
) -> tuple[float, str]:
    gold, predicted = list_cited(question), list_cited(prediction or {})
    by_words = sentences is not None and all(sentence in sentences for sentence in gold)
    method = "words" if by_words else "ids"
    if prediction is None:
        return 0.0, method
    if not gold:
        return 0.0 if predicted else 1.0, method
    if by_words and sentences is not None:
        gold, predicted = list_words(gold, sentences), list_words(predicted, sentences)
    return count_common(gold, predicted) / len(gold), method


def list_words(cited: Sequence[str], sentences: Mapping[str, str]) -> list[str]:
    return list({word for sentence in cited for word in sentences.get(sentence, "").lower().split()})
