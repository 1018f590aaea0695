"""What the terminal learns of a running server."""

import asyncio
from urllib.parse import urlsplit

import pytest
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.service import Service
from outrider.cluster.deploy.probe import Probe


@pytest.fixture
def probe(url: str) -> Probe:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    return Probe(address.hostname, address.port)


@pytest.mark.parametrize(
    ("status", "is_ready", "words"),
    [("ok", True, "ok"), ("degraded", True, "degraded"), ("failed", False, "failed")],
)
async def test_health_in_words(
    probe: Probe, engine: ToyEngine, status: str, is_ready: bool, words: str
) -> None:
    engine.status = status
    assert await asyncio.to_thread(probe.state) == words
    assert await asyncio.to_thread(lambda: probe.is_ready) is is_ready


async def test_no_engine(probe: Probe, service: Service) -> None:
    service.engine = None
    assert await asyncio.to_thread(probe.state) == "starting"


def test_no_server() -> None:
    nobody = Probe("127.0.0.1", 1)
    assert nobody.state() == "nothing answers"
    assert not nobody.is_ready


def test_an_address_for_all_is_asked_on_this_machine() -> None:
    assert Probe("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert Probe("::", 80).url == "http://[::1]:80"
