"""Arrivals: are they what they claim to be? Seeds are fixed; the odds are those of a new seed."""

import itertools
import math
import random
from collections.abc import Iterator

import pytest
from scipy import stats

from outrider.clients.load.arrivals import arrivals

RATE = 40.0
COUNT = 4000
ODDS = 1e-6  # of each check, that true Poisson arrivals fail it


def due_times(burstiness: float, seed: int) -> list[float]:
    times = arrivals(RATE, burstiness, random.Random(seed))
    return list(itertools.islice(times, COUNT))


def gaps_of(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise([0.0, *times])]


def poisson_p_values(times: list[float]) -> Iterator[float]:
    """Gaps are exponential; counts in seconds have a Poisson's variance; neighbours do not tell."""
    gaps = gaps_of(times)
    yield stats.kstest(gaps, stats.expon(scale=1 / RATE).cdf).pvalue
    seconds = int(times[-1])
    counts = [0] * seconds
    for at_s in times:
        if at_s < seconds:
            counts[int(at_s)] += 1
    dispersion = sum((count - RATE) ** 2 for count in counts) / RATE
    tail = stats.chi2(seconds).cdf(dispersion)
    yield 2 * min(tail, 1 - tail)
    yield stats.spearmanr(gaps[:-1], gaps[1:]).pvalue


@pytest.mark.parametrize("seed", range(5))
def test_they_are_poisson(seed: int) -> None:
    """A false alarm once in 67 000 runs with new seeds: 15 checks of one in a million."""
    assert min(poisson_p_values(due_times(1.0, seed))) > ODDS


@pytest.mark.parametrize("burstiness", [0.5, 2.0, math.inf])
def test_others_are_not(burstiness: float) -> None:
    """The same checks see every other kind of arrivals."""
    assert min(poisson_p_values(due_times(burstiness, 0))) < ODDS


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_is_gammas(burstiness: float) -> None:
    """A false alarm once in a million."""
    gaps = gaps_of(due_times(burstiness, 3))
    gamma = stats.gamma(burstiness, scale=1 / (RATE * burstiness))
    assert stats.kstest(gaps, gamma.cdf).pvalue > ODDS


def test_a_metronome_and_all_at_once() -> None:
    assert due_times(math.inf, 0)[:3] == pytest.approx([0.025, 0.05, 0.075])
    at_once = arrivals(math.inf, 1.0, random.Random(0))
    assert list(itertools.islice(at_once, 3)) == [0, 0, 0]


def test_a_seed_repeats_them() -> None:
    assert due_times(1.0, 7) == due_times(1.0, 7) != due_times(1.0, 8)


@pytest.mark.parametrize(("rate", "burstiness"), [(0, 1), (-1, 1), (1, 0), (math.nan, 1)])
def test_what_is_refused(rate: float, burstiness: float) -> None:
    with pytest.raises(ValueError, match="expected rate > 0 and burstiness > 0"):
        next(arrivals(rate, burstiness, random.Random()))
