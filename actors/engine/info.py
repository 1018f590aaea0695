"""What an engine says of itself, once loaded."""

from collections.abc import Iterator, Mapping
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


def told(info: EngineInfo, max_batch: int) -> Iterator[str]:
    """What was found at the start, in the words of who serves."""
    most, longest = info.kv_tokens, info.max_model_len
    at_once = min(max_batch, most // longest)
    rest = "" if longest == info.context_len else f" (the model's context is {info.context_len})"
    yield (
        f"room for {most} tokens: {at_once} texts of the longest, {longest} tokens{rest}, or "
        f"{max_batch} of {most // max_batch}"
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
