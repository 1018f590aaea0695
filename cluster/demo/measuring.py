"""What the draft is worth to the target: its cost, and how much of it is accepted.

The cost is told thrice: of the models' forwards in transformers, each model's one after another and
both in turns, and of the engine's steps. In turns a draft finds its weights gone from the core's
cache, where a target's have passed since.
"""

import statistics
import time
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import DynamicCache

from outrider.actors.engine.engine import Engine
from outrider.actors.runner.model_loader import load_model
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import (
    SamplingParams,
    SpeculationParams,
    VerificationMode,
)
from outrider.cluster.bench.prompts import Ids
from outrider.cluster.bench.sweep.sweep import Cell, DrafterChoice, measure
from outrider.cluster.demo.questions import questions

K = 4
ANSWER_LEN = 128  # tokens at most
TIMED_LEN = 96
REPEATS = 5
CONTEXT_LEN = 128
NUM_FORWARDS = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a step of the draft, over one of the target."""

    alone: float  # forwards in transformers, each model by itself
    in_turns: float  # likewise, one of each after the other
    of_steps: float  # in the engine, k of them behind each of the target's


@dataclass(frozen=True, slots=True)
class Gain:
    """Tokens a round at k=K, those of whole answers."""

    greedy: float
    coupled: float  # at temperature 1


async def cost(engine: Engine, pair: Path) -> Cost:
    """Of one sequence, on an engine on the pair whose only drafter is its draft."""
    (prompt,) = _prompts(engine, [questions()[0].question])
    shares = [await _step_share(engine, prompt) for _ in range(REPEATS)]
    alone, in_turns = _forward_shares(pair)
    return Cost(alone, in_turns, statistics.median(shares))


async def gain(engine: Engine, asked: Many[str]) -> Gain:
    """On such an engine, of the answers to these questions, one after another."""
    prompts = _prompts(engine, asked)
    greedy, coupled = [await _tokens_per_round(engine, prompts, at) for at in (0.0, 1.0)]
    return Gain(greedy, coupled)


def _prompts(engine: Engine, asked: Many[str]) -> list[Ids]:
    chats = [[{"role": "user", "content": question}] for question in asked]
    return [tuple(engine.tokenizer.render_chat(chat)) for chat in chats]


async def _step_share(engine: Engine, prompt: Ids) -> float:
    coupled = VerificationMode.COUPLED
    plain = Cell(1, 0.0, coupled, DrafterChoice.NONE, 0)
    drafted = Cell(1, 0.0, coupled, DrafterChoice.DRAFT, K)
    target = await measure(engine, plain, (prompt,), TIMED_LEN)
    draft = await measure(engine, drafted, (prompt,), TIMED_LEN)
    return draft.pass_s / target.verify_s


async def _tokens_per_round(engine: Engine, prompts: Many[Ids], temperature: float) -> float:
    """Over the rounds that follow each prompt's own."""
    sampling = SamplingParams(temperature, max_tokens=ANSWER_LEN)
    num_tokens = num_rounds = 0
    for seed, prompt in enumerate(prompts):
        request = Request(prompt, sampling, seed, speculation=SpeculationParams(k=K))
        commits = [len(chunk.token_ids) async for chunk in engine.generate(request)]
        num_tokens += sum(commits[1:])
        num_rounds += len(commits[1:])
    return num_tokens / max(1, num_rounds)


@torch.inference_mode()
def _forward_shares(pair: Path) -> tuple[float, float]:
    """Of the medians, each forward of one token behind a context: alone, and in turns."""
    models = [load_model(pair / role).model for role in ("draft", "target")]
    caches = [DynamicCache(config=model.config) for model in models]
    for model, cache in zip(models, caches, strict=True):
        model(torch.full((1, CONTEXT_LEN), 8), past_key_values=cache)
    token = torch.tensor([[8]])

    def share(order: Many[int]) -> float:
        times_s: tuple[list[float], list[float]] = [], []
        for at in order:
            started_s = time.perf_counter()
            models[at](token, past_key_values=caches[at])
            times_s[at].append(time.perf_counter() - started_s)
            caches[at].crop(-1)
        draft_s, target_s = map(statistics.median, times_s)
        return draft_s / target_s

    return share([0] * NUM_FORWARDS + [1] * NUM_FORWARDS), share([0, 1] * NUM_FORWARDS)
