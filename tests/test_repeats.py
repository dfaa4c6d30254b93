"""How often a judge is asked (--repeats), and the line under tables that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import evaluation
import pytest

from conftest import (
    FIRST_SEED,
    JUDGE,
    SCALE,
    SUMMARY_CRITERIA,
    JudgeWith,
    Project,
    Serve,
    journal_entries,
    json_lines,
    judge_block,
    judge_row,
    judge_scores,
    mentions,
    table,
    write_many,
)
from groq_server import Call, Reply, completion, score_reply

THRICE = ("dev", "--repeats", "3")


def repeat_of(call: Call) -> int:
    number: int = call.body["seed"] - FIRST_SEED
    return number


def by_turns(*scores: int) -> Callable[[Call], Reply]:
    """Give these scores by turns, each time that something is asked again the next one."""
    return lambda call: score_reply(scores[repeat_of(call)], f"Worth {scores[repeat_of(call)]}.")


def test_the_score_is_the_mean_and_the_reason_that_of_the_nearest_score(small: Project, serve: Serve) -> None:
    server = serve(by_turns(5, 3, 5))
    outcome = small.run(*THRICE, "--report", "csv", "html")
    assert (outcome.code, len(server.calls)) == (0, 6)
    assert "Average Answer Score (1-5): 4.33\n" in outcome.out
    assert mentions(outcome.err, f"Judge: {JUDGE}, 6 judgements; 6 calls")
    row = judge_row(outcome, "q001")
    assert row["answer_score_raw"] == row["judge_score"] == pytest.approx(13 / 3)
    assert (row["answer_repeats"], row["answer_rationale"]) == ([5, 3, 5], "Worth 5.")
    block = judge_block(outcome)
    assert (block["repeats"], block["usage"]["judgements"]) == (3, 6)
    [row, _] = small.table("dev_evaluation.csv")
    assert (row["answer_score_raw"], row["answer_repeats"]) == ("4.33333", "5, 3, 5")
    page = small.files()["dev_evaluation.html"].decode()
    assert "5, 3, 5" in page
    assert "4.33" in page


def test_further_repeats_are_sampled_with_seeds_of_their_own(small: Project, serve: Serve) -> None:
    server = serve(by_turns(3, 4, 5))
    small.run("dev")
    once = [call.body for call in server.calls]
    small.run(*THRICE)
    drawn = {(call.body["seed"] - FIRST_SEED, call.body["temperature"]) for call in server.calls}
    assert drawn == {(0, 0), (1, 1), (2, 1)}
    again = [call.body for call in server.calls[2:]]
    assert len(again) == 4  # two thirds of six: the first ones are paid for
    same = [{**body, "seed": FIRST_SEED, "temperature": 0} for body in again]
    assert all(body in once for body in same)
    assert len({entry["key"] for entry in journal_entries(small)}) == 6


def test_without_the_option_the_first_judgement_of_several_counts(small: Project, serve: Serve) -> None:
    server = serve(by_turns(2, 5, 5))
    small.run(*THRICE)
    outcome = small.run()
    assert (outcome.code, len(server.calls)) == (0, 6)
    assert judge_row(outcome, "q001")["answer_score_raw"] == 2
    assert "answer_repeats" not in judge_row(outcome, "q001")


def test_a_missing_repeat_is_a_missing_judgement(small: Project, serve: Serve) -> None:
    serve(by_turns(5, 4, 3))
    small.run(*THRICE, "--workers", "1")
    small.write("dev_judgements.jsonl", json_lines(*journal_entries(small)[:-1]))
    outcome = small.run(*THRICE, GROQ_API_KEY="")
    assert outcome.code == 3
    assert judge_scores(outcome) == {"q001": 4, "q002": 0}
    assert judge_block(outcome)["unjudged_questions"] == ["q002"]
    assert mentions(outcome.err, "for the remaining 1 of 6 judgements")


def test_a_repeat_that_fails_is_named_and_asked_for_again(small: Project, judge_with: JudgeWith) -> None:
    judge_with({"strong": [[5, None, 3], 4]})  # type: ignore[list-item]
    outcome = small.run(*THRICE)
    assert outcome.code == 3
    assert judge_block(outcome)["failed_questions"] == ["q001"]
    assert judge_row(outcome, "q001")["answer_score_raw"] == 0
    server = judge_with({"strong": [[5, 4, 3], 4]})
    outcome = small.run(*THRICE)
    assert (outcome.code, len(server.calls)) == (0, 1)
    assert judge_row(outcome, "q001")["answer_repeats"] == [5, 4, 3]


def test_dry_run_and_budget_count_all(project: Project, serve: Serve) -> None:
    write_many(project, 4)
    server = serve(by_turns(3, 4, 5))
    project.run("dev")
    plan = project.run(*THRICE, "--dry-run").out
    assert "Judgements: 12, of which 4 are stored already\n" in plan
    assert "Calls to make: 8\n" in plan
    outcome = project.run(*THRICE, "--max-usd", "0")
    assert (outcome.code, len(server.calls)) == (3, 4)
    outcome = project.run(*THRICE)
    assert (outcome.code, len(server.calls)) == (0, 12)


def test_a_baseline_with_another_number_of_repeats_is_compared(project: Project, serve: Serve) -> None:
    write_many(project, 6)
    serve(by_turns(5, 3, 1))
    once = project.run()
    project.write("baseline.json", once.results)
    outcome = project.run(*THRICE, "--baseline", "baseline.json")
    assert outcome.code == 1  # from 5 to 3
    baseline = outcome.results["strong"]["baseline"]
    assert -2 in [row["difference"] for row in baseline["differences"]]
    project.write("baseline.json", outcome.results)
    [note] = project.run(*THRICE, "--baseline", "baseline.json").results["strong"]["baseline"]["notes"]
    assert (
        note == "not compared with the baseline, partly submitted in the baseline: Combined"
    )  # no citations


def verdict_by_turns(*words: str) -> Callable[[Call], Reply]:
    def answer(call: Call) -> Reply:
        return completion(json.dumps({"reasoning": "Because.", "correct": words[repeat_of(call)]}))

    return answer


ROWS = [{"id": "r1", "question": "What burns?", "gold": "oil", "prediction": "It was whale oil."}]
VERDICTS = {
    "two of three": (("yes", "no", "yes"), 2 / 3, True),
    "one of three": (("no", "no", "yes"), 1 / 3, False),
    "a tie is no": (("yes", "no"), 1 / 2, False),
    "one": (("yes",), 1, True),
}


@table("words, score, correct", VERDICTS)
def test_a_verdict_is_a_mean_above_one_half(
    project: Project, serve: Serve, words: Sequence[str], score: float, correct: bool
) -> None:
    project.write("log.json", ROWS)
    serve(verdict_by_turns(*words))
    command = ("answers", "log.json", "--method", "llm_judge", "--repeats", str(len(words)))
    assert project.run(*command, "--report", "csv").code == 0
    results = project.read("log_answers.json")
    [row] = results["detailed_results"]
    assert (row["correct"], results["accuracy"]) == (correct, float(correct))
    assert row["scores"]["llm_judge"] == results["measures"]["llm_judge"]["mean"] == pytest.approx(score)
    if len(words) > 1:
        assert row["llm_judge_repeats"] == [int(word == "yes") for word in words]
        shown = ", ".join(str(int(word == "yes")) for word in words)
        assert project.table("log_answers.csv")[0]["llm_judge_repeats"] == shown


def test_criteria_of_ones_own_and_the_support_are_repeated(small: Project, serve: Serve) -> None:
    def answer(call: Call) -> Reply:
        turn = repeat_of(call)
        fields = {"score": 3 + turn, "support": ("full", "none", "partial")[turn], "decision": "no"}
        return completion(json.dumps({"rationale": "Because.", **fields}))

    server = serve(answer)
    outcome = small.run(*THRICE, "--criteria", "support", "polite=Is it polite?", "--report", "html")
    assert (outcome.code, len(server.calls)) == (0, 3 * 5)  # of q002 nothing is cited
    [row, blank] = outcome.results["strong"]["support"]["per_question"]
    assert (row["support_score"], row["support"], row["support_repeats"]) == (0.5, "partial", [1, 0, 0.5])
    assert (blank["support_score"], blank["support_repeats"]) == (0, [])
    [row, _] = outcome.results["strong"]["polite"]["per_question"]
    assert row["polite_repeats"] == [0, 0, 0]
    page = small.files()["dev_evaluation.html"].decode()
    assert "partial (full, none, partial): Because." in page


def test_summaries_are_judged_several_times(project: Project, serve: Serve) -> None:
    sides = [{"claim": "Oil.", "perspectives": [{"text": "It is cheap.", "evidence_docs": [1]}]}]
    rows = [{"id": "s1", "query": "Oil?", "summary": sides}]
    project.write("results/offline-summaries-JSON-enforced/results-5-offline-0.json", rows)
    gold = {"id": "g", "title": "Oil?", "t1": "Good.", "response1": ["Cheap."], "favor_ids": [1]}
    gold |= {"t2": "Bad.", "response2": ["It burns."], "against_ids": [2]}
    project.write("data/theperspective/data.jsonl", json.dumps(gold))

    def answer(call: Call) -> Reply:
        scores = dict.fromkeys(SUMMARY_CRITERIA, repeat_of(call))
        scores[SUMMARY_CRITERIA[0]] = 2 if repeat_of(call) == 0 else 1
        explanations = dict.fromkeys(SUMMARY_CRITERIA, "Because.")
        return completion(json.dumps({"explanations": explanations, "scores": scores}))

    serve(answer)
    assert project.run("summaries", "--repeats", "3").code == 0
    [path] = [name for name in project.files() if "llm_judge_scores" in name]
    results = project.read(path)
    [row] = results["results"]
    assert row["scores"][SUMMARY_CRITERIA[0]] == pytest.approx(4 / 3)
    assert row["scores"]["total_score"] == pytest.approx(4 / 3 + 4)
    assert [sum(scores.values()) for scores in row["repeats"]] == [2, 5, 9]
    assert results["statistics"]["total_score"]["distribution"]["5"] == 1


def test_a_late_student_is_judged_as_often_as_the_class(small: Project, serve: Serve) -> None:
    strong = small.read("dev_strong_output.json")
    small.submission("in/ann", final=strong)
    server = serve(by_turns(3, 4, 5))
    command = (*THRICE, "--submissions", "in/*", "--report", "html")
    small.run(*command)
    assert len(server.calls) == 6
    small.submission("in/zoe", final={**strong, "q002": {"answer": "It snows."}})
    outcome = small.run(*command)
    assert (outcome.code, len(server.calls)) == (0, 9)
    rows = {row["submission"]: row["avg_answer_score"] for row in small.table("dev_grades.csv")}
    assert rows == {"ann": "4.0", "zoe": "4.0"}
    assert "3, 4, 5" in small.files()["dev_graded/zoe/dev_evaluation.html"].decode()


def origin_of(title: str, block: Mapping[str, Any], repeats: int = 3) -> str:
    judge = f"judge:{block['judge_model']}|repeats:{repeats}"
    return f"{title}|{judge}|prompt:{block['prompt_hash'][:8]}|v:{evaluation.VERSION}"


def test_a_line_under_each_table_says_what_scores_rest_on(small: Project, serve: Serve) -> None:
    serve(completion(json.dumps({"rationale": "Because.", "score": 4, "support": "full"})))
    strong = small.read("dev_strong_output.json")
    small.predictions("simple", strong)
    small.submission("in/ann", final=strong)
    options = ("--criteria", "support", "--repeats", "3", "--report", "csv", "html", "md")
    outcome = small.run("dev", *options)
    blocks_of = outcome.results["strong"]
    lines = [origin_of("Answer", blocks_of["llm_judge"]), origin_of("Support", blocks_of["support"])]
    assert set(lines) <= set(outcome.out.splitlines())
    page = small.files()["dev_evaluation.html"].decode().replace("<wbr>", "")
    assert all(line in page for line in lines)
    origins = {row["system"]: row["provenance"] for row in small.table("dev_evaluation.csv")}
    assert origins == {"simple": "", "strong": "; ".join(lines)}
    outcome = small.run("dev", *options, "--submissions", "in/ann")
    assert set(lines) <= set(outcome.out.splitlines())


def test_provenance_of_answers(project: Project, serve: Serve) -> None:
    serve(verdict_by_turns("yes", "no"))
    project.write("log.json", ROWS)
    command = ("answers", "log.json", "--report", "csv")
    assert "|judge:" not in project.run(*command, "--out", "exact").out
    assert {row["provenance"] for row in project.table("exact/log_answers.csv")} == {""}
    outcome = project.run(*command, "--method", "llm_judge", "--repeats", "2", "--out", "judged")
    results = project.read("judged/log_answers.json")
    block = {"judge_model": JUDGE, "prompt_hash": results["setup"]["prompt_hash"]}
    assert origin_of("llm_judge", block, 2) in outcome.out.splitlines()
    rows = project.table("judged/log_answers.csv")
    assert {row["provenance"] for row in rows} == {origin_of("llm_judge", block, 2)}


# The scores of two repeats, and the level that their mean is taken for
HALFWAY = [([1, 2], 2), ([3, 2], 3), ([2, 5], 4), ([4, 5], 5), ([5, 4], 5), ([5, 3], 4)]


@pytest.mark.parametrize(("repeats", "level"), HALFWAY)
def test_a_mean_halfway_between_two_levels_is_the_upper_one(
    small: Project, judge_with: JudgeWith, repeats: list[int], level: int
) -> None:
    """So it is at the rubric's levels, and in what the page says of a criterion of one's own with levels."""
    small.write("clear.json", {"name": "clear", "description": "Is it clear?", "scale": SCALE})
    judge_with({"strong": [repeats, [1, 1]]})
    small.run("dev", "--repeats", "2", "--criteria", "clear.json", "--report", "html")
    page = re.sub("</?span( lang=..)?>", "", small.files()["dev_evaluation.html"].decode())
    mean = f"{sum(repeats) / 2:g}"
    assert f'<dd lang="">{mean} ({repeats[0]}, {repeats[1]}): Worth ' in page
    given = re.findall(r"<b>(\d)</b> level \d <span class=\"badge level\d\">given to strong", page)
    assert int(given[0]) == level


def test_from_python_models_and_functions_are_asked_several_times(small: Project, serve: Serve) -> None:
    server = serve(by_turns(3, 4, 5))
    results = evaluation.grade("dev", judge=JUDGE, repeats=3)
    assert len(server.calls) == 6
    assert [row["answer_repeats"] for row in results.rows()] == [[3, 4, 5]] * 2
    assert [row["answer_score_raw"] for row in results.rows()] == [4, 4]
    names = {row["measure"] for row in results.summary()}
    assert names == {row["measure"] for row in evaluation.grade("dev", judge=JUDGE).summary()}
    given = iter([1, 2, 5, 5, 5, 5])
    results = evaluation.grade("dev", judge=lambda asked, answer: next(given), repeats=3)
    assert [row["answer_repeats"] for row in results.rows()] == [[1, 2, 5], [5, 5, 5]]
    for repeats in (0, -1, 1.5):
        message = f"^repeats: expected a whole number from 1 to 20, got {repeats}$"
        with pytest.raises(ValueError, match=message):
            evaluation.grade("dev", repeats=repeats)  # type: ignore[arg-type]


def test_from_python_answers_are_judged_several_times(project: Project, serve: Serve) -> None:
    serve(verdict_by_turns("yes", "no", "yes"))
    results = evaluation.grade_answers(ROWS, methods=(), judge=JUDGE, repeats=3)
    [row] = results.rows()
    assert (row["correct"], row["llm_judge_repeats"]) == (True, [1, 0, 1])
