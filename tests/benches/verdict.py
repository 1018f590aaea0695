"""What a verdict costs on this machine, one core, everything included.

    python tests/benches/verdict.py

Prints, for each rule, the median milliseconds of one `verify` call: a round of the demo pair
(1 sequence, 5 rows, 4096 ids; proposals built anew, as a worker does) and a full vocabulary
(4 sequences, 6 rows each, 152064 ids). Every drafted token is accepted, so all rows count.
"""

import time
from collections.abc import Callable

import numpy as np

from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)
from outrider.kernels.cpu.backend import CpuBackend


def median_ms(call: Callable[[], object], seconds: float = 1.0) -> float:
    """Median wall time of a call, over about this many seconds."""
    call()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def round_of(
    backend: CpuBackend,
    rule: AcceptanceRule,
    batch: int,
    drafted: int,
    width: int,
    **filters: float,
) -> Callable[[], object]:
    """A call that verifies `drafted` good tokens for each of `batch` sequences."""
    rng = np.random.default_rng(0)
    rows = batch * (drafted + 1)
    logits = rng.normal(0, 3, (rows, width)).astype(np.float32)
    sampling = SamplingMetadata.of(rule=rule, seed=list(range(batch)), **filters)
    position = np.tile(np.arange(drafted + 1, dtype=np.int32), batch)
    each = SamplingMetadata.of(
        rule=rule, seed=[b for b in range(batch) for _ in range(drafted + 1)], **filters
    )
    drawn = backend.draw(DrawBatch(logits, each, position, vocab_size=width))
    keep = np.arange(rows).reshape(batch, -1)[:, :-1].ravel()
    tokens, kind = drawn.token[keep], np.full(len(keep), DraftKind.SPARSE, np.uint8)
    # A draft row that promises less than the target gives is always accepted.
    support = (drawn.support_ids[keep], drawn.support_probs[keep] * np.float32(1e-3))
    counts, start = np.full(batch, drafted, np.int32), np.zeros(batch, np.int32)

    def call() -> Verdicts:
        drafts = SpecDecodeMetadata(counts, start, tokens, kind, *support)
        return backend.verify(VerifyBatch(logits, drafts, sampling))

    accepted = call().num_accepted
    assert (accepted == drafted).all(), accepted
    return call


def main() -> None:
    start = time.perf_counter()
    backend = CpuBackend()
    print(f"load or compile: {time.perf_counter() - start:.2f} s")
    print(f"{'':34} {'1 x 5 x 4096':>14} {'4 x 6 x 152064':>16}")
    for name, rule, filters in (
        ("greedy", AcceptanceRule.GREEDY, {}),
        ("coupled, temperature 1", AcceptanceRule.COUPLED, {}),
        ("coupled, temperature 0.7", AcceptanceRule.COUPLED, {"temperature": 0.7}),
        ("coupled, top-k 50, top-p 0.9", AcceptanceRule.COUPLED, {"top_k": 50, "top_p": 0.9}),
        ("coupled, top-p 0.9", AcceptanceRule.COUPLED, {"top_p": 0.9}),
        ("rejection, temperature 1", AcceptanceRule.REJECTION, {}),
        ("rejection, top-p 0.9", AcceptanceRule.REJECTION, {"top_p": 0.9}),
    ):
        small = median_ms(round_of(backend, rule, 1, 4, 4096, **filters))
        large = median_ms(round_of(backend, rule, 4, 5, 152_064, **filters))
        print(f"{name:34} {small:11.3f} ms {large:13.2f} ms")


if __name__ == "__main__":
    main()
