"""How an object of Kubernetes begins, and what ours are told apart by."""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

OURS = {"app.kubernetes.io/part-of": "outrider"}  # not `name`: KubeRay writes that on pods
HEAD = OURS | {"app.kubernetes.io/component": "head"}
WORKER = OURS | {"app.kubernetes.io/component": "worker"}


def new(api: str, kind: str, name: str, namespace: str | None = None, **rest: Any) -> Object:
    """An object of ours."""
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, **place, "labels": dict(OURS)},
        **rest,
    }


def selecting(labels: Mapping[str, str]) -> Object:
    """A selector of what has these labels."""
    return {"matchLabels": dict(labels)}
