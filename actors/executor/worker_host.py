"""A worker and its sockets in one plain object: what a subprocess runs and what Ray makes an actor
of.
"""

from collections.abc import Iterable
from secrets import token_bytes

from outrider.actors.transport.handshake import SECRET_LEN
from outrider.actors.transport.server import WorkerServer
from outrider.actors.transport.worker_address import WorkerAddress
from outrider.actors.transport.worker_spec import WorkerSpec
from outrider.actors.workers.loading import load_worker


class WorkerHost:
    """Loads a worker, then serves it."""

    def __init__(
        self, spec: WorkerSpec, secret: bytes | None = None, folder: str | None = None
    ) -> None:
        """Raises OutriderError if the model cannot be loaded."""
        worker = load_worker(spec, warms_up=True)
        self._server = WorkerServer(worker, secret or token_bytes(SECRET_LEN), folder)

    def listen(self, tcp_host: str | None = None, tcp_ports: Iterable[int] = (0,)) -> WorkerAddress:
        """Bind and serve in the background."""
        return self._server.listen(tcp_host, tcp_ports)

    @property
    def is_serving(self) -> bool:
        """Whether a coordinator is connected."""
        return self._server.is_serving

    def close(self) -> None:
        """End the connections and remove the sockets."""
        self._server.close()
