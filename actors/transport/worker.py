"""What a worker does with messages, wherever it runs."""

from typing import Protocol

from outrider.actors.transport.messages import AnyMessage, Compile, Done


class Worker(Protocol):
    """A draft or a target. Called from one thread at a time."""

    role: str

    def handle(self, message: AnyMessage) -> AnyMessage:
        """The answer to a message. Raises OutriderError."""
        ...

    def compile(self, message: Compile) -> Done:
        """May be called from another thread than the rest, meanwhile. Raises OutriderError."""
        ...

    def advance(self) -> AnyMessage | None:
        """One step of work ahead of being asked, to be pushed; None if there is nothing to do."""
        ...

    def reset(self) -> None:
        """Forget every sequence: whoever opened them is gone."""
        ...
