"""The bundles of one replica: coordinator, draft, target. Arithmetic only; Ray is not imported."""

from outrider.cluster.config import ClusterSection

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
