"""Who gets in, who is told to wait, and until when: keys, limits, deadlines, the drain.

Pure ASGI: a response streams through it, and a client that leaves is seen by whoever answers.
Only POSTs are work; reading the metrics or the list of models is never made to wait.
"""

import asyncio
import math
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.actors.errors import InvalidRequest
from outrider.cluster.api.errors import Draining, InvalidApiKey, RateLimitExceeded, SlowBody
from outrider.cluster.api.middleware.keys import Key, Policy
from outrider.cluster.api.middleware.rate_limiter import RateLimiter
from outrider.cluster.api.middleware.request_context import current
from outrider.cluster.api.middleware.traffic import Traffic

TIMEOUT = "x-request-timeout-s"
SLACK_S = 1.0  # to tell of a deadline, before the connection is cut


class Admission:
    """Lets a request in, or raises why not."""

    def __init__(
        self, app: ASGIApp, policy: Policy, traffic: Traffic, open_routes: Sequence[BaseRoute]
    ) -> None:
        self._app = app
        self._policy = policy
        self._traffic = traffic
        self._open = [route.path_regex for route in open_routes if hasattr(route, "path_regex")]
        self._allowances: dict[str, RateLimiter] = {}  # by key's name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = current()
        if scope["type"] != "http" or exchange is None:
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        key = self._key(headers, scope["path"])
        if key is not None:
            exchange.tenant = scope["state"]["tenant"] = key.name
            exchange.priority = key.priority
            if self._policy.isolates_cache_by_key:
                exchange.cache_scope = f"{key.name}/"  # no name has a slash in it
        if exchange.method != "POST":
            return await self._app(scope, receive, send)
        exchange.allow(self._timeout_s(headers))
        allowance = exchange.limiter = self._admit(key)
        self._traffic.begin(exchange)
        try:
            async with exchange.bounded(SLACK_S):
                await self._app(scope, self._timely(receive), send)
        finally:
            self._traffic.finish(exchange)
            if allowance is not None:
                allowance.release(exchange.num_charged)

    def _key(self, headers: Headers, path: str) -> Key | None:
        """The key it came with. Raises InvalidApiKey where it needs one."""
        if not self._policy.keys:
            return None
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        key = self._policy.keys.find(secret.strip()) if scheme.lower() == "bearer" else None
        if key is None and not any(pattern.match(path) for pattern in self._open):
            got = "an API key that is not known" if secret else "no API key"
            raise InvalidApiKey(f"Got {got}, expected the header 'Authorization: Bearer <key>'")
        return key

    def _timeout_s(self, headers: Headers) -> float:
        """How long the answer may take. Raises InvalidRequest."""
        most, given = self._policy.request_timeout_s, headers.get(TIMEOUT)
        if given is None:
            return most
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= most:
            raise InvalidRequest(
                f"Got {TIMEOUT}={given[:20]!r}, expected 0 < s ≤ {most:g}", TIMEOUT
            )
        return seconds

    def _admit(self, key: Key | None) -> RateLimiter | None:
        """What was taken of the key's allowance. Raises Draining or RateLimitExceeded."""
        if self._traffic.is_draining:
            raise Draining("The server stops and takes no more requests; another may take it")
        num, most = len(self._traffic.in_progress), self._policy.max_requests
        if num >= most:
            raise RateLimitExceeded(
                f"Got a request with {num} in progress, accepted {most} at once (per replica)"
            )
        if key is None:
            return None
        allowance = self._allowances.setdefault(key.name, RateLimiter(key, time.monotonic))
        allowance.take()
        return allowance

    def _timely(self, receive: Receive) -> Receive:
        """`receive`, which raises SlowBody when the body is not complete in time."""
        timeout_s, is_complete = self._policy.body_timeout_s, False
        deadline = asyncio.get_running_loop().time() + timeout_s

        async def timely() -> Message:
            nonlocal is_complete
            if is_complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise SlowBody(
                    f"Got no complete body within {timeout_s:g} s, expected it by then"
                ) from None
            is_complete = message["type"] != "http.request" or not message.get("more_body")
            return message

        return timely
