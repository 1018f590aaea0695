"""Outrider as a contender: plain, in lockstep, and as `outrider serve` would run it."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.cluster.bench.compare.contender import Outcome, Work
from outrider.cluster.bench.prompts import Ids

PLAIN, LOCKSTEP, DEFAULT = "Outrider k=0", "Outrider lockstep", "Outrider default"
HTTP = "Outrider over HTTP"  # served, which is not this module's to do
KS = (2, 3, 4, 5, 6)
ADAPTIVE = "adaptive"


class OutriderContender:
    """One engine, asked with one k or with several."""

    is_ours = True

    def __init__(
        self, name: str, engine: Engine, alone: Mapping[str, int | None],
        crowd: Mapping[str, int | None],
    ) -> None:  # fmt: skip
        """alone, crowd: setting to the requests' k, for one stream and for several."""
        self.name = name
        self.engine = engine
        self._alone = alone
        self._crowd = crowd

    def settings(self, work: Work) -> tuple[str, ...]:
        return tuple(self._ks(work))

    async def run(self, work: Work, setting: str) -> Outcome:
        k = self._ks(work)[setting]
        self.engine.statistics.reset()
        started = time.perf_counter()
        if work.num_streams == 1:
            ids = [await self._text(work, number, k) for number in range(len(work.prompts))]
        else:
            texts = (self._text(work, number, k) for number in range(len(work.prompts)))
            ids = await asyncio.gather(*texts)
        seconds = time.perf_counter() - started
        return Outcome(seconds, tuple(ids), self.engine.statistics.snapshot())

    async def close(self) -> None:
        await self.engine.stop()

    def _ks(self, work: Work) -> Mapping[str, int | None]:
        return self._alone if work.num_streams == 1 else self._crowd

    async def _text(self, work: Work, number: int, k: int | None) -> Ids:
        sampling = SamplingParams(work.temperature, max_tokens=work.num_tokens, ignores_eos=True)
        speculation = SpeculationParams(k=k)
        request = Request(work.prompts[number], sampling, seed=number, speculation=speculation)
        return tuple([i async for chunk in self.engine.generate(request) for i in chunk.token_ids])


async def outriders(
    target: Path, draft: Path | None, num_threads: int, kv_tokens: int
) -> list[OutriderContender]:
    """Those that so many threads allow: where there is one, the draft cannot ride ahead. A target
    alone is served as it comes, and plainly.
    """
    # Nobody else has the prompts' KV from one repeat to the next.

    def config(num_threads: int | Literal["auto"]) -> EngineConfig:
        options = EngineOptions(
            kv_tokens=kv_tokens, has_prefix_cache=False, num_threads=num_threads
        )
        return EngineConfig(target, draft, options)

    if draft is None:
        engine = await Engine.start(config("auto"), ProcessExecutor())
        return [
            OutriderContender(PLAIN, engine, {"": 0}, {"": 0}),
            OutriderContender(DEFAULT, engine, {"": None}, {"": None}),
        ]
    inline = await Engine.start(config(num_threads), InlineExecutor())
    lockstep = {ADAPTIVE: None} | {f"k={k}": k for k in KS}
    found = [
        OutriderContender(PLAIN, inline, {"": 0}, {"": 0}),
        OutriderContender(LOCKSTEP, inline, lockstep, {ADAPTIVE: None}),
    ]
    if num_threads > 1:
        default = await Engine.start(config("auto"), ProcessExecutor())
        found.append(OutriderContender(DEFAULT, default, {"": None}, {"": None}))
    return found
