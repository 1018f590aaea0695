"""The draft of a pair as a client of its own: it shares its target's connection."""

from outrider.actors.errors import OutriderError
from outrider.actors.transport.messages import AnyMessage, Close, Describe, Open, Ping, ToDraft
from outrider.actors.transport.worker_client import Pulse, Take, WorkerClient


class ColocatedDraftClient:
    """Wraps what is for the draft; rounds go to the pair as a whole."""

    role = "draft"

    def __init__(self, pair: WorkerClient) -> None:
        self.pair = pair
        self.pid = pair.pid
        self.node = pair.node

    @property
    def is_lost(self) -> bool:
        return self.pair.is_lost

    async def call(self, message: AnyMessage) -> AnyMessage:
        assert isinstance(message, Open | Close | Ping | Describe), type(message)
        return await self.pair.call(ToDraft(message))

    def tell(self, message: AnyMessage) -> None:
        assert isinstance(message, Open | Close), type(message)
        self.pair.tell(ToDraft(message))

    def on_push(self, take: Take) -> None:
        """Nothing is pushed."""

    def pulse(self) -> Pulse:
        return self.pair.pulse()

    async def ended(self) -> OutriderError:
        return await self.pair.ended()

    def lose(self, reason: OutriderError) -> None:
        self.pair.lose(reason)

    async def close(self) -> None:
        """Nothing: the connection is the target's."""
