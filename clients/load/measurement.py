"""One measurement from the first probe to its figures."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from outrider.clients.connection import Connection
from outrider.clients.errors import OutriderClientError
from outrider.clients.load.figures.server_counters import ServerCounters, read_counters
from outrider.clients.load.figures.summary import Summary
from outrider.clients.load.load_generator import Load, LoadPlan
from outrider.clients.load.probe import Finding, probe, served_model
from outrider.clients.load.prompt_request import Ask, Endpoint
from outrider.clients.load.prompts.source import Prompts
from outrider.clients.load.record import RequestRecord
from outrider.clients.load.sender import Sender, Target
from outrider.clients.transport import AsyncTransport

if TYPE_CHECKING:
    import httpx

METRICS_S = 5.0  # for an answer of /metrics, which is not measured


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What is to be measured."""

    connection: Connection
    endpoint: Endpoint
    prompts: Prompts
    plan: LoadPlan
    num_warmups: int = 0  # requests before, which do not count
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    fields: Mapping[str, Any] = field(default_factory=dict)  # of each request, beside its own
    must_ignore_eos: bool | None = False  # None: if the server takes it
    objectives_ms: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_warmups < 0:
            raise ValueError(f"Got num_warmups={self.num_warmups}, expected 0 or more")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was wished, found and measured."""

    spec: LoadSpec
    model: str
    finding: Finding
    body: Mapping[str, Any]  # of a request, without its prompt
    began_at: datetime
    summary: Summary

    @property
    def fingerprint(self) -> str | None:
        """Of the server, as its answers have it."""
        told = (record.fingerprint for record in self.summary.records)
        return next(filter(None, told), None)


class Stopped(OutriderClientError):
    """The end came before the beginning: nothing was measured."""


class Measuring:
    """Carries out one spec, once."""

    def __init__(
        self,
        spec: LoadSpec,
        inner: "httpx.AsyncBaseTransport | None" = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._spec, self._clock = spec, clock
        self._inner = inner
        self._load: Load | None = None  # what is measured, once it has begun
        self._task: asyncio.Task[Any] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End it now, with what has been measured."""
        self._is_stopped = True
        if self._load is not None:
            self._load.stop()
        elif self._task is not None:
            self._task.cancel()

    async def measure(
        self,
        on_stage: Callable[[str], None] = lambda stage: None,
        on_record: Callable[[RequestRecord], None] = lambda record: None,
    ) -> Measurement:
        """Find out, warm up, measure. Raises OutriderClientError where nothing can be measured."""
        self._task = asyncio.current_task()
        transport = AsyncTransport(self._spec.connection, self._inner)
        try:
            return await self._measure(transport, on_stage, on_record)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            raise Stopped("Stopped before anything was measured") from None
        finally:
            await transport.aclose()

    async def _measure(
        self,
        transport: AsyncTransport,
        on_stage: Callable[[str], None],
        on_record: Callable[[RequestRecord], None],
    ) -> Measurement:
        spec = self._spec
        model = await served_model(self._sender(transport, ""), spec.connection.model)
        sender = self._sender(transport, model)
        on_stage("finding out what the server tells")
        finding = await probe(sender, spec.prompts.probes, spec.must_ignore_eos)
        asks = spec.prompts.asks
        if spec.num_warmups:
            on_stage(f"warming up with {spec.num_warmups} requests")
            await Load(sender, finding.dialect, asks, _warmup(spec), self._clock).measure()
        before, began_at = await _counters(sender), datetime.now().astimezone()
        on_stage("measuring")
        self._load = Load(sender, finding.dialect, asks, spec.plan, self._clock)
        run = await self._load.measure(on_record)
        after = await _counters(sender)
        counters = after.since(before) if before and after else None
        body = sender.target.body(Ask({}, next(spec.prompts.probes).max_tokens), finding.dialect)
        summary = Summary(run, spec.objectives_ms, counters)
        return Measurement(spec, model, finding, body, began_at, summary)

    def _sender(self, transport: AsyncTransport, model: str) -> Sender:
        spec = self._spec
        timeout_s = spec.connection.timeouts.total_s
        assert timeout_s is not None
        target = Target(spec.endpoint, model, spec.headers, spec.fields, timeout_s)
        return Sender(transport, target, self._clock)


def _warmup(spec: LoadSpec) -> LoadPlan:
    places = min(spec.num_warmups, spec.plan.concurrency or 1)
    return LoadPlan(concurrency=places, num_requests=spec.num_warmups)


async def _counters(sender: Sender) -> ServerCounters | None:
    """Of /metrics, where there is such a page."""
    try:
        async with asyncio.timeout(METRICS_S):
            page = await sender.get("/metrics")
    except (OutriderClientError, TimeoutError):
        return None
    return None if page is None else read_counters(page.decode(errors="replace"))
