"""The engine: two workers, a coordinator and a tokenizer, started in order and stopped without a
trace.

What `outrider generate`, the HTTP routes and the tests talk to. Knows where workers live only as
an Executor.
"""

import asyncio
import time
from collections.abc import Sequence as Many
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from outrider.actors.engine.config import EngineConfig
from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.engine.info import EngineHealth, EngineInfo, info_of, told
from outrider.actors.engine.request_check import GrammarCheck, check
from outrider.actors.engine.streams import OutputStream, over
from outrider.actors.errors import InvalidRequest, OutriderError, ShuttingDown
from outrider.actors.executor.executor import Executor
from outrider.actors.executor.placing import Placed, Wish, place
from outrider.actors.executor.supervisor import RestartPolicy, WorkerState
from outrider.actors.executor.worker_group import Progress, WorkerGroup
from outrider.actors.heads.footprint import head_footprint
from outrider.actors.lookahead.controller import Pipeline
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.scheduling.request import OutputDelta, Request
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.actors.scheduling.scheduler import Scheduler, SchedulerConfig
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.sizing.footprint import footprint
from outrider.actors.sizing.machine import this_machine
from outrider.actors.sizing.memory import TREE_TOKENS, Pair, cpu_tokens
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.colocated import ColocatedDraft
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.drafters.registry import DrafterSettings
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.spec_decode.proposer import DraftClient, Proposer
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.text.stopping_criteria import StoppingCriteria
from outrider.actors.transport.messages import WorkerInfo
from outrider.actors.transport.worker_spec import WorkerSpec

if TYPE_CHECKING:
    from outrider.actors.text.tokenizer import Tokenizer


def _silent(_: str) -> None:
    pass


class Engine:
    """A running engine; made by `start`, ended by `stop`."""

    def __init__(
        self,
        info: EngineInfo,
        tokenizer: "Tokenizer",
        coordinator: Coordinator,
        scheduler: Scheduler,
        statistics: Statistics,
        worker_group: WorkerGroup,
        resources: AsyncExitStack,
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self.statistics = statistics
        self._coordinator = coordinator
        self._scheduler = scheduler
        self._worker_group = worker_group
        self._resources = resources
        self._is_stopping = False
        self._num_seqs = 0
        self._grammars = GrammarCheck(worker_group.target, worker_group.draft, info.eos_ids)

    @classmethod
    async def start(
        cls, config: EngineConfig, executor: Executor, progress: Progress = _silent
    ) -> "Engine":
        """Load everything. Raises OutriderError, with nothing left running."""
        async with AsyncExitStack() as resources:
            resources.push_async_callback(executor.close)
            wish = _wish(config, executor)
            await executor.prepare("target")
            tokenizer, placed = await _read_and_place(config, wish, executor, progress)
            supervision = RestartPolicy(deadline_s=config.options.worker_deadline_s)
            worker_group = WorkerGroup(placed, executor, supervision, progress)
            resources.push_async_callback(worker_group.stop)
            await worker_group.start()
            target_info = worker_group.target_info
            limits = _limits(config, target_info, executor)
            if worker_group.draft is not None:  # the target's is told with each of its steps
                worker_group.expect("draft", limits.token_budget)
            scheduler, statistics = Scheduler(limits), Statistics()
            is_pair = any(spec.is_pair for spec in placed.specs)
            pipeline = _pipeline(config, is_pair)
            trace = resources.enter_context(Trace(config.options.trace))
            proposer = _proposer(config, is_pair, pipeline, limits.token_budget, statistics, trace)
            coordinator = Coordinator(
                worker_group.target,
                worker_group.draft,
                proposer,
                scheduler,
                statistics,
                time.monotonic,
                trace,
                is_colocated=is_pair,
                token_s=target_info.token_s,
            )
            coordinator.start()
            resources.push_async_callback(coordinator.stop)
            info = info_of(config, target_info, pipeline, limits, placed.placement)
            for line in told(info):
                progress(line)
            kept = resources.pop_all()
            return cls(info, tokenizer, coordinator, scheduler, statistics, worker_group, kept)
        raise AssertionError("unreachable: the stack suppresses nothing")

    async def stop(self) -> None:
        """Fail what is still running with ShuttingDown, end the workers."""
        self._is_stopping = True
        await self._resources.aclose()

    def check(self, request: Request) -> None:
        """Raises InvalidRequest or Overloaded, before anything is begun for the request."""
        if self._is_stopping:
            raise ShuttingDown("The engine stops and takes no more requests")
        check(request, self.info)
        self._scheduler.check_room(1, request.tenant)

    def check_room(self, requests: Many[Request]) -> None:
        """Raises Overloaded unless all of them find room in the queue: half an answer is none."""
        self._scheduler.check_room(len(requests), requests[0].tenant)

    async def check_grammar(self, grammar: Grammar, timeout_s: float) -> None:
        """Have the workers compile it. Raises as `GrammarCheck.compile`."""
        await self._grammars.compile(grammar, timeout_s)

    def generate(self, request: Request) -> OutputStream:
        """Begin a request; its chunks as they come. Raises as `check` does."""
        self.check(request)
        sampling, resumed = request.sampling, request.resumed
        is_endless = sampling.ignores_eos and sampling.grammar is None
        ends = () if is_endless else self.info.eos_ids
        text = self.tokenizer.stream(
            request.prompt_ids,
            sampling.stop,
            includes_stop=sampling.includes_stop,
            skips_special=sampling.skips_special,
        )
        rules = StoppingCriteria(text, (*ends, *sampling.stop_token_ids))
        max_len = len(request.prompt_ids) + sampling.max_tokens
        self._num_seqs += 1
        sequence = Sequence(self._num_seqs, request, max_len, self.info.eos_ids)
        if resumed is None or not resumed.output_ids:
            return self._coordinator.submit(sequence, rules)
        ids, reason = rules.cut(resumed.output_ids, sampling.max_tokens)
        known = rules.text(ids, reason)
        if resumed.text_len > len(known) or len(ids) < len(resumed.output_ids):
            raise InvalidRequest(
                f"Got {len(resumed.output_ids)} generated ids and text_len={resumed.text_len}, "
                f"expected at most {len(ids)} ids and {len(known)} characters of their text",
                "resume",
            )
        unsent = known[resumed.text_len :]
        if reason is not None:
            return over(OutputDelta((), (), unsent, finish_reason=reason))
        return self._coordinator.submit(sequence, rules, unsent)

    def health(self) -> EngineHealth:
        """How it stands now."""
        coordinator, workers = self._coordinator, self._worker_group.health()
        status: Literal["ok", "degraded", "failed"] = "ok"
        reasons = [f"{w.role} {w.state}: {w.reason}" for w in workers if w.state != WorkerState.UP]
        if failure := coordinator.draft_failure:
            reasons.append(f"the draft failed: {failure}")
        if reasons:
            status = "degraded"
        if coordinator.failure is not None:
            reasons.insert(0, str(coordinator.failure))
        if coordinator.failure is not None or self._worker_group.target.is_given_up:
            status = "failed"
        return EngineHealth(
            status,
            "; ".join(reasons),
            workers,
            coordinator.num_waiting,
            coordinator.num_running,
            coordinator.queue_age_s,
            coordinator.kv_usage,
        )


async def _read_and_place(
    config: EngineConfig, wish: Wish, executor: Executor, progress: Progress
) -> tuple["Tokenizer", Placed]:
    """Beside each other: tokenizers take a second or more, as a worker's begin does. Raises
    OutriderError.
    """
    specs = _specs(config, executor)
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(asyncio.to_thread(_load_tokenizers, config, progress))
            placing = group.create_task(place(*specs, wish, executor, progress, reading))
    except* OutriderError as failures:
        raise failures.exceptions[0] from None
    return reading.result(), placing.result()


def _load_tokenizers(config: EngineConfig, progress: Progress) -> "Tokenizer":
    from outrider.actors.text.tokenizer import Tokenizer, check_vocabularies

    progress("loading the tokenizer")
    tokenizer = Tokenizer(config.target)
    if config.used_draft is not None:
        check_vocabularies(tokenizer, Tokenizer(config.used_draft))
    return tokenizer


def _specs(config: EngineConfig, executor: Executor) -> tuple[WorkerSpec, WorkerSpec | None]:
    """Of the target, and of the draft if there is one; threads are not decided yet."""
    options = config.options
    num_tokens, batch = _num_tokens(config, executor), _batch(config, executor)
    target = WorkerSpec(
        role="target",
        model=str(config.target),
        num_target_ids=footprint(config.target).vocab_size,
        num_tokens=num_tokens,
        device=options.device,
        dtype=options.dtype,
        numerics=options.numerics,
        has_prefix_cache=options.has_prefix_cache,
        max_batch=batch,
        token_budget=0 if options.token_budget == "auto" else options.token_budget,
        head=options.head,
        min_head_score=options.min_head_score,
    )
    if config.used_draft is None:
        return target, None
    in_draft = num_tokens + batch * TREE_TOKENS if num_tokens else 0
    draft = replace(
        target,
        role="draft",
        model=str(config.used_draft),
        num_tokens=in_draft,
        device=options.device_of_draft,
    )
    return target, draft


def _num_tokens(config: EngineConfig, executor: Executor) -> int:
    """Rows of the target's pool; 0 where its worker finds out, on its device."""
    options = config.options
    asked = None if options.kv_tokens == "auto" else options.kv_tokens
    if executor.shares_device is not None and options.device != "cpu":
        return asked or 0
    draft = None if config.used_draft is None else footprint(config.used_draft)
    if options.head:
        draft = head_footprint(options.head, config.target)
    batch = _batch(config, executor)
    pair = Pair(footprint(config.target), draft, options.cpu_item_bytes, batch)
    return cpu_tokens(pair, this_machine().free_bytes, config.num_replicas, asked)


def _batch(config: EngineConfig, executor: Executor) -> int:
    return config.options.batch(on_device=executor.shares_device is not None)


def _limits(config: EngineConfig, target: WorkerInfo, executor: Executor) -> SchedulerConfig:
    options, batch = config.options, _batch(config, executor)
    return SchedulerConfig(
        target.num_pages,
        target.page_size,
        batch,
        options.max_waiting,
        options.budget(target.token_budget, batch),
        options.has_prefix_cache,
    )


def _wish(config: EngineConfig, executor: Executor) -> Wish:
    options = config.options
    is_colocated = None if options.is_colocated == "auto" else options.is_colocated
    if is_colocated is None and options.pipeline != "auto":
        is_colocated = options.pipeline == "lockstep"
    num_threads = None if options.num_threads == "auto" else options.num_threads
    return Wish(is_colocated, num_threads, config.num_replicas)


def _pipeline(config: EngineConfig, is_colocated: bool) -> Pipeline:
    """The one asked for; by default the draft rides ahead where it does not share a process."""
    if config.options.pipeline != "auto":
        return Pipeline(config.options.pipeline)
    return Pipeline.LOCKSTEP if is_colocated else Pipeline.AHEAD


def _proposer(
    config: EngineConfig,
    is_colocated: bool,
    pipeline: Pipeline,
    token_budget: int,
    statistics: Statistics,
    trace: Trace,
) -> Proposer:
    draft_length, options = DraftLength(config.drafter), config.options
    is_fixed = options.lookahead == "fixed"
    prices = None if is_fixed else PriceController(is_lockstep=is_colocated)
    controller = prices or FixedController(options.k)
    draft: DraftClient
    if is_colocated:
        draft = ColocatedDraft(draft_length, prices, statistics, trace)
    elif is_fixed and pipeline is Pipeline.LOCKSTEP:
        draft = LockstepDraft(draft_length, token_budget, trace)
    else:
        draft = AheadDraft(draft_length, prices, statistics, trace)
    settings = DrafterSettings(options.suffix_bytes, options.shares_suffixes)
    return Proposer(draft, draft_length, controller, statistics, options.chosen_drafters, settings)
