"""The figures of /metrics also through Ray's exporter, which has those of every replica of a node.

Every series is handed to Ray as a gauge: Ray's counters and histograms take single events, and ours
are sums and buckets already. Prometheus computes with them alike.
"""

import asyncio
import logging
from typing import Any

from prometheus_client.registry import Collector
from ray.serve.metrics import Gauge

from outrider.cluster.api.metrics.exported_names import ray_name

PERIOD_S = 5.0

log = logging.getLogger(__name__)


class Exporter:
    """Hands a collector's samples to Ray, again and again."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._gauges: dict[str, Any] = {}

    async def run(self) -> None:
        """Until it is cancelled. A replica serves, whatever becomes of its figures."""
        while True:
            try:
                self.export()
            except Exception:
                log.exception("the figures could not be handed to Ray")
            await asyncio.sleep(PERIOD_S)

    def export(self) -> None:
        """Every sample as it is now."""
        for family in self._collector.collect():
            for sample in family.samples:
                gauge = self._gauges.get(sample.name)
                if gauge is None:
                    gauge = self._gauges[sample.name] = Gauge(
                        ray_name(sample.name), family.documentation, tuple(sample.labels)
                    )
                gauge.set(sample.value, dict(sample.labels))
