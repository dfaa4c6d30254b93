"""How much a judge can be trusted: asked again (--repeats), and beside other judges of the journal."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import evaluation
import pytest

from conftest import (
    FAILED_CALL,
    FIRST_SEED,
    GPT_OSS,
    LLAMA,
    JudgeWith,
    Outcome,
    Project,
    Serve,
    asked_document,
    assert_refused,
    below_the_averages,
    blocks,
    journal_entries,
    json_lines,
    judge_block,
    judge_row,
    judge_scores,
    mentions,
    pasted,
    table,
    write_many,
)
from groq_server import Call, Reply, completion, decommissioned, score_reply

THRICE = ("dev", "--repeats", "3")
SUMMARY_CRITERIA = (
    "criterion_1_claim_relevance",
    "criterion_2_perspective_claim_alignment",
    "criterion_3_perspective_distinctness",
    "criterion_4_coverage_of_core_arguments",
    "criterion_5_factual_grounding",
)


def repeat_of(call: Call) -> int:
    number: int = call.body["seed"] - FIRST_SEED
    return number


def by_turns(*scores: int) -> Callable[[Call], Reply]:
    """Give these scores by turns, each time that something is asked again the next one."""
    return lambda call: score_reply(scores[repeat_of(call)], f"Worth {scores[repeat_of(call)]}.")


def rows_of_csv(project: Project, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(project.files()[name].decode("utf-8-sig"))))


# ------------------------------------------------------------------ Repeats


def test_the_score_is_the_mean_and_the_reason_that_of_the_score_nearest_to_it(
    small: Project, serve: Serve
) -> None:
    server = serve(by_turns(5, 3, 5))
    outcome = small.run(*THRICE, "--report", "csv", "html")
    assert (outcome.code, len(server.calls)) == (0, 6)
    assert "Average Answer Score (1-5): 4.33\n" in outcome.out
    assert mentions(outcome.err, "Judge: llama-3.1-8b-instant, 6 judgements; 6 calls")
    row = judge_row(outcome, "q001")
    assert row["answer_score_raw"] == row["judge_score"] == pytest.approx(13 / 3)
    assert (row["answer_repeats"], row["answer_rationale"]) == ([5, 3, 5], "Worth 5.")
    block = judge_block(outcome)
    assert (block["repeats"], block["usage"]["judgements"]) == (3, 6)
    [row, _] = rows_of_csv(small, "dev_evaluation.csv")
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


def test_a_missing_repeat_is_a_missing_judgement(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(by_turns(5, 4, 3))
    small.run(*THRICE, "--workers", "1")
    small.write("dev_judgements.jsonl", json_lines(*journal_entries(small)[:-1]))
    monkeypatch.delenv("GROQ_API_KEY")
    outcome = small.run(*THRICE)
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


def test_a_successor_judges_all_repeats(small: Project, serve: Serve) -> None:
    """The usual judge is withdrawn after three of six judgements: no answer has those of two models."""

    def answer(call: Call) -> Reply:
        if call.body["model"] == LLAMA:
            return score_reply(1) if call.number < 3 else decommissioned()
        return by_turns(3, 4, 5)(call)

    server = serve(answer)
    outcome = small.run(*THRICE, "--workers", "1")
    assert outcome.code == 0
    assert [row["answer_repeats"] for row in judge_block(outcome)["per_question"]] == [[3, 4, 5]] * 2
    assert judge_block(outcome)["judge_model"] == GPT_OSS
    assert len(server.calls) == 3 + 1 + 6


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
    note = "repeats of each judgement: 1 in the baseline, 3 now"
    assert mentions(outcome.out.splitlines(), f"strong: {note}")
    baseline = outcome.results["strong"]["baseline"]
    assert baseline["notes"] == [note]
    assert -2 in [row["difference"] for row in baseline["differences"]]
    project.write("baseline.json", outcome.results)
    assert project.run(*THRICE, "--baseline", "baseline.json").results["strong"]["baseline"]["notes"] == []


def test_a_number_of_repeats_that_is_none(small: Project) -> None:
    for value in ("0", "-1", "x"):
        message = f"error: argument --repeats: expected a whole number from 1, got {value!r}"
        assert assert_refused(small, "dev", "--repeats", value) == [message]


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
        assert rows_of_csv(project, "log_answers.csv")[0]["llm_judge_repeats"] == shown


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


# ------------------------------------------------------------------ The judge and itself


def agreement_of(outcome: Outcome, judge: str = "itself") -> dict[str, Any]:
    found: dict[str, Any] = judge_block(outcome)["judges"][judge]
    return found


def test_agreement_of_a_judge_with_itself(project: Project, judge_with: JudgeWith) -> None:
    """Of six pairs of scores two are equal and four within one level; alpha is computed by hand."""
    write_many(project, 6)
    judge_with({"strong": [[1, 1, 3], [5, 4, 5], [2, 2, 2], [4, 4, 4], [1, 1, 1], [3, 3, 3]]})
    outcome = project.run(*THRICE, "--report", "html")
    found = agreement_of(outcome)
    assert (found["answers"], found["scores_of_each"]) == (6, 3)
    assert found["exact_agreement"] == pytest.approx((1 / 3 + 1 / 3 + 4) / 6)
    assert found["agreement_within_1"] == pytest.approx((1 / 3 + 5) / 6)
    ratings = [[1, 5, 2, 4, 1, 3], [1, 4, 2, 4, 1, 3], [3, 5, 2, 4, 1, 3]]
    assert found["krippendorff_alpha"] == pytest.approx(evaluation.krippendorff_alpha(ratings, "ordinal"))
    for name in ("exact_agreement", "agreement_within_1", "krippendorff_alpha"):
        low, high = found["ci95"][name]
        assert low <= found[name] <= high
    assert re.search(r"^itself, 3 times  Answer +6  0.78 \[", blocks(outcome.out)["JUDGES"], re.MULTILINE)
    assert "itself, 3 times" in project.files()["dev_evaluation.html"].decode()
    assert "alpha is below" not in outcome.out


UNSTABLE = "Answer: alpha is below 0.8: asked again, the judge gives other scores.\n"
ONE_LEVEL = (
    "Answer: more than 80 % of the scores are one level: alpha tells little, and exact agreement is 0.89.\n"
)


def test_a_judge_that_gives_other_scores_when_asked_again_is_named(
    project: Project, judge_with: JudgeWith
) -> None:
    write_many(project, 6)
    judge_with({"strong": [[1, 4, 2], [5, 1, 5], [2, 2, 5], [4, 2, 4], [1, 5, 1], [3, 1, 3]]})
    outcome = project.run(*THRICE)
    assert UNSTABLE in outcome.out


def test_nearly_equal_scores_are_no_instability(project: Project, judge_with: JudgeWith) -> None:
    write_many(project, 6)
    judge_with({"strong": [[5, 4, 5], 5, 5, 5, 5, 5]})
    outcome = project.run(*THRICE)
    assert ONE_LEVEL in outcome.out
    assert UNSTABLE not in outcome.out


def test_a_judge_asked_once_is_not_compared_with_itself(small: Project, serve: Serve) -> None:
    serve(score_reply(4))
    outcome = small.run()
    assert "JUDGES" not in outcome.out
    assert "judges" not in judge_block(outcome)


# ------------------------------------------------------------------ Second markers

LARGER = "openai/gpt-oss-120b"


def judge_by(models: Mapping[str, Callable[[int], int | None]]) -> Callable[[Call], Reply]:
    """Score answer N of `write_many` by the model's function of N; None: the model is away."""

    def answer(call: Call) -> Reply:
        score = models[call.body["model"]](int(asked_document(call)[1:]))
        return FAILED_CALL if score is None else score_reply(score, f"Says {call.body['model']}.")

    return answer


def one_to_four(number: int) -> int:
    return 1 + number % 4


def test_a_second_marker_who_is_a_level_kinder(project: Project, serve: Serve) -> None:
    write_many(project, 8)
    server = serve(judge_by({GPT_OSS: lambda number: 1 + one_to_four(number), LARGER: one_to_four}))
    alone = project.run("dev", "--model", LARGER)
    project.run("dev", "--model", GPT_OSS)
    outcome = project.run("dev", "--model", LARGER, "--report", "csv", "html")
    assert (outcome.code, len(server.calls)) == (0, 16)
    assert judge_scores(outcome) == judge_scores(alone)
    means = {"avg_answer_score", "avg_combined_score"}
    assert {name: judge_block(outcome)[name] for name in means} == {
        name: judge_block(alone)[name] for name in means
    }
    found = agreement_of(outcome, GPT_OSS)
    assert (found["answers"], found["exact_agreement"], found["agreement_within_1"]) == (8, 0, 1)
    low, high = found["ci95"]["minus_judge"]
    assert (found["minus_judge"], 0 < low < 1 < high < 2) == (1, True)
    scores = [one_to_four(number) for number in range(8)]
    kappa = evaluation.cohen_kappa(scores, [score + 1 for score in scores], "quadratic")
    assert found["weighted_kappa"] == pytest.approx(kappa)
    assert judge_row(outcome, "q001")["answer_second_markers"] == {GPT_OSS: 2}
    assert rows_of_csv(project, "dev_evaluation.csv")[0]["answer_second_markers"] == f"{GPT_OSS}: 2"
    assert f"By {GPT_OSS}" in project.files()["dev_evaluation.html"].decode()
    assert re.search(rf"^{GPT_OSS}  Answer +8  0.00 ", blocks(outcome.out)["JUDGES"], re.MULTILINE)


def test_a_third_judge_who_was_away_for_half(project: Project, serve: Serve) -> None:
    write_many(project, 8)
    away = {LLAMA: lambda number: 5 if number < 4 else None, GPT_OSS: one_to_four, LARGER: one_to_four}
    serve(judge_by(away))
    for model, code in ((LLAMA, 3), (GPT_OSS, 0), (LARGER, 0)):
        outcome = project.run("dev", "--model", model)
        assert outcome.code == code
    assert agreement_of(outcome, LLAMA)["answers"] == 4
    assert agreement_of(outcome, GPT_OSS)["exact_agreement"] == 1
    assert judge_row(outcome, "q008")["answer_second_markers"] == {GPT_OSS: 4}
    results = evaluation.grade("dev", judge=LARGER)
    assert results.rows()[0]["answer_second_markers"] == {GPT_OSS: 1, LLAMA: 5}
    outcome = project.run("dev", "--model", LARGER, "--repeats", "2")  # of the others one judgement is enough
    assert agreement_of(outcome, GPT_OSS)["answers"] == 8


def test_second_markers_of_a_class_are_on_the_leaderboard_and_on_no_students_page(
    small: Project, judge_with: JudgeWith
) -> None:
    strong = small.read("dev_strong_output.json")
    small.submission("in/ann", final=strong)
    small.submission("in/bob", final={**strong, "q002": {"answer": "It snows."}})
    command = ("dev", "--submissions", "in/ann", "in/bob", "--report", "html")
    judge_with({"in/ann/final": [5, 2], "in/bob/final": [5, 4]})
    small.run(*command, "--model", GPT_OSS)
    judge_with({"in/ann/final": [4, 1], "in/bob/final": [4, 4]})
    outcome = small.run(*command, "--model", LLAMA)
    assert outcome.code == 0
    rows = {row["submission"]: row for row in rows_of_csv(small, "dev_leaderboard.csv")}
    assert (rows["ann"]["answer"], rows["ann"][f"answer by {GPT_OSS}"]) == ("2.5", "3.5")
    assert (rows["bob"]["answer"], rows["bob"][f"answer by {GPT_OSS}"]) == ("4.0", "4.5")
    assert f"Answer by {GPT_OSS}" in small.files()["dev_leaderboard.html"].decode()
    assert f"{GPT_OSS}  Answer" in blocks(outcome.out)["JUDGES"]
    for name in ("ann", "bob"):
        page = small.files()[f"dev_graded/{name}/dev_evaluation.html"].decode()
        assert GPT_OSS not in page
        assert LLAMA in page


def test_a_second_markers_mean_has_no_interval(project: Project, judge_with: JudgeWith) -> None:
    write_many(project, 5)
    for name in ("ann", "bob"):
        project.submission(f"in/{name}", final=project.read("dev_strong_output.json"))
    judge_with({"in/ann/final": [1, 2, 3, 4, 5], "in/bob/final": [1, 2, 3, 4, 5]})
    for model in (GPT_OSS, LLAMA):
        project.run("dev", "--submissions", "in/ann", "in/bob", "--model", model)
    lines = (project.folder / "dev_leaderboard.md").read_text("utf-8").splitlines()
    assert mentions(lines, "| Rank | Submission |", f"Answer by {GPT_OSS}")
    assert "- 95 % intervals in brackets, by 5 gold documents." in lines


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
    rows = {row["submission"]: row["answer"] for row in rows_of_csv(small, "dev_leaderboard.csv")}
    assert rows == {"ann": "4.0", "zoe": "4.0"}
    assert "3, 4, 5" in small.files()["dev_graded/zoe/dev_evaluation.html"].decode()


def test_second_markers_of_answers(project: Project, serve: Serve) -> None:
    project.write("log.json", [{**ROWS[0], "id": f"r{n}", "prediction": f"Answer {n}."} for n in range(4)])
    command = ("answers", "log.json", "--method", "llm_judge", "--out")

    def answer(call: Call) -> Reply:
        is_right = call.body["model"] == GPT_OSS or pasted(call) in ("Answer 0.", "Answer 1.")
        return completion(json.dumps({"reasoning": "Because.", "correct": "yes" if is_right else "no"}))

    serve(answer)
    project.run(*command, "one", "--model", GPT_OSS)
    outcome = project.run(*command, "two", "--model", LLAMA, "--report", "html")
    results = project.read("two/log_answers.json")
    found = results["judges"]["llm_judge"][GPT_OSS]
    assert (found["answers"], found["exact_agreement"], found["minus_judge"]) == (4, 0.5, 0.5)
    assert found["agreement_within_1"] is None
    assert results["accuracy"] == 0.5
    assert results["detailed_results"][3]["llm_judge_second_markers"] == {GPT_OSS: 1}
    assert f"{GPT_OSS}  llm_judge" in blocks(outcome.out)["JUDGES"]
    [page] = [content for name, content in project.files().items() if name.endswith(".html")]
    assert f"<dt>llm_judge, all scores</dt><dd>no; {GPT_OSS}: yes</dd>" in page.decode()


def test_a_second_marker_by_a_protocol_with_levels(project: Project, serve: Serve) -> None:
    """Scores from 1 to 5 are reported as shares of 5, and compared as they were given."""
    rows = [{**ROWS[0], "id": f"r{n}", "question": f"Q{n}?", "prediction": f"Answer {n}."} for n in range(6)]
    project.write("log.json", rows)
    command = ("answers", "log.json", "--method", "llm_judge", "--protocol", "quality", "--out")
    names = ("correctness", "helpfulness", "faithfulness", "fluency", "overall")

    def answer(call: Call) -> Reply:
        score = 5 if call.body["model"] == GPT_OSS else 2
        return completion(json.dumps({"reasoning": "Because.", **dict.fromkeys(names, score)}))

    serve(answer)
    project.run(*command, "one", "--model", GPT_OSS)
    project.run(*command, "two", "--model", LLAMA)
    found = project.read("two/log_answers.json")["judges"]["llm_judge"][GPT_OSS]
    assert (found["exact_agreement"], found["agreement_within_1"], found["minus_judge"]) == (0, 0, 3)
    low, high = found["ci95"]["minus_judge"]
    assert 1 < low <= 3 <= high <= 4


# ------------------------------------------------------------------ Where judges differ


CLASS = ("dev", "--submissions", "in/ann", "in/bob", "--report", "html")
HEADING = "Judges differ: {}; read the answers and decide"


@pytest.fixture
def pair(small: Project) -> Project:
    strong = small.read("dev_strong_output.json")
    small.submission("in/ann", final=strong)
    small.submission("in/bob", final={**strong, "q002": {"answer": "It snows."}})
    return small


def in_the_box(outcome: Outcome, count: int) -> list[str]:
    """Return what the console lists below the heading of the kind."""
    lines = blocks(outcome.out).get("NEEDS ATTENTION", "").splitlines()
    return lines[lines.index(HEADING.format(count)) + 1 :][:count]


def differing(project: Project) -> dict[str, str]:
    return {row["submission"]: row["judges_differ"] for row in rows_of_csv(project, "dev_grades.csv")}


def test_repeats_that_are_two_levels_apart_need_a_decision(pair: Project, judge_with: JudgeWith) -> None:
    judge_with({"in/ann/final": [[5, 3], [2, 3]], "in/bob/final": [[5, 3], [1, 4]]})
    command = (*CLASS, "--repeats", "2")
    outcome = pair.run(*command)
    assert [line.strip() for line in in_the_box(outcome, 3)] == [
        "ann: q001 (5, 3)",
        "bob: q001 (5, 3)",
        "bob: q002 (1, 4)",
    ]
    assert differing(pair) == {"ann": "1", "bob": "2"}
    page = pair.files()["dev_leaderboard.html"].decode()
    assert HEADING.format(3) in page
    assert 'href="dev_graded/bob/dev_evaluation.html#q002"' in page
    pair.write(
        "dev_overrides.csv", "question_id,submission,score,reason\nq001,ann,4,Read.\nq001,bob,4,Read.\n"
    )
    outcome = pair.run(*command)
    assert [line.strip() for line in in_the_box(outcome, 1)] == ["bob: q002 (1, 4)"]
    assert differing(pair) == {"ann": "0", "bob": "1"}


def test_judges_that_are_two_levels_apart_need_a_decision(pair: Project, judge_with: JudgeWith) -> None:
    judge_with({"in/ann/final": [5, 2], "in/bob/final": [5, 4]})
    pair.run(*CLASS, "--model", GPT_OSS)
    judge_with({"in/ann/final": [4, 4], "in/bob/final": [4, 4]})
    outcome = pair.run(*CLASS, "--model", LLAMA)
    assert [line.strip() for line in in_the_box(outcome, 1)] == [f"ann: q002 (4; {GPT_OSS}: 2)"]
    for name in ("ann", "bob"):
        page = pair.files()[f"dev_graded/{name}/dev_evaluation.html"].decode()
        assert GPT_OSS not in page
        assert "Judges differ" not in page


def test_judges_that_differ_in_the_current_folder(project: Project, judge_with: JudgeWith) -> None:
    write_many(project, 4)
    judge_with({"strong": [[5, 3], [2, 2], [1, 5], [3, 4]]})
    outcome = project.run("dev", "--repeats", "2", "--report", "md")
    shown = [line for line in below_the_averages(outcome) if line.startswith("Judges differ")]
    assert shown == ["Judges differ: q001: 5, 3", "Judges differ: q003: 1, 5"]
    assert (
        "\n## Answers to look at\n\n- strong: Judges differ: q001: 5, 3\n"
        in project.files()["dev_evaluation.md"].decode()
    )
    project.run("dev", "--repeats", "2", "--label-sheet", "2")
    whys = [row["why"] for row in rows_of_csv(project, "dev_labels.csv")]
    assert whys[:2] == ["", ""]
    assert set(whys[2:]) <= {"judges differ (5, 3)", "judges differ (1, 5)"}


def test_support_two_levels_apart_needs_a_decision(small: Project, serve: Serve) -> None:
    def answer(call: Call) -> Reply:
        support = ("full", "none")[repeat_of(call)]
        return completion(json.dumps({"rationale": "Because.", "score": 4, "support": support}))

    serve(answer)
    command = ("dev", "--repeats", "2", "--criteria", "support")
    assert "Judges differ: q001: support: full, none" in below_the_averages(small.run(*command))
    small.write(
        "dev_overrides.csv", "question_id,system,criterion,score,reason\nq001,strong,support,partial,Read.\n"
    )
    assert not mentions(below_the_averages(small.run(*command)), "Judges differ")


# ------------------------------------------------------------------ Provenance


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
    origins = {row["system"]: row["provenance"] for row in rows_of_csv(small, "dev_evaluation.csv")}
    assert origins == {"simple": "", "strong": "; ".join(lines)}
    outcome = small.run("dev", *options, "--submissions", "in/ann")
    assert set(lines) <= set(outcome.out.splitlines())
    assert {row["provenance"] for row in rows_of_csv(small, "dev_leaderboard.csv")} == {"; ".join(lines)}


def test_provenance_of_answers(project: Project, serve: Serve) -> None:
    serve(verdict_by_turns("yes", "no"))
    project.write("log.json", ROWS)
    command = ("answers", "log.json", "--report", "csv")
    assert "|judge:" not in project.run(*command, "--out", "exact").out
    assert {row["provenance"] for row in rows_of_csv(project, "exact/log_answers.csv")} == {""}
    outcome = project.run(*command, "--method", "llm_judge", "--repeats", "2", "--out", "judged")
    results = project.read("judged/log_answers.json")
    block = {"judge_model": LLAMA, "prompt_hash": results["setup"]["prompt_hash"]}
    assert origin_of("llm_judge", block, 2) in outcome.out.splitlines()
    assert {row["provenance"] for row in rows_of_csv(project, "judged/log_answers.csv")} == {
        origin_of("llm_judge", block, 2)
    }


# ------------------------------------------------------------------ From Python


def test_from_python_models_and_functions_are_asked_several_times(small: Project, serve: Serve) -> None:
    server = serve(by_turns(3, 4, 5))
    results = evaluation.grade("dev", judge=LLAMA, repeats=3)
    assert len(server.calls) == 6
    assert [row["answer_repeats"] for row in results.rows()] == [[3, 4, 5]] * 2
    assert [row["answer_score_raw"] for row in results.rows()] == [4, 4]
    names = {row["measure"] for row in results.summary()}
    assert names == {row["measure"] for row in evaluation.grade("dev", judge=LLAMA).summary()}
    given = iter([1, 2, 5, 5, 5, 5])
    results = evaluation.grade("dev", judge=lambda asked, answer: next(given), repeats=3)
    assert [row["answer_repeats"] for row in results.rows()] == [[1, 2, 5], [5, 5, 5]]
    for repeats in (0, -1, 1.5):
        with pytest.raises(ValueError, match=f"^repeats: expected a whole number from 1, got {repeats}$"):
            evaluation.grade("dev", repeats=repeats)  # type: ignore[arg-type]


def test_from_python_answers_are_judged_several_times(project: Project, serve: Serve) -> None:
    serve(verdict_by_turns("yes", "no", "yes"))
    results = evaluation.grade_answers(ROWS, methods=(), judge=LLAMA, repeats=3)
    [row] = results.rows()
    assert (row["correct"], row["llm_judge_repeats"]) == (True, [1, 0, 1])
