"""What a round costs beside the models' own work, at the vocabulary and context of a real model.

    python tests/benches/host_cost.py [--tokens 128] [--json FILE]

A random Llama of two small layers with V = 128,256 and a context of 131,072, on one thread, and 64
rows without proposals: whatever grows with vocabulary, prompts or clients shows beside so little
work. Requests come through the HTTP application, in this process; the target has its own. Columns:
milliseconds of a round in the forward, in the verdict and in all the rest (the target's host part,
transport, scheduling and committing), and the longest callback on the loop: CPU time of its thread,
and wall time. Bars are printed with each, met or not.
"""

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from asyncio import events
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import httpx
import torch
from real_tokenizers import tekken
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor import heap
from outrider.actors.executor.executor import ProcessExecutor
from outrider.cluster.api.app import create_app
from outrider.cluster.api.service import ApiLimits, Service

VOCABULARY, CONTEXT, NUM_ROWS = 128_256, 131_072, 64
REST_MS, LOGPROBS_MS, MASK_MS, CALLBACK_MS, TOP_P = 3.0, 0.8, 0.4, 50.0, 3.0
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 400},
        "size": {"type": "number"},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}
PLAIN = {"model": "random", "temperature": 0, "ignore_eos": True, "speculation": {"enabled": False}}
PENALTIES = {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.5}


@dataclass
class Cost:
    """Of one case. Times in milliseconds, of a round."""

    num_rounds: int
    num_told: float  # rows of log-probabilities a round
    forward: float
    verdict: float
    host: float
    rest: float  # the host's part, transport, scheduling and committing
    callback_cpu: float
    callback_wall: float
    tokens_per_s: float


class Loop:
    """The longest callback of the event loop."""

    def __init__(self):
        self.cpu_s = self.wall_s = 0.0

    @contextlib.contextmanager
    def watched(self):
        run = events.Handle._run

        def timed(handle):
            cpu, wall = time.thread_time(), time.monotonic()
            run(handle)
            self.cpu_s = max(self.cpu_s, time.thread_time() - cpu)
            self.wall_s = max(self.wall_s, time.monotonic() - wall)

        events.Handle._run = timed
        try:
            yield self
        finally:
            events.Handle._run = run


def make_model(folder):
    """A Llama that computes little, over a real tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # logits as wide as a real model's
        model.lm_head.weight *= 20
    model.save_pretrained(folder)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = tekken(Path(scratch), num_tokens=VOCABULARY - 256)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def prompt(length, number):
    """Ids of no text, another for each number."""
    return [1000 + (number * 7919 + at * 104_729) % 100_000 for at in range(length)]


def cases(tokens):
    """Name → the bodies of /v1/completions that are sent at once, and rows told in all."""
    short = [prompt(8, number) for number in range(NUM_ROWS)]

    def batch(num_rows=NUM_ROWS, **fields):
        return PLAIN | {"prompt": short[:num_rows], "max_tokens": tokens} | fields

    told = {top: ([batch(logprobs=top)], NUM_ROWS * tokens) for top in (5, 20)}
    long = {"prompt": [prompt(2000, 99)], "prompt_logprobs": 20, "max_tokens": 1}
    many = {"prompt": prompt(30_000, 7), "n": NUM_ROWS, "max_tokens": tokens, "temperature": 1}
    text = {"speculation": {"enabled": True, "k": 0}, "max_tokens": tokens}
    return {
        "nothing": ([batch()], 0),
        "temperature 1": ([batch(temperature=1, seed=1)], 0),
        "top_p 0.9": ([batch(temperature=1, top_p=0.9, seed=1)], 0),
        "penalties": ([batch(**PENALTIES)], 0),
        "top_logprobs 5": told[5],
        "top_logprobs 20": told[20],
        "JSON schema": ([batch(structured_outputs={"json": SCHEMA})], 0),
        "prompt_logprobs of 2,000": ([batch(NUM_ROWS - 1), PLAIN | long], 2000),
        "n = 64 of 30,000": ([PLAIN | many], 0),
        "prediction of 100,000": (
            [batch(NUM_ROWS - 1), PLAIN | text | {"prompt": short[-1], "prediction": PREDICTED}],
            0,
        ),
    }


PREDICTED = {"type": "content", "content": " ".join(f"word{at % 997}" for at in range(25_000))}


async def measure(engine, http, bodies, num_told):
    """Send them at once; what the rounds cost."""
    engine.statistics.reset()
    started = time.monotonic()
    with Loop().watched() as loop:
        replies = await asyncio.gather(*(http.post("/v1/completions", json=b) for b in bodies))
    took_s = time.monotonic() - started
    for reply in replies:
        assert reply.status_code == 200, reply.text[:300]
    seen = engine.statistics.snapshot()
    rounds = seen.num_target_passes
    host_s = getattr(seen, "target_host_s", 0.0)  # an older commit's verdict holds it too
    rest_s = seen.elapsed_s - seen.target_forward_s - seen.verdict_s
    return Cost(
        rounds,
        num_told / rounds,
        *(1e3 * s / rounds for s in (seen.target_forward_s, seen.verdict_s, host_s, rest_s)),
        1e3 * loop.cpu_s,
        1e3 * loop.wall_s,
        seen.num_tokens / took_s,
    )


async def measured(folder, tokens):
    """Every case, after a round of each that warms up."""
    options = EngineOptions(
        k=0,
        num_threads=1,
        kv_tokens=200_000,
        token_budget=2048,
        max_batch=NUM_ROWS,
        drafters=("prediction",),
    )
    executor = ProcessExecutor()
    engine = await Engine.start(EngineConfig(folder, None, options), executor)
    heap.freeze()  # as a replica does
    try:
        app = create_app(Service("random", ApiLimits(), engine=engine))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://bench", timeout=600
        ) as http:
            await measure(engine, http, cases(2)["nothing"][0], 0)
            found = {}
            for name, (bodies, num_told) in cases(tokens).items():
                found[name] = await measure(engine, http, bodies, num_told)
                print(f"{name}: {found[name]}", flush=True)
            return found
    finally:
        await engine.stop()


def bars(found):
    """(what, got, at most) of each."""
    base = found["nothing"]
    yield "rest of a round, nothing asked", base.rest, REST_MS
    yield "rest of a round, penalties", found["penalties"].rest, REST_MS
    for name, cost in found.items():
        if cost.num_told:
            told_ms = (cost.rest - base.rest) / cost.num_told
            yield f"{name}: ms a reported row", told_ms, LOGPROBS_MS
            yield f"{name}: rows told a round", cost.num_told, NUM_ROWS
    masks = found["JSON schema"]
    yield "JSON schema: ms of masks a row", (masks.rest - base.rest) / NUM_ROWS, MASK_MS
    yield (
        "top-p's verdict / temperature 1's",
        (found["top_p 0.9"].verdict / found["temperature 1"].verdict),
        TOP_P,
    )
    for name, cost in found.items():
        yield f"{name}: longest callback, ms of CPU", cost.callback_cpu, CALLBACK_MS


def show(found):
    console, table = Console(width=120), Table("64 rows", box=None)
    for column in ("rounds", "told", "forward", "verdict", "rest", "of it host", "callback"):
        table.add_column(column, justify="right")
    for name, cost in found.items():
        table.add_row(
            name,
            str(cost.num_rounds),
            f"{cost.num_told:.0f}",
            f"{cost.forward:.1f}",
            f"{cost.verdict:.1f}",
            f"{cost.rest:.2f}",
            f"{cost.host:.2f}",
            f"{cost.callback_cpu:.1f} ({cost.callback_wall:.0f})",
        )
    console.print(table)
    for what, got, most in bars(found):
        console.print(f"{'met   ' if got <= most else 'MISSED'}  {what}: {got:.2f} of {most:g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "random"
        make_model(folder)
        found = asyncio.run(measured(folder, args.tokens))
    show(found)
    if args.json:
        args.json.write_text(json.dumps({name: asdict(cost) for name, cost in found.items()}))


if __name__ == "__main__":
    main()
