"""Before a worker serves, everything that is compiled at its first use is used once: the first
request would wait for it, and its times would be taken for those of any round.
"""

import numpy as np
import torch

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    Backend,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)

ROWS, PRODUCTS_S = 288, 1.0  # of a usual forward; seconds for products by number of rows


def warm_up(runner: Runner, backend: Backend[torch.Tensor]) -> None:
    """A forward, a verdict and a draw with a filter, over logits of the model's own kind."""
    if runner.loaded.device == "cpu":
        from outrider.actors.runner.cpu.linear import prepare  # numba comes with it

        prepare(runner.loaded.model, ROWS, PRODUCTS_S)
    cache = runner.open()
    logits = runner.forward([Segment(cache, [0], 1)])
    runner.close(cache)
    position, none = np.ones(1, np.int32), np.zeros(0, np.int32)
    sampling = SamplingMetadata.of(rule=AcceptanceRule.COUPLED, top_p=0.9)
    drafts = SpecDecodeMetadata(np.zeros(1, np.int32), position, none, none.astype(np.uint8))
    backend.verify(VerifyBatch(logits, drafts, sampling))
    batch = DrawBatch(logits, sampling, position, vocab_size=runner.vocab_size, num_guesses=1)
    backend.draw(batch)
