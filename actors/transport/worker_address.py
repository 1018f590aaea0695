"""Where a worker listens, and the secret that opens it. Handed over by whoever started the worker,
never broadcast.
"""

import os
import platform
import socket
from dataclasses import dataclass, field
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Names this boot of this machine; two processes that agree may share a Unix socket."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else socket.gethostname()


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """One listening worker."""

    role: str  # "draft" | "target"
    pid: int
    unix_path: str
    tcp: tuple[str, int] | None  # None: this machine only
    secret: bytes = field(repr=False)
    boot_id: str = field(default_factory=boot_id)
    node: str = field(default_factory=platform.node)  # the machine's or pod's name, to be shown

    @property
    def is_local(self) -> bool:
        """Whether the Unix socket can be reached (containers share a boot, not a disk)."""
        return self.boot_id == boot_id() and os.path.exists(self.unix_path)
