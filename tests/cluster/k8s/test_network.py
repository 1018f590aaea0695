"""The policies as Kubernetes applies them: what is allowed is the sum of all that select a pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from outrider.cluster.config.config import ClusterSection
from outrider.cluster.k8s import ports
from outrider.cluster.k8s.network import policies
from outrider.cluster.k8s.objects import HEAD, WORKER, Object

NAMESPACE = "outrider"
CLIENT_PORT = 10001  # Ray's own, for drivers elsewhere
OUR_PORTS = ClusterSection().first_port


@dataclass(frozen=True)
class Place:
    """A pod, or something that is none, where it has no labels."""

    labels: Mapping[str, str] | None
    namespace: str = NAMESPACE
    of_namespace: Mapping[str, str] = field(default_factory=dict)


HEAD_POD, ENGINE = Place(HEAD), Place(WORKER)
STRANGER = Place({"app": "shop"}, "shop")
NEIGHBOUR = Place({"app": "shop"})  # in our own namespace
OPERATOR = Place({"app.kubernetes.io/name": "kuberay-operator"}, "kuberay")
PROMETHEUS = Place({}, "monitoring", {"kubernetes.io/metadata.name": "monitoring"})
INTERNET = Place(None, "")


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, selector
    return selector.get("matchLabels", {}).items() <= dict(labels).items()


def is_peer(peer: Object, other: Place) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}, peer
    if other.labels is None:
        return False
    if "namespaceSelector" in peer:
        is_there = selects(peer["namespaceSelector"], other.of_namespace)
    else:
        is_there = other.namespace == NAMESPACE
    return is_there and selects(peer.get("podSelector", {}), other.labels)


def passes(pod: Place, other: Place, port: int, way: str, protocol: str = "TCP") -> bool:
    kind, whom = {"ingress": ("Ingress", "from"), "egress": ("Egress", "to")}[way]
    assert pod.labels is not None
    specs: list[Any] = [each["spec"] for each in policies(NAMESPACE)]
    chosen = [
        spec
        for spec in specs
        if kind in spec["policyTypes"] and selects(spec["podSelector"], pod.labels)
    ]
    rules = [rule for spec in chosen for rule in spec[way]]
    return not chosen or any(
        (whom not in rule or any(is_peer(peer, other) for peer in rule[whom]))
        and ("ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"])
        for rule in rules
    )


RAYS = [ports.GCS, ports.DASHBOARD, ports.AGENT, CLIENT_PORT, OUR_PORTS, 30000, 8404]


@pytest.mark.parametrize("pod", [HEAD_POD, ENGINE])
@pytest.mark.parametrize("port", RAYS)
def test_the_cluster_talks_and_nobody_listens(pod: Place, port: int) -> None:
    assert passes(pod, ENGINE, port, "ingress")
    assert passes(ENGINE, pod, port, "egress")
    for other in (STRANGER, NEIGHBOUR, PROMETHEUS, INTERNET):
        assert not passes(pod, other, port, "ingress")


def test_clients_reach_engines_alone() -> None:
    for other in (STRANGER, NEIGHBOUR):
        assert passes(ENGINE, other, ports.CLIENTS, "ingress")
        assert not passes(HEAD_POD, other, ports.CLIENTS, "ingress")
    assert not passes(ENGINE, INTERNET, ports.CLIENTS, "ingress")


def test_the_operator_configures_the_head_alone() -> None:
    assert passes(HEAD_POD, OPERATOR, ports.DASHBOARD, "ingress")
    assert not passes(ENGINE, OPERATOR, ports.DASHBOARD, "ingress")
    assert not passes(HEAD_POD, OPERATOR, ports.GCS, "ingress")


def test_prometheus_reads_metrics_alone() -> None:
    for pod in (HEAD_POD, ENGINE):
        assert passes(pod, PROMETHEUS, ports.METRICS, "ingress")
        assert not passes(pod, STRANGER, ports.METRICS, "ingress")


def test_engines_reach_nothing_outside() -> None:
    for port in (80, 443, 6443):
        assert not passes(ENGINE, INTERNET, port, "egress")
        assert not passes(ENGINE, STRANGER, port, "egress")
    for pod in (HEAD_POD, ENGINE):
        assert passes(pod, INTERNET, 53, "egress", "UDP")
    assert passes(HEAD_POD, INTERNET, 443, "egress")  # where the API server is, nobody knows
    assert not passes(HEAD_POD, INTERNET, 80, "egress")
