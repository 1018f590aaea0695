"""A worker in this process is lost where one behind a socket would be."""

import asyncio

import pytest

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.inline_client import InlineWorkerClient
from outrider.actors.transport.messages import Done, Ping


class ToyWorker:
    """Fails at so many messages, or at so many steps; else each step has something to push."""

    role = "draft"

    def __init__(self, num_handled=9, num_steps=9):
        self.num_handled, self.num_steps = num_handled, num_steps

    def handle(self, message):
        self.num_handled -= 1
        if not self.num_handled:
            raise ValueError("a bug")
        return Done()

    def advance(self):
        self.num_steps -= 1
        if not self.num_steps:
            raise ValueError("a bug")
        return Done()


@pytest.mark.parametrize(
    "worker", [{"num_handled": 1}, {"num_steps": 1}, {"num_steps": 3}], ids=str
)
async def test_what_fails_without_being_asked_ends_it(worker, caplog):
    client, pushed = InlineWorkerClient(ToyWorker(**worker), 7), []
    client.on_push(pushed.append)
    client.tell(Ping())
    async with asyncio.timeout(5):
        reason = await client.ended()
    assert isinstance(reason, ProtocolViolation)
    assert str(reason) == "ValueError: a bug"
    assert len(pushed) == worker.get("num_steps", 1) - 1
    assert "without being asked" in caplog.text
    with pytest.raises(ProtocolViolation, match="a bug"):
        await client.call(Ping())
    client.tell(Ping())  # is lost
    assert len(pushed) == worker.get("num_steps", 1) - 1
