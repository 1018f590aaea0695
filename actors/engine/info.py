"""What an engine says of itself, once loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.errors import InvalidConfig
from outrider.actors.executor.supervisor import WorkerHealth
from outrider.actors.lookahead.controller import Pipeline
from outrider.actors.scheduling.sampling_defaults import sampling_defaults
from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.scheduling.scheduler import SchedulerConfig
from outrider.actors.sizing.found import ASKED, Found, table
from outrider.actors.sizing.placement import Placement
from outrider.actors.spec_decode.drafters.registry import Place
from outrider.actors.transport.messages import WorkerInfo


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is served, once loaded."""

    target: str
    draft: str | None
    vocab_size: int
    context_len: int  # the model's own
    max_model_len: int  # prompt and output together: of the context, what the KV pool holds
    eos_ids: tuple[int, ...]
    numerics: str  # in effect
    numerics_reason: str  # why not exact, or empty
    verdicts: str  # whose kernels judge, and why
    fingerprint: str
    sizes: tuple[Found, ...]  # placement, memory, batch: as asked, or found and from what
    pipeline: str  # in effect: "ahead" | "lockstep"
    drafters: tuple[str, ...]  # names of the registry, in order of preference
    has_prefix_cache: bool
    k: int  # the controller's first
    sampling_defaults: Mapping[str, float]  # of requests that leave these fields open
    verification: str
    head_scores: tuple[tuple[str, float], ...] = ()  # see messages.WorkerInfo

    def size(self, name: str) -> str:
        return next(found.value for found in self.sizes if found.name == name)

    @property
    def kv_tokens(self) -> int:
        """Rows of the target's pool."""
        return int(self.size("kv_tokens"))

    @property
    def placement(self) -> str:
        """Where draft and target run, and with how many threads."""
        return self.size("placement")


def info_of(
    config: EngineConfig,
    worker: WorkerInfo,
    pipeline: Pipeline,
    limits: SchedulerConfig,
    placement: Placement,
) -> EngineInfo:
    """Raises InvalidConfig where no text would find room."""
    options = config.options
    if limits.max_len < 1:
        raise InvalidConfig(f"Got engine.kv_tokens={options.kv_tokens}, expected more than {MAX_K}")
    return EngineInfo(
        target=worker.model,
        draft=config.draft_name,
        vocab_size=worker.vocab_size,
        context_len=worker.context_len,
        max_model_len=min(worker.context_len, limits.max_len),
        eos_ids=worker.eos_ids,
        numerics=worker.numerics,
        numerics_reason=worker.numerics_reason,
        verdicts=worker.verdicts,
        fingerprint=worker.fingerprint,
        pipeline=pipeline.value,
        sizes=_sizes(options, worker, limits, placement),
        drafters=tuple(
            chosen.kind.name
            for chosen in options.chosen_drafters
            if chosen.kind.place is not Place.DRAFT or config.used_draft is not None
        ),
        has_prefix_cache=options.has_prefix_cache,
        k=options.k,
        sampling_defaults={}
        if options.generation_config == "none"
        else sampling_defaults(config.target),
        verification=options.verification.value,
        head_scores=worker.head_scores,
    )


def _sizes(
    options: EngineOptions, worker: WorkerInfo, limits: SchedulerConfig, placement: Placement
) -> tuple[Found, ...]:
    pool = limits.num_pages * limits.page_size
    longest = min(worker.context_len, limits.max_len)
    budget_reason = "by timed forwards: more at once read prompts hardly faster"
    if not worker.token_budget:
        budget_reason = "no forwards were timed in this process"
    is_whole = longest == worker.context_len
    where = "a GPU" if worker.device.startswith("cuda") else "cores"
    rows = (
        ("placement", placement.name, placement.reason, ""),
        ("device", f"{worker.device}, {worker.dtype}", "what there is", options.device),
        *(("steps", how, why, "") for how, why in (worker.steps,) if how),
        ("kv_tokens", pool, "by the memory that is free", options.kv_tokens),
        (
            "max_model_len",
            longest,
            "the model's context"
            if is_whole
            else f"kv_tokens; the context is {worker.context_len}",
            "",
        ),
        ("max_batch", limits.max_batch, f"on {where}", options.max_batch),
        ("token_budget", limits.token_budget, budget_reason, options.token_budget),
    )
    return tuple(
        Found(name, str(value), reason if asked in ("", "auto") else ASKED)
        for name, value, reason, asked in rows
    )


def told(info: EngineInfo) -> Iterator[str]:
    """What was found at the start, in the words of who serves."""
    yield "sizes, asked for or found:"
    for line in table(info.sizes):
        yield f"  {line}"
    pool, batch = info.kv_tokens, int(info.size("max_batch"))
    yield (
        f"room for {min(batch, pool // info.max_model_len)} texts of {info.max_model_len} tokens "
        f"at once, or {batch} of {pool // batch}"
    )
    if info.sampling_defaults:
        found = ", ".join(f"{name} {value:g}" for name, value in info.sampling_defaults.items())
        yield f"what requests leave open is as the target's generation_config says: {found}"


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """Whether requests are served, and by whom."""

    status: Literal["ok", "degraded", "failed"]
    reason: str
    workers: tuple[WorkerHealth, ...]
    num_waiting: int
    num_running: int
    queue_age_s: float  # how long the oldest of those that wait has waited
    kv_usage: float  # share of the target's pages that running sequences hold
