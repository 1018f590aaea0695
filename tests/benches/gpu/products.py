"""The products of an 8B model's step by its rows: as `fast` makes them, and as `exact` does.

    python tests/benches/gpu/products.py [--rows 1 6 16 64 256]

In CUDA graphs; the weights rotate through more memory than the L2 cache holds. A product's rate is
its weights' bytes over its time. Last: whether a row has the same bits with any number of others.
"""

import argparse
from functools import partial

import torch
from ceilings import median_us, normal

from outrider.actors.runner.gpu.products import product

ROTATED_BYTES = 2**28  # that inputs rotate through: over twice any L2
WEIGHTS = {  # of Llama-3.1-8B: output and input width, and how many there are in a step
    "qkv": (6144, 4096, 32),
    "o": (4096, 4096, 32),
    "gate_up": (28672, 4096, 32),
    "down": (4096, 14336, 32),
    "head": (128256, 4096, 1),
}


def of_a_step(rows: int, is_exact: bool) -> str:
    total, told = 0.0, []
    for name, (out, width, count) in WEIGHTS.items():
        weights = [normal(out, width) for _ in range(ROTATED_BYTES // (out * width * 2) + 2)]
        made = partial(product, normal(rows, width), bias=None, is_exact=is_exact)
        us = median_us([partial(made, weight) for weight in weights])
        total += us * count
        told.append(f"{name} {out * width * 2 / us / 1e3:.0f}")
    return f"GB/s: {', '.join(told)}; products of a step {total / 1e3:.2f} ms"


def num_changed(is_exact: bool) -> int:
    """Of a row's products beside 0 to 255 others, how many differ from that of the row alone."""
    out, width, _ = WEIGHTS["qkv"]
    x, weight = normal(256, width), normal(out, width)
    alone = product(x[:1], weight, None, is_exact=is_exact)
    sizes = (2, 3, 5, 8, 16, 17, 33, 64, 65, 128, 200, 256)
    made = (product(x[:size], weight, None, is_exact=is_exact)[:1] for size in sizes)
    return sum(not torch.equal(row, alone) for row in made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 6, 8, 16, 32, 64, 256])
    asked = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for rows in asked.rows:
        for is_exact in (False, True):
            name = "exact" if is_exact else "fast"
            print(f"{rows} rows, {name}, {of_a_step(rows, is_exact)}", flush=True)
    for is_exact in (False, True):
        name = "exact" if is_exact else "fast"
        print(f"{name}: beside others a row has other bits in {num_changed(is_exact)} of 12 cases")


if __name__ == "__main__":
    main()
