"""A real chat model beside other engines: SmolLM2-135M-Instruct.

    python tests/benches/real.py [--streams 1 4 16] [--tokens 64] [--repeats 9] [--chats 10]
        [--python llama.cpp=PATH openvino=PATH onnxruntime=PATH] [--draft FOLDER] [--head FOLDER]
        [--answers 200]

The model comes out of a wheel of PyPI (real_model.py), rounded to bfloat16, and is computed in
float32 by Outrider. A peer computes in float32 or bf16, whichever was faster. One stream answers
chats of the ten kinds in chats.json, one after another; several are that many at once. Greedy,
equal prompts and lengths. Everybody takes turns; ratios are of turns: median, least and greatest.
llama.cpp on the wheel's own four-bit file is printed beside: it computes something else.
Without --draft nobody has a draft model; with it all that can have the same one (FOLDER as
`outrider train-head --kind draft` writes it). --head is an EAGLE-3 head, Outrider's alone.

--answers N compares N greedy answers with transformers' own instead, token for token: where they
part, transformers' two best logits must be a near-tie.
"""

import argparse
import asyncio
import itertools
import os
import time
from pathlib import Path

os.environ |= {"OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import torch
from chats import CHATS, chats
from real_model import CACHE, RealModel
from transformers import AutoModelForCausalLM

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.sizing.machine import num_cores
from outrider.actors.text.tokenizer import Tokenizer
from outrider.cluster.bench.compare import roster
from outrider.cluster.bench.compare.comparison import compare
from outrider.cluster.bench.compare.contender import Work
from outrider.cluster.bench.compare.engines.foreign import FOREIGN, ForeignContender
from outrider.cluster.bench.compare.engines.outrider_engine import OutriderContender

NEAR_TIE, FEW = 1e-3, 10


def prompts(tokenizer, num):
    """Of the first so many chats."""
    asked = itertools.islice(chats(), num)
    return tuple(tuple(tokenizer.render_chat(turns)) for _, turns in asked)


async def beside_peers(args, model):
    """Print everybody's ratios."""
    tokenizer = Tokenizer(model.folder)
    most = max(args.streams)
    asked = {num: prompts(tokenizer, args.chats if num == 1 else num) for num in args.streams}
    longest = max(len(ids) for found in asked.values() for ids in found)
    plan = roster.RosterPlan(
        target=model.folder,
        draft=args.draft,
        num_threads=num_cores(),
        most_streams=most,
        context_len=longest + args.tokens + 32,
        folder=CACHE / "converted",
        peers=tuple(peer for peer in roster.PEERS if peer != "vllm"),
        pythons=dict(each.split("=", 1) for each in args.python),
    )
    for absent in roster.absent_peers(plan):
        print(f"not compared with {absent}")
    field = [*roster.peers(plan), *await roster.ours(plan), *four_bits(plan, model)]
    if args.head:
        field.append(await with_head(args.head, plan))
    try:
        for num in args.streams:
            work = Work(asked[num], args.tokens, 0.0, num)
            case = await compare(
                work, field, args.repeats, time.monotonic() + 60 * args.minutes, show, tell
            )
            for name, reason in case.failures.items():
                print(f"  {name}: {reason}")
    finally:
        for contender in field:
            await contender.close()


async def with_head(head, plan):
    """Outrider with a head, and copies, in one process."""
    options = EngineOptions(
        drafters=(f"eagle3:{head}", "suffix", "ngram"),
        num_threads=plan.num_threads,
        kv_tokens=max(4096, 2 * plan.most_streams * plan.context_len),
        has_prefix_cache=False,
    )
    engine = await Engine.start(EngineConfig(plan.target, None, options), InlineExecutor())
    return OutriderContender("Outrider, EAGLE-3", engine, {"": None}, {"": None})


def show(line):
    print(f"\r{line:<60}", end="", flush=True)


def four_bits(plan, model):
    """llama.cpp on the wheel's own file, where there is llama.cpp."""
    llama = next(each for each in FOREIGN if each.key == "llama.cpp")
    if any(absent.name == llama.name for absent in roster.absent_peers(plan)):
        return []
    facts = {
        "target": str(model.quantized),
        "draft": None,
        "folders": {},
        "num_threads": plan.num_threads,
        "num_streams": plan.most_streams,
        "context_len": plan.context_len,
        "binary": None,
    }
    contender = ForeignContender(llama, plan.pythons.get(llama.key, os.sys.executable), facts)
    contender.name = "llama.cpp, Q4_1 (another model's numbers)"
    contender.settings = lambda work: ("plain",)
    return [contender]


def tell(case):
    """After each repeat: a run that is ended early has said something."""
    num, tokens = case.work.num_streams, case.work.num_tokens
    print(f"\n{num} stream{'s' if num > 1 else ''}, {tokens} tokens each")
    ours = [case.best(name) for name in case.contenders(is_ours=True)]
    for series in ours:
        print(f"  {series.name:<48} {case.rate(series):7.1f} tokens/s")
    for name in case.contenders(is_ours=False):
        best = case.best(name)
        ratios = "; ".join(f"{one.name} {case.ratio(one, best)}" for one in ours)
        print(f"  {best.name:<48} {case.rate(best):7.1f} tokens/s   {ratios}", flush=True)


async def answers(args, model):
    """Compare greedy answers with transformers' own."""
    tokenizer = Tokenizer(model.folder)
    theirs = AutoModelForCausalLM.from_pretrained(model.folder, dtype=torch.float32).eval()
    options = EngineOptions(kv_tokens=8192)
    engine = await Engine.start(EngineConfig(model.folder, None, options), InlineExecutor())
    num_equal, ties, others, worst = 0, [], [], 0.0
    for number, ids in enumerate(prompts(tokenizer, args.answers)):
        sampling = SamplingParams(0.0, max_tokens=args.tokens, ignores_eos=True, num_top_logprobs=1)
        found, told = [], []
        async for chunk in engine.generate(Request(ids, sampling, seed=0)):
            found += chunk.token_ids
            told += chunk.logprobs
        with torch.inference_mode():
            logits = theirs(torch.tensor([[*ids, *found]])).logits[0, len(ids) - 1 : -1].float()
        best = logits.argmax(-1).tolist()
        logprobs = logits.log_softmax(-1)
        off = [abs(float(logprobs[at, token]) - told[at]) for at, token in enumerate(found)]
        worst = max(worst, *off)
        parted = next((at for at, token in enumerate(found) if token != best[at]), None)
        if parted is None:
            num_equal += 1
            continue
        top = logits[parted].topk(2).values.tolist()
        gap = top[0] - top[1]
        (ties if gap <= NEAR_TIE else others).append((number, parted, gap))
        print(f"answer {number} parts at token {parted}: the best two are {gap:.1e} apart")
    await engine.stop()
    print(
        f"{num_equal} of {args.answers} equal, {len(ties)} part at a near-tie, {len(others)} do not"
    )
    print(f"log-probabilities differ by {worst:.1e} at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--chats", type=int, default=len(CHATS), help="of one stream")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--minutes", type=float, default=10.0, help="a number of streams")
    parser.add_argument("--python", nargs="*", default=[], metavar="PEER=PATH")
    parser.add_argument("--draft", type=Path, metavar="FOLDER", help="for all that can have one")
    parser.add_argument("--head", type=Path, metavar="FOLDER", help="EAGLE-3, for Outrider alone")
    parser.add_argument("--answers", type=int, default=0)
    args = parser.parse_args()
    model = RealModel()
    torch.set_num_threads(num_cores())
    asyncio.run(answers(args, model) if args.answers else beside_peers(args, model))


if __name__ == "__main__":
    main()
