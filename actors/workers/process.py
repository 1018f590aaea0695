"""`python -m outrider.actors.workers.process`: a worker as a child process of a coordinator.

Reads (spec, secret) as one line of JSON, answers (endpoint, "", "") or (null, error class,
message), and serves until its standard input ends, which it does when the parent dies, however that
came about.
"""

import logging
import os
import signal
import sys

import msgspec

from outrider.actors.errors import OutriderError
from outrider.actors.wiring import WorkerSpec


def main() -> None:
    """Serve one worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the parent's to handle
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries that print must not break it
    spec, secret = msgspec.json.decode(sys.stdin.buffer.readline(), type=tuple[WorkerSpec, bytes])
    from outrider.actors.wire.host import WorkerHost  # torch comes with it

    try:
        host = WorkerHost(spec, secret)
    except OutriderError as error:
        answers.write(msgspec.json.encode((None, type(error).__name__, str(error))) + b"\n")
        answers.flush()
        sys.exit(1)
    answers.write(msgspec.json.encode((host.listen(), "", "")) + b"\n")
    answers.flush()
    sys.stdin.buffer.read()
    host.close()
    os._exit(0)  # a model step in a daemon thread must not hold us


if __name__ == "__main__":
    main()
