"""Containers as the restricted rules of Kubernetes want them, and what Ray needs in them."""

from typing import Any

from outrider.cluster.config.sources import CONFIG_ENV
from outrider.cluster.deploy.proxy.environment import cluster_environment
from outrider.cluster.k8s.installation import MODELS_FOLDER, Installation
from outrider.cluster.k8s.objects import Object

USER = 1000  # as in the Dockerfile
CONFIG_FILE = "/etc/outrider/outrider.yaml"
KEYS_ENTRY = "keys"
HUB_ENTRY = "token"
HUB_FOLDER = "/hub"
COMPILED_FOLDER = "/opt/outrider/numba"  # in the image: the verdict and attention for the CPU
CACHE_FOLDERS = {
    "HOME": "/tmp/home",
    "NUMBA_CACHE_DIR": "/tmp/numba",
    "CUPY_CACHE_DIR": "/tmp/cupy",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
    "TRITON_CACHE_DIR": "/tmp/triton",
}

CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
POD_SECURITY: Object = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name: str, image: str, resources: dict[str, str], **rest: Any) -> Object:
    """A container that may take what it asks for, and writes to /tmp alone."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": dict(CONTAINER_SECURITY),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        **rest,
    }


def ray_environment(installation: Installation) -> list[Object]:
    """What every Ray process of the cluster has to agree on."""
    values = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # the models are the service, not a batch job beside it
        **cluster_environment(installation.config.http.proxy),
        **CACHE_FOLDERS,
    }
    return [{"name": name, "value": value} for name, value in sorted(values.items())]


def engine_environment(installation: Installation) -> list[Object]:
    """What the pods of engines have besides."""
    found: list[Object] = [{"name": CONFIG_ENV, "value": CONFIG_FILE}]
    if installation.keys_secret is not None:
        reference = {"name": installation.keys_secret, "key": KEYS_ENTRY}
        name = installation.config.http.api_keys_env
        found.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    return found + hub_environment(installation)


def hub_environment(installation: Installation) -> list[Object]:
    """What fetching a model by name takes."""
    if not installation.uses_hub:
        return []
    found: list[Object] = [{"name": "HF_HOME", "value": HUB_FOLDER}]
    if installation.hub_secret is not None:
        reference = {"name": installation.hub_secret, "key": HUB_ENTRY}
        found.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    return found


def engine_volumes(installation: Installation) -> list[Object]:
    """The folders of the pods of engines."""
    found: list[Object] = [
        scratch("4Gi"),
        {"name": "config", "configMap": {"name": config_name(installation)}},
    ]
    if installation.has_volume:
        claim = {"claimName": installation.models_claim, "readOnly": True}
        found.append({"name": "models", "persistentVolumeClaim": claim})
    if installation.uses_hub:
        own: Object = {"emptyDir": {}}
        if installation.cache_claim is not None:
            own = {"persistentVolumeClaim": {"claimName": installation.cache_claim}}
        found.append({"name": "hub", **own})
    return found


def engine_mounts(installation: Installation) -> list[Object]:
    """Where they are."""
    found: list[Object] = [
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": "config", "mountPath": CONFIG_FILE.rpartition("/")[0], "readOnly": True},
    ]
    if installation.has_volume:
        found.append({"name": "models", "mountPath": MODELS_FOLDER, "readOnly": True})
    if installation.uses_hub:
        found.append({"name": "hub", "mountPath": HUB_FOLDER})
    return found


def scratch(size: str) -> Object:
    """The one folder that can be written: logs, sockets, compiled kernels."""
    return {"name": "scratch", "emptyDir": {"sizeLimit": size}}


def config_name(installation: Installation) -> str:
    """The ConfigMap's name."""
    return f"{installation.name}-config"
