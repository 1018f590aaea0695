"""`python -m outrider.actors.executor.fork_server_main FD ADDRESS NICENESS`: forks workers.

Imports what a worker needs and loads the CPU's kernels, then answers on the listening socket FD. A
request is the folder to work in and the environment behind their length, with a socket for standard
input and output and a file for standard error; the answer is a line with the fork's process id and,
when it has ended, one with its status. Ends when its own standard input does, which it does when
its parent dies.
"""

import logging
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from outrider.actors.executor import heap, worker_main
from outrider.actors.sizing.machine import num_gpus

IMPORTS = ("outrider.actors.executor.worker_host",)  # torch and transformers come with it
ASK_TIMEOUT_S = 5.0
JOIN_POLL_S = 0.001


def main() -> None:
    """Serve until standard input ends."""
    descriptor, address, niceness = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the parent's to handle
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    heap.pause()
    preparing = threading.Thread(target=prepare, args=(int(niceness),))
    preparing.start()
    join(preparing)
    prepare()  # raises what failed there
    # What is shared stays shared: the collector would write to it. The garbage of imports is 9 MB.
    heap.freeze(collects=False)
    _ForkServerLoop(socket.socket(fileno=int(descriptor))).run()
    with suppress(OSError):
        os.unlink(address)
        os.rmdir(os.path.dirname(address))
    os._exit(0)


def join(thread: threading.Thread) -> None:
    """Until the system's thread has ended too, which is after Python's. As it ends it holds locks
    of MKL's for a moment, and a fork of that moment would wait for them for ever.
    """
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(JOIN_POLL_S)


def prepare(niceness: int = 0) -> None:
    """What all forks need. Niceness is a thread's own on Linux, and cannot be taken back: so in a
    thread that ends with it.
    """
    if niceness:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    for name in IMPORTS:
        import_module(name)
    if not num_gpus():
        # Whatever the environment says: a fork would wait for threads that it has not.
        import_module("outrider.actors.runner.cpu.threads").share_among(1)
        with suppress(Exception):  # it fails again where it is needed, and is told there
            import_module("outrider.actors.workers.warming").warm_for_all()


class _ForkServerLoop:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._children: dict[int, socket.socket] = {}  # by process id: who asked for it
        self._woken, waker = os.pipe()
        for end in (self._woken, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._waker = waker

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        for source in (0, self._woken, self._listener):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if 0 in ready and not os.read(0, 1):
                return
            if self._woken in ready:
                os.read(self._woken, 512)
                self._reap()
            if self._listener in ready:
                connection, _ = self._listener.accept()
                try:
                    self._answer(connection)
                except (OSError, ValueError):
                    logging.exception("a fork was asked for, and could not be made")
                    connection.close()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(ASK_TIMEOUT_S)
        head, files, _, _ = socket.recv_fds(connection, 4, 2)
        try:
            pipe, errors = files
            asked = bytearray()
            while missing := int.from_bytes(head, "big") - len(asked):
                if not (part := connection.recv(missing)):
                    raise ValueError("The request ended early")
                asked += part
            folder, *environment = bytes(asked).split(b"\0")
            if (pid := os.fork()) == 0:
                self._become(connection, pipe, errors, folder, environment)
        finally:
            for file in files:
                os.close(file)
        self._children[pid] = connection
        connection.sendall(b"%d\n" % pid)

    def _become(
        self,
        connection: socket.socket,
        pipe: int,
        errors: int,
        folder: bytes,
        environment: list[bytes],
    ) -> NoReturn:
        """A worker: nothing of the server's stays open."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._listener, connection, *self._children.values()):
                each.close()
            for target, source in enumerate((pipe, pipe, errors)):
                os.dup2(source, target)
            for own in (pipe, errors, self._woken, self._waker):
                os.close(own)
            os.environ.clear()
            for pair in environment:
                name, _, value = pair.partition(b"=")
                os.environb[name] = value
            os.chdir(folder)
            tempfile.tempdir = None  # as the environment says
            worker_main.main()
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._children.pop(pid) as connection, suppress(OSError):  # nobody may listen
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
