"""A pod that leaves: its node is drained, and it waits for what is still there."""

import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from outrider.cluster.k8s import leave as leaving
from outrider.cluster.k8s.leave import leave, replicas

HEAD, HERE, ELSEWHERE = "10.0.0.1", "10.0.0.2", "10.0.0.3"


@dataclass
class Node:
    """As Ray's state has it."""

    node_manager_address: str
    is_head_node: bool = False
    state: int = 0  # alive

    @property
    def node_id(self) -> Any:
        return self.node_manager_address.encode()


@dataclass
class State:
    """Ray's state, and what it was asked."""

    nodes: list[Node]
    is_willing: bool = True
    drained: list[tuple[str, int]] = field(default_factory=list)

    def get_all_node_info(self) -> dict[bytes, Node]:
        return {node.node_id: node for node in self.nodes}

    def drain_node(self, node: str, reason: int, why: str, ends_ms: int) -> tuple[bool, str]:
        self.drained.append((node, ends_ms))
        return self.is_willing, "it does not want to"


@pytest.fixture
def state() -> State:
    return State([Node(HEAD, is_head_node=True), Node(HERE), Node(ELSEWHERE)])


@pytest.fixture
def replica() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is named as Ray names a replica's."""
    command = ["bash", "-c", "exec -a ray::ServeReplica:outrider:engine sleep 60"]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + 20
        while process.pid not in replicas():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process
        process.kill()


def test_a_node_is_drained_and_awaited(
    state: State, replica: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "replicas", lambda: [p for p in [replica.pid] if p in replicas()])
    monkeypatch.setattr(leaving, "POLL_S", 0.01)
    monkeypatch.setattr(leaving, "LINGER_S", 0.01)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(leave(state, HERE, 60)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    replica.kill()
    replica.wait()
    thread.join(30)
    assert results == [True]
    [(node, ends_ms)] = state.drained
    assert bytes.fromhex(node) == HERE.encode()
    assert 30e3 < ends_ms - time.time() * 1000 < 60e3


def test_it_does_not_wait_for_ever(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "replicas", lambda: [1])
    assert not leave(state, HERE, 0.01)


def test_a_node_that_may_not_leave_says_why(
    state: State, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leaving, "replicas", list)
    state.is_willing = False
    assert leave(state, HERE, 1)
    assert "it does not want to" in capsys.readouterr().err


def test_a_node_that_is_unknown_just_goes(state: State) -> None:
    state.nodes[1].state = 1  # dead
    assert leave(state, HERE, 1)
    assert state.drained == []


def test_the_head_waits_for_the_workers(state: State) -> None:
    assert not leave(state, HEAD, 0.01)
    state.nodes[1].state = state.nodes[2].state = 1
    assert leave(state, HEAD, 0.01)
    assert state.drained == []
