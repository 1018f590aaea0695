"""Before a worker serves, everything that is compiled at its first use is used once: the first
request would wait for it, and its times would be taken for those of any round.
"""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.kernels.contract.trees import TreeBackend, Trees
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.torch_backend import backend_for

ROWS, PRODUCTS_S = 288, 1.0  # of a usual forward; seconds for products by number of rows
SMALL = LlamaConfig(
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=64,
)
CAPTURED = (1, 2, 4, 8, 16, 32, 64)  # tokens of one text, or texts, that a device has ready


def warm_for_all() -> None:
    """Use every kernel of the CPU once, with a small model that is made up. A process whose forks
    load models does it for all of them.
    """
    runner = Runner(from_model(LlamaForCausalLM(SMALL)), num_tokens=64, page_size=16)
    warm_up(runner, backend_for(torch.device("cpu")))


def warm_up(runner: Runner, backend: TreeBackend[torch.Tensor]) -> None:
    """Forwards of a text and of a tree, verdicts on both, and a draw with a filter, over logits of
    the model's own kind.
    """
    if runner.loaded.device == "cpu":
        from outrider.actors.runner.cpu.linear import prepare  # numba comes with it

        prepare(runner.loaded.model, ROWS, PRODUCTS_S)
    cache = runner.open()
    logits = runner.forward([Segment(cache, [0], 1)])
    of_tree = runner.forward([Segment(cache, [0, 0, 1], 3, [-1, -1], root=2)])
    runner.close(cache)
    position, none = np.ones(1, np.int32), np.zeros(0, np.int32)
    sampling = SamplingMetadata.of(rule=AcceptanceRule.COUPLED, top_p=0.9)
    drafts = SpecDecodeMetadata(np.zeros(1, np.int32), position, none, none.astype(np.uint8))
    backend.verify(VerifyBatch(logits, drafts, sampling))
    siblings = np.arange(2, dtype=np.int32)
    tree = Trees(
        num_nodes=np.full(1, 2, np.int32),
        position=position + 1,
        tokens=siblings,
        parents=siblings,
        kind=np.full(3, DraftKind.ONE_HOT, np.uint8),
        support_ids=np.zeros((3, 0), np.int32),
        support_probs=np.zeros((3, 0), np.float32),
    )
    backend.verify_trees(of_tree, tree, sampling)
    batch = DrawBatch(logits, sampling, position, vocab_size=runner.vocab_size, num_guesses=1)
    backend.draw(batch)


def capture_steps(runner: Runner) -> None:
    """What a device replays is captured the second time that a step of its size is asked for, over
    the pool that it has from then on.
    """
    if runner.model.on_device is None:
        return
    shapes = [(1, count) for count in CAPTURED if count < runner.context_len]
    for rows, count in (*shapes, *((rows, 1) for rows in CAPTURED[1:])):
        if rows * -(-count // runner.pool.page_size) <= runner.num_free_pages:
            for _ in range(2):
                caches = [runner.open() for _ in range(rows)]
                runner.forward([Segment(cache, [0] * count, count) for cache in caches])
                for cache in caches:
                    runner.close(cache)
