"""What a drafter of the coordinator's offers: tokens, and what it knows of each."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

from outrider.actors.trees.chances import Edge, copied_edge


@dataclass(frozen=True, slots=True)
class Guess:
    """A chain, or a tree; none where there is nothing to go by."""

    tokens: tuple[int, ...] = ()
    edges: tuple[Edge, ...] = ()  # of each token, see trees/chances.py
    parents: tuple[int, ...] = ()  # see transport/draft_tree.py


NO_GUESS = Guess()


def copied(tokens: Many[int], agreed: int) -> Guess:
    """A chain behind so many ids that the text and what it is copied from have in common."""
    edges = (copied_edge(num) for num in range(agreed, agreed + len(tokens)))
    return Guess(tuple(tokens), tuple(edges))
