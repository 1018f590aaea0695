"""`outrider k8s`: manifests for Kubernetes, printed and checked."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config import sources
from outrider.cluster.config.sources import Setting, Settings
from outrider.cluster.k8s.installation import Installation, configured
from outrider.cluster.k8s.manifest import document, manifest
from outrider.cluster.k8s.ray_service import serve_config, written
from outrider.cluster.terminal.console import errors_in_a_line, report
from outrider.cluster.terminal.flags import config_flags

k8s = typer.Typer(name="k8s", help="Manifests for Kubernetes.", no_args_is_help=True)

FLAGS = {
    "replicas": "cluster.num_replicas",
    "max_replicas": "cluster.max_replicas",
    "target_requests": "cluster.target_requests",
}
NONE = "none"


Gpus = Annotated[int, typer.Option(help="GPUs of a replica: 0, 1 or 2.")]
Replicas = Annotated[str | None, typer.Option(help="Replicas, or the least of them.")]
MaxReplicas = Annotated[
    str | None, typer.Option(help="The most of them; then their number follows the load.")
]
TargetRequests = Annotated[
    str | None, typer.Option(help="Requests in progress that a replica should have.")
]
Cpus = Annotated[int, typer.Option(help="CPUs of a replica's pod; 0: as it counts.")]
Memory = Annotated[str, typer.Option(help="Memory of a replica's pod.")]
Image = Annotated[str, typer.Option(help="The image, with its tag.")]
Name = Annotated[str, typer.Option(help="Of the RayService.")]
Namespace = Annotated[str, typer.Option(help="Where all of it goes.")]
ModelsClaim = Annotated[
    str, typer.Option(help="The volume claim that is mounted at /models, or 'none'.")
]
KeysSecret = Annotated[
    str, typer.Option(help="The Secret with API keys in its entry `keys`, or 'none'.")
]
CacheClaim = Annotated[
    str, typer.Option(help="The volume claim for models of the hub; 'none': each pod's own folder.")
]
HubSecret = Annotated[
    str, typer.Option(help="The Secret with the hub's token in its entry `token`, or 'none'.")
]
Monitoring = Annotated[
    bool, typer.Option("--monitoring", help="With monitor, alerts and dashboard.")
]
ServeConfig = Annotated[bool, typer.Option("--serve-config", help="Only `serve deploy`'s part.")]
File = Annotated[Path, typer.Argument(help="As rendered or as kustomize built it; '-': stdin.")]


@k8s.command()
def render(
    target: config_flags.Target = None,
    draft: config_flags.Draft = None,
    drafter: config_flags.Drafter = None,
    gpus: Gpus = 0,
    replicas: Replicas = None,
    max_replicas: MaxReplicas = None,
    target_requests: TargetRequests = None,
    cpus: Cpus = 0,
    memory: Memory = "8Gi",
    image: Image = "outrider:0.1.0",
    name: Name = "outrider",
    namespace: Namespace = "outrider",
    models_claim: ModelsClaim = "outrider-models",
    keys_secret: KeysSecret = "outrider-api-keys",
    cache_claim: CacheClaim = NONE,
    hub_secret: HubSecret = NONE,
    monitoring: Monitoring = False,
    serve_config_only: ServeConfig = False,
    config: config_flags.ConfigFile = None,
    assignments: config_flags.Assignments = None,
) -> None:
    """Print the whole manifest: kubectl apply -f - takes it."""
    with errors_in_a_line():
        settings = {} if config is None else sources.from_file(config)
        settings |= sources.from_assignments(assignments or [])
        settings |= config_flags.beside_the_usual(drafter)
        settings |= _flags(
            target=target,
            draft=draft,
            replicas=replicas,
            max_replicas=max_replicas,
            target_requests=target_requests,
        )
        installation = Installation(
            configured(settings, gpus),
            name,
            namespace,
            image,
            num_gpus=gpus,
            cpus=cpus,
            memory=memory,
            models_claim=None if models_claim == NONE else models_claim,
            keys_secret=None if keys_secret == NONE else keys_secret,
            cache_claim=None if cache_claim == NONE else cache_claim,
            hub_secret=None if hub_secret == NONE else hub_secret,
        )
        if serve_config_only:
            sys.stdout.write(written(serve_config(installation)))
        else:
            sys.stdout.write(document(manifest(installation, monitoring)))


@k8s.command()
def check(file: File) -> None:
    """Check the parts of a manifest against each other and against this version of Outrider."""
    from outrider.cluster.k8s.verify import verified

    with errors_in_a_line():
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
        except OSError as error:
            raise InvalidConfig(f"Cannot read {file}: {error.strerror}") from error
        for line in verified(text):
            report(line)


def _flags(**values: str | None) -> Settings:
    settings: Settings = {}
    for name, value in values.items():
        if value is not None:
            key = FLAGS.get(name) or config_flags.KEYS[name]
            settings[key] = Setting(value, f"--{name.replace('_', '-')}", is_text=True)
    return settings
