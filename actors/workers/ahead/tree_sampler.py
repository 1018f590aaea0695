"""What the draft draws behind nodes that were fed: guesses of the target's token, best first."""

from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from itertools import accumulate, takewhile

import numpy as np
import torch

from outrider.actors.trees.tree import TreeNode
from outrider.actors.workers.ahead.growing_tree import (
    GrowingTree,
    Growth,
    Hungry,
    children_of,
    grown_at_once,
    path_of,
)
from outrider.actors.workers.logits.logits_processor import NOT_DRAFTED, logits_edits
from outrider.actors.workers.logits.worker_grammars import WorkerGrammars
from outrider.actors.workers.sparse_row import TOP_M, sparse_row
from outrider.kernels.contract.verdict import DrawBatch, SamplingMetadata
from outrider.kernels.torch_backend import Drawing, TensorBackend

# A tree, a node of it behind which something is drawn, and the position of what is drawn.
Place = tuple[GrowingTree, TreeNode, int]
SamplingOf = Callable[[tuple[int, ...]], SamplingMetadata]  # by sequences, row by row


@dataclass(frozen=True, slots=True)
class Drafting:
    """What is drawn behind the nodes that a step fed."""

    fed: list[Hungry]
    rows: list[range]  # of the draws, of each: one, or one for each place behind it
    drawing: Drawing


class TreeSampler:
    """Over the logits of one step."""

    def __init__(
        self,
        backend: TensorBackend,
        num_ids: int,
        sampling: SamplingOf,
        grammars: WorkerGrammars,
    ) -> None:
        """num_ids: rows of logits beyond are padding."""
        self._backend = backend
        self._num_ids = num_ids
        self._sampling = sampling
        self._grammars = grammars

    def draw(
        self, growths: Many[Growth], logits: torch.Tensor, by_place: torch.Tensor | None = None
    ) -> dict[int, list[TreeNode]]:
        """New nodes that are worth offering, by sequence. Shapes: as `begin` has them."""
        return self.take(self.begin(growths, logits, by_place))

    def begin(
        self, growths: Many[Growth], logits: torch.Tensor, by_place: torch.Tensor | None = None
    ) -> Drafting:
        """Draw, and do not wait for it.

        Shapes: logits [nodes that were fed, V]; by_place [growths, places, V], see PooledRunner.
        """
        fed = [(node, growth.growing) for growth in growths for node in growth.nodes]
        for growth in growths:
            sequence = growth.growing.sequence
            if growth.nodes and sequence.processor is not None:
                sequence.processor.take(sequence.ids)
        sizes = [1] * len(fed)
        if by_place is not None:
            logits, sizes = _at_once(growths, logits, by_place)
        ends = list(accumulate(sizes))
        rows = [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        places = [
            (growing, node, node.position + 1 + further)
            for (node, growing), size in zip(fed, sizes, strict=True)
            for further in range(size)
        ]
        return Drafting(fed, rows, self._draws(places, logits))

    def take(self, drafting: Drafting) -> dict[int, list[TreeNode]]:
        """Wait for it: new nodes that are worth offering, by sequence."""
        draws = drafting.drawing.fetch()
        guessed, probs = draws.guesses.tolist(), draws.prob.tolist()
        children: dict[int, list[TreeNode]] = {}
        for (node, growing), rows in zip(drafting.fed, drafting.rows, strict=True):
            at = rows.start
            if draws.error[at] or not growing.has(node):
                continue
            behind = children.setdefault(growing.sequence.row.seq_id, [])
            if len(rows) > 1:
                sound = takewhile(lambda row: not draws.error[row], rows)
                guesses = [
                    (probs[row], [each for each in guessed[row] if each >= 0]) for row in sound
                ]
                behind += grown_at_once(growing, guesses)
                continue
            node.prob = probs[at]
            drawn = int(draws.token[at]) if growing.is_drawn else -1
            node.guesses = [token for token in guessed[at] if token not in (-1, drawn)]
            if growing.is_drawn:
                node.guesses.insert(0, drawn)
            behind += children_of(growing, node)
            if child := node.children.get(drawn):
                child.row = sparse_row(draws, at)
            elif growing.is_drawn:  # there was no room for it
                node.guesses.clear()
        return children

    def _draws(self, places: Many[Place], logits: torch.Tensor) -> Drawing:
        """Shapes: logits [places, V]."""
        edited = [
            (growing.sequence.processor, (path_of(node), ()))
            if growing.sequence.processor
            else (None, NOT_DRAFTED)
            for growing, node, _ in places
        ]
        return self._backend.begin_draw(
            DrawBatch(
                logits,
                self._sampling(tuple(growing.sequence.row.seq_id for growing, _, _ in places)),
                np.array([position for _, _, position in places], np.int32),
                vocab_size=self._num_ids,
                top_m=TOP_M if any(growing.is_drawn for growing, _, _ in places) else 1,
                num_guesses=max(growing.asked.num_guesses for growing, _, _ in places),
                edits=logits_edits(edited, logits.shape[1], self._grammars.filler, is_last=True),
            )
        )


def _at_once(
    growths: Many[Growth], logits: torch.Tensor, by_place: torch.Tensor
) -> tuple[torch.Tensor, list[int]]:
    """The logits of all places behind a root whose whole tree is grown, of one behind each other
    node; and how many behind each.
    """
    found, sizes, at = list[torch.Tensor](), list[int](), 0
    for growth, own in zip(growths, by_place, strict=True):
        end = at + len(growth.nodes)
        if is_at_once(growth):
            found.append(own)
            sizes.append(len(own))
        else:
            found.append(logits[at:end])
            sizes += [1] * len(growth.nodes)
        at = end
    return found[0] if len(found) == 1 else torch.cat(found), sizes


def is_at_once(growth: Growth) -> bool:
    """Whether all of its tree can be grown in this step, if logits by place are known: nothing
    is drawn for good, or edited by what is guessed before.
    """
    growing = growth.growing
    is_root = growth.nodes == [growing.tree.root]
    return is_root and not growing.is_drawn and growing.sequence.processor is None
