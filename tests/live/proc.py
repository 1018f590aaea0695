"""What Linux tells of processes in /proc. Who ended while we looked is left out."""

import contextlib
import os
from pathlib import Path


def parents() -> dict[int, int]:
    """Parent by process, zombies included."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def children(root: int) -> set[int]:
    """Every process that `root` has started."""
    return {pid for pid, parent in parents().items() if parent == root}


def descendants(root: int) -> set[int]:
    """Every process below `root`."""
    found, above, size = {root}, parents(), 0
    while size != len(found):
        size = len(found)
        found |= {pid for pid, parent in above.items() if parent in found}
    return found - {root}


def running(root: int, words: str) -> list[int]:
    """Those below `root` whose command line holds these words, the oldest first."""
    found = []
    for pid in sorted(descendants(root)):
        with contextlib.suppress(OSError):
            if words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def name_of(pid: int) -> str:
    """The process's own name; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_zombie(pid: int) -> bool:
    """Whether it has ended and nobody has asked how."""
    return _state(pid) == "Z"


def is_running(pid: int) -> bool:
    """Whether it is there and has not ended."""
    return _state(pid) not in ("", "Z")


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def resident_bytes(pid: int) -> int | None:
    """Its memory; None if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def descriptors(pid: int) -> int:
    """How many it holds. Raises OSError if it has ended: that is not to hold none."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def sockets(pid: int) -> set[str]:
    """The inodes of its open sockets."""
    links = []
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it closed this one while we looked
                links.append(os.readlink(descriptor))
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def unix_sockets(pid: int) -> list[str]:
    """The paths of its Unix sockets."""
    inodes = sockets(pid)
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [line[7] for line in lines if len(line) > 7 and line[6] in inodes]
