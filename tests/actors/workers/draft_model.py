"""A draft of random weights in this process, and what it says plainly."""

import architectures
import numpy as np

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.rows import OpenRow, SamplingRow
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.sampling_metadata import sampling_metadata
from outrider.kernels.contract.verdict import DrawBatch
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import HostBackend

PROMPT = (3, 14, 15, 9, 26)


def open_row(seq_id=1, prompt=PROMPT, temperature=1.0, verification="coupled"):
    return OpenRow(
        seq_id=seq_id,
        prompt_ids=prompt,
        committed_ids=(),
        sampling=SamplingRow(temperature, 0, 1.0, 0.0, verification, seed=77, choice=0),
        max_len=200,
    )


def draft_worker(architecture="llama", num_tokens=2048):
    runner = Runner(from_model(architectures.build(architecture)), num_tokens=num_tokens)
    return DraftWorker(runner, HostBackend(CpuBackend()), Description(), runner.vocab_size)


class Description:
    role = "draft"


class Plain:
    """The draft model without any of it: one forward of the whole text."""

    def __init__(self, worker, row):
        self.worker, self.row = worker, row

    def after(self, ids):
        runner = self.worker.runner
        cache = runner.open()
        logits = runner.forward([Segment(cache, ids)])
        runner.close(cache)
        batch = DrawBatch(
            logits,
            sampling_metadata([self.row.sampling]),
            np.array([len(ids)], np.int32),
            vocab_size=runner.vocab_size,
            num_guesses=24,
        )
        return self.worker.backend.draw(batch)
