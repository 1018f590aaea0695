"""Whether the connected cluster could ever hold the replicas, and whether it can now."""

from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import ClusterSection
from outrider.cluster.deploy.preflight import Resources, check_nodes, shown, total
from outrider.cluster.deploy.sizing import bundles_of


def alive_nodes() -> list[Resources]:
    """What each machine of the connected cluster has in all."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [{name: node.get(name, 0.0) for name in ("CPU", "GPU")} for node in nodes]


def cluster_bundles(config: ClusterSection) -> list[dict[str, float]]:
    """The bundles for the connected cluster. Raises InvalidConfig if it could never hold them."""
    nodes = alive_nodes()
    bundles = bundles_of(config, total(nodes).get("GPU", 0.0))
    check_nodes(bundles, config.placement, config.num_replicas, nodes)
    return bundles


def check_placeable(config: ClusterSection, bundles: list[dict[str, float]]) -> None:
    """Place one replica for a moment. Raises InvalidConfig when others hold what it needs."""
    group: Any = placement_group(bundles, strategy=config.placement)
    try:
        if not group.wait(config.placement_timeout_s):
            free = ray.available_resources()
            names = sorted({name for bundle in bundles for name in bundle})
            raise InvalidConfig(
                f"No machine could take a replica within {config.placement_timeout_s:g} s: it "
                f"needs {shown(total(bundles))} ({config.placement}); free in the cluster now: "
                f"{shown({name: free.get(name, 0.0) for name in names})}"
            )
    finally:
        remove_placement_group(group)
