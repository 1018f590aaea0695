"""Steps of a draft on a device, one behind another: each is fed what the one before draws while
that is not known here yet, so that the device does not wait for the host in between.

What is fed so stands behind its parent's first guess, whatever that will be; it is a node of the
tree once the guess is.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch

from outrider.actors.errors import PoolExhausted
from outrider.actors.runner.runner import Runner
from outrider.actors.trees.tree import TreeNode
from outrider.actors.workers.ahead.growing_tree import Growth, Hungry, chunk_of
from outrider.actors.workers.ahead.tree_sampler import Drafting, TreeSampler

# How many steps more to feed behind each of the nodes that a step feeds, by id.
Deepen = Callable[[Many[Hungry]], dict[int, int]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """One of the steps."""

    drafting: Drafting
    rows: list[int]  # of the draws before it that it was fed with

    def settle(self, before: "QueuedStep") -> None:
        """What the step before drew is known and in the tree: that is what this one was fed."""
        fed, tokens = self.drafting.fed, before.drafting.drawing.fetch().token
        for at, (row, (expected, growing)) in enumerate(zip(self.rows, fed, strict=True)):
            parent, _ = before.drafting.fed[row]
            expected.parent = parent
            node = parent.children.get(int(tokens[row]))
            if node is None or node.place >= 0:
                continue  # there was no room for it, or it had been fed: the row is nobody's
            node.place = expected.place
            growing.fed[node.place] = node
            growing.hungry = [each for each in growing.hungry if each is not node]
            fed[at] = node, growing

    def give_up(self) -> None:
        """What was drawn before it will not be known: its rows are nobody's."""
        for node, growing in self.drafting.fed:
            if not growing.has(node):
                node.parent = growing.tree.root


def queue_steps(
    runner: Runner,
    sampler: TreeSampler,
    growths: list[Growth],
    logits: torch.Tensor,
    depths: dict[int, int],
) -> list[QueuedStep]:
    """The step that fed these, and so many behind it. depths: by the id of a node of it."""
    steps, rows = list[QueuedStep](), list[int]()
    _reserve(runner, growths, depths)
    while True:
        steps.append(QueuedStep(sampler.begin(growths, logits), rows))
        rows, growths = _deeper(growths, depths)
        if not growths:
            return steps
        tokens = taken(steps[-1].drafting.drawing.tokens, rows)
        try:
            logits = runner.forward([growth.chunk for growth in growths], tokens)
        except Exception:
            log.exception("a step of the draft behind another failed")
            return steps
        for growth in growths:
            growth.growing.feed(growth.nodes)


def _reserve(runner: Runner, growths: list[Growth], depths: dict[int, int]) -> None:
    """Pages for all of them at once, or no step behind: new ones on the way would be waited for."""
    wanted = [
        (growth.chunk.cache, sum(depths.get(id(node), 0) for node in growth.nodes))
        for growth in growths
    ]
    try:
        runner.pool.reserve(wanted)
    except PoolExhausted:
        depths.clear()


def _deeper(growths: list[Growth], depths: dict[int, int]) -> tuple[list[int], list[Growth]]:
    """What the next step feeds, and the rows of this one's draws that it is fed with."""
    rows, deeper, row = list[int](), list[Growth](), 0
    for growth in growths:
        nodes = list[TreeNode]()
        for node in growth.nodes:
            if depth := depths.pop(id(node), 0):
                expected = TreeNode(0, node, node.position + 1)
                depths[id(expected)] = depth - 1
                nodes.append(expected)
                rows.append(row)
            row += 1
        if nodes:
            chunk = chunk_of(growth.growing, nodes)
            deeper.append(Growth(growth.growing, chunk, nodes))
    return rows, deeper


def taken(tokens: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """These rows, without anything of the host's in between."""
    if len(rows) == len(tokens):
        return tokens
    runs = list[list[int]]()
    for row in rows:
        if runs and row == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([row, row + 1])
    return torch.cat([tokens[first:end] for first, end in runs])
