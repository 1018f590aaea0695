"""A conversation with the real application over a toy engine: thoughts, tools, what is kept."""

from collections.abc import Iterator
from typing import Any

import pytest
from cluster.live_site import Site, served
from cluster.toy_engine import ToyEngine
from typer.testing import CliRunner

from outrider.actors.errors import WorkerGone
from outrider.actors.scheduling.request import FinishReason, Request
from outrider.clients.client import Client
from outrider.clients.options import RetryPolicy
from outrider.cluster.api.middleware.keys import Policy
from outrider.cluster.cli import app
from outrider.cluster.terminal.chat.conversation import Conversation
from outrider.cluster.terminal.chat.example_tools import TOOLS

THOUGHTS = "<think>\nHm.\n</think>\n\n"
CALL = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "6*7"}}\n</tool_call>'


class AnsweringEngine(ToyEngine):
    """Answers what it has in store, in order."""

    answers: tuple[str, ...] = ()

    def _text(self, request: Request) -> tuple[str, FinishReason]:
        self.script = self.answers[(len(self.requests) - 1) % len(self.answers)]
        return super()._text(request)

    def asked(self, index: int) -> str:
        return self.tokenizer.decode(self.requests[index].prompt_ids)


@pytest.fixture
def site() -> Iterator[Site[AnsweringEngine]]:
    engine = AnsweringEngine()
    engine.info.max_model_len, engine.tokenizer.chat_template = 5000, "</think>"
    with served(engine, Policy(), "hermes") as site:
        yield site


def talk(
    site: Site[AnsweringEngine], monkeypatch: pytest.MonkeyPatch, *said: str, **more: Any
) -> None:
    lines = iter(said)

    def heard(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", heard)
    with Client(site.url, api_key="", retry=RetryPolicy(0)) as client:
        Conversation(client, {"max_tokens": 200}, "Be kind.", **more).run()


def test_answers_go_out_and_thoughts_do_not_come_back(
    site: Site[AnsweringEngine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site.engine.answers = (THOUGHTS + "One.", "Two.")
    talk(site, monkeypatch, "first", "second")
    assert capsys.readouterr().out == "One.\nTwo.\n"
    expected = "<system>Be kind.<user>first<assistant>One.<user>second"
    assert site.engine.asked(1) == expected


def test_calls_are_run_and_their_results_go_on(
    site: Site[AnsweringEngine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site.engine.answers = (THOUGHTS + CALL, "It is 42.")
    talk(site, monkeypatch, "6 times 7?", tools=TOOLS)
    written = capsys.readouterr()
    assert written.out.endswith("It is 42.\n")
    assert 'calculate {"expression": "6*7"} → 42' in written.err
    expected = "[calculate][now]<system>Be kind.<user>6 times 7?<assistant><tool>42"
    assert site.engine.asked(1) == expected


def test_calls_without_an_end_are_ended(
    site: Site[AnsweringEngine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site.engine.answers = (CALL,)
    talk(site, monkeypatch, "?", tools=TOOLS)
    assert len(site.engine.requests) == 8
    assert "stopped after 8 answers that called" in capsys.readouterr().err


def test_of_a_question_without_an_answer_nothing_is_kept(
    site: Site[AnsweringEngine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site.engine.answers = (CALL, "x", "Well.")
    site.engine.failure, site.engine.fails_after = WorkerGone("the target is gone"), 10**6
    answered = ToyEngine.generate

    def fails_second(engine: ToyEngine, request: Request) -> Any:
        engine.fails_after = 0 if len(engine.requests) == 1 else 10**6
        return answered(engine, request)

    monkeypatch.setattr(ToyEngine, "generate", fails_second)
    talk(site, monkeypatch, "first", "second", tools=TOOLS)
    assert "the target is gone" in capsys.readouterr().err
    assert site.engine.asked(2) == "[calculate][now]<system>Be kind.<user>second"


def test_tools_of_a_model_that_was_taught_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(ToyEngine(), Policy()) as site:
        result = CliRunner().invoke(app, ["chat", "--url", site.url, "--tools"])
    assert result.exit_code == 2
    assert "it is not known how this model writes calls" in result.stderr
