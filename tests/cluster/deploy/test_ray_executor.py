"""What a Ray actor does on its own account; placement and replacement are test_serve's."""

import os

import pytest

from outrider.cluster.deploy import ray_executor
from outrider.cluster.deploy.ray_executor import HostActor


class Left(BaseException):
    """In place of the end of the process."""


class Host:
    """Serves a coordinator for so many looks."""

    def __init__(self, num_looks: int) -> None:
        self.num_looks = num_looks
        self.is_closed = False

    @property
    def is_serving(self) -> bool:
        self.num_looks -= 1
        return self.num_looks >= 0

    def close(self) -> None:
        self.is_closed = True


def test_a_worker_ends_itself_once_its_coordinator_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(status: int) -> None:
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(ray_executor, "ORPHAN_S", 0.05)
    monkeypatch.setattr(ray_executor, "ORPHAN_POLL_S", 0.01)
    actor, host = HostActor(None), Host(num_looks=20)  # type: ignore[arg-type]
    actor._host = host  # type: ignore[assignment]
    with pytest.raises(Left):
        actor._end_with_coordinator()
    assert host.is_closed
    assert -6 <= host.num_looks <= -5  # it looked on for as long as it was served, and then 0.05 s
