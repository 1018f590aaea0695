"""What the coordinator takes of its core in a round, beside workers that take none of it.

    PYTHONPATH=tests python tests/benches/coordinator.py [--rows 1 8 64] [--machine NAME]
        [--rounds 200] [--temperature 0] [--profile FILE]

The real coordinator over worlds.py's workers: recorded logits, in the virtual time of a machine; so
rounds, trees and offers are as they would be there, and CPU time is counted of the coordinator
alone. Columns: rows and nodes of a round, its milliseconds on that machine, milliseconds of CPU in
all and between a verdict and the next question (the target waits for these), and their share of the
round. Transport's own bytes are not in it: `host_cost.py` has those.
"""

import argparse
import cProfile
import os
import pstats
import time

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import torch
from rich.console import Console
from rich.table import Table
from simulator.machines import MACHINES
from simulator.policies import present
from simulator.texts import Texts
from simulator.virtual_worker import VirtualWorker
from simulator.world import World

from outrider.actors.transport.messages import Verify, VerifyReply

NUM_FIRST = 100  # rounds that do not count


class Meter:
    """CPU time of this thread, without the workers'."""

    def __init__(self):
        self.work_s = self.waited_s = 0.0
        self.num_rounds = 0
        self._answered_at = None

    @property
    def now(self):
        return time.thread_time() - self.work_s

    def watch(self, profile):
        """Have workers' time counted apart, and the rounds."""
        meter, timed, send = self, VirtualWorker._timed, VirtualWorker._send

        async def timed_apart(worker, work):
            def counted():
                if profile is not None:
                    profile.disable()
                began = time.thread_time()
                try:
                    answer = work()
                finally:
                    meter.work_s += time.thread_time() - began
                    if profile is not None:
                        profile.enable()
                if isinstance(answer, VerifyReply):
                    worker._loop.call_at(worker._clock.now + worker._hop_s, meter.answered)
                return answer

            return await timed(worker, counted)

        def counted_send(worker, message, future):
            if isinstance(message, Verify):
                meter.asked()
            send(worker, message, future)

        VirtualWorker._timed, VirtualWorker._send = timed_apart, counted_send

    def answered(self):
        self._answered_at = self.now

    def asked(self):
        self.num_rounds += 1
        if self._answered_at is not None:
            self.waited_s += self.now - self._answered_at
        self._answered_at = None


def measured(args, num_rows, profile):
    """(outcome, milliseconds of CPU a round, of those the target waits for)."""
    machine, text = MACHINES[args.machine], Texts()[args.text]
    world = World(machine, text, args.temperature, num_rows)
    [setting] = present(machine, text.draft is not None)
    meter, marks = Meter(), []
    timed, send = VirtualWorker._timed, VirtualWorker._send
    meter.watch(profile)
    asked = meter.asked

    def marked():
        asked()
        if meter.num_rounds in (NUM_FIRST, NUM_FIRST + args.rounds):
            marks.append((meter.now, meter.waited_s))

    meter.asked = marked
    if profile is not None:
        profile.enable()
    try:
        outcome = world.run(setting, NUM_FIRST, NUM_FIRST + args.rounds)
    finally:
        VirtualWorker._timed, VirtualWorker._send = timed, send
        if profile is not None:
            profile.disable()
    (began, waited_before), (ended, waited) = marks
    return outcome, *(1e3 * s / args.rounds for s in (ended - began, waited - waited_before))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--machine", default="h100-8b/1b", choices=sorted(MACHINES))
    parser.add_argument("--text", default="held-out")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--profile", help="a file for where it goes; its times are dilated")
    args = parser.parse_args()
    torch.set_num_threads(1)
    profile = cProfile.Profile(time.thread_time) if args.profile else None
    table = Table(title=f"{args.machine}, {args.text}, T={args.temperature:g}: a round")
    for column in ("rows", "nodes", "fed", "ms", "CPU ms", "of it waited for", "share"):
        table.add_column(column, justify="right")
    for num_rows in args.rows:
        outcome, cpu_ms, waited_ms = measured(args, num_rows, profile)
        counts = outcome.counts
        num = counts.num_target_passes
        seconds = counts.num_tokens / outcome.tokens_per_s / num
        table.add_row(
            str(num_rows),
            f"{counts.num_drafted / num:.1f}",
            f"{counts.num_draft_fed / num:.1f}",
            f"{1e3 * seconds:.2f}",
            f"{cpu_ms:.2f}",
            f"{waited_ms:.2f}",
            f"{cpu_ms / (1e3 * seconds):.0%}",
        )
    Console(width=100).print(table)
    if profile is not None:
        pstats.Stats(profile).dump_stats(args.profile)


if __name__ == "__main__":
    main()
