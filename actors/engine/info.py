"""What an engine says of itself, once loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from outrider.actors.executor.supervisor import WorkerHealth


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
    placement: str  # where draft and target run, with how many threads, and why
    kv_tokens: int  # rows of the target's pool
    pipeline: str  # in effect: "forecast" | "lockstep"
    drafters: tuple[str, ...]  # names of the registry, in order of preference
    has_prefix_cache: bool
    k: int  # the controller's first
    sampling_defaults: Mapping[str, float]  # of requests that leave these fields open
    verification: str


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
