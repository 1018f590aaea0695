"""What every process of a soak holds, looked at again and again."""

import asyncio
import statistics
import time
from dataclasses import asdict, astuple, dataclass, field

from live.proc import descendants, descriptors, is_zombie, resident_bytes, sockets

POLL_S = 0.5
UP_S = 240.0  # for a worker to be up again on a loaded machine


@dataclass
class Track:
    """One process's memory over its life."""

    role: str
    at: list[float] = field(default_factory=list)  # monotonic
    rss: list[int] = field(default_factory=list)  # bytes

    def growth(self, warm_s, window_s):
        """Of the memory, from its first window after the warm-up to its last; None if it did not
        live for both.
        """
        begin, end = self.at[0] + warm_s, self.at[-1]
        if end - begin < 2 * window_s:
            return None
        pairs = list(zip(self.at, self.rss, strict=True))
        first = statistics.median(rss for at, rss in pairs if begin <= at <= begin + window_s)
        last = statistics.median(rss for at, rss in pairs if at >= end - window_s)
        return last / first - 1


@dataclass(frozen=True)
class Rest:
    """What a server holds while nobody asks it anything."""

    num_tasks: int
    num_descriptors: int
    num_sockets: int
    num_processes: int

    def __str__(self):
        return ", ".join(f"{value} {name[4:]}" for name, value in asdict(self).items())

    def is_within(self, other):
        """Whether it is no more than the other, in everything."""
        return all(mine <= its for mine, its in zip(astuple(self), astuple(other), strict=True))


class Watch:
    """What /health says and /proc shows."""

    def __init__(self, http, server):
        self._http = http
        self._server = server
        self.health = None
        self.tracks = {}  # by process

    async def run(self):
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_S)

    async def look(self):
        self.health = (await self._http.get("/health")).json()
        roles = {each["pid"]: each["role"] for each in self.health["workers"]}
        roles[self._server.pid] = "server"
        now = time.monotonic()
        for pid in {self._server.pid, *descendants(self._server.pid)}:
            rss, role = resident_bytes(pid), roles.get(pid, "fork server")
            if rss is None:
                continue
            track = self.tracks.get(pid)
            if track is None or track.role != role:  # its number was given again
                track = self.tracks[pid] = Track(role)
            track.at.append(now)
            track.rss.append(rss)

    async def inside(self):
        return (await self._http.get("/inside")).json()

    async def pages(self):
        return (await self._http.get("/inside/pages")).json()

    async def rest(self):
        """Once nothing runs, waits or starts."""
        await self.until(self._is_at_rest, "it does not come to rest")
        pid = self._server.pid
        num_descriptors, num_sockets = descriptors(pid), len(sockets(pid))
        num_tasks = (await self.inside())["num_tasks"]
        return Rest(num_tasks, num_descriptors, num_sockets, len(descendants(pid)))

    def zombies(self):
        return [pid for pid in descendants(self._server.pid) if is_zombie(pid)]

    def worker(self, role):
        return next(each for each in self.health["workers"] if each["role"] == role)

    async def until(self, condition, words, limit_s=UP_S):
        """Look until it holds. Raises AssertionError if it never does."""
        started = time.monotonic()
        await self.look()
        while not condition():
            assert time.monotonic() - started < limit_s, f"{words}: {self.health}"
            await asyncio.sleep(POLL_S / 5)
            await self.look()

    def _is_at_rest(self):
        said = self.health
        return (said["status"], said["num_running"], said["num_waiting"]) == ("ok", 0, 0)
