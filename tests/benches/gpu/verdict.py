"""What a verdict costs on this GPU, beside what the plain way costs.

    python tests/benches/gpu/verdict.py

For B sequences of 5 drafted tokens and V ids, bfloat16 logits, rejection at temperature 1 with
64 sparse draft probabilities: median microseconds of device time, and GB/s of logits read once,
beside the floor (reading the logits once: half of what copying them takes), beside softmax first
in plain torch, and beside the sequence that sampling libraries run: float32 probabilities written,
then a kernel over dense rows of both models. All in CUDA graphs; inputs rotate through more memory
than the L2 cache holds. Without a GPU it says so and prints no figure.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from ceilings import ROTATED_BYTES, median_us
from kernels.cuda.batches import run
from kernels.cuda.recording import recorded

from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.kernels import why_unusable

DRAFTED, TOP_M = 5, 64
BATCHES, WIDTHS = (1, 4, 16, 64), (32_000, 128_256, 151_936)


def ours(logits: list[torch.Tensor], batch: int) -> list[Callable[[], object]]:
    """One verdict per tensor of logits, each with a backend (and so buffers) of its own."""
    calls: list[Callable[[], object]] = []
    for rows in logits:
        width, count = rows.shape[1], batch * DRAFTED
        top = rows.view(batch, DRAFTED + 1, width)[:, :DRAFTED].float().topk(TOP_M)
        ids, order = top.indices.reshape(count, TOP_M).sort(1)
        probs = top.values.softmax(-1).reshape(count, TOP_M).gather(1, order)
        drafts = SpecDecodeMetadata(
            np.full(batch, DRAFTED, np.int32),
            np.zeros(batch, np.int32),
            top.indices[..., 0].reshape(count).cpu().numpy().astype(np.int32),
            np.full(count, DraftKind.SPARSE, np.uint8),
            ids.cpu().numpy().astype(np.int32),
            probs.cpu().numpy(),
        )
        sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=list(range(batch)))
        verdict = partial(run, VerifyBatch(rows, drafts, sampling))
        calls.append(recorded(CudaBackend(rows.device), verdict).again)
    return calls


def softmax_first(rows: torch.Tensor, draft: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Rejection sampling written as plainly as torch allows."""
    batch, count = tokens.shape
    probs = rows.float().softmax(-1).view(batch, count + 1, -1)
    target = probs[:, :count].gather(2, tokens[..., None])[..., 0]
    own = draft.gather(2, tokens[..., None])[..., 0]
    is_accepted = torch.rand_like(target) * own < target
    num_accepted = is_accepted.cumprod(1).sum(1)
    left = (probs[:, :count] - draft).clamp(min=0)
    weights = torch.cat([left, probs[:, count:]], 1)
    chosen = weights.gather(1, num_accepted[:, None, None].expand(-1, 1, probs.shape[2]))[:, 0]
    return (chosen / torch.empty_like(chosen).exponential_()).argmax(-1)


def library_shaped(rows: torch.Tensor, draft: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """FlashInfer's steps: a softmax that writes float32 probabilities, then per sequence the chain
    over dense rows of both models, of which only the row that decides is read to its end."""
    batch, count = tokens.shape
    probs = torch.softmax(rows, -1, dtype=torch.float32).view(batch, count + 1, -1)
    target = probs[:, :count].gather(2, tokens[..., None])[..., 0]
    own = draft.gather(2, tokens[..., None])[..., 0]
    num_accepted = (torch.rand_like(target) * own < target).cumprod(1).sum(1)
    at = torch.arange(batch, device=rows.device)
    row = probs[at, num_accepted]
    other = draft[at, num_accepted.clamp(max=count - 1)] * (num_accepted < count)[:, None]
    left = (row - other).clamp(min=0).cumsum(1)
    needed = torch.rand(batch, 1, device=rows.device) * left[:, -1:]
    return torch.searchsorted(left, needed, right=True)[:, 0]


def measure(batch: int, width: int, device: torch.device) -> tuple[float, ...]:
    """Microseconds of (ours, floor, softmax first, library's)."""
    rows, size = batch * (DRAFTED + 1), batch * (DRAFTED + 1) * width * 2
    copies = max(1, min(64, ROTATED_BYTES // size))
    logits = [
        torch.randn(rows, width, device=device, dtype=torch.bfloat16) * 3 for _ in range(copies)
    ]
    tokens = logits[0].view(batch, DRAFTED + 1, width)[:, :DRAFTED].argmax(-1)
    draft = torch.rand(batch, DRAFTED, width, device=device).softmax(-1)
    copy_to = torch.empty_like(logits[0])
    plain = [partial(softmax_first, own, draft, tokens) for own in logits]
    library = [partial(library_shaped, own, draft, tokens) for own in logits]
    copied = median_us([partial(copy_to.copy_, own) for own in logits])
    return median_us(ours(logits, batch)), copied / 2, median_us(plain), median_us(library)


def main() -> None:
    if reason := why_unusable():
        print(f"no figures: {reason}")
        return
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}, k={DRAFTED}, bfloat16")
    names = ("verify", "floor", "softmax first", "library's steps")
    print(f"{'B':>3} {'V':>8} {'GB/s':>8}" + "".join(f"{name + ' µs':>20}" for name in names))
    for width in WIDTHS:
        for batch in BATCHES:
            times = measure(batch, width, device)
            rate = batch * (DRAFTED + 1) * width * 2 / times[0] / 1e3
            shown = "".join(f"{time:20.1f}" for time in times)
            print(f"{batch:3d} {width:8d} {rate:8.0f}{shown}")


if __name__ == "__main__":
    main()
