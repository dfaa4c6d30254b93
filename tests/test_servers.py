"""Other servers with OpenAI's API: what they are asked, which replies count later, and what stays secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import evaluation
import httpx
import pytest

from conftest import (
    JUDGE,
    KEY,
    QUESTIONS_FILE,
    RESULTS,
    Project,
    Serve,
    assert_refused,
    first,
    first_question,
    journal_entries,
    json_lines,
    judge_block,
    judge_scores,
    mentions,
    posix_only,
    table,
)
from groq_server import (
    Call,
    GroqServer,
    Reply,
    completion,
    decommissioned,
    error,
    json_validate_failed,
    model_gone,
    score_reply,
)

CREATE_SSL_CONTEXT = httpx.create_ssl_context  # which `serve` replaces
MODEL = ("dev", "--model", "own")
BIG = "openai/gpt-oss-120b"
ADVICE = "(name another one with --model)"


Open = Callable[[Any], GroqServer]


@pytest.fixture
def open_server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Start a server that speaks only /v1, and have it asked."""

    def open_server(answer: Any) -> GroqServer:
        server = serve(answer, prefix="/v1")
        monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
        return server

    return open_server


def formats(server: GroqServer) -> list[str]:
    """Return the type of each call's response_format; "none" for a call without one."""
    return list(map(format_of, server.calls))


def format_of(call: Call) -> str:
    return str(call.body.get("response_format", {"type": "none"})["type"])


def refuse(*types: str) -> Any:
    """Refuse these response formats, as servers do that do not know them."""

    def answer(call: Call) -> Reply:
        kind = format_of(call)
        refusal = error(400, "invalid_request", f"response_format {kind} is not supported")
        return refusal if kind in types else score_reply(4)

    return answer


SCHEMA, JSON_MODE = "json_schema", "json_object"


@table(
    "refused, sent, notes",
    {
        "takes schemas": ((), [SCHEMA, SCHEMA], []),
        "knows JSON mode": ((SCHEMA,), [SCHEMA, JSON_MODE, JSON_MODE], ["json_schema: json_object is used."]),
        "has no response_format": (
            (SCHEMA, JSON_MODE),
            [SCHEMA, JSON_MODE, "none", "none"],
            ["json_schema: json_object is used.", "response_format: it is left out."],
        ),
    },
)
def test_a_server_that_speaks_only_v1(
    small: Project, open_server: Open, refused: tuple[str, ...], sent: list[str], notes: list[str]
) -> None:
    """A strict schema comes first; what is refused is not tried again, and is said once."""
    server = open_server(refuse(*refused))
    outcome = small.run(*MODEL, "--workers", "1")
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 4}, 0)
    assert formats(server) == sent
    said = [line for line in outcome.err if line.startswith("The service refuses ")]
    assert said == [f"The service refuses {note}" for note in notes]
    left_out = judge_block(outcome).get("parameters_left_out", [])
    assert left_out == [note.partition(":")[0] for note in notes]


def faults_of(parameter: str) -> list[dict[str, Any]]:
    """Return what is wrong with a request as FastAPI lists it."""
    return [{"type": "extra_forbidden", "loc": ["body", parameter], "msg": "Extra inputs are not permitted"}]


def refusal_of(status: int, body: object) -> Reply:
    return Reply(status, json.dumps(body).encode())


UNSUPPORTED = "Unsupported value: '{}' does not support 0 with this model."
REFUSALS = {  # a parameter -> the refusal of a service that does not take it
    "in the message": ("temperature", error(400, "unsupported_value", UNSUPPORTED.format("temperature"))),
    "as param": ("temperature", error(400, "unsupported_value", "Not supported.", param="temperature")),
    "in a list of faults": ("seed", refusal_of(422, {"detail": faults_of("seed")})),
    "in a list in the message": ("seed", refusal_of(422, {"message": {"detail": faults_of("seed")}})),
    "in a list of errors": ("seed", refusal_of(400, [{"error": {"message": 'Unknown name "seed"'}}])),
    "as the error itself": ("seed", refusal_of(400, {"error": "Argument not supported: seed"})),
    "as an argument": ("seed", error(400, "", "Unrecognized request argument supplied: seed")),
    "spelled": ("reasoning_effort", error(400, "", "Model own does not support reasoningEffort.")),
    "in a list of texts": ("seed", refusal_of(422, {"detail": ["seed is not allowed"]})),
    "in words of answers": ("temperature", error(400, "", "Your model does not take a temperature")),
}


@table("parameter, refusal", REFUSALS)
@table("prefix", {"Groq's API": "/openai/v1", "another API": "/v1"})
def test_a_parameter_that_is_refused_is_left_out(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, parameter: str, refusal: Reply, prefix: str
) -> None:
    """It is said once, and in the results, whichever run has asked; the journal's keys stay."""
    small.predictions("strong", {"q001": {"answer": "A temperature."}, "q002": {"answer": "Linseed oil."}})
    server = serve(lambda call: refusal if parameter in call.body else score_reply(4), prefix=prefix)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}{prefix}")
    command = ("dev", "--model", BIG, "--workers", "1")
    outcome = small.run(*command)
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 4}, 0)
    assert [parameter in call.body for call in server.calls] == [True, False, False]
    assert outcome.err.count(f"The service refuses {parameter}: it is left out.") == 1
    block = judge_block(outcome)
    assert block["parameters_left_out"] == [parameter]
    again = small.run(*command, GROQ_API_KEY="")
    assert (again.code, judge_block(again)) == (0, block)


def test_a_service_that_refuses_several_parameters(small: Project, open_server: Open) -> None:
    """One at a time, as several calls in flight find them out."""
    names = ["seed", "max_completion_tokens", "temperature"]

    def answer(call: Call) -> Reply:
        for name in names:
            if name in call.body:
                return refusal_of(422, {"detail": faults_of(name)})
        return score_reply(4)

    server = open_server(answer)
    outcome = small.run(*MODEL)
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 4}, 0)
    assert {*names, "max_tokens"}.intersection(server.calls[-1].body) == {"max_tokens"}
    assert server.calls[-1].body["max_tokens"] == 600
    said = [line for line in outcome.err if line.startswith("The service refuses ")]
    assert sorted(said) == [
        "The service refuses max_completion_tokens: max_tokens is used.",
        "The service refuses seed: it is left out.",
        "The service refuses temperature: it is left out.",
    ]
    assert judge_block(outcome)["parameters_left_out"] == sorted(names)


def test_the_name_of_a_model_is_no_parameter(small: Project, serve: Serve) -> None:
    server = serve(error(400, "", "Requested tokens exceed the context of seed-oss:36b."))
    outcome = small.run("dev", "--model", "seed-oss:36b", "--workers", "1")
    assert (outcome.code, len(server.calls)) == (3, 2)
    assert not mentions(outcome.err, "The service refuses")


@table("path", {"a version": "/v1", "another version": "/api/paas/v4", "a version within": "/v1beta/openai"})
def test_a_base_url_with_a_version_is_taken_as_it_is(small: Project, serve: Serve, path: str) -> None:
    server = serve(score_reply(4), prefix=path)
    for end in ("", "/"):
        outcome = small.run(*MODEL, GROQ_BASE_URL=f"{server.url}{path}{end}")
        assert judge_scores(outcome) == {"q001": 4, "q002": 4}


def test_a_server_needs_a_model_and_is_named_in_errors(small: Project, open_server: Open) -> None:
    server = open_server(error(404, "model_not_found", "No such model."))
    outcome = small.run()
    assert outcome.usage_error == f"error: {server.url}/v1: name one of its models with --model"
    assert (outcome.code, outcome.results) == (2, None)
    outcome = small.run(*MODEL)
    reason = f"the model own is not available: No such model. {ADVICE}"
    assert f"error: judging ended: {reason} (asked: {server.url}/v1)" in outcome.err


@table(
    "url, is_warned",
    {
        "another machine": ("http://judge.example/v1", True),
        "this machine": ("http://localhost:9/v1", False),
        "encrypted": ("https://judge.invalid/v1", False),
    },
)
def test_plain_http_elsewhere_is_a_warning(small: Project, serve: Serve, url: str, is_warned: bool) -> None:
    serve(score_reply(4))
    closed = "http://127.0.0.1:9"  # nothing leaves this machine
    outcome = small.run(*MODEL, "--quiet", GROQ_BASE_URL=url, https_proxy=closed, http_proxy=closed)
    warning = f"warning: {url}: answers and the key travel in the open: use https."
    assert (outcome.err.count(warning), outcome.code) == (int(is_warned), 3)


GROQ, A, B, TODAY = "https://api.groq.com/openai/v1", "http://a/v1", "http://b:1/v1", "today's"
BOTH, FIRST, SECOND = (0, 1), (0,), (1,)
Stored = tuple[str, str, tuple[int, ...], int]  # endpoint ("" in version 2), model, questions, score


Store = Callable[[list[Stored]], GroqServer]


@pytest.fixture
def store(small: Project, serve: Serve) -> Store:
    """Write a journal with these replies, and start a service that gives the score 1."""

    def store(stored: list[Stored]) -> GroqServer:
        entries = {}
        server = serve(score_reply(1))
        for model in (JUDGE, BIG, "own"):
            small.run("dev", "--model", model)
            entries[model] = sorted(journal_entries(small), key=lambda entry: str(entry["question_id"]))
            (small.folder / "dev_judgements.jsonl").unlink()
        lines: list[dict[str, Any]] = []
        for endpoint, model, places, score in stored:
            for place in places:
                entry = {**entries[model][place], "reply": json.dumps({"rationale": "So.", "score": score})}
                entry["endpoint"] = f"{server.url}/openai/v1" if endpoint == TODAY else endpoint
                entry["time"] = f"2026-11-01T00:00:0{len(lines)}+00:00"
                lines.append({name: value for name, value in entry.items() if value})
        small.write("dev_judgements.jsonl", json_lines(*lines))
        (small.folder / RESULTS).unlink()
        server.calls.clear()
        return server

    return store


def note_on(judge: str) -> str:
    return f"The judgements are by {judge}: the journal's replies are by it."


WITHOUT_KEY: dict[str, tuple[list[Stored], str, list[int], str]] = {  # lines, options, scores, model
    "version 2": ([("", JUDGE, BOTH, 4)], "", [4, 4], JUDGE),
    "another endpoint": ([(A, JUDGE, BOTH, 4)], "", [4, 4], JUDGE),
    "another model elsewhere": ([(A, JUDGE, BOTH, 4), (B, BIG, BOTH, 5)], f"--model {BIG}", [5, 5], BIG),
    "the first reply": ([("", BIG, FIRST, 4), (A, BIG, SECOND, 2), (A, BIG, FIRST, 5)], "", [4, 2], BIG),
    "one of two models": ([(A, JUDGE, BOTH, 5), (A, BIG, FIRST, 2)], f"--model {BIG}", [2, 0], BIG),
    "an unknown model": ([(GROQ, "own", BOTH, 2)], "", [2, 2], "own"),
    "the named model": ([(A, JUDGE, BOTH, 4), (B, BIG, BOTH, 5)], f"--model {JUDGE}", [4, 4], JUDGE),
}


@table("stored, options, scores, judge", WITHOUT_KEY)
def test_without_a_key_the_journal_answers_for_its_model(
    small: Project, store: Store, stored: list[Stored], options: str, scores: list[int], judge: str
) -> None:
    store(stored)
    del os.environ["GROQ_API_KEY"], os.environ["GROQ_BASE_URL"]
    outcome = small.run("dev", *options.split())
    assert [*judge_scores(outcome).values()] == scores
    assert (note_on(judge) in outcome.err) == (judge != JUDGE and not options)
    hint = "missing: set GROQ_API_KEY for the remaining 1 of 2 judgements"
    assert (hint in outcome.err) == (0 in scores)
    assert f"With {judge}:\n" in small.run("dev", "--dry-run", *options.split()).out
    if not options:
        assert evaluation.grade("dev")["strong"]["llm_judge"] == judge_block(outcome)


def test_without_a_key_replies_of_several_services_ask_for_an_address(small: Project, store: Store) -> None:
    """One name at two services may be two models: the order of the lines chose between 4 and 5."""
    store([(A, JUDGE, FIRST, 4), (B, JUDGE, BOTH, 5), (A, JUDGE, SECOND, 4)])
    del os.environ["GROQ_API_KEY"], os.environ["GROQ_BASE_URL"]
    for options in ([], ["--dry-run"]):
        problems = assert_refused(small, "dev", *options)
        several = f"error: dev_judgements.jsonl has replies by {JUDGE} from several services: "
        assert problems == [f"{several}set GROQ_BASE_URL to one of {A}, {B}"]
    for address, score in ((A, 4), (B, 5)):
        outcome = small.run(GROQ_BASE_URL=address)
        assert (judge_scores(outcome), outcome.code) == ({"q001": score, "q002": score}, 0)


@table("stored, asked", {"localhost": ("localhost", "127.0.0.1"), "127.0.0.1": ("127.0.0.1", "localhost")})
def test_localhost_is_one_address(small: Project, store: Store, stored: str, asked: str) -> None:
    server = store([(f"http://{stored}:8080/v1", BIG, BOTH, 4)])
    outcome = small.run(GROQ_BASE_URL=f"http://{asked}:8080/v1")
    assert (judge_scores(outcome), server.calls) == ({"q001": 4, "q002": 4}, [])


def test_replies_that_differ_are_a_warning(small: Project, store: Store) -> None:
    server = store([(TODAY, JUDGE, FIRST, 4), (TODAY, JUDGE, BOTH, 2), (TODAY, JUDGE, SECOND, 2)])
    warning = "warning: dev_judgements.jsonl: several replies whose scores differ: the first counts: 1, "
    outcome = small.run()
    assert mentions(outcome.err, f"{warning}e.g. strong q001")
    assert (judge_scores(outcome), outcome.code, server.calls) == ({"q001": 4, "q002": 2}, 0, [])


WITH_KEY: dict[str, tuple[list[Stored], list[int], list[str], str]] = {  # scores, models that are asked
    "of last time": ([(TODAY, BIG, BOTH, 4)], [4, 4], [], BIG),
    "goes on": ([(TODAY, BIG, SECOND, 4)], [1, 4], [BIG], BIG),
    "the same model elsewhere": ([(TODAY, BIG, FIRST, 4), (A, BIG, BOTH, 3)], [4, 1], [BIG], BIG),
    "all elsewhere": ([(A, BIG, BOTH, 4)], [1, 1], [BIG, BIG], BIG),
}


@table("stored, scores, asked, judge", WITH_KEY)
def test_with_a_key_the_model_of_the_journal_is_asked_for_the_rest(
    small: Project, store: Store, stored: list[Stored], scores: list[int], asked: list[str], judge: str
) -> None:
    server = store(stored)
    outcome = small.run()
    assert ([*judge_scores(outcome).values()], outcome.code) == (scores, 0)
    assert [call.body["model"] for call in server.calls] == asked
    assert (note_on(judge) in outcome.err) == (judge != JUDGE)
    assert judge_block(outcome)["judge_model"] == judge


TWO_MODELS = f"has replies by {BIG} and {JUDGE}"


@table("key, places", {"with a key": (KEY, (TODAY, TODAY)), "without a key": ("", (A, B))})
def test_a_journal_of_several_models_asks_for_the_name_of_one(
    small: Project, store: Store, monkeypatch: pytest.MonkeyPatch, key: str, places: tuple[str, str]
) -> None:
    server = store([(places[0], JUDGE, BOTH, 5), (places[1], BIG, BOTH, 2)])
    monkeypatch.setenv("GROQ_API_KEY", key)
    monkeypatch.setenv("GROQ_BASE_URL", server.url if key else "")
    for options in ([], ["--dry-run"], ["--repeats", "2"]):
        problems = assert_refused(small, "dev", *options)
        assert mentions(problems, f"dev_judgements.jsonl {TWO_MODELS}", "--model")
    with pytest.raises(evaluation.InputError, match=f"^dev_judgements.jsonl {TWO_MODELS}"):
        evaluation.grade("dev")
    for model, score in ((JUDGE, 5), (BIG, 2)):
        outcome = small.run("dev", "--model", model)
        assert (judge_scores(outcome), outcome.code) == ({"q001": score, "q002": score}, 0)
    assert server.calls == []


ASKS_NOTHING = {
    "methods without a judge": "answers bot.json --method exact",
    "blank answers": "answers blank.json --method llm_judge",
    "bm25": "generate dev --pipeline bm25 --overwrite",
    "a system that is not judged": "dev --systems simple",
    "no judged system": "dev --judge",
    "blank answers of a split": "dev --systems blank",
    "a class without a judge": "test --submissions a --judge",
    "a dry run": "answers bot.json --method exact --dry-run",
}
ENVIRONMENTS = {
    "a server, a key": {"GROQ_API_KEY": "any", "GROQ_BASE_URL": "http://127.0.0.1:9/v1"},
    "a server, no key": {"GROQ_BASE_URL": "http://127.0.0.1:9/v1"},
    "no address": {"GROQ_API_KEY": "any", "GROQ_BASE_URL": "ftp://"},
    "no key": {"GROQ_API_KEY": "\u00e4"},
}


@table("command", ASKS_NOTHING)
@table("environment", ENVIRONMENTS)
def test_nothing_is_needed_where_nothing_is_asked(
    small: Project, command: str, environment: dict[str, str]
) -> None:
    """README sets the server for the session; and each journal has replies by two models."""
    small.write("bot.json", [{"input": "Who?", "gold": "Ann", "prediction": "Bee"}])
    small.write("blank.json", [{"input": "Who?", "gold": "Ann", "prediction": " "}])
    small.predictions("simple", {"q001": {"answer": "New."}})
    small.predictions("blank", {"q001": {"answer": " "}})
    small.write("a/test_final_output.json", {"q001": {"answer": "New."}})
    small.write(QUESTIONS_FILE.replace("dev", "test"), small.files()[QUESTIONS_FILE])  # never judged before
    lines = [{"key": model, "reply": "{}", "model": model, "endpoint": A} for model in (JUDGE, BIG)]
    for journal in ("dev", "bot_answers", "blank_answers", "dev_generate"):
        small.write(f"{journal}_judgements.jsonl", json_lines(*lines))
    outcome = small.run(*command.split(), **environment)
    assert (outcome.code, [line for line in outcome.err if "model" in line]) == (0, [])


def test_a_judge_function_needs_no_model(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "any")
    monkeypatch.setenv("GROQ_BASE_URL", "http://127.0.0.1:9/v1")

    def always(item: evaluation.Item) -> float:
        return 1.0

    results = evaluation.grade_answers([{"question": "Who?", "gold": "Ann", "answer": "Bee"}], judge=always)
    assert results["answers"]["measures"]["llm_judge"]["mean"] == 1
    assert results["answers"]["setup"]["judge_model"] == results["answers"]["judge_model"] == "always"


OTHERS = {  # a command, its journal and a reply
    "answers": ("answers bot.json --method llm_judge", "bot_answers", {"reasoning": "So.", "correct": "yes"}),
    "generate": ("generate dev --pipeline llm --overwrite", "dev_generate", {"answer": "So."}),
}


@table("command, journal, reply", OTHERS)
def test_every_command_has_the_model_of_its_journal_and_no_other(
    small: Project, serve: Serve, command: str, journal: str, reply: dict[str, str]
) -> None:
    server = serve(completion(json.dumps(reply)))
    small.write("bot.json", [{"input": "Who?", "gold": "Ann", "prediction": "Bee"}])
    run = command.split()
    named = small.run(*run, "--model", BIG)
    for key in (KEY, ""):
        outcome = small.run(*run, GROQ_API_KEY=key)
        assert mentions(outcome.err, f" are by {BIG}: the journal's replies are by it.")
        assert (outcome.code, outcome.out) == (0, named.out)
    assert {call.body["model"] for call in server.calls} == {BIG}
    small.run(*run, "--model", JUDGE)
    for options in ([], ["--dry-run"]):
        problems = assert_refused(small, *run, *options)
        assert mentions(problems, f"{journal}_judgements.jsonl {TWO_MODELS}", "--model")
    outcome = small.run(*run, "--model", BIG, GROQ_API_KEY="")
    assert (outcome.code, outcome.out) == (0, named.out)


@table("options", {"the default": [], "a named one": ["--model", JUDGE]})
@table("gone", {"404 model_not_found": model_gone(), "400 model_decommissioned": decommissioned()})
def test_a_withdrawn_model(small: Project, serve: Serve, gone: Reply, options: list[str]) -> None:
    server = serve(gone)
    outcome = small.run("dev", "--workers", "1", *options)
    assert mentions(outcome.err, f"error: judging ended: the model {JUDGE} is not available: ", ADVICE)
    assert (outcome.code, len(server.calls)) == (3, 1)


def test_a_model_that_another_service_lacks_must_be_named(small: Project, serve: Serve) -> None:
    serve(score_reply(4))
    small.run("dev", "--model", "own")
    small.predictions("strong", {"q001": {"answer": "New."}, "q002": {"answer": "Newer."}})
    serve(model_gone())
    outcome = small.run()
    assert mentions(outcome.err, "error: judging ended: the model own is not available: ", ADVICE)
    assert outcome.code == 3


def test_replies_of_another_service_do_not_count_and_are_named(small: Project, open_server: Open) -> None:
    """Another model behind the same name would get the first one's grades."""
    open_server(score_reply(5))
    small.run(*MODEL)
    server = open_server(score_reply(2))
    lines = small.files()["dev_judgements.jsonl"].decode()
    small.write("dev_judgements.jsonl", lines.replace("127.0.0.1", "judge.example"))
    elsewhere = f"{server.url}/v1".replace("127.0.0.1", "judge.example")
    text = f"that do not count, as they are by another service: 2 (see GROQ_BASE_URL: {elsewhere})"
    outcome = small.run(*MODEL, GROQ_API_KEY="")
    assert ("llm_judge" in outcome.results["strong"], mentions(outcome.err, text)) == (False, True)
    for note in (True, False):  # the second time both are in the journal
        outcome = small.run(*MODEL)
        assert (judge_scores(outcome), len(server.calls)) == ({"q001": 2, "q002": 2}, 2)
        assert mentions(outcome.err, text) == note


def test_a_model_is_found_that_the_server_calls_otherwise(small: Project, open_server: Open) -> None:
    server = open_server(completion('{"rationale": "So.", "score": 4}', model="own-2026-11-01"))
    judged = small.run(*MODEL)
    assert {entry["requested"] for entry in journal_entries(small)} == {"own"}
    outcome = small.run()
    assert (outcome.results, outcome.code, len(server.calls)) == (judged.results, 0, 2)
    small.predictions("strong", {"q001": {"answer": "New."}, "q002": {"answer": "Newer."}})
    small.run()
    assert [call.body["model"] for call in server.calls] == ["own"] * 4
    for file in ("dev_judgements.jsonl", RESULTS):
        (small.folder / file).unlink()
    outcome = small.run()  # nothing says whom to ask
    assert outcome.usage_error == f"error: {server.url}/v1: name one of its models with --model"
    assert (outcome.code, len(server.calls)) == (2, 4)


def test_a_reply_that_json_mode_gave_up_on_leaves_no_parameter_out(small: Project, serve: Serve) -> None:
    server = serve(first(json_validate_failed("The temperature and the seed."), then=score_reply(4)))
    outcome = small.run("dev", "--workers", "1")
    assert (judge_scores(outcome), len(server.calls)) == ({"q001": 4, "q002": 4}, 3)
    assert all({"temperature", "seed"} <= {*call.body} for call in server.calls)


def test_a_reply_that_json_mode_gave_up_on_keeps_its_endpoint(small: Project, serve: Serve) -> None:
    server = serve(json_validate_failed('I say: {"rationale": "So.", "score": 4}'))
    assert judge_scores(small.run()) == {"q001": 4, "q002": 4}
    assert {entry["endpoint"] for entry in journal_entries(small)} == {f"{server.url}/openai/v1"}


DEEP = 200_000
DEEP_ANSWERS = {
    "body": Reply(200, b"[" * DEEP + b"]" * DEEP),
    "choice": Reply(200, b'{"choices": ' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "reply": completion("[" * DEEP + "]" * DEEP),
    "error": Reply(400, b'{"error": ' + b'{"message":' * DEEP + b"1" + b"}" * (DEEP + 1)),
    "error as deep as Python reads": Reply(400, b'{"error": ' + b'{"code":' * 900 + b"1" + b"}" * 901),
}


@pytest.mark.parametrize("name", DEEP_ANSWERS)
def test_a_deep_answer_is_a_missing_judgement(small: Project, serve: Serve, name: str) -> None:
    serve(DEEP_ANSWERS[name])
    outcome = first_question(small).run()
    assert (outcome.code, any("Traceback" in line for line in outcome.err)) == (3, False)


MARKS = ("%", "%zz", "@", "/", "#", "?", "[", "]", ":", "\\", " ", "\u2100", "\x01")
PASSWORDS = (*(f"frgmnt{mark}ssw0rd" for mark in MARKS), "6502/ssw0rd", "6502#ssw0rd")


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("host", ["127.0.0.1:9", "127.0.0.1:x", "[::1", ""])
def test_a_password_is_never_printed(small: Project, serve: Serve, password: str, host: str) -> None:
    """Whatever it holds."""
    serve(score_reply(4))
    outcome = small.run(*MODEL, GROQ_BASE_URL=f"http://anna:{password}@{host}/v1")
    assert (outcome.code, outcome.usage_error.startswith("error: GROQ_BASE_URL")) == (2, True)
    assert not re.search("frgmnt|6502|ssw0rd", "\n".join([outcome.out, *outcome.err]))


@table("status", {"for good": 308, "for now": 307, "to a page": 302})
def test_no_redirect_is_followed(small: Project, serve: Serve, status: int) -> None:
    """What it leads to would get answers and the key."""

    def answer(_call: Call) -> Reply:
        location = ("location", f"{server.url}/openai/v1/there")
        return Reply(status, b'{"error": {"message": "Go on"}}', (location,))

    server = serve(answer)
    outcome = small.run("dev", "--workers", "1")
    redirect = f"HTTP {status}: it redirects, which is not followed: correct GROQ_BASE_URL"
    assert mentions(outcome.err, "error: judging ended: ", redirect, server.url)
    assert (len(server.calls), outcome.code) == (2, 3)


@posix_only
@table("content", {"missing": None, "no certificates": b"So."})
def test_certificates_that_cannot_be_read_are_named(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    server = serve(score_reply(4))
    monkeypatch.setattr(httpx, "create_ssl_context", CREATE_SSL_CONTEXT)
    if content is not None:
        small.write("own.pem", content)
    before = small.files()
    outcome = small.run(SSL_CERT_FILE="own.pem")
    assert mentions(outcome.err, "error: ", "SSL_CERT_FILE or a proxy of the environment: ")
    assert (outcome.code, server.calls, small.files()) == (2, [], before)


def test_the_price_of_an_unknown_model_can_be_said(small: Project, open_server: Open) -> None:
    server = open_server(score_reply(4))
    assert "Cost: unknown for this model" in small.run(*MODEL, "--dry-run").out
    outcome = small.run(*MODEL, "--max-usd", "1")
    assert mentions(outcome.err, "--max-usd: the price of own is unknown: say it with --price")
    assert (outcome.code, server.calls) == (2, [])
    plan = small.run(*MODEL, "--dry-run", "--price", "1000", "0").out
    assert plan.count("With ") == 1
    assert "Cost (estimated): about $0." in plan
    outcome = small.run(*MODEL, "--price", "1000000", "0", "--max-usd", "0.5")
    assert mentions(outcome.err, "the next call could exceed --max-usd")
    assert (outcome.code, server.calls) == (3, [])


USAGES: Any = {"absurd": {"prompt_tokens": 10**30, "completion_tokens": 3}, "missing": None, "no object": [1]}


@table("usage", USAGES)
def test_a_strange_usage_makes_no_reply_unreadable(small: Project, open_server: Open, usage: Any) -> None:
    message = {"role": "assistant", "content": '{"rationale": "So.", "score": 4}'}
    body = {"model": "own", "choices": [{"index": 0, "message": message}], "usage": usage}
    open_server(Reply(200, json.dumps(body).encode()))
    outcome = small.run(*MODEL)
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 4}, 0)
