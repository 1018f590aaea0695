"""A runner whose logits are a real model's, each path of tokens computed once, and whose seconds
are a machine's.

Rows of its pool hold no keys and values but the path of tokens that they stand for. Off what was
computed before, it computes; nothing is truncated or made up.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from outrider.actors.runner.forward_batch import Segment, check
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import load_model
from outrider.actors.runner.runner import Runner

ROOT = 0  # the path without a token
PAGE_SIZE = 16
MAX_KEPT = 1 << 16  # paths whose real keys and values are kept
MAX_KNOWN_PAGES = 1 << 12  # paths whose lists of pages are kept
MOST_FED = 512  # in one forward
MASK = (1 << 64) - 1
MAX_ROW_BYTES = 3 << 30  # of logits that are kept; what was given up is computed again


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
        # A page is one token, so that paths share those that they have in common.
        self.runner = Runner(loaded, num_tokens=MAX_KEPT, page_size=1, numerics="exact")
        assert self.runner.numerics == "exact", self.runner.numerics_reason
        self._children = {}  # (path, token) → path
        self._parents = [(ROOT, -1)]  # path → the one before, and its last token
        self._digests = {ROOT: 0}  # path → 64 bits of its tokens, once asked for
        self._rows = OrderedDict()  # path → logits [V], least recently used first
        self._max_rows = MAX_ROW_BYTES // (4 * self.runner.vocab_size)
        self._caches = [self.runner.open()]
        self._kept = {}  # path → the page of its last token's keys and values
        self._known_pages = {}  # path → those of all its tokens, of some

    def after(self, path: int, token: int) -> int:
        """The path with one token more."""
        found = self._children.get((path, token))
        if found is None:
            found = self._children[path, token] = len(self._parents)
            self._parents.append((path, token))
        return found

    def digest(self, path: int) -> int:
        """The same for the same tokens, in whichever order paths were met."""
        if path not in self._digests:
            before, token = self._parents[path]
            self._digests[path] = mixed(self.digest(before), token)
        return self._digests[path]

    def logits(self, paths: Sequence[int]) -> np.ndarray:
        """Behind each path's last token, [paths, V]."""
        unknown = {path for path in paths if path not in self._rows}
        if unknown:
            self._compute(unknown)
        found = np.concatenate([self._rows[path] for path in paths]).reshape(len(paths), -1)
        for path in paths:
            self._rows.move_to_end(path)
        while len(self._rows) > self._max_rows:
            self._rows.popitem(last=False)
        return found

    def _compute(self, wanted: set[int]) -> None:
        fed = self._to_be_fed(wanted)
        if self.runner.num_free_pages < len(fed):
            self._free(self._kept)
            fed = self._to_be_fed(wanted)
        again = fed & self._kept.keys()  # their logits are not known
        for path in sorted(again):  # each alone: others of these may be further on in its text
            self._free([path])
            self._feed([path], wanted)
        fed = sorted(fed - again)  # parents first
        for at in range(0, len(fed), MOST_FED):
            self._feed(fed[at : at + MOST_FED], wanted)

    def _to_be_fed(self, wanted: set[int]) -> set[int]:
        """These, and all before them whose keys and values are not kept."""
        found = set(wanted)
        for path in wanted:
            before = self._parents[path][0]
            while before != ROOT and before not in self._kept and before not in found:
                found.add(before)
                before = self._parents[before][0]
        return found

    def _feed(self, fed: list[int], wanted: set[int]) -> None:
        """In one forward; each part that hangs together is a segment."""
        tops, parts = {}, {}
        for path in fed:
            tops[path] = top = tops.get(self._parents[path][0], path)
            parts.setdefault(top, []).append(path)
        segments = []
        for number, (top, part) in enumerate(parts.items()):
            if number == len(self._caches):
                self._caches.append(self.runner.open())
            cache = self._caches[number]
            cache.pages = list(self._pages(self._parents[top][0]))
            cache.len = len(cache.pages)
            self.runner.pool.table[cache.slot, : cache.len] = cache.pages
            nodes = {path: node for node, path in enumerate(part)}
            parents = [nodes.get(self._parents[path][0], -1) for path in part]
            is_chain = parents == list(range(-1, len(part) - 1))
            tokens = [self._parents[path][1] for path in part]
            first = next((node for node, path in enumerate(part) if path in wanted), len(part))
            segments.append(
                Segment(cache, tokens, len(part) - first, None if is_chain else parents)
            )
        rows = iter(self.runner.forward(segments).numpy())
        for part, segment in zip(parts.values(), segments, strict=True):
            self._kept.update(zip(part, segment.cache.pages[-len(part) :], strict=True))
            for path in part[len(part) - segment.num_logits :]:
                self._rows[path] = next(rows)

    def _pages(self, path: int) -> list[int]:
        """Of its tokens' keys and values, the first token's first."""
        if path not in self._known_pages:
            behind, at = [], path
            while at != ROOT and at not in self._known_pages:
                behind.append(self._kept[at])
                at = self._parents[at][0]
            found = self._known_pages.get(at, []) + behind[::-1]
            if len(self._known_pages) == MAX_KNOWN_PAGES:
                self._known_pages.clear()
            self._known_pages[path] = found
        return self._known_pages[path]

    def _free(self, paths: Iterable[int]) -> None:
        """Their keys and values need not be kept."""
        self._known_pages.clear()
        cache = self._caches[0]
        cache.pages = [self._kept.pop(path) for path in list(paths)]
        cache.len = len(cache.pages)
        self.runner.pool.truncate(cache, 0)


class WrongRecording(Recording):
    """A draft that likes best what is one id beside what the real one likes."""

    def logits(self, paths: Sequence[int]) -> np.ndarray:
        return np.roll(super().logits(paths), 1, axis=1)


class ModelledRecording:
    """A draft that is made up: the target itself behind `agreement` of all paths, and wrong behind
    the others. What is measured with it is a model.
    """

    def __init__(self, target: Recording, agreement: float) -> None:
        self.runner, self.after = target.runner, target.after
        self._target, self._agreement = target, agreement

    def logits(self, paths: Sequence[int]) -> np.ndarray:
        rows = self._target.logits(paths)
        for path, row in zip(paths, rows, strict=True):
            if mixed(self._target.digest(path), 1) >= self._agreement * 2**64:
                row[:] = np.roll(row, 1)
        return rows


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
        return torch.from_numpy(self._recording.logits(wanted))

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
