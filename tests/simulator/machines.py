"""Machines as cost curves: seconds of a forward by new tokens and by rows that they look back at,
of a hop, and who computes where. Each says where its numbers are from.
"""

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Curve = Callable[[int, int], float]  # (new tokens, context rows) → seconds
MS = 1e-3


@dataclass(frozen=True)
class Table:
    """Straight between the points of a measurement, and on beyond the last two."""

    points: tuple[tuple[int, float], ...]  # (tokens, ms), rising
    context_ns: float = 0.0  # a row that is looked back at

    def __call__(self, tokens: int, context: int) -> float:
        places = [place for place, _ in self.points]
        at = min(max(1, bisect_left(places, tokens)), len(places) - 1)
        (left, low), (right, high) = self.points[at - 1], self.points[at]
        ms = low + (high - low) * (tokens - left) / (right - left)
        return ms * MS + context * self.context_ns * 1e-9


@dataclass(frozen=True)
class Machine:
    """One of them."""

    name: str
    target_s: Curve
    draft_s: Curve
    hop_s: float  # to the target's worker, and back
    source: str
    draft_hop_s: float | None = None  # to the draft's, where that is another
    host_s: float = 0.0  # of the draft's core, that coordinator, server and client take a round
    is_shared: bool = False  # draft and target on one device
    gone: tuple[tuple[float, float], ...] = field(default=(), repr=False)  # the draft's core


def flat(ms: float, until: int, ms_more: float, context_ns: float = 0.0) -> Curve:
    """The same for so many tokens, then so much for each."""
    points = ((1, ms), (until, ms), (until + 1, ms + ms_more))
    return Table(tuple(dict.fromkeys(points)), context_ns)


def as_run(gigabytes: float, num_layers: int) -> Curve:
    """Of this project's runner, by its steps of an 8B-shaped model (15.0 GB, 32 layers) on an H100
    as they were measured (tests/gpu/results/2026-11-27.md, 18c0c48, 512 tokens of context: 8.50 ms
    for 1 token, 9.20 for 6, and for 16 texts 10.3 of a token each, 12.2 of 6). Weights are read at
    2.54 TB/s; what a layer takes beside, and what tokens and context add, goes by their number.
    """
    layers = num_layers / 32
    first = gigabytes / 2.54 + 1.96 * layers + 0.64
    more = ((1, 0.0), (6, 0.7), (16, 1.4), (96, 3.35))
    return Table(tuple((at, first + ms * layers) for at, ms in more), 50.0 * layers)


def stretches(seed: int, seconds: float, mean_s: float) -> tuple[tuple[float, float], ...]:
    """Gone for half of the time, for `mean_s` on average."""
    draw, found, at = random.Random(seed), [], 0.0
    while at < seconds:
        at += draw.expovariate(1 / mean_s)
        end = at + draw.expovariate(1 / mean_s)
        found.append((at, end))
        at = end
    return tuple(found)


# `worlds.py --measure`, 2026-11-25, commit 6dc34d8, two vCPUs of an AMD EPYC with AVX-512, nothing
# beside: the demo pair, float32, exact, one thread for each worker, 200 rows of context. Target:
# forward, and 0.1 ms for verdict and host. Draft: forward, and 0.05 ms for the draw. The rest of a
# lockstep round was 0.38 ms: four hops, and the coordinator between them.
CPU_TARGET = Table(((1, 1.0), (2, 1.15), (4, 1.5), (8, 2.4), (16, 3.75), (32, 6.85), (64, 12.4)))
CPU_DRAFT = Table(((1, 0.11), (2, 0.12), (4, 0.14), (8, 0.2), (16, 0.31), (32, 0.57), (64, 1.04)))
CPU_HOP_S = 0.000095
# Estimated, Llama-3.1-8B on an H100: 15.0 GB of weights at 95 % of 3.0 TB/s and 0.4 ms of kernels;
# flat to 64 tokens; then 16 GFLOP a token at 600 TFLOPS; 131 kB of KV a row at 1.8 TB/s.
H100_8B, H100_1B = flat(5.7, 64, 0.027, 73.0), flat(1.2, 64, 0.0035, 18.0)
# Estimated, 70B over four (TP4): 34.8 GB a card, 160 all-reduces; 140 GFLOP a token over all cards.
H100X4_70B = flat(14.5, 64, 0.06, 45.0)
HOP_S = 0.00005
# The same for the pairs of our founding documents: GB of weights at 95 % of 3.0 TB/s,
# and 10 kernels a layer of 1.2 µs.
H100_14B, H100_HALF = flat(10.4, 64, 0.047, 110.0), flat(0.65, 64, 0.002, 7.0)
H100_7B, H100_1B1 = flat(5.5, 64, 0.025, 73.0), flat(1.05, 64, 0.0037, 25.0)
H100_3B = flat(2.6, 64, 0.011, 64.0)
# The same pairs' steps by what our runner took. Its layers of ten launches were not run by then.
AS_RUN = {
    "8b/1b": (as_run(15.0, 32), as_run(2.47, 16)),
    "14b/0.5b": (as_run(28.0, 48), as_run(1.0, 24)),
    "7b/1.1b": (as_run(13.5, 32), as_run(2.2, 22)),
    "3b/1b": (as_run(6.4, 28), as_run(2.47, 16)),
}
# An EAGLE-3 head of the 8B: a layer of its 32, and 32,000 rows of logits.
H100_HEAD = flat(0.45, 64, 0.0015, 2.3)
# Measured on two vCPUs with AVX2, the demo's: 0.145 ms where a forward of the target took 1.49.
CPU_HEAD = Table(((1, 0.15), (2, 0.17), (4, 0.2), (8, 0.27), (16, 0.4), (32, 0.7), (64, 1.3)))

MACHINES = {
    machine.name: machine
    for machine in (
        Machine("cpu-2", CPU_TARGET, CPU_DRAFT, CPU_HOP_S, "measured (--measure)"),
        Machine(
            "cpu-2-http",
            CPU_TARGET,
            CPU_DRAFT,
            CPU_HOP_S,
            "cpu-2's curves; replica, proxy and client take 0.7 ms of CPU a round, as measured",
            host_s=0.0007,
        ),
        Machine(
            "cpu-1", CPU_TARGET, CPU_DRAFT, CPU_HOP_S, "cpu-2's curves on one core", is_shared=True
        ),
        Machine(
            "cpu-2-neighbour",
            CPU_TARGET,
            CPU_DRAFT,
            CPU_HOP_S,
            "cpu-2's curves; the draft's core is gone half of the time, for 0.05 s on average",
            gone=stretches(7, 600.0, 0.05),
        ),
        Machine("h100-8b/1b", H100_8B, H100_1B, HOP_S, "estimated from bandwidth, as above"),
        Machine("h100x4-70b/1b", H100X4_70B, H100_1B, HOP_S, "estimated: the same"),
        Machine("one-gpu", H100_8B, H100_1B, HOP_S, "the same, draft on the clock", is_shared=True),
        Machine(
            "loaded",
            flat(5.7, 200, 0.0285, 73.0),
            H100_1B,
            HOP_S,
            "estimated: compute-bound from 200 tokens",
        ),
        Machine("h100-14b/0.5b", H100_14B, H100_HALF, HOP_S, "estimated from bandwidth"),
        Machine("h100-7b/1.1b", H100_7B, H100_1B1, HOP_S, "estimated from bandwidth"),
        Machine("h100-3b/1b", H100_3B, H100_1B, HOP_S, "estimated from bandwidth"),
        Machine(
            "cpu-1-head",
            CPU_TARGET,
            CPU_HEAD,
            CPU_HOP_S,
            "cpu-1, the head beside it",
            is_shared=True,
        ),
        Machine(
            "h100-8b-head", H100_8B, H100_HEAD, HOP_S, "estimated from bandwidth", is_shared=True
        ),
        Machine(
            "far-draft", H100_8B, H100_1B, HOP_S, "h100-8b/1b, 1 ms to the draft", draft_hop_s=0.001
        ),
        *(
            Machine(f"h100-{pair} as run", *curves, HOP_S, "a model, from our runner's own steps")
            for pair, curves in AS_RUN.items()
        ),
    )
}


OF_RUNNER = tuple(f"h100-{pair} as run" for pair in AS_RUN)
WITH_HEAD = ("cpu-1-head", "h100-8b-head")
PAIRS = ("h100-14b/0.5b", "h100-7b/1.1b", "h100-3b/1b")  # of which acceptance is made up


def scaled(machine: Machine, factor: float) -> Machine:
    """Draft and hops cost so many times as much; the target's forwards stay."""
    far = machine.hop_s if machine.draft_hop_s is None else machine.draft_hop_s
    return replace(
        machine,
        name=f"{machine.name} × {factor:g}",
        draft_s=lambda tokens, context: factor * machine.draft_s(tokens, context),
        draft_hop_s=factor * far,
    )
