"""`python -m outrider.actors.executor.worker_main [--spare]`: a worker as a child of a coordinator.

Imports what a worker needs (a spare says so by an empty line), reads an Errand as one line of JSON,
answers (address, "", "") or (null, error class, message), and serves until its standard input ends,
which it does when the parent dies, however that came about.
"""

import logging
import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from outrider.actors.errors import OutriderError
from outrider.actors.executor import heap
from outrider.actors.sizing.machine import pin
from outrider.actors.transport.worker_spec import Errand

if TYPE_CHECKING:
    from outrider.actors.executor.worker_host import WorkerHost

HOST = "outrider.actors.executor.worker_host"  # torch and transformers come with it
LEAST_NICE = 19
ORPHAN_POLL_S = 1.0


def main() -> None:
    """Serve one worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the parent's to handle
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries that print must not break it
    if "--spare" in sys.argv:
        _import_in_the_background()
        answers.write(b"\n")  # ready
        answers.flush()
    else:
        import_module(HOST)
    line = sys.stdin.buffer.readline()
    if not line:
        return  # a spare that was not needed
    errand = msgspec.json.decode(line, type=Errand)
    if errand.cores:
        pin(errand.cores)
    from outrider.actors.executor.worker_host import WorkerHost

    try:
        host = WorkerHost(errand.spec, errand.secret, errand.folder)
    except OutriderError as error:
        answers.write(msgspec.json.encode((None, type(error).__name__, str(error))) + b"\n")
        answers.flush()
        sys.exit(1)
    heap.freeze()
    address = host.listen(errand.tcp_host, errand.tcp_ports)
    answers.write(msgspec.json.encode((address, "", "")) + b"\n")
    answers.flush()
    if errand.orphan_s:
        watch = threading.Thread(target=_end_alone, args=(host, errand.orphan_s), daemon=True)
        watch.start()
    sys.stdin.buffer.read()
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


def _import_in_the_background() -> None:
    """Import when no other thread of the machine wants to run. Niceness is a thread's own on
    Linux, and cannot be taken back: so a thread that ends with the import.
    """

    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_NICE)
        import_module(HOST)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
