"""The toy engine behind the real application, with and without a socket."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import uvicorn
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.app import create_app
from outrider.cluster.api.service import Service


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


@pytest.fixture
async def url(service: Service) -> AsyncIterator[str]:
    """The application on a free port."""
    config = uvicorn.Config(create_app(service), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    await serving
