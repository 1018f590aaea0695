"""Texts of the target's own, over which heads are tried, with its hidden states."""

from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.taps import Taps
from outrider.actors.text.user_turn import UserTurn

NUM_TEXTS = 8
QUESTION_LEN, ANSWER_LEN = 16, 32  # tokens at most
NUM_DRAWN = 4  # tokens at a text's start where the target does not chat
POOL_TOKENS = 2048  # in the pool meanwhile; a long system prompt makes fewer texts


@dataclass(frozen=True, slots=True)
class ProbeText:
    """All tokens that something is written behind, text after text."""

    ids: torch.Tensor  # [T]
    follows: torch.Tensor  # [T]: the token behind it
    texts: torch.Tensor  # [T]: which text it is in
    positions: torch.Tensor  # [T]: where in its text
    is_scored: torch.Tensor  # [T]: whether the target found it likeliest, and what follows too
    states: dict[int, torch.Tensor]  # by boundary: [T, H]


@torch.inference_mode()
def probe_text(runner: Runner, boundaries: set[int], turn: UserTurn | None) -> ProbeText:
    """The target asks and answers itself within `turn`, as heads are trained on chats; without one
    it goes on from its first id. Nothing may be open: the runner has another pool while it writes.
    """
    num_tokens = runner.pool.num_pages * runner.pool.page_size
    runner.resize(POOL_TOKENS)
    order = sorted(boundaries)
    hidden = runner.loaded.model.get_input_embeddings().weight.shape[1]
    if order:
        runner.tap(Taps(tuple(order), len(order) * hidden, lambda states: states))
    writer = _Writer(runner, turn)
    writer.ask()
    num_asked = [len(ids) for ids in writer.texts]
    writer.answer()
    found = _side_by_side(writer.texts, num_asked, str(runner.loaded.device))
    if order:
        features = runner.pool.features
        assert features is not None
        caches = [writer.caches[text] for text in found.texts.tolist()]
        places = zip(caches, found.positions.tolist(), strict=True)
        rows = torch.tensor([runner.pool.row(*place) for place in places], device=features.device)
        kept = features[rows].view(-1, len(order), hidden)
        found.states.update({boundary: kept[:, at] for at, boundary in enumerate(order)})
    for cache in writer.caches:
        runner.close(cache)
    runner.tap(None)
    runner.resize(num_tokens)
    return found


class _Writer:
    """Texts that are written together."""

    def __init__(self, runner: Runner, turn: UserTurn | None) -> None:
        self._runner = runner
        num = NUM_TEXTS
        if turn is not None:
            most = len(turn.opened) + len(turn.closed) + QUESTION_LEN + ANSWER_LEN
            num = min(num, POOL_TOKENS // (most + runner.pool.page_size))
            if not turn.opened or not num or most > runner.context_len:
                num, turn = NUM_TEXTS, None
        self._turn = turn
        begins = [_first_id(runner)] if turn is None else turn.opened
        self.texts = [list(begins) for _ in range(num)]
        self.caches = [runner.open() for _ in self.texts]

    def ask(self) -> None:
        """By chance, since the same words would come each time."""
        generator = torch.Generator().manual_seed(0)
        num, closed = (NUM_DRAWN, ()) if self._turn is None else (QUESTION_LEN, self._turn.closed)
        asking = list(range(len(self.texts)))
        for _ in range(num):
            chances = self._logits(asking).softmax(-1)
            self._write(asking, torch.multinomial(chances, 1, generator=generator))
            asking = self._not_ended(asking, closed[:1])
            if not asking:
                break
        for row, ids in enumerate(self.texts):
            ids += closed if row in asking else closed[1:]

    def answer(self) -> None:
        """The likeliest, up to an answer's end; two at least, since drafts begin behind one."""
        ends = () if self._turn is None else self._runner.loaded.eos_ids
        room = self._runner.context_len - max(map(len, self.texts))
        answering = list(range(len(self.texts)))
        for num_written in range(min(ANSWER_LEN, room)):
            self._write(answering, self._logits(answering).argmax(-1))
            if num_written:
                answering = self._not_ended(answering, ends)
            if not answering:
                break

    def _logits(self, rows: Many[int]) -> torch.Tensor:
        """Behind all that is written [rows, V]."""
        caches = [self.caches[row] for row in rows]
        new = [self.texts[row][cache.len :] for row, cache in zip(rows, caches, strict=True)]
        chunks = [Segment(cache, ids, 1) for cache, ids in zip(caches, new, strict=True)]
        return self._runner.forward(chunks).float().cpu()

    def _write(self, rows: Many[int], tokens: torch.Tensor) -> None:
        for row, token in zip(rows, tokens.flatten().tolist(), strict=True):
            self.texts[row].append(token)

    def _not_ended(self, rows: Many[int], ends: Many[int]) -> list[int]:
        return [row for row in rows if self.texts[row][-1] not in ends]


def _first_id(runner: Runner) -> int:
    config = runner.loaded.model.config.get_text_config()
    starts = (config.bos_token_id, *runner.loaded.eos_ids, 0)
    known = range(runner.num_embeddings)
    return next(start for start in starts if isinstance(start, int) and start in known)


def _side_by_side(texts: list[list[int]], num_asked: list[int], device: str) -> ProbeText:
    """Without states."""

    def numbers(found: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(found), device=device)

    places = [(text, at) for text, ids in enumerate(texts) for at in range(len(ids) - 1)]
    return ProbeText(
        ids=numbers(texts[text][at] for text, at in places),
        follows=numbers(texts[text][at + 1] for text, at in places),
        texts=numbers(text for text, _ in places),
        positions=numbers(at for _, at in places),
        is_scored=numbers(at >= num_asked[text] for text, at in places),
        states={},
    )
