"""`outrider serve` with the demo pair, its replica killed in mid-stream: is the text the same?

    PYTHONPATH=tests python tests/endurance/resume.py [--kills 20] [--tokens 900]
                                                  [--temperature 1] [--seed 0]

Each round asks for a text undisturbed, asks again, kills the replica's process (the Serve actor:
HTTP and coordinator; its workers end with it) after a random number of chunks, and lets the SDK's
client read on, with its defaults. Signals go to no process but those that the server started.
What is printed: texts and ids that were the same, requests a stream took, and the longest silence
of each stream.
"""

import argparse
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
from pathlib import Path

from live.proc import running

from outrider.clients.client import Client
from outrider.clients.errors import OutriderClientError

START_S = 240.0
STOP_S = 60.0
PROMPTS = ["def add(a, b):", "import os", "What does str.split do?", "class Stack:", "for line in"]


class Server:
    """`outrider serve`, and its folder."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="resume-", dir="/tmp"))  # Ray's paths are long
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "outrider.cluster.cli", "serve", "--port", str(port)]
        command += [
            "--set",
            "engine.is_colocated=false",
            "--numerics",
            "exact",
            "--set",
            f"cluster.temp_dir={self.folder}",
        ]
        self.log = self.folder / "log"
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr)

    def await_start(self):
        started = time.monotonic()
        while "curl" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() - started < START_S, self.log.read_text()
            time.sleep(0.2)

    def kill_replica(self):
        (pid,) = running(self.process.pid, "ServeReplica")
        os.kill(pid, signal.SIGKILL)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOP_S) == 0, self.log.read_text()
        shutil.rmtree(self.folder)


def disturbed(client, server, num_before, **asked):
    """The answer of a stream whose replica is killed after some chunks, and its pause."""
    with client.stream(**asked) as stream:
        for _ in range(num_before):
            next(stream)
        server.kill_replica()
        killed = last = time.monotonic()
        pause_s = 0.0
        for _ in stream:  # chunks that were under way come first: the pause is the longest silence
            now = time.monotonic()
            pause_s, last = max(pause_s, now - last), now
        print(f"  {stream.num_attempts} attempts, pause {pause_s:.1f} s", file=sys.stderr)
        assert last > killed
        return stream.result(), pause_s


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=900)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # stops the server
    rng, server = random.Random(args.seed), Server()
    num_same, num_broken, pauses, attempts = 0, 0, [], []
    try:
        server.await_start()
        with Client(server.url, api_key="") as client:
            for number in range(2 * args.kills):
                if num_broken == args.kills:
                    break
                asked = {
                    "prompt": rng.choice(PROMPTS),
                    "seed": rng.randrange(2**31),
                    "max_tokens": args.tokens,
                    "temperature": args.temperature,
                    "ignore_eos": True,
                }
                expected = client.generate(**asked)
                num_before = rng.randrange(1, expected.speculation.num_rounds // 4)
                try:
                    answer, pause_s = disturbed(client, server, num_before, **asked)
                except OutriderClientError as error:
                    print(f"{number}: {type(error).__name__}: {error}", file=sys.stderr)
                    num_broken += 1
                    continue
                is_same = (answer.text, answer.token_ids) == (expected.text, expected.token_ids)
                assert is_same, (asked, expected.text, answer.text)
                if answer.num_attempts == 1:  # the rest was under way already: nothing broke
                    continue
                num_broken += 1
                num_same += 1
                pauses.append(pause_s)
                attempts.append(answer.num_attempts)
    finally:
        server.stop()
    print(f"{num_same} of {args.kills} texts are those of an undisturbed stream")
    if pauses:
        print(f"pauses: median {statistics.median(pauses):.1f} s, most {max(pauses):.1f} s")
        print(f"requests a stream: median {statistics.median(attempts):g}, most {max(attempts)}")
    sys.exit(num_same != args.kills)


if __name__ == "__main__":
    main()
