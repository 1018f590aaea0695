"""What every installation stands on: its namespace, its accounts, how few pods may be left."""

from outrider.cluster.k8s.objects import WORKER, Object, new, selecting

ACCOUNT = "outrider"
HEAD_ACCOUNT = "outrider-head"  # KubeRay binds the autoscaler's role to it
ENFORCED = "pod-security.kubernetes.io/enforce"


def ground(namespace: str) -> list[Object]:
    """The objects, in the order in which they have to come."""
    return [_namespace(namespace), *_accounts(namespace), _disruption(namespace)]


def _namespace(name: str) -> Object:
    found = new("v1", "Namespace", name)
    found["metadata"]["labels"] |= {ENFORCED: "restricted", f"{ENFORCED}-version": "latest"}
    return found


def _accounts(namespace: str) -> list[Object]:
    """Neither hands a token to a pod: only the autoscaler's container mounts one."""
    return [
        new("v1", "ServiceAccount", name, namespace, automountServiceAccountToken=False)
        for name in (ACCOUNT, HEAD_ACCOUNT)
    ]


def _disruption(namespace: str) -> Object:
    """Nodes may be emptied while another engine stays. Counts: Kubernetes accepts no shares here,
    as it does not know of what a RayCluster has how many."""
    spec = {"minAvailable": 1, "selector": selecting(WORKER)}
    return new("policy/v1", "PodDisruptionBudget", "outrider", namespace, spec=spec)
