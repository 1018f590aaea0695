"""What a pod runs before it is stopped: its node takes no more work, and what it has may finish.

    python -m outrider.cluster.k8s.leave --within 900

Ray is told that the node will go. Ray Serve then starts the replica's successor elsewhere, sends
nothing more to the one here and ends it once its streams have; the proxy here goes on until that
beside the successor is known. The head, where no replica runs, waits for the cluster's workers, who
need it until they have left.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POLL_S = 0.5
LINGER_S = 30.0  # the proxy here serves on, until that of the successor is known to be ready
GCS = "127.0.0.1:6379"  # of a head, which has no RAY_ADDRESS
REPLICA = b"ray::ServeReplica"
REASON = "the pod ends"


def leave(client: Any, ip: str, within_s: float) -> bool:
    """Return whether the node was empty in time. The client is one of Ray's own for its state."""
    deadline = time.monotonic() + within_s
    own = next((info for info in _alive(client) if info.node_manager_address == ip), None)
    if own is None:
        return True  # the cluster knows no such node, or none any more
    if own.is_head_node:
        return _until(lambda: len(_alive(client)) <= 1, deadline)
    drain(client, own.node_id.hex(), within_s)
    had_replica = bool(replicas())
    is_empty = _until(lambda: not replicas(), deadline)
    if had_replica:
        time.sleep(max(0.0, min(LINGER_S, deadline - time.monotonic())))
    return is_empty


def drain(client: Any, node_id: str, within_s: float) -> None:
    """Have nothing more placed on this node, and what is there move."""
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    ends_ms = int((time.time() + within_s) * 1000)
    is_accepted, why = client.drain_node(node_id, reason, REASON, ends_ms)
    if not is_accepted:
        print(f"Ray does not let the node go: {why}", file=sys.stderr)


def replicas() -> list[int]:
    """The processes of replicas that are to be seen from here: in a pod, its own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.joinpath("cmdline").read_bytes().startswith(REPLICA):
                found.append(int(folder.name))
        except OSError:
            continue  # it ended while we looked
    return found


def _alive(client: Any) -> list[Any]:
    return [info for info in client.get_all_node_info().values() if info.state == 0]


def _until(is_so: Callable[[], bool], deadline: float) -> bool:
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--within", type=float, required=True, help="seconds, at most")
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS", GCS))
    args = parser.parse_args()
    import ray

    client: Any = ray._raylet.GcsClient(address=args.address)
    if not leave(client, ray.util.get_node_ip_address(), args.within):
        print(f"not everything ended within {args.within:g} s", file=sys.stderr)


if __name__ == "__main__":
    main()
