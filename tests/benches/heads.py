"""What each drafter is worth to a target, over plain decoding: one stream, in one process.

    PYTHONPATH=tests/benches python tests/benches/heads.py [--pairs 9] [--drafters NAME ...]
        [--temperature T] [--threads N] [--smollm2 FOLDER]

Drafters of the demo's target: draft (the demo's model), eagle3, medusa, early_exit. With --smollm2
the target is SmolLM2-135M-Instruct (real_model.py), asked chats of ten kinds, and FOLDER has an
EAGLE-3 head or a draft model of it, as train-head writes them: eagle3 or draft, ngram, and all
(suffix with them). Plain and drafted turns alternate on the same engine, ABBA; all write the same
text: that is asserted. Ratios of seconds: the median of the pairs, and a 90 % interval by
bootstrap. What is said of a target "without a draft" is of one stream and this machine; acceptance
is of tokens judged, trees' siblings among them.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

from chats import KINDS, chats_of
from real_model import RealModel
from rich.console import Console
from rich.progress import track

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.cluster.bench.prompts import NAMES

DEMO = Path(__file__).resolve().parents[2] / "cluster" / "demo"
NUM_ASKED, NUM_TOKENS = 16, 96
NUM_CHATS = 3  # of a kind


@dataclass(frozen=True)
class Case:
    """A target, what may draft for it, and chats by kind."""

    target: Path
    draft: Path | None
    drafters: dict[str, tuple[str, ...]]
    asked: dict[str, list]


def demo():
    lines = (DEMO / "held_out.txt").read_text("utf-8").splitlines()
    asked = {
        "questions": [f"What does {name} do?" for name in NAMES[:NUM_ASKED]],
        "held-out": lines[:: len(lines) // NUM_ASKED][:NUM_ASKED],
    }
    return Case(
        DEMO / "target",
        DEMO / "draft",
        {
            "draft": ("draft",),
            "eagle3": (f"eagle3:{DEMO / 'eagle3'}",),
            "medusa": (f"medusa:{DEMO / 'medusa'}",),
            "early_exit": ("early_exit",),
        },
        {
            kind: [[{"role": "user", "content": text}] for text in texts]
            for kind, texts in asked.items()
        },
    )


def smollm2(folder):
    config = json.loads((folder / "config.json").read_text())
    is_draft = config["architectures"] == ["LlamaForCausalLM"]
    name, own = ("draft", "draft") if is_draft else ("eagle3", f"eagle3:{folder}")
    return Case(
        RealModel().folder,
        folder if is_draft else None,
        {name: (own,), "ngram": ("ngram",), "all": (own, "suffix", "ngram")},
        {kind: chats_of(kind, NUM_CHATS) for kind in KINDS},
    )


async def turn(engine, chats, temperature, *, is_plain):
    """Seconds, and all ids."""
    sampling = SamplingParams(temperature, max_tokens=NUM_TOKENS)
    speculation = SpeculationParams(is_enabled=not is_plain)
    began, ids = time.perf_counter(), []
    for number, messages in enumerate(chats):
        prompt = engine.tokenizer.render_chat(messages)
        request = Request(tuple(prompt), sampling, seed=number, speculation=speculation)
        ids += [i async for chunk in engine.generate(request) for i in chunk.token_ids]
    return time.perf_counter() - began, ids


async def ratios_of(engine, chats, args, title):
    """Seconds of plain turns over those of drafted ones, and what the latter did."""
    found, told, expected = [], [], None
    for pair in track(range(args.pairs), title, console=Console(stderr=True)):
        seconds = {}
        for is_plain in (True, False) if pair % 2 else (False, True):
            engine.statistics.reset()
            took, ids = await turn(engine, chats, args.temperature, is_plain=is_plain)
            told += [] if is_plain else [engine.statistics.snapshot()]
            assert ids == (expected := expected or ids), f"{title} wrote another text"
            seconds[is_plain] = took
        found.append(seconds[True] / seconds[False])
    return found, told


def rounds_of(told):
    """In words: prompts' forwards are among the rounds'."""

    def total(name):
        return sum(getattr(each, name) for each in told)

    num_rounds, num_judged = total("num_rows"), total("num_drafted")
    accepted = total("num_accepted") / max(1, num_judged)
    forward_ms = 1e3 * total("target_forward_s") / total("num_target_passes")
    draft_ms, num_steps = 1e3 * total("draft_step_s"), max(1, total("num_draft_passes"))
    return (
        f"a round {total('num_tokens') / num_rounds:.2f} tokens, {num_judged / num_rounds:.2f} "
        f"judged and {accepted:.0%} of them accepted; a forward {forward_ms:.2f} ms, drafting "
        f"{draft_ms / num_rounds:.2f} in steps of {draft_ms / num_steps:.2f}"
    )


def interval(ratios):
    """Of the median, 90 % by bootstrap."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[100], medians[1899]


async def compare(args):
    console = Console(width=200)
    case = smollm2(args.smollm2) if args.smollm2 else demo()
    if unknown := [name for name in args.drafters if name not in case.drafters]:
        raise SystemExit(f"Got {', '.join(unknown)}, accepted: {', '.join(case.drafters)}")
    for name in args.drafters or case.drafters:
        draft = case.draft if "draft" in case.drafters[name] else None
        options = EngineOptions(
            numerics="exact",
            num_threads=args.threads,
            drafters=case.drafters[name],
            kv_tokens=8192,
        )
        engine = await Engine.start(EngineConfig(case.target, draft, options), InlineExecutor())
        for kind, chats in case.asked.items():
            await turn(engine, chats, args.temperature, is_plain=False)
            ratios, told = await ratios_of(engine, chats, args, f"{name}, {kind}")
            low, high = interval(ratios)
            console.print(
                f"{name}, {kind}, T={args.temperature:g}: {statistics.median(ratios):.2f} of plain "
                f"({low:.2f} to {high:.2f}); {rounds_of(told)}"
            )
        await engine.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--drafters", nargs="+", default=[])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--smollm2", type=Path, metavar="FOLDER", help="as train-head writes it")
    asyncio.run(compare(parser.parse_args()))


if __name__ == "__main__":
    main()
