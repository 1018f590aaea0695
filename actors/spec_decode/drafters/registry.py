"""Every kind of drafter by its name: the one in `engine.drafters`, chunks, metrics, /capabilities.

A drafter of the coordinator's follows one sequence and guesses from token ids alone. It learns from
`extend` only. Its guesses are one-hot: the verdict needs no probabilities of them.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from outrider.actors.errors import InvalidConfig
from outrider.actors.lookahead.round_report import DRAFT, NGRAM
from outrider.actors.scheduling.request import Request
from outrider.actors.spec_decode.drafters import ngram, prediction


class Drafter(Protocol):
    """Follows one sequence, whose request it was made for."""

    agreed: int  # ids that the text and what is copied had in common just before, as last proposed

    def extend(self, ids: Many[int]) -> None:
        """Take in ids that the sequence gained: every commit, in order."""
        ...

    def propose(self, max_tokens: int) -> tuple[int, ...]:
        """Guesses of what comes next, none where there is nothing to go by. Changes nothing."""
        ...


class Place(Enum):
    """Where a kind of drafter runs."""

    COORDINATOR = auto()  # in the engine's own process
    DRAFT = auto()  # in the draft worker


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """One kind."""

    name: str
    place: Place
    follow: Callable[[Request], Drafter | None] | None = None  # the coordinator's; None: no guesses
    ignores_k: bool = False  # goes as far as it can see, whatever the round's k
    takes_path: bool = False  # NAME:PATH


DRAFTERS: Mapping[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind("prediction", Place.COORDINATOR, prediction.follow, ignores_k=True),
        DrafterKind(DRAFT, Place.DRAFT),
        DrafterKind(NGRAM, Place.COORDINATOR, ngram.follow),
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
