"""The engine: two workers, a coordinator and a tokenizer, started in order and stopped without a
trace.

What `outrider generate`, the HTTP routes and the tests talk to. Knows where workers live only as a
Wiring.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from outrider.actors.coordinator import Coordinator
from outrider.actors.errors import InvalidConfig, InvalidRequest, OutriderError, ShuttingDown
from outrider.actors.messages import Describe, Description
from outrider.actors.request import Request
from outrider.actors.sampling import MAX_K, VerificationMode
from outrider.actors.scheduler import Limits, Scheduler
from outrider.actors.statistics import Statistics
from outrider.actors.stream import ChunkStream
from outrider.actors.text.stop_rules import StopRules
from outrider.actors.text.tokenizer import Tokenizer, check_vocabularies
from outrider.actors.wire.paired import PairedDraft
from outrider.actors.wire.peer import Peer
from outrider.actors.wiring import Wiring, WorkerSpec

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the operator chose. Raises InvalidConfig."""

    target: Path
    draft: Path | None = None
    k: int = 4  # drafted tokens a round, unless the request says
    verification: VerificationMode = VerificationMode.COUPLED
    numerics: Literal["auto", "exact", "fast"] = "auto"
    device: str = "auto"
    dtype: str = "auto"
    kv_tokens: int = 32768  # KV rows of each worker's pool
    max_batch: int = 64  # sequences running at once
    max_waiting: int = 256  # sequences queued behind them
    token_budget: int = 256  # tokens of one target forward
    num_threads: int = 1  # of each worker
    is_paired: bool = False  # draft and target in one process: lockstep on one device or core

    def __post_init__(self) -> None:
        if not 0 <= self.k <= MAX_K:
            raise InvalidConfig(f"Got k={self.k}, expected 0 ≤ k ≤ {MAX_K}")
        if self.numerics not in ("auto", "exact", "fast"):
            raise InvalidConfig(f"Got numerics={self.numerics!r}, accepted: auto, exact, fast")
        for name in ("kv_tokens", "max_batch", "max_waiting", "token_budget", "num_threads"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"Got {name}={getattr(self, name)}, expected at least 1")


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is served, once loaded."""

    target: str
    draft: str | None
    vocab_size: int
    context_len: int
    eos_ids: tuple[int, ...]
    numerics: str  # in effect
    numerics_reason: str  # why not exact, or empty
    fingerprint: str
    k: int
    verification: str


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One worker."""

    role: str
    pid: int
    state: Literal["up", "lost"]


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """Whether requests are served, and by whom."""

    status: Literal["ok", "degraded", "failed"]
    reason: str
    workers: tuple[WorkerHealth, ...]
    num_waiting: int
    num_running: int


class Engine:
    """A running engine; made by `start`, ended by `stop`."""

    def __init__(
        self,
        info: EngineInfo,
        tokenizer: Tokenizer,
        coordinator: Coordinator,
        scheduler: Scheduler,
        statistics: Statistics,
        peers: Sequence[Peer],
        resources: AsyncExitStack,
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self.statistics = statistics
        self._coordinator = coordinator
        self._scheduler = scheduler
        self._peers = tuple(peers)
        self._resources = resources
        self._is_stopping = False

    @classmethod
    async def start(
        cls, config: EngineConfig, wiring: Wiring, progress: Progress = _silent
    ) -> "Engine":
        """Load everything. Raises OutriderError, with nothing left running."""
        async with AsyncExitStack() as resources:
            resources.push_async_callback(wiring.close)
            tokenizer = _load_tokenizers(config, progress)
            peers, facts = await _start_workers(config, tokenizer, wiring, progress)
            target, draft = peers[0], peers[1] if config.draft is not None else None
            limits = Limits(
                facts.num_pages,
                facts.page_size,
                config.max_batch,
                config.max_waiting,
                config.token_budget,
            )
            scheduler, statistics = Scheduler(limits), Statistics()
            coordinator = Coordinator(
                target, draft, scheduler, statistics, config.k, time.perf_counter
            )
            coordinator.start()
            resources.push_async_callback(coordinator.stop)
            info = _info_of(config, facts)
            kept = resources.pop_all()
            return cls(info, tokenizer, coordinator, scheduler, statistics, peers, kept)
        raise AssertionError("unreachable: the stack suppresses nothing")

    async def stop(self) -> None:
        """Fail what is still running with ShuttingDown, end the workers."""
        self._is_stopping = True
        await self._resources.aclose()

    def check(self, request: Request) -> None:
        """Raises InvalidRequest or Overloaded, before anything is begun for the request."""
        if self._is_stopping:
            raise ShuttingDown("The engine stops and takes no more requests")
        if not request.prompt_ids:
            raise InvalidRequest("Got an empty prompt, expected at least one token", "prompt")
        low, high = min(request.prompt_ids), max(request.prompt_ids)
        if low < 0 or high >= self.info.vocab_size:
            raise InvalidRequest(
                f"Got token id {low if low < 0 else high} in the prompt, "
                f"expected 0 ≤ id < {self.info.vocab_size}",
                "prompt",
            )
        self._check_length(request)
        k = request.speculation.k
        if k and request.speculation.is_enabled and self.info.draft is None:
            raise InvalidRequest(
                f"Got speculation.k={k}, accepted 0: this server runs no draft", "speculation.k"
            )

    def _check_length(self, request: Request) -> None:
        prompt_len, context_len = len(request.prompt_ids), self.info.context_len
        if prompt_len >= context_len:
            raise InvalidRequest(
                f"Got a prompt of {prompt_len} tokens, expected fewer than the context's "
                f"{context_len}",
                "prompt",
            )
        max_len = prompt_len + request.sampling.max_tokens
        if max_len > context_len:
            raise InvalidRequest(
                f"Got max_tokens={request.sampling.max_tokens} after a prompt of {prompt_len} "
                f"tokens, expected at most {context_len - prompt_len} in a context of "
                f"{context_len}",
                "max_tokens",
            )
        self._scheduler.check(max_len)

    def generate(self, request: Request) -> ChunkStream:
        """Begin a request; its chunks as they come. Raises as `check` does."""
        self.check(request)
        sampling = request.sampling
        ends = () if sampling.ignores_eos else self.info.eos_ids
        text = self.tokenizer.stream(request.prompt_ids, sampling.stop)
        rules = StopRules(text, (*ends, *sampling.stop_token_ids))
        max_len = len(request.prompt_ids) + sampling.max_tokens
        return self._coordinator.submit(request, rules, max_len)

    def health(self) -> EngineHealth:
        """How it stands now."""
        coordinator = self._coordinator
        workers = tuple(
            WorkerHealth(peer.role, peer.pid, "lost" if peer.is_lost else "up")
            for peer in self._peers
        )
        status: Literal["ok", "degraded", "failed"] = "ok"
        reason = ""
        if coordinator.failure is not None:
            status, reason = "failed", str(coordinator.failure)
        elif coordinator.drafting.loss:
            status, reason = "degraded", coordinator.drafting.loss
        elif lost := [worker.role for worker in workers if worker.state == "lost"]:
            status, reason = "degraded", f"lost while idle: {', '.join(lost)}"
        return EngineHealth(
            status, reason, workers, coordinator.num_waiting, coordinator.num_running
        )


def _load_tokenizers(config: EngineConfig, progress: Progress) -> Tokenizer:
    progress("loading the tokenizer")
    tokenizer = Tokenizer(config.target)
    if config.draft is not None:
        check_vocabularies(tokenizer, Tokenizer(config.draft))
    return tokenizer


async def _start_workers(
    config: EngineConfig, tokenizer: Tokenizer, wiring: Wiring, progress: Progress
) -> tuple[list[Peer], Description]:
    """The target and, if there is one, the draft, loading side by side; the target's facts."""
    roles = ["target"] if config.draft is None or config.is_paired else ["target", "draft"]
    try:
        async with asyncio.TaskGroup() as group:
            starts = [
                group.create_task(_start_worker(role, config, tokenizer, wiring, progress))
                for role in roles
            ]
    except* OutriderError as failures:
        raise failures.exceptions[0] from None
    peers, facts = [start.result()[0] for start in starts], starts[0].result()[1]
    if config.draft is not None and config.is_paired:
        peers.append(PairedDraft(peers[0]))
    return peers, facts


async def _start_worker(
    role: str, config: EngineConfig, tokenizer: Tokenizer, wiring: Wiring, progress: Progress
) -> tuple[Peer, Description]:
    model = config.target if role == "target" else config.draft
    assert model is not None
    progress(f"loading the {role} from {model}")
    started = time.perf_counter()
    spec = WorkerSpec(
        role=role,
        model=str(model),
        num_target_ids=max(tokenizer.vocabulary.values()) + 1,
        num_tokens=config.kv_tokens,
        device=config.device,
        dtype=config.dtype,
        numerics=config.numerics,
        num_threads=config.num_threads,
        paired_draft=str(config.draft) if config.draft is not None and config.is_paired else None,
    )
    peer = await wiring.start(spec)
    facts = cast(Description, await peer.call(Describe()))
    detail = f"numerics {facts.numerics}"
    if facts.numerics_reason:
        detail += f": {facts.numerics_reason}"
    progress(
        f"{role} ready in {time.perf_counter() - started:.1f} s: "
        f"{facts.num_parameters / 1e6:.1f}M parameters, {facts.dtype} on {facts.device}, {detail}"
    )
    return peer, facts


def _info_of(config: EngineConfig, facts: Description) -> EngineInfo:
    return EngineInfo(
        target=facts.model,
        draft=None if config.draft is None else config.draft.name,
        vocab_size=facts.vocab_size,
        context_len=facts.context_len,
        eos_ids=facts.eos_ids,
        numerics=facts.numerics,
        numerics_reason=facts.numerics_reason,
        fingerprint=facts.fingerprint,
        k=config.k,
        verification=config.verification.value,
    )
