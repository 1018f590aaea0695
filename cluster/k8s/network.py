"""Who may talk to whom. Ray runs the code of whoever reaches its ports, so nothing else does."""

from outrider.cluster.k8s import ports
from outrider.cluster.k8s.objects import HEAD, OURS, WORKER, Object, new, selecting

MONITORING = {"kubernetes.io/metadata.name": "monitoring"}
OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}
DNS = 53
API_SERVER = (443, 6443)
HTTPS = 443


def policies(namespace: str) -> list[Object]:
    """All else is closed, in and out."""
    among = {"podSelector": selecting(OURS)}
    everywhere: Object = {"namespaceSelector": {}}
    operator = everywhere | {"podSelector": selecting(OPERATOR)}
    return [
        _policy(namespace, "closed", OURS, incoming=[], outgoing=[]),
        # Ray's ports, and those of our workers: cluster.first_port and so on
        _policy(namespace, "cluster", OURS, [{"from": [among]}], [{"to": [among]}, _names()]),
        _policy(namespace, "clients", WORKER, [_to([everywhere], ports.CLIENTS)]),
        _policy(namespace, "operator", HEAD, [_to([operator], ports.DASHBOARD, ports.CLIENTS)]),
        _policy(
            namespace,
            "metrics",
            OURS,
            [_to([{"namespaceSelector": selecting(MONITORING)}], ports.METRICS)],
        ),
        # Of its address nothing is known here.
        _policy(namespace, "autoscaler", HEAD, outgoing=[{"ports": _tcp(*API_SERVER)}]),
    ]


def to_hub(namespace: str) -> Object:
    """Engines fetch their models by name: of the hub's addresses nothing is known here."""
    return _policy(namespace, "hub", WORKER, outgoing=[{"ports": _tcp(HTTPS)}])


def _policy(
    namespace: str,
    name: str,
    labels: dict[str, str],
    incoming: list[Object] | None = None,
    outgoing: list[Object] | None = None,
) -> Object:
    rules: Object = {"podSelector": selecting(labels), "policyTypes": []}
    for kind, way, found in (("Ingress", "ingress", incoming), ("Egress", "egress", outgoing)):
        if found is not None:
            rules["policyTypes"].append(kind)
            rules[way] = found
    return new("networking.k8s.io/v1", "NetworkPolicy", f"outrider-{name}", namespace, spec=rules)


def _to(whom: list[Object], *numbers: int) -> Object:
    return {"from": whom, "ports": _tcp(*numbers)}


def _tcp(*numbers: int) -> list[Object]:
    return [{"protocol": "TCP", "port": number} for number in numbers]


def _names() -> Object:
    """Questions after names; some clusters answer them from the node itself, not from a pod."""
    return {"ports": [{"protocol": "UDP", "port": DNS}, *_tcp(DNS)]}
