"""The two kinds of pods: the head, which runs no engine, and one worker for each replica."""

from typing import Any

from outrider.cluster.k8s import ports
from outrider.cluster.k8s.containers import (
    CACHE_FOLDERS,
    COMPILED_FOLDER,
    CONFIG_FILE,
    POD_SECURITY,
    container,
    engine_environment,
    engine_mounts,
    engine_volumes,
    hub_environment,
    ray_environment,
    scratch,
)
from outrider.cluster.k8s.ground import ACCOUNT, HEAD_ACCOUNT
from outrider.cluster.k8s.installation import Installation
from outrider.cluster.k8s.objects import HEAD, WORKER, Object, selecting

GPU = "nvidia.com/gpu"
GPU_TAINT = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_S = 3600
HEAD_RESOURCES = {"cpu": "2", "memory": "4Gi"}
PREPARE_RESOURCES = {"cpu": "1", "memory": "1Gi"}

# What cannot be served is said at once, and what the image has compiled need not be again.
PREPARE = (
    f"cp --recursive {COMPILED_FOLDER} {CACHE_FOLDERS['NUMBA_CACHE_DIR']}; "
    f"outrider check --config {CONFIG_FILE} --only models"
)

ALIVE = {"httpGet": {"path": "/api/healthz", "port": ports.AGENT}, "timeoutSeconds": 5}
STARTED = ALIVE | {"periodSeconds": 5, "failureThreshold": 60}
LIVE = ALIVE | {"periodSeconds": 10, "failureThreshold": 12}
ASK = "wget --quiet --tries=1 --timeout=2 --output-document=-"
LOCAL = f"http://127.0.0.1:{ports.CLIENTS}"
# The proxy takes requests, and an engine behind it has its models loaded and tried. A proxy whose
# own engine has left says at once that it will go, and goes on for DRAINING_S: this pod counts as
# not ready only after half a minute, in which another becomes ready.
READY_COMMAND = f"{ASK} {LOCAL}/-/healthz && {ASK} {LOCAL}/ready"
READY: Object = {
    "exec": {"command": ["bash", "-c", READY_COMMAND]},
    "periodSeconds": 5,
    "timeoutSeconds": 5,
    "failureThreshold": 6,
}


def head(installation: Installation) -> Object:
    """Ray's head: state, autoscaler, Serve's controller. Whoever owns it owns the cluster."""
    mounts = [{"name": "scratch", "mountPath": "/tmp"}]
    ray = container(
        "ray-head",
        installation.image,
        HEAD_RESOURCES,
        env=ray_environment(installation),
        ports=_named(ports.HEAD),
        volumeMounts=mounts,
        startupProbe=STARTED,
        livenessProbe=LIVE,
        readinessProbe=ALIVE | {"periodSeconds": 5, "failureThreshold": 3},
        lifecycle=_leaving(installation),
    )
    return _template(
        installation,
        HEAD,
        HEAD_ACCOUNT,
        containers=[ray],
        volumes=[scratch("4Gi"), _token()],
    )


def worker(installation: Installation) -> Object:
    """One engine: coordinator, draft and target."""
    resources = {"cpu": str(installation.pod_cpus), "memory": installation.memory}
    if installation.num_gpus:
        resources[GPU] = str(installation.num_gpus)
    environment = ray_environment(installation) + engine_environment(installation)
    mounts = engine_mounts(installation)
    prepare = container(
        "prepare",
        installation.image,
        PREPARE_RESOURCES,
        command=["bash", "-ec", PREPARE],
        env=[each for each in environment if each["name"] == "HOME"]
        + hub_environment(installation),
        volumeMounts=mounts,
    )
    ray = container(
        "ray-worker",
        installation.image,
        resources,
        env=environment,
        ports=_named(ports.WORKER),
        volumeMounts=mounts,
        startupProbe=STARTED,
        livenessProbe=LIVE,
        readinessProbe=READY,
        lifecycle=_leaving(installation),
    )
    rest = {"tolerations": [GPU_TAINT]} if installation.num_gpus else {}
    return _template(
        installation,
        WORKER,
        ACCOUNT,
        initContainers=[prepare],
        containers=[ray],
        volumes=engine_volumes(installation),
        topologySpreadConstraints=[_spread("kubernetes.io/hostname"), _spread(_ZONE)],
        **rest,
    )


_ZONE = "topology.kubernetes.io/zone"


def _template(
    installation: Installation, labels: dict[str, str], account: str, **spec: Any
) -> Object:
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",  # a Ray process that ended comes back as another node
            "terminationGracePeriodSeconds": installation.grace_s,
            "securityContext": dict(POD_SECURITY),
            **spec,
        },
    }


def _leaving(installation: Installation) -> Object:
    """The node takes no more work and waits for what it has; then Ray's processes end."""
    leave = f"python -m outrider.cluster.k8s.leave --within {installation.leave_s}; ray stop"
    return {"preStop": {"exec": {"command": ["bash", "-c", leave]}}}


def _named(numbers: dict[str, int]) -> list[Object]:
    return [{"name": name, "containerPort": number} for name, number in numbers.items()]


def _spread(key: str) -> Object:
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selecting(WORKER),
    }


def _token() -> Object:
    """What the autoscaler's container asks Kubernetes for pods with; no other mounts it."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": "token", "projected": {"sources": sources}}
