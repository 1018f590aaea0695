"""GET /metrics: one replica's figures for Prometheus, read when they are asked for.

Nothing is counted here: the engine's statistics and health and the front's observations are read.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from outrider.actors.engine.info import EngineHealth
from outrider.actors.executor.supervisor import WorkerState
from outrider.actors.lookahead.reason import Reason
from outrider.actors.telemetry.statistics import FORESEEN, Snapshot
from outrider.cluster.api.metrics import names as names
from outrider.cluster.api.metrics.names import Metric, MetricKind
from outrider.cluster.api.middleware.observations import Histogram, Observations
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine

STATUSES = ("ok", "degraded", "failed", "absent")
PARTS = ("schedule", "propose", "verify", "commit")


def routes(service: Service, traffic: Traffic) -> APIRouter:
    """The endpoint over one service, with a registry of its own."""
    router = APIRouter()
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service, traffic))

    @router.get("/metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=media_type)

    return router


class ServiceCollector(Collector):
    """Reads a service as families of samples."""

    def __init__(self, service: Service, traffic: Traffic) -> None:
        self._service = service
        self._traffic = traffic

    def describe(self) -> Iterable[Family]:
        """The library then takes the names as ours without reading values."""
        return (self._family(metric, ()) for metric in names.ALL)

    def collect(self) -> Iterable[Family]:
        """Every family, as it is now."""
        engine, observations = self._service.engine, self._traffic.observations
        yield from self._requests(observations)
        yield from self._front(engine)
        if engine is not None:
            yield from self._rounds(engine.statistics.snapshot())
            yield from self._workers(engine.health())

    def _requests(self, seen: Observations) -> Iterator[Family]:
        yield self._one(names.NUM_DRAFTS, seen.num_drafts)
        yield self._one(names.NUM_DRAFT_TOKENS, seen.num_drafted)
        yield self._one(names.NUM_ACCEPTED_TOKENS, seen.num_accepted)
        at = sorted(seen.accepted_at.items())
        yield self._family(names.NUM_ACCEPTED_PER_POS, (((str(pos),), n) for pos, n in at))
        yield self._one(names.PROMPT_TOKENS, seen.num_prompt_tokens)
        yield self._one(names.GENERATION_TOKENS, seen.num_tokens)
        finished = (((reason,), n) for reason, n in sorted(seen.finished.items()))
        yield self._family(names.REQUEST_SUCCESS, finished)
        for metric, histogram in (
            (names.QUEUE_TIME, seen.queued_s),
            (names.TIME_TO_FIRST_TOKEN, seen.first_token_s),
            (names.INTER_TOKEN_LATENCY, seen.inter_token_s),
            (names.REQUEST_LATENCY, seen.request_s),
            (names.REQUEST_PROMPT_TOKENS, seen.prompt_tokens),
            (names.REQUEST_GENERATION_TOKENS, seen.generation_tokens),
            (names.TOKENS_PER_COMMIT, seen.tokens_per_commit),
        ):
            yield self._histogram(metric, histogram)

    def _front(self, engine: "Engine | None") -> Iterator[Family]:
        responses = sorted(self._traffic.observations.responses.items())
        samples = (((route, method, str(status)), n) for (route, method, status), n in responses)
        yield self._family(names.HTTP_RESPONSES, samples)
        yield self._one(names.HTTP_IN_PROGRESS, len(self._traffic.in_progress))
        yield self._one(names.DRAINING, int(self._traffic.is_draining))
        now = "absent" if engine is None else engine.health().status
        statuses = (((status,), int(status == now)) for status in STATUSES)
        yield self._family(names.ENGINE_STATUS, statuses)
        if engine is not None:
            info = engine.info
            steps = "".join(found.value for found in info.sizes if found.name == "steps")
            told = (info.verification, info.numerics, steps)
            values = (info.draft or "none", *told, info.fingerprint)
            yield self._family(names.INFO, [(values, 1)])

    def _rounds(self, seen: Snapshot) -> Iterator[Family]:
        parts = (((part,), getattr(seen, f"{part}_s")) for part in PARTS)
        yield self._family(names.ROUND_SECONDS, parts)
        computed = ("draft_step", "target_forward", "verdict", "target_host")
        parts = (((part,), getattr(seen, f"{part}_s")) for part in computed)
        yield self._family(names.WORKER_SECONDS, parts)
        yield self._one(names.TRANSPORT_SECONDS, seen.transport_s)
        yield self._one(names.TARGET_IDLE, seen.target_idle)
        yield self._one(names.PREFIX_CACHE_QUERIES, seen.num_prompt_tokens)
        yield self._one(names.PREFIX_CACHE_HITS, seen.num_cached_tokens)
        yield self._one(names.NUM_PREEMPTIONS, seen.num_preempted)
        yield self._one(names.TARGET_PASSES, seen.num_target_passes)
        yield self._one(names.DRAFT_PASSES, seen.num_draft_passes)
        yield self._one(names.VERDICTS, seen.num_rows)
        yield self._one(names.DRAFT_TOKENS_COMPUTED, seen.num_draft_fed)
        yield self._one(names.DRAFT_TOKENS_WASTED, seen.num_draft_wasted)
        yield self._one(names.PROMISED_TOKENS, seen.num_promised)
        yield self._one(names.NODE_PRICE, seen.price)
        yield self._one(names.DRAFT_WAIT_SECONDS, seen.draft_wait_s)
        choices = (((reason.value,), int(seen.reason == reason)) for reason in Reason)
        yield self._family(names.DRAFT_CHOICE, choices)
        for metric, event in (
            (names.TREE_LOOKUPS, FORESEEN),
            (names.ROUNDS_BY_REASON, "k_reason"),
            (names.DRAFT_STOPPED, "draft_stopped"),
        ):
            yield self._family(metric, (((which,), n) for which, n in _events(seen, event)))
        nodes = (
            ((drafter, result), n)
            for result in ("offered", "judged", "accepted")
            for drafter, n in _events(seen, f"nodes_{result}")
        )
        yield self._family(names.TREE_NODES, nodes)

    def _workers(self, health: EngineHealth) -> Iterator[Family]:
        yield self._one(names.NUM_RUNNING, health.num_running)
        yield self._one(names.NUM_WAITING, health.num_waiting)
        yield self._one(names.QUEUE_AGE, health.queue_age_s)
        yield self._one(names.KV_USAGE, health.kv_usage)
        states = (
            ((worker.role, state.value), int(worker.state == state))
            for worker in health.workers
            for state in WorkerState
        )
        yield self._family(names.WORKER_STATE, states)
        for metric, name in (
            (names.WORKER_RESTARTS, "num_restarts"),
            (names.WORKER_DEATHS, "num_deaths"),
            (names.WORKER_HANGS, "num_hangs"),
            (names.WORKER_PAUSE, "pause_s"),
        ):
            values = (((worker.role,), getattr(worker, name)) for worker in health.workers)
            yield self._family(metric, values)

    def _one(self, metric: Metric, value: float) -> Family:
        return self._family(metric, [((), value)])

    def _family(self, metric: Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
        """A family with these (label values, value) pairs."""
        labels = ("model_name", *metric.labels)
        if metric.kind is MetricKind.HISTOGRAM:
            assert not list(samples), metric
            return HistogramMetricFamily(metric.name, metric.help, labels=labels)
        shape = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = shape(metric.name, metric.help, labels=labels)
        for values, value in samples:
            family.add_metric((self._service.model_name, *values), value)
        return family

    def _histogram(self, metric: Metric, histogram: Histogram) -> Family:
        family = HistogramMetricFamily(metric.name, metric.help, labels=("model_name",))
        family.add_metric([self._service.model_name], histogram.buckets, histogram.sum)
        return family


def _events(seen: Snapshot, what: str) -> list[tuple[str, int]]:
    return sorted((which, n) for (event, which), n in seen.events.items() if event == what)
