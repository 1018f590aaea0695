"""Everything of an installation, in the order in which Kubernetes has to see it."""

import yaml

from outrider.cluster.k8s.ground import ground
from outrider.cluster.k8s.installation import Installation
from outrider.cluster.k8s.monitoring.monitor import monitoring
from outrider.cluster.k8s.network import policies, to_hub
from outrider.cluster.k8s.objects import Object
from outrider.cluster.k8s.ray_service import Dumper, config_map, ray_service


def base(namespace: str) -> list[Object]:
    """What does not depend on the models."""
    return [*ground(namespace), *policies(namespace)]


def service(installation: Installation) -> list[Object]:
    """What does."""
    way_out = [to_hub(installation.namespace)] if installation.uses_hub else []
    return [*way_out, config_map(installation), ray_service(installation)]


def manifest(installation: Installation, has_monitoring: bool) -> list[Object]:
    """All of it."""
    watching = monitoring(installation.namespace) if has_monitoring else []
    return [*base(installation.namespace), *watching, *service(installation)]


def document(objects: list[Object]) -> str:
    """As one file of YAML."""
    return yaml.dump_all(
        objects, Dumper=Dumper, sort_keys=False, width=100, allow_unicode=True, explicit_start=True
    )
