"""What this process may use of its machine: cores and memory, by its own limits and by those of the
control group that it runs in, which is how containers are bounded.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GROUPS = Path("sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    """What is there now."""

    num_cores: int
    free_bytes: int | None  # None where nobody says
    num_gpus: int = 0


@cache
def cores() -> frozenset[int]:
    """Those that this process may use, before any thread of it kept off some; none are known but
    on Linux.
    """
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())


def num_cores(root: Path = Path("/")) -> int:
    """How many this process may use: a container's quota counts, whatever the machine has."""
    most = len(cores()) or os.cpu_count() or 1
    for quota, period in _quotas(root):
        most = min(most, max(1, math.floor(quota / period)))
    return most


def this_machine(root: Path = Path("/")) -> Machine:
    """As it is now."""
    found = [*_free_in_groups(root), *_available(root)]
    return Machine(num_cores(root), min(found, default=None), num_gpus())


def num_gpus() -> int:
    """That CUDA would show to this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(list(Path("/dev").glob("nvidia[0-9]*")))
    return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])


def pin(chosen: Sequence[int]) -> None:
    """Keep every thread there is, and so every later one, on these cores."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(int(thread), chosen)


def _available(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of our group and of those around it."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        if number == "0":  # version 2 has one tree for all
            base = root / GROUPS
        elif controller in names.split(","):
            base = root / GROUPS / controller
        else:
            continue
        inner = base / path.strip("/")
        # Within a container the path may be the host's: the container's own is the root then.
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(base):
                yield folder


def _free_in_groups(root: Path) -> Iterator[int]:
    for folder in _groups(root, "memory"):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, usage = _number(folder / most), _number(folder / used)
            if limit is not None and usage is not None:
                yield max(0, limit - usage + _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    """Files in memory that are given up when it is wanted."""
    for line in _read(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    for folder in _groups(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota), int(period)
        old = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if old[0] is not None and old[0] > 0 and old[1]:
            yield old[0], old[1]


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
