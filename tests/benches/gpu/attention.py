"""What a step's attention takes by context, rows and size of a split: microseconds a layer.

    python tests/benches/gpu/attention.py

Shapes of an 8B model (32 heads, 8 KV heads, 128 wide, bfloat16); layers rotate through more memory
than the L2 cache holds, in CUDA graphs. GB/s are of keys and values read once.
"""

import torch
from ceilings import ROTATED_BYTES, median_us

from outrider.actors.runner.gpu.attention import Splits, attend, programs_of, splits_of
from outrider.actors.runner.gpu.staging import FEW_ROWS, MANY_ROWS, WORDS

HEADS, KV_HEADS, WIDTH, PAGE = 32, 8, 128, 16


def one(context: int, rows: int, new: int, splits: Splits | None) -> tuple[float, Splits]:
    pages = rows * (context // PAGE + 8)
    of_layer = 2 * pages * PAGE * KV_HEADS * WIDTH * 2
    layers = [
        torch.randn(2, pages, PAGE, KV_HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
        for _ in range(ROTATED_BYTES // of_layer + 2)
    ]
    query = torch.randn(rows * new, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
    table = torch.randperm(pages, device="cuda").int().view(rows, -1)
    at = torch.arange(context, context + new, device="cuda").int().repeat(rows)
    masks = torch.zeros(rows * new, WORDS, dtype=torch.int32, device="cuda")
    tiles = torch.tensor([[n * new, new, n, context + new] for n in range(rows)]).int().cuda()
    size = FEW_ROWS if new * HEADS // KV_HEADS <= FEW_ROWS else MANY_ROWS
    splits = splits or splits_of(context + new, rows * KV_HEADS, programs_of(query.device))
    fixed = at, at + 1, masks, tiles, table, None, WIDTH**-0.5, 0.0, 0, size
    calls = [
        lambda keys=keys, values=values: attend(
            query, keys, values, *fixed, splits.number, splits.size
        )
        for keys, values in layers
    ]
    return median_us(calls), splits


def main() -> None:
    print(torch.cuda.get_device_name())
    for context, rows, new in (
        (512, 1, 1), (4096, 1, 1), (4096, 1, 6), (4096, 1, 16), (32768, 1, 1), (4096, 16, 1),
        (4096, 16, 6),
    ):  # fmt: skip
        num_bytes, told = rows * context * KV_HEADS * WIDTH * 4, []
        tried = [Splits(-(-(context + new) // size), size) for size in (128, 256, 512, 1024)]
        for splits in (None, *tried):
            us, found = one(context, rows, new, splits)
            own = f"{found.number} of {found.size}"
            told.append(f"{own} {us:.1f} µs {num_bytes / us / 1e3:.0f} GB/s")
        print(f"{context} keys, {rows} rows of {new}: {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
