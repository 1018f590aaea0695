"""A replica without Ray: the real engine, its workers as processes, behind the real application.

    python tests/live/server.py [section.key=value ...]

Says its port, and ends on SIGTERM as a replica does: drained. Beside the application's routes it
answers two that tell what no client is told, `/inside` and `/inside/pages`.
"""

import asyncio
import os
import signal
import sys

import uvicorn

from outrider.actors.engine.engine import Engine
from outrider.actors.executor.executor import ProcessExecutor
from outrider.actors.transport.messages import Ping
from outrider.cluster.api.app import create_app
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service
from outrider.cluster.config.sources import from_assignments, load
from outrider.cluster.deploy.settings import api_limits, engine_config, policy

# Two workers to strike at, whatever is faster here.
APART = ("engine.is_colocated=false", "engine.num_threads=1")


def add_views(app, engine):
    """The two routes."""

    @app.get("/inside")
    async def inside():
        counts = engine.statistics.snapshot()
        return {
            "num_tasks": len(asyncio.all_tasks()) - 1,  # all but the one that answers this
            "num_preempted": counts.num_preempted,
            "num_prompt_tokens": counts.num_prompt_tokens,
            "num_cached_tokens": counts.num_cached_tokens,
        }

    @app.get("/inside/pages")
    async def pages():
        """Of each worker's pool; asked between two rounds, so this waits for one."""
        supervisors = [
            each for each in (engine._worker_group.target, engine._worker_group.draft) if each
        ]
        pongs = [await (await each.up()).call(Ping()) for each in supervisors]
        return {
            pong.role: {
                "num_sequences": pong.num_sequences,
                "num_held": pong.num_pages - pong.num_free_pages,
            }
            for pong in pongs
        }


async def main(assignments):
    is_told = asyncio.Event()
    config = load(None, os.environ, from_assignments((*APART, *assignments)))
    rules, traffic = policy(config), Traffic()
    engine = await Engine.start(engine_config(config), ProcessExecutor())
    try:
        service = Service(config.model.served_name, api_limits(config), engine=engine)
        app = create_app(service, rules, traffic)
        add_views(app, engine)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        # In the place of uvicorn's, which would cut the streams.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_told.set)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await is_told.wait()
        await traffic.drain(config.cluster.drain_s)
        server.should_exit = True
        await serving
    finally:
        await engine.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
