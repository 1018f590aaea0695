"""Where texts that should be the same begin to differ."""

from dataclasses import dataclass

from outrider.cluster.bench.prompts import Ids


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of one contender's texts from another's."""

    num_equal: int
    num_texts: int
    first_at: int | None  # the earliest place, in tokens, over all texts; none if all are equal

    @classmethod
    def of(cls, ours: tuple[Ids, ...], theirs: tuple[Ids, ...]) -> "Divergence":
        """A text that ends early differs where it ends."""
        places = [
            place
            for one, other in zip(ours, theirs, strict=True)
            if (place := first_difference(one, other)) is not None
        ]
        return cls(len(ours) - len(places), len(ours), min(places, default=None))

    @property
    def is_none(self) -> bool:
        return self.first_at is None

    def __str__(self) -> str:
        if self.is_none:
            return f"{self.num_texts}/{self.num_texts} texts equal"
        return f"{self.num_equal}/{self.num_texts} texts equal, first at token {self.first_at}"


def first_difference(one: Ids, other: Ids) -> int | None:
    """The first place where they differ."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return None if len(one) == len(other) else min(len(one), len(other))
