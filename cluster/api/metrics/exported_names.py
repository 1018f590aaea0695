"""What Ray's exporter calls our metrics. Dashboards, alerts and the exporter agree through this."""

from outrider.cluster.api.metrics.names import Kind, Metric

PREFIX = "ray_"
SUFFIXES = {
    Kind.COUNTER: ("_total",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
# Beside each metric's own labels
MODEL = "model_name"
REPLICA = "replica"  # Ray Serve adds it


def handed_over(sample: str) -> str:
    """The name under which Ray is given a sample: OpenTelemetry, which carries it, knows no `:`."""
    return sample.replace(":", "_")


def exported(metric: Metric) -> tuple[str, ...]:
    """The series of a metric: one, or for a histogram its buckets, sum and count."""
    return tuple(PREFIX + handed_over(metric.name) + suffix for suffix in SUFFIXES[metric.kind])
