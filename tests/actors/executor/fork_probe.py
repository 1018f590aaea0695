"""A server as `fork_server_main` that imports little, and whose forks tell what they have."""

import json
import os
import sys
from contextlib import suppress

from outrider.actors.executor import fork_server_main, worker_main


def tell():
    """One line; to the end of standard input."""
    files = {}
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            files[each] = os.readlink(f"/proc/self/fd/{each}")
    found = {"environment": dict(os.environ), "folder": os.getcwd(), "files": files}
    os.write(1, json.dumps(found).encode() + b"\n")
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    fork_server_main.prepare = lambda niceness=0: None
    worker_main.main = tell
    fork_server_main.main()
