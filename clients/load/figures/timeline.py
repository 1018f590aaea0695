"""The measurement second by second: tokens that came, and requests that were open."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.clients.load.record import RequestRecord


@dataclass(frozen=True, slots=True)
class Timeline:
    """Intervals of equal length from the start."""

    step_s: float
    num_tokens: tuple[int, ...]  # that came, by interval; those of broken answers too
    num_ended: tuple[int, ...]  # whole answers, by interval
    num_open: tuple[float, ...]  # requests open, on average over the interval


def timeline(records: Sequence[RequestRecord], duration_s: float, step_s: float = 1.0) -> Timeline:
    """Of these requests. What falls on the end belongs to the last interval."""
    num_steps = max(1, math.ceil(duration_s / step_s))
    tokens, ended, opened = [0] * num_steps, [0] * num_steps, [0.0] * num_steps

    def step_of(at_s: float) -> int:
        return min(num_steps - 1, int(at_s / step_s))

    for record in records:
        for chunk in record.chunks:
            tokens[step_of(chunk.at_s)] += chunk.num_tokens
        if record.is_complete:
            ended[step_of(record.end_s)] += 1
        for step in range(step_of(record.sent_s), step_of(record.end_s) + 1):
            overlap_s = min(record.end_s, (step + 1) * step_s) - max(record.sent_s, step * step_s)
            opened[step] += max(0.0, overlap_s) / step_s
    return Timeline(step_s, tuple(tokens), tuple(ended), tuple(opened))


def most_open(records: Sequence[RequestRecord]) -> int:
    """The most requests that were open at once; one that ends as another is sent makes room."""
    ends = [(record.end_s, -1) for record in records]
    events = sorted([*ends, *((record.sent_s, 1) for record in records)])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most
