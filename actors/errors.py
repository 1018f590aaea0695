"""Every error the server side raises on purpose, and the HTTP status each maps to.

OutriderError                500
├── InvalidRequest           400   a field of a request; `param` names it
│   └── UnknownModel         404
├── InvalidConfig            400   what the operator asked for cannot be done
│   ├── ModelRefused               a model we will not or cannot load
│   └── VocabularyMismatch         draft and target speak different ids
├── IllegalTransition        500   a sequence state machine was driven wrongly: our bug
├── PoolExhausted            503   no pages left in the KV pool
├── Overloaded               429   the waiting queue is full
├── ShuttingDown             503
├── WorkerLost               503   the other end of a socket is gone
├── WorkerGone               503   a worker that could not be started again
├── WorkerFailed             500   a worker answered with an error
└── ProtocolViolation        400   a peer broke the wire protocol
"""

from typing import ClassVar


class OutriderError(Exception):
    """Root of the server side's errors."""

    status: ClassVar[int] = 500


class InvalidRequest(OutriderError):
    """A request field is out of range; the message says what was got and what is accepted."""

    status = 400

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnknownModel(InvalidRequest):
    """The request names a model that this server does not serve."""

    status = 404


class InvalidConfig(OutriderError):
    """The operator's configuration cannot be honoured."""

    status = 400


class ModelRefused(InvalidConfig):
    """A model directory that we will not or cannot load, with the reason."""


class VocabularyMismatch(InvalidConfig):
    """Draft and target map the same id to different tokens."""


class IllegalTransition(OutriderError):
    """An event that the sequence's state does not allow; nothing was changed."""


class PoolExhausted(OutriderError):
    """The KV pool has fewer free pages than a step needs; nothing was changed."""

    status = 503


class Overloaded(OutriderError):
    """The waiting queue is full."""

    status = 429


class ShuttingDown(OutriderError):
    """The engine stops and takes no more requests."""

    status = 503


class WorkerLost(OutriderError):
    """The connection to a worker ended; every call in flight on it fails with this."""

    status = 503


class WorkerGone(OutriderError):
    """A worker was lost, and the time to start another one is over."""

    status = 503


class WorkerFailed(OutriderError):
    """A worker answered a call with an error of its own."""


class ProtocolViolation(OutriderError):
    """A frame, handshake or field that the wire protocol does not allow."""

    status = 400
