"""The outermost middleware but for CORS: an exchange for every request, its id, a line in the log.

A line names who, what, how long and how many tokens; never a prompt, a text or a secret.
"""

import hmac
import json
import logging
import time
import uuid
from datetime import UTC, datetime
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.actors.errors import InvalidRequest, OutriderError
from outrider.cluster.api.errors import HostNotAllowed, NotThroughProxy, response_of
from outrider.cluster.api.middleware.keys import Policy
from outrider.cluster.api.middleware.request_context import RequestContext, opened
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

REQUEST_ID = "x-request-id"
PROXY_HEADER = (
    "x-outrider-proxy"  # set by the proxy of one server, `deploy/proxy/haproxy_program.py`
)
MAX_ID_LEN = 128
SHOWN_PATH_LEN = 200
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
CLIENT_GONE = 499  # nginx's number for an exchange that nobody waited for

log = logging.getLogger("outrider.access")


class Access:
    """Opens an exchange, lets the application answer it, says what it came to."""

    def __init__(self, app: ASGIApp, service: Service, policy: Policy, traffic: Traffic) -> None:
        self._app = app
        self._service = service
        self._policy = policy
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        exchange, refusal = self._exchange(scope)
        scope.setdefault("state", {})

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                self._complete(MutableHeaders(scope=message), exchange)
            await send(message)

        try:
            if refusal is not None:
                raise refusal
            async with opened(exchange):
                await self._app(scope, receive, answer)
        except Exception as error:
            if not exchange.status:
                await response_of(error)(scope, receive, answer)
            elif not isinstance(error, OutriderError):
                raise
            # Else it cannot even be told, and the server cuts what was begun.
        finally:
            exchange.route = getattr(scope.get("route"), "path", "")
            self._report(exchange)

    def _exchange(self, scope: Scope) -> tuple[RequestContext, OutriderError | None]:
        """The exchange, and why it is refused, if it is."""
        headers = Headers(scope=scope)
        given, refusal = headers.get(REQUEST_ID), self._bypass(headers) or self._stranger(headers)
        if given is not None and not _is_id(given):
            refusal = InvalidRequest(
                f"Got an {REQUEST_ID} of {len(given)} characters, expected 1 to {MAX_ID_LEN} "
                "printable ones of ASCII without spaces",
                REQUEST_ID,
            )
            given = None
        exchange = RequestContext(
            id=given or f"req-{uuid.uuid4().hex}",
            method=scope["method"],
            path=scope["path"],
            timeout_s=self._policy.request_timeout_s,
            observations=self._traffic.observations,
        )
        return exchange, refusal

    def _bypass(self, headers: Headers) -> OutriderError | None:
        """Why the request cannot have come through the server's own proxy, if it cannot."""
        got, token = headers.get(PROXY_HEADER, ""), self._policy.proxy_token
        if not token or hmac.compare_digest(got.encode(), token.encode()):
            return None
        return NotThroughProxy(
            "Got a request at the port of a replica, expected one at the server's"
        )

    def _stranger(self, headers: Headers) -> OutriderError | None:
        """Why the request must come from a page of another site, if it must."""
        allowed, origin = self._policy.allowed_hosts, headers.get("origin")
        if not allowed:
            return None
        hosts = {"Host": f"//{headers.get('host', '')}"}
        if origin is not None and origin not in self._policy.cors_origins:
            hosts["Origin"] = origin
        for name, url in hosts.items():
            if _name_in(url) not in allowed:
                return HostNotAllowed(
                    f"Got {name} {url.removeprefix('//')[:SHOWN_PATH_LEN]!r}, expected one of "
                    f"{', '.join(sorted(allowed))} (http.allowed_hosts)"
                )
        return None

    def _complete(self, headers: MutableHeaders, exchange: RequestContext) -> None:
        if self._policy.answers_with_id:
            headers[REQUEST_ID] = exchange.id
        if exchange.status in (429, 503):
            engine = self._service.engine
            num_waiting = 0 if engine is None else engine.health().num_waiting
            headers.setdefault("retry-after", str(self._traffic.wait_s(num_waiting)))

    def _report(self, exchange: RequestContext) -> None:
        """Count it, and write its line."""
        duration_s = time.perf_counter() - exchange.started
        status = exchange.status or CLIENT_GONE
        observations = self._traffic.observations
        method = exchange.method if exchange.method in METHODS else "other"
        observations.responses[exchange.route or "none", method, status] += 1
        observations.finished.update(exchange.finish_reasons)
        if exchange.num_choices:
            observations.request(duration_s, exchange.num_prompt_tokens, exchange.num_tokens)
        if log.isEnabledFor(logging.INFO):
            log.info(json.dumps(_line(exchange, status, duration_s)))


def _line(exchange: RequestContext, status: int, duration_s: float) -> dict[str, object]:
    first_s = exchange.first_chunk_at and exchange.first_chunk_at - exchange.started
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": exchange.id,
        "method": exchange.method,
        "route": exchange.route or exchange.path[:SHOWN_PATH_LEN],
        "status": status,
        "key": exchange.tenant or None,
        "duration_s": round(duration_s, 6),
        "first_token_s": first_s and round(first_s, 6),
        "num_choices": exchange.num_choices,
        "num_prompt_tokens": exchange.num_prompt_tokens,
        "num_tokens": exchange.num_tokens,
        "finish_reasons": exchange.finish_reasons,
    }


def _name_in(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_id(text: str) -> bool:
    return 1 <= len(text) <= MAX_ID_LEN and all("!" <= letter <= "~" for letter in text)
