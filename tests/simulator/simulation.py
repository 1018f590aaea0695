"""The real coordinator between modelled workers, for so many seconds of virtual time."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from simulator.text import Text
from simulator.workers import ModelledDraft, ModelledTarget
from toy_bench import NoText

from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.executor.supervisor import RestartPolicy, Supervisor
from outrider.actors.lookahead.controller import Controller, Pipeline
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.scheduler import Scheduler, SchedulerConfig
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.forecast import ForecastDraft
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.spec_decode.proposer import Proposer
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace

PROMPT_LEN = 8
MAX_TOKENS = 10**6  # nobody finishes


@dataclass(frozen=True)
class World:
    """Seconds, and how well the draft guesses."""

    acceptance: float = 0.8
    hit: float = 0.9
    verify_s: Callable[[int], float] = lambda num_tokens: 0.012
    step_s: Callable[[int], float] = lambda num_tokens: 0.0015
    hop_s: float = 0.00005
    num_rows: int = 1


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    tokens_per_s: float
    target_idle: float  # share of the time
    num_lost: int  # tokens that were not the target's


class Simulation:
    """One engine's worth."""

    def __init__(self, world: World, pipeline: Pipeline, controller: Controller) -> None:
        self.statistics = Statistics()
        self._world = world
        self._text = Text(world.acceptance, world.hit)
        self._target = ModelledTarget(self._text, world.verify_s, world.hop_s)
        self._draft = ModelledDraft(self._text, world.step_s, world.hop_s)
        scheduler = Scheduler(SchedulerConfig(10**9, 16, 256, 256, 4096, has_prefix_cache=False))
        depth, trace = DraftLength(), Trace()
        draft = (
            ForecastDraft(depth, self.statistics, trace)
            if pipeline is Pipeline.FORECAST
            else LockstepDraft(depth, 4096, self.statistics, trace)
        )
        self._supervisors = [_supervisor(self._target), _supervisor(self._draft)]
        self._coordinator = Coordinator(
            *self._supervisors,
            Proposer(draft, depth, controller, self.statistics),
            scheduler,
            self.statistics,
            asyncio.get_running_loop().time,
            trace,
        )
        self._outputs: list[list[int]] = []

    async def run(self, seconds: float) -> Outcome:
        for supervisor in self._supervisors:
            await supervisor.start()
        self._coordinator.start()
        rows = range(self._world.num_rows)
        readers = [asyncio.create_task(self._read()) for _ in rows]
        await asyncio.sleep(seconds)
        num_tokens, busy_s = sum(map(len, self._outputs)), self._target.busy_s
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
        await self._coordinator.stop()
        for supervisor in self._supervisors:
            await supervisor.stop()
        await asyncio.gather(self._target.close(), self._draft.close())
        return Outcome(num_tokens / seconds, 1 - busy_s / seconds, self._num_lost())

    async def _read(self) -> None:
        output: list[int] = []
        self._outputs.append(output)
        request = Request((0,) * PROMPT_LEN, SamplingParams(max_tokens=MAX_TOKENS), seed=0)
        sequence = Sequence(len(self._outputs), request, PROMPT_LEN + MAX_TOKENS)
        stream = self._coordinator.submit(sequence, NoText())
        async with contextlib.aclosing(stream):
            async for chunk in stream:
                output += chunk.token_ids

    def _num_lost(self) -> int:
        return sum(
            token != self._text.token(seq_id, PROMPT_LEN + at)
            for seq_id, output in enumerate(self._outputs, start=1)
            for at, token in enumerate(output)
        )


def _supervisor(client):
    async def start():
        return client

    async def end():
        pass

    return Supervisor(client.role, start, end, RestartPolicy())
