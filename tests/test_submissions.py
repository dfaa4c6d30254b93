"""Systems and submissions: which are graded, which are judged, the leaderboard, what is wrong with some."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import unicodedata
from typing import Any

import pytest

from conftest import (
    JUDGE,
    JudgeWith,
    Project,
    Serve,
    add_answer_ids,
    assert_refused,
    document,
    journal_entries,
    json_lines,
    mentions,
    pasted,
    posix_only,
    question,
    table,
)
from groq_server import Call, GroqServer, Reply, score_reply

RESULTS, JOURNAL = "dev_evaluation.json", "dev_judgements.jsonl"
MARKDOWN, GRADES = "dev_leaderboard.md", "dev_grades.csv"
HISTORY = "dev_graded/history.csv"
A_FILE = "in/bad/dev_strong_output.json"


def correct(*numbers: int) -> dict[str, Any]:
    """Return predictions with the right document, citation and answer for these questions."""
    predictions = answers_only(*numbers)
    for number, prediction in zip(numbers, predictions.values(), strict=True):
        prediction |= {"evidence_sentences": ["S1"], "retrieved_docs": [f"d{number}"]}
    return predictions


def answers_only(*numbers: int) -> dict[str, Any]:
    """Return predictions with the right answers, without citations and documents."""
    return {f"q{number:03d}": {"answer": f"It is d{number}."} for number in numbers}


CORRECT = correct(1, 2)
HALF_CORRECT = {**correct(1), "q002": {"question": "What is d2?", "answer": "No idea."}}


@pytest.fixture
def course(project: Project) -> Project:
    """Two questions about two documents, and no predictions."""
    project.questions(question("d1"), question("d2"))
    project.documents(document("d1", "It rained."), document("d2", "It rained."))
    return project


@pytest.fixture
def three(course: Project) -> Project:
    """Three submissions: all correct; half correct, with an empty one; answers only, by `simple`."""
    course.submission("in/ann", strong=CORRECT)
    course.submission("in/bob", strong=HALF_CORRECT, empty={})
    course.submission("in/cem", simple=answers_only(1, 2))
    return course


THREE = ("dev", "--submissions", "in/*")


def judge_by_reference(call: Call) -> Reply:
    """Give 5 to the gold answer and 1 to any other."""
    return score_reply(5 if pasted(call) == pasted(call, "reference") else 1)


def leaderboard(project: Project, *columns: str) -> list[tuple[str, ...]]:
    """Return these columns of the grades, by rank, those without one last."""
    rows = project.table(GRADES)
    rows.sort(key=lambda row: (not row["rank"], int(row["rank"] or 0)))
    names = {"answer": "avg_answer_score", "combined": "avg_combined_score"}
    return [tuple(row[names.get(column, column)] for column in columns) for row in rows]


def judged_answers(server: GroqServer) -> list[str]:
    """Return the answers that the server was asked about, sorted."""
    return sorted(map(pasted, server.calls))


def test_every_predictions_file_is_a_system(course: Project) -> None:
    others = ["(b)", "..", "B", "a[1]", "bm25+rerank", "größe", "my_own", "simple_output", "v1.2", "灯台"]
    for name in ("strong", *reversed(others), "simple"):
        course.predictions(name, CORRECT)
    for ignored in ("dev__output", "dev_ownoutput", "train_own_output", "Dev_own_output", "x/dev_own_output"):
        course.write(f"{ignored}.json", "{")
    all_systems = course.run("dev", "--judge")
    course.write("dev_broken_output.json", "{")  # is not chosen
    chosen = course.run("dev", "--judge", "--systems", "v1.2", "simple", "B", "B")
    all_names = ["simple", "strong", *others]
    for outcome, expected in ((all_systems, all_names), (chosen, ["simple", "B", "v1.2"])):
        printed = re.findall(r"^Evaluating: dev_(.+)_output\.json$", outcome.out, re.MULTILINE)
        assert (printed, list(outcome.results)) == (expected, expected)
        assert outcome.code == 0
    names = "files that are not read because of their names: 2, e.g. Dev_own_output.json"
    assert all_systems.err == [f"warning: {names}; rename or remove them", "1 warning"]
    assert chosen.err == []  # They are left out.


@pytest.fixture
def four_systems(course: Project) -> Project:
    for name in ("zeta", "strong", "alpha", "simple"):
        course.predictions(name, CORRECT)
    return course


@table(
    "arguments, expected",
    {
        "all but simple": ([], ["strong", "alpha", "zeta"]),
        "simple too": (["--judge", "simple", "zeta"], ["simple", "zeta"]),
        "none": (["--judge"], []),
        "selected systems but simple": (["--systems", "simple", "zeta"], ["zeta"]),
    },
)
def test_judged_names(four_systems: Project, serve: Serve, arguments: list[str], expected: list[str]) -> None:
    server = serve(judge_by_reference)
    outcome = four_systems.run("dev", *arguments)
    assert [name for name, results in outcome.results.items() if "llm_judge" in results] == expected
    assert judged_answers(server) == (["It is d1.", "It is d2."] if expected else [])
    assert ((four_systems.folder / JOURNAL).exists(), outcome.code) == (bool(expected), 0)


def test_without_a_key_and_replies_no_request_is_built(
    course: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 answers this would take half of the time of the run."""
    course.predictions("strong", answers_only(1, 2))
    hashed: list[bytes] = []  # among them a request's body, for its key

    def sha256(data: bytes = b"", **options: bool) -> Any:
        hashed.append(data)
        return hashlib.new("sha256", data, **options)

    monkeypatch.setattr(hashlib, "sha256", sha256)
    outcome = course.run()
    assert ("llm_judge" in outcome.results["strong"], outcome.code) == (False, 0)
    assert (len(hashed) > 2, any(b'"messages"' in data for data in hashed)) == (True, False)


def test_without_a_key_blank_answers_are_not_judged(course: Project) -> None:
    course.predictions("strong", {"q001": {"answer": " "}})
    outcome = course.run()
    assert ("llm_judge" in outcome.results["strong"], outcome.code) == (False, 0)


@table(
    "arguments, message",
    {
        "graded system": (
            "--systems strong beta",
            "dev_beta_output.json: file not found in {}: expected dev_NAME_output.json; "
            "found dev_zeta_output.json, dev_alpha_output.json, dev_strong_output.json",
        ),
        "judged systems": (
            "--judge strong omega beta",
            "error: --judge: unknown system: beta, omega; the systems are simple, strong, alpha, zeta",
        ),
        "judged system that is not graded": (
            "--systems strong --judge zeta",
            "error: --judge: unknown system: zeta; the systems are strong",
        ),
    },
)
def test_unknown_names_in_options(four_systems: Project, serve: Serve, arguments: str, message: str) -> None:
    server = serve(judge_by_reference)
    problems = assert_refused(four_systems, "dev", *arguments.split())
    assert (problems, server.calls) == ([message.format(four_systems.folder)], [])


CONSOLE = """\
Evaluating dev split outputs...
Questions file: NLP Project Data/dev_final_jsonl.txt
Loaded 2 questions

============================================================
LEADERBOARD
============================================================

Rank  Submission  Combined  Answer       Evidence             F1
   1  ann            1.000    5.00          1.000          1.000
   2  bob            0.550    3.00          0.500          0.500
 n/a  cem            0.500    5.00  not submitted  not submitted
Ranked by: Combined
No intervals: fewer than 5 documents: 2.
Evaluation results saved to: dev_grades.csv, dev_leaderboard.md
3 of 3 submissions graded
"""


def test_console_and_files_of_judged_submissions(three: Project, serve: Serve) -> None:
    server = serve(judge_by_reference)
    before = three.files()
    outcome = three.run(*THREE)
    written = three.files()
    graded = {f"dev_graded/{name}/{RESULTS}" for name in ("ann", "bob", "cem")}
    assert written.keys() - before.keys() == {MARKDOWN, GRADES, JOURNAL, HISTORY, *graded}
    assert before.items() <= written.items()  # the folders of the submissions are only read
    assert judged_answers(server) == ["It is d1.", "It is d2.", "No idea."]
    server = serve(judge_by_reference)
    assert (three.run(*THREE).out, three.files(), server.calls) == (outcome.out, written, [])
    assert outcome.code == 0
    lines = iter(outcome.out.splitlines())  # measures that are new stand behind F1, or in a table below
    for expected in CONSOLE.splitlines():
        assert any(line.startswith(expected) for line in lines), expected


def test_only_new_answers_are_asked_about(three: Project, serve: Serve) -> None:
    serve(judge_by_reference)
    three.run(*THREE)
    server = serve(judge_by_reference)
    three.submission("in/dan", strong={"q001": {"answer": "A new answer."}, "q002": {"answer": "Another."}})
    assert "\n  Calls to make: 2\n" in three.run(*THREE, "--dry-run").out
    three.run(*THREE)
    assert judged_answers(server) == ["A new answer.", "Another."]
    three.submission("in/eve", strong={"q001": CORRECT["q001"], "q002": {"answer": "New."}})
    three.submission("in/fay", strong={"q001": {"answer": "New."}, "q002": {"answer": "Newer."}})
    assert three.run(*THREE, GROQ_API_KEY="").code == 3
    rows = leaderboard(three, "submission", "rank", "missing")
    assert {("eve", "", "1"), ("fay", "", "2")} <= set(rows)


def test_a_submission_is_graded_like_files_in_the_current_directory(three: Project) -> None:
    three.run(*THREE)
    for system, predictions in {"strong": HALF_CORRECT, "empty": {}}.items():
        three.predictions(system, predictions)
    alone, together = three.run().results, three.read(f"dev_graded/bob/{RESULTS}")
    assert list(together) == ["strong", "empty"]
    inputs = [file["file"] for file in together["strong"]["run"]["inputs"]]
    assert inputs == ["NLP Project Data/dev_final_jsonl.txt", "in/bob/dev_strong_output.json"]
    for results in (*alone.values(), *together.values()):
        del results["run"]
    assert together == alone


def test_judge_names_the_systems_to_judge(three: Project, serve: Serve) -> None:
    serve(judge_by_reference)
    three.submission("in/aa")
    assert three.run(*THREE, "--judge", "simple", "bob/empty").code == 3
    assert leaderboard(three, "rank", "submission", "system", "status") == [
        ("", "aa", "", "not graded"),
        ("", "ann", "strong", "graded"),
        ("", "bob", "empty", "graded"),
        ("", "cem", "simple", "graded"),
    ]
    reason = "Not graded: no predictions: expected dev_NAME_output.json, found nothing"
    assert leaderboard(three, "submission", "reason")[:2] == [("aa", reason), ("ann", "not judged")]
    (three.folder / "in" / "aa").rmdir()
    lines = three.files()[HISTORY].decode("utf-8-sig").splitlines()
    three.write(HISTORY, "\n".join(line for line in lines if ",aa," not in line))
    names = "ann/strong, bob/strong, bob/empty, cem/simple, strong, empty, simple"
    problem = f"error: --judge: unknown system: beta; the systems are {names}"
    assert assert_refused(three, *THREE, "--judge", "beta") == [problem]


def test_a_journal_in_a_submission_is_not_read(course: Project, serve: Serve) -> None:
    course.predictions("strong", CORRECT)
    serve(score_reply(1))
    course.run()
    best = json.dumps({"score": 5, "rationale": "Right."})
    forged = json_lines(*({**line, "reply": best} for line in journal_entries(course)))
    (course.folder / JOURNAL).unlink()
    course.submission("ann", strong=CORRECT)
    course.write(f"ann/{JOURNAL}", forged)
    server = serve(score_reply(2))
    course.run("dev", "--submissions", "ann")
    assert (len(server.calls), leaderboard(course, "answer")) == (2, [("2.0",)])
    assert (course.folder / "ann" / JOURNAL).read_text("utf-8") == forged
    course.write(JOURNAL, forged)
    assert course.run("dev", "--submissions", "ann", GROQ_API_KEY="").code == 0
    assert leaderboard(course, "answer") == [("5.0",)]


@posix_only
def test_fifos_and_links_out_of_a_submission_are_not_read(three: Project, serve: Serve) -> None:
    serve(judge_by_reference)
    three.submission("in/bad", final=CORRECT)
    for name in (JOURNAL, "dev_fifo_output.json"):
        os.mkfifo(three.folder / "in" / "bad" / name)
    (three.folder / A_FILE).symlink_to("../ann/dev_strong_output.json")
    outcome = three.run(*THREE)
    assert f"missing: {A_FILE}: a link out of the submission's folder" in outcome.err
    assert "missing: in/bad/dev_fifo_output.json: cannot be read: not a file" in outcome.err
    assert list(three.read(f"dev_graded/bad/{RESULTS}")) == ["final"]
    rows = leaderboard(three, "submission", "status", "system", "answer")
    assert ("bad", "graded", "final", "5.0") in rows
    assert outcome.code == 3


# One question with gold evidence S1. Citing S1 gives F1 1 and evidence 1; S1 and S2: F1 2/3 and evidence 1;
# nothing: 0 and 0. The combined score is the mean of score / 5 and evidence.
CITED = {"exact": ["S1"], "both": ["S1", "S2"], "none": []}
RANKINGS = {  # submission/system, its citations and its score if it is judged; rank of each
    "by combined score": ("a/x exact 1, b/x both 5", "1 b/x, 2 a/x"),  # 0.6 and 1.0
    "by F1 if none is judged": ("a/x both -, b/x exact -", "1 b/x, 2 a/x"),
    "without citations by F1": ("a/x none -, b/x both -", "1 b/x,  a/x"),
    "unjudged ones last": ("b/own exact -, c/x exact 1, a/own both -", "1 c/x,  a/own,  b/own"),
    "equal ones share": ("c/x exact 4, a/x exact 4, d/x exact 3, b/x exact 5", "1 b/x, 2 a/x, 2 c/x, 4 d/x"),
    "without citations": ("a/x none 5, b/x exact 1", "1 b/x,  a/x"),
    "if nobody cites": ("a/x none 4, b/x none 5", "1 b/x, 2 a/x"),
    "the best system counts": ("a/x exact 1, a/y both 3, b/x exact 2", "1 a/y, 2 b/x"),
    "or final": ("a/x exact 5, a/final exact 1, b/x exact 2", "1 b/x, 2 a/final"),
}


@table("submitted, ranks", RANKINGS)
def test_ranking(project: Project, judge_with: JudgeWith, submitted: str, ranks: str) -> None:
    project.questions(question("d1"))
    project.documents(document("d1", "It rained.", "It snowed."))
    scores = {}
    folders = []
    for text in submitted.split(", "):
        path, citations, score = text.split()
        folder, system = path.split("/")
        folders.append(folder)
        prediction = {"answer": f"Answer of {path}.", "evidence_sentences": CITED[citations]}
        project.submission(folder, **{system: {"q001": prediction}})
        if score != "-":
            scores[path] = [int(score)]
    judge_with(scores)
    for order in (folders, reversed(folders)):
        project.run("dev", "--submissions", *order, "--judge", *{path.split("/")[1] for path in scores})
        rows = leaderboard(project, "rank", "submission", "system")
        assert ", ".join(f"{rank} {folder}/{system}" for rank, folder, system in rows) == ranks


TOP = """\
# Leaderboard of the dev split

## Needs attention

| What | Where |
| --- | --- |
| Gold and files: 1 | NLP Project Data/dev\\_final\\_jsonl.txt: \
gold documents that are not in the corpus: 5, e.g. d1 |
| Not graded: 2 | =1+2: dev\\_bad\\_output.json:3: JSON is cut off; \
no\\_one: cannot be read: No such file or directory |
| Equal predictions: 2 | =1+2: ann/own; ann/own: =1+2/final |
| The best of several systems counts: 1 | ann: strong, own |

## Leaderboard

"""
# The dots are for columns of measures that are new.
IN_MARKDOWN = """\
| Rank | Submission | System | Combined | Answer | Evidence | F1 | Recall@1 % | Recall@5 % |...| Previous | Reason |
| --- |...| --- |
| 1 | ann | strong | 1.000 [0.429, 1.000] | 5.00 | 1.000 | 1.000 | 100.0 | 100.0 |...|  | Equal predictions: =1+2/final; The best of several systems counts: strong, own |
| n/a | =1+2 | final | 0.500 [0.360, 0.640] | 5.00 | not submitted |...; no citations, which counts 0 where there is gold evidence |
| n/a | no\\_one |  | n/a | n/a | n/a | n/a |...|  | Not graded: cannot be read: No such file or directory |
"""  # noqa: E501
BELOW = """
- Ranked by: Combined
- 95 % intervals in brackets, by 5 gold documents.
- ORIGIN
"""

WITH_PROBLEM = (
    "Not graded: dev_bad_output.json:3: JSON is cut off; Equal predictions: ann/own; "
    "no citations, which counts 0 where there is gold evidence"
)
BEST_OF_TWO = "Equal predictions: =1+2/final; The best of several systems counts: strong, own"
MISSING = "Not graded: cannot be read: No such file or directory"
POINTS = [
    "submission,points,previous,previous_date,rank,system,judge,status,reason,missing,flagged,decisions,warnings,page",
    f'\'=1+2,50.0,,,,final,{JUDGE},graded,"{WITH_PROBLEM}",0,0,0,0,dev_graded/=1+2/dev_evaluation.html',
    f'ann,100.0,,,1,strong,{JUDGE},graded,"{BEST_OF_TWO}",0,0,0,0,dev_graded/ann/dev_evaluation.html',
    f"no_one,,,,,,{JUDGE},not graded,{MISSING},0,0,0,0,dev_graded/no_one/dev_evaluation.html",
]
MEANS = [
    "avg_combined_score,avg_answer_score,avg_evidence_score,avg_f1,recall_at_1_pct,recall_at_5_pct",
    "0.5,5.0,,,,",
    "1.0,5.0,1.0,1.0,100.0,100.0",
    ",,,,,",
]


def test_leaderboard_files_of_judged_submissions(project: Project, serve: Serve) -> None:
    project.questions(*(question(f"d{number}") for number in range(1, 6)))  # the fewest that have intervals
    answers = answers_only(1, 2, 3, 4, 5)
    project.submission("ann", strong=correct(1, 2, 3, 4, 5), own=answers)
    project.submission("=1+2", final=answers, bad='{"q001": {},\n\n"q002":')
    serve(judge_by_reference)
    outcome = project.run("dev", "--submissions", "=1+2", "no_one", "ann", "--report", "html")
    assert outcome.out.endswith("\n2 of 3 submissions graded; not graded: no_one\n")
    assert outcome.code == 3
    files = project.files()
    expected_lines = [f"{points},{means}" for points, means in zip(POINTS, MEANS, strict=True)]
    assert files[GRADES].decode("utf-8-sig").splitlines() == expected_lines
    page = re.sub(r"- Answer\\\|judge:.*", "- ORIGIN", files[MARKDOWN].decode())
    page = page.removesuffix(BELOW)
    top, table = page[: len(TOP)], page[len(TOP) :]
    assert top == TOP
    for line, expected in zip(table.splitlines(), IN_MARKDOWN.splitlines(), strict=True):
        start, end = expected.split("...")
        assert (line[: len(start)], line[-len(end) :]) == (start, end)


LONG = "x" * 255
SAFE_NAMES = {  # name of a folder -> name of the folder for its results
    "=cmd": "=cmd",
    "a|b": "a_b",
    "<b>&lt;": "_b_&lt;",
    "*a* _b_ ~c~ `d` 灯\n": "_a___b__~c~_`d`_灯",
    "[a](b)": "[a](b)",
    "a\\..\\b": "a_.._b",
    "e\u200b\x1b[2J": "e_u200b_x1b[2J",
    "z. .": "z",
    "Aux": "_Aux",  # a device of Windows
    "com1.x": "_com1.x",
    "console": "console",
    LONG: LONG,
}


def list_graded(project: Project) -> list[str]:
    return sorted(path.name for path in (project.folder / "dev_graded").iterdir() if path.is_dir())


@posix_only
def test_names_are_shown_as_they_are_and_safe_in_every_path(course: Project) -> None:
    for name in SAFE_NAMES:
        course.submission(name, strong=CORRECT)
    folders = [*(f"./{name}" for name in SAFE_NAMES), "no\n<i>\x1b"]
    outcome = course.run("dev", "--submissions", *folders)
    assert list_graded(course) == sorted([*SAFE_NAMES.values(), "no__i__x1b"])
    escapes = {"\n": " ", "\u200b": r"\u200b", "\x1b": r"\x1b"}
    shown = {"".join(escapes.get(letter, letter) for letter in name) for name in SAFE_NAMES}
    shown = shown - {"=cmd"} | {"'=cmd", r"no <i>\x1b"}
    assert {name for (name,) in leaderboard(course, "submission")} == shown
    page = (course.folder / MARKDOWN).read_text("utf-8")
    for cell in (r"\*a\* \_b\_ \~c\~ \`d\` 灯 ", r"\<b\>\&lt;", r"[a]\(b)", r"a\|b", "z. ."):
        assert f"\n| 1 | {cell} | strong | " in page
    assert "\x1b" not in outcome.out + "".join(outcome.err) + page
    assert outcome.out.endswith("\n12 of 13 submissions graded; not graded: no <i>\\x1b\n")


@posix_only
def test_bytes_that_are_no_text_are_shown_as_escapes(course: Project) -> None:
    """Two such names differ, and what is written has the same names in every run."""
    names = {b"m\xfcller": r"m\udcfcller", b"m\xfdller": r"m\udcfdller", "müller".encode(): "müller"}
    for name in names:
        course.submission(f"in/{os.fsdecode(name)}", strong=CORRECT)
    for _ in range(2):
        assert course.run("dev", "--submissions", "in/*").code == 0
        assert {name for (name,) in leaderboard(course, "submission")} == set(names.values())
    assert list_graded(course) == ["m_udcfcller", "m_udcfdller", "müller"]


def test_names_on_the_command_line_are_compared_in_composed_letters(course: Project) -> None:
    composed = "m\u00fcller"
    apart = unicodedata.normalize("NFD", composed)
    course.submission("in/one", **{apart: CORRECT, "b": CORRECT})
    for name in (composed, apart):
        for options in (["--judge", name], ["--systems", name], ["--fail-under", f"{name}:recall@1=5"]):
            outcome = course.run("dev", "--submissions", "in/one", *options, "--overrides", "none")
            is_promised = "--judge" in options  # and there is no key
            assert outcome.code == (3 if is_promised else 0), (outcome.err, options)
    assert set(course.read(f"dev_graded/one/{RESULTS}")) == {composed, "b"}


def test_ids_of_documents_are_compared_in_composed_letters(project: Project) -> None:
    """In the gold, in predictions, and in the names of files."""
    forms = [unicodedata.normalize(form, "sch\u00fcssel") for form in ("NFC", "NFD")]
    for of_gold, of_prediction, of_file in itertools.product(forms, repeat=3):
        project.questions(question(of_gold))
        project.predictions("own", {"q001": {"answer": "It is.", "retrieved_docs": [of_prediction]}})
        for path in project.folder.glob("corpus/*"):
            path.unlink()
        project.documents(document(of_file, "It is."))
        outcome = project.run("dev", "--judge")
        assert outcome.results["own"]["retrieval"]["recall_at_1"] == 1
        assert outcome.err == []


@table(
    "folders",
    {
        "capitals": pytest.param(["Ann", "ann"], marks=posix_only),
        "composed letters": pytest.param(["e\u0301", "\u00e9"], marks=posix_only),
        "an escape": pytest.param([r"ann\u200b", "ann\u200b"], marks=posix_only),
        "a dot": pytest.param(["team", "team."], marks=posix_only),
        "a blank that nobody sees": pytest.param(["team", "team\u00a0"], marks=posix_only),
        "the apostrophe of a spreadsheet": pytest.param(["=team", "'=team"], marks=posix_only),
        "another parent": ["a/t", "b/t"],
    },
)
def test_equal_names_are_a_problem(course: Project, folders: list[str]) -> None:
    paths = [f"in/{folder}" for folder in folders]
    for path in paths:
        course.submission(path, strong=CORRECT)
    [message] = assert_refused(course, "dev", "--submissions", *paths)
    named = ", ".join(paths).replace("\u200b", r"\u200b")
    assert message == f"error: --submissions: equal names: {named}: rename one of them"


@posix_only
def test_systems_with_equal_names_are_a_problem(course: Project) -> None:
    """A submission's own: the others are graded. What is escaped in a name is no other character."""
    course.submission("in/ann", RAG=CORRECT, rag=CORRECT)
    course.submission("in/bob", **{"rag\u202e": CORRECT})
    outcome = course.run("dev", "--submissions", "in/*")
    files = "in/ann/dev_RAG_output.json, in/ann/dev_rag_output.json"
    problem = f"missing: in/ann: equal names of systems: {files}: rename all but one"
    assert (problem in outcome.err, outcome.code) == (True, 3)
    assert leaderboard(course, "submission", "system")[0] == ("bob", r"rag\u202e")
    for name in ("RAG", "rag"):
        course.predictions(name, CORRECT)
    files = "dev_RAG_output.json, dev_rag_output.json"
    assert assert_refused(course) == [f"equal names of systems: {files}: rename all but one"]


def test_a_row_of_a_person_matches_exactly_one_name(course: Project, serve: Serve) -> None:
    """The only one that is equal but for what nobody sees."""
    serve(judge_by_reference)
    for folder in ("alice\u00a0", "Chloe\u0301", "Bob"):
        course.submission(f"in/{folder}", strong=CORRECT)
    rows = {"alice": 3, "Chlo\u00e9": 4, "bob": 1}
    lines = [f"{name},q001,{score},Appeal." for name, score in rows.items()]
    decisions = "\n".join(["submission,question_id,score,reason", *lines])
    course.write("dev_overrides.csv", add_answer_ids(course, decisions))
    outcome = course.run("dev", "--submissions", "in/*")
    means = {row[0]: row[1] for row in leaderboard(course, "submission", "answer")}
    assert means == {"alice\u00a0": "4.0", "Chlo\u00e9": "4.5", "Bob": "5.0"}
    assert mentions(outcome.err, "dev_overrides.csv:4: q001 bob: no such system or submission")


@table(
    "patterns, expected, code",
    {
        "a pattern": (["in/*"], ["ann", "bob"], 0),
        "the same folder in other words": (["in/bob", "./in/bob", "in/../in/b*/"], ["bob"], 0),
        "a name that looks like a pattern": (["a[1]"], ["a[1]"], 0),
        "a pattern without a match": (["out/*", "in/bob"], ["bob", "*"], 3),
    },
)
def test_which_folders_are_read(course: Project, patterns: list[str], expected: list[str], code: int) -> None:
    for folder in ("in/ann", "in/bob", "a[1]"):
        course.submission(folder, strong=CORRECT)
    outcome = course.run("dev", "--submissions", *patterns)
    assert (leaderboard(course, "submission"), outcome.code) == ([(name,) for name in expected], code)


def attention(project: Project) -> list[str]:
    """Return the lines of the first box of the leaderboard."""
    page = (project.folder / MARKDOWN).read_text("utf-8").replace("\\", "")
    rows = page.partition("## Needs attention\n\n")[2].partition("\n\n")[0].splitlines()[2:]
    return [row.strip("| ").replace(" | ", ": ") for row in rows]


@table(
    "file, line, code",
    {
        "a zip": ("in/bob.zip", "in/bob.zip: unpack it", 3),
        "a text": ("in/readme.txt", "in/readme.txt: no folder, and not read", 0),
        "what a computer adds": ("in/.DS_Store", "", 0),
        "in a submission": ("in/ann/.DS_Store", "", 0),
        "a folder that a computer adds": ("in/__MACOSX/ann/x", "", 0),
    },
)
def test_a_file_is_no_submission(three: Project, file: str, line: str, code: int) -> None:
    three.write(file, "")
    for _ in range(2):
        outcome = three.run(*THREE)
        box = [f"Gold and files: 1: {line}"] if line else []
        assert [row for row in attention(three) if row.startswith("Gold and files")] == box
        assert (outcome.out.endswith("\n3 of 3 submissions graded\n"), outcome.code) == (True, code)
        assert not line or mentions(outcome.err, f"{'missing' if code else 'warning'}: {line}")
    (three.folder / file).unlink()
    assert three.run(*THREE).code == 0


UNREAD = "files that are not read because of their names"


@table(
    "file, is_named",
    {
        "as a browser saves it": ("dev_final_output (1).json", True),
        "as a mail program saves it": ("dev_final_output-1.json", True),
        "a hidden suffix": ("dev_final_output.json.txt", True),
        "a letter more": ("dev_final_outputs.json", True),
        "another case": ("DEV_Final_Output.json", True),
        "in a further folder": ("new/dev_final_output.json", True),
        "a zip": ("work.zip", True),
        "another split": ("test_final_output (1).json", False),
        "other data": ("dev_notes.json", False),
        "two folders down": ("a/b/dev_final_output.json", False),
    },
)
def test_what_looks_like_predictions_and_is_not_read(three: Project, file: str, is_named: bool) -> None:
    three.write(f"in/ann/{file}", CORRECT)
    outcome = three.run(*THREE)
    line = f"ann: {UNREAD}: 1, e.g. {file}; rename or remove them"
    assert mentions(attention(three), f"Odd predictions: 1: {line}") == is_named
    assert leaderboard(three, "submission", "status")[0] == ("ann", "graded")
    assert outcome.code == (3 if is_named else 0)
    outcome = three.run("check", *THREE)
    assert (mentions(outcome.err, f"missing: in/{line}"), outcome.code) == (is_named, 3 if is_named else 0)
    outcome = three.run(*THREE, "--systems", "strong", "simple", "empty")  # which leave it out
    assert mentions(outcome.err, UNREAD) == (file == "work.zip")


def test_what_looks_like_predictions_here_is_a_warning(course: Project) -> None:
    course.predictions("strong", CORRECT)
    course.write("dev_strong_output (1).json", CORRECT)
    course.write("old/dev_strong_output.json", CORRECT)
    outcome = course.run("dev", "--judge")
    line = f"warning: {UNREAD}: 1, e.g. dev_strong_output (1).json; rename or remove them"
    assert (outcome.err, outcome.code) == ([line, "1 warning"], 0)


@table(
    "systems, status, answer",
    {
        "final": ({"final": "{", "bm25": CORRECT}, "not graded", ""),
        "one of two without final": ({"own": "{", "bm25": CORRECT}, "not graded", ""),
        "another than final": ({"final": HALF_CORRECT, "bm25": "{"}, "graded", "3.0"),
    },
)
def test_no_points_while_what_counts_cannot_be_read(
    three: Project, serve: Serve, systems: dict[str, Any], status: str, answer: str
) -> None:
    serve(judge_by_reference)
    three.submission("in/zoe", **systems)
    outcome = three.run(*THREE, "--report", "html")
    assert ("zoe", status, answer) in leaderboard(three, "submission", "status", "answer")
    page = (three.folder / "dev_graded/zoe/dev_evaluation.html").read_text("utf-8")
    assert ("Your grade: not final: not graded" in page) == (status == "not graded")
    assert ("not graded: dev_" in page, outcome.code) == (True, 3)
    assert outcome.out.endswith("not graded: zoe\n") == (status == "not graded")


@posix_only
def test_links_own_nothing(three: Project) -> None:
    """A link to another's folder, to the teacher's own, and a file that leads out of its folder."""
    three.predictions("strong", CORRECT)
    (three.folder / "in/aaa").symlink_to("ann")
    (three.folder / "in/eve").symlink_to("..")
    outcome = three.run(*THREE)
    rows = leaderboard(three, "submission", "status", "reason")
    assert [row for row in rows if row[0] in ("aaa", "eve")] == [
        ("aaa", "not graded", "Not graded: a link: put the folder itself here"),
        ("eve", "not graded", "Not graded: a link: put the folder itself here"),
    ]
    assert ("ann", "graded") in {row[:2] for row in rows}
    assert outcome.code == 3


def test_equal_predictions_are_one_warning(three: Project) -> None:
    """Blanks at the ends of an answer make no difference."""
    row = {**CORRECT["q001"], "answer": " It is d1.\n"}
    three.submission("in/dan", own={**CORRECT, "q001": row})
    for command in (("dev", "--submissions", "in/ann", "in/dan"), THREE):  # of two, and of four
        equal = [line for line in three.run(*command).err if "equal" in line]
        assert equal == ["warning: equal predictions: ann/strong, dan/own"]


CUT_OFF = {"strong": '{"q001": {},\n\n"q002": {"ans', "final": CORRECT}


@table(
    "systems, reason",
    {
        "not UTF-8": ({"strong": b"\xff"}, "dev_strong_output.json:1: not UTF-8: byte 0xff; save as UTF-8"),
        "a list": ({"strong": []}, 'dev_strong_output.json: expected an object by question ID, {"q001": {'),
        "an empty file": ({"strong": ""}, "dev_strong_output.json:1: the file is empty"),
        "one of its files": (CUT_OFF, "dev_strong_output.json:3: JSON is cut off"),
        "a colon missing": (
            {"strong": '{"q001": {},\n"q002" {}}'},
            "dev_strong_output.json:2: not JSON: Expecting ':' delimiter at column 8",
        ),
        "no files": ({}, "no predictions: expected dev_NAME_output.json, found nothing"),
        "missing": (None, "cannot be read: No such file or directory"),
    },
)
def test_others_are_graded(three: Project, serve: Serve, systems: dict[str, Any] | None, reason: str) -> None:
    if systems is not None:
        three.submission("in/bad", **systems)
    server = serve(judge_by_reference)
    outcome = three.run(*THREE, "in/bad")
    rows = {row[0]: row[1:] for row in leaderboard(three, "submission", "system", "status", "reason")}
    system, status, text = rows["bad"]
    assert (system, status) == (("final", "graded") if "final" in (systems or {}) else ("", "not graded"))
    assert text.startswith(f"Not graded: {reason}")
    assert str(three.folder) not in text
    assert [rows[name][1] for name in ("ann", "bob", "cem")] == ["graded"] * 3
    assert judged_answers(server) == ["It is d1.", "It is d2.", "No idea."]
    assert (outcome.code, mentions(outcome.err, "in/bad")) == (3, True)


@pytest.mark.parametrize("file", ["dev_own_output (1).json", "rows.json", "work.zip", "train_x_output.json"])
def test_what_was_found_in_place_of_predictions_is_named(course: Project, file: str) -> None:
    course.write(f"in/ann/{file}", "{}")
    course.submission("in/bob", strong=CORRECT)
    assert course.run("dev", "--submissions", "in/*").code == 3
    reason = f"no predictions: expected dev_NAME_output.json, found {file}"
    assert leaderboard(course, "submission", "reason")[-1] == ("ann", f"Not graded: {reason}")


def test_a_submission_has_at_most_ten_systems(course: Project) -> None:
    names = [f"s{number:02d}" for number in range(12)]
    course.submission("in/ann", **dict.fromkeys(["zeta", *names, "strong", "final"], CORRECT))
    course.submission("in/bob", own=CORRECT)
    outcome = course.run("dev", "--submissions", "in/*")
    reason = "15 systems, more than 10: choose with --systems"
    assert leaderboard(course, "submission", "reason") == [("bob", ""), ("ann", f"Not graded: {reason}")]
    assert (outcome.code, f"missing: in/ann: {reason}" in outcome.err) == (3, True)
    course.run("dev", "--submissions", "in/ann", "in/bob", "--systems", *names)
    assert list(course.read(f"dev_graded/ann/{RESULTS}")) == names


def test_systems_that_only_some_submissions_have(three: Project) -> None:
    assert three.run(*THREE, "--systems", "strong").code == 3
    *graded, last = leaderboard(three, "submission", "system", "status", "reason")
    assert graded == [("ann", "strong", "graded", ""), ("bob", "strong", "graded", "")]
    reason = "Not graded: dev_strong_output.json: file not found: expected dev_NAME_output.json"
    assert (*last[:3], last[3][: len(reason)]) == ("cem", "", "not graded", reason)
    three.run(*THREE, "--systems", "simple", "strong", "--report", "md")
    page = (three.folder / "dev_graded/cem/dev_evaluation.md").read_text("utf-8").replace("\\", "")
    assert reason.lower() in page.lower()
    assert str(three.folder) not in page


def test_no_submission_can_be_graded(course: Project) -> None:
    course.submission("ann")
    course.submission("bob/team")
    course.submission("bob/others")
    course.write(MARKDOWN, "the last leaderboard")
    assert assert_refused(course, "dev", "--submissions", "ann", "bob") == [
        "ann: no predictions: expected dev_NAME_output.json, found nothing",
        "bob: no predictions: expected dev_NAME_output.json, found others, team",
    ]
    course.submission("ann", strong="{")
    assert course.run("dev", "--submissions", "ann", "bob", "--report", "html").code == 3
    assert leaderboard(course, "submission", "status") == [("ann", "not graded"), ("bob", "not graded")]


def test_a_problem_with_the_gold_files_stops_everything(three: Project) -> None:
    three.write("corpus/d2.json", {"doc_id": "d2"})
    three.write(A_FILE, "{")
    """Of the class's own files only: those of a submission stop nobody."""
    problem = "corpus/d2.json: sentences is missing or blank"
    assert assert_refused(three, *THREE) == [problem]


def test_results_that_cannot_be_written(three: Project) -> None:
    three.write(f"dev_graded/bob/{RESULTS}/file", "")
    outcome = three.run(*THREE)
    assert f"error: dev_graded/bob/{RESULTS} is not written: a directory" in outcome.err
    assert {name for (name,) in leaderboard(three, "submission")} == {"ann", "bob", "cem"}
    assert outcome.code == 3
