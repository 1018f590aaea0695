"""How often guesses come true, by where they stand: drafted tokens, and a forecast's forks.

Recent rounds count most. A place that was hardly seen is taken to be like its neighbour.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass

from outrider.actors.scheduling.sampling_params import MAX_K

GOOD = 0.8  # an acceptance worth trying for, where nothing recent is known
WEIGHT = 4.0  # what a neighbour's rate counts for, in observations
WIDTH_POWER = 0.5  # misses fall with the guesses per position to this power, 0.5 to 1
REFERENCE_FAN = 4.0  # guesses per position that misses are reckoned for
EMPTY_HIT, BONUS_HIT, REJECTED_HIT = 0.95, 0.85, 0.6  # before any was seen


class Tally:
    """Yes (1) or no (0), fading; a no that weighs more is below 0."""

    def __init__(self) -> None:
        self.yes = 0.0
        self.all = 0.0

    def add(self, yes: float) -> None:
        self.yes += yes
        self.all += 1

    def fade(self, factor: float) -> None:
        self.yes *= factor
        self.all *= factor

    def rate(self, prior: float, weight: float = WEIGHT) -> float:
        """The share of yes, the prior counting as so many observations."""
        return (self.yes + weight * prior) / (self.all + weight)


class Acceptance:
    """Of drafted tokens, by their place in the proposal."""

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._places = [Tally() for _ in range(MAX_K)]

    def add(self, num_drafted: int, num_accepted: int) -> None:
        """A verdict: a yes for each accepted token, a no for the one after them if there was."""
        for tally in self._places[:num_accepted]:
            tally.add(True)
        if num_accepted < num_drafted:
            self._places[num_accepted].add(False)

    def fade(self, factor: float) -> None:
        for tally in self._places:
            tally.fade(factor)

    def doubt(self) -> None:
        """It was long ago: a few new observations shall outweigh it."""
        for tally in self._places:
            if tally.all > 2 * WEIGHT:
                tally.fade(2 * WEIGHT / tally.all)

    def survival(self, at_least: float = 0.0) -> list[float]:
        """[MAX_K + 1]: the chance that so many tokens are accepted, if drafted; 1 for none."""
        chances, rate, weight = [1.0], self._prior, 1.0
        for tally in self._places:
            rate, weight = tally.rate(rate, weight), WEIGHT
            chances.append(chances[-1] * max(rate, at_least))
        return chances


class Copies:
    """What a row without the draft's tokens came to: 1 of each where it copied nothing."""

    def __init__(self) -> None:
        self._rows = self._committed = self._fed = 0.0

    def add(self, num_drafted: int, num_accepted: int) -> None:
        self._rows += 1
        self._committed += 1 + num_accepted
        self._fed += 1 + num_drafted

    def fade(self, factor: float) -> None:
        self._rows *= factor
        self._committed *= factor
        self._fed *= factor

    def means(self) -> tuple[float, float]:
        """Tokens committed and tokens fed, per row."""
        rows = self._rows + WEIGHT
        return (self._committed + WEIGHT) / rows, (self._fed + WEIGHT) / rows


@dataclass(frozen=True, slots=True)
class Misses:
    """How often an outcome is not among the forks, at the reference's guesses per position."""

    after_empty: float  # proposals
    after_proposal: list[float]  # [MAX_K + 1] by its length

    def share_drafted(self, k: int, fan: float) -> float:
        """The share of rows that have a branch, once it settles: each hit or miss leads on."""
        more: float = (REFERENCE_FAN / fan) ** WIDTH_POWER
        after_empty = 1 - min(1.0, self.after_empty * more)
        after_full = 1 - min(1.0, self.after_proposal[k] * more)
        return after_empty / max(1 - after_full + after_empty, 1e-9)


class Hits:
    """Of forecasts: how often the outcome was among the forks."""

    def __init__(self) -> None:
        self._empty = Tally()  # after an empty proposal
        self._bonus = Tally()  # after a proposal accepted whole
        self._rejected = [Tally() for _ in range(MAX_K)]  # by accepted count

    def add(self, num_drafted: int, num_accepted: int, is_hit: bool, fan: float) -> None:
        """A verdict; a miss among many guesses would have been several among few."""
        yes = 1.0 if is_hit else 1 - (fan / REFERENCE_FAN) ** WIDTH_POWER
        if not num_drafted:
            self._empty.add(yes)
        elif num_accepted == num_drafted:
            self._bonus.add(yes)
        else:
            self._rejected[num_accepted].add(yes)

    def fade(self, factor: float) -> None:
        for tally in (self._empty, self._bonus, *self._rejected):
            tally.fade(factor)

    def misses(self, survival: Many[float]) -> Misses:
        """What is to be expected of proposals whose tokens survive so often."""
        seen = sum(tally.all for tally in self._rejected)
        yes = sum(tally.yes for tally in self._rejected)
        rejected = (yes + WEIGHT * REJECTED_HIT) / (seen + WEIGHT)
        bonus, of_rejected = self._bonus.rate(BONUS_HIT), 0.0
        after_proposal = [1 - survival[0] * bonus]
        for k, tally in enumerate(self._rejected, 1):
            of_rejected += (survival[k - 1] - survival[k]) * tally.rate(rejected)
            after_proposal.append(1 - survival[k] * bonus - of_rejected)
        return Misses(1 - self._empty.rate(EMPTY_HIT), after_proposal)
