"""Which outcomes of a proposal a forecast bets on: the likeliest, by what the draft thinks of them.

Where the draft is sure of a token the target hardly ever draws another, and a branch behind another
would only slow the rest. So bets are placed where they are likeliest to come true, few in one
forecast and many in the next, and on average about as many as were asked for. The constants were
measured on the demo pair, greedily and at temperatures 0.7 and 1, on what it was taught and on what
it was not; how often another draft is wrong while it is sure is learned.

In rejection mode a branch must not be there, or be longer, for what was drawn: positions share
their noise with the branches beside them. There bets go by rank alone, and all of them grow.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDEST = 7  # bets at one position
DOUBTED = 0.7  # of the draft's doubt, 1 - prob: how often the target draws another token
CHANCES = tuple(0.4 / rank**1.5 for rank in range(1, WIDEST + 1))  # of each other guess, then
UNSEEN = 0.86  # chance of the first where only ranks count
UNKNOWN = -1  # a guess that is not there yet
MOST = 2  # times as many as asked for, in one forecast
FIRST_CHANCE, LEAST_CHANCE, MOST_CHANCE = 0.03, 1e-4, 0.5
PACE = 0.1  # how fast the chance that is asked for follows what that led to
SLOWLY = 0.005  # and how fast the draft's errors are learned: chance alone must not look like one


@dataclass(frozen=True, slots=True)
class Position:
    """One of a proposal's, and what the draft thinks of it."""

    drafted: int | None  # the proposal's token; None behind its end
    expected: Sequence[int]  # tokens that the target may draw, best first
    first: float  # chance of the first

    @classmethod
    def by_rank(cls, drafted: int | None, guesses: Sequence[int]) -> "Position":
        """Where the draft has not looked yet, or what it saw must not count."""
        first = () if drafted is None else (drafted,)
        others = (guess for guess in guesses if guess != drafted)
        return cls(drafted, (*first, *others, *[UNKNOWN] * (1 + WIDEST)), UNSEEN)

    def outcomes(self) -> Iterator[tuple[float, int]]:
        """(chance, token) of the tokens that may be drawn."""
        chances = (self.first, *((1 - self.first) * chance for chance in CHANCES))
        return zip(chances, self.expected, strict=False)


@dataclass(frozen=True, slots=True)
class Bet:
    """That so many drafted tokens are accepted, and this one is drawn instead or behind."""

    num_accepted: int
    token: int
    chance: float


def likeliest(positions: Sequence[Position], least: float = 0.0) -> list[Bet]:
    """All bets of at least this chance, the likeliest first."""
    reached, bets = 1.0, []
    for at, position in enumerate(positions):
        accepted = DOUBTED * CHANCES[-1]  # of a token that the draft does not expect
        for chance, token in position.outcomes():
            if token == position.drafted:
                accepted = chance
            elif reached * chance >= least:
                bets.append(Bet(at, token, reached * chance))
        reached *= accepted
    return sorted(bets, key=lambda bet: -bet.chance)


class Odds:
    """What forecasts teach: the least chance of a bet, and how far the draft's word counts."""

    def __init__(self) -> None:
        self.least = FIRST_CHANCE  # as many as asked for have it, on average
        self._surprise = 0.0  # how often it is wrong beyond its own doubt

    def sure(self, prob: float) -> float:
        """How often the target draws the token that the draft gives this probability."""
        return max(1 - DOUBTED, 1 - DOUBTED * (1 - prob) - max(0.0, self._surprise))

    def learn(self, prob: float, *, is_right: bool) -> None:
        """The target drew the draft's token, of this probability, or another."""
        self._surprise += SLOWLY * ((not is_right) - DOUBTED * (1 - prob) - self._surprise)

    def follow(self, num_bets: int, num_asked: int) -> None:
        """A forecast was made with so many."""
        self.least *= math.exp(PACE * (num_bets / num_asked - 1))
        self.least = min(max(self.least, LEAST_CHANCE), MOST_CHANCE)
