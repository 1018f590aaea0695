"""The bundles of one replica: coordinator, draft, target. Arithmetic only; Ray is not imported."""

from collections.abc import Sequence
from typing import Any

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import ClusterSection
from outrider.cluster.deploy.preflight import Resources, total

BUNDLE_OF = {"coordinator": 0, "draft": 1, "target": 2}


def worker_gpus(config: ClusterSection, num_gpus: float) -> float:
    """GPUs of each worker. `auto`: one each, half each where a replica has one, or none."""
    if config.worker_gpus != "auto":
        return config.worker_gpus
    if num_gpus >= 2 * config.num_replicas:
        return 1.0
    return 0.5 if num_gpus >= config.num_replicas else 0.0


def bundles_of(config: ClusterSection, num_gpus: float) -> list[dict[str, float]]:
    """One replica's bundles, in the order of BUNDLE_OF."""
    worker = {"CPU": config.worker_cpus}
    if gpus := worker_gpus(config, num_gpus):
        worker["GPU"] = gpus
    return [{"CPU": config.coordinator_cpus}, dict(worker), dict(worker)]


def most_replicas(cluster: ClusterSection) -> int:
    """How many may run when there is much to do. Raises InvalidConfig."""
    most = cluster.max_replicas or cluster.num_replicas
    if most < cluster.num_replicas:
        raise InvalidConfig(
            f"Got cluster.max_replicas={most}, expected at least cluster.num_replicas, "
            f"{cluster.num_replicas}"
        )
    return most


def replicas_on(node: Resources, bundles: Sequence[Resources], cluster: ClusterSection) -> int:
    """How many replicas a machine may come to hold: they share its cores and memory."""
    need = total(bundles).items()
    fits = min((int(node.get(name, 0.0) / amount) for name, amount in need if amount), default=1)
    return max(1, min(most_replicas(cluster), fits))


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
