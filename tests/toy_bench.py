"""A coordinator between two toys."""

import itertools

import toy
from toy_workers import Place

from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.scheduling.request import FinishReason, Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.scheduling.scheduler import Scheduler, SchedulerConfig
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.spec_decode.proposer import Proposer
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace


class NoText:
    """Stop rules without text: ends at a token or at the length."""

    def __init__(self, end=None):
        self.end = end

    def cut(self, ids, num_left):
        for count, token in enumerate(ids, start=1):
            if token == self.end:
                return ids[:count], FinishReason.STOP
            if count == num_left:
                return ids[:count], FinishReason.LENGTH
        return ids, None

    def text(self, ids, reason):
        return ""


def proposing(k, scheduler, statistics, drafters=()):
    length = DraftLength()
    draft = LockstepDraft(length, scheduler.limits.token_budget, Trace())
    return Proposer(draft, length, FixedController(k), statistics, drafters)


class Bench:
    """A coordinator between two toys."""

    def __init__(self, k=4, period=3, has_draft=True, target_rules=None, clock=None, **limits):
        num_pages = limits.setdefault("num_pages", 1000)
        self.targets = Place("target", lambda: toy.ToyTarget(num_pages))
        self.drafts = Place("draft", lambda: toy.ToyDraft(period))
        self.statistics = Statistics()
        self.scheduler = Scheduler(
            SchedulerConfig(
                **{"page_size": 16, "max_batch": 8, "max_waiting": 99, "token_budget": 64} | limits
            )
        )
        self.num_seqs = 0
        ticks = itertools.count()
        self.supervisors = [
            self.targets.supervisor(**{"first_backoff_s": 0.0} | (target_rules or {}))
        ]
        if has_draft:
            self.supervisors.append(self.drafts.supervisor(max_losses=99, first_backoff_s=0.0))
        self.coordinator = Coordinator(
            self.supervisors[0],
            self.supervisors[1] if has_draft else None,
            proposing(k, self.scheduler, self.statistics),
            self.scheduler,
            self.statistics,
            clock=clock or (lambda: next(ticks) / 1000),
            trace=Trace(),
        )

    @property
    def target(self):
        return self.targets.worker

    @property
    def draft(self):
        return self.drafts.worker

    async def __aenter__(self):
        for supervisor in self.supervisors:
            await supervisor.start()
        self.coordinator.start()
        return self

    async def __aexit__(self, *_):
        await self.coordinator.stop()
        for supervisor in self.supervisors:
            await supervisor.stop()

    def submit(self, prompt=(1, 2, 3), max_tokens=20, end=None, rules=None, **speculation):
        sampling = SamplingParams(max_tokens=max_tokens)
        request = Request(tuple(prompt), sampling, 0, 0, SpeculationParams(**speculation))
        self.num_seqs += 1
        sequence = Sequence(self.num_seqs, request, len(prompt) + max_tokens)
        return self.coordinator.submit(sequence, rules or NoText(end))

    async def ids(self, *args, **kwargs):
        return [i async for chunk in self.submit(*args, **kwargs) for i in chunk.token_ids]
