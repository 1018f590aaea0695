"""One plain causal forward with our attention function, to learn each layer's constants.

What a model passes to its attention layers (scale, window, softcap, sinks, head shapes) is asked of
the model itself, not read off its config.
"""

from dataclasses import dataclass
from typing import Any

import torch

from outrider.actors.errors import ModelRefused
from outrider.actors.runner.attention import NAME, Facts, attend_span
from outrider.actors.runner.kv_pool import Shape
from outrider.actors.runner.loader import LoadedModel


@dataclass(frozen=True)
class Trace:
    """What every attention layer said of itself, in the order of layer_idx."""

    facts: list[Facts]
    shapes: list[Shape]
    num_heads: list[int]
    logits: torch.Tensor  # [T, V] of the traced tokens


class Recorder:
    """An attention step over one chain from position 0 that writes down what it is asked."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Facts, Shape, int]] = {}
        self.trouble = ""

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        facts: Facts,
    ) -> torch.Tensor:
        layer = getattr(module, "layer_idx", None)
        if layer is None or layer in self.layers:
            self.trouble = f"attention layer {layer} is unnumbered or runs twice"
            return query.transpose(1, 2)
        if getattr(module, "is_causal", True) is False:
            self.trouble = f"attention layer {layer} is not causal"
        self.layers[layer] = (
            facts,
            (key.shape[1], key.shape[-1], value.shape[-1]),
            query.shape[1],
        )
        num = query.shape[2]
        at = torch.arange(num, device=query.device)
        far = at[:, None] - at[None]
        hidden = (far < 0) | (far >= facts.window) if facts.window else far < 0
        bias = torch.zeros(num, num, dtype=query.dtype, device=query.device)
        bias = bias.masked_fill_(hidden, float("-inf"))
        out = attend_span(
            query[0], key[0].transpose(0, 1), value[0].transpose(0, 1), bias, facts
        )
        return out.transpose(0, 1)[None]


@torch.inference_mode()
def trace(loaded: LoadedModel, tokens: list[int]) -> Trace:
    """Switch the model to our attention and run `tokens` through it once. Raises ModelRefused."""
    model: Any = loaded.model
    model.set_attn_implementation(NAME)
    recorder = Recorder()
    ids = torch.tensor([tokens], device=loaded.device)
    positions = torch.arange(len(tokens), device=loaded.device)[None]
    logits = model(input_ids=ids, position_ids=positions, use_cache=False, step=recorder).logits[0]
    layers = recorder.layers
    if not recorder.trouble and sorted(layers) != list(range(len(layers))):
        recorder.trouble = f"got attention layers {sorted(layers)}, expected 0, 1, 2, …"
    if recorder.trouble or not layers:
        raise ModelRefused(
            f"{loaded.path or type(model).__name__}: {recorder.trouble or 'no attention layer'}"
        )
    ordered = [layers[index] for index in sorted(layers)]
    return Trace(
        facts=[facts for facts, _, _ in ordered],
        shapes=[shape for _, shape, _ in ordered],
        num_heads=[heads for _, _, heads in ordered],
        logits=logits.float(),
    )
