"""The placement and threads that are chosen by default, against all others.

    python tests/benches/defaults.py [--target DIR --draft DIR] [--cores 2] [--turns 24]

One stream at temperature 0. Every setting is an engine of its own, in processes: draft and target
together or apart, with one thread or all, and what the default chooses. k is held at 0, 2 or 4,
each the best of its setting. Settings take turns; the best of them is chosen on even turns and the
default is compared with it on odd ones: the median of the turns' ratios and a 90 % bootstrap
interval. "Not slower": median at least 0.97 and the upper end at least 1.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

os.environ |= {"OMP_WAIT_POLICY": "PASSIVE"}  # before torch

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import ProcessExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.sizing.machine import cores
from outrider.actors.text.tokenizer import Tokenizer
from outrider.cluster.bench.prompts import prompts
from outrider.cluster.config.demo_models import demo_draft, demo_target

DEFAULT = "by default"
KS = (0, 2, 4)
NUM_BOOTSTRAPS = 2000


@dataclass
class Setting:
    """An engine, and the seconds of its turns by k."""

    name: str
    engine: Engine
    seconds: dict[int, list[float]]


async def text(engine, ids, num_tokens, k):
    """Seconds for one."""
    sampling = SamplingParams(0.0, max_tokens=num_tokens, ignores_eos=True)
    request = Request(ids, sampling, seed=0, speculation=SpeculationParams(k=k))
    started = time.perf_counter()
    async for _ in engine.generate(request):
        pass
    return time.perf_counter() - started


def wanted(num_cores, has_draft):
    """Name → options."""
    threads = sorted({1, num_cores})
    found = {}
    for num in threads:
        found[f"together, {num} threads" if has_draft else f"{num} threads"] = {
            "num_threads": num,
            "is_colocated": has_draft,
        }
    if has_draft and num_cores > 1:
        for num in sorted({1, num_cores // 2}):
            found[f"apart, {num} threads each"] = {"num_threads": num, "is_colocated": False}
    return found | {DEFAULT: {}}


def interval(ratios, rng):
    """A 90 % bootstrap interval of the median."""
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(NUM_BOOTSTRAPS)
    )
    return medians[NUM_BOOTSTRAPS // 20], medians[-NUM_BOOTSTRAPS // 20]


async def run(target, draft, args):
    settings = []
    try:
        for name, options in wanted(args.cores, draft is not None).items():
            chosen = EngineOptions(has_prefix_cache=False, **options)
            engine = await Engine.start(EngineConfig(target, draft, chosen), ProcessExecutor())
            settings.append(Setting(name, engine, {}))
            print(f"{name}: {engine.info.placement}", flush=True)
        asked = prompts(Tokenizer(target), args.turns + 1)
        ks = KS if draft is not None else (0,)
        for turn in range(args.turns + 1):  # the first warms up
            order = settings if turn % 2 else settings[::-1]
            for setting in order:
                for k in ks:
                    took = await text(setting.engine, asked[turn], args.tokens, k)
                    if turn:
                        setting.seconds.setdefault(k, []).append(took)
    finally:
        for setting in settings:
            await setting.engine.stop()
    tell(settings, args.tokens)


def tell(settings, num_tokens):
    best = {}  # of each setting: its best k on even turns
    for each in settings:
        k = min(each.seconds, key=lambda k: statistics.median(each.seconds[k][::2]))
        best[each.name] = each.seconds[k]
        speeds = {k: num_tokens / statistics.median(s) for k, s in each.seconds.items()}
        print(f"{each.name}: best k={k}; tokens/s by k " + ", ".join(
            f"{k}: {speed:.1f}" for k, speed in speeds.items()))  # fmt: skip
    others = [each.name for each in settings if each.name != DEFAULT]
    winner = min(others, key=lambda name: statistics.median(best[name][::2]))
    ratios = [w / d for w, d in zip(best[winner][1::2], best[DEFAULT][1::2], strict=True)]
    low, high = interval(ratios, random.Random(0))
    median = statistics.median(ratios)
    verdict = "not slower" if median >= 0.97 and high >= 1 else "SLOWER"
    print(
        f"{DEFAULT} / the best of the others on even turns ({winner}): {median:.2f} "
        f"({low:.2f} to {high:.2f}), least {min(ratios):.2f}, greatest {max(ratios):.2f}: {verdict}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=demo_target())
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--no-draft", action="store_true")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(cores())[: args.cores])
    cores.cache_clear()
    draft = args.draft or (demo_draft() if args.target == demo_target() else None)
    asyncio.run(run(args.target, None if args.no_draft else draft, args))


if __name__ == "__main__":
    main()
