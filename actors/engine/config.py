"""What an engine is started with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outrider.actors.errors import InvalidConfig
from outrider.actors.lookahead.fork_selection import WIDEST
from outrider.actors.scheduling.sampling_params import MAX_K, VerificationMode


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the operator chose. Raises InvalidConfig."""

    target: Path
    draft: Path | None = None
    k: int = 4  # drafted tokens a round: where the controller starts, or for good if 'fixed'
    verification: VerificationMode = VerificationMode.COUPLED
    numerics: Literal["auto", "exact", "fast"] = "auto"
    device: str = "auto"
    dtype: str = "auto"
    kv_tokens: int = 32768  # KV rows of each worker's pool
    max_batch: int = 64  # sequences running at once
    max_waiting: int = 256  # sequences queued behind them
    token_budget: int = 256  # tokens of one target forward
    num_threads: int = 1  # of each worker
    is_colocated: bool = False  # draft and target in one process: lockstep on one device or core
    pipeline: Literal["auto", "forecast", "lockstep"] = "auto"  # forecast where workers can overlap
    lookahead: Literal["adaptive", "simple", "fixed"] = "adaptive"  # who chooses k, from k on
    fan: int | None = None  # guesses per position of a forecast, on average, of lookahead 'fixed'
    has_ngram: bool = True  # copy from a sequence's own past where the draft has nothing
    has_prefix_cache: bool = True  # keep the KV of what ended, for prompts that begin alike
    trace: Path | None = None  # a timeline of every round is written here at the end
    worker_deadline_s: float = 30.0  # a worker that answers nothing for so long is replaced

    def __post_init__(self) -> None:
        if not 0 <= self.k <= MAX_K:
            raise InvalidConfig(f"Got k={self.k}, expected 0 ≤ k ≤ {MAX_K}")
        if self.numerics not in ("auto", "exact", "fast"):
            raise InvalidConfig(f"Got numerics={self.numerics!r}, accepted: auto, exact, fast")
        for name, accepted in (
            ("pipeline", ("auto", "forecast", "lockstep")),
            ("lookahead", ("adaptive", "simple", "fixed")),
        ):
            if (got := getattr(self, name)) not in accepted:
                raise InvalidConfig(f"Got {name}={got!r}, accepted: {', '.join(accepted)}")
        if self.is_colocated and self.pipeline == "forecast":
            raise InvalidConfig("Got is_colocated with pipeline='forecast', accepted: 'lockstep'")
        if self.fan is not None and self.lookahead != "fixed":
            raise InvalidConfig(
                f"Got fan={self.fan} with lookahead='{self.lookahead}', accepted: 'fixed'"
            )
        if self.fan is not None and not 1 <= self.fan <= WIDEST:
            raise InvalidConfig(f"Got fan={self.fan}, expected 1 ≤ fan ≤ {WIDEST}")
        for name in ("kv_tokens", "max_batch", "max_waiting", "token_budget", "num_threads"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"Got {name}={getattr(self, name)}, expected at least 1")
