"""What requests have come to, counted where their chunks go out; read by /metrics.

Touched by the event loop only, so nothing here is locked.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from outrider.actors.scheduling.request import OutputDelta

# Upper bounds: seconds, from below one round on two cores to the longest deadline; and tokens.
LATENCIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
TOKEN_LATENCIES_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2,
    0.3, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
TOKEN_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5)
COMMIT_SIZES = tuple(range(1, 18))  # at most 16 drafted tokens, and one more


class Observations:
    """Counts since the start of this replica."""

    def __init__(self) -> None:
        self.queued_s = Histogram(LATENCIES_S)
        self.first_token_s = Histogram(LATENCIES_S)
        self.inter_token_s = Histogram(TOKEN_LATENCIES_S)
        self.request_s = Histogram(LATENCIES_S)
        self.prompt_tokens = Histogram(TOKEN_COUNTS)
        self.generation_tokens = Histogram(TOKEN_COUNTS)
        self.tokens_per_commit = Histogram(COMMIT_SIZES)
        self.num_tokens = 0
        self.num_prompt_tokens = 0
        self.num_drafts = 0
        self.num_drafted = 0
        self.num_accepted = 0
        self.accepted_at: Counter[int] = Counter()  # by position in the draft, from 0
        self.finished: Counter[str] = Counter()  # choices, by why they ended
        self.responses: Counter[tuple[str, str, int]] = Counter()  # by route, method, status

    def first_chunk(self, seconds: float) -> None:
        """The first commit of a request, so long after the request."""
        self.first_token_s.observe(seconds)

    def commit(self, chunk: OutputDelta, seconds: float | None) -> None:
        """One commit, so long after the choice's last one; None for its first."""
        size = len(chunk.token_ids)
        if size:
            self.tokens_per_commit.observe(size)
        if chunk.queued_s is not None:
            self.queued_s.observe(chunk.queued_s)
        if size and seconds is not None:
            self.inter_token_s.observe(seconds / size, size)
        self.num_tokens += size
        if chunk.num_drafted:
            self.num_drafts += 1
            self.num_drafted += chunk.num_drafted
            self.num_accepted += chunk.num_accepted
            self.accepted_at.update(range(chunk.num_accepted))

    def request(self, seconds: float, num_prompt_tokens: int, num_tokens: int) -> None:
        """One request that generated, at its end."""
        self.request_s.observe(seconds)
        self.num_prompt_tokens += num_prompt_tokens
        self.prompt_tokens.observe(num_prompt_tokens)
        self.generation_tokens.observe(num_tokens)


class Histogram:
    """Observations by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), bounds
        assert bounds, "a histogram has at least one bucket"
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Add `count` observations of `value`."""
        self._counts[bisect_left(self._bounds, value)] += count
        self.sum += value * count

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), as an exporter writes them."""
        total, buckets = 0, []
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == math.inf else repr(float(bound)), float(total)))
        return buckets
