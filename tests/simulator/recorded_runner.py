"""A runner whose logits are a real model's, each path of tokens computed once, and whose seconds
are a machine's.

Rows of its pool hold no keys and values but the path of tokens that they stand for. Off what was
computed before, it computes; nothing is truncated or made up.
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

from outrider.actors.runner.forward_batch import Segment, check
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import load_model
from outrider.actors.runner.runner import Runner

ROOT = 0  # the path without a token
PAGE_SIZE = 16
MAX_TRAILS = 128  # paths whose real keys and values are kept
MOST_LOST = 24  # rows of a trail that another path may take back
MASK = (1 << 64) - 1
MAX_ROW_BYTES = 3 << 30  # of logits that are kept; what was given up is computed again
LONG = 48  # tokens fed at once of which only the last one's logits are wanted


def mixed(*key: int) -> int:
    """64 bits that depend on all of the key (splitmix64)."""
    state = 0
    for part in key:
        state = (state + part + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state


class Recording:
    """Logits behind any path of one model's tokens."""

    def __init__(self, folder: Path) -> None:
        loaded = load_model(folder)
        num_tokens = min(MAX_TRAILS * loaded.context_len, 1 << 16)
        self.runner = Runner(loaded, num_tokens=num_tokens, numerics="exact")
        assert self.runner.numerics == "exact", self.runner.numerics_reason
        self._children = {}  # (path, token) → path
        self._parents = [(ROOT, -1)]  # path → the one before, and its last token
        self._digests = [0]  # path → 64 bits of its tokens
        self._rows = OrderedDict()  # path → logits [V], least recently used first
        self._max_rows = MAX_ROW_BYTES // (4 * self.runner.vocab_size)
        self._trails = OrderedDict()  # slot → (page table, its paths), least recently used first
        self._held = {}  # path → (slot, rows up to it)

    def after(self, path: int, token: int) -> int:
        """The path with one token more."""
        found = self._children.get((path, token))
        if found is None:
            found = self._children[path, token] = len(self._parents)
            self._parents.append((path, token))
            self._digests.append(mixed(self._digests[path], token))
        return found

    def digest(self, path: int) -> int:
        """The same for the same tokens, in whichever order paths were met."""
        return self._digests[path]

    def logits(self, path: int) -> np.ndarray:
        """Behind the path's last token, [V]."""
        row = self._rows.get(path)
        if row is None:
            self._compute(path)
            row = self._rows[path]
            while len(self._rows) > self._max_rows:
                self._rows.popitem(last=False)
        else:
            self._rows.move_to_end(path)
        return row

    def _compute(self, path: int) -> None:
        rest, at = [path], self._parents[path][0]  # paths to be fed, last first
        while at != ROOT and not self._can_go_on(at):
            rest.append(at)
            at = self._parents[at][0]
        slot, cache, paths = self._trail(at)
        rest.reverse()
        num_wanted = len(rest) if len(rest) <= LONG else 1
        tokens = [self._parents[each][1] for each in rest]
        logits = self.runner.forward([Segment(cache, tokens, num_wanted)]).numpy()
        for each, row in zip(rest[-num_wanted:], logits, strict=True):
            if each not in self._rows:
                self._rows[each] = row.copy()
        for each in rest:
            paths.append(each)
            self._held.setdefault(each, (slot, len(paths)))

    def _can_go_on(self, path: int) -> bool:
        """Whether its keys and values are there, and little that comes behind would be lost."""
        slot, length = self._held.get(path, (None, 0))
        return slot is not None and len(self._trails[slot][1]) - length <= MOST_LOST

    def _trail(self, path: int):
        """Real keys and values of exactly this path, to go on from."""
        if path == ROOT:
            if len(self._trails) >= MAX_TRAILS or self.runner.num_free_pages < 128:
                slot, (cache, paths) = self._trails.popitem(last=False)
                self._forget(slot, paths, 0)
                self.runner.close(cache)
            cache = self.runner.open()
            self._trails[cache.slot] = cache, []
            return cache.slot, cache, self._trails[cache.slot][1]
        slot, length = self._held[path]
        cache, paths = self._trails[slot]
        self._trails.move_to_end(slot)
        self._forget(slot, paths, length)
        self.runner.rollback(cache, length)
        return slot, cache, paths

    def _forget(self, slot: int, paths: list[int], length: int) -> None:
        for each in paths[length:]:
            if self._held.get(each, (None,))[0] == slot:
                del self._held[each]
        del paths[length:]


class WrongRecording(Recording):
    """A draft that likes best what is one id beside what the real one likes."""

    def logits(self, path: int) -> np.ndarray:
        return np.roll(super().logits(path), 1)


class ModelledRecording:
    """A draft that is made up: the target itself behind `agreement` of all paths, and wrong behind
    the others. What is measured with it is a model.
    """

    def __init__(self, target: Recording, agreement: float) -> None:
        self.runner, self.after = target.runner, target.after
        self._target, self._agreement = target, agreement

    def logits(self, path: int) -> np.ndarray:
        row = self._target.logits(path)
        agrees = mixed(self._target.digest(path), 1) < self._agreement * 2**64
        return row if agrees else np.roll(row, 1)


class PathPool(KvPool):
    """Pages without layers: a row is the path that ends there."""

    def __init__(self, num_tokens: int, max_rows: int) -> None:
        super().__init__([], num_tokens=num_tokens, page_size=PAGE_SIZE, max_rows=max_rows)
        self.paths = np.zeros(self.num_pages * PAGE_SIZE, np.int64)

    def move(self, sources: list[int], targets: list[int]) -> None:
        self.paths[targets] = self.paths[sources]


class RecordedRunner(Runner):
    """Looks like a Runner to a worker."""

    def __init__(self, recording: Recording, seconds_of, clock, num_tokens: int = 1 << 17) -> None:
        """`seconds_of(tokens, context)` of a forward: new tokens, and rows they look back at."""
        real = recording.runner
        self.loaded, self.vocab_size = real.loaded, real.vocab_size
        self.context_len, self.num_embeddings = real.context_len, real.num_embeddings
        self.numerics, self.numerics_reason, self.model = real.numerics, "", real.model
        self.pool = PathPool(num_tokens, self.context_len + 4096)
        self._recording, self._seconds_of, self._clock = recording, seconds_of, clock

    def forward(self, chunks):
        if not chunks:
            return torch.empty(0, self.vocab_size)
        check(chunks, self.num_embeddings, self.context_len)
        self.pool.reserve([(chunk.cache, len(chunk.tokens)) for chunk in chunks])
        wanted = [path for chunk in chunks for path in self._write(chunk)]
        num_tokens = sum(len(chunk.tokens) for chunk in chunks)
        self._clock.spend(self._seconds_of(num_tokens, sum(chunk.cache.len for chunk in chunks)))
        if not wanted:
            return torch.empty(0, self.vocab_size)
        # The last of a chain first: those before it are computed on the way.
        rows = [self._recording.logits(path) for path in reversed(wanted)]
        return torch.from_numpy(np.stack(rows[::-1]))

    def _write(self, chunk: Segment) -> list[int]:
        """The new rows' paths into the pool; those whose logits are wanted."""
        cache, pool, found = chunk.cache, self.pool, []
        for index, token in enumerate(chunk.tokens):
            if chunk.parents is None or cache.len + index < chunk.first:
                before = cache.len + index - 1
            else:
                rows = chunk.path(index)
                before = rows[-2] if len(rows) > 1 else chunk.first - 1
            start = ROOT if before < 0 else int(pool.paths[pool.row(cache, before)])
            path = self._recording.after(start, token)
            pool.paths[pool.row(cache, cache.len + index)] = path
            found.append(path)
        cache.len += len(chunk.tokens)
        return found[len(found) - chunk.num_logits :]
