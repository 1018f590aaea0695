"""What both workers are to the rest: something that answers messages, one at a time."""

from typing import Protocol

from outrider.actors.messages import AnyMessage


class Worker(Protocol):
    """A draft or a target. Called from one thread at a time."""

    role: str

    def handle(self, message: AnyMessage) -> AnyMessage:
        """The answer to a message. Raises OutriderError."""
        ...

    def advance(self) -> AnyMessage | None:
        """One step of work ahead of being asked, to be pushed; None if there is nothing to do."""
        ...

    def reset(self) -> None:
        """Forget every sequence: whoever opened them is gone."""
        ...
