"""Suffix decoding: what followed, in prompts and outputs of before, where they read as this text
does now. Source: SuffixDecoding (2411.04975).

Owns the texts of each scope in a ring of ids, the newest over the oldest, with an index: where
three neighbours stood last, and from every place the one before it. Several places that go on
differently are branches, each with its share of them.

A scope is an API key and a `cache_salt`: from how fast its guesses come true one could tell what
others asked and got. Without either nothing is kept.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence as Many
from dataclasses import dataclass

from outrider.actors.scheduling.request import Request
from outrider.actors.spec_decode.drafters.guess import NO_GUESS, Guess
from outrider.actors.trees.chances import counted_edge

GRAM = 3  # ids that must match before anything is guessed
NUM_BUCKETS = 1 << 16  # of the index
MAX_STEPS = 32  # places looked at in a bucket
MAX_PLACES = 16  # that read alike
MAX_MATCH = 32  # ids compared at each
MAX_NODES = 48
WINDOW = 8192  # ids of a prompt that are kept, its last ones
BLOCK = 32  # ids of a prompt that are known or not
SCOPE_SHARE = 4  # of the bytes one scope has at most one part in so many
TOKEN_BYTES = 4 + 8 + 4  # the id, the place before, its part of what is known of prompts
NO_ID = -1  # between two texts


class SuffixLog:
    """The texts of one scope. Places count on for ever; those overwritten are told by `floor`."""

    def __init__(self, max_tokens: int) -> None:
        self._max = max(max_tokens, 4 * GRAM)
        self._ids = array("i")
        self._before = array("q")  # the place before in the same bucket; 0 is none
        self._last = array("q", bytes(8 * NUM_BUCKETS))
        self._known: dict[int, int] = {}  # beginnings of prompts → where written, oldest first
        self._end = 1  # of what was written

    @property
    def num_bytes(self) -> int:
        return 8 * NUM_BUCKETS + TOKEN_BYTES * len(self._ids)

    @property
    def floor(self) -> int:
        """The first place that is still there."""
        return max(1, self._end - self._max)

    def at(self, place: int) -> int:
        """The id there; NO_ID where there is none."""
        if not self.floor <= place < self._end:
            return NO_ID
        return self._ids[(place - 1) % self._max]

    def add_prompt(self, ids: Many[int]) -> None:
        """A prompt, but for what an earlier one began with: chats come again and grow."""
        recent, key, new = ids[-WINDOW:], 0, 0
        for start in range(0, len(recent) - BLOCK + 1, BLOCK):
            key = hash((key, *recent[start : start + BLOCK]))
            if new == start and self._known.get(key, 0) >= self.floor:
                new = start + BLOCK
            else:
                self._known.pop(key, None)
                self._known[key] = self._end
        while len(self._known) * BLOCK > self._max:
            del self._known[next(iter(self._known))]
        self.add(recent[max(0, new - MAX_MATCH) :] if new < len(recent) else ())

    def add(self, ids: Many[int]) -> None:
        """A text."""
        if len(ids) <= GRAM:
            return
        last, end, most = self._last, self._end, self._max
        first = second = third = NO_ID
        for number, token in enumerate((NO_ID, *ids)):
            before = 0
            if number > GRAM:  # the ids before it are entered, now that something follows them
                bucket = _bucket(first, second, third)
                before, last[bucket] = last[bucket], end
            if end <= most:
                self._ids.append(token)
                self._before.append(before)
            else:
                at = (end - 1) % most
                self._ids[at], self._before[at] = token, before
            first, second, third = second, third, token
            end += 1
        self._end = end

    def places(self, tail: Many[int]) -> list[tuple[int, int]]:
        """(the place behind, ids that match) of texts that read as these ids end, newest first."""
        if len(tail) < GRAM:
            return []
        found, place = list[tuple[int, int]](), self._last[_bucket(*tail[-GRAM:])]
        for _ in range(MAX_STEPS):
            if place < self.floor or len(found) == MAX_PLACES:
                break
            length = self._match_len(place, tail)
            if length >= GRAM:
                found.append((place, length))
            place = self._before[(place - 1) % self._max]
        return found

    def _match_len(self, place: int, tail: Many[int]) -> int:
        ids, size, at = self._ids, self._max, place - 2
        length, most = 0, min(MAX_MATCH, len(tail), place - self.floor)
        while length < most and ids[(at - length) % size] == tail[-1 - length]:
            length += 1
        return length


def _bucket(first: int, second: int, third: int) -> int:
    return (first * 0x9E3779B1 ^ second * 0x85EBCA6B ^ third * 0xC2B2AE35) % NUM_BUCKETS


class SuffixStore:
    """The logs of all scopes within so many bytes: who wrote least recently goes first."""

    def __init__(self, max_bytes: int, *, is_shared: bool) -> None:
        """is_shared: what has no scope is one of its own, and not left out."""
        self._max_bytes = max_bytes
        self._is_shared = is_shared
        self._logs: OrderedDict[tuple[str, str], SuffixLog] = OrderedDict()

    def follow(self, request: Request) -> "SuffixDrafter | None":
        """A drafter, where the request has a scope."""
        scope = request.tenant, request.cache_salt
        if not any(scope) and not self._is_shared:
            return None
        log = self._logs.get(scope)
        if log is None:
            room = self._max_bytes // SCOPE_SHARE - 8 * NUM_BUCKETS
            log = self._logs[scope] = SuffixLog(room // TOKEN_BYTES)
        drafter = SuffixDrafter(log, request.prompt_ids)
        log.add_prompt(request.prompt_ids)
        self._logs.move_to_end(scope)
        while len(self._logs) > 1 and sum(log.num_bytes for log in self._logs.values()) > (
            self._max_bytes
        ):
            self._logs.popitem(last=False)
        return drafter


@dataclass(slots=True)
class _Branch:
    """A token that comes next at some of the places."""

    token: int
    parent: int  # a branch before; itself where it comes first
    places: list[tuple[int, int]]  # behind the token; and ids that match before
    share: float  # of its parent's places
    depth: int


class SuffixDrafter:
    """A Drafter that reads on in other texts."""

    def __init__(self, log: SuffixLog, prompt_ids: Many[int]) -> None:
        self._log = log
        self._text = list(prompt_ids[-MAX_MATCH:])  # and all that came since
        self._along: dict[int, int] = {}  # places that the text went along with: ids that match

    def extend(self, ids: Many[int]) -> None:
        for token in ids:
            self._along = {
                place + 1: length + 1
                for place, length in self._along.items()
                if self._log.at(place) == token
            }
        self._text += ids

    def propose(self, max_tokens: int) -> Guess:
        if max_tokens < 1:
            return NO_GUESS
        found = dict(self._log.places(self._text[-MAX_MATCH:])) | self._along
        if not found:
            return NO_GUESS
        longest = max(found.values())
        likely = sorted(found.items(), key=lambda each: (-each[1], -each[0]))[:MAX_PLACES]
        self._along = dict(likely)
        return self._tree([each for each in likely if 2 * each[1] >= longest], max_tokens)

    def end(self) -> None:
        """The text is over: it is kept for others."""
        self._log.add(self._text)

    def _tree(self, places: list[tuple[int, int]], max_depth: int) -> Guess:
        """Of these places, those that read most alike first."""
        branches = list(self._next(places, -1, 0))
        for number, branch in enumerate(branches):
            if branch.depth < max_depth and len(branches) < MAX_NODES:
                branches += self._next(branch.places, number, branch.depth)
        branches = branches[:MAX_NODES]
        return Guess(
            tuple(branch.token for branch in branches),
            tuple(
                counted_edge(
                    branch.places[0][1] + branch.depth - 1, len(branch.places), branch.share
                )
                for branch in branches
            ),
            tuple(n if b.parent < 0 else b.parent for n, b in enumerate(branches)),
        )

    def _next(self, places: list[tuple[int, int]], parent: int, depth: int) -> list[_Branch]:
        """What comes at these places, by token."""
        by_token: dict[int, list[tuple[int, int]]] = {}
        for place, length in places:
            token = self._log.at(place)
            if token != NO_ID:
                by_token.setdefault(token, []).append((place + 1, length))
        return [
            _Branch(token, parent, behind, len(behind) / len(places), depth + 1)
            for token, behind in by_token.items()
        ]
