"""The application on a free port, in a thread of its own, for clients that block."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import uvicorn
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.app import create_app
from outrider.cluster.api.middleware.keys import Policy
from outrider.cluster.api.service import Service

E = TypeVar("E", bound=ToyEngine)


@dataclass
class Site(Generic[E]):
    """Where it is, and what is behind it."""

    engine: E
    url: str  # of the page, with a slash at its end


@contextmanager
def served(engine: E, policy: Policy, response_template: str = "auto") -> Iterator[Site[E]]:
    """Up until the end of the block."""
    service = Service("toy", engine=engine, response_template=response_template)
    app = create_app(service, policy)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Site(engine, f"http://127.0.0.1:{port}/")
    finally:
        server.should_exit = True
        thread.join()
