"""Grading from Python: results, rows, judges, folders, and what is refused."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import evaluation
import numpy as np
import pytest

from conftest import JUDGE, JudgeWith, Project, Serve, mean_interval, question, table
from groq_server import completion, error, score_reply

JOURNAL = "dev_judgements.jsonl"


@pytest.fixture
def both(small: Project) -> Project:
    """Add a `simple` to `small` that answers one question half right."""
    row = {"retrieved_docs": [{"doc_id": "d2"}], "evidence_sentences": ["S1", "S3"], "answer": "Snow."}
    small.predictions("simple", {"q002": row})
    return small


def elsewhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make another folder the current one, and return the project's."""
    (project.folder / "elsewhere").mkdir()
    monkeypatch.chdir(project.folder / "elsewhere")
    return project.folder


def by_length(asked: evaluation.Question, answer: str) -> float:
    return 4 if len(answer) > len(asked.doc_id) + 8 else 2.5


@pytest.mark.parametrize("judged", [True, False])
def test_results_are_those_of_the_command(
    both: Project, judge_with: JudgeWith, monkeypatch: pytest.MonkeyPatch, judged: bool
) -> None:
    server = judge_with({"strong": [5, None], "simple": [1, 1]})
    if judged:
        both.run()
    both.run(GROQ_API_KEY="")  # the judgement that failed is not in the journal
    before = both.files()
    n_calls = len(server.calls)
    results = evaluation.grade("dev", folder=elsewhere(both, monkeypatch))
    assert list(results) == ["simple", "strong"]
    assert results["simple"]["retrieval"]["recall_at_1_pct"] == 50
    assert ("llm_judge" in results["strong"]) == judged
    assert json.loads(json.dumps(results)) == json.loads(before["dev_evaluation.json"])
    assert (both.files(), len(server.calls)) == (before, n_calls)


def test_rows_for_a_data_frame(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    before = both.files()
    rows = evaluation.grade("dev", judge=by_length).rows()
    names = [f"{row['question_id']} {row['system']}" for row in rows]
    assert names == ["q001 simple", "q001 strong", "q002 simple", "q002 strong"]
    last = {"recall_at_1": 0, "recall_at_5": 1, "f1": 0.0, "answer_score_raw": 2.5, "flags": ""}
    assert last.items() <= rows[-1].items()
    assert rows[0]["answer_score_raw"] is None
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert (both.capture.readouterr(), both.files()) == (("", ""), before)


def test_summary_for_a_data_frame(project: Project) -> None:
    """A flat row for each system and measure; what was not submitted or judged is left out."""
    project.questions(*(question(f"d{n}") for n in range(1, 7)))
    rows = {f"q00{n}": {"answer": "Yes.", "retrieved_docs": [f"d{min(n, 3)}"]} for n in range(1, 7)}
    project.predictions("own", rows)
    low, high = [pytest.approx(100 * end) for end in mean_interval([1, 1, 1, 0, 0, 0])]
    row = {"system": "own", "mean": 50.0, "low": low, "high": high, "n": 6}
    summary = {found["measure"]: found for found in evaluation.grade("dev").summary()}
    for measure in ("recall_at_1_pct", "recall_at_5_pct"):
        assert summary[measure] == {**row, "measure": measure}
    assert not summary.keys() & {"avg_f1", "avg_answer_score"}
    judged = evaluation.grade("dev", judge=lambda _question, _answer: 4).summary()
    means = {row["measure"]: row["mean"] for row in judged}
    assert (means["avg_answer_score"], "avg_evidence_score" in means) == (4, False)


def test_comparisons_for_a_data_frame(project: Project) -> None:
    """A flat row for each pair and measure; `print` shows them as the console does."""
    project.questions(*(question(f"d{n}") for n in range(1, 9)))
    cited = {f"q00{n}": {"answer": "Yes.", "evidence_sentences": ["S1"]} for n in range(1, 9)}
    project.predictions("strong", cited)
    wrong = {name: {**row, "evidence_sentences": ["S2"]} for name, row in cited.items()}
    project.predictions("simple", wrong)
    results = evaluation.grade("dev")
    rows = {row["measure"]: row for row in results.comparisons()}
    row = rows["avg_f1"]
    assert (row["system"], row["other"], row["n"], row["difference"]) == ("strong", "simple", 8, 1.0)
    assert (row["p"], row["p_adjusted"], row["verdict"]) == (2 / 2**8, 2 / 2**8, "better")
    assert 0 < row["low"] < 1 == row["high"]
    assert re.search(r"^strong - simple +F1 +8 .* 0\.0078 +better$", repr(results), re.MULTILINE)
    assert evaluation.grade("dev", systems=["strong"]).comparisons() == []


def test_intervals_of_measures_of_ones_own(project: Project) -> None:
    """Shares from 0 to 1 are on that scale; the mean of other numbers has a bootstrap."""
    project.questions(*(question(f"d{n}") for n in range(1, 7)))
    words = [3, 5, 2, 8, 4, 6]
    rows = {f"q00{n}": {"answer": "so " * count} for n, count in enumerate(words, start=1)}
    project.predictions("own", rows)
    measures: Any = {"words": lambda _question, row: len(row.answer.split())}
    measures["any"] = lambda _question, row: np.bool_(row.answer != "")
    ci95 = evaluation.grade("dev", measures=measures)["own"]["measures"]["ci95"]
    assert ci95["words"] == mean_interval(words)
    assert ci95["any"] == pytest.approx([0.505042, 1], abs=3e-4)  # as of hits


def test_a_measure_of_ones_own(both: Project) -> None:
    """It has means, intervals and comparisons as any other; None is not measured.

    A missing prediction is a miss, about which the function is not asked.
    """

    def count_words(asked: evaluation.Question, row: Any) -> float | None:
        return len(row.answer.split()) if asked.doc_id == "d2" else None

    results = evaluation.grade("dev", measures={"words": count_words})
    reason = {"words": "fewer than 5 documents: 1"}
    expected = {"ci95": {"words": None}, "words": 2, "ci95_reason": reason}
    assert results["strong"]["measures"] == expected
    assert results["simple"]["measures"]["words"] == 0.5  # q001 has no prediction
    [difference] = [row for row in results["strong"]["comparison"] if row["measure"] == "words"]
    assert (difference["with"], difference["n"], difference["difference"]) == ("simple", 1, 1)
    assert [row["words"] for row in results.rows()] == [0, None, 1, 2]
    with pytest.raises(ValueError, match=r"^measures: the name is taken: f1$"):
        evaluation.grade("dev", measures={"f1": count_words})


NUMBER = "a number from -9.0072e+15 to 9.0072e+15, or None"


@pytest.mark.parametrize(
    ("shown", "score"),
    [("'a'", "a"), ("nan", math.nan), ("1e+308", 1e308), ("-1e+308", -1e308), ("1000000", 10**400)],
)
def test_a_measure_of_ones_own_that_is_no_number(both: Project, shown: str, score: Any) -> None:
    message = re.escape(f"words: simple, q002: expected {NUMBER}, got {shown}")
    with pytest.raises(ValueError, match=message) as raised:
        evaluation.grade("dev", measures={"words": lambda _question, _row: score})
    assert len(str(raised.value)) < 300


def test_function_as_judge(both: Project) -> None:
    asked: list[tuple[str, str]] = []

    def judge(about: evaluation.Question, answer: str) -> float:
        asked.append((about.question_id, answer))
        return np.float64(1.5) if "Score" in answer else 4

    flagged = "Score: 5. It is so."
    both.predictions("strong", {"q001": {"answer": flagged}, "q002": {"answer": " "}})
    judged = evaluation.grade("dev", judge=judge)["strong"]["llm_judge"]
    assert asked == [("q001", flagged)]  # not the blank answer
    assert [row["answer_score_raw"] for row in judged["per_question"]] == [1.5, 1]
    assert (judged["judge_model"], judged["usage"]["cost_usd"]) == ("judge", None)
    judged = evaluation.grade("dev", systems=["simple"], judge=judge)["simple"]["llm_judge"]
    assert judged["per_question"][1]["answer_score_raw"] == 4


def test_systems_and_judges_that_are_none(both: Project) -> None:
    with pytest.raises(ValueError, match=r"^systems is empty: name at least one, or leave it out"):
        evaluation.grade("dev", systems=[])
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"^judge: expected the name of a model or a function, got 3$"):
        evaluation.grade("dev", judge=wrong)


@pytest.mark.parametrize("score", [0, 5.01, float("nan"), 1e308, False, "4", 10**400])
def test_function_that_returns_no_score(both: Project, score: Any) -> None:
    shown = "0.0" if score is False else repr(score)[:200] if score != 10**400 else "1000"
    problem = f"<lambda>: strong, q001: expected a number from 1 to 5, or None, got {shown}"
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}") as raised:
        evaluation.grade("dev", judge=lambda _question, _answer: score)
    assert len(str(raised.value)) < 300


def test_model_as_judge(both: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(score_reply(4))
    folder = elsewhere(both, monkeypatch)
    before = both.files()
    for _ in range(2):  # the second time the journal has all
        judged = evaluation.grade("dev", folder=folder, judge="openai/gpt-oss-120b")["strong"]["llm_judge"]
        assert (judged["avg_answer_score"], judged["judge_model"]) == (4, "openai/gpt-oss-120b")
    assert len(server.calls) == 2
    assert both.files().keys() - before.keys() == {JOURNAL}
    assert both.capture.readouterr() == ("", "")


def test_without_a_key_the_journal_answers_for_the_model_that_is_named(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(score_reply(4))
    for model in ("openai/gpt-oss-20b", "llama-3.1-8b-instant"):
        small.run("dev", "--model", model)
    with pytest.raises(evaluation.InputError, match=r"name one with judge=MODEL$"):
        evaluation.grade("dev")
    monkeypatch.delenv("GROQ_API_KEY")
    assert evaluation.grade("dev", judge="openai/gpt-oss-20b")["strong"]["llm_judge"]["questions_scored"] == 2


def test_models_that_cannot_be_asked(both: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(error(401, "invalid_api_key", "Invalid API Key"))
    with pytest.raises(evaluation.InputError, match=r"^HTTP 401: Invalid API Key \(strong q00.\) \(asked"):
        evaluation.grade("dev", judge="openai/gpt-oss-20b")
    monkeypatch.delenv("GROQ_API_KEY")
    with pytest.raises(evaluation.InputError, match=r"^this needs a model: set GROQ_API_KEY"):
        evaluation.grade("dev", judge="openai/gpt-oss-20b")


def test_all_problems_of_the_input_are_raised(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    both.write("dev_strong_output.json", "[]")
    both.write("corpus/d1.json", "{")
    folder = elsewhere(both, monkeypatch)
    with pytest.raises(evaluation.InputError) as raised:
        evaluation.grade("dev", folder=folder, systems=["strong", "none"])
    files = [line.removeprefix(f"{folder}{os.sep}").split(":")[0] for line in raised.value.problems]
    assert files == ["corpus/d1.json", "dev_strong_output.json", "dev_none_output.json"]
    with pytest.raises(evaluation.InputError, match=r"^nowhere/.*: file not found"):
        evaluation.grade("dev", folder="nowhere")
    with pytest.raises(evaluation.InputError, match=r"all_final_jsonl\.txt: file not found"):
        evaluation.grade("all", folder=folder)
    assert both.capture.readouterr() == ("", "")


def test_folders_at_the_same_time(project: Project) -> None:
    for number in range(1, 9):
        rows = "".join(json.dumps(question(f"d{index}")) + "\n" for index in range(number))
        project.write(f"course{number}/NLP Project Data/dev_final_jsonl.txt", rows)
        project.write(f"course{number}/corpus/d0.txt", f"Text {number}.")
        project.write(f"course{number}/dev_own_output.json", {"q001": {"answer": "Yes."}})

    def count(number: int) -> tuple[int, int]:
        results = evaluation.grade("dev", folder=f"course{number}")["own"]
        return results["retrieval"]["total"], results["run"]["corpus"]["documents"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count, range(1, 9))) == [(number, number) for number in range(1, 9)]


CALLS: dict[str, Callable[[], object]] = {
    "retrieved": lambda: evaluation.recall_at_k("d1", ["d1"], 1),
    "gold documents": lambda: evaluation.recall_at_k(["d1"], "d1", 1),
    "covered": lambda: evaluation.cover_at_k("cost", ["cost"]),
    "gold perspectives": lambda: evaluation.cover_at_k(["cost"], "cost"),
    "cited": lambda: evaluation.citation_scores(["S1"], "S1"),
    "gold sentences": lambda: evaluation.citation_scores("S1", ["S1"]),
    "cited as evidence": lambda: evaluation.evidence_score(["S1"], "S1"),
    "gold evidence": lambda: evaluation.evidence_score("S1", ["S1"]),
    "systems": lambda: evaluation.grade("dev", systems="strong"),
}


@table("call", CALLS)
def test_a_string_is_no_list_of_ids(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="expected a list of IDs, got"):
        call()


def test_an_exception_names_measure_system_and_question(both: Project) -> None:
    message = r"^half: simple, q002: ZeroDivisionError: division by zero$"
    with pytest.raises(evaluation.InputError, match=message):
        evaluation.grade("dev", measures={"half": lambda _question, _row: 1 / 0})


def test_a_judge_that_returns_none_has_not_judged(both: Project) -> None:
    results = evaluation.grade("dev", judge=lambda asked, _answer: None if asked.doc_id == "d1" else 5)
    judged = results["strong"]["llm_judge"]
    assert (judged["unjudged_questions"], judged["failed_questions"]) == (["q001"], [])
    assert judged["avg_answer_score"] == 2.5


ROWS = [
    {"question": "Who?", "gold": "Ann", "answer": "ann", "cost": 3},
    {"question": "Where?", "gold": "Ulm", "answer": "in Ulm", "cost": 1},
    {"question": "When?", "gold": "1822", "answer": "", "cost": 2},
]


class Frame:
    """What a data frame has for others."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.records = rows
        self.columns = list(rows[0])

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return [{**row, "cost": np.float64(row.get("cost", 0))} for row in self.records]


def means_of(results: evaluation.Results, name: str = "answers") -> dict[str, float]:
    return {key: row["mean"] for key, row in results[name]["measures"].items()}


def test_rows_are_graded_without_files(project: Project) -> None:
    results = evaluation.grade_answers(ROWS)
    f1 = pytest.approx((1 + 2 / 3) / 3)
    assert means_of(results) == {"exact": 1 / 3, "keyword": 2 / 3, "f1": f1}
    assert repr(results) == "System   exact  keyword     f1\nanswers  0.333    0.667  0.556"
    assert [row["keyword"] for row in results.rows()] == [1, 1, 0]
    means = {row["measure"]: row["mean"] for row in results.summary()}
    assert means == {"exact": 1 / 3, "keyword": 2 / 3, "f1": f1}
    assert (project.files(), project.capture.readouterr()) == ({}, ("", ""))


def test_two_columns_of_one_name() -> None:
    frame = Frame(ROWS)
    frame.columns = ["question", "gold", "gold", "answer"]
    with pytest.raises(evaluation.InputError, match="rows: two columns are named gold"):
        evaluation.grade_answers(frame)


def test_rows_may_be_a_data_frame_a_file_or_several_systems(project: Project) -> None:
    path = project.write("log.json", ROWS)
    assert means_of(evaluation.grade_answers(Frame(ROWS))) == means_of(evaluation.grade_answers(path), "log")
    results = evaluation.grade_answers({"a": ROWS, "b": Frame(ROWS), "c": "log.json"})
    assert list(results) == ["a", "b", "c"]
    assert [row["with"] for row in results["a"]["comparison"]] == ["b", "c"] * 3
    assert results["a"]["comparison"][0]["verdict"] == "too few documents: 3"


class NaTType:
    """A gap in a column of pandas, which is no type of JSON."""


def test_cells_of_data_frames(project: Project) -> None:
    """A column of whole numbers with a gap is one of floats; lists may be arrays, and gaps of any type."""
    cells = {"question": "Who?", "gold": "1822", "answer": 1822.0, "contexts": np.array(["Oil", "Gas"])}
    seen: list[Any] = []
    row: dict[Any, Any] = {**cells, "on": NaTType(), "cost": np.float32("nan"), ("a", "b"): np.int64(2)}
    results = evaluation.grade_answers(Frame([row]), measures={"seen": seen.append})
    assert means_of(results)["exact"] == 1
    assert (seen[0].context, seen[0].extra) == (["Oil", "Gas"], {"('a', 'b')": 2})


def test_what_nobody_judged_is_not_measured(project: Project) -> None:
    """Equal and blank answers need no judge, and alone would be a mean of few answers."""
    results = evaluation.grade_answers(ROWS, methods=["exact", "llm_judge"])
    assert means_of(results) == {"exact": 1 / 3}
    assert (results["answers"]["accuracy"], results["answers"]["no_llm_fallback_count"]) == (None, 1)
    assert "answers: llm_judge: not judged: no judge is named" in results["answers"]["warnings"]
    assert [row["measure"] for row in results.summary()] == ["exact"]


def test_criteria_need_a_judge(small: Project) -> None:
    polite = {"polite": "Is it polite?"}
    advice = "^this needs a model: name it: judge=MODEL$"
    with pytest.raises(evaluation.InputError, match=advice):
        evaluation.grade_answers(ROWS, criteria=polite)
    with pytest.raises(evaluation.InputError, match=advice):
        evaluation.grade_answers(ROWS, methods=["exact"], criteria=polite)
    with pytest.raises(evaluation.InputError, match=advice):
        evaluation.grade("dev", criteria=polite)


def test_criteria_are_judged_alone_unless_methods_are_named(project: Project, serve: Serve) -> None:
    """As the command does: one call for each answer that is not blank."""
    server = serve(completion(json.dumps({"rationale": "It is.", "decision": "yes"})))
    polite = {"polite": "Is it polite?"}
    results = evaluation.grade_answers(ROWS, criteria=polite, judge=JUDGE)
    assert means_of(results).keys() == {"polite"}
    results = evaluation.grade_answers(ROWS, methods=["exact"], criteria=polite, judge=JUDGE)
    assert means_of(results).keys() == {"exact", "polite"}
    assert len(server.calls) == 2


def test_rows_say_which_criterion_failed(project: Project, serve: Serve) -> None:
    serve(completion("I cannot say."))
    rows = [*ROWS, {"question": "Why?", "gold": "So", "answer": "So"}]
    chosen: dict[str, Any] = {"criteria": {"polite": "Is it polite?"}, "judge": JUDGE}
    failures = [row["failure"] for row in evaluation.grade_answers(rows, **chosen).rows()]
    assert [text is None for text in failures] == [False, False, True, False]
    results = evaluation.grade_answers(rows, methods=["llm_judge"], **chosen)
    for row, counts in zip(results.rows(), [(1, 1), (1, 2), (0, 0), (1, 1)], strict=True):
        reasons = (row["failure"] or "").split("; ") if row["failure"] else []
        assert (sum(reason.startswith("polite: ") for reason in reasons), len(reasons)) == counts


def test_results_can_be_pickled(both: Project) -> None:
    """Also those by functions."""
    measures: Any = {"length": lambda *_: 1}
    split = evaluation.grade("dev", judge=by_length, measures=measures)
    rows = evaluation.grade_answers(ROWS, judge=lambda item: 0.5, measures=measures)
    for results in (split, rows):
        copy = pickle.loads(pickle.dumps(results))
        assert (copy, repr(copy), type(copy)) == (results, repr(results), evaluation.Results)
        for name in ("rows", "summary", "comparisons"):
            assert getattr(copy, name)() == getattr(results, name)()


def test_what_is_not_submitted_is_no_number(small: Project) -> None:
    small.predictions("simple", {"q001": {"answer": "It is."}})
    results = evaluation.grade("dev", systems=["simple"])
    assert [row["recall_at_1"] for row in results.rows()] == [None, None]
    assert results["simple"]["retrieval"]["recall_at_1"] == 0
    assert repr(results).splitlines()[1].split()[:3] == ["simple", "not", "submitted"]


def test_answers_without_a_judgement_are_counted(both: Project) -> None:
    split = evaluation.grade("dev", judge=lambda asked, _: 4 if asked.doc_id == "d1" else None)
    assert repr(split).endswith("\n\nstrong: 1 not judged")
    rows = evaluation.grade_answers(ROWS, judge=lambda item: 1 if item.id == "1" else None, methods="exact")
    assert list(rows["answers"]["measures"]) == ["exact", "llm_judge"]
    assert repr(rows).endswith("\n\nanswers: 1 not judged")


def test_input_errors_survive_pickling() -> None:
    """As between the processes of joblib and xdist."""
    with pytest.raises(evaluation.InputError) as caught:
        evaluation.grade_answers({"a": "no.json", "b": "none.json"})
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.problems == caught.value.problems
    files = [problem.partition(": file not found")[0] for problem in error.problems]
    assert files == ["no.json", "none.json"]
    assert str(error) == "\n".join(error.problems)


def test_what_functions_receive_has_its_fields_in_docstrings() -> None:
    for kind, name in (("Item", "accepted"), ("Prediction", "retrieved_ids"), ("Question", "rubric")):
        assert name in getattr(evaluation, kind).__doc__


def test_measures_of_ones_own_need_no_gold_answers(project: Project) -> None:
    rows = [{"question": "Who?", "answer": "Ann"}]
    results = evaluation.grade_answers(rows, methods=(), measures={"long": lambda item: len(item.prediction)})
    assert means_of(results) == {"long": 3}


def test_other_names_of_columns(project: Project) -> None:
    rows = [{"Frage": "Who?", "data": {"soll": "Ann"}, "Ist": "Ann"}]
    columns = {"question": "Frage", "gold": "data.soll", "prediction": "Ist"}
    assert means_of(evaluation.grade_answers(rows, columns=columns)) == {"exact": 1, "keyword": 1, "f1": 1}
    with pytest.raises(evaluation.InputError, match=r"no gold answer, as .*; found Frage, data, Ist"):
        evaluation.grade_answers(rows)
    with pytest.raises(evaluation.InputError, match=r"answers: --columns gold=Soll: found Frage, data, Ist"):
        evaluation.grade_answers(rows, columns=columns | {"gold": "Soll"})
    with pytest.raises(ValueError, match="unknown field: answers; expected rows, "):
        evaluation.grade_answers(rows, columns={"answers": "Ist"})


def test_a_measure_and_a_judge_of_ones_own_for_rows(project: Project) -> None:
    results = evaluation.grade_answers(
        ROWS,
        judge=lambda item: {"Who?": True, "Where?": None}.get(item.question, 0.0),
        measures={"cheap": lambda item: item.extra["cost"] < 2},
        protocol="fraction",
    )
    expected = {"exact": 1 / 3, "keyword": 2 / 3, "f1": 5 / 9, "llm_judge": 1 / 2, "cheap": 1 / 3}
    assert means_of(results) == pytest.approx(expected)
    assert [row["failure"] for row in results.rows()] == [None, "not judged by the function", None]
    assert project.files() == {}


def test_a_model_judges_rows_by_criteria_without_gold_answers(project: Project, serve: Serve) -> None:
    reply = json.dumps({"rationale": "It is.", "decision": "yes"})
    server = serve(completion(reply))
    rows = [{"question": "Who?", "answer": "Ann"}, {"question": "Where?", "answer": "Ulm"}]
    chosen: dict[str, Any] = {"methods": (), "criteria": {"short": "Is it short?"}}
    (project.folder / "notes").mkdir()
    for _ in range(2):  # the second time the journal has all
        results = evaluation.grade_answers(rows, judge=JUDGE, folder="notes", **chosen)
        assert means_of(results)["short"] == 1
    assert len(server.calls) == 2
    assert list(project.files()) == ["notes/answers_judgements.jsonl"]
    evaluation.grade_answers({"log": rows}, judge=JUDGE, folder="notes", **chosen)
    assert project.files()["notes/log_answers_judgements.jsonl"] == b""  # the other one has all replies
    assert len(server.calls) == 2


def test_rows_continue_the_journal_of_version_7(project: Project, serve: Serve) -> None:
    server = serve(completion(json.dumps({"reasoning": "So.", "correct": "yes"})))
    rows = {"log": [{"question": "Who?", "gold": "Ann", "answer": "Bee"}]}
    evaluation.grade_answers(rows, judge="own", methods=())
    (project.folder / "log_answers_judgements.jsonl").rename(project.folder / "log_judgements.jsonl")
    results = evaluation.grade_answers(rows, methods=["llm_judge"])  # its model is that of the journal
    assert (results["log"]["judge_model"], len(server.calls)) == ("own", 1)
    assert list(project.files()) == ["log_judgements.jsonl"]


METHODS = "expected exact, keyword, keyword_legacy, f1, bleu, similarity, semantic_fixed, semantic_dynamic, "
METHODS += "llm_judge, hybrid"
ONE_SCORE = "a function gives one score: name a model for criteria and quality"
NOTHING = "there is nothing to measure: name methods, criteria or measures"
NO_KEY = "this needs a model: set GROQ_API_KEY, or see --dry-run"
PROTOCOLS = "expected verdict, fraction, quality"
NO_SYSTEMS = "rows: expected a list of dicts, a data frame, a path, or a dict of these"
ODD = "<lambda>: answers, 2: expected a number from 0 to 1, or None, got 2"
NO_ROWS = "no rows: expected a list of rows, one object per line"
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a method": (
        {"methods": ["bleurt"]},
        ValueError,
        f"unknown method: bleurt: did you mean bleu?; {METHODS}",
    ),
    "an unknown protocol": ({"protocol": "points"}, ValueError, f"unknown protocol: points; {PROTOCOLS}"),
    "no systems": ({"rows": {}}, evaluation.InputError, NO_SYSTEMS),
    "no dict of columns": ({"columns": "gold=x"}, TypeError, "columns: expected a dict, got 'gold=x'"),
    "no dict of measures": (
        {"measures": [len]},
        TypeError,
        "measures: expected a dict, got [<built-in function len>]",
    ),
    "no repeats": ({"repeats": 0}, ValueError, "repeats: expected a whole number from 1 to 20, got 0"),
    "nothing to measure": ({"methods": []}, ValueError, NOTHING),
    "a name that is taken": ({"measures": {"exact": len}}, ValueError, "measures: the name is taken: exact"),
    "a judge": ({"judge": 3}, TypeError, "judge: expected the name of a model or a function, got 3"),
    "a judge's odd score": ({"judge": lambda item: 2}, ValueError, ODD),
    "a function for criteria": ({"judge": len, "criteria": {"a": "b"}}, ValueError, f"judge: {ONE_SCORE}"),
    "no key": ({"judge": "own"}, evaluation.InputError, NO_KEY),
    "no file": ({"rows": "none.json"}, evaluation.InputError, "none.json: file not found in {}"),
    "no rows": ({"rows": []}, evaluation.InputError, f"answers:1: {NO_ROWS}"),
}


@table("arguments, error_type, message", WRONG)
def test_what_grade_answers_refuses(
    project: Project, arguments: dict[str, Any], error_type: type[Exception], message: str
) -> None:
    with pytest.raises(error_type) as raised:
        evaluation.grade_answers(**{"rows": ROWS, **arguments})
    assert (str(raised.value), project.files()) == (message.format(project.folder), {})
