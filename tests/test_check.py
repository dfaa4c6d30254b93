"""`check`: everything is validated and counted, nothing is judged or written."""

from __future__ import annotations

from conftest import QUESTIONS_FILE, Project, Serve, mentions, table
from groq_server import score_reply

SMALL = "strong: 2 of 2 questions answered, 1 with citations, 1 with retrieval\n"


def test_counts_of_each_system_and_nothing_else(small: Project, serve: Serve) -> None:
    server = serve(score_reply(5))
    small.predictions("zebra", {"q001": {"answer": "It is."}, "q002": {}})
    before = small.files()
    outcome = small.run("check", "dev")
    zebra = "zebra: 1 of 2 questions answered, 0 with citations, 0 with retrieval\n"
    assert (outcome.code, outcome.out, outcome.err) == (0, SMALL + zebra, [])
    assert small.run("check", "dev", "--systems", "zebra").out == zebra
    assert (small.files(), server.calls) == (before, [])


def test_warnings_are_shown_and_fail_a_strict_check(small: Project) -> None:
    small.predictions("strong", {"q001": {"answer": "It is."}})
    for options, code in (((), 0), (("--strict",), 2)):
        outcome = small.run("check", "dev", *options)
        warning = "warning: dev_strong_output.json: questions without a prediction"
        assert (outcome.code, mentions(outcome.err, warning, "q002")) == (code, True)
        assert outcome.out == "strong: 1 of 2 questions answered, 0 with citations, 0 with retrieval\n"


def test_problems_of_all_files_are_shown(small: Project) -> None:
    small.write("corpus/d1.json", {"sentences": 1})
    small.write("team/dev_own_output.json", '{"q001": {"answer":')
    small.write("team/dev_strong_output.json", {"q001": {"answer": 1}, "q002": {"answer": []}})
    small.submission("fine", strong={"q001": {"answer": "It is."}})
    before = small.files()
    outcome = small.run("check", "dev", "--outputs", "team", "none", "fine")
    assert [line.split(": ")[0] for line in outcome.err] == [
        "corpus/d1.json:1",
        *["team/dev_strong_output.json:1"] * 2,
        *("team/dev_own_output.json:1", "none", "warning", "warning", "error", "2 warnings"),
    ]
    assert outcome.out.splitlines() == [
        "team/strong: cannot be graded",
        "team/own: cannot be graded",
        "fine/strong: 1 of 2 questions answered, 0 with citations, 0 with retrieval",
    ]
    assert (outcome.code, small.files()) == (2, before)


@table("arguments, name", {"here": ((), "strong"), "a submission": (("--outputs", "team"), "team/strong")})
def test_without_the_questions_the_predictions_alone_are_checked(
    small: Project, arguments: tuple[str, ...], name: str
) -> None:
    """Documents that were retrieved are still known by their sentences."""
    (small.folder / QUESTIONS_FILE).unlink()
    row = {"answer": "No idea.", "retrieved_docs": ["d1"], "evidence_sentences": ["d1_s1"]}
    predictions = {"a": row, "b": row, "c": row}
    small.predictions("strong", predictions)
    small.submission("team", strong=predictions)
    outcome = small.run("check", "dev", *arguments)
    assert outcome.out == f"{name}: 3 of 3 predictions answered, 3 with citations, 3 with retrieval\n"
    assert outcome.err[0] == f"{QUESTIONS_FILE} is not there: the predictions alone are checked."
    assert mentions(outcome.err, "warning: ", "cited IDs", "1, e.g. d1_s1 for S1")
    assert mentions(outcome.err, "warning: ", "all answers are the same", "No idea.")
    assert (outcome.err[-1], outcome.code) == ("2 warnings", 0)


def test_without_the_questions_retrieved_ids_are_compared(small: Project) -> None:
    (small.folder / QUESTIONS_FILE).unlink()
    for retrieved, code in ((["corpus/D1.json", "x"], 2), (["d1", "d2.json"], 0)):
        small.predictions("strong", {"a": {"answer": "No idea.", "retrieved_docs": retrieved}})
        outcome = small.run("check", "dev", "--strict")
        warned = mentions(outcome.err, "retrieved IDs unlike", "1, e.g. corpus/D1.json for d1; write")
        assert (outcome.code, warned) == (code, code == 2)


def test_no_predictions_are_a_problem(small: Project) -> None:
    for file in ("dev_strong_output.json", QUESTIONS_FILE):  # with and without the questions
        (small.folder / file).unlink()
        outcome = small.run("check", "dev")
        assert mentions(outcome.err, "dev_*_output.json: file not found")
        assert (outcome.code, outcome.out) == (2, "")
