"""What the tests of manifests share: installations, their objects, and rules of Kubernetes."""

import copy
import os
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from outrider.cluster.config.sources import from_assignments
from outrider.cluster.k8s.installation import Installation, configured
from outrider.cluster.k8s.manifest import manifest
from outrider.cluster.k8s.overlays import OVERLAYS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray Serve's own pydantic models
    from outrider.cluster.deploy import serve as serve

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = "1.32"
CRDS_ENV = "OUTRIDER_CRDS"  # a folder with KubeRay's definitions, where there is one
Object = dict[str, Any]


def installation(*assignments: str, num_gpus: int = 0, **rest: Any) -> Installation:
    settings = from_assignments(assignments)
    return Installation(configured(settings, num_gpus), num_gpus=num_gpus, **rest)


QWEN = installation(
    "model.target=/models/Qwen2.5-7B", "model.draft=/models/Qwen2.5-0.5B", num_gpus=2
)
INSTALLATIONS = {name: found for name, (found, _) in OVERLAYS.items()} | {
    "rendered": QWEN,
    "one GPU, fixed": installation(
        "model.target=/models/a",
        "cluster.max_surge_percent=0",
        num_gpus=1,
        keys_secret=None,
    ),
}


@pytest.fixture(params=INSTALLATIONS, name="objects")
def _objects(request: pytest.FixtureRequest) -> list[Object]:
    return copy.deepcopy(manifest(INSTALLATIONS[request.param], has_monitoring=True))


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def the(objects: list[Object], kind: str) -> Object:
    [found] = of_kind(objects, kind)
    return found


def cluster_of(objects: list[Object]) -> Object:
    cluster: Object = the(objects, "RayService")["spec"]["rayClusterConfig"]
    return cluster


def templates(objects: list[Object]) -> dict[str, Object]:
    cluster = cluster_of(objects)
    found = {"head": cluster["headGroupSpec"]["template"]}
    return found | {each["groupName"]: each["template"] for each in cluster["workerGroupSpecs"]}


def containers(objects: list[Object]) -> Iterator[Object]:
    for template in templates(objects).values():
        yield from template["spec"].get("initContainers", [])
        yield from template["spec"]["containers"]


def check_pod(template: Object) -> None:
    """A template's pod against Kubernetes' own schema, in which unknown fields are errors."""
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@cache
def crd_schema() -> Object | None:
    """KubeRay's own definition of a RayService, unknown fields refused; None where it is not."""
    folder = Path(os.environ.get(CRDS_ENV, ROOT.parent / "shared" / "prototypes" / "k8s"))
    paths = sorted(folder.glob("crd_rayservices_*.yaml")) if folder.is_dir() else []
    if not paths:
        return None
    crd = yaml.load(paths[-1].read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    [version] = [each for each in crd["spec"]["versions"] if each["name"] == "v1"]
    schema: Object = version["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"type": "object"}
    _close(schema)
    return schema


def _close(schema: Any) -> None:
    """What the API server does beyond JSON Schema: unknown fields are errors."""
    if isinstance(schema, list):
        for each in schema:
            _close(each)
    if not isinstance(schema, dict):
        return
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and not is_open:
        schema.setdefault("additionalProperties", False)
    if schema.pop("x-kubernetes-int-or-string", False):
        for word in ("type", "pattern", "anyOf"):
            schema.pop(word, None)
    for each in schema.values():
        _close(each)
