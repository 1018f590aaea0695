"""Requests side by side: each on the first line that is free, so that lines are places in use."""

import heapq
from collections.abc import Sequence

from outrider.clients.load.record import RequestRecord


def lanes(records: Sequence[RequestRecord]) -> list[int]:
    """A line for each of the records, from 0."""
    chosen = [0] * len(records)
    free: list[int] = []  # lines without a request
    busy: list[tuple[float, int]] = []  # when a line is free again
    num_lanes = 0
    for index in sorted(range(len(records)), key=lambda i: records[i].sent_s):
        while busy and busy[0][0] <= records[index].sent_s:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free.append(num_lanes)
            num_lanes += 1
        chosen[index] = heapq.heappop(free)
        heapq.heappush(busy, (records[index].end_s, chosen[index]))
    return chosen
