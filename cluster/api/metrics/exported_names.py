"""What Ray's exporter calls our metrics. Dashboards, alerts and the exporter agree through this."""

from outrider.cluster.api.metrics.names import Metric, MetricKind

PREFIX = "ray_"
SUFFIXES = {
    MetricKind.COUNTER: ("_total",),
    MetricKind.GAUGE: ("",),
    MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
# Beside each metric's own labels
MODEL = "model_name"
REPLICA = "replica"  # Ray Serve adds it


def ray_name(sample: str) -> str:
    """The name under which Ray is given a sample: OpenTelemetry, which carries it, knows no `:`."""
    return sample.replace(":", "_")


def exported(metric: Metric) -> tuple[str, ...]:
    """The series of a metric: one, or for a histogram its buckets, sum and count."""
    return tuple(PREFIX + ray_name(metric.name) + suffix for suffix in SUFFIXES[metric.kind])
