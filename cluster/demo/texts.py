"""What a target says, for a head to learn from: to given prompts, or to what it asks itself."""

import asyncio
from collections.abc import Sequence as Many
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.training.plan import append_texts, read_texts
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.text.user_turn import UserTurn

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine
    from outrider.actors.text.tokenizer import Tokenizer
    from outrider.cluster.demo.progress import DemoProgress

AT_ONCE = 32  # texts written together
QUESTION_LEN, ANSWER_LEN = 64, 128  # tokens at most
ASKED_AT = 0.8  # temperature of its own questions: at 1 a small model's make little sense


class TargetTexts:
    """The file of them, which goes on where it was."""

    def __init__(self, file: Path, num: int, prompts: Many[str] | None, seed: int) -> None:
        """prompts: as many as texts; None: the target asks itself."""
        self._file, self._num, self._prompts, self._seed = file, num, prompts, seed

    async def write(self, engine: "Engine", progress: "DemoProgress") -> None:
        """All that are not there yet: half of the answers greedy, half drawn. Raises
        InvalidConfig.
        """
        num_done = len(read_texts(self._file)) // AT_ONCE * AT_ONCE
        kept = read_texts(self._file)[:num_done]
        self._file.unlink(missing_ok=True)
        append_texts(self._file, kept)
        own = None if self._prompts is not None else _own_turn(engine.tokenizer)
        for start in range(num_done, self._num, AT_ONCE):
            some = range(start, min(start + AT_ONCE, self._num))
            told = await asyncio.gather(*(self._text(engine, own, at) for at in some))
            append_texts(self._file, told)
            progress.step(some.stop, sum(len(ids) for ids, _ in told), None)

    async def _text(self, engine: "Engine", own: UserTurn | None, at: int) -> tuple[list[int], int]:
        seed, tokenizer = self._seed + at, engine.tokenizer
        if own is None:
            assert self._prompts is not None
            prompt = self._prompts[at]
        else:
            room = engine.info.max_model_len - len(own.opened)
            asking = SamplingParams(
                ASKED_AT, max_tokens=max(1, min(QUESTION_LEN, room)), stop_token_ids=own.closed[:1]
            )
            prompt = tokenizer.decode(await _said(engine, own.opened, asking, seed)).strip()
        if tokenizer.has_chat_template:
            ids = tokenizer.render_chat([{"role": "user", "content": prompt}])
        else:
            ids = tokenizer.encode(prompt)
        room = engine.info.max_model_len - 1
        ids = ids[-max(1, room - ANSWER_LEN) :]
        sampling = SamplingParams(float(at % 2), max_tokens=min(ANSWER_LEN, room - len(ids) + 1))
        return [*ids, *await _said(engine, ids, sampling, seed)], len(ids)


async def _said(engine: "Engine", ids: Many[int], sampling: SamplingParams, seed: int) -> list[int]:
    request = Request(tuple(ids), sampling, seed=seed)
    return [token async for chunk in engine.generate(request) for token in chunk.token_ids]


def _own_turn(tokenizer: "Tokenizer") -> UserTurn:
    """Raises InvalidConfig."""
    if not tokenizer.has_chat_template:
        raise InvalidConfig(
            "Got no --prompts for a target without a chat template, which cannot ask itself; "
            "expected a file of prompts"
        )
    return UserTurn.of(tokenizer)
