"""What a worker's process does on its own account."""

import os

import pytest

from outrider.actors.executor import worker_main


class Left(BaseException):
    """In place of the end of the process."""


class Host:
    """Serves a coordinator for so many looks."""

    def __init__(self, num_looks):
        self.num_looks = num_looks
        self.is_closed = False

    @property
    def is_serving(self):
        self.num_looks -= 1
        return self.num_looks >= 0

    def close(self):
        self.is_closed = True


def test_it_ends_itself_once_its_coordinator_is_gone(monkeypatch):
    def leave(status):
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(worker_main, "ORPHAN_POLL_S", 0.01)
    host = Host(num_looks=20)
    with pytest.raises(Left):
        worker_main._end_alone(host, 0.05)
    assert host.is_closed
    assert -6 <= host.num_looks <= -5  # it looked on for as long as it was served, and then 0.05 s
