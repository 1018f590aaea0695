"""Expressions of Prometheus over our metrics, under the names that Ray's exporter gives them."""

from outrider.cluster.api.metrics.exported_names import exported
from outrider.cluster.api.metrics.names import Metric, MetricKind


def instant(metric: Metric, *matchers: str) -> str:
    """A gauge's value."""
    assert metric.kind is MetricKind.GAUGE, metric
    return _selected(exported(metric)[0], matchers)


def rate(metric: Metric, window: str, *matchers: str) -> str:
    """How fast a counter rises, each second."""
    assert metric.kind is MetricKind.COUNTER, metric
    return f"rate({_selected(exported(metric)[0], matchers)}[{window}])"


def total_rate(metric: Metric, window: str, *matchers: str, by: str = "") -> str:
    """The same over all replicas, or by some label."""
    return f"{_sum(by)}({rate(metric, window, *matchers)})"


def quantile(share: float, metric: Metric, window: str, *matchers: str) -> str:
    """What that share of a histogram's observations lay below."""
    assert metric.kind is MetricKind.HISTOGRAM, metric
    buckets = _selected(exported(metric)[0], matchers)
    return f"histogram_quantile({share:g}, sum by (le) (rate({buckets}[{window}])))"


def mean(metric: Metric, window: str, *matchers: str, by: str = "") -> str:
    """A histogram's mean."""
    assert metric.kind is MetricKind.HISTOGRAM, metric
    _, total, count = (_selected(name, matchers) for name in exported(metric))
    return f"{_sum(by)}(rate({total}[{window}])) / {_sum(by)}(rate({count}[{window}]))"


def share(part: str, whole: str) -> str:
    """A quotient; nothing where there was nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def _selected(name: str, matchers: tuple[str, ...]) -> str:
    return f"{name}{{{','.join(matchers)}}}" if matchers else name


def _sum(by: str) -> str:
    return f"sum by ({by}) " if by else "sum"
