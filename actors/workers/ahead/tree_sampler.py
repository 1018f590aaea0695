"""What the draft draws behind nodes that were fed: guesses of the target's token, best first."""

from collections.abc import Callable
from collections.abc import Sequence as Many

import numpy as np
import torch

from outrider.actors.trees.tree import TreeNode
from outrider.actors.workers.ahead.growing_tree import Growth, children_of, path_of
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

    def draw(self, growths: Many[Growth], logits: torch.Tensor) -> dict[int, list[TreeNode]]:
        """New nodes that are worth offering, by sequence. logits: [nodes that were fed, V]."""
        fed = [(growth.growing, node) for growth in growths for node in growth.nodes]
        if not fed:
            return {}
        for growth in growths:
            sequence = growth.growing.sequence
            if growth.nodes and sequence.processor is not None:
                sequence.processor.take(sequence.ids)
        edited = [
            (growing.sequence.processor, (path_of(node), ()))
            if growing.sequence.processor
            else (None, NOT_DRAFTED)
            for growing, node in fed
        ]
        draws = self._backend.draw(
            DrawBatch(
                logits,
                self._sampling(tuple(growing.sequence.row.seq_id for growing, _ in fed)),
                np.array([node.position + 1 for _, node in fed], np.int32),
                vocab_size=self._num_ids,
                top_m=TOP_M if any(growing.is_drawn for growing, _ in fed) else 1,
                num_guesses=max(growing.asked.num_guesses for growing, _ in fed),
                edits=logits_edits(edited, logits.shape[1], self._grammars.filler, is_last=True),
            )
        )
        found = zip(fed, draws.guesses.tolist(), draws.prob.tolist(), strict=True)
        children: dict[int, list[TreeNode]] = {}
        for at, ((growing, node), guesses, prob) in enumerate(found):
            if draws.error[at]:
                continue
            node.prob = prob
            behind = children.setdefault(growing.sequence.row.seq_id, [])
            drawn = int(draws.token[at]) if growing.is_drawn else -1
            node.guesses = [token for token in guesses if token not in (-1, drawn)]
            if growing.is_drawn:
                node.guesses.insert(0, drawn)
            behind += children_of(growing, node)
            if child := node.children.get(drawn):
                child.row = sparse_row(draws, at)
            elif growing.is_drawn:  # there was no room for it
                node.guesses.clear()
        return children
