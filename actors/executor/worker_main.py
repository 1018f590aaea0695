"""What a forked process does to be a worker: it reads an Errand as one line of JSON, answers
(address, "", "") or (null, error class, message), and serves. It ends with its standard input, also
while it loads: that ends when whoever asked for it dies, however that came about.
"""

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from outrider.actors.errors import OutriderError
from outrider.actors.executor import heap
from outrider.actors.sizing.machine import pin
from outrider.actors.transport.worker_spec import Errand

if TYPE_CHECKING:
    from outrider.actors.executor.worker_host import WorkerHost

ORPHAN_POLL_S = 1.0


def main() -> None:
    """Serve one worker, to the process's end."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries that print must not break it
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)  # it was not needed
    errand = msgspec.json.decode(line, type=Errand)
    hosts = list["WorkerHost"]()
    ending = threading.Thread(target=_end_with_parent, args=(hosts,), daemon=True)
    ending.start()
    if errand.cores:
        pin(errand.cores)
    from outrider.actors.executor.worker_host import WorkerHost

    try:
        host = WorkerHost(errand.spec, errand.secret, errand.folder)
    except OutriderError as error:
        answers.write(msgspec.json.encode((None, type(error).__name__, str(error))) + b"\n")
        answers.flush()
        os._exit(1)
    hosts.append(host)
    heap.freeze()
    address = host.listen(errand.tcp_host, errand.tcp_ports)
    answers.write(msgspec.json.encode((address, "", "")) + b"\n")
    answers.flush()
    if errand.orphan_s:
        watch = threading.Thread(target=_end_alone, args=(host, errand.orphan_s), daemon=True)
        watch.start()
    ending.join()


def _end_with_parent(hosts: list["WorkerHost"]) -> None:
    """Wait for that. hosts: none while it loads, then one."""
    sys.stdin.buffer.read()
    for host in hosts:
        host.close()
    os._exit(0)  # a model step in a daemon thread must not hold us


def _end_alone(host: "WorkerHost", orphan_s: float) -> None:
    """Where its parent outlives the coordinator nobody else ends it."""
    alone_s = 0.0
    while alone_s < orphan_s:
        time.sleep(ORPHAN_POLL_S)
        alone_s = 0.0 if host.is_serving else alone_s + ORPHAN_POLL_S
    host.close()
    os._exit(1)
