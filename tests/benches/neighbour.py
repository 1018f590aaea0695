"""What a busy second core costs the target's forward on this machine.

    python tests/benches/neighbour.py [--repeats 6] [--tokens 96]

Plain decoding of the demo's target, pinned to one core: alone, while a loop of Python spins on
another core, and while another process multiplies matrices there. A draft ahead keeps that core
busy most of the time, lockstep never: this is what it has to make up for first.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import torch

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams

TARGET = Path(__file__).resolve().parents[2] / "cluster" / "demo" / "target"
PROMPTS = ["The Python tutorial says that", "Return the number of", "class ", "import "]
PINNED = "import os; os.sched_setaffinity(0, {1}); "
NEIGHBOURS = {
    "alone": "",
    "beside a spinning loop": PINNED + "\nwhile True: pass",
    "beside products of matrices": PINNED
    + "import torch; torch.set_num_threads(1); a, b = torch.randn(256, 768), torch.randn(768, 768)"
    + "\nwhile True: a @ b",
}


async def forward_ms(engine, prompts, tokens):
    """Milliseconds of one forward, over all prompts."""
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignores_eos=True)
    engine.statistics.reset()
    for prompt in prompts:
        async for _ in engine.generate(Request(prompt, sampling, seed=0)):
            pass
    told = engine.statistics.snapshot()
    return 1e3 * told.target_forward_s / told.num_target_passes


async def measure(args):
    config = EngineConfig(
        TARGET,
        None,
        EngineOptions(numerics="exact", drafters=(), pipeline="lockstep", num_threads=1),
    )
    engine = await Engine.start(config, InlineExecutor())
    prompts = [tuple(engine.tokenizer.encode(text)) for text in PROMPTS]
    found = {name: [] for name in NEIGHBOURS}
    for repeat in range(args.repeats + 1):
        for name, code in NEIGHBOURS.items():
            other = subprocess.Popen([sys.executable, "-c", code or "pass"])
            time.sleep(3)  # it imports
            try:
                took_ms = await forward_ms(engine, prompts, args.tokens)
            finally:
                other.kill()
                other.wait()
            if repeat:  # the first warms up
                found[name].append(took_ms)
    await engine.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=96)
    args = parser.parse_args()
    assert os.cpu_count() > 1, "no second core"
    os.sched_setaffinity(0, {0})
    torch.set_num_threads(1)
    found = asyncio.run(measure(args))
    for name, values in found.items():
        ratios = sorted(v / a for v, a in zip(values, found["alone"], strict=True))
        middle = statistics.median(ratios)
        print(f"{name}: {middle:.2f}x alone ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
