"""The one attention function that every model calls, and what a layer tells it.

Registered with transformers' AttentionInterface under NAME; the model hands it queries, keys and
values, and the step comes along as a keyword. Knows no way of attending: a step has its own.
"""

from typing import Any, Protocol

import torch
from transformers import AttentionInterface

# Not "sdpa", "flash" or "paged|": those names make transformers build masks or check kernels.
NAME = "outrider_pool"


NO_SINKS = torch.empty(0)
WITHOUT_FIRST = -1  # a window: all positions but the first are seen


class AttentionStep(Protocol):
    """What a forward hands to every attention layer as the keyword `step`."""

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: "AttentionParams",
    ) -> torch.Tensor: ...


class AttentionParams:
    """A layer's own constants: scale, window (0 is none; with -n all but the first n positions are
    seen), softcap (0 is none), sinks [H] or [0].
    """

    __slots__ = ("scale", "sinks", "softcap", "window")

    def __init__(
        self, scale: float, window: int | None, softcap: float | None, sinks: torch.Tensor | None
    ) -> None:
        self.scale = scale
        self.window = window or 0
        self.softcap = softcap or 0.0
        self.sinks = NO_SINKS if sinks is None else sinks


def pool_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    step: AttentionStep | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Shapes: query [1, H, T, D], key and value [1, Hk, T, D] → [1, T, H, D]."""
    assert step is not None, "the model was called past the runner"
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    params = AttentionParams(scale, sliding_window, softcap, s_aux)
    return step.attend(module, query, key, value, params), None


AttentionInterface.register(NAME, pool_attention)
