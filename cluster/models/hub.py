"""Models from the Hugging Face hub, by its own client: its cache, token, endpoint and resume.

The small files come first, and a model that cannot be served is refused by them; then the weights,
if the disk has room. Nothing else is fetched. `HF_HUB_OFFLINE=1` is what is in the cache.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.actors.errors import ModelRefused
from outrider.cluster.config.hub_name import HubName
from outrider.cluster.models.model_files import CONFIG, SMALL_FILES, check_small_files, weight_files

GB = 1e9

Report = Callable[[str], None]


def fetch(role: str, name: HubName, report: Report) -> Path:
    """The folder with the model, in the cache. Raises ModelRefused with what to do."""
    what = f"the {role} {name}"
    with _told(role, name):
        folder = Path(_snapshot(name, SMALL_FILES))
        check_small_files(what, folder)
        files = weight_files(folder)
        missing = [file for file in files if not (folder / file).exists()]
        if missing:
            at = HubName(name.repo, folder.name)  # the branch may move on meanwhile
            size = _size_to_fetch(name, at, files)
            report(f"downloading {what}: {size / GB:.2f} GB into {folder.parents[2]}")
            _snapshot(at, files, progress=_progress(report))
    return folder


def fetch_head(name: HubName, report: Report) -> Path:
    """The folder with a head's config and weights, in the cache. Raises ModelRefused."""
    with _told("drafter", name):
        report(f"fetching the head {name}, unless it is in the cache")
        folder = Path(_snapshot(name, (CONFIG, "*.safetensors"), progress=_progress(report)))
        if not any(folder.glob("*.safetensors")):
            raise ModelRefused(
                f"Got the head {name} without *.safetensors, expected some; `outrider "
                "convert-head FILE` makes them of a file that was downloaded"
            )
    return folder


def size_to_fetch(role: str, name: HubName) -> tuple[Path, int]:
    """The model's folder and the bytes of weights that `fetch` would add to it. Raises as it does;
    fetches the small files.
    """
    with _told(role, name):
        folder = Path(_snapshot(name, SMALL_FILES))
        check_small_files(f"the {role} {name}", folder)
        files = weight_files(folder)
        if all((folder / file).exists() for file in files):
            return folder, 0
        return folder, _size_to_fetch(name, HubName(name.repo, folder.name), files)


def _snapshot(name: HubName, files: Any, **how: Any) -> Any:
    from huggingface_hub import snapshot_download

    progress = how.pop("progress", _silent())
    return snapshot_download(
        name.repo, revision=name.revision, allow_patterns=list(files), tqdm_class=progress, **how
    )


def _size_to_fetch(name: HubName, at: HubName, files: list[str]) -> int:
    """Raises ModelRefused where the repository lacks some of the files, or the disk the room."""
    from huggingface_hub import constants, get_cached_repo_tree

    found = {info.filename: info for info in _snapshot(at, files, dry_run=True)}
    if lacking := [file for file in files if file not in found]:
        every = [file.path for file in get_cached_repo_tree(at.repo, revision=at.revision)]
        others = [file for file in every if file.endswith((".bin", ".pt", ".pth", ".gguf"))]
        has = f"; it has {', '.join(others[:3])}, which are not read" if others else ""
        raise ModelRefused(
            f"Got {name} without {lacking[0]}, expected a model with *.safetensors weights{has}"
        )
    size = sum(info.file_size or 0 for info in found.values() if info.will_download)
    cache = Path(constants.HF_HUB_CACHE)
    free = shutil.disk_usage(next(p for p in (cache, *cache.parents) if p.exists())).free
    if size > free:
        raise ModelRefused(
            f"{name} takes {size / GB:.2f} GB more, {cache} has {free / GB:.2f} GB free; make "
            "room, or set HF_HOME to a folder on a larger disk"
        )
    return size


@contextmanager
def _told(role: str, name: HubName) -> Iterator[None]:
    """The hub's errors as ours, with what to do."""
    from huggingface_hub import constants, errors

    at = f"Got {role}={name}"
    try:
        yield
    except errors.GatedRepoError as error:  # is a RepositoryNotFoundError
        raise ModelRefused(
            f"{at}, which is gated: accept its terms at {constants.ENDPOINT}/{name.repo}, then "
            "set HF_TOKEN to a token of that account, or run `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelRefused(
            f"{at}, expected a directory or a model of {constants.ENDPOINT}: there is none of "
            "this name, or it is private and HF_TOKEN is not of one who may read it"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelRefused(
            f"{at}: {name.repo} has no revision {name.revision}, expected a branch, tag or commit"
        ) from error
    except errors.HFValidationError as error:
        raise ModelRefused(f"{at}, expected org/name[@revision]: {error}") from error
    except ModelRefused:
        raise
    except (PermissionError, shutil.Error) as error:
        raise ModelRefused(f"{at}: {error}") from error
    except Exception as error:  # the network, in whichever way, and what the client makes of it
        raise ModelRefused(
            f"{at}, of which not all is in the cache, and {constants.ENDPOINT} was not to be had: "
            f"{_reason(error)}. In the cache: {', '.join(_cached()) or 'nothing'}"
        ) from error


def _reason(error: BaseException) -> str:
    """The root of it, in a line."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _cached() -> list[str]:
    """The models of which something is in the cache."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return sorted(repo.repo_id for repo in repos if repo.repo_type == "model")


def _progress(report: Report) -> Any:
    """The hub's own bars in a terminal; elsewhere a line every few seconds."""
    if sys.stderr.isatty():
        return None
    from outrider.cluster.models.download_lines import lines_of

    return lines_of(report)


def _silent() -> Any:
    from outrider.cluster.models.download_lines import lines_of

    return lines_of(None)
