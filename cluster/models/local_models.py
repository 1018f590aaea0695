"""The configuration's models as folders of this machine."""

from collections.abc import Callable
from pathlib import Path

from outrider.cluster.config.config import Config
from outrider.cluster.config.hub_name import hub_name, of_snapshot
from outrider.cluster.models.hub import fetch
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
    if model.draft_path is not None:
        found["draft"] = str(local_model("draft", model.draft_path, report))
    return config.model_copy(update={"model": model.model_copy(update=found)})


def local_model(role: str, path: Path, report: Report) -> Path:
    """The folder itself, or that of a name on the hub. Raises ModelRefused."""
    if (name := hub_name(str(path))) is not None:
        return fetch(role, name, report)
    check_model(role, path)
    return path


def check_folders(config: Config) -> None:
    """Raises ModelRefused unless the models that are folders look loadable."""
    for role, path in (("target", config.model.target_path), ("draft", config.model.draft_path)):
        if path is not None and hub_name(str(path)) is None:
            check_model(role, path)


def worker_model(role: str, path: str, report: Report) -> str:
    """A worker's folder on another machine than its coordinator's: of the hub's cache, it is
    fetched there. Raises ModelRefused.
    """
    if not Path(path).exists() and (name := of_snapshot(Path(path))) is not None:
        return str(fetch(role, name, report))
    return path
