"""A model's name on the hub, `org/name[@revision]`, told from a directory."""

import re
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(
    r"(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(@(?P<revision>[\w][\w./-]*))?", flags=re.ASCII
)
SNAPSHOT = re.compile(r"models--(?P<org>.+?)--(?P<name>.+)/snapshots/(?P<revision>[^/]+)/?$")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository, and a branch, tag or commit of it; by default the main branch."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def hub_name(model: str) -> HubName | None:
    """The name that this is, if it is none of a path that exists."""
    found = NAME.fullmatch(model)
    if found is None or Path(model).exists():
        return None
    return HubName(found["repo"], found["revision"])


def of_snapshot(path: Path) -> HubName | None:
    """The name that a folder of the hub's cache has, there or on another machine."""
    found = SNAPSHOT.search(path.as_posix())
    return found and HubName(f"{found['org']}/{found['name']}", found["revision"])
