"""Law 3 over HTTP: `outrider serve` on loopback, streams without pause, and a signal every moment.

    PYTHONPATH=tests python tests/endurance/chaos.py [--kills 30] [--stops 10] [--streams 16]
                                                 [--seed 0] [--json FILE]

Each stream asks for one text again and again; a text that differs from the undisturbed one, or any
error, ends the run. Signals go to the draft or the target, whichever chance names of those that are
up, and to no process but those that the server started. A detection is measured from the signal to
the answer of /health that tells of it (asked every 10 ms, so it is an upper bound), a
pause from the notice to the next worker being up, as the server has it; a gap is the longest
silence that a client saw within a stream. Afterwards nothing may be left: no process, socket,
folder, descriptor or running sequence.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from live.proc import descendants, descriptors, is_zombie, parents, running

START_S = 240.0
UP_S = 120.0  # for a worker to be up again on a loaded machine
STOP_S = 30.0
POLL_S = 0.01
PROMPTS = ["def add(a, b):", "import os", "What does str.split do?", "class Stack:", "for line in"]


def replica(server):
    """The coordinator's process."""
    found = running(server.process.pid, "ServeReplica")
    assert len(found) == 1, f"replicas: {found}, expected one"
    return found[0]


class Server:
    """`outrider serve`, its folder and what it started."""

    def __init__(self, deadline_s):
        self.folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))  # Ray's paths are long
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        settings = [f"engine.worker_deadline_s={deadline_s}", f"cluster.temp_dir={self.folder}"]
        settings += ["engine.is_colocated=false", "engine.num_threads=1"]  # two to strike at
        settings += ["engine.kv_tokens=8192"]  # taken as it is written: soon all of it
        command = [sys.executable, "-m", "outrider.cluster.cli", "serve", "--port", str(port)]
        command += ["--numerics", "exact"]
        command += [part for setting in settings for part in ("--set", setting)]
        self.log = self.folder / "log"
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr)
        self.below = set()

    def await_start(self):
        started = time.monotonic()
        while "curl" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() - started < START_S, self.log.read_text()
            time.sleep(0.2)

    def sockets(self):
        """Folders of workers' sockets."""
        return sorted(self.folder.glob("outrider-*"))

    def stop(self):
        below = descendants(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOP_S) == 0
        started = time.monotonic()
        while left := below & parents().keys():
            assert time.monotonic() - started < STOP_S, f"still there: {left}"
            time.sleep(0.1)
        assert not self.sockets()
        shutil.rmtree(self.folder)


@dataclass
class Report:
    """What was measured, in seconds."""

    detections: dict[str, list[float]] = field(default_factory=lambda: {"kill": [], "stop": []})
    pauses: dict[str, list[float]] = field(default_factory=lambda: {"target": [], "draft": []})
    gaps: list[float] = field(default_factory=list)
    num_texts: int = 0
    num_descriptors: int = 0  # of the coordinator, every stream connected, before the first signal
    num_by_role: dict[str, int] = field(default_factory=lambda: {"target": 0, "draft": 0})


def bodies(rng, count):
    return [
        {
            "model": "demo",
            "prompt": rng.choice(PROMPTS),
            "max_tokens": rng.randrange(100, 400),
            "temperature": rng.choice([0.0, 0.7, 1.0]),
            "seed": rng.randrange(2**31),
            "stream": True,
        }
        for _ in range(count)
    ]


async def text_of(http, body, report=None):
    """The streamed text and its finish reason; the longest silence goes into the report."""
    text, reason, last, gap = "", None, time.monotonic(), 0.0
    async with http.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            now = time.monotonic()
            gap, last = max(gap, now - last), now
            for choice in event["choices"]:
                text += choice["text"]
                reason = choice["finish_reason"] or reason
    assert reason is not None, "the stream broke off"
    if report is not None:
        report.gaps.append(gap)
        report.num_texts += 1
    return text, reason


class Watch:
    """What /health says, asked again and again by one task."""

    def __init__(self, http):
        self._http = http
        self.health = None

    async def run(self):
        while True:
            self.health = (await self._http.get("/health")).json()
            await asyncio.sleep(POLL_S)

    def worker(self, role):
        return next(each for each in self.health["workers"] if each["role"] == role)

    def up(self):
        return [each for each in self.health["workers"] if each["state"] == "up"]

    async def until(self, condition, what):
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < UP_S, what
            await asyncio.sleep(POLL_S)


async def strike(watch, server, rng, kind, report):
    """One signal to one worker at a random moment of its life; return when it was noticed."""
    await asyncio.sleep(rng.random() * 2.0)
    while not watch.up():
        await watch.until(watch.up, "no worker is up")
        await asyncio.sleep(rng.random() * 2.0)  # not always at its very first moment
    struck = rng.choice(watch.up())
    role, pid = struck["role"], struck["pid"]
    assert pid in descendants(server.process.pid), "not ours"
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    counter = "num_deaths" if kind == "kill" else "num_hangs"
    await watch.until(lambda: watch.worker(role)[counter] > struck[counter], f"{role} not missed")
    report.detections[kind].append(time.monotonic() - started)
    report.num_by_role[role] += 1
    print(f"{time.strftime('%X')} {kind} {role}", file=sys.stderr)
    return role, struck["num_restarts"]


async def restarted(watch, role, num_restarts, report):
    """Wait until the worker's successor is up, and note the pause."""
    await watch.until(lambda: watch.worker(role)["num_restarts"] > num_restarts, f"no {role} came")
    report.pauses[role].append(watch.worker(role)["pause_s"])


async def storm(server, args, report):
    """Streams and signals, until every signal was sent and everybody is up again."""
    rng = random.Random(args.seed)
    kinds = ["kill"] * args.kills + ["stop"] * args.stops
    rng.shuffle(kinds)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=None, limits=limits) as http:
        asked = bodies(rng, args.streams)
        expected = [await text_of(http, body) for body in asked]
        is_over, watch = False, Watch(http)

        async def stream(number):
            while not is_over:
                got = await text_of(http, asked[number], report)
                assert got == expected[number], (asked[number], got, expected[number])

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run())
            for number in range(args.streams):
                group.create_task(stream(number))
            await asyncio.sleep(2.0)
            report.num_descriptors = descriptors(replica(server))
            waits = []
            for kind in kinds:
                role, num_restarts = await strike(watch, server, rng, kind, report)
                waits.append(group.create_task(restarted(watch, role, num_restarts, report)))
            await asyncio.gather(*waits)
            is_over = True
            await watch.until(lambda: watch.health["num_running"] == 0, "sequences are left")
            assert watch.health["status"] == "ok", watch.health
            watching.cancel()
        return expected == [await text_of(http, body) for body in asked]


def check_remains(server, report):
    """Of all that was killed, nothing is left beside what runs."""
    zombies = [pid for pid in descendants(server.process.pid) if is_zombie(pid)]
    assert not zombies, zombies
    assert len(server.sockets()) == 3, server.sockets()  # of two workers and what forks them
    num_added = descriptors(replica(server)) - report.num_descriptors
    assert num_added <= 2, num_added  # a connection or two of the proxy's


def summary(times):
    if not times:
        return "none"
    middle = statistics.median(times)
    return f"{len(times)}: median {middle:.3f} s, {min(times):.3f} to {max(times):.3f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--deadline", type=float, default=3.0, help="engine.worker_deadline_s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # stops the server
    server, report = Server(args.deadline), Report()
    try:
        server.await_start()
        started = time.monotonic()
        assert asyncio.run(storm(server, args, report))
        elapsed_s = time.monotonic() - started
        check_remains(server, report)
    finally:
        server.stop()
    print(f"{args.streams} streams, {report.num_texts} texts, all undisturbed; {elapsed_s:.0f} s")
    print(f"signals by role: {report.num_by_role}")
    for kind, times in report.detections.items():
        print(f"detected after a {kind}: {summary(times)}")
    for role, times in report.pauses.items():
        print(f"pause of the {role}: {summary(times)}")
    print(f"longest silence of a stream: {summary(report.gaps)}")
    if args.json:
        args.json.write_text(json.dumps(vars(report) | {"elapsed_s": elapsed_s}, indent=1))


if __name__ == "__main__":
    main()
