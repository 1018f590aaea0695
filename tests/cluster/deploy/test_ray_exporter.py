"""What is handed to Ray is what /metrics says, under the names that dashboards read."""

import asyncio
import math
import warnings
from typing import Any

import pytest
from cluster.asgi import ask
from cluster.toy_engine import ToyEngine

from outrider.cluster.api.app import create_app
from outrider.cluster.api.metrics import names
from outrider.cluster.api.metrics.collector import ServiceCollector
from outrider.cluster.api.metrics.exported_names import MODEL, PREFIX, exported
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray Serve's own pydantic models
    from outrider.cluster.deploy import ray_exporter
    from outrider.cluster.deploy.ray_exporter import Exporter

SERIES = {name: metric for metric in names.ALL for name in exported(metric)}


class Gauges:
    """Stands for Ray's: what it was given last, by name and labels."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.is_broken = False

    def make(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any:
        assert PREFIX + name in SERIES
        assert set(tag_keys) <= {MODEL, "le", *SERIES[PREFIX + name].labels}
        return Gauge(self, name, set(tag_keys))


class Gauge:
    def __init__(self, kept: Gauges, name: str, keys: set[str]) -> None:
        self._kept, self._name, self._keys = kept, name, keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        if self._kept.is_broken:
            raise RuntimeError("Ray is not there")
        assert set(tags) == self._keys
        self._kept.values[self._name, tuple(sorted(tags.items()))] = value


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> Gauges:
    kept = Gauges()
    monkeypatch.setattr(ray_exporter, "Gauge", kept.make)
    return kept


async def test_every_sample_is_handed_over(
    service: Service, engine: ToyEngine, gauges: Gauges
) -> None:
    traffic = Traffic()
    app = create_app(service, traffic=traffic)
    for what in ("foreseen", "nodes_offered", "k_reason", "draft_stopped"):
        engine.statistics.count(what, "1")
    body = {"model": "toy", "prompt": "hi", "seed": 1, "max_tokens": 5}
    assert (await ask(app, "/v1/completions", body)).status == 200
    Exporter(ServiceCollector(service, traffic)).export()
    assert {PREFIX + name for name, _ in gauges.values} == SERIES.keys()
    told = {
        (sample.name.replace(":", "_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in ServiceCollector(service, traffic).collect()
        for sample in family.samples
    }
    assert told.keys() == gauges.values.keys()
    for key, value in told.items():
        assert math.isclose(gauges.values[key], value), key
    assert gauges.values["vllm_generation_tokens_total", ((MODEL, "toy"),)] == 5


async def test_it_goes_on_when_ray_does_not(
    service: Service, gauges: Gauges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_exporter, "PERIOD_S", 0.001)
    gauges.is_broken = True
    task = asyncio.create_task(Exporter(ServiceCollector(service, Traffic())).run())
    await asyncio.sleep(0.01)
    assert not task.done()
    gauges.is_broken = False
    async with asyncio.timeout(20):
        while not gauges.values:
            await asyncio.sleep(0.001)
    task.cancel()
