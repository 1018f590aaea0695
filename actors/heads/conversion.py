"""A head's pickled tensors as safetensors. Only tensors are read of the pickle, no code."""

import shutil
from pathlib import Path
from typing import Any

import torch

from outrider.actors.errors import ModelRefused
from outrider.actors.heads.checkpoint import kind_of, save_tensors, shapes_of

CONFIG = "config.json"


def convert_head(file: Path, folder: Path) -> str:
    """The head's kind, which is in `folder` then, with the config that lies beside the file.

    Raises ModelRefused, with nothing left there.
    """
    if not file.is_file():
        raise ModelRefused(f"{file}: not a file; expected a head's .bin, .pt or .pth")
    if folder.exists() and any(folder.iterdir()):
        raise ModelRefused(f"{folder}: not empty; expected a new folder")
    try:
        read: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a pickle can be wrong in any way
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelRefused(
            f"{file}: not a file of tensors alone, or damaged: {lines[0]}"
        ) from error
    tensors = _tensors(read)
    if not tensors:
        raise ModelRefused(f"{file}: got {type(read).__name__} without tensors, expected some")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Two names for one tensor are two tensors here: safetensors shares nothing.
        save_tensors({name: t.contiguous().clone() for name, t in tensors.items()}, folder)
        kind = kind_of(file, shapes_of(folder))
        if (file.parent / CONFIG).exists():
            shutil.copyfile(file.parent / CONFIG, folder / CONFIG)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return kind


def _tensors(read: Any) -> dict[str, torch.Tensor]:
    """By name; some training scripts keep them one level down."""
    if not isinstance(read, dict):
        return {}
    for name in ("state_dict", "model", "module"):
        if isinstance(read.get(name), dict):
            return _tensors(read[name])
    return {str(name): value for name, value in read.items() if isinstance(value, torch.Tensor)}
