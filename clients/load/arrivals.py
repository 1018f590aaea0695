"""When requests are due. Knows nothing of what is sent, and sleeps for nobody."""

import math
import random
from collections.abc import Iterator


def arrivals(rate: float, burstiness: float, rng: random.Random) -> Iterator[float]:
    """Due times, in seconds from the start, without end. Raises ValueError.

    The gaps are independent, of mean 1 / rate and coefficient of variation burstiness ** -0.5
    (gamma, as `vllm bench serve` has them): at burstiness 1 a Poisson process, below it bursts,
    above it ever more even, at infinity a metronome. At an infinite rate all are due at once.
    They are not rescaled to add up to the rate exactly: that would be no Poisson process.
    """
    if not (rate > 0 and burstiness > 0):
        raise ValueError(f"Got {rate=} and {burstiness=}, expected rate > 0 and burstiness > 0")
    due_s = 0.0
    while True:
        if math.isinf(rate):
            gap_s = 0.0
        elif math.isinf(burstiness):
            gap_s = 1 / rate
        else:
            gap_s = rng.gammavariate(burstiness, 1 / (rate * burstiness))
        due_s += gap_s
        yield due_s
