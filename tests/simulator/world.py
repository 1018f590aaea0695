"""The real coordinator, proposer, controller and workers for so many rounds of virtual time."""

import asyncio
import contextlib
import gc
import itertools
from dataclasses import dataclass
from functools import partial

import torch
from simulator.machines import Machine
from simulator.policies import Setting
from simulator.recorded_runner import PAGE_SIZE, RecordedRunner
from simulator.texts import Text
from simulator.virtual_worker import Device, VirtualWorker, WorkerClock
from toy_bench import NoText
from virtual_time import VirtualLoop

from outrider.actors.engine.colocated import ColocatedDraftClient
from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.executor.supervisor import RestartPolicy, Supervisor
from outrider.actors.heads.loading import load_head
from outrider.actors.lookahead.controller import Pipeline
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.runner.model_loader import load_model
from outrider.actors.runner.runner import Runner
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.scheduler import Scheduler, SchedulerConfig
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.colocated import ColocatedDraft
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.drafters.registry import chosen_drafters
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.spec_decode.proposer import DraftClient, Proposer
from outrider.actors.telemetry.statistics import Snapshot, Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import WorkerInfo
from outrider.actors.workers.colocated import ColocatedWorker
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.head import HeadWorker
from outrider.actors.workers.target import TargetWorker
from outrider.kernels.torch_backend import backend_for

TOKEN_BUDGET = 512


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    tokens_per_s: float
    first_tokens_per_s: float  # of the rounds that do not count
    target_idle: float  # share of the time
    counts: Snapshot  # of the rounds that count
    texts: dict[int, tuple[int, ...]]  # by request


@dataclass(frozen=True)
class World:
    """A text on a machine."""

    machine: Machine
    text: Text
    temperature: float = 0.0
    num_rows: int = 1

    def run(self, setting: Setting, num_first: int, num_rounds: int) -> Outcome:
        """So many rounds that do not count, then those that do."""

        async def whole() -> Outcome:
            return await _Run(self, setting).run(num_first, num_rounds)

        gc.freeze()  # else the collector goes over all that was recorded
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(whole())


class _Run:
    def __init__(self, world: World, setting: Setting) -> None:
        self._world, self._loop = world, asyncio.get_running_loop()
        self.statistics, self._texts = Statistics(), {}
        machine, text = world.machine, world.text
        self._device = Device()
        beside = self._device if machine.is_shared else Device(machine.gone)
        clock, draft_clock = WorkerClock(self._device), WorkerClock(beside)
        if setting.is_colocated:
            draft_clock = clock
        draft = None
        if setting.head:
            target, draft = _with_head(text, machine, clock)
        else:
            target = _worker(TargetWorker, "target", text.target, machine.target_s, clock)
        if text.draft is not None and not setting.head:
            draft = _worker(DraftWorker, "draft", text.draft, machine.draft_s, draft_clock)
        far_s = machine.hop_s if machine.draft_hop_s is None else machine.draft_hop_s
        if setting.is_colocated:
            pair = VirtualWorker(ColocatedWorker(target, draft), clock, machine.hop_s)
            self._clients = [pair, ColocatedDraftClient(pair)]
        else:
            takes = partial(_take, beside, machine.host_s) if machine.host_s else None
            self._clients = [VirtualWorker(target, clock, machine.hop_s, takes)]
            if text.draft is not None:
                self._clients.append(VirtualWorker(draft, draft_clock, far_s))
        num_pages, context = target.runner.pool.num_pages, target.runner.context_len
        self._context = context
        limits = SchedulerConfig(num_pages, PAGE_SIZE, 256, 4096, TOKEN_BUDGET)
        scheduler = Scheduler(limits)
        length, trace = DraftLength(setting.head or DRAFT), Trace()
        controller = setting.controller()
        source: DraftClient
        prices = controller if isinstance(controller, PriceController) else None
        if setting.is_colocated:
            source = ColocatedDraft(length, prices, self.statistics, trace)
        elif setting.pipeline is Pipeline.AHEAD:
            source = AheadDraft(length, prices, self.statistics, trace)
        else:
            source = LockstepDraft(length, TOKEN_BUDGET, trace)
        proposer = Proposer(
            source,
            length,
            controller,
            self.statistics,
            chosen_drafters(text.head if own == setting.head else own for own in setting.drafters),
        )
        self._supervisors = [_supervisor(client) for client in self._clients]
        self._coordinator = Coordinator(
            self._supervisors[0],
            self._supervisors[1] if draft is not None else None,
            proposer,
            scheduler,
            self.statistics,
            self._loop.time,
            trace,
            is_colocated=setting.is_colocated,
        )
        self._num_tokens = 0
        self._marks: list[tuple[float, int, float]] = []
        self._is_over = asyncio.Event()

    async def run(self, num_first: int, num_rounds: int) -> Outcome:
        for supervisor in self._supervisors:
            await supervisor.start()
        self._coordinator.start()
        ends = [num_first, num_rounds]
        numbers = itertools.count()
        rows = range(self._world.num_rows)
        # Streams begin at different places, as if they had run for long: their prompts come apart.
        most = self._world.text.max_tokens
        begun = [max(1, most * (row + 1) // len(rows)) for row in rows]
        readers = [asyncio.create_task(self._stream(numbers, ends, each)) for each in begun]
        over = asyncio.create_task(self._is_over.wait())
        workers = [each.running for each in self._clients if isinstance(each, VirtualWorker)]
        watched = [*workers, *readers]
        await asyncio.wait([over, *watched], return_when=asyncio.FIRST_COMPLETED)
        for task in watched:
            if task.done():
                task.result()  # raises what it failed of
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
        await self._coordinator.stop()
        for supervisor in self._supervisors:
            await supervisor.stop()
        await asyncio.gather(*(client.close() for client in self._clients))
        (at, num_before, busy_s), (end, num_tokens, end_busy_s) = self._marks
        seconds = end - at
        return Outcome(
            (num_tokens - num_before) / seconds,
            num_before / at if at else 0.0,
            1 - (end_busy_s - busy_s) / seconds,
            self._counts,
            self._texts,
        )

    async def _stream(self, numbers, ends: list[int], num_left: int) -> None:
        """One request after another; of the first so many tokens are left."""
        text, prompts = self._world.text, self._world.text.prompts
        for number in numbers:
            sampling = SamplingParams(
                temperature=self._world.temperature, max_tokens=num_left, ignores_eos=True
            )
            which = number % (len(prompts) * text.num_seeds)
            expected = text.predictions[which % len(prompts)] if text.predictions else ()
            request = Request(
                prompts[which % len(prompts)], sampling, seed=which, prediction_ids=expected
            )
            length = min(len(request.prompt_ids) + num_left, self._context)
            sequence = Sequence(number + 1, request, length)
            output: list[int] = []
            async with contextlib.aclosing(self._coordinator.submit(sequence, NoText())) as chunks:
                async for chunk in chunks:
                    output += chunk.token_ids
                    self._count(len(chunk.token_ids), ends)
            if num_left == text.max_tokens:
                known = self._texts.setdefault(which, tuple(output))
                assert known == tuple(output), f"request {which} was answered in two ways"
            num_left = text.max_tokens

    def _count(self, num_tokens: int, ends: list[int]) -> None:
        self._num_tokens += num_tokens
        counts = self.statistics.snapshot()
        if len(self._marks) < len(ends) and counts.num_target_passes >= ends[len(self._marks)]:
            self._counts = counts
            self.statistics.reset()
            self._marks.append((self._loop.time(), self._num_tokens, self._device.busy_s))
            if len(self._marks) == len(ends):
                self._is_over.set()


def _with_head(text, machine, clock):
    """The models themselves, in a machine's seconds: a head reads states that nobody recorded."""
    runner = Runner(load_model(text.target.runner.loaded.path), num_tokens=1 << 14)
    kind, _, path = text.head.partition(":")
    head = load_head(kind, path, runner, 0.0)
    backend, info = backend_for(torch.device("cpu")), _info("target", runner)
    target = TargetWorker(runner, backend, info, clock=clock)
    draft = HeadWorker(head, target, shares_pages=True)
    for timed, seconds_of in ((runner, machine.target_s), (head.runner, machine.draft_s)):
        timed.forward = partial(_timed, timed.forward, seconds_of, clock)
    return target, draft


def _timed(forward, seconds_of, clock, chunks):
    logits = forward(chunks)
    num_tokens = sum(len(chunk.tokens) for chunk in chunks)
    clock.spend(seconds_of(num_tokens, sum(chunk.cache.len for chunk in chunks)))
    return logits


def _worker(kind, role, recording, seconds_of, clock):
    runner = RecordedRunner(recording, seconds_of, clock)
    info = _info(role, runner)
    backend = backend_for(recording.runner.loaded.model.device)
    if kind is DraftWorker:
        return DraftWorker(runner, backend, info, runner.vocab_size, clock=clock)
    return TargetWorker(runner, backend, info, clock=clock)


def _info(role, runner):
    return WorkerInfo(
        role=role,
        pid=1,
        model=role,
        num_parameters=1,
        vocab_size=runner.vocab_size,
        context_len=runner.context_len,
        eos_ids=(),
        device="cpu",
        dtype="float32",
        numerics="exact",
        numerics_reason="",
        verdicts="",
        fingerprint="",
        page_size=PAGE_SIZE,
        num_pages=runner.pool.num_pages,
    )


def _take(device, seconds, now):
    """The rest of a round is done on it."""
    device.end_of(now, seconds)


def _supervisor(client):
    async def start():
        return client

    async def end():
        pass

    return Supervisor(client.role, start, end, RestartPolicy())
