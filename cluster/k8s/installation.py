"""What an operator decides of an installation, and what follows from it by arithmetic.

Knows the typed configuration; knows nothing of how objects of Kubernetes are written.
"""

import math
import re
from dataclasses import dataclass

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import NO_DRAFT, Config
from outrider.cluster.config.demo_models import DEMO
from outrider.cluster.config.hub_name import hub_name
from outrider.cluster.config.sources import Setting, Settings, build
from outrider.cluster.deploy.preflight import Resources, total
from outrider.cluster.deploy.sizing import bundles_of, most_replicas, num_surging
from outrider.cluster.k8s import ports

# Below what the operator writes, above the defaults, which are those of one machine.
OPERATING = {
    "http.host": "0.0.0.0",
    "cluster.drain_s": 600.0,
    "cluster.max_surge_percent": 25,
}
MODELS_FOLDER = "/models"
GPU_SHARES = {0: 0.0, 1: 0.5, 2: 1.0}  # of each worker, by the GPUs of a replica
MOVE_S = 300.0  # for a replica to come up elsewhere, before the one that leaves ends
END_S = 30.0  # for Ray's own processes to end

NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")  # KubeRay appends to it, 63 letters hold
QUANTITY = re.compile(r"[1-9][0-9]*(Mi|Gi)")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/-]*(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Installation:
    """One served pair on one cluster. Raises InvalidConfig."""

    config: Config
    name: str = "outrider"
    namespace: str = "outrider"
    image: str = "outrider:0.1.0"
    num_gpus: int = 0  # of a replica; at most 2
    cpus: int = 0  # of a replica's pod; 0: as many as the replica counts
    memory: str = "8Gi"  # of a replica's pod
    models_claim: str | None = "outrider-models"  # the volume at /models
    keys_secret: str | None = "outrider-api-keys"  # with the entry `keys`: name=key,…
    cache_claim: str | None = None  # the volume for models of the hub; none: the pod's own
    hub_secret: str | None = None  # with the entry `token`: of the hub, for gated models

    def __post_init__(self) -> None:
        for what, value, accepted in (
            ("name", self.name, NAME),
            ("namespace", self.namespace, NAME),
            ("image", self.image, IMAGE),
            ("memory", self.memory, QUANTITY),
        ):
            if not accepted.fullmatch(value):
                raise InvalidConfig(f"Got {what}={value!r}, expected {accepted.pattern}")
        if self.config.http.port != ports.CLIENTS:
            raise InvalidConfig(
                f"Got http.port={self.config.http.port}, expected {ports.CLIENTS}, which KubeRay "
                "takes the Service to"
            )
        self._check_workers()
        self._check_time()
        self._check_models()

    @property
    def replica(self) -> Resources:
        """What one replica takes of Ray's count."""
        return total(bundles_of(self.config.cluster, 0.0))

    @property
    def pod_cpus(self) -> int:
        """The processors of a replica's pod."""
        return self.cpus or math.ceil(self.replica["CPU"])

    @property
    def num_pods(self) -> int:
        """How many there are at least: one for each replica."""
        return self.config.cluster.num_replicas

    @property
    def most_pods(self) -> int:
        """How many there may be, those of an update included."""
        return most_replicas(self.config.cluster) + num_surging(self.config.cluster)

    @property
    def leave_s(self) -> int:
        """How long a pod that is told to go may take: a successor comes up, the streams end."""
        return math.ceil(MOVE_S + self.config.cluster.drain_s)

    @property
    def grace_s(self) -> int:
        """When Kubernetes kills what is left of a pod."""
        return self.leave_s + math.ceil(END_S)

    @property
    def has_volume(self) -> bool:
        """Whether models come from a volume: the demo pair is in the image."""
        return self.models_claim is not None and any(hub_name(p) is None for p in self._models)

    @property
    def uses_hub(self) -> bool:
        """Whether pods fetch models by name."""
        return any(hub_name(model) is not None for model in self._models)

    @property
    def _models(self) -> list[str]:
        """Those that are no part of the image."""
        chosen = [self.config.model.target, self.config.model.draft]
        head = self.config.engine.chosen_head
        if head is not None and head.kind.needs_value:
            chosen.append(head.value)
        return [model for model in chosen if model not in (None, NO_DRAFT, DEMO)]

    def _check_workers(self) -> None:
        cluster = self.config.cluster
        if self.num_gpus not in GPU_SHARES:
            raise InvalidConfig(f"Got {self.num_gpus} GPUs a replica, expected 0, 1 or 2")
        if cluster.worker_gpus != GPU_SHARES[self.num_gpus]:
            raise InvalidConfig(
                f"Got cluster.worker_gpus={cluster.worker_gpus} with {self.num_gpus} GPUs a "
                f"replica, expected {GPU_SHARES[self.num_gpus]:g}"
            )
        if cluster.placement != "STRICT_PACK":
            raise InvalidConfig(
                f"Got cluster.placement={cluster.placement}, expected STRICT_PACK: a pod holds one "
                "replica, whole"
            )
        if self.pod_cpus < self.replica["CPU"]:
            raise InvalidConfig(
                f"Got a pod of {self.pod_cpus} CPU, expected at least the {self.replica['CPU']:g} "
                "of a replica"
            )
        most_replicas(cluster)

    def _check_time(self) -> None:
        drain_s, longest_s = self.config.cluster.drain_s, self.config.http.request_timeout_s
        if drain_s < longest_s:
            raise InvalidConfig(
                f"Got cluster.drain_s={drain_s:g}, expected at least http.request_timeout_s, "
                f"{longest_s:g}: a pod that leaves would cut the longest answers"
            )

    def _check_models(self) -> None:
        for model in self._models:
            if hub_name(model) is None and not model.startswith(MODELS_FOLDER + "/"):
                raise InvalidConfig(
                    f"Got the model {model}, expected a folder below {MODELS_FOLDER}, where the "
                    "volume is mounted, a model of the hub, org/name[@revision], or 'demo'"
                )


def configured(settings: Settings, num_gpus: int) -> Config:
    """The configuration of these settings over those of operating. Raises InvalidConfig."""
    derived = OPERATING | {"cluster.worker_gpus": GPU_SHARES.get(num_gpus, 0.0)}
    defaults = {key: Setting(value, "a default", False) for key, value in derived.items()}
    return build(defaults | settings)
