"""`outrider check`: everything that can be found wanting without serving."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from outrider.actors.errors import InvalidConfig, ModelRefused, OutriderError
from outrider.cluster.config.config import Config
from outrider.cluster.config.hub_name import hub_name
from outrider.cluster.deploy.preflight import check_port, shown
from outrider.cluster.deploy.sizing import most_replicas
from outrider.cluster.models.hub import GB, fetch_head, size_to_fetch
from outrider.cluster.models.local_models import with_local_models
from outrider.cluster.models.model_files import check_model
from outrider.cluster.terminal.console import REFUSED, errors_in_a_line, report, stderr
from outrider.cluster.terminal.flags import config_flags

OF_GOOD_MODELS = ("pair", "memory", "engine")  # not asked once something was found wanting
PARTS: dict[str | None, tuple[str, ...]] = {
    "config": ("config",),
    "models": ("config", "target", "draft", "pair"),
    None: ("config", "target", "draft", "pair", "memory", "port", "resources", "engine"),
}


def check(
    target: config_flags.Target = None,
    draft: config_flags.Draft = None,
    drafter: config_flags.Drafter = None,
    k: config_flags.K = None,
    verification: config_flags.Verification = None,
    numerics: config_flags.Numerics = None,
    config: config_flags.ConfigFile = None,
    assignments: config_flags.Assignments = None,
    load: Annotated[bool, typer.Option("--load", help="Load the models too.")] = False,
    only: Annotated[
        str | None,
        typer.Option(help="'config' or 'models': leave out what is of the machine that serves."),
    ] = None,
) -> None:
    """Check the configuration, the models and the resources."""
    with errors_in_a_line():
        chosen = config_flags.load_config(
            config,
            assignments,
            target=target,
            draft=draft,
            drafters=drafter,
            k=k,
            verification=verification,
            numerics=numerics,
        )
        parts = _parts(only)
    checks: dict[str, Callable[[], str]] = {
        "config": lambda: _config(chosen),
        "target": lambda: _model("target", chosen.model.target_path),
        "draft": lambda: _draft(chosen),
        "pair": lambda: _pair(chosen),
        "memory": lambda: _memory(chosen),
        "port": lambda: _port(chosen),
        "resources": lambda: _resources(chosen),
    }
    if load:
        checks["engine"] = lambda: asyncio.run(_engine(chosen))
    is_fine = True
    for name, run in checks.items():
        if name in parts and (is_fine or name not in OF_GOOD_MODELS):
            is_fine &= _passes(name, run)
    if not is_fine:
        raise typer.Exit(REFUSED)


def _parts(only: str | None) -> tuple[str, ...]:
    """The checks that were asked for. Raises InvalidConfig."""
    if only not in PARTS:
        raise InvalidConfig(f"Got --only {only!r}, expected 'config' or 'models'")
    return PARTS[only]


def _config(config: Config) -> str:
    """Every key is known by now; some say something only together."""
    most = most_replicas(config.cluster)
    return f"{config.model.served_name}, {config.cluster.num_replicas} to {most} replicas"


def _passes(name: str, run: Callable[[], str]) -> bool:
    """Run one check and print its line."""
    try:
        detail = run()
    except OutriderError as error:
        stderr().print(Text.assemble(("✗ ", "bold red"), f"{name}: {error}"))
        return False
    stderr().print(Text.assemble(("✓ ", "bold green"), f"{name}: {detail}"))
    return True


def _model(role: str, path: Path | None) -> str:
    if path is None:
        return "none; the target decodes alone"
    if (name := hub_name(str(path))) is not None:
        _, size = size_to_fetch(role, name)
        return f"{name} on the hub, " + (f"{size / GB:.2f} GB to fetch" if size else "in the cache")
    return f"{check_model(role, path)} in {path}"


def _draft(config: Config) -> str:
    """The draft, or the head that takes its place: what it is by its tensors."""
    path, head = config.head_path, config.engine.chosen_head
    if config.draft_path is not None or head is None:
        return _model("draft", config.draft_path)
    if path is None:
        return f"{head}: the target's own first layers"
    from outrider.actors.heads.checkpoint import config_of, kind_of, made_for, shapes_of

    if (name := hub_name(str(path))) is not None:
        path = fetch_head(name, report)
    kind = kind_of(path, shapes_of(path))
    if kind != head.kind.name:
        raise ModelRefused(f"Got {head}, whose tensors are of {kind}, accepted: {kind}:{path}")
    target = made_for(config_of(path))
    of = f", made for {target}" if target else ""
    return f"a head of kind {kind} in {path}{of}; --load tries what it was trained on"


def _pair(config: Config) -> str:
    """Whether the draft can draft for this target: by their tokenizers, as at the start."""
    from outrider.actors.text.tokenizer import Tokenizer, check_vocabularies

    if config.draft_path is None:
        return "no draft model to compare with"
    tokenizers = [
        Tokenizer(_folder(role, path))
        for role, path in (("target", config.model.target_path), ("draft", config.draft_path))
    ]
    check_vocabularies(*tokenizers)
    return "both models have the same tokens"


def _folder(role: str, path: Path) -> Path:
    name = hub_name(str(path))
    return path if name is None else size_to_fetch(role, name)[0]


def _memory(config: Config) -> str:
    """What the models take of this machine's, and what is left for texts."""
    from outrider.actors.heads.footprint import head_footprint
    from outrider.actors.sizing.footprint import footprint
    from outrider.actors.sizing.machine import this_machine
    from outrider.actors.sizing.memory import Pair, cpu_tokens

    machine, engine = this_machine(), config.engine
    if machine.num_gpus and engine.device != "cpu":
        return f"{machine.num_gpus} GPUs; what fits on them is found out as the models are loaded"
    paths = (config.model.target_path, config.draft_path or config.head_path)
    if any(path is not None and hub_name(str(path)) is not None for path in paths):
        return "known once the weights are here"
    target = footprint(config.model.target_path)
    draft = None if config.draft_path is None else footprint(config.draft_path)
    if engine.head:
        draft = head_footprint(engine.head, config.model.target_path)
    pair = Pair(target, draft, engine.cpu_item_bytes, engine.batch(on_device=False))
    asked = None if engine.kv_tokens == "auto" else engine.kv_tokens
    num_tokens = cpu_tokens(pair, machine.free_bytes, most_replicas(config.cluster), asked)
    free = "" if machine.free_bytes is None else f" of {machine.free_bytes / GB:.1f} free here"
    return (
        f"{pair.fixed_bytes / GB:.2f} GB for the models{free}, room for {num_tokens} tokens of "
        f"text, {(pair.token_bytes or 0) * num_tokens / GB:.2f} GB, taken as they are written"
    )


def _port(config: Config) -> str:
    check_port(config.http.host, config.http.port)
    return f"{config.http.host}:{config.http.port} is free"


def _resources(config: Config) -> str:
    from outrider.cluster.deploy.launch import check_this_machine
    from outrider.cluster.deploy.local_ray import LOCAL, connected

    if config.cluster.address == LOCAL:
        return check_this_machine(config)
    with connected(config):
        from outrider.cluster.deploy.placement import check_placeable, cluster_bundles

        bundles = cluster_bundles(config.cluster)
        check_placeable(config.cluster, bundles)
        return f"{'; '.join(map(shown, bundles))} a replica, placeable in the cluster"


async def _engine(config: Config) -> str:
    from outrider.actors.engine.engine import Engine
    from outrider.actors.executor.executor import ProcessExecutor
    from outrider.cluster.deploy.settings import engine_config

    config = with_local_models(config, report)
    engine = await Engine.start(engine_config(config), ProcessExecutor(), report)
    info = engine.info
    await engine.stop()
    for way, share in info.head_scores:
        report(f"  {share:.3f} of first tokens right: {way}")
    return (
        f"numerics {info.numerics}, context {info.max_model_len} of {info.context_len}, "
        f"fingerprint {info.fingerprint}, verdicts by {info.verdicts}"
    )
