"""What each part of the price is worth: the default without it, over the default, in virtual time.

    PYTHONPATH=tests python tests/benches/ablation.py [--texts NAME ...] [--machines NAME ...]
        [--processes 2]

A row a world, as worlds.py has them, a column a part that is taken out. One stream; of `mixed`
eight. The same arguments print the same table, whatever else the machine does.
Every column's text is that of the default: that is asserted.
"""

import argparse
import itertools
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from unittest.mock import patch

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import torch
from simulator.machines import MACHINES, OF_RUNNER, PAIRS
from simulator.policies import ALL, Setting, present
from simulator.texts import Texts
from simulator.world import World

from outrider.actors.lookahead import latency_curve
from outrider.actors.lookahead.ab_test import Duel
from outrider.actors.lookahead.controller import Pipeline
from outrider.actors.lookahead.latency_curve import Level
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.followed import Followed

FIRST, ROUNDS = 500, 1500
ONE = ("cpu-2", "cpu-1", "cpu-2-neighbour", "h100-8b/1b", "h100x4-70b/1b", "one-gpu")
WORLDS = {  # text → machines, rows, temperatures
    "mixed": (("cpu-2", "h100-8b/1b", "one-gpu"), 8, (0, 1)),
    "questions": ((*ONE, *OF_RUNNER), 1, (0, 1)),
    "held-out": (ONE, 1, (0, 1)),
    "agrees 0.8": (PAIRS, 1, (0,)),
    "wrong": (ONE, 1, (0,)),
}


def newest(self, value):
    """In place of Level.add."""
    self._num += 1
    self.value = value


def first_dip(self, chances, num_tokens):
    """In place of Price.worth: up to the first that is not worth its own place."""
    if not self.rate:
        return whole_worth(self, chances, num_tokens)
    size = 0
    for chance in chances[: self.room(num_tokens)]:
        if chance <= self.of(num_tokens + size):
            break
        size += 1
    return size, sum(chances[:size])


def on_time(self, row):
    """In place of Followed.take: what was made before the last commit is lost."""
    if row.num_committed == self.sequence.num_committed:
        whole_take(self, row)


whole_worth, whole_take = Price.worth, Followed.take
PARTS = {  # what is taken out → how
    "comparison": [patch.object(Duel, "is_due", lambda self: False)],
    "waiting": [patch.object(AheadDraft, "_next_step", lambda self, rows, price: (0.0, 0.0))],
    "medians": [patch.object(Level, "add", newest)],
    "forgetting": [patch.object(latency_curve, "MAX_AGE", 10**9)],
    "steps of a curve": [
        patch.object(Price, "worth", first_dip),
        patch.object(Price, "least", Price.of),
    ],
    "late offers": [patch.object(Followed, "take", on_time)],
    "one process": [],
}
SHARED = ("one process",)  # only where draft and target share a device
OWN = ("waiting", "late offers")  # only where they do not


def apart(machine, has_draft):
    return [Setting(Pipeline.AHEAD, PriceController, ALL)]


def measured(args, name):
    """Of one text: worlds, each with its columns."""
    torch.set_num_threads(1)
    text, found = Texts()[name], {}
    machines, num_rows, temperatures = WORLDS[name]
    for machine, temperature in itertools.product(args.machines or machines, temperatures):
        world = World(MACHINES[machine], text, temperature, num_rows)
        title = f"{machine} · {name} · T={temperature:g} · {num_rows}"
        found[title] = row = columns(world)
        print(line(title, row), file=sys.stderr, flush=True)
    return found


def columns(world):
    share, missing = min(world.num_rows, 8), OWN if world.machine.is_shared else SHARED
    whole, found = run(world, present, share), {}
    for part, patches in PARTS.items():
        if part in missing:
            continue
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each)
            outcome = run(world, apart if part == "one process" else present, share)
        for which, written in outcome.texts.items():
            assert whole.texts.get(which, written) == written, f"without {part}: another text"
        found[part] = outcome.tokens_per_s / whole.tokens_per_s
    return found


def run(world, policy, share):
    [setting] = policy(world.machine, True)
    return world.run(setting, FIRST // min(4, share), ROUNDS // share)


def line(title, row):
    cells = [f"{row[part]:.2f}" if part in row else "–" for part in PARTS]
    return f"| {title} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=None)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        parts = list(pool.map(partial(measured, args), args.texts))
    print(f"| without | {' | '.join(PARTS)} |\n|---|{'---|' * len(PARTS)}")
    print("\n".join(line(title, row) for found in parts for title, row in found.items()))


if __name__ == "__main__":
    main()
