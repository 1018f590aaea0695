"""Milliseconds per forward of the runner and of Hugging Face. One thread, numerics exact.

    OMP_NUM_THREADS=1 python tests/benches/forward.py cluster/demo/target cluster/demo/draft

Medians, and in brackets how many times faster than Hugging Face. "turns": one call of each in turn,
so a busy machine slows all and all find their weights evicted; "alone": one way after another.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import load_model
from outrider.actors.runner.runner import Runner

ROUNDS = 60


def measure(ways: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Milliseconds of every call, the ways taking turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(ROUNDS + 5):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if round_ >= 5:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


class Decode:
    """q tokens behind a fixed context, again and again, by a runner."""

    def __init__(self, path: Path, context: int) -> None:
        loaded = load_model(path, device="cpu")
        self.runner = Runner(
            loaded,
            num_tokens=loaded.context_len,
            numerics="exact",
            is_strict=True,
        )
        self.cache, self.context = self.runner.open(), context
        start = time.perf_counter()
        self.runner.forward([Segment(self.cache, text(context), 0)])
        self.prefill_ms = (time.perf_counter() - start) * 1e3

    def __call__(self, q: int) -> None:
        self.runner.forward([Segment(self.cache, text(q), q)])
        self.runner.rollback(self.cache, self.context)


class PlainDecode:
    """The same by the plain Hugging Face forward and its DynamicCache."""

    def __init__(self, path: Path, context: int) -> None:
        self.model: Any = load_model(path, device="cpu").model
        self.past = DynamicCache(config=self.model.config)
        start = time.perf_counter()
        self.model(input_ids=torch.tensor([text(context)]), past_key_values=self.past)
        self.prefill_ms = (time.perf_counter() - start) * 1e3

    def __call__(self, q: int) -> None:
        ids = torch.tensor([text(q)])
        self.model(input_ids=ids, past_key_values=self.past, use_cache=True)
        self.past.crop(-q)


def text(num: int) -> list[int]:
    return [5 + i % 97 for i in range(num)]


def compare(path: Path, context: int) -> None:
    ways = {
        "outrider": Decode(path, context),
        "hf": PlainDecode(path, context),
    }
    print(f"{path.name}, context {context}")
    print("  prefill  ", *(f"{name} {way.prefill_ms:.1f} ms " for name, way in ways.items()))
    for q in (1, 5):
        alone = {name: statistics.median(measure({name: partial(way, q)})[name])
                 for name, way in ways.items()}  # fmt: skip
        turns = measure({name: partial(way, q) for name, way in ways.items()})
        for label, medians in (
            ("alone", alone),
            ("turns", {name: statistics.median(each) for name, each in turns.items()}),
        ):
            ratios = (
                f"{name} {each:.3f} ms ({medians['hf'] / each:.1f}x)"
                for name, each in medians.items()
            )
            print(f"  q={q} {label}", *ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--context", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        for path in arguments.models:
            compare(path, arguments.context)


if __name__ == "__main__":
    main()
