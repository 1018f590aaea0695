"""What a shared prompt saves: the time to the first token of the first request, and of later ones.

    python tests/benches/prefix_cache.py [--tokens 1000] [--requests 16] [--repeats 5]

Each repeat has a prompt of its own, so that its first request finds nothing. The later ones come
one after another, and then all at once. The texts are compared with an engine that keeps nothing.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import ProcessExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams

DEMO = Path(__file__).resolve().parents[2] / "cluster" / "demo"
BAR = 0.2


async def first_token(engine, request):
    """Seconds to the first token, and all ids."""
    started, first_s, ids = time.perf_counter(), None, []
    async for chunk in engine.generate(request):
        first_s = first_s or time.perf_counter() - started
        ids += chunk.token_ids
    return first_s, ids


def requests(args, repeat):
    """The same prompt, other seeds."""
    rng = random.Random(repeat)
    length = args.tokens if repeat >= 0 else 40
    prompt = tuple(rng.randrange(5, 4000) for _ in range(length))
    sampling = SamplingParams(max_tokens=8, ignores_eos=True)
    return [Request(prompt, sampling, seed) for seed in range(args.requests)]


async def measure(args, num_repeats, **config):
    config = EngineConfig(DEMO / "target", DEMO / "draft", EngineOptions(**config))
    engine = await Engine.start(config, ProcessExecutor())
    found = []
    try:
        for repeat in range(-1, num_repeats):  # the first warms up
            first, *later = requests(args, repeat)
            first_s, ids = await first_token(engine, first)
            in_turn = [await first_token(engine, each) for each in later]
            at_once = await asyncio.gather(*(first_token(engine, each) for each in later))
            if repeat >= 0:
                texts = [ids, *(i for _, i in in_turn), *(i for _, i in at_once)]
                found.append((first_s, [s for s, _ in in_turn], [s for s, _ in at_once], texts))
    finally:
        await engine.stop()
    return found


async def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    kept = await measure(args, args.repeats)
    bare = await measure(args, 1, has_prefix_cache=False)
    assert kept[0][-1] == bare[0][-1], "texts differ"
    print("texts equal to those of an engine that keeps nothing")
    for name, runs in (("kept", kept), ("nothing kept", bare)):
        first_ms = statistics.median(first_s for first_s, *_ in runs) * 1000
        print(f"{name}: first {first_ms:.1f} ms")
        for at, way in ((1, "in turn"), (2, "at once")):
            ratios = [max(run[at]) / run[0] for run in runs]
            middle = statistics.median(ratios)
            note = (
                f"   bar {BAR}: {'met' if middle <= BAR else 'NOT MET'}" if name == "kept" else ""
            )
            print(
                f"  later {len(runs[0][at])}, {way}: slowest {middle:.2f} of the first "
                f"({min(ratios):.2f} to {max(ratios):.2f}){note}"
            )


if __name__ == "__main__":
    asyncio.run(main())
