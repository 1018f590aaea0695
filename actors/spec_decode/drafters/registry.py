"""Every kind of drafter by its name: the one in `engine.drafters`, chunks, metrics, /capabilities.

A drafter of the coordinator's follows one sequence and guesses from token ids alone. It learns from
`extend` only, and may leave something for later ones at its end. The verdict needs no probabilities
of its guesses.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from outrider.actors.errors import InvalidConfig
from outrider.actors.lookahead.round_report import DRAFT, NGRAM, PREDICTION
from outrider.actors.scheduling.request import Request
from outrider.actors.spec_decode.drafters import ngram, prediction
from outrider.actors.spec_decode.drafters.guess import Guess
from outrider.actors.spec_decode.drafters.suffix import SuffixStore

SUFFIX_BYTES = 64 << 20  # of all texts of before and their index: five million ids


class Drafter(Protocol):
    """Follows one sequence, whose request it was made for."""

    def extend(self, ids: Many[int]) -> None:
        """Take in ids that the sequence gained: every commit, in order."""
        ...

    def propose(self, max_tokens: int) -> Guess:
        """What comes next, so many tokens deep at most. Changes no later guess."""
        ...

    def end(self) -> None:
        """The sequence has ended."""
        ...


Follow = Callable[[Request], Drafter | None]  # None: no guesses


@dataclass(frozen=True, slots=True)
class DrafterSettings:
    """What the operator chose of them."""

    suffix_bytes: int = SUFFIX_BYTES
    shares_suffixes: bool = False


class Place(Enum):
    """Where a kind of drafter runs."""

    COORDINATOR = auto()  # in the engine's own process
    DRAFT = auto()  # in the draft worker


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """One kind."""

    name: str
    place: Place
    start: Callable[[DrafterSettings], Follow] | None = None  # once an engine; the coordinator's
    ignores_k: bool = False  # goes as far as it can see, whatever the round's k
    takes_path: bool = False  # NAME:PATH


def _suffixes(settings: DrafterSettings) -> Follow:
    return SuffixStore(settings.suffix_bytes, is_shared=settings.shares_suffixes).follow


DRAFTERS: Mapping[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind(PREDICTION, Place.COORDINATOR, lambda _: prediction.follow, ignores_k=True),
        DrafterKind(DRAFT, Place.DRAFT),
        DrafterKind("suffix", Place.COORDINATOR, _suffixes),
        DrafterKind(NGRAM, Place.COORDINATOR, lambda _: ngram.follow),
    )
}


@dataclass(frozen=True, slots=True)
class ChosenDrafter:
    """A kind, and the path that the operator gave it."""

    kind: DrafterKind
    path: Path | None = None


def chosen_drafters(names: Iterable[str]) -> tuple[ChosenDrafter, ...]:
    """Those of `engine.drafters`, KIND or KIND:PATH each. Raises InvalidConfig."""
    found: dict[str, ChosenDrafter] = {}
    for written in names:
        name, _, path = written.partition(":")
        kind = DRAFTERS.get(name)
        if kind is None:
            raise InvalidConfig(f"Got the drafter {name!r}, accepted: {', '.join(DRAFTERS)}")
        if name in found:
            raise InvalidConfig(f"Got the drafter {name!r} twice, expected it once")
        if kind.takes_path != bool(path):
            expected = f"{name}:PATH" if kind.takes_path else name
            raise InvalidConfig(f"Got the drafter {written!r}, expected {expected}")
        found[name] = ChosenDrafter(kind, Path(path) if path else None)
    return tuple(found.values())
