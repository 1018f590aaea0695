"""A process that was started here, those below it, and what they hold. Linux only: reads /proc."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_S = 240.0  # on a loaded machine with cold compiler caches
STOP_S = 120.0
POLL_S = 0.05


def parents():
    """Parent by process, zombies included."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while we looked
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def descendants(root):
    """Every process below `root`."""
    found, above, size = {root}, parents(), 0
    while size != len(found):
        size = len(found)
        found |= {pid for pid, parent in above.items() if parent in found}
    return found - {root}


def is_zombie(pid):
    """Whether it has ended and nobody has asked how."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def resident_bytes(pid):
    """Its memory; None if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def descriptors(pid):
    """How many it holds, and how many of them are sockets; None if it has ended."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    num_sockets = 0
    for name in names:
        with contextlib.suppress(OSError):  # it closed this one while we looked
            num_sockets += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
    return len(names), num_sockets


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
