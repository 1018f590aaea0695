"""Every kind of drafter by its name: the one in `engine.drafters`, chunks, metrics, /capabilities.

A drafter of the coordinator's follows one sequence and guesses from token ids alone. It learns from
`extend` only, and may leave something for later ones at its end. The verdict needs no probabilities
of its guesses.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from outrider.actors.errors import InvalidConfig
from outrider.actors.lookahead.round_report import (
    DRAFT,
    EAGLE,
    EAGLE3,
    EARLY_EXIT,
    MEDUSA,
    NGRAM,
    PREDICTION,
)
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
    TARGET = auto()  # in the target's worker, out of its hidden states


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """One kind."""

    name: str
    place: Place
    start: Callable[[DrafterSettings], Follow] | None = None  # once an engine; the coordinator's
    ignores_k: bool = False  # goes as far as it can see, whatever the round's k
    value: str = ""  # what stands behind a colon: NAME:PATH
    needs_value: bool = True  # or may be left out


def _suffixes(settings: DrafterSettings) -> Follow:
    return SuffixStore(settings.suffix_bytes, is_shared=settings.shares_suffixes).follow


DRAFTERS: Mapping[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind(PREDICTION, Place.COORDINATOR, lambda _: prediction.follow, ignores_k=True),
        DrafterKind(DRAFT, Place.DRAFT),
        DrafterKind("suffix", Place.COORDINATOR, _suffixes),
        DrafterKind(NGRAM, Place.COORDINATOR, lambda _: ngram.follow),
        *(DrafterKind(name, Place.TARGET, value="PATH") for name in (MEDUSA, EAGLE, EAGLE3)),
        DrafterKind(EARLY_EXIT, Place.TARGET, value="LAYERS", needs_value=False),
    )
}
# Those that need nothing that an operator would have to name.
USUAL_DRAFTERS = tuple(name for name, kind in DRAFTERS.items() if kind.place is not Place.TARGET)


@dataclass(frozen=True, slots=True)
class ChosenDrafter:
    """A kind, and the value that the operator gave it."""

    kind: DrafterKind
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind.name}:{self.value}" if self.value else self.kind.name


def chosen_drafters(names: Iterable[str]) -> tuple[ChosenDrafter, ...]:
    """Those of `engine.drafters`, KIND or KIND:VALUE each. Raises InvalidConfig."""
    found: dict[str, ChosenDrafter] = {}
    for written in names:
        name, _, value = written.partition(":")
        kind = DRAFTERS.get(name)
        if kind is None:
            raise InvalidConfig(f"Got the drafter {name!r}, accepted: {', '.join(DRAFTERS)}")
        if name in found:
            raise InvalidConfig(f"Got the drafter {name!r} twice, expected it once")
        if value and not kind.value:
            raise InvalidConfig(f"Got the drafter {written!r}, expected {name}")
        if kind.value and kind.needs_value and not value:
            raise InvalidConfig(f"Got the drafter {written!r}, expected {name}:{kind.value}")
        found[name] = ChosenDrafter(kind, value)
    heads = [each for each in found.values() if each.kind.place is Place.TARGET]
    if len(heads) > 1:
        raise InvalidConfig(f"Got {heads[0]} and {heads[1]}, expected one drafter of this place")
    return tuple(found.values())
