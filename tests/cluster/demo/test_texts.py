"""Texts that a head learns from: prompts of a file, or questions that the target asks itself."""

from types import SimpleNamespace

import pytest
from architectures import DEMO

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.errors import InvalidConfig
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.heads.training.plan import read_texts
from outrider.actors.text.user_turn import UserTurn
from outrider.cluster.demo import texts
from outrider.cluster.demo.texts import TargetTexts


class Heard:
    """A progress that counts."""

    def __init__(self):
        self.done = []

    def step(self, num_done, num_tokens, loss):
        self.done.append(num_done)


async def test_without_a_chat_template_there_is_nothing_to_ask(tmp_path):
    engine = SimpleNamespace(tokenizer=SimpleNamespace(has_chat_template=False))
    with pytest.raises(InvalidConfig, match="cannot ask itself; expected a file of prompts"):
        await TargetTexts(tmp_path / "texts", 1, None, 5).write(engine, Heard())


async def test_the_target_asks_itself_and_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "AT_ONCE", 3)
    monkeypatch.setattr(texts, "ANSWER_LEN", 12)
    config = EngineConfig(DEMO / "target", None, EngineOptions(drafters=(), max_batch=4))
    engine = await Engine.start(config, InlineExecutor())
    try:
        whole = tmp_path / "whole"
        await TargetTexts(whole, 7, None, 5).write(engine, heard := Heard())
        assert heard.done == [3, 6, 7]
        begun = tmp_path / "begun"
        begun.write_text("\n".join(whole.read_text().splitlines()[:4]) + "\n[[1, 2")
        await TargetTexts(begun, 7, None, 5).write(engine, heard := Heard())
        assert heard.done == [6, 7]
        assert begun.read_text() == whole.read_text()
        told, turn = read_texts(whole), UserTurn.of(engine.tokenizer)
        assert len({tuple(ids[:num]) for ids, num in told}) > 3  # questions of its own
        for ids, num_prompt in told:
            assert tuple(ids[: len(turn.opened)]) == turn.opened
            assert num_prompt < len(ids) <= num_prompt + 12
        other = tmp_path / "other"
        await TargetTexts(other, 2, ["Hello!", "Hello!"], 5).write(engine, Heard())
        hello = engine.tokenizer.render_chat([{"role": "user", "content": "Hello!"}])
        assert all(ids[:num] == hello for ids, num in read_texts(other))
    finally:
        await engine.stop()
