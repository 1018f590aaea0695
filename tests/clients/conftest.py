"""The toy server in a thread, and both clients of it."""

import os
from collections.abc import Iterator

import pytest
from clients.blocking import FAST, Blocking
from clients.toy_server import ToyServer, running

from outrider.clients.client import Client


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[ToyServer]:
    with running(ToyServer()) as server:
        yield server


@pytest.fixture(params=[Client, Blocking], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> type[Client]:
    """Which client; what is not one looks like it."""
    kind: type[Client] = request.param
    return kind


@pytest.fixture
def client(kind: type[Client], server: ToyServer) -> Iterator[Client]:
    with kind(server.url, retry=FAST) as client:
        yield client
