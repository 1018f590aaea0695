"""The configuration's models as folders of this machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outrider.actors.errors import ModelRefused
from outrider.actors.spec_decode.drafters.registry import ChosenDrafter, Place
from outrider.cluster.config.config import Config
from outrider.cluster.config.demo_models import DEMO, demo_head
from outrider.cluster.config.hub_name import hub_name, of_snapshot
from outrider.cluster.models.hub import fetch, fetch_head
from outrider.cluster.models.model_files import check_model

Report = Callable[[str], None]


def with_local_models(config: Config, report: Report) -> Config:
    """The same with a folder for each name on the hub, which is fetched where it is not here yet.

    Raises ModelRefused unless all look loadable.
    """
    model = config.model
    found = {
        "name": model.served_name,
        "target": str(local_model("target", model.target_path, report)),
    }
    if config.draft_path is not None:
        found["draft"] = str(local_model("draft", config.draft_path, report))
    drafters = tuple(_local_drafter(each, report) for each in config.engine.chosen_drafters)
    return config.model_copy(
        update={
            "model": model.model_copy(update=found),
            "engine": config.engine.model_copy(update={"drafters": drafters}),
        }
    )


def _local_drafter(chosen: ChosenDrafter, report: Report) -> str:
    """As `engine.drafters` has it, a head by its folder. Raises ModelRefused."""
    if chosen.kind.place is Place.TARGET and chosen.kind.needs_value:
        value = str(demo_head(chosen.kind.name)) if chosen.value == DEMO else chosen.value
        path = local_head(value, report)
        return str(replace(chosen, value=str(path.resolve())))
    return str(chosen)


def local_head(value: str, report: Report) -> Path:
    """The folder itself, or that of a name on the hub. Raises ModelRefused."""
    if (name := hub_name(value)) is not None:
        return fetch_head(name, report)
    if not Path(value).is_dir():
        raise ModelRefused(
            f"Got the head {value}, expected a directory, 'demo', or a name on the hub: "
            "org/name[@revision]"
        )
    return Path(value)


def local_model(role: str, path: Path, report: Report) -> Path:
    """The folder itself, or that of a name on the hub. Raises ModelRefused."""
    if (name := hub_name(str(path))) is not None:
        return fetch(role, name, report)
    check_model(role, path)
    return path


def check_folders(config: Config) -> None:
    """Raises ModelRefused unless the models that are folders look loadable."""
    for role, path in (("target", config.model.target_path), ("draft", config.draft_path)):
        if path is not None and hub_name(str(path)) is None:
            check_model(role, path)


def worker_model(role: str, path: str, report: Report) -> str:
    """A worker's folder on another machine than its coordinator's: of the hub's cache, it is
    fetched there. Raises ModelRefused.
    """
    if not Path(path).exists() and (name := of_snapshot(Path(path))) is not None:
        return str(fetch(role, name, report))
    return path


def worker_head(head: str, report: Report) -> str:
    """The same of a head, KIND:PATH."""
    kind, _, path = head.partition(":")
    if path and not Path(path).exists() and (name := of_snapshot(Path(path))) is not None:
        return f"{kind}:{fetch_head(name, report)}"
    return head
