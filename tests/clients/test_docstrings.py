"""The examples in the SDK's docstrings, run against the toy server."""

import doctest
from types import ModuleType

import pytest
from clients.toy_server import ToyServer

import outrider.clients.async_client as asynchronous
import outrider.clients.client as blocking
from outrider.clients.client import Client


@pytest.mark.parametrize(("module", "num_examples"), [(blocking, 9), (asynchronous, 4)], ids=str)
def test_examples(
    module: ModuleType, num_examples: int, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_BASE_URL", server.url)
    with Client() as client:
        results = doctest.testmod(module, extraglobs={"client": client})
    assert results.failed == 0
    assert results.attempted >= num_examples
