"""Where draft and target run, and with how many threads: chosen by how long forwards take.

Together in one process they take turns, with all threads each. Apart each has half of the cores,
and the draft rides ahead: its steps cost nothing while they are quicker than the target's forward,
unless the text went another way. What a round brings is expected from an assumed acceptance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.transport.messages import Timing

ACCEPTANCE = 0.7  # of a drafted token, before anything is known of the pair
KS = range(9)
FEW = (1, 3, 5)  # tokens of a forward


@dataclass(frozen=True, slots=True)
class Placement:
    """The choice, and why in a sentence."""

    is_colocated: bool
    num_threads: int  # of each process
    reason: str
    has_draft: bool = True

    @property
    def name(self) -> str:
        return _name(self.is_colocated, self.num_threads, self.has_draft)


def tokens_of(k: int) -> float:
    """That a round of so many drafted tokens is expected to commit.

    >>> round(tokens_of(2), 2)
    2.19
    """
    return (1 - ACCEPTANCE ** (k + 1)) / (1 - ACCEPTANCE)


def alone_rate(timing: Timing) -> float:
    """Forwards a second, of a few sizes alike: one stream's are of one token, with copies or other
    streams of more. On a noisy machine one size alone names the wrong number of threads.
    """
    return len(FEW) / sum(verify_s(timing, size) for size in FEW)


def together_rate(timing: Timing) -> float:
    """Tokens a second, one stream, at the best k."""
    return max(tokens_of(k) / (k * timing.draft_s + verify_s(timing, k + 1)) for k in KS)


def apart_rate(timing: Timing) -> float:
    """The same with the draft ahead; both slow each other down as much as was seen."""
    slowdown = max(1.0, timing.slowdown)

    def round_s(k: int) -> float:
        target_s, draft_s = verify_s(timing, k + 1) * slowdown, k * timing.draft_s * slowdown
        is_another_way = 1 - ACCEPTANCE ** (k + 1)  # than the one that it went ahead on
        return max(target_s, draft_s) + is_another_way * draft_s

    return max(tokens_of(k) / round_s(k) for k in KS)


def verify_s(timing: Timing, num_tokens: int) -> float:
    """Seconds of a forward, straight between and beyond those that were timed."""
    points = timing.verify
    lower = max((p for p in points if p[0] <= num_tokens), default=points[0])
    upper = min((p for p in points if p[0] > num_tokens), default=None)
    if upper is None:
        if len(points) < 2 or lower[0] == num_tokens:
            return lower[1] * num_tokens / lower[0] if num_tokens > lower[0] else lower[1]
        (first, first_s), (last, last_s) = points[-2:]
        slope = max(0.0, (last_s - first_s) / (last - first))
        return last_s + slope * (num_tokens - last)
    share = (num_tokens - lower[0]) / (upper[0] - lower[0])
    return lower[1] + share * (upper[1] - lower[1])


def choose(timings: Sequence[Timing], num_cores: int, may_be_apart: bool) -> Placement:
    """The fastest of those that were timed."""
    rates: dict[tuple[bool, int], float] = {}
    for timing in timings:
        rate = together_rate if timing.draft_s else alone_rate
        rates[True, timing.num_threads] = rate(timing)
        if may_be_apart and timing.draft_s and 2 * timing.num_threads <= num_cores:
            rates[False, timing.num_threads] = apart_rate(timing)
    best = max(rates, key=lambda key: rates[key])
    ordered = sorted(rates, key=lambda key: -rates[key])
    has_draft = any(timing.draft_s for timing in timings)
    told = "; ".join(f"{_name(*key, has_draft)}: {rates[key]:.1f}" for key in ordered)
    what = "expected tokens/s of one stream" if has_draft else "forwards/s of a few tokens"
    reason = f"{what}, by timed forwards: {told}"
    return Placement(*best, reason, has_draft)


def _name(is_colocated: bool, num_threads: int, has_draft: bool) -> str:
    threads = f"{num_threads} thread" + ("" if num_threads == 1 else "s")
    if not has_draft:
        return threads
    return f"{'together' if is_colocated else 'apart'}, {threads}"
