"""The toy engine behind the real application."""

from collections.abc import AsyncIterator

import httpx
import pytest
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.app import create_app
from outrider.cluster.api.served_engine import Service


@pytest.fixture
def engine() -> ToyEngine:
    return ToyEngine()


@pytest.fixture
def service(engine: ToyEngine) -> Service:
    return Service("toy", engine=engine)


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, without a socket."""
    transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as client:
        yield client
