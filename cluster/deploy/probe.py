"""Asking a running server how it is, from beside it."""

import http.client
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 5.0
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listened on, but not to be asked


@dataclass(frozen=True, slots=True)
class Probe:
    """A server by its address."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Where it can be asked from this machine."""
        host = self._reachable
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def is_ready(self) -> bool:
        """Whether it would serve a request now."""
        return self._get("/ready")[0] == 200

    def state(self) -> str:
        """Its health in words."""
        status, body = self._get("/health")
        if status == 0:
            return "nothing answers"
        if not isinstance(body, dict) or "status" not in body:
            return f"no replica answers (status {status})"
        return ": ".join(str(body[name]) for name in ("status", "reason") if body.get(name))

    def metrics(self) -> str:
        """The text of /metrics; empty where it is not to be had."""
        status, body = self._fetch("/metrics")
        return body.decode() if status == 200 else ""

    @property
    def _reachable(self) -> str:
        return ANY_ADDRESS.get(self.host, self.host)

    def _get(self, path: str) -> tuple[int, Any]:
        """Status, 0 if there is no answer, and the body if it is JSON."""
        status, body = self._fetch(path)
        with suppress(ValueError):
            return status, json.loads(body)
        return status, None

    def _fetch(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._reachable, self.port, timeout=TIMEOUT_S)
        status, body = 0, b""
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            reply = connection.getresponse()
            status = reply.status
            body = reply.read()
        connection.close()
        return status, body
