"""What a model directory must hold, and what its config.json says that we cannot serve.

Looks at names and JSON alone, so that a model is refused before its weights are fetched or read.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outrider.actors.errors import ModelRefused

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
SMALL_FILES = (
    CONFIG,
    TOKENIZER,
    WEIGHTS_INDEX,
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
)
LAYER_KINDS = {"full_attention", "sliding_attention"}
RECURRENT = ("mamba", "rwkv", "ssm", "linear_conv", "recurrent", "conv_L_cache", "lru_width")
OTHER_SENSES = ("vision_config", "audio_config", "speech_config", "image_token_id")
BATCH_DEPENDENT_ROPE = ("longrope", "dynamic")  # as the runner refuses them


def check_model(role: str, path: Path) -> str:
    """The model's architecture. Raises ModelRefused unless the directory looks loadable."""
    if not path.is_dir():
        raise ModelRefused(
            f"Got {role}={path}, expected a model directory, 'demo', or a name on the hub: "
            "org/name[@revision]"
        )
    architecture = check_small_files(f"the {role} {path}", path)
    if missing := [name for name in weight_files(path) if not os.access(path / name, os.R_OK)]:
        pickles = sorted(p.name for p in path.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
        has = f"; pickled weights ({', '.join(pickles[:3])}) are not read" if pickles else ""
        raise ModelRefused(
            f"Got the {role} {path} without a readable {missing[0]}, expected *.safetensors "
            f"weights: {WEIGHTS}, or all that {WEIGHTS_INDEX} names{has}"
        )
    return architecture


def check_small_files(what: str, path: Path) -> str:
    """The model's architecture. Raises ModelRefused for what its config or tokenizer lacks."""
    for name in (CONFIG, TOKENIZER):
        if not os.access(path / name, os.R_OK):
            raise ModelRefused(f"Got {what} without a readable {name}, expected one")
    config = _read(what, path / CONFIG)
    architectures = config.get("architectures")
    if not architectures or not isinstance(architectures, list):
        raise ModelRefused(f"Got no architectures in the {CONFIG} of {what}")
    for trouble in troubles(config):
        raise ModelRefused(f"Got {what}, {trouble}")
    return str(architectures[0])


def weight_files(path: Path) -> list[str]:
    """The names of the files with weights: the one, or those that the index names."""
    if (path / WEIGHTS).exists() or not (path / WEIGHTS_INDEX).exists():  # as transformers does
        return [WEIGHTS]
    index = _read(str(path), path / WEIGHTS_INDEX)
    names = index.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelRefused(f"Got no weight_map in {path / WEIGHTS_INDEX}")
    files = sorted({str(name) for name in names.values()})
    if outside := [name for name in files if Path(name).name != name]:
        raise ModelRefused(f"Got {outside[0]!r} in {path / WEIGHTS_INDEX}, expected plain names")
    return files


def troubles(config: dict[str, Any]) -> Iterator[str]:
    """Why a model of this config.json cannot be served, if it cannot."""
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    if (found := config.get("quantization_config")) is not None:
        method = found.get("quant_method", "unnamed") if isinstance(found, dict) else "unnamed"
        yield f"which is quantised ({method}), expected weights in float32, bfloat16 or float16"
    if senses := [key for key in OTHER_SENSES if config.get(key)]:
        yield f"a multimodal model ({senses[0]}), expected one of text alone"
    if config.get("is_encoder_decoder"):
        yield "an encoder-decoder, expected a decoder-only causal model"
    kinds = text.get("layer_types")
    others = sorted(set(map(str, kinds)) - LAYER_KINDS) if isinstance(kinds, list) else []
    named = [key for key in text if key.startswith(RECURRENT) and text[key]]
    kind = str(text.get("model_type", ""))
    if others or named or any(part in kind for part in ("mamba", "rwkv", "recurrent", "lstm")):
        what = (others or named or [kind])[0]
        yield (
            f"a model with layers that are not attention alone ({what}): their state cannot be "
            "rolled back; expected one whose only state is a KV cache"
        )
    rope = text.get("rope_scaling") or text.get("rope_parameters")
    if isinstance(rope, dict):
        rope_type = rope.get("rope_type", rope.get("type"))
        if rope_type in BATCH_DEPENDENT_ROPE:
            yield (
                f"with rope_type={rope_type!r}, whose frequencies depend on the longest sequence "
                "in the batch; accepted: default, linear, yarn, llama3, proportional"
            )


def _read(what: str, path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelRefused(f"Got an unreadable {path.name} in {what}: {error}") from error
    if not isinstance(read, dict):
        raise ModelRefused(f"Got an unreadable {path.name} in {what}: it is no JSON object")
    return read
