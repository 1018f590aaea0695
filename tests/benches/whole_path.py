"""Tokens per second on one model pair, everybody side by side: transformers, Outrider, HTTP.

    python tests/benches/whole_path.py [--repeats 5] [--tokens 128] [--no-http] [--json FILE]

One thread for each model, float32, batch 1, numerics exact, the same prompts and number of tokens
for all. Variants take turns within a repeat, so a ratio compares neighbours in time; printed are
medians over repeats and the least and greatest ratio. HTTP is served with draft and target in one
process (engine.is_colocated): lockstep on one device has nothing to gain from two. At the demo
pair's size the time is Python and dispatch per layer rather than arithmetic: the ratios show what
the system adds and removes around a forward, and say nothing of how much a large model gains.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import httpx
import torch
import transformers
from rich.console import Console
from rich.progress import track
from rich.table import Table

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams

DEMO = Path(__file__).resolve().parents[2] / "cluster" / "demo"
PROMPTS = [
    "What does os.path.join do?",
    "What does str.split do?",
    "Explain asyncio.gather.",
    "What is collections.OrderedDict?",
    "How do I use json.dumps?",
]
KS = (1, 2, 3, 4, 5)
HTTP_KS = (3, 4)
ASSISTED = (3, 4, 5, 6)


class Transformers:
    """HF generate, plain and assisted."""

    def __init__(self, target, draft):
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.target = load(target, dtype=torch.float32, use_safetensors=True).eval()
        self.draft = load(draft, dtype=torch.float32, use_safetensors=True).eval()
        for model in (self.target, self.draft):
            model.generation_config.max_length = None
        self.defaults = {
            name: getattr(self.draft.generation_config, name)
            for name in (
                "num_assistant_tokens",
                "num_assistant_tokens_schedule",
                "assistant_confidence_threshold",
            )
        }

    def run(self, prompts, temperature, tokens, assisted):
        """Seconds for all prompts. `assisted`: None, "default" or a constant k."""
        wanted = dict(self.defaults)
        if isinstance(assisted, int):
            wanted = {
                "num_assistant_tokens": assisted,
                "num_assistant_tokens_schedule": "constant",
                "assistant_confidence_threshold": 0.0,
            }
        for name, value in wanted.items():
            setattr(self.draft.generation_config, name, value)
        sampling = {"do_sample": False}
        if temperature:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0}
        if assisted is not None:
            sampling["assistant_model"] = self.draft
        torch.manual_seed(0)
        started = time.perf_counter()
        for ids in prompts:
            out = self.target.generate(
                torch.tensor([ids]), max_new_tokens=tokens, min_new_tokens=tokens, **sampling
            )
            assert out.shape[1] == len(ids) + tokens
        return time.perf_counter() - started


async def in_process(engine, prompts, temperature, tokens, k):
    """Seconds for all prompts, one after another."""
    sampling = SamplingParams(temperature=temperature, max_tokens=tokens, ignores_eos=True)
    started = time.perf_counter()
    for ids in prompts:
        count = 0
        request = Request(ids, sampling, seed=1, speculation=SpeculationParams(k=k))
        async for chunk in engine.generate(request):
            count += len(chunk.token_ids)
        assert count == tokens
    return time.perf_counter() - started


@contextlib.contextmanager
def served(target, draft):
    """`outrider serve` on a free port; its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["serve", "--target", target, "--draft", draft, "--port", port, "--numerics", "exact"]
    command += ["--set", "model.name=demo", "--set", "engine.is_colocated=true"]
    command += ["--set", "engine.has_prefix_cache=false"]  # the prompts come again in each repeat
    process = subprocess.Popen(
        [sys.executable, "-m", "outrider.cluster.cli", *map(str, command)],
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/ready").status_code == 200:
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("the server did not become ready")
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def over_http(client, prompts, temperature, tokens, k, is_streamed):
    """Seconds for all prompts, one after another, over one kept connection."""
    started = time.perf_counter()
    for ids in prompts:
        body = {
            "model": "demo",
            "prompt": list(ids),
            "max_tokens": tokens,
            "temperature": temperature,
            "seed": 1,
            "ignore_eos": True,
            "stream": is_streamed,
            "speculation": {"k": k},
        }
        if is_streamed:
            with client.stream("POST", "/v1/completions", json=body) as response:
                lines = list(response.iter_lines())
            assert response.status_code == 200
            assert "data: [DONE]" in lines
        else:
            response = client.post("/v1/completions", json=body)
            assert response.status_code == 200, response.text
            assert response.json()["usage"]["completion_tokens"] == tokens
    return time.perf_counter() - started


async def measure(args, temperature, client):
    """Variant name → seconds of each repeat."""
    hugging = Transformers(args.target, args.draft)
    engine = await Engine.start(
        EngineConfig(
            args.target,
            args.draft,
            EngineOptions(numerics="exact", has_prefix_cache=False, num_threads=1),
        ),
        InlineExecutor(),
    )
    assert engine.info.numerics == "exact"
    prompts = [
        tuple(engine.tokenizer.render_chat([{"role": "user", "content": text}])) for text in PROMPTS
    ]
    case = (prompts, temperature, args.tokens)
    variants = {"HF generate": lambda: hugging.run(*case, None)}
    for how in (*ASSISTED, "default"):
        variants[f"HF assisted {how}"] = lambda how=how: hugging.run(*case, how)
    for k in (0, *KS):
        variants[f"Outrider k={k}"] = lambda k=k: in_process(engine, *case, k)
        if client is not None and k in HTTP_KS:
            for way in ("stream", "whole"):
                variants[f"HTTP {way} k={k}"] = lambda k=k, way=way: asyncio.to_thread(
                    over_http, client, *case, k, way == "stream"
                )
    seconds = {name: [] for name in variants}
    label = f"temperature {temperature:g}"
    for repeat in track(range(args.repeats + 1), label, console=Console(stderr=True)):
        for name, run in variants.items():
            took = run()
            took = await took if asyncio.iscoroutine(took) else took
            if repeat:  # the first warms up
                seconds[name].append(took)
    await engine.stop()
    return seconds


def best(seconds, prefix):
    """The variant of this kind with the smallest median."""
    names = [name for name in seconds if name.startswith(prefix)]
    return min(names, key=lambda name: statistics.median(seconds[name]))


def ratio(seconds, fast, slow):
    """How many times faster `fast` is: median, least and greatest over the repeats."""
    ratios = sorted(s / f for f, s in zip(seconds[fast], seconds[slow], strict=True))
    return statistics.median(ratios), ratios[0], ratios[-1]


def report(console, seconds, tokens, temperature):
    """The tables of one temperature; the ratios as a dictionary."""
    table = Table(title=f"temperature {temperature:g}: tokens/s, medians")
    table.add_column("variant")
    table.add_column("tokens/s", justify="right")
    for name, values in seconds.items():
        rate = tokens * len(PROMPTS) / statistics.median(values)
        table.add_row(name, f"{rate:.0f}")
    console.print(table)
    fast, assisted = best(seconds, "Outrider k="), best(seconds, "HF assisted")
    pairs = {
        "k=0 in process / HF generate": ("Outrider k=0", "HF generate", 1.3),
        f"best ({fast}) / HF generate": (fast, "HF generate", 2.5),
        f"best ({fast}) / best assisted ({assisted})": (fast, assisted, 1.8),
        f"best ({fast}) / k=0 in process": (fast, "Outrider k=0", None),
    }
    for way in ("stream", "whole"):
        for k in HTTP_KS:
            if (over := f"HTTP {way} k={k}") in seconds:
                pairs[f"{over} / in process"] = (over, f"Outrider k={k}", 0.85)
    result = {}
    for name, (fast_one, slow_one, bar) in pairs.items():
        middle, low, high = ratio(seconds, fast_one, slow_one)
        result[name] = {"median": middle, "least": low, "greatest": high, "bar": bar}
        against = "" if bar is None else f"   bar {bar}: {'met' if middle >= bar else 'NOT MET'}"
        console.print(f"{name}: {middle:.2f}x ({low:.2f} to {high:.2f}){against}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=DEMO / "target")
    parser.add_argument("--draft", type=Path, default=DEMO / "draft")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--no-http", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    console, results = Console(), {}
    with contextlib.ExitStack() as stack:
        client = None
        if not args.no_http:
            url = stack.enter_context(served(args.target, args.draft))
            client = stack.enter_context(httpx.Client(base_url=url, timeout=120))
        for temperature in (0.0, 1.0):
            seconds = asyncio.run(measure(args, temperature, client))
            ratios = report(console, seconds, args.tokens, temperature)
            results[f"temperature {temperature:g}"] = {"seconds": seconds, "ratios": ratios}
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
