"""What the Prometheus operator and Grafana read. Optional: without them nobody knows its kinds."""

import json

from outrider.cluster.k8s.monitoring.alerts import rules
from outrider.cluster.k8s.monitoring.dashboard import dashboard
from outrider.cluster.k8s.objects import OURS, Object, new, selecting

METRICS = "metrics"  # the port's name
EVERY = "15s"
DASHBOARD_LABEL = {"grafana_dashboard": "1"}  # Grafana's sidecar loads what has it


def monitoring(namespace: str) -> list[Object]:
    """The monitor, the alerts, the dashboard."""
    return [_monitor(namespace), _alerts(namespace), _dashboard(namespace)]


def shown() -> str:
    """The dashboard's file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _monitor(namespace: str) -> Object:
    spec = {
        "selector": selecting(OURS),
        "podMetricsEndpoints": [{"port": METRICS, "interval": EVERY}],
    }
    return new("monitoring.coreos.com/v1", "PodMonitor", "outrider", namespace, spec=spec)


def _alerts(namespace: str) -> Object:
    found = new("monitoring.coreos.com/v1", "PrometheusRule", "outrider", namespace)
    return found | {"spec": rules()}


def _dashboard(namespace: str) -> Object:
    found = new("v1", "ConfigMap", "outrider-dashboard", namespace)
    found["metadata"]["labels"] |= DASHBOARD_LABEL
    return found | {"data": {"outrider.json": shown()}}
