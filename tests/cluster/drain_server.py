"""A real uvicorn over the toy engine that drains on SIGTERM; run by test_drain as a process.

Arguments: the engine's delay before each commit, and the grace, in seconds. Says its port.
"""

import asyncio
import signal
import sys

import uvicorn
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.app import create_app
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service


async def main(delay_s: float, grace_s: float) -> None:
    """Serve until SIGTERM, drain, stop."""
    traffic = Traffic()
    app = create_app(Service("toy", engine=ToyEngine(delay_s)), traffic=traffic)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    is_told = asyncio.Event()
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_told.set)  # in its place
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await is_told.wait()
    await traffic.drain(grace_s)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2])))
