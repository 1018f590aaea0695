"""What past texts are worth to a target without a draft: each thing asked in four ways, none twice.

    PYTHONPATH=tests/benches python tests/benches/suffixes.py [--repeats 3] [--tokens N]
        [--threads N] [--smollm2 [--head FOLDER] [--draft FOLDER]]

One engine for each variant, one stream, temperature 0; a scope of its own for each repeat, so that
nothing is known of the one before. The first way is asked of everything, then the second, and so
on. --head: an EAGLE-3 head of SmolLM2, --draft: a small draft model of it, each beside the two as
one more variant. Variants take turns; all write the same text: that is asserted. Ratios of seconds,
of the ways behind the first one; what is said of rounds is of all ways.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

from chats import CHATS
from heads import rounds_of
from rich.console import Console
from rich.progress import track

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.cluster.bench.prompts import NAMES

ROOT = Path(__file__).resolve().parents[2]
ASKED = ("What does {} do?", "Explain {}.", "How do I use {}?", "What is {}?")
NUM_NAMES = 12
KINDS = ("question", "explanation", "repair")  # of chats.json, for SmolLM2
NUM_ABOUT = 3
VARIANTS = {"plain": ("ngram",), "ngram": ("ngram",), "suffix, ngram": ("suffix", "ngram")}


def of_demo():
    """Ways to ask, each of everything."""
    return {"questions": [[way.format(name) for name in NAMES[:NUM_NAMES]] for way in ASKED]}


def of_smollm2():
    found = {}
    for kind in CHATS:
        if kind["kind"] in KINDS:
            turn = kind["turns"][-1]
            found[kind["kind"]] = [
                [turn.format(ask=ask, about=about) for about in kind["about"][:NUM_ABOUT]]
                for ask in kind["ask"]
            ]
    return found


async def seconds_of(engine, ways, scope, tokens, *, is_plain):
    """Of each way to ask, and all ids."""
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignores_eos=True)
    speculation = SpeculationParams(is_enabled=not is_plain)
    took, ids = [], []
    for way in ways:
        began = time.perf_counter()
        for text in way:
            prompt = engine.tokenizer.render_chat([{"role": "user", "content": text}])
            request = Request(
                tuple(prompt), sampling, seed=0, speculation=speculation, cache_salt=scope
            )
            ids += [i async for chunk in engine.generate(request) for i in chunk.token_ids]
        took.append(time.perf_counter() - began)
    return sum(took[1:]), ids


async def compare(args, folder, kinds):
    console = Console(width=200)
    variants = dict(VARIANTS)
    if args.head:
        variants["eagle3, suffix, ngram"] = (f"eagle3:{args.head}", "suffix", "ngram")
    if args.draft:
        variants["draft, suffix, ngram"] = ("draft", "suffix", "ngram")
    async with contextlib.AsyncExitStack() as stack:
        engines = {}
        for name, drafters in variants.items():
            options = EngineOptions(
                numerics="exact", num_threads=args.threads, drafters=drafters, kv_tokens=16384
            )
            draft = args.draft if "draft" in drafters else None
            engine = await Engine.start(EngineConfig(folder, draft, options), InlineExecutor())
            stack.push_async_callback(engine.stop)
            engines[name] = engine
        for kind, ways in kinds.items():
            seconds, texts = {name: [] for name in variants}, None
            rounds = {name: [] for name in variants}
            for repeat in track(range(args.repeats), kind, console=Console(stderr=True)):
                for name, engine in engines.items():
                    engine.statistics.reset()
                    case = (engine, ways, f"{kind} {repeat}", args.tokens)
                    took, ids = await seconds_of(*case, is_plain=name == "plain")
                    assert ids == (texts := texts or ids), f"{name} wrote another text"
                    seconds[name].append(took)
                    rounds[name].append(engine.statistics.snapshot())
            pairs = [
                ("suffix, ngram", "ngram"),
                *((name, "plain") for name in variants if name != "plain"),
            ]
            for fast, slow in pairs:
                taken = zip(seconds[slow], seconds[fast], strict=True)
                ratios = sorted(a / b for a, b in taken)
                middle = statistics.median(ratios)
                spread = f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
                console.print(f"{kind}: {fast} / {slow} {middle:.2f} {spread}")
            for name, told in rounds.items():
                console.print(f"{kind}, {name}: {rounds_of(told)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smollm2", action="store_true")
    parser.add_argument("--head", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    args = parser.parse_args()
    folder, kinds = ROOT / "cluster" / "demo" / "target", of_demo()
    if args.smollm2:
        from real_model import RealModel

        folder, kinds = RealModel().folder, of_smollm2()
    asyncio.run(compare(args, folder, kinds))


if __name__ == "__main__":
    main()
