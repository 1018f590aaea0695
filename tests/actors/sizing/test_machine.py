"""What a process may use: its own limits, and those of the control groups around it."""

from pathlib import Path

import pytest

from outrider.actors.sizing import machine
from outrider.actors.sizing.machine import num_cores, this_machine

GIB = 1 << 30


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: frozenset(range(16)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: {32 * GIB // 1024} kB\nMemAvailable: {24 * GIB // 1024} kB"}


def test_a_machine_without_groups(tmp_path: Path) -> None:
    found = this_machine(write(tmp_path, MEMINFO))
    assert (found.num_cores, found.free_bytes) == (16, 24 * GIB)


def test_nobody_says_what_is_free(tmp_path: Path) -> None:
    assert this_machine(tmp_path).free_bytes is None


def test_a_container_of_version_2(tmp_path: Path) -> None:
    """Its quota is 2.5 cores; of its 8 GiB 3 are used, one of them by files that can go."""
    files = {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/memory.max": str(8 * GIB),
        "sys/fs/cgroup/memory.current": str(3 * GIB),
        "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GIB}",
        "sys/fs/cgroup/cpu.max": "250000 100000",
    }
    found = this_machine(write(tmp_path, MEMINFO | files))
    assert (found.num_cores, found.free_bytes) == (2, 6 * GIB)


def test_the_group_around_bounds_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pods/one",
        "sys/fs/cgroup/pods/one/memory.max": "max",
        "sys/fs/cgroup/pods/one/memory.current": "7",
        "sys/fs/cgroup/pods/memory.max": str(4 * GIB),
        "sys/fs/cgroup/pods/memory.current": str(GIB),
        "sys/fs/cgroup/pods/cpu.max": "max 100000",
        "sys/fs/cgroup/pods/one/cpu.max": "50000 100000",
    }
    found = this_machine(write(tmp_path, MEMINFO | files))
    assert (found.num_cores, found.free_bytes) == (1, 3 * GIB)  # less than a core is one


def test_a_container_of_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
        "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    root = write(tmp_path, MEMINFO | files)
    assert this_machine(root).free_bytes == GIB
    assert num_cores(root) == 4


def test_no_quota(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "3:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}
    assert num_cores(write(tmp_path, files)) == 16
