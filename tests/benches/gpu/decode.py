"""Milliseconds of a step of a model of a real shape, and its share of what the memory allows.

    python tests/benches/gpu/decode.py [--shape 8b] [--contexts 512 4096] [--rows 1] [--new 1 6]
                                       [--numerics exact]

A step is `Runner.forward`, timed on the host from the call to its logits being there. The ceiling
is the bytes of weights and KV that it must read, at the rate that a copy of this card moves bytes
(read and written). Random weights: what a step costs does not depend on them.
"""

import argparse
import statistics
import time

import torch
from ceilings import copy_rate
from shapes import llama, read_bytes

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import PageTable
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner

CHUNK, REPEATS = 512, 12


def prefilled(runner: Runner, length: int) -> PageTable:
    cache = runner.open()
    while cache.len < length:
        runner.forward([Segment(cache, [1] * min(CHUNK, length - cache.len), 1)])
    return cache


def step_ms(runner: Runner, caches: list[PageTable], num_new: int) -> float:
    """Of the same step again and again: what it wrote is rolled back."""
    found = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        runner.forward([Segment(cache, [1] * num_new, num_new) for cache in caches])
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) * 1e3)
        for cache in caches:
            runner.rollback(cache, cache.len - num_new)
    return statistics.median(found)


def where_it_goes(runner: Runner, caches: list[PageTable]) -> str:
    """Of one step of one token a row: the CUDA runtime's calls, and the kernels that take most."""
    with torch.profiler.profile() as profile:
        runner.forward([Segment(cache, [1], 1) for cache in caches])
        torch.cuda.synchronize()
    for cache in caches:
        runner.rollback(cache, cache.len - 1)
    told, kernels = profile.key_averages(), []
    calls = {e.key: e.count for e in told if e.key.startswith(("cuda", "cuL"))}
    for each in sorted(told, key=lambda e: -e.self_device_time_total)[:16]:
        kernels.append(
            f"{each.self_device_time_total:8.0f} µs {each.count:4d} times {each.key[:90]}"
        )
    return f"calls {calls}\n    " + "\n    ".join(kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", default="8b")
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--new", type=int, nargs="+", default=[1, 6], help="tokens a row")
    parser.add_argument("--numerics", choices=("fast", "exact"), default="fast")
    asked = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    rate, model = copy_rate(), llama(asked.shape)
    num_bytes, config = read_bytes(model), model.config
    of_token = 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    most = max(asked.contexts) * max(asked.rows)
    begin = time.perf_counter()
    num_tokens = most + 4096 + 64 * max(asked.rows)
    runner = Runner(from_model(model), num_tokens=num_tokens, numerics=asked.numerics)
    numerics = f"{runner.numerics} {runner.numerics_reason}"
    print(f"{asked.shape}: level {runner.model.level}, {numerics}, {runner.model.steps}, "
          f"{time.perf_counter() - begin:.1f} s to make")  # fmt: skip
    on_device = runner.model.on_device
    for context in asked.contexts:
        for rows in asked.rows:
            begin = time.perf_counter()
            caches = [prefilled(runner, context) for _ in range(rows)]
            torch.cuda.synchronize()
            prefill = time.perf_counter() - begin
            for num_new in asked.new:
                ms = step_ms(runner, caches, num_new)
                floor = (num_bytes + of_token * context * rows) / rate * 1e3
                print(
                    f"context {context}, {rows} rows of {num_new}: {ms:.2f} ms, floor {floor:.2f}, "
                    f"{floor / ms:.0%}"
                )
            if on_device is not None:
                print(f"  {on_device.num_replayed} steps replayed {on_device.refusal}")
            print(f"  prefill {prefill:.2f} s; a step's", where_it_goes(runner, caches))
            for cache in caches:
                runner.close(cache)


if __name__ == "__main__":
    main()
