"""The draft riding ahead, beside lockstep and plain decoding, on one model pair.

    python tests/benches/ahead.py [--repeats 5] [--streams 1 8 16 32] [--texts] [--json FILE]
                                   [--trace FILE]

The questions of `outrider bench compare`, or with --texts the beginnings of pages, which the demo
pair was not made for. One thread for each worker, numerics exact, the same prompts, seeds and
number of tokens for all, so every variant writes the same text: that is asserted. `inline` has both
models in this process, `process` one process each. Variants take turns within a repeat; printed are
medians, and ratios with their least and greatest. "ahead" is the default: every choice by price;
"ahead k=12" has chains of that length at most.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.cluster.bench.prompts import prompts as questions

DEMO = Path(__file__).resolve().parents[2] / "cluster" / "demo"
TEXTS = [
    "The Python tutorial says that",
    "This module provides",
    "Return the number of",
    "class ",
]
NUM_ALONE = 8  # prompts of one stream, one after another
PLAIN, APART = "plain", "plain process"  # without a draft: in this process, in the target's own
REQUESTS = 4  # of each stream one after another, where there are several
ALL = ("prediction", "draft", "ngram")
ENGINES = {  # name: (whether its workers are processes, settings)
    "inline": (False, {"pipeline": "lockstep"}),
    "process": (True, {"pipeline": "lockstep"}),
    "ahead k": (True, {"pipeline": "ahead"}),
    "ahead": (True, {"pipeline": "ahead", "lookahead": "adaptive", "drafters": ALL}),
}
BARS = {  # (temperature, streams): [(fast, slow, bar)]
    (0.0, 1): [("ahead", "lockstep", 1.3), ("ahead", PLAIN, 2.2)],
    (1.0, 1): [("ahead", "lockstep", 1.25)],
    (0.0, 8): [("ahead", "lockstep", 1.1)],
    (1.0, 8): [("ahead", "lockstep", 1.1)],
    **{(t, n): [("ahead", APART, 0.98)] for t in (0.0, 1.0) for n in (16, 32)},
}


def variants(num_streams):
    """Name → (engine, the request's k or None for the engine's choice)."""
    found = {PLAIN: ("inline", 0), APART: ("process", 0)}
    for k in {1: (4, 6, 8, 10, 12), 8: (2, 4, 5, 6, 8)}.get(num_streams, (1, 2, 3)):
        found[f"lockstep inline k={k}"] = ("inline", k)
        found[f"lockstep process k={k}"] = ("process", k)
    for k in (6, 12) if num_streams == 1 else (2, 4, 6):
        found[f"ahead k={k}"] = ("ahead k", k)
    found["ahead"] = ("ahead", None)
    return found


async def run(engine, prompts, temperature, tokens, k, num_streams):
    """Seconds for all requests, so many at once, and the ids they gave."""
    sampling = SamplingParams(temperature=temperature, max_tokens=tokens, ignores_eos=True)

    async def one(number):
        prompt = prompts[number % len(prompts)]
        request = Request(prompt, sampling, seed=number, speculation=SpeculationParams(k=k))
        return [i async for chunk in engine.generate(request) for i in chunk.token_ids]

    started = time.perf_counter()
    if num_streams == 1:
        ids = [await one(number) for number in range(len(prompts))]
    else:
        numbers = iter(range(REQUESTS * num_streams))
        told = await asyncio.gather(*(stream(numbers, one) for _ in range(num_streams)))
        ids = sorted(pair for pairs in told for pair in pairs)
    return time.perf_counter() - started, ids


async def stream(numbers, one):
    """(number, ids) of one request after another, whichever is next."""
    return [(number, await one(number)) for number in numbers]


async def measure(engines, prompts, args, temperature, num_streams):
    """Variant → seconds of each repeat, and its counts."""
    chosen = variants(num_streams)
    seconds, counts, texts = {name: [] for name in chosen}, {}, {}
    label = f"T={temperature:g}, {num_streams} streams"
    for repeat in track(range(args.repeats + 1), label, console=Console(stderr=True)):
        for name, (which, k) in chosen.items():
            engine = engines[which]
            engine.statistics.reset()
            case = (prompts, temperature, args.tokens, k, num_streams)
            took, ids = await run(engine, *case)
            assert ids == texts.setdefault(PLAIN, ids), f"{name} wrote another text"
            if repeat:  # the first warms up
                seconds[name].append(took)
                counts[name] = engine.statistics.snapshot()
    return seconds, counts


def ratio(seconds, fast, slow):
    ratios = sorted(s / f for f, s in zip(seconds[fast], seconds[slow], strict=True))
    return statistics.median(ratios), ratios[0], ratios[-1]


def best(seconds, kind):
    """The variant of this name, or the one of this kind with the smallest median."""
    names = [name for name in seconds if name == kind or name.startswith(f"{kind} ")]
    names = [kind] if kind in names else names
    return min(names, key=lambda name: statistics.median(seconds[name]))


def report(console, seconds, counts, args, temperature, num_streams):
    """The table of one case; its ratios as a dictionary."""
    num_alone = len(TEXTS) if args.texts else NUM_ALONE
    num_tokens = args.tokens * (num_alone if num_streams == 1 else REQUESTS * num_streams)
    asked = "texts" if args.texts else "questions"
    title = f"{asked}, T={temperature:g}, {num_streams} streams: medians; milliseconds a round"
    table = Table(title=title)
    for column in ("variant", "tokens/s", "tokens/row", "verify", "idle", "foreseen"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, values in seconds.items():
        snapshot = counts[name]
        table.add_row(
            name,
            f"{num_tokens / statistics.median(values):.0f}",
            f"{snapshot.tokens_per_row:.2f}",
            f"{1e3 * snapshot.target_forward_s / max(1, snapshot.num_target_passes):.2f}",
            f"{snapshot.target_idle:.0%}",
            f"{snapshot.foreseen_rate:.0%}" if name.startswith("ahead") else "",
        )
    console.print(table)
    result = {}
    for fast, slow, bar in BARS.get((temperature, num_streams), []):
        pair = best(seconds, fast), best(seconds, slow)
        middle, low, high = ratio(seconds, *pair)
        met = "met" if middle >= bar else "NOT MET"
        name = f"{pair[0]} / {pair[1]}"
        console.print(f"{name}: {middle:.2f}x ({low:.2f} to {high:.2f})   bar {bar}: {met}")
        result[name] = {"median": middle, "least": low, "greatest": high, "bar": bar}
    return result


async def compare(args):
    console, results = Console(width=140), {}
    async with contextlib.AsyncExitStack() as stack:
        engines = {}
        for name, (is_apart, settings) in ENGINES.items():
            config = {
                "numerics": "exact",
                "lookahead": "fixed",
                "drafters": ("prediction", "draft"),
                "is_colocated": False,
                "num_threads": 1,
            } | settings
            if name == "ahead" and args.trace:
                config["trace"] = args.trace
            executor = ProcessExecutor() if is_apart else InlineExecutor()
            engine = await Engine.start(
                EngineConfig(args.target, args.draft, EngineOptions(**config)), executor
            )
            stack.push_async_callback(engine.stop)
            engines[name] = engine
        tokenizer = engines["inline"].tokenizer
        prompts = questions(tokenizer, NUM_ALONE)
        if args.texts:
            prompts = [tuple(tokenizer.encode(text)) for text in TEXTS]
        for num_streams in args.streams:
            for temperature in (0.0, 1.0):
                case = (args, temperature, num_streams)
                seconds, counts = await measure(engines, prompts, *case)
                ratios = report(console, seconds, counts, *case)
                results[f"T={temperature:g}, {num_streams} streams"] = {
                    "seconds": seconds,
                    "ratios": ratios,
                }
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=DEMO / "target")
    parser.add_argument("--draft", type=Path, default=DEMO / "draft")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--texts", action="store_true", help="continue pages, not questions")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--trace", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = asyncio.run(compare(args))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
