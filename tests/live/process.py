"""A server that was started here, and everything that it started. Linux only."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from live.proc import descendants, parents

START_S = 240.0  # on a loaded machine with cold compiler caches
STOP_S = 120.0
POLL_S = 0.05


def await_(condition, limit_s, words):
    """Until it holds. `words` says what is amiss if it never does."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s, words()
        time.sleep(POLL_S)


class LiveProcess:
    """`tests/live/server.py`, its folder, and everything it started."""

    def __init__(self, *arguments):
        self.folder = Path(tempfile.mkdtemp(prefix="live-", dir="/tmp"))  # sockets' paths are short
        self._below = set()  # what it had started when it was told to end
        self._said, self._log = self.folder / "said", self.folder / "log"
        environment = {name: v for name, v in os.environ.items() if not name.startswith("OUTRIDER")}
        environment["TMPDIR"] = str(self.folder)
        command = [sys.executable, str(Path(__file__).with_name("server.py")), *arguments]
        with self._said.open("w") as out, self._log.open("w") as err:
            self._process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        try:
            await_(self._is_up, START_S, self._log.read_text)
        except BaseException:
            self.kill()
            raise
        self.url = f"http://127.0.0.1:{int(self._said.read_text())}"

    @property
    def pid(self):
        return self._process.pid

    def _is_up(self):
        assert self._process.poll() is None, self._log.read_text()
        return self._said.read_text().endswith("\n")

    def end(self):
        """Ask it to, as an operator would."""
        self._below |= descendants(self.pid)
        self._process.send_signal(signal.SIGTERM)

    def stop(self):
        """See it end; nothing may be left."""
        self.end()
        below = self._below
        try:
            assert self._process.wait(STOP_S) == 0, self._log.read_text()
            await_(lambda: not below & parents().keys(), STOP_S, lambda: f"still there: {below}")
            assert not list(self.folder.glob("outrider-*"))
            assert "Traceback" not in self._log.read_text(), self._log.read_text()
        finally:
            self.kill()

    def kill(self):
        """End it for certain; its workers end with their pipes."""
        if self._process.poll() is None:
            self._below |= descendants(self.pid)
            self._process.kill()
            self._process.wait()
        await_(lambda: not self._below & parents().keys(), STOP_S, lambda: f"left: {self._below}")
        shutil.rmtree(self.folder, ignore_errors=True)
