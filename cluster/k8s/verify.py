"""A manifest that somebody may have changed: does this version of Outrider serve what it says?"""

import typing
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.sources import build, from_tree
from outrider.cluster.deploy.preflight import shortage, shown, total
from outrider.cluster.deploy.sizing import bundles_of, most_replicas, num_surging
from outrider.cluster.k8s.objects import Object
from outrider.cluster.k8s.ray_service import IMPORT_PATH


def verified(text: str) -> list[str]:
    """What was found to be right. Raises InvalidConfig with what is not."""
    try:
        objects = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
    except yaml.YAMLError as error:
        raise InvalidConfig(f"The manifest is not YAML: {error}") from error
    services = [each for each in objects if each.get("kind") == "RayService"]
    if len(services) != 1:
        raise InvalidConfig(f"Got {len(services)} objects of kind RayService, expected one")
    [service] = services
    serve = serve_config(service)
    arguments = serve["applications"][0].get("args", {})
    return [
        f"{len(objects)} objects",
        "serveConfigV2: every key is known to Ray Serve, and every key of args to Outrider",
        _capacity(service, arguments),
        _same(objects, arguments),
    ]


def serve_config(service: Object) -> dict[str, Any]:
    """serveConfigV2 as Ray Serve takes it. Raises InvalidConfig; Ray itself drops what it does not
    know."""
    from ray.serve.schema import ServeDeploySchema

    raw = yaml.safe_load(service["spec"]["serveConfigV2"])
    try:
        ServeDeploySchema.model_validate(raw)
    except ValidationError as error:
        raise InvalidConfig(f"Ray Serve refuses serveConfigV2: {error}") from error
    if unknown := sorted(set(_unknown(ServeDeploySchema, raw))):
        raise InvalidConfig(f"Ray Serve does not know {', '.join(unknown)} in serveConfigV2")
    paths = [application["import_path"] for application in raw["applications"]]
    if paths != [IMPORT_PATH]:
        raise InvalidConfig(f"Got the applications {paths}, expected {IMPORT_PATH} alone")
    found: dict[str, Any] = raw
    return found


def _unknown(model: type[BaseModel], raw: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The keys that pydantic leaves out without a word."""
    for key, value in raw.items():
        field = model.model_fields.get(key)
        if field is None:
            yield path + key
            continue
        for inner in _models(field.annotation):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, dict):
                    yield from _unknown(inner, each, f"{path}{key}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _capacity(service: Object, arguments: dict[str, Any]) -> str:
    """The pods hold the replicas, and live as long as their streams."""
    cluster = build(from_tree(arguments, "args")).cluster
    if cluster.worker_gpus == "auto":
        raise InvalidConfig("Got cluster.worker_gpus=auto, expected a number: pods come and go")
    [group] = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    limits = pod["containers"][0]["resources"]["limits"]
    need = total(bundles_of(cluster, 0.0))
    has = {"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0))}
    if lacks := shortage(need, has):
        raise InvalidConfig(f"A replica needs {shown(need)}, its pod lacks {shown(lacks)}")
    most = most_replicas(cluster) + num_surging(cluster)
    if group["maxReplicas"] < most or group["minReplicas"] < cluster.num_replicas:
        raise InvalidConfig(
            f"Got {group['minReplicas']} to {group['maxReplicas']} pods, expected "
            f"{cluster.num_replicas} to {most}: one a replica, and those of an update"
        )
    grace_s = pod["terminationGracePeriodSeconds"]
    if grace_s <= cluster.drain_s:
        raise InvalidConfig(
            f"Got terminationGracePeriodSeconds={grace_s}, expected more than cluster.drain_s, "
            f"{cluster.drain_s:g}"
        )
    return f"{cluster.num_replicas} to {most} pods, each with {shown(need)} for its replica"


def _same(objects: list[Object], arguments: dict[str, Any]) -> str:
    """The ConfigMap and Serve say the same."""
    for each in objects:
        text = each.get("data", {}).get("outrider.yaml") if each["kind"] == "ConfigMap" else None
        if text is not None and yaml.safe_load(text) != arguments:
            raise InvalidConfig(
                f"The ConfigMap {each['metadata']['name']} and serveConfigV2's args differ"
            )
    return "the ConfigMap and serveConfigV2 hold one configuration"
