"""A soak over real HTTP: mixed requests, bursts and killed workers for some minutes; what is left?

    PYTHONPATH=tests python tests/endurance/run_soak.py [--minutes 20] [--kills 6] [--report-only]
                                                [--json FILE]

The server is a replica without Ray (tests/live/server.py) with the demo pair and so few pages that
sequences are preempted. Six clients ask for texts of every length, way and form, many of which
begin alike; every 15 seconds there are 24 more at once; one stream in seven is left by its reader.
In the first half of the time workers are killed. Every complete text has to be the one that the
server gave when it was asked for that alone, without draft and prefix cache.

Memory is RSS, from the tenth of the time after a process's warm-up (a fifth of the time) to the
last tenth; a worker that did not live that long says nothing. Latency is the time between commits
by their tokens as clients see it, 99th percentile over tokens, the first third after the warm-up
against the last; from each kill to two seconds after its worker's return nothing is counted. On a
machine that others use, `--report-only` tells the latency and does not judge it.

Exits with 1 if a bar is missed.
"""

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from endurance.soak import SETTINGS, Plan, soak
from endurance.verdict import latency, memory, nothing_lost, steady
from live.process import LiveProcess
from rich.console import Console
from rich.table import Table


def shown(result, bars):
    seen, counts, console = result.figures, result.counts, Console()
    console.print(
        f"{result.ended - result.begun:.0f} s: {seen.num_texts} texts, {seen.num_tokens} tokens, "
        f"{seen.num_left} streams left, {len(result.pauses)} workers killed, "
        f"{counts['num_preempted']} preemptions, {counts['num_cached_tokens']} of "
        f"{counts['num_prompt_tokens']} prompt tokens from the prefix cache"
    )
    table = Table("", "bar", "found", "accepted")
    for bar in bars:
        table.add_row("ok" if bar.is_met else "MISSED", bar.name, bar.found, bar.accepted)
    console.print(table)


def figures(result, bars):
    """For a file: the bars, and what they were read from."""
    seen = result.figures
    first_s, last_s = latency(result)
    return {
        "elapsed_s": result.ended - result.begun,
        "num_texts": seen.num_texts,
        "num_tokens": seen.num_tokens,
        "num_left": seen.num_left,
        "num_kills": len(result.pauses),
        "pauses_s": [until - since for since, until in result.pauses],
        "counts": result.counts,
        "growth": memory(result),
        "p99_s": [first_s, last_s],
        "bars": [asdict(bar) for bar in bars],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report-only", action="store_true", help="do not judge the latency")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # stops the server
    server = LiveProcess(*SETTINGS)
    try:
        plan = Plan(60 * args.minutes, args.kills, seed=args.seed)
        result = asyncio.run(soak(server, plan))
        server.stop()  # raises if anything is left of it
    finally:
        server.kill()
    bars = [*nothing_lost(result), *steady(result, args.report_only)]
    shown(result, bars)
    if args.json:
        args.json.write_text(json.dumps(figures(result, bars), indent=1) + "\n")
    sys.exit(not all(bar.is_met for bar in bars))


if __name__ == "__main__":
    main()
