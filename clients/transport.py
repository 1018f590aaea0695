"""Requests over httpx, its errors as ours. No other module of the SDK imports httpx.

It is imported when the first client is made: `import outrider.clients.client` does without.
"""

import ipaddress
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from outrider.clients.connection import Connection
from outrider.clients.errors import ConnectionFailed, OutriderClientError, StreamBroken
from outrider.clients.protocol.wire import WireRequest


class Transport:
    """The blocking way to a server."""

    def __init__(self, there: Connection, inner: httpx.BaseTransport | None) -> None:
        self._there = there
        self._http = httpx.Client(**_settings(there), transport=inner)

    @contextmanager
    def answered(self, request: WireRequest) -> Iterator[httpx.Response]:
        """The answer to a request, to be read. Raises ConnectionFailed or StreamBroken."""
        has_begun = False
        try:
            with self._http.stream(**_sent(request, self._there)) as reply:
                has_begun = True
                yield reply
        except httpx.RequestError as error:
            raise _failure(error, self._there, has_begun) from error

    def close(self) -> None:
        """Close all connections."""
        self._http.close()


class AsyncTransport:
    """The same with `await`."""

    def __init__(self, there: Connection, inner: httpx.AsyncBaseTransport | None) -> None:
        self._there = there
        self._http = httpx.AsyncClient(**_settings(there), transport=inner)

    @asynccontextmanager
    async def answered(self, request: WireRequest) -> AsyncIterator[httpx.Response]:
        """The answer to a request, to be read. Raises ConnectionFailed or StreamBroken."""
        has_begun = False
        try:
            async with self._http.stream(**_sent(request, self._there)) as reply:
                has_begun = True
                yield reply
        except httpx.RequestError as error:
            raise _failure(error, self._there, has_begun) from error

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


def _settings(there: Connection) -> dict[str, Any]:
    """The arguments of httpx's clients. Raises ValueError."""
    url = httpx.URL(there.base_url)
    if url.scheme not in ("http", "https"):
        raise ValueError(f"Got base_url={there.base_url!r}, expected http:// or https://")
    headers = {"user-agent": "outrider"}
    if there.api_key:
        headers["authorization"] = f"Bearer {there.api_key}"
    return {
        "base_url": url,
        "headers": headers,
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=64),
        # A proxy of the environment is not meant for this machine itself.
        "trust_env": not _is_loopback(url.host),
    }


def _sent(request: WireRequest, there: Connection) -> dict[str, Any]:
    """The arguments of one request."""
    times, left_s = there.timeouts, request.left_s
    connect_s, read_s = min(times.connect_s, left_s), min(times.read_s, left_s)
    return {
        "method": request.method,
        "url": request.path,
        "headers": request.headers,
        "content": request.content,
        "timeout": httpx.Timeout(read_s, connect=connect_s, pool=None),
    }


def _failure(error: httpx.RequestError, there: Connection, has_begun: bool) -> OutriderClientError:
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    if has_begun:
        return StreamBroken(f"The answer stopped before its end ({what})")
    return ConnectionFailed(f"Got no answer from {there.base_url} ({what})")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
