"""What a course hands out: grades, pages that are never out of date, and the questions to mend."""

from __future__ import annotations

import csv
import io
import shutil
from typing import Any

import pytest

from conftest import JudgeWith, Outcome, Project, document, mentions, question

CITED: dict[str, Any] = {"evidence_sentences": ["S1"]}


def answers(name: str, n: int = 2, **more: Any) -> dict[str, dict[str, Any]]:
    return {f"q{number:03d}": {"answer": f"{number} by {name}.", **more} for number in range(1, n + 1)}


@pytest.fixture
def course(project: Project, judge_with: JudgeWith) -> Project:
    """Submissions with one system, with two, with `final`, without citations, and a broken one."""
    project.questions(question("d1"), question("d2"))
    project.documents(document("d1", "It rained."), document("d2", "It snowed."))
    project.submission("in/one", own=answers("one", **CITED))
    project.submission("in/two", weak=answers("weak", **CITED), good=answers("good", **CITED))
    project.submission("in/third", final=answers("final", **CITED), better=answers("better", **CITED))
    project.submission("in/bare", own=answers("bare"))
    project.submission("in/torn", own="{")
    scores = {"in/one/own": [3, 3], "in/two/weak": [1, 1], "in/two/good": [5, 5]}
    judge_with({**scores, "in/third/final": [2, 2], "in/third/better": [5, 5], "in/bare/own": [4, 4]})
    return project


def grade(project: Project, *arguments: str) -> Outcome:
    return project.run("dev", "--outputs", "in/*", *arguments)


def read_grades(project: Project) -> dict[str, list[str]]:
    text = (project.folder / "dev_grades.csv").read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    return {row["submission"]: [row["points"], row["system"], row["status"], row["reason"]] for row in rows}


def test_one_grade_for_each_student(course: Project) -> None:
    """100 times combined: of `final`, otherwise of the only or the best system."""
    grade(course)
    torn = "dev_own_output.json, line 1: JSON is cut off"
    assert read_grades(course) == {
        "bare": ["40.0", "own", "graded", "no citations, which counts 0"],
        "one": ["80.0", "own", "graded", ""],
        "third": ["70.0", "final", "graded", ""],
        "torn": ["", "", "not graded", torn],
        "two": ["100.0", "good", "graded", ""],
    }


def test_without_a_judge_points_are_of_f1(course: Project) -> None:
    grade(course, "--judge")
    grades = read_grades(course)
    assert [grades[name][0] for name in ("one", "bare")] == ["100.0", "0.0"]


# ------------------------------------------------------------------ No page is out of date


def text_of(project: Project, path: str) -> str:
    return (project.folder / path).read_text("utf-8")


def test_every_report_that_is_there_is_written_again(course: Project, judge_with: JudgeWith) -> None:
    grade(course, "--report", "html", "md", "csv")
    page = "dev_graded/one/dev_evaluation.html"
    assert "1 by one." in text_of(course, page)
    course.submission("in/one", own=answers("One, again", **CITED))
    (course.folder / "in/two/dev_good_output.json").write_text("{", "utf-8")
    (course.folder / "in/two/dev_weak_output.json").write_text("{", "utf-8")
    shutil.rmtree(course.folder / "in/third")
    grade(course, "--judge")  # which asks for no report
    for form in ("html", "md", "csv"):
        assert "1 by one." not in text_of(course, f"dev_graded/one/dev_evaluation.{form}")
    assert "1 by One, again." in text_of(course, page)
    assert "This submission is not graded: dev_good_output.json" in text_of(
        course, "dev_graded/two/dev_evaluation.html"
    )
    gone = "This submission is not graded: the submission&#x27;s folder no longer exists."
    assert gone in text_of(course, "dev_graded/third/dev_evaluation.html")
    assert "1 by final." not in text_of(course, "dev_graded/third/dev_evaluation.csv")
    assert "third" not in text_of(course, "dev_leaderboard.html")


def test_reports_of_the_current_directory_are_written_again(small: Project) -> None:
    small.run("dev", "--report", "md")
    small.predictions("strong", {"q001": {"evidence_sentences": ["S1"]}})
    small.run()
    assert "| strong | 0.0 " not in text_of(small, "dev_evaluation.md")
    assert "questions without a prediction" in text_of(small, "dev_evaluation.md")


def test_a_run_on_a_part_of_the_class_touches_that_part(course: Project) -> None:
    grade(course, "--report", "html")
    before = course.files()
    outcome = course.run("dev", "--outputs", "in/one", "--judge")
    touched = {name for name, content in course.files().items() if before.get(name) != content}
    assert {name for name in touched if name.startswith("dev_graded/")} <= {
        "dev_graded/one/dev_evaluation.html",
        "dev_graded/one/dev_evaluation.json",
    }
    assert "A part of the submissions: 4 more were graded in earlier runs." in outcome.out.replace(
        "3 more", "4 more"
    )


# ------------------------------------------------------------------ Pages


def test_a_students_page_begins_with_the_grade(course: Project) -> None:
    course.write("dev_appeal.txt", "Write to the office.\n\nName the answer ID.\n")
    course.write("dev_labels.csv", "question_id,system,score\nq001,one/own,3\n")
    grade(course, "--report", "html")
    page = text_of(course, "dev_graded/one/dev_evaluation.html")
    headings = ["<h2>Combined</h2>", "<h2>Answer</h2>", "<h2>Evidence</h2>", "<h2>Questions</h2>"]
    assert [page.index(text) for text in headings] == sorted(page.index(text) for text in headings)
    for text in ("<b>0.800</b> of 1", "<b>3.00</b> of 5", "median of the class: 3.50", "Answer ID"):
        assert text in page
    for line in ("Write to the office.", "Name the answer ID."):
        assert f"<li>{line}</li>" in page
    for hidden in ("SHA-256", "Judge and people", "bare", "two"):
        assert hidden not in page
    bare = text_of(course, "dev_graded/bare/dev_evaluation.html")
    assert "<h2>Answer only: nothing is cited</h2>" in bare
    assert "<h2>Combined</h2>" not in bare


def test_the_question_that_good_students_fail_comes_first(project: Project, judge_with: JudgeWith) -> None:
    """From 10 submissions on; Pearson's correlation with the mean of the student's other questions."""
    project.questions(*(question(f"d{n}") for n in (1, 2, 3)))
    scores = {}
    for number in range(10):
        name = f"in/s{number}"
        project.submission(name, own=answers(name, 3))
        level = 1 + number // 2
        scores[f"{name}/own"] = [level, 6 - level, 3]  # the better the student, the worse the second
    judge_with(scores)
    project.run("dev", "--outputs", *(f"in/s{number}" for number in range(9)))
    assert "## Questions" not in text_of(project, "dev_leaderboard.md")
    project.run("dev", "--outputs", "in/*")
    lines = text_of(project, "dev_leaderboard.md").partition("## Questions\n")[2].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines[3:6]]
    # The first two sum to 6 for each student, so each is opposed to the other; the third never varies.
    assert [row[0] for row in rows] == ["q001", "q002", "q003"]
    assert rows[0][2:] == ["10", "3.00", "20%", "20%", "-1.00"]
    assert rows[2][2:] == ["10", "3.00", "0%", "0%", "n/a"]


def test_unknown_people_in_files_and_flags_are_on_the_leaderboard(course: Project) -> None:
    course.write("dev_overrides.csv", "submission,question_id,score,reason\none,q001,5,So.\n")
    outcome = grade(course, "--report", "html")
    assert mentions(outcome.out.splitlines(), "one/own: Overridden q001: 5 instead of the judge's 3: So.")
    assert 'href="dev_graded/one/dev_evaluation.html#q001">1</a>' in text_of(course, "dev_leaderboard.html")
