"""How large a model is, by the heads of its files: nothing is loaded.

Weights by the safetensors headers; keys and values by config.json, under the names that Hugging
Face's configurations have for them. The format of the headers: 8 bytes of length, then JSON.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
WIDTHS = ("hidden_size", "n_embd", "d_model")
CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
MAX_HEADER = 100 << 20


@dataclass(frozen=True, slots=True)
class Footprint:
    """Counted in numbers, not in bytes: those follow from the type that it is computed in."""

    num_parameters: int
    kv_width: int | None  # numbers that one token's keys and values are, in all layers
    vocab_size: int
    context_len: int
    num_layers: int = 0
    hidden_size: int = 0

    def weight_bytes(self, item_bytes: int) -> int:
        return self.num_parameters * item_bytes

    def kv_bytes(self, item_bytes: int) -> int | None:
        """Of one token."""
        return None if self.kv_width is None else self.kv_width * item_bytes


def footprint(folder: Path) -> Footprint:
    """Of a model directory whose files are there. What is not understood counts as nothing."""
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    return Footprint(
        num_parameters=num_parameters(folder),
        kv_width=_kv_width(text),
        vocab_size=_first(text, ("vocab_size",)) or 0,
        context_len=_first(text, CONTEXTS) or 0,
        num_layers=_first(text, LAYERS) or 0,
        hidden_size=_first(text, WIDTHS) or 0,
    )


def num_parameters(folder: Path) -> int:
    """In all its safetensors."""
    return sum(map(_num_parameters, folder.glob("*.safetensors")))


def _num_parameters(file: Path) -> int:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > MAX_HEADER:
            return 0
        try:
            header = json.loads(opened.read(length))
        except ValueError:
            return 0
    return sum(math.prod(each["shape"]) for name, each in header.items() if name != "__metadata__")


def _kv_width(config: dict[str, Any]) -> int | None:
    layers, heads = _first(config, LAYERS), _first(config, HEADS)
    if layers is None or heads is None:
        return None
    kv_heads = _first(config, ("num_key_value_heads", "num_kv_heads")) or heads
    if (nope := config.get("qk_nope_head_dim")) is not None:  # latent attention, as expanded
        per_head = nope + config.get("qk_rope_head_dim", 0) + config.get("v_head_dim", nope)
        return int(layers * heads * per_head)
    width = _first(config, ("head_dim",))
    if width is None:
        hidden = _first(config, WIDTHS)
        if hidden is None:
            return None
        width = hidden // heads
    return layers * kv_heads * 2 * width


def _first(config: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    return None
