"""The engine alone, over what can be drafted: what was promised, and what came of it.

Only decoding is measured: from when every stream has begun until the first one has its tokens; none
ends there, so the batch is whole all the time. Draft and target take turns in this process.
"""

import asyncio
import time
from collections.abc import Iterator
from collections.abc import Sequence as Many
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from outrider.actors.engine.engine import Engine
from outrider.actors.errors import InvalidConfig
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import (
    SamplingParams,
    SpeculationParams,
    VerificationMode,
)
from outrider.cluster.bench.prompts import Ids
from outrider.cluster.bench.sweep.point import Point

MARGIN = 64  # tokens that streams go on for: none ends while others are measured


class DrafterChoice(StrEnum):
    """Who guesses."""

    NONE = "none"
    NGRAM = "ngram"
    DRAFT = "draft"
    TREE = "tree"  # all together, as much as the price says


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the sweep."""

    batch: int  # sequences at once
    temperature: float
    verification: VerificationMode
    drafter: DrafterChoice
    k: int | None  # None where the price decides


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """All points. Raises InvalidConfig."""

    batches: tuple[int, ...]
    ks: tuple[int, ...]
    drafters: tuple[DrafterChoice, ...]
    verifications: tuple[VerificationMode, ...]
    temperatures: tuple[float, ...]
    num_tokens: int

    def __post_init__(self) -> None:
        if min(self.batches) < 1:
            raise InvalidConfig(f"Got batch={min(self.batches)}, expected at least 1")
        if self.num_tokens < 16:
            raise InvalidConfig(f"Got tokens={self.num_tokens}, expected at least 16")
        if min(self.ks) < 1 or max(self.ks) > 16:
            raise InvalidConfig(f"Got k={list(self.ks)}, expected 1 ≤ k ≤ 16; 'none' is k=0")

    def cells(self) -> Iterator[Cell]:
        """Each point once: without a guess, or greedily, both verifications are the same."""
        for num_rows in self.batches:
            for temperature in self.temperatures:
                modes = self.verifications if temperature > 0 else self.verifications[:1]
                yield Cell(num_rows, temperature, modes[0], DrafterChoice.NONE, 0)
                for drafter in self.drafters:
                    for mode in modes if drafter is not DrafterChoice.NONE else ():
                        for k in self.ks if drafter is not DrafterChoice.TREE else (None,):
                            yield Cell(num_rows, temperature, mode, drafter, k)


async def measure(engine: Engine, cell: Cell, prompts: tuple[Ids, ...], num_tokens: int) -> Point:
    """One point, on an engine with that drafter."""
    most = num_tokens + MARGIN
    sampling = SamplingParams(cell.temperature, max_tokens=most, ignores_eos=True)
    speculation = SpeculationParams(k=cell.k, verification=cell.verification)
    batch = _Batch(cell.batch, num_tokens)
    tasks = [
        asyncio.create_task(
            batch.follow(engine, Request(ids, sampling, seed=number, speculation=speculation))
        )
        for number, ids in enumerate(prompts[: cell.batch])
    ]
    try:
        await batch.is_whole.wait()
        engine.statistics.reset()
        started = time.perf_counter()
        await batch.is_over.wait()
        return Point.of(cell.k, engine.statistics.snapshot(), time.perf_counter() - started)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Batch:
    """Streams that decode together."""

    def __init__(self, num_rows: int, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self.is_whole = asyncio.Event()  # all have begun
        self.is_over = asyncio.Event()  # the first has its tokens; all go on for a while
        self._num_waited_for = num_rows

    async def follow(self, engine: Engine, request: Request) -> None:
        is_first, num_left = True, self._num_tokens
        async with aclosing(engine.generate(request)) as chunks:
            async for chunk in chunks:
                self._num_waited_for -= is_first
                is_first = False
                if self._num_waited_for == 0:
                    self.is_whole.set()
                num_left -= len(chunk.token_ids)
                if num_left <= 0:
                    self.is_over.set()


def drafters(names: Many[str] | None, *, has_draft: bool) -> tuple[DrafterChoice, ...]:
    """Those named, or all that there are. Raises InvalidConfig."""
    there = [one for one in DrafterChoice if has_draft or one is not DrafterChoice.DRAFT]
    for name in names or ():
        if name not in there:
            raise InvalidConfig(f"Got drafter={name!r}, accepted: {', '.join(there)}")
    return tuple(DrafterChoice(name) for name in names) if names else tuple(there)
