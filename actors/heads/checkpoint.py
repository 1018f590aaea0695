"""A head's files: what kind they are is told by the names and shapes of their tensors.

The layouts that are read, and where they come from: Medusa as FasterDecoding and as vLLM write it;
EAGLE-1 and 2 as SafeAILab write them; EAGLE-3 as SafeAILab, SpecForge and the speculators project
do. Their names are brought into one form.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from outrider.actors.errors import ModelRefused
from outrider.actors.lookahead.round_report import EAGLE, EAGLE3, MEDUSA

Shapes = Mapping[str, tuple[int, ...]]

PREFIXES = ("medusa_heads.", "medusa_head.", "draft_model.", "module.", "model.")
RENAMED = (
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^fusion_fc\."), "fc."),
    (re.compile(r"^(\d+)\.(\d+)\.linear\."), r"blocks.\1.layers.\2."),
    (re.compile(r"^(\d+)\.\d+\.weight$"), r"lm_heads.\1.weight"),
)
# Of no use here: what training needs of the target, frequencies that follow from the config, and
# the other direction of `d2t`.
IGNORED = re.compile(r"^(verifier_.*|.*rotary_emb\.inv_freq|t2d)$")
ATTENTION = "layers.0.self_attn."


@dataclass(frozen=True, slots=True)
class HeadCheckpoint:
    """Tensors by the names of one form, and the config beside them."""

    folder: Path
    kind: str
    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor that must be there. Raises ModelRefused."""
        if name not in self.tensors:
            raise ModelRefused(f"{self.folder}: got no tensor {name!r}, which {self.kind} needs")
        return tuple(self.tensors[name].shape)

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor of this shape. Raises ModelRefused."""
        if (got := self.shape(name)) != shape:
            raise ModelRefused(
                f"{self.folder}: got {name!r} of shape {list(got)}, expected {list(shape)}"
            )
        return self.tensors[name]

    def find(self, name: str, *shape: int) -> torch.Tensor | None:
        """The same of one that may be left out."""
        return self.take(name, *shape) if name in self.tensors else None

    def check_known(self, known: set[str]) -> None:
        """Raises ModelRefused for a tensor of which nobody knows what it is for."""
        if unknown := sorted(self.tensors.keys() - known):
            raise ModelRefused(
                f"{self.folder}: got tensors that no {self.kind} head is known to have: "
                f"{', '.join(unknown[:5])}"
            )


def kinds_of(shapes: Shapes) -> list[str]:
    """The kinds of head that tensors of these names and shapes may be."""
    found = []
    if any(name.startswith(("blocks.", "lm_heads.")) for name in shapes):
        found.append(MEDUSA)
    fused = shapes.get("fc.weight", ())
    query, out = (shapes.get(f"{ATTENTION}{name}_proj.weight", ()) for name in "qo")
    if len(query) == len(out) == 2:
        if query[1] == 2 * out[0]:
            found.append(EAGLE3)
        elif query[1] == out[0] and fused == (out[0], 2 * out[0]):
            found.append(EAGLE)
    return found


def kind_of(folder: Path, shapes: Shapes) -> str:
    """The one kind that it is. Raises ModelRefused with the tensors seen."""
    found = kinds_of(shapes)
    if len(found) == 1:
        return found[0]
    seen = ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items())[:8])
    what = "a head of no known kind" if not found else f"what may be {' or '.join(found)}"
    raise ModelRefused(
        f"{folder}: got {what}, expected {MEDUSA}, {EAGLE} or {EAGLE3}; its tensors: "
        f"{seen or 'none'}{' …' if len(shapes) > 8 else ''}"
    )


def named(name: str) -> str:
    """A stored tensor's name in the one form.

    >>> named("midlayer.self_attn.q_proj.weight"), named("0.1.weight")
    ('layers.0.self_attn.q_proj.weight', 'lm_heads.0.weight')
    """
    while prefix := next((each for each in PREFIXES if name.startswith(each)), ""):
        name = name.removeprefix(prefix)
    for pattern, renamed in RENAMED:
        name = pattern.sub(renamed, name)
    return name


def files_of(folder: Path) -> list[Path]:
    """Its safetensors. Raises ModelRefused."""
    if not folder.is_dir():
        raise ModelRefused(f"{folder}: not a directory; expected that of a head")
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth"})
        hint = f"; `outrider convert-head {folder / pickles[0]}` makes them" if pickles else ""
        raise ModelRefused(f"{folder}: got no *.safetensors{hint}")
    return found


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Of its tensors, by the names of one form; nothing is loaded. Raises ModelRefused."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files_of(folder):
        try:
            with safe_open(file, "pt") as opened:
                for name in opened.keys():
                    shapes[named(name)] = tuple(opened.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise ModelRefused(f"{file}: not to be read: {error}") from error
    return {name: shape for name, shape in shapes.items() if not IGNORED.match(name)}


def config_of(folder: Path) -> dict[str, Any]:
    """Its config.json; empty where it has none. Raises ModelRefused."""
    file = folder / "config.json"
    if not file.exists():
        return {}
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelRefused(f"{file}: not to be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelRefused(f"{file}: got {type(config).__name__}, expected an object")
    layer = config.get("transformer_layer_config")  # the speculators project's
    return {**config, **layer} if isinstance(layer, dict) else config


def made_for(config: dict[str, Any]) -> str:
    """The target that a head's config names, if it does."""
    speculators = config.get("speculators_config")
    verifier = speculators.get("verifier") if isinstance(speculators, dict) else None
    named = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return str(named or config.get("base_model_name_or_path") or "")


def load_checkpoint(folder: Path, dtype: torch.dtype, device: str) -> HeadCheckpoint:
    """Its tensors: those of numbers in this type. Raises ModelRefused."""
    kind = kind_of(folder, shapes_of(folder))
    tensors = {}
    for file in files_of(folder):
        with safe_open(file, "pt", device=device) as opened:
            for name in opened.keys():
                if IGNORED.match(form := named(name)):
                    continue
                tensor = opened.get_tensor(name)
                tensors[form] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    return HeadCheckpoint(folder, kind, config_of(folder), tensors)


def save_tensors(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Into its model.safetensors, for all who may read the folder: as safetensors writes it, nobody
    but its owner may.
    """
    file = folder / "model.safetensors"
    save_file(dict(tensors), file, metadata={"format": "pt"})
    file.chmod(folder.stat().st_mode & 0o666)
