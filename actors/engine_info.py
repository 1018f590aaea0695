"""What an engine says of itself, once loaded."""

from dataclasses import dataclass


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
    verdicts: str  # whose kernels judge, and why
    fingerprint: str
    pipeline: str  # in effect: "forecast" | "lockstep"
    has_ngram: bool
    has_prefix_cache: bool
    k: int  # the controller's first
    verification: str
