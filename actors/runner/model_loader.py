"""From a directory to a model in memory, or to ModelRefused with what was got and what is accepted.

Safetensors only, no code from the model's repository, no network.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as hf_logging

from outrider.actors.errors import InvalidConfig, ModelRefused

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Their frequencies follow the longest position of the whole batch: a text would depend on its
# neighbours.
BATCH_DEPENDENT_ROPE = {"longrope", "dynamic"}


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model in eval mode. A Runner built on it changes the module in place."""

    model: Any
    path: Path | None
    device: str
    dtype: torch.dtype
    vocab_size: int  # rows of the output embedding: the width of a row of logits
    context_len: int
    eos_ids: tuple[int, ...]
    num_parameters: int


def load_model(path: Path, *, device: str = "auto", dtype: str = "auto") -> LoadedModel:
    """Load a model directory.

    `device` "auto" is CUDA where there is one; `dtype` "auto" is float32 on CPU and the
    checkpoint's own on CUDA. Raises ModelRefused, or InvalidConfig for device and dtype.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype != "auto" and dtype not in DTYPES:
        raise InvalidConfig(f"Got dtype={dtype!r}, expected auto, {', '.join(DTYPES)}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidConfig(f"Got device={device!r}, but no CUDA device is present; accepted: cpu")
    check_directory(path)
    config = read_config(path)
    check_config(config, str(path))
    kind: Any = "auto" if dtype == "auto" else DTYPES[dtype]
    if dtype == "auto" and device == "cpu":
        kind = torch.float32
    model, info = read_weights(path, config, kind, device)
    for kind_of, keys in (
        ("missing", info["missing_keys"]),
        ("mismatched", info["mismatched_keys"]),
    ):
        if keys:
            some = ", ".join(str(key) for key in sorted(keys, key=str)[:3])
            raise ModelRefused(f"{path}: {len(keys)} {kind_of} weights ({some}), expected none")
    return from_model(model, path=path)


def from_model(model: Any, *, path: Path | None = None) -> LoadedModel:
    """Wrap a Hugging Face causal LM that is already in memory. Raises ModelRefused.

    Models built from one config object share it; give each its own copy.
    """
    name = str(path) if path else type(model).__name__
    config = model.config.get_text_config()
    check_config(config, name)
    if getattr(model, "_is_stateful", False):
        raise ModelRefused(f"{name}: got a recurrent model ({config.model_type}), expected one "
                           "whose only state is a KV cache: it cannot be rolled back")  # fmt: skip
    if not getattr(model, "_supports_attention_backend", False) or not (
        model._can_set_attn_implementation()
    ):
        raise ModelRefused(f"{name}: {type(model).__name__} does not take an attention function")
    head = model.get_output_embeddings()
    context_len = getattr(config, "max_position_embeddings", None)
    if head is None or not context_len:
        raise ModelRefused(f"{name}: got no output embedding or no max_position_embeddings")
    weight = next(model.parameters())
    return LoadedModel(
        model=model.eval(),
        path=path,
        device=str(weight.device),
        dtype=weight.dtype,
        vocab_size=head.weight.shape[0],
        context_len=int(context_len),
        eos_ids=eos_ids(model),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def check_directory(path: Path) -> None:
    """Refuse what is no model directory with safetensors weights."""
    if not path.is_dir():
        raise ModelRefused(
            f"{path}: not a directory; expected a local Hugging Face model directory"
        )
    if not (path / "config.json").is_file():
        raise ModelRefused(f"{path}: no config.json; expected a Hugging Face model directory")
    if not any(path.glob("*.safetensors")):
        pickles = sorted(p.name for p in path.iterdir() if p.suffix in {".bin", ".pt", ".pth"})
        got = f"only pickled weights ({', '.join(pickles)})" if pickles else "no weights"
        raise ModelRefused(f"{path}: got {got}, expected *.safetensors")


def read_weights(path: Path, config: Any, dtype: Any, device: str) -> tuple[Any, dict[str, Any]]:
    """The model and transformers' account of what it found in the files. A device is filled tensor
    by tensor: this machine's memory need not hold the checkpoint.
    """
    is_shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(  # type: ignore[no-any-return]
            path,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            device_map=None if device == "cpu" else {"": device},
        )
    except Exception as error:  # transformers, safetensors and their quantizers raise of all kinds
        raise ModelRefused(f"{path}: transformers cannot load it: {error}") from error
    finally:
        if is_shown:
            hf_logging.enable_progress_bar()


def read_config(path: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # a config can be wrong in any way
        raise ModelRefused(f"{path}: transformers cannot read its config: {error}") from error


def check_config(config: Any, name: str) -> None:
    """Refuse architectures whose tokens depend on their neighbours or cannot be rolled back."""
    if getattr(config, "is_encoder_decoder", False):
        raise ModelRefused(f"{name}: got an encoder-decoder, expected a decoder-only causal LM")
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    for parameters in (rope, *nested):
        kind = parameters.get("rope_type", "default")
        if kind in BATCH_DEPENDENT_ROPE:
            raise ModelRefused(
                f"{name}: got rope_type={kind!r}, whose frequencies depend on the longest sequence "
                "in the batch; accepted: default, linear, yarn, llama3, proportional"
            )


def eos_ids(model: Any) -> tuple[int, ...]:
    """Every end-of-sequence id of the config and the generation config, in that order, once."""
    found: dict[int, None] = {}
    for config in (model.config.get_text_config(), getattr(model, "generation_config", None)):
        ids = getattr(config, "eos_token_id", None)
        for one in ids if isinstance(ids, list | tuple) else [ids]:
            if one is not None:
                found[int(one)] = None
    return tuple(found)
