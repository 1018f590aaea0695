"""Tokens a second of the whole engine in one process on one GPU.

    python tests/benches/gpu/engine.py [--streams 1 8]

The demo pair with and without its draft, and a model of a real shape (1B, random weights) without
one: beside `decode.py`, what that leaves of a step's time is what the engine takes. The same
requests for all; text is not compared, in bfloat16 near ties are rounding's.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch
from shapes import llama

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams

DEMO = Path(__file__).resolve().parents[3] / "cluster" / "demo"
NUM_TOKENS = 128


def prompts(count: int) -> list[str]:
    lines = (DEMO / "questions.jsonl").read_text().splitlines()[:count]
    return [json.loads(line)["question"] for line in lines]


PLAIN, SPECULATING = SpeculationParams(is_enabled=False), SpeculationParams()


async def rate(engine: Engine, streams: int, temperature: float, how: SpeculationParams) -> float:
    """Tokens a second of so many requests at once, the second time that they are asked."""
    sampling = SamplingParams(temperature, max_tokens=NUM_TOKENS, ignores_eos=True)
    ids = [engine.tokenizer.encode(text) for text in prompts(streams)]

    async def ask(prompt: list[int]) -> int:
        asked = Request(tuple(prompt), sampling, 1, 0, how)
        return sum([len(chunk.token_ids) async for chunk in engine.generate(asked)])

    for _ in range(2):
        begin = time.perf_counter()
        number = sum(await asyncio.gather(*(ask(each) for each in ids)))
        seconds = time.perf_counter() - begin
    return number / seconds


async def measure(target: Path, draft: Path | None, streams: list[int], **options: object) -> None:
    chosen = EngineOptions(device="cuda", kv_tokens=65536, **options)
    begin = time.perf_counter()
    engine = await Engine.start(EngineConfig(target, draft, chosen), InlineExecutor())
    print(f"{target.name}: started in {time.perf_counter() - begin:.1f} s")
    for count in streams:
        for temperature in (0.0, 1.0):
            plain = await rate(engine, count, temperature, PLAIN)
            told = f"{count} streams, T={temperature}: plain {plain:.0f} tokens/s"
            if draft is not None:
                own = await rate(engine, count, temperature, SPECULATING)
                told += f", with a draft {own:.0f}, {own / plain:.2f}"
            print(" ", told, flush=True)
    await engine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--shape", default="1b")
    asked = parser.parse_args()
    pair = DEMO / "target", DEMO / "draft"
    asyncio.run(measure(*pair, asked.streams, is_colocated=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / asked.shape
        llama(asked.shape, "cuda" if torch.cuda.is_available() else "cpu").save_pretrained(path)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if (DEMO / "target" / name).exists():
                shutil.copy(DEMO / "target" / name, path / name)
        asyncio.run(measure(path, None, asked.streams))


if __name__ == "__main__":
    main()
