"""Make the sample `simple` predictions: BM25 over the whole corpus, no model, no key.

    python tests/make_simple_samples.py

For each question the five best documents, and the three sentences of the first one that share most with the
question: these are its citations and, in reading order, its answer. A plain text document is split into
sentences S1, S2, ... after each full stop, exclamation or question mark that white space follows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import bm25s  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
TOP_DOCUMENTS, TOP_SENTENCES = 5, 3


def sentences_of(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return {sentence["sid"]: sentence["text"] for sentence in json.loads(text)["sentences"]}
    return {f"S{n}": part for n, part in enumerate(re.split(r"(?<=[.!?])\s+", text.strip()), start=1)}


def ranked(texts: list[str], query: str, k: int) -> list[tuple[int, float]]:
    """(place, BM25 score) of the k best texts, best first; those that share no word are left out."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(query, stopwords="en", return_ids=False, show_progress=False)[0]
    scores = index.get_scores([token for token in tokens if token in index.vocab_dict])
    best = sorted(range(len(texts)), key=lambda place: -scores[place])[:k]
    return [(place, round(float(scores[place]), 4)) for place in best if scores[place] > 0]


def predict(question: str, corpus: dict[str, dict[str, str]]) -> dict[str, object]:
    ids = list(corpus)
    documents = ranked([" ".join(corpus[doc_id].values()) for doc_id in ids], question, TOP_DOCUMENTS)
    first = corpus[ids[documents[0][0]]]
    cited = sorted(place for place, _ in ranked(list(first.values()), question, TOP_SENTENCES))
    return {
        "question": question,
        "answer": " ".join(list(first.values())[place] for place in cited),
        "evidence_sentences": [list(first)[place] for place in cited],
        "retrieved_docs": [
            {"doc_id": ids[place], "score": score, "rank": rank}
            for rank, (place, score) in enumerate(documents, start=1)
        ],
    }


def main() -> None:
    folder = ROOT / "corpus"
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".txt"))
    corpus = {path.relative_to(folder).with_suffix("").as_posix(): sentences_of(path) for path in paths}
    for split in ("train", "dev", "test"):
        lines = (
            (ROOT / "NLP Project Data" / f"{split}_final_jsonl.txt").read_text(encoding="utf-8").splitlines()
        )
        predictions = {
            f"q{place:03d}": predict(json.loads(line)["question"], corpus)
            for place, line in enumerate(lines, start=1)
        }
        text = json.dumps(predictions, ensure_ascii=False, indent=2) + "\n"
        (ROOT / f"{split}_simple_output.json").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
