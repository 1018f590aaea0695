"""What the draft draws behind nodes that were fed: guesses of the target's token, best first."""

from collections.abc import Callable
from collections.abc import Sequence as Many
from itertools import takewhile

import numpy as np
import torch

from outrider.actors.trees.tree import TreeNode
from outrider.actors.workers.ahead.growing_tree import (
    Growth,
    children_of,
    grown_at_once,
    path_of,
)
from outrider.actors.workers.logits.logits_processor import NOT_DRAFTED, logits_edits
from outrider.actors.workers.logits.worker_grammars import WorkerGrammars
from outrider.actors.workers.sparse_row import TOP_M, sparse_row
from outrider.kernels.contract.trees import TreeBackend
from outrider.kernels.contract.verdict import DrawBatch, SamplingMetadata

SamplingOf = Callable[[tuple[int, ...]], SamplingMetadata]  # by sequences, row by row


class TreeSampler:
    """Over the logits of one step."""

    def __init__(
        self,
        backend: TreeBackend[torch.Tensor],
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
        """New nodes that are worth offering, by sequence.

        Shapes: logits [nodes that were fed, V]; further [growths, places, V], see PooledRunner.
        """
        fed = [(growth.growing, node) for growth in growths for node in growth.nodes]
        if not fed:
            return {}
        for growth in growths:
            sequence = growth.growing.sequence
            if growth.nodes and sequence.processor is not None:
                sequence.processor.take(sequence.ids)
        places = [(growing, node.position + 1, node) for growing, node in fed]
        at_once = dict[int, int]()  # first row of its further places, by sequence
        if further is not None:
            for growth, rows in zip(growths, further, strict=True):
                if is_at_once(growth):
                    growing, [root] = growth.growing, growth.nodes
                    at_once[growing.sequence.row.seq_id] = len(places)
                    places += [(growing, root.position + 2 + at, root) for at in range(len(rows))]
                    logits = torch.cat((logits, rows))
        edited = [
            (growing.sequence.processor, (path_of(node), ()))
            if growing.sequence.processor
            else (None, NOT_DRAFTED)
            for growing, _, node in places
        ]
        draws = self._backend.draw(
            DrawBatch(
                logits,
                self._sampling(tuple(growing.sequence.row.seq_id for growing, _, _ in places)),
                np.array([position for _, position, _ in places], np.int32),
                vocab_size=self._num_ids,
                top_m=TOP_M if any(growing.is_drawn for growing, _ in fed) else 1,
                num_guesses=max(growing.asked.num_guesses for growing, _ in fed),
                edits=logits_edits(edited, logits.shape[1], self._grammars.filler, is_last=True),
            )
        )
        guessed, probs = draws.guesses.tolist(), draws.prob.tolist()
        children: dict[int, list[TreeNode]] = {}
        for at, (growing, node) in enumerate(fed):
            if draws.error[at]:
                continue
            seq_id = growing.sequence.row.seq_id
            behind = children.setdefault(seq_id, [])
            if further is not None and (start := at_once.get(seq_id)) is not None:
                rows = [at, *range(start, start + further.shape[1])]
                sound = list(takewhile(lambda row: not draws.error[row], rows))
                known = [
                    (probs[row], [each for each in guessed[row] if each >= 0]) for row in sound
                ]
                behind += grown_at_once(growing, known)
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


def is_at_once(growth: Growth) -> bool:
    """Whether all of its tree can be grown in this step, if logits further on are known: nothing
    is drawn for good, or edited by what is guessed before.
    """
    growing = growth.growing
    is_root = growth.nodes == [growing.tree.root]
    return is_root and not growing.is_drawn and growing.sequence.processor is None
