"""A server killed in mid-stream twenty times, and another one on its port: the same text."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.clients.client import Client
from outrider.clients.options import RetryPolicy

TOY = Path(__file__).with_name("toy_server.py")
NUM_KILLS = 20
MAX_TRIES = 100


class Replica:
    """The toy as a process, again and again on one port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, TOY, str(self.port), "0.004"])

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def replica() -> Iterator[Replica]:
    replica = Replica()
    yield replica
    with contextlib.suppress(ProcessLookupError):
        replica.kill()


def test_twenty_kills(replica: Replica) -> None:
    rng = random.Random(0)
    retry = RetryPolicy(max_retries=10_000, base_s=0.02, cap_s=0.1)
    num_same = num_broken = 0
    with Client(f"http://127.0.0.1:{replica.port}", retry=retry) as client:
        for seed in range(MAX_TRIES):
            if num_broken == NUM_KILLS:
                break
            expected = client.generate("p", seed=seed, max_tokens=80)
            stream = client.stream("p", seed=seed, max_tokens=80)
            for _ in range(rng.randrange(1, 15)):
                next(stream)
            replica.kill()
            replica.start()
            answer = stream.result()
            if answer.num_attempts == 1:  # the rest was under way already: nothing broke
                continue
            num_broken += 1
            num_same += answer.text == expected.text and answer.token_ids == expected.token_ids
    assert num_same == NUM_KILLS
