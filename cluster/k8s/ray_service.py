"""The RayService: Serve's configuration, and the cluster that runs it."""

from typing import Any

import yaml

from outrider.cluster.config.config import Config
from outrider.cluster.k8s import ports
from outrider.cluster.k8s.containers import CONTAINER_SECURITY, config_name
from outrider.cluster.k8s.installation import Installation
from outrider.cluster.k8s.objects import Object, new
from outrider.cluster.k8s.pods import TOKEN_FOLDER, head, worker

APPLICATION = "outrider"
IMPORT_PATH = "outrider.cluster.deploy.serve:build"
RAY_VERSION = "2.60.0"  # of the image; KubeRay chooses probes and flags by it
GROUP = "engines"
OBJECT_STORE_BYTES = 128 << 20  # nothing but configuration goes through it
IDLE_S = 120
START_WAIT = "60m"  # a new cluster loads its models before it takes over
AUTOSCALER_RESOURCES = {"cpu": "500m", "memory": "1Gi"}


class _Text(str):
    """A string that YAML shows line by line."""


def _shown(dumper: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")


class Dumper(yaml.SafeDumper):
    """As YAML is written by hand: in the order of thought, long texts line by line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Every object in full, though parts of them are one and the same."""
        return True


Dumper.add_representer(_Text, _shown)


def written(value: object) -> str:
    """As YAML."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=100, allow_unicode=True)


def tree(config: Config) -> dict[str, Any]:
    """What is not as by default: what the ConfigMap and Serve's `args` hold."""
    found: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
    return {section: values for section, values in found.items() if values}


def config_map(installation: Installation) -> Object:
    """The configuration, as `outrider check --config` reads it."""
    data = {"outrider.yaml": _Text(written(tree(installation.config)))}
    return new("v1", "ConfigMap", config_name(installation), installation.namespace, data=data)


def serve_config(installation: Installation) -> dict[str, Any]:
    """What `serve deploy` takes. Everything of ours is in `args`: `build` makes the rest of it."""
    http = installation.config.http
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": http.host, "port": ports.CLIENTS},
        "logging_config": {"log_level": "WARNING", "enable_access_log": False},
        "applications": [
            {
                "name": APPLICATION,
                "route_prefix": "/",
                "import_path": IMPORT_PATH,
                "args": tree(installation.config),
            }
        ],
    }


def ray_service(installation: Installation) -> Object:
    """The object. What is in serveConfigV2 changes in place; all else by a second cluster."""
    spec = {
        "serveConfigV2": _Text(written(serve_config(installation))),
        "upgradeStrategy": {"type": "NewCluster"},
        # What was begun on the old cluster ends there.
        "rayClusterDeletionDelaySeconds": installation.leave_s,
        "excludeHeadPodFromServeSvc": True,
        "rayClusterConfig": _cluster(installation),
    }
    service = new("ray.io/v1", "RayService", installation.name, installation.namespace, spec=spec)
    service["metadata"]["annotations"] = {"ray.io/initializing-timeout": START_WAIT}
    return service


def _cluster(installation: Installation) -> Object:
    store = {"object-store-memory": str(OBJECT_STORE_BYTES)}
    outside = {"dashboard-host": "0.0.0.0"}  # for KubeRay, which configures Serve through it
    grows = installation.most_pods > installation.num_pods
    return {
        "rayVersion": RAY_VERSION,
        "authOptions": {"mode": "token"},
        **(_autoscaling() if grows else {}),
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "num-gpus": "0", **store, **outside},
            "template": head(installation),
        },
        "workerGroupSpecs": [
            {
                "groupName": GROUP,
                "replicas": installation.num_pods,
                "minReplicas": installation.num_pods,
                "maxReplicas": installation.most_pods,
                "rayStartParams": dict(store),
                "template": worker(installation),
            }
        ],
    }


def _autoscaling() -> Object:
    """Pods follow replicas. Its container alone may ask Kubernetes for something."""
    return {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "idleTimeoutSeconds": IDLE_S,
            "resources": {
                "requests": dict(AUTOSCALER_RESOURCES),
                "limits": dict(AUTOSCALER_RESOURCES),
            },
            "securityContext": dict(CONTAINER_SECURITY),
            "volumeMounts": [
                {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
                {"name": "scratch", "mountPath": "/tmp"},
            ],
        },
    }
