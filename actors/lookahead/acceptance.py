"""How often drafted tokens are accepted, by their place.

Recent rounds count most. A place that was hardly seen is taken to be like its neighbour.
"""

from outrider.actors.scheduling.sampling_params import MAX_K

GOOD = 0.8  # an acceptance worth trying for, where nothing recent is known
WEIGHT = 4.0  # what a neighbour's rate counts for, in observations


class Tally:
    """Yes or no, fading."""

    def __init__(self) -> None:
        self.yes = 0.0
        self.all = 0.0

    def add(self, is_yes: bool) -> None:
        self.yes += is_yes
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
