"""How often what a drafter offers comes true, by what it said of it: learned, from a prior on.

An edge is all that was said of a token behind its parent, as a small number. A table counts, for
each drafter and edge, how often such a token was what the target drew there, and forgets slowly.
Whatever stood in a tree at a committed position counts, judged or not.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Protocol

from outrider.actors.lookahead.round_report import DRAFT, MODELS

Edge = int

NUM_GUESSES, NUM_FIRST = 16, 4  # of a draft's at one place, its own draw first; where few pay
RANKS = (1, 2, 3, 4, 6, 8, 12)  # where the next bin of ranks begins
NUM_RANKS = len(RANKS) + 1
BOUNDS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)  # of the probability of the first
SAMPLED = 128  # added to edges of rows that are sampled: noise that is shared is no certainty
PRIVATE = 256  # added in rejection mode, where the draft's noise is not the target's
DRAWN = PRIVATE  # the token that was drawn there: one edge for all, which tells nothing of it
PRIOR_WEIGHT = 8.0  # verdicts that a prior is worth
MEMORY = 512.0  # of an edge: that many count, older ones ever less
UNKNOWN = 0.5  # of what was drawn, or is copied where nothing agrees yet
# Of a drafter's first token: a client knows what it asks for, other texts know less than one's own.
DOUBTED = {"prediction": 0.2, "suffix": 0.8}
AGREED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # where the next bin of agreement begins
COPIED = 16  # edges of copies, by agreement
SHARES = (0.3, 0.6, 1.0)  # where the next bin of shares begins
# How much of a copy's chance is believed: of a plain copy, which has no share; by share; where all
# places agree, one or several.
OF_SHARE = (1.0, 0.15, 0.45, 0.8, 0.9, 1.0)


NodeCounts = Counter[tuple[str, str]]  # nodes by drafter, and "offered", "judged" or "accepted"


class Offered(Protocol):
    """A node, as far as it matters here."""

    token: int
    edges: dict[str, Edge]
    is_judged: bool


def draft_edge(prob: float, rank: int, mode: int = 0) -> Edge:
    """Of a draft's guess: the probability of its first, and the guess's own rank. `mode` is 0
    where rows are greedy, SAMPLED or PRIVATE.
    """
    if mode == PRIVATE and not rank:
        return DRAWN
    return bisect_right(BOUNDS, prob) * NUM_RANKS + bisect_right(RANKS, rank) + mode


def copied_edge(agreed: int) -> Edge:
    """Of a token that is copied from a place, or out of a prediction, which has so many ids before
    it in common with the text.
    """
    return bisect_right(AGREED, agreed)


def counted_edge(agreed: int, num_places: int, share: float) -> Edge:
    """Likewise of several places, of which so many go on with it: this share of those that read
    alike before it.
    """
    level = 1 + bisect_right(SHARES, share) + (share == 1 and num_places > 1)
    return COPIED * level + copied_edge(agreed)


@cache
def _prior(drafter: str, edge: Edge) -> float:
    """The draft at its word, the rest falling with the rank; copies by what agrees."""
    if drafter not in MODELS:
        level, at = divmod(edge, COPIED)
        believed = 1 - DOUBTED.get(drafter, UNKNOWN) / (1 + (0, *AGREED)[at] / 4)
        return believed * OF_SHARE[level]
    if edge == DRAWN:
        return UNKNOWN
    level, rank = divmod(edge % SAMPLED, NUM_RANKS)
    low, high = (0.0, *BOUNDS)[level], (*BOUNDS, 1.0)[level]
    first = (low + high) / 2
    return first if rank == 0 else (1 - first) / (RANKS[rank - 1] + 1) ** 1.5


class Chances:
    """One table."""

    def __init__(self, model: str = DRAFT) -> None:
        """`model` is the drafter that grows trees, of MODELS."""
        self.model = model
        self._counts: dict[tuple[str, Edge], tuple[float, float]] = {}  # hits, seen
        self._values: dict[tuple[str, Edge], float] = {}
        self._hits = self._seen = 0.0  # of the draft's first guesses
        self.counts = NodeCounts()  # since somebody last took them

    def of(self, drafter: str, edge: Edge) -> float:
        """That such a token is the target's, if it comes to its parent."""
        value = self._values.get((drafter, edge))
        if value is None:
            value = self._values[drafter, edge] = _prior(drafter, edge)
        return value

    @property
    def late_guess(self) -> float:
        """Of the first guess beyond NUM_FIRST, where the draft is least sure."""
        return self.of(self.model, draft_edge(0.0, NUM_FIRST))

    @property
    def typical(self) -> float:
        """Of the draft's best guess at one place, whatever it says of it."""
        return (self._hits + PRIOR_WEIGHT / 2) / (self._seen + PRIOR_WEIGHT)

    def take_counts(self) -> NodeCounts:
        """And begin anew."""
        counts, self.counts = self.counts, NodeCounts()
        return counts

    def judge(self, nodes: Iterable[Offered]) -> None:
        """The target is at these."""
        for node in nodes:
            node.is_judged = True
            for drafter in node.edges:
                self.counts[drafter, "judged"] += 1

    def learn(self, offered: Iterable[Offered], token: int) -> None:
        """The target drew this token where these stood."""
        for node in offered:
            if node.edges.get(self.model, 1) % NUM_RANKS == 0:
                if self._seen >= MEMORY:
                    self._hits *= 1 - 1 / MEMORY
                    self._seen *= 1 - 1 / MEMORY
                self._hits, self._seen = self._hits + (node.token == token), self._seen + 1
            for key in node.edges.items():
                hits, seen = self._counts.get(key, (0.0, 0.0))
                if seen >= MEMORY:
                    hits, seen = hits * (1 - 1 / MEMORY), seen * (1 - 1 / MEMORY)
                hits, seen = self._counts[key] = hits + (node.token == token), seen + 1
                prior = PRIOR_WEIGHT * _prior(*key)
                self._values[key] = (hits + prior) / (seen + PRIOR_WEIGHT)
