"""What of several sequences' trees is judged in one forward: whatever is worth its place.

The price decides node by node; where a request gave its own k, or tokens are drawn to be accepted
or rejected, it is a chain.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from outrider.actors.lookahead.price import Price
from outrider.actors.trees.tree import TreeNode, likeliest

FLOOR = 0.005  # the least chance that is looked at: what a price may come to is more


class Candidate(NamedTuple):
    """One sequence's tree."""

    root: TreeNode
    k: int | None  # tokens of its chain; None where the price decides node by node
    num_nodes: int  # at most
    depth: int  # at most
    is_drawn: bool  # its tokens are drawn, and accepted or rejected by chance


def worth_judging(
    candidates: Sequence[Candidate], price: Price | None, num_tokens: int
) -> tuple[list[list[TreeNode]], float]:
    """Of each the nodes that are worth their place in a forward that has so many tokens already,
    parents first; and what those are worth in tokens whose number was left to the price.
    """
    chosen: list[list[TreeNode]] = [
        [] if each.k is None else chain(each.root, min(each.k, each.depth), each.is_drawn)
        for each in candidates
    ]
    free = [number for number, each in enumerate(candidates) if each.k is None]
    if price is None or not free:
        return chosen, 0.0
    trees = [
        (candidates[number].root, candidates[number].num_nodes, candidates[number].depth)
        for number in free
    ]
    num_tokens += sum(map(len, chosen))
    room = price.room(num_tokens) if price.rate else None
    floor = max(FLOOR, price.least(num_tokens))
    found = list(islice(likeliest(trees, floor), room))
    size, worth = price.worth([node.chance for _, node in found], num_tokens)
    for at, node in found[:size]:
        chosen[free[at]].append(node)
    return chosen, worth


def chain(root: TreeNode, length: int, is_drawn: bool) -> list[TreeNode]:
    """The likeliest child, its likeliest, and so on; or what was drawn."""
    nodes, node = list[TreeNode](), root
    while len(nodes) < length:
        behind = [each for each in node.children.values() if each.row is not None or not is_drawn]
        if not behind:
            break
        node = max(behind, key=lambda child: child.chance)
        nodes.append(node)
    return nodes


def drawn_length(price: float, chance: float, most: int) -> int:
    """How long a chain of drawn tokens is: as far as each is worth its place, of which all have one
    chance. Nothing that was drawn for it may decide this.
    """
    return sum(chance**length > price for length in range(1, most + 1))
