"""The kustomize tree of k8s/: written from the same objects as `outrider k8s render` prints.

    python -m outrider.cluster.k8s.overlays k8s

A test holds that the tree is current, and that kustomize builds from it what render prints.
"""

import sys
from pathlib import Path
from typing import Any

from outrider.cluster.config.sources import from_tree
from outrider.cluster.k8s.ground import ground
from outrider.cluster.k8s.installation import Installation, configured
from outrider.cluster.k8s.manifest import document
from outrider.cluster.k8s.monitoring.monitor import DASHBOARD_LABEL, monitoring, shown
from outrider.cluster.k8s.network import policies
from outrider.cluster.k8s.objects import OURS, Object
from outrider.cluster.k8s.ray_service import config_map, ray_service, written

NAMESPACE = "outrider"
HEAD_LINE = "# Written by python -m outrider.cluster.k8s.overlays; what is to differ goes there.\n"

# A demonstration should scale while one looks on.
CPU_DEMO = {
    "http": {"request_timeout_s": 120.0},
    "cluster": {
        "max_replicas": 2,
        "target_requests": 4,
        "upscale_delay_s": 5.0,
        "downscale_delay_s": 30.0,
        "drain_s": 120.0,
        "max_surge_percent": 50,
    },
}
GPU_PAIR = {
    "model": {
        "target": "/models/Qwen2.5-7B-Instruct",
        "draft": "/models/Qwen2.5-0.5B-Instruct",
        "name": "qwen2.5-7b",
    },
    "engine": {"kv_tokens": 131072, "token_budget": 2048},
    "cluster": {"max_replicas": 4, "worker_cpus": 2.0, "coordinator_cpus": 2.0},
}


def _installation(tree: dict[str, Any], num_gpus: int, memory: str) -> Installation:
    config = configured(from_tree(tree, "an overlay"), num_gpus)
    return Installation(config, namespace=NAMESPACE, num_gpus=num_gpus, memory=memory)


OVERLAYS = {
    "cpu-demo": (_installation(CPU_DEMO, 0, "6Gi"), False),
    "gpu-pair": (_installation(GPU_PAIR, 2, "64Gi"), True),  # and with monitoring
}


def files() -> dict[str, str]:
    """Every file of the tree, by its path below k8s/."""
    base = {"ground.yaml": ground(NAMESPACE), "network.yaml": policies(NAMESPACE)}
    *watching, _ = monitoring(NAMESPACE)
    found = {f"base/{name}": _documents(objects) for name, objects in base.items()}
    found["base/kustomization.yaml"] = _kustomization(resources=list(base))
    found["monitoring/prometheus.yaml"] = _documents(watching)
    found["monitoring/outrider.json"] = shown()
    found["monitoring/kustomization.yaml"] = _component()
    for name, (installation, has_monitoring) in OVERLAYS.items():
        found |= _overlay(f"overlays/{name}", installation, has_monitoring)
    return found


def _overlay(folder: str, installation: Installation, has_monitoring: bool) -> dict[str, str]:
    [config] = config_map(installation)["data"].values()
    name = config_map(installation)["metadata"]["name"]
    components = {"components": ["../../monitoring"]} if has_monitoring else {}
    return {
        f"{folder}/outrider.yaml": config,
        f"{folder}/service.yaml": _documents([ray_service(installation)]),
        f"{folder}/kustomization.yaml": _kustomization(
            namespace=installation.namespace,
            resources=["../../base", "service.yaml"],
            **components,
            configMapGenerator=[{"name": name, "files": ["outrider.yaml"]}],
            generatorOptions=_plain(OURS),
        ),
    }


def _component() -> str:
    labels = OURS | DASHBOARD_LABEL
    return HEAD_LINE + written(
        {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "resources": ["prometheus.yaml"],
            "configMapGenerator": [
                {
                    "name": "outrider-dashboard",
                    "namespace": NAMESPACE,
                    "files": ["outrider.json"],
                    "options": _plain(labels),
                }
            ],
        }
    )


def _plain(labels: dict[str, str]) -> Object:
    return {"disableNameSuffixHash": True, "labels": dict(labels)}


def _kustomization(**rest: Any) -> str:
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return HEAD_LINE + written(kind | rest)


def _documents(objects: list[Object]) -> str:
    return HEAD_LINE + document(objects)


def write(folder: Path) -> None:
    """The whole tree."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
