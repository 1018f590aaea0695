"""Who is measured, on what, and what came of it: the words of every comparison.

Knows no model and no library.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.bench.prompts import Ids


@dataclass(frozen=True, slots=True)
class Work:
    """The same for everybody: each prompt is continued by so many tokens, whatever they are."""

    prompts: tuple[Ids, ...]
    num_tokens: int  # for each prompt
    temperature: float  # 0 is greedy
    num_streams: int  # 1: one prompt after another; else all of them at once

    @property
    def total_tokens(self) -> int:
        return len(self.prompts) * self.num_tokens

    def shortened(self, num_tokens: int) -> "Work":
        """The same beginning."""
        return replace(self, num_tokens=min(num_tokens, self.num_tokens))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    seconds: float  # from the first prompt handed over to the last token; loading is not in it
    ids: tuple[Ids, ...]  # the continuation of each prompt
    snapshot: Snapshot | None = None  # what Outrider counted meanwhile


class Contender(Protocol):
    """An engine with a pair of models in it."""

    name: str
    is_ours: bool

    def settings(self, work: Work) -> tuple[str, ...]:
        """The ways to run it on this work; none where it cannot. Of several the best count."""
        ...

    async def run(self, work: Work, setting: str) -> Outcome:
        """Raises OutriderError."""
        ...

    async def close(self) -> None:
        """Let go of models and processes."""
        ...


@dataclass(frozen=True, slots=True)
class Absent:
    """A contender that is not there, and what would bring it."""

    name: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}; {self.remedy}"
