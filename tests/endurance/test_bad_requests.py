"""Two thousand bad requests in order, beside a good stream: nobody notices, nothing is left."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from endurance import bad_requests
from endurance.run_bad_requests import beside, memory
from live.process import LiveProcess

pytestmark = pytest.mark.slow

NUM, RATE, WARM = 2000, 50.0, 200
SLACK = 64 << 20  # bytes: a tenth of so small a server is less than one body of 8 MB takes


@pytest.fixture
def server() -> Iterator[LiveProcess]:
    server = LiveProcess("engine.kv_tokens=4096")  # taken as it is written: soon all of it
    try:
        yield server
    finally:
        server.stop()


async def test_others_do_not_notice(server: LiveProcess) -> None:
    port = int(server.url.rpartition(":")[2])
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        await beside(http, port, bad_requests.send, range(-WARM, 0), RATE, 0)
        before = memory(server.pid)
        outcomes, _ = await beside(http, port, bad_requests.send, range(NUM), RATE, 0)
        assert len(outcomes) == NUM
        # An upgrade is answered by the proxy, which this server has not: deploy/test_serve.py.
        own = [each for each in outcomes if b"upgrade: websocket" not in each.request]
        assert [each for each in own if not each.is_refused] == []
        assert len({each.kind for each in outcomes}) == len(bad_requests.KINDS)
        async with asyncio.timeout(60):
            while (await http.get("/health")).json()["num_running"]:
                await asyncio.sleep(0.2)
        pages = (await http.get("/inside/pages")).json()
        assert [pool["num_sequences"] for pool in pages.values()] == [0, 0]
        assert memory(server.pid) <= before * 1.1 + SLACK
