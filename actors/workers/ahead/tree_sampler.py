"""What the draft draws behind nodes that were fed: guesses of the target's token, best first."""

from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from itertools import takewhile

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

    fed: list[Hungry]  # a row each
    told: dict[int, range]  # rows of places further on, by sequence
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
        self, growths: Many[Growth], logits: torch.Tensor, further: torch.Tensor | None = None
    ) -> dict[int, list[TreeNode]]:
        """New nodes that are worth offering, by sequence. Shapes: as `begin` has them."""
        return self.take(self.begin(growths, logits, further))

    def begin(
        self, growths: Many[Growth], logits: torch.Tensor, further: torch.Tensor | None = None
    ) -> Drafting:
        """Draw, and do not wait for it.

        Shapes: logits [nodes that were fed, V]; further [growths, places, V], see PooledRunner.
        """
        fed = [(node, growth.growing) for growth in growths for node in growth.nodes]
        for growth in growths:
            sequence = growth.growing.sequence
            if growth.nodes and sequence.processor is not None:
                sequence.processor.take(sequence.ids)
        places = [(growing, node, node.position + 1) for node, growing in fed]
        told = dict[int, range]()  # rows of places further on, by sequence
        if further is not None:
            known = [number for number, growth in enumerate(growths) if is_at_once(growth)]
            for growing, [root] in ((growths[each].growing, growths[each].nodes) for each in known):
                start, end = len(places), len(places) + further.shape[1]
                told[growing.sequence.row.seq_id] = range(start, end)
                places += [(growing, root, root.position + 2 + at) for at in range(end - start)]
            logits = torch.cat((logits, further[known].flatten(0, 1)))
        return Drafting(fed, told, self._draws(places, logits))

    def take(self, drafting: Drafting) -> dict[int, list[TreeNode]]:
        """Wait for it: new nodes that are worth offering, by sequence."""
        fed, told, draws = drafting.fed, drafting.told, drafting.drawing.fetch()
        guessed, probs = draws.guesses.tolist(), draws.prob.tolist()
        children: dict[int, list[TreeNode]] = {}
        for at, (node, growing) in enumerate(fed):
            if draws.error[at] or not growing.has(node):
                continue
            seq_id = growing.sequence.row.seq_id
            behind = children.setdefault(seq_id, [])
            if rows := told.get(seq_id):
                sound = takewhile(lambda row: not draws.error[row], (at, *rows))
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


def is_at_once(growth: Growth) -> bool:
    """Whether all of its tree can be grown in this step, if logits further on are known: nothing
    is drawn for good, or edited by what is guessed before.
    """
    growing = growth.growing
    is_root = growth.nodes == [growing.tree.root]
    return is_root and not growing.is_drawn and growing.sequence.processor is None
