"""What a step learns from: rows of pages and conversations, a function of seed and step alone."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from outrider.cluster.demo.corpus.chats import SYSTEM, TURN, Chat
from outrider.cluster.demo.vocabulary import BOS_ID

Ids = npt.NDArray[np.int64]
ASKING = 0.1  # a question's tokens count so much of an answer's
SYSTEM_SHARE = 0.1  # conversations that begin with a system's turn


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Rows to learn from."""

    ids: Ids  # [rows, tokens + 1]
    weights: npt.NDArray[np.float32]  # [rows, tokens], of the prediction of the next


@dataclass(frozen=True, slots=True)
class Turns:
    """A question and its answer, in tokens."""

    prompt: Ids
    reply: Ids
    asking: float = ASKING  # what a token of the prompt counts

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """Of both, one after the other."""
        counts = len(self.prompt), len(self.reply)
        return np.repeat(np.array([self.asking, 1.0], np.float32), counts)


class Chats:
    """Chats in tokens, drawn as often as they weigh."""

    def __init__(self, chats: Many[Turns], weights: Many[float]) -> None:
        self._chats = chats
        self._ends = np.cumsum(weights)

    @classmethod
    def encoded(cls, tokenizer: Tokenizer, chats: Many[Chat], weights: Many[float]) -> "Chats":
        prompts = tokenizer.encode_batch_fast([chat.prompt for chat in chats])
        replies = tokenizer.encode_batch_fast([chat.reply for chat in chats])
        turns = [
            Turns(np.array(asked.ids), np.array(told.ids), ASKING if chat.is_asked else 0.0)
            for chat, asked, told in zip(chats, prompts, replies, strict=True)
        ]
        return cls(turns, weights)

    def draw(self, random: np.random.Generator) -> Turns:
        at = np.searchsorted(self._ends, random.random() * self._ends[-1], side="right")
        return self._chats[int(at)]


class Source:
    """Rows of pages and of chats."""

    def __init__(
        self, tokenizer: Tokenizer, pages: Many[str], pools: Many[Chats], seed: int
    ) -> None:
        """pools: a row of chats is of one of them, in turn."""
        self._pools = pools
        self._seed = seed
        encoded = tokenizer.encode_batch_fast(pages)
        self._pages = np.array([id for page in encoded for id in (BOS_ID, *page.ids)])
        systems = [TURN.format("system", text) for text in SYSTEM]
        self._systems = [np.array(one.ids) for one in tokenizer.encode_batch_fast(systems)]

    def batch(self, step: int, rows: int, tokens: int, pages_share: float) -> TrainingBatch:
        """Of a step; the last of the rows are pages."""
        random = np.random.default_rng([self._seed, step])
        num_chats = rows - round(rows * pages_share)
        made = [
            self._conversation(random, number, tokens + 1)
            if number < num_chats
            else self._page(random, tokens + 1)
            for number in range(rows)
        ]
        ids, weights = (np.stack(part) for part in zip(*made, strict=True))
        return TrainingBatch(ids, weights[:, 1:])

    def _conversation(
        self, random: np.random.Generator, number: int, length: int
    ) -> tuple[Ids, npt.NDArray[np.float32]]:
        """One question after another, as if they were turns of one conversation."""
        pool = self._pools[number % len(self._pools)]
        ids, weights = [], []
        if random.random() < SYSTEM_SHARE:
            ids.append(self._systems[int(random.integers(len(self._systems)))])
            weights.append(np.full(len(ids[0]), ASKING, np.float32))
        while sum(map(len, ids)) < length:
            turns = pool.draw(random)
            ids.extend((turns.prompt, turns.reply))
            weights.append(turns.weights)
        return np.concatenate(ids)[:length], np.concatenate(weights)[:length]

    def _page(
        self, random: np.random.Generator, length: int
    ) -> tuple[Ids, npt.NDArray[np.float32]]:
        start = int(random.integers(max(1, len(self._pages) - length)))
        ids = np.resize(self._pages[start : start + length], length)
        return ids, np.ones(length, np.float32)
