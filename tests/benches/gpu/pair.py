"""A pair of real shapes on one GPU: tokens a second with the draft, over those without.

    python tests/benches/gpu/pair.py [--target 8b --draft 1b] [--agrees 0.8 0.9] [--streams 1 8]

Random weights, but for what is said: every id has one id behind it, in the target's text and, for
so many of all ids, in the draft's. Steps cost what they cost; how often the draft is right is
given. `tiny` runs on the CPU, where its times mean nothing.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from engine import DEMO, PLAIN, rate
from shapes import VOCAB, llama

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor
from outrider.actors.runner.model_loader import from_model
from outrider.actors.scheduling.sampling_params import SpeculationParams
from outrider.actors.workers import loading

LOUD = 30.0  # an id's own state beside what the layers add to it


@torch.inference_mode()
def that_says(shape: str, device: str, following: torch.Tensor) -> Any:
    """A model in whose text id i is followed by following[i]."""
    model = llama(shape, device, torch.bfloat16 if device == "cuda" else torch.float32)
    model.config.tie_word_embeddings = False
    width = model.config.hidden_size
    states = torch.randn(VOCAB, width, device=device)
    states /= states.norm(dim=1, keepdim=True)
    embedding = model.get_input_embeddings()
    embedding.weight.copy_(states * LOUD * width**0.5)
    head = torch.nn.Linear(width, VOCAB, bias=False, device=device, dtype=model.dtype)
    head.weight[following.to(device)] = (states * LOUD).to(model.dtype)
    model.lm_head = head
    return model


def with_some_others(following: torch.Tensor, agrees: float) -> torch.Tensor:
    """The same behind so many of all ids, and others behind the rest."""
    torch.manual_seed(2)
    others = (torch.rand(VOCAB) >= agrees).nonzero()[:, 0]
    changed = following.clone()
    changed[others] = following[others.roll(1)]
    return changed


async def measure(folders: list[Path], streams: list[int], chains: list[int], device: str) -> None:
    options = EngineOptions(device=device, kv_tokens=65536 if device == "cuda" else 4096,
                            is_colocated=True, has_prefix_cache=False)  # fmt: skip
    begin = time.perf_counter()
    engine = await Engine.start(EngineConfig(*folders, options), InlineExecutor())
    print(f"  started in {time.perf_counter() - begin:.1f} s")
    for count in streams:
        plain = await rate(engine, count, 0.0, PLAIN)
        print(f"  {count} streams: plain {plain:.0f} tokens/s", flush=True)
        for k in (None, *chains):
            before = engine.statistics.snapshot()
            own = await rate(engine, count, 0.0, SpeculationParams(k=k))
            found = engine.statistics.snapshot()
            judged = found.num_drafted - before.num_drafted
            accepted = found.num_accepted - before.num_accepted
            print(f"    {'default' if k is None else f'k={k}'} {own:.0f}, {own / plain:.2f}; "
                  f"of {judged} judged {accepted / max(1, judged):.0%} accepted",
                  flush=True)  # fmt: skip
    await engine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="8b")
    parser.add_argument("--draft", default="1b")
    parser.add_argument("--agrees", type=float, nargs="+", default=[0.8, 0.9])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument(
        "--k", type=int, nargs="+", default=[4, 8], help="chains beside the default"
    )
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    following = torch.randperm(VOCAB)
    models = dict[str, Any]()
    loading.load_model = lambda path, **_: from_model(models[Path(path).name])
    with tempfile.TemporaryDirectory() as folder:
        for agrees in asked.agrees:
            print(f"{asked.target} with {asked.draft}, right behind {agrees:.0%} of ids")
            models["target"] = that_says(asked.target, device, following)
            models["draft"] = that_says(asked.draft, device, with_some_others(following, agrees))
            folders = [Path(folder) / name for name in models]
            for path in folders:
                path.mkdir(exist_ok=True)
                models[path.name].config.save_pretrained(path)
                for name in ("tokenizer.json", "tokenizer_config.json"):
                    shutil.copy(DEMO / "target" / name, path / name)
            asyncio.run(measure(folders, asked.streams, asked.k, device))
            models.clear()


if __name__ == "__main__":
    main()
