"""The mutual proof that both ends of a fresh connection know the secret. Does no I/O.

    server → client   MAGIC, server nonce
    client → server   MAGIC, client nonce, HMAC(secret, "client", both nonces)
    server → client   HMAC(secret, "server", both nonces)

Every message has a fixed length, so nothing is parsed before the proof. The secret itself never
travels; frames after the handshake are plaintext: the trust boundary is the network between the
pods (ARCHITECTURE.md, Trust boundary).
"""

import hashlib
import hmac
import secrets

from outrider.actors.errors import ProtocolViolation

MAGIC = b"outrider/1\n"
NONCE_LEN = 32
SECRET_LEN = 32
MAC_LEN = hashlib.sha256().digest_size
TIMEOUT_S = 5.0

GREETING_LEN = len(MAGIC) + NONCE_LEN
ANSWER_LEN = len(MAGIC) + NONCE_LEN + MAC_LEN


def _mac(secret: bytes, side: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    return hmac.digest(secret, side + server_nonce + client_nonce, "sha256")


def _check_magic(message: bytes) -> None:
    if not message.startswith(MAGIC):
        got = message[: len(MAGIC)]
        raise ProtocolViolation(f"Got a handshake that starts with {got!r}, expected {MAGIC!r}")


class ServerHandshake:
    """The worker's side."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._nonce = secrets.token_bytes(NONCE_LEN)

    def greeting(self) -> bytes:
        """What the server sends first."""
        return MAGIC + self._nonce

    def confirm(self, answer: bytes) -> bytes:
        """The server's proof, after checking the client's. Raises ProtocolViolation."""
        _check_magic(answer)
        nonce = answer[len(MAGIC) : len(MAGIC) + NONCE_LEN]
        expected = _mac(self._secret, b"client", self._nonce, nonce)
        if not hmac.compare_digest(answer[-MAC_LEN:], expected):
            raise ProtocolViolation("Got a wrong secret in the handshake, connection refused")
        return _mac(self._secret, b"server", self._nonce, nonce)


class ClientHandshake:
    """The coordinator's side."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._nonce = secrets.token_bytes(NONCE_LEN)
        self._server_nonce = b""

    def answer(self, greeting: bytes) -> bytes:
        """The client's proof. Raises ProtocolViolation."""
        _check_magic(greeting)
        self._server_nonce = greeting[len(MAGIC) :]
        mac = _mac(self._secret, b"client", self._server_nonce, self._nonce)
        return MAGIC + self._nonce + mac

    def check(self, confirmation: bytes) -> None:
        """Make sure that the server knows the secret too. Raises ProtocolViolation."""
        expected = _mac(self._secret, b"server", self._server_nonce, self._nonce)
        if not hmac.compare_digest(confirmation, expected):
            raise ProtocolViolation(
                "The worker refused our secret, or does not know it: no connection"
            )
