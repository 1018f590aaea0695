"""One plain causal forward with our attention function, to learn each layer's constants.

What a model passes to its attention layers (scale, window, softcap, sinks, head shapes) is asked of
the model itself, not read off its config.
"""

from dataclasses import dataclass
from typing import Any

import torch

from outrider.actors.errors import ModelRefused
from outrider.actors.runner.attention.gathered import attend_span
from outrider.actors.runner.attention.interface import NAME, AttentionParams
from outrider.actors.runner.kv.pool import Shape
from outrider.actors.runner.model_loader import LoadedModel

FAR = 32768  # float32 angles are still good to 2e-3 here
# How far half precision may be off; what is further off runs Hugging Face's layers. In bfloat16, 32
# layers of random weights: logits 2.7 %, lengths 1.3 %; a small one of large weights: 5.9 %, 2.6 %.
ROUNDED_LOGITS, ROUNDED_LENGTHS = 1e-1, 5e-2
KNOWN_LAYERS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True)
class AttentionProbe:
    """What every attention layer said of itself, in the order of layer_idx."""

    params: list[AttentionParams]
    shapes: list[Shape]
    num_heads: list[int]
    # The same text further on gives the same logits: positions enter by rotation alone, so a
    # module's own forward may be replaced by one that knows rotation alone.
    is_rotary: bool


class Recorder:
    """An attention step over one chain from position 0 that writes down what it is asked."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[AttentionParams, Shape, int]] = {}
        self.lengths: list[torch.Tensor] = []  # of each query and key, layer by layer
        self.trouble = ""

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        layer = getattr(module, "layer_idx", None)
        if layer is None or layer in self.layers:
            self.trouble = f"attention layer {layer} is unnumbered or runs twice"
            return query.transpose(1, 2)
        if getattr(module, "is_causal", True) is False:
            self.trouble = f"attention layer {layer} is not causal"
        self.layers[layer] = (
            params,
            (key.shape[1], key.shape[-1], value.shape[-1]),
            query.shape[1],
        )
        self.lengths += [x.float().norm(dim=-1).flatten() for x in (query, key)]
        num = query.shape[2]
        at = torch.arange(num, device=query.device)
        far = at[:, None] - at[None]
        hidden = (far < 0) | (far >= params.window) if params.window else far < 0
        bias = torch.zeros(num, num, dtype=query.dtype, device=query.device)
        bias = bias.masked_fill_(hidden, float("-inf"))
        out = attend_span(query[0], key[0].transpose(0, 1), value[0].transpose(0, 1), bias, params)
        return out.transpose(0, 1)[None].contiguous()  # as that of their own functions


@torch.inference_mode()
def trace(loaded: LoadedModel, tokens: list[int]) -> AttentionProbe:
    """Switch the model to our attention and run `tokens` through it once. Raises ModelRefused."""
    model: Any = loaded.model
    model.set_attn_implementation(NAME)
    recorder = Recorder()
    ids = torch.tensor([tokens], device=loaded.device)
    logits = run_at(model, ids, 0, recorder)
    layers = recorder.layers
    if not recorder.trouble and sorted(layers) != list(range(len(layers))):
        recorder.trouble = f"got attention layers {sorted(layers)}, expected 0, 1, 2, …"
    recorder.trouble = recorder.trouble or missing_window(model, layers)
    if recorder.trouble or not layers:
        raise ModelRefused(
            f"{loaded.path or type(model).__name__}: {recorder.trouble or 'no attention layer'}"
        )
    ordered = [layers[index] for index in sorted(layers)]
    return AttentionProbe(
        params=[params for params, _, _ in ordered],
        shapes=[shape for _, shape, _ in ordered],
        num_heads=[heads for _, _, heads in ordered],
        is_rotary=is_shift_invariant(model, ids, logits, recorder, loaded.context_len),
    )


def run_at(model: Any, ids: torch.Tensor, start: int, recorder: Recorder) -> torch.Tensor:
    """Float32 logits [T, V] of a text whose first token stands at position `start`."""
    positions = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
    out = model(input_ids=ids, position_ids=positions, use_cache=False, step=recorder)
    logits: torch.Tensor = out.logits[0].float()
    return logits


def is_shift_invariant(
    model: Any, ids: torch.Tensor, wanted: torch.Tensor, first: Recorder, context_len: int
) -> bool:
    """Learned positions and scales that grow with the position answer False.

    Half precision hides from logits, and from the self-test, what a small scale does. A rotation
    keeps the lengths of queries and keys, so there they are compared too, also at the context's
    end.
    """
    end = context_len - ids.shape[1]
    if end <= 0:
        return False
    is_rounded = next(model.parameters()).dtype is not torch.float32
    close = ROUNDED_LOGITS if is_rounded else 5e-3
    shifted = Recorder()
    logits = run_at(model, ids, min(FAR, end), shifted)
    if not (logits - wanted).abs().max() <= close * wanted.abs().max().clamp(min=1.0):
        return False
    if not is_rounded:
        return True
    at_end = Recorder()
    run_at(model, ids, end, at_end)
    return all(_are_as_long(first, other) for other in (shifted, at_end))


def _are_as_long(first: Recorder, second: Recorder) -> bool:
    before, after = torch.cat(first.lengths), torch.cat(second.lengths)
    return bool(torch.allclose(before, after, rtol=ROUNDED_LENGTHS, atol=ROUNDED_LENGTHS))


def missing_window(model: Any, layers: dict[int, tuple[AttentionParams, Shape, int]]) -> str:
    """What the config masks that the layers did not ask of attention, or ""."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None:
        asked = any(params.window for params, _, _ in layers.values())
        return "its sliding window is only in the mask" if window and not asked else ""
    for number, kind in enumerate(kinds):
        if kind not in KNOWN_LAYERS:
            return f"got layer type {kind!r}, expected {' or '.join(sorted(KNOWN_LAYERS))}"
        if kind == "sliding_attention" and not layers[number][0].window:
            return f"layer {number} has its sliding window only in the mask"
    return ""
