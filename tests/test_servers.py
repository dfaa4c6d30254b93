"""Other servers with OpenAI's API: what they are asked, which replies count later, and what stays secret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from conftest import (
    KEY,
    Project,
    Serve,
    journal_entries,
    json_lines,
    judge_scores,
    mentions,
    posix_only,
    table,
)
from groq_server import Call, GroqServer, Reply, error, json_validate_failed, score_reply

CREATE_SSL_CONTEXT = httpx.create_ssl_context  # which `serve` replaces
MODEL = ("dev", "--model", "own")


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
        "knows JSON mode": ((SCHEMA,), [SCHEMA, JSON_MODE, JSON_MODE], ["a JSON schema: JSON mode is used."]),
        "has no response_format": (
            (SCHEMA, JSON_MODE),
            [SCHEMA, JSON_MODE, "none", "none"],
            ["a JSON schema: JSON mode is used.", "JSON mode: no response_format is used."],
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


def test_a_server_needs_a_model_and_is_named_in_errors(small: Project, open_server: Open) -> None:
    server = open_server(error(404, "model_not_found", "No such model."))
    outcome = small.run()
    assert outcome.err == [f"error: {server.url}/v1: name one of its models with --model"]
    assert (outcome.code, outcome.results) == (2, None)
    outcome = small.run(*MODEL)
    assert mentions(outcome.err, "error: ", f"(asked: {server.url}/v1)")


SECRET_URL = "http://anna:pass-word-7@{host}/v1?token=token-8#part"


def test_nothing_secret_of_a_url_is_printed_or_stored(
    small: Project, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (score_reply(4), error(401, "invalid_api_key", "Wrong key.")):
        (small.folder / "dev_judgements.jsonl").unlink(missing_ok=True)
        server = open_server(answer)
        monkeypatch.setenv("GROQ_BASE_URL", SECRET_URL.format(host=server.url.removeprefix("http://")))
        outcome = small.run(*MODEL, "--report", "html")
        written = b"".join(small.files().values()).decode("utf-8", "replace")
        shown = "\n".join([outcome.out, *outcome.err, written])
        assert not re.search(f"anna|pass-word-7|token-8|{KEY}", shown)
        assert len(server.calls) > 0


@table(
    "url, is_warned",
    {
        "another machine": ("http://judge.example/v1", True),
        "this machine": ("http://localhost:9/v1", False),
        "encrypted": ("https://judge.invalid/v1", False),
    },
)
def test_plain_http_to_another_machine_is_a_warning(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, url: str, is_warned: bool
) -> None:
    serve(score_reply(4))
    monkeypatch.setenv("GROQ_BASE_URL", url)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing leaves this machine
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    outcome = small.run(*MODEL)
    warning = f"warning: {url}: answers and the key travel in the open: use https."
    assert (outcome.err.count(warning), outcome.code) == (int(is_warned), 3)


# ------------------------------------------------------------------ Whose replies count


def test_replies_of_another_server_do_not_count(small: Project, open_server: Open) -> None:
    """Another model behind the same name would get the first one's grades."""
    first = open_server(score_reply(5))
    small.run(*MODEL)
    assert {entry["endpoint"] for entry in journal_entries(small)} == {f"{first.url}/v1"}
    lines = [{**entry, "endpoint": "http://elsewhere:1/v1"} for entry in journal_entries(small)]
    small.write("dev_judgements.jsonl", json_lines(*lines))
    second = open_server(score_reply(2))
    assert judge_scores(small.run(*MODEL)) == {"q001": 2, "q002": 2}
    assert len(second.calls) == 2
    assert judge_scores(small.run(*MODEL)) == {"q001": 2, "q002": 2}  # now both are in the journal


@table(
    "endpoints, scores",
    {
        "of version 2": ([None, None], {"q001": 4, "q002": 4}),
        "the only one": (["http://a/v1", "http://a/v1"], {"q001": 4, "q002": 4}),
        "one of two": (["http://a/v1", "http://b/v1"], None),
    },
)
def test_without_a_key_the_journals_only_server_counts(
    small: Project, serve: Serve, endpoints: list[str | None], scores: dict[str, float] | None
) -> None:
    serve(score_reply(4))
    small.run()
    lines = []
    for entry, endpoint in zip(journal_entries(small), endpoints, strict=True):
        del entry["endpoint"]
        lines.append({**entry, "endpoint": endpoint} if endpoint else entry)
    small.write("dev_judgements.jsonl", json_lines(*lines))
    outcome = small.run("dev", GROQ_API_KEY="", GROQ_BASE_URL="")
    found = judge_scores(outcome) if "llm_judge" in outcome.results["strong"] else None
    assert found == scores


def test_a_reply_that_json_mode_gave_up_on_keeps_its_endpoint(small: Project, serve: Serve) -> None:
    server = serve(json_validate_failed('{"rationale": "So.", "score": 4} is what I say.'))
    assert judge_scores(small.run()) == {"q001": 4, "q002": 4}
    assert {entry["endpoint"] for entry in journal_entries(small)} == {f"{server.url}/openai/v1"}


# ------------------------------------------------------------------ Addresses, redirects, certificates

MARKS = ("%", "%zz", "@", "/", "#", "?", "[", "]", ":", "\\", " ", "\u2100", "\x01")
PASSWORDS = (*(f"frgmnt{mark}ssw0rd" for mark in MARKS), "6502/ssw0rd", "6502#ssw0rd")


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("host", ["127.0.0.1:9", "127.0.0.1:x", "[::1", ""])
def test_a_password_is_never_printed_whatever_it_holds(
    small: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, password: str, host: str
) -> None:
    serve(score_reply(4))
    monkeypatch.setenv("GROQ_BASE_URL", f"http://anna:{password}@{host}/v1")
    outcome = small.run(*MODEL)
    assert outcome.code in (2, 3)
    assert mentions(outcome.err, "error: ")
    assert not re.search("frgmnt|6502|ssw0rd", "\n".join([outcome.out, *outcome.err]))


def test_a_password_that_the_service_repeats_is_not_printed(
    small: Project, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = open_server(error(401, "", "No: anna:p@ss, p%40ss."))
    monkeypatch.setenv("GROQ_BASE_URL", server.url.replace("//", "//anna:p%40ss@") + "/v1")
    assert mentions(small.run(*MODEL).err, "HTTP 401: No: anna:***, ***.")


@table("status", {"for good": 308, "for now": 307, "to a page": 302})
def test_no_redirect_is_followed(small: Project, serve: Serve, status: int) -> None:
    """What it leads to would get answers and the key."""

    def answer(_call: Call) -> Reply:
        return Reply(
            status, b'{"error": {"message": "Go on"}}', (("location", f"{server.url}/openai/v1/there"),)
        )

    server = serve(answer)
    outcome = small.run("dev", "--workers", "1")
    redirect = f"HTTP {status}: it redirects, which is not followed: correct GROQ_BASE_URL"
    assert mentions(outcome.err, "error: judging ended: ", redirect, server.url)
    assert (len(server.calls), outcome.code) == (1, 3)


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
    assert mentions(outcome.err, "error: SSL_CERT_FILE: own.pem: ")
    assert (outcome.code, server.calls, small.files()) == (2, [], before)


# ------------------------------------------------------------------ Prices


def test_the_price_of_an_unknown_model_can_be_said(small: Project, open_server: Open) -> None:
    server = open_server(score_reply(4))
    assert "Cost: unknown for this model" in small.run(*MODEL, "--dry-run").out
    outcome = small.run(*MODEL, "--max-usd", "1")
    assert mentions(outcome.err, "--max-usd: the price of own is unknown: say it with --price")
    assert (outcome.code, server.calls) == (2, [])
    plan = small.run(*MODEL, "--dry-run", "--price", "1000", "0").out
    assert plan.count("With ") == 1
    assert "Cost (estimated): $0." in plan
    outcome = small.run(*MODEL, "--price", "1000000", "0", "--max-usd", "0.5")
    assert mentions(outcome.err, "the next call could exceed --max-usd")
    assert (outcome.code, server.calls) == (3, [])


USAGES: dict[str, Any] = {
    "absurd": {"prompt_tokens": 10**30, "completion_tokens": 3},
    "missing": None,
    "no object": [1],
}


@table("usage", USAGES)
def test_a_strange_usage_makes_no_reply_unreadable(small: Project, open_server: Open, usage: Any) -> None:
    message = {"role": "assistant", "content": '{"rationale": "So.", "score": 4}'}
    body = {"model": "own", "choices": [{"index": 0, "message": message}], "usage": usage}
    open_server(Reply(200, json.dumps(body).encode()))
    outcome = small.run(*MODEL)
    assert (judge_scores(outcome), outcome.code) == ({"q001": 4, "q002": 4}, 0)
