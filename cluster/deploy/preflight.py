"""What can be found wanting before anything is started: port and machines.

Every check raises InvalidConfig with what is missing, so that nothing waits for it in silence.
Pure of Ray: what a cluster has comes in as plain dictionaries.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from outrider.actors.errors import InvalidConfig

LEAST_LOGICAL_CPUS = 4  # of a local cluster: its CPUs only count, they pin nothing

Resources = Mapping[str, float]  # {"CPU": 2.0, "GPU": 1.0}


def check_port(host: str, port: int) -> None:
    """Raises InvalidConfig unless a server could listen there now."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidConfig(f"Got http.host={host}, which does not resolve: {error}") from error
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise InvalidConfig(
                f"Cannot listen on {host}:{port} ({error.strerror}); stop what listens there, "
                "or choose another --port"
            ) from error


def check_nodes(
    bundles: Sequence[Resources], placement: str, num_replicas: int, nodes: Sequence[Resources]
) -> None:
    """Raises InvalidConfig unless the machines could ever hold the bundles, naming what lacks."""
    if not nodes:
        raise InvalidConfig("The cluster has no machine that is alive")
    need = total(bundles)
    asked = f"{num_replicas} × ({'; '.join(map(shown, bundles))})"
    if placement == "STRICT_PACK":
        lacks = min((shortage(need, node) for node in nodes), key=lambda lack: sum(lack.values()))
        if lacks:
            spread = ", or set cluster.placement=PACK" if len(nodes) > 1 else ""
            raise InvalidConfig(
                f"A replica needs {shown(need)} on one machine ({asked}); the best of "
                f"{len(nodes)} lacks {shown(lacks)}. Lower cluster.*_cpus or cluster.worker_gpus"
                + spread
            )
    everything = {name: amount * num_replicas for name, amount in need.items()}
    lacks = shortage(everything, total(nodes))
    if lacks:
        raise InvalidConfig(
            f"The replicas need {shown(everything)} in all ({asked}); the cluster has "
            f"{shown(total(nodes))}, it lacks {shown(lacks)}"
        )


def local_resources() -> dict[str, float]:
    """What a cluster on this machine alone is given."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        num_gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    else:
        num_gpus = len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return {"CPU": float(max(os.cpu_count() or 1, LEAST_LOGICAL_CPUS)), "GPU": float(num_gpus)}


def total(parts: Sequence[Resources]) -> dict[str, float]:
    """The sum of some resources."""
    names = sorted({name for part in parts for name in part})
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def shortage(need: Resources, has: Resources) -> dict[str, float]:
    """What `has` lacks of `need`."""
    lacks = {name: amount - has.get(name, 0.0) for name, amount in need.items()}
    return {name: amount for name, amount in lacks.items() if amount > 1e-6}


def shown(resources: Resources) -> str:
    """Resources in words: `2 CPU, 1 GPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items()) or "nothing"
