"""How many replicas, as Ray Serve's options take it. Ray is not imported."""

from typing import Any

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config import ClusterSection


def most_replicas(cluster: ClusterSection) -> int:
    """How many may run when there is much to do. Raises InvalidConfig."""
    most = cluster.max_replicas or cluster.num_replicas
    if most < cluster.num_replicas:
        raise InvalidConfig(
            f"Got cluster.max_replicas={most}, expected at least cluster.num_replicas, "
            f"{cluster.num_replicas}"
        )
    return most


def num_surging(cluster: ClusterSection) -> int:
    """How many more there may be for the time of an update. Raises InvalidConfig."""
    return -(-cluster.max_surge_percent * most_replicas(cluster) // 100)


def scaling_options(cluster: ClusterSection) -> dict[str, Any]:
    """The deployment's options. Raises InvalidConfig."""
    surge = {"max_surge_percent": cluster.max_surge_percent}
    most = most_replicas(cluster)
    if most == cluster.num_replicas:
        return surge | {"num_replicas": cluster.num_replicas}
    autoscaling = {
        "min_replicas": cluster.num_replicas,
        "max_replicas": most,
        "target_ongoing_requests": cluster.target_requests,
        "upscale_delay_s": cluster.upscale_delay_s,
        "downscale_delay_s": cluster.downscale_delay_s,
    }
    return surge | {"autoscaling_config": autoscaling}
