"""Every policy in every world: the real engine in virtual time, on real models' recorded logits and
the cost curves of machines.

    PYTHONPATH=tests python tests/benches/worlds.py [--quick] [--json FILE] [--machines NAME ...]
        [--texts NAME ...] [--temperatures T ...] [--rows N ...] [--costs FACTOR] [--processes 2]
    PYTHONPATH=tests python tests/benches/worlds.py --measure CURVES_JSON
    PYTHONPATH=tests python tests/benches/worlds.py --beside AHEAD_JSON CURVES_JSON

The same arguments print the same table, whatever else the machine does: no second of it enters.
Tokens a second of virtual time. Of several settings of a policy one is chosen in early rounds.
All are measured in the same later ones, behind those in which they may learn, 500 of one row; of
the controller those stand apart. That every policy writes the text of plain decoding is asserted.

Without other wishes a text is run on the machines, at the temperatures and with the rows that make
another world of it (USUAL). `chat` and `edits` need SmolLM2 (real_model.py); `…, head` has the
demo's EAGLE-3 head in place of a draft. In `agrees 0.8` the draft is made up: it is the target
behind so many of all paths, and wrong behind the others; slow, since what is drafted the target
computes. --costs makes drafting and hops so many times as dear.
--measure writes this machine's curves of the demo pair; --beside prints what `ahead.py --streams 1
--json` measured, and the same in virtual time with those curves.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # before torch

import torch
from simulator.machines import MACHINES, OF_RUNNER, PAIRS, WITH_HEAD, Machine, Table, scaled
from simulator.policies import ALL, OF_HEADS, POLICIES, Setting, present
from simulator.texts import DEMO, HEADS, MODELLED, NAMES, OF_SMOLLM2, Texts
from simulator.world import World

from outrider.actors.lookahead.controller import Pipeline
from outrider.actors.lookahead.fixed import FixedController

CHOOSE_FIRST, CHOOSE = 60, 300  # rounds in which a setting is chosen
FIRST, ROUNDS = 500, 1000  # in which a policy is measured: those before do not count, it may learn
QUICK = 4  # times fewer rounds, but for the first
SHOWN = ("lockstep", "ahead", "fixed budget", "head alone", "copies alone", "present")
ONE = tuple(name for name in MACHINES if name not in (*PAIRS, *OF_RUNNER, *WITH_HEAD, "loaded"))
TARGETS = ("cpu-2", "h100-8b/1b")  # machines of which the draft's part is left out
USUAL = {  # text → (machines, rows, temperatures), those that take longest first
    "mixed": ((("cpu-2", "h100-8b/1b", "one-gpu"), (8,), (0, 1)),),
    "questions": ((ONE, (1,), (0, 1)), (("loaded",), (64,), (0,))),
    "held-out": ((ONE, (1,), (0, 1)),),
    "chat": ((TARGETS, (1,), (0,)),),
    "edits": ((TARGETS, (1,), (0,)),),
    "agrees 0.8": ((PAIRS, (1,), (0,)),),
    "wrong": ((ONE, (1,), (0,)),),
    **{name: ((WITH_HEAD, (1,), (0, 1)),) for name in HEADS},
}
QUICK_MACHINES = ("cpu-2", "cpu-1", "cpu-2-neighbour", "h100-8b/1b", "one-gpu")
QUICK_TEXTS = ("questions", "held-out")
SIZES = (1, 2, 4, 8, 16, 32, 64)
REAL_ROUNDS = 300, 900
REAL = {  # `ahead.py`'s variants
    "plain process": Setting(Pipeline.LOCKSTEP, lambda: FixedController(0)),
    **{
        f"lockstep process k={k}": Setting(Pipeline.LOCKSTEP, lambda k=k: FixedController(k))
        for k in (4, 6, 8, 10, 12)
    },
    **{f"ahead k={k}": Setting(Pipeline.AHEAD, lambda k=k: FixedController(k)) for k in (6, 12)},
    "ahead": present(MACHINES["cpu-2"], has_draft=True)[0],
}


def measured(args, name):
    """All worlds of one text: their names, each with its policies' figures."""
    torch.set_num_threads(1)
    text, found = Texts(args.smollm2)[name], {}
    for machine_name, num_rows, temperature in worlds(args, name):
        machine = MACHINES[machine_name]
        if args.costs != 1:
            machine = scaled(machine, args.costs)
        world = World(machine, text, temperature, num_rows)
        rows = f"{num_rows} row" + "s" * (num_rows > 1)
        title = f"{machine.name} · {name} · T={temperature:g} · {rows}"
        found[title] = figures(world, args.is_quick)
        print(line(title, found[title]), file=sys.stderr, flush=True)
    return found


def worlds(args, name):
    """(machine, rows, temperature) of a text: what is wished for, else what is usual."""
    usual = USUAL.get(name, ((PAIRS, (1,), (0,)),))
    if args.is_quick:
        usual = ((QUICK_MACHINES, (1,), (0, 1)),)
    for machines, rows, temperatures in usual:
        yield from itertools.product(
            args.machines or machines, args.rows or rows, args.temperatures or temperatures
        )


def figures(world, is_quick):
    """Policy → tokens/s, its setting, tokens/s of its first rounds, and the target's idle share. A
    setting is chosen in early rounds, and all policies are measured in the same later ones.
    """
    found, texts = {}, {}
    share = max(1, min(world.num_rows, 8)) * (QUICK if is_quick else 1)
    more = 2 if world.machine.gone else 1  # to see many of those stretches

    def made(setting, first, rounds):
        outcome = world.run(setting, first, max(60, more * rounds // share))
        for which, text in outcome.texts.items():
            assert texts.setdefault(which, text) == text, f"{name} wrote another text"
        return outcome

    for name, settings_of in (OF_HEADS if world.text.head else POLICIES).items():
        settings = settings_of(world.machine, world.text.draft is not None)
        if not settings:
            continue
        best = settings[0]
        if len(settings) > 1:
            best = max(settings, key=lambda each: made(each, CHOOSE_FIRST, CHOOSE).tokens_per_s)
        outcome = made(best, FIRST // min(4, world.num_rows), ROUNDS)
        begun = outcome.first_tokens_per_s
        found[name] = outcome.tokens_per_s, best.label, begun, outcome.target_idle
    chains = [found[name] for name in ("lockstep", "ahead") if name in found]
    found["best chain"] = max(chains, key=lambda each: each[0])
    return found


def table(found):
    """Markdown: a line a world; policies as times plain decoding, plain in tokens/s."""
    lines = [
        f"| world | none, tokens/s | {' | '.join(SHOWN)} | present / best of all | first 500 |",
        "|---|" + "---|" * (len(SHOWN) + 3),
    ]
    return "\n".join([*lines, *(line(title, figure) for title, figure in found.items())])


def line(title, figure):
    """In bold where the present default is below the best of all others."""
    plain, present = figure["none"][0], figure["present"][0]
    cells = []
    for name in SHOWN:
        value, label, *_ = figure.get(name, (0.0, ""))
        cells.append(f"{value / plain:.2f} {label}".strip() if value else "–")
    against = present / max(each[0] for name, each in figure.items() if name != "present")
    mark = "**" if against < 0.98 else ""
    cells += [f"{mark}{against:.2f}{mark}", f"{figure['present'][2] / plain:.2f}"]
    return f"| {title} | {plain:.1f} | {' | '.join(cells)} |"


def forward_ms(role):
    """Of one forward, by its tokens."""
    from outrider.actors.runner.forward_batch import Segment
    from outrider.actors.runner.model_loader import load_model
    from outrider.actors.runner.runner import Runner
    from outrider.actors.runner.selftest import sample_tokens

    torch.set_num_threads(1)
    runner, points = Runner(load_model(DEMO / role), num_tokens=4096), {}
    cache = runner.open()
    runner.forward([Segment(cache, sample_tokens(runner.vocab_size, 200), 1)])
    for size in SIZES:
        took = []
        for _ in range(60):
            began = time.perf_counter()
            runner.forward([Segment(cache, sample_tokens(runner.vocab_size, size), size)])
            took.append(1e3 * (time.perf_counter() - began))
            runner.rollback(cache, 200)
        points[size] = statistics.median(took[10:])
    return points


async def measure(trace):
    """This machine's curves of the demo pair: steps as they are in real rounds, a process for each
    worker, and where there are none of a size, forwards with as much more.
    """
    target, draft = {}, {}
    async with serving(pipeline="lockstep", lookahead="fixed", drafters=("draft",)) as engine:
        for k in (0, 1, 3, 7, 15):
            told, host_s = await counted(engine, k)
            rounds = told.num_target_passes
            target[k + 1] = 1e3 * told.target_s / rounds
            rest_s = (told.elapsed_s - told.target_s - told.draft_step_s) / rounds
            if k == 3:
                draft[1] = 1e3 * told.draft_step_s / told.num_draft_passes
                hop_s = max(0.0, rest_s - host_s) / 4
    async with serving(pipeline="ahead", drafters=ALL, trace=trace) as engine:
        told, host_s = await counted(engine, None)
        idle_s = told.elapsed_s - told.target_s - told.draft_wait_s
        ahead_hop_s = idle_s / told.num_target_passes / 2  # and the choice of a tree
    steps = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["name"] == "step":
            steps.setdefault(event["args"]["num_tokens"], []).append(event["dur"] / 1e3)
    draft |= {size: statistics.median(took) for size, took in steps.items() if len(took) >= 20}
    curves = {"hop_s": hop_s, "ahead_hop_s": ahead_hop_s, "host_s": host_s}
    for role, known in (("target", target), ("draft", draft)):
        forwards = forward_ms(role)
        most = max(size for size in known if size in forwards)
        known |= {
            size: ms + known[most] - forwards[most]
            for size, ms in forwards.items()
            if size > max(known)
        }
        curves[role] = [(size, round(known[size], 3)) for size in sorted(known)]
    return curves


@contextlib.asynccontextmanager
async def serving(**options):
    from outrider.actors.engine.config import EngineConfig, EngineOptions
    from outrider.actors.engine.engine import Engine
    from outrider.actors.executor.executor import ProcessExecutor

    options |= {"numerics": "exact", "is_colocated": False, "num_threads": 1}
    config = EngineConfig(DEMO / "target", DEMO / "draft", EngineOptions(**options))
    engine = await Engine.start(config, ProcessExecutor())
    try:
        yield engine
    finally:
        await engine.stop()


async def counted(engine, k):
    """Of 400 tokens, behind as many; and the seconds of CPU that a round takes here."""
    from outrider.actors.scheduling.request import Request
    from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams

    sampling = SamplingParams(temperature=0.0, max_tokens=400, ignores_eos=True)
    request = Request((5, 6, 7), sampling, seed=0, speculation=SpeculationParams(k=k))
    for _ in range(2):
        engine.statistics.reset()
        began = time.process_time()
        async for _chunk in engine.generate(request):
            pass
    told = engine.statistics.snapshot()
    return told, (time.process_time() - began) / told.num_target_passes


def beside(file, curves):
    """Real and virtual ratios to plain decoding."""
    told, curves = json.loads(file.read_text()), json.loads(curves.read_text())
    target, draft = (Table(tuple(map(tuple, curves[role]))) for role in ("target", "draft"))
    hop_s, host_s = curves["hop_s"], curves["host_s"]
    machine = Machine("here", target, draft, hop_s, "measured", host_s=host_s)
    machines = {
        Pipeline.LOCKSTEP: machine,
        Pipeline.AHEAD: replace(machine, hop_s=curves["ahead_hop_s"], draft_hop_s=hop_s),
    }
    text = Texts()["questions"]
    text = replace(text, prompts=text.prompts[:8], max_tokens=128, num_seeds=1)
    print("| variant | temperature | real | virtual | virtual / real |\n|---|---|---|---|---|")
    for temperature in (0.0, 1.0):
        seconds = told[f"T={temperature:g}, 1 streams"]["seconds"]
        plain = None
        for name, setting in REAL.items():
            world = World(machines[setting.pipeline], text, temperature)
            made = world.run(setting, *REAL_ROUNDS).tokens_per_s
            plain = plain or made
            pairs = zip(seconds["plain process"], seconds[name], strict=True)
            real = statistics.median(a / b for a, b in pairs)
            line = f"| {name} | {temperature:g} | {real:.2f} | {made / plain:.2f} "
            print(f"{line}| {made / plain / real:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", dest="is_quick")
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--beside", type=Path, nargs=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=None)
    parser.add_argument("--texts", nargs="+", choices=[*NAMES, *MODELLED, *HEADS], default=None)
    parser.add_argument("--temperatures", nargs="+", type=float, default=None)
    parser.add_argument("--rows", nargs="+", type=int, default=None)
    parser.add_argument("--costs", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    if args.measure:
        with tempfile.TemporaryDirectory() as folder:
            curves = asyncio.run(measure(Path(folder) / "trace.json"))
        args.measure.write_text(json.dumps(curves))
        print(json.dumps(curves, indent=1))
        return
    if args.beside:
        beside(*args.beside)
        return
    args.texts = args.texts or (QUICK_TEXTS if args.is_quick else list(USUAL))
    args.smollm2 = None
    if set(args.texts) & set(OF_SMOLLM2):
        from real_model import RealModel

        args.smollm2 = RealModel().folder
    found = {}
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        for part in pool.map(partial(measured, args), args.texts):
            found |= part
    print(table(found))
    if args.json:
        flat = {t: {name: each[0] for name, each in f.items()} for t, f in found.items()}
        args.json.write_text(json.dumps(flat, indent=1))


if __name__ == "__main__":
    main()
