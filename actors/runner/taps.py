"""Hidden states between layers, kept beside the keys and values of the same tokens.

A boundary is a place between layers: 0 what goes into the first, i what goes into layer i, L what
comes out of the last, L + 1 the same after the final norm. What is tapped is copied: no bit of the
logits depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from outrider.actors.errors import ModelRefused

Tapped = dict[int, torch.Tensor]  # by boundary: [T, H], of a padded table's tokens


@dataclass(frozen=True, slots=True)
class Taps:
    """What is kept of every token: of some boundaries' states, side by side, a function."""

    boundaries: tuple[int, ...]
    width: int  # of what is kept
    project: Callable[[torch.Tensor], torch.Tensor]  # [T, boundaries x H] → [T, width]

    def of(self, tapped: Tapped, num_tokens: int) -> torch.Tensor:
        """Shapes: → [num_tokens, width]."""
        states = [tapped[boundary][:num_tokens] for boundary in self.boundaries]
        return self.project(torch.cat(states, -1) if len(states) > 1 else states[0])


class LayerHooks:
    """The taps of a model that runs through its own modules."""

    def __init__(self, model: Any, num_layers: int, boundaries: tuple[int, ...]) -> None:
        """Raises ModelRefused where its layers are not found."""
        self.tapped: Tapped = {}
        parent, name = parent_of_layers(model, num_layers)
        body, layers = model.base_model, getattr(parent, name)
        self._handles: list[RemovableHandle] = []
        for boundary in set(boundaries):
            if boundary < num_layers:
                into = layers[boundary]
                handle = into.register_forward_pre_hook(self._into(boundary), with_kwargs=True)
            else:  # the body's is not called where it is entered past its own module
                out_of = layers[-1] if boundary == num_layers else body
                handle = out_of.register_forward_hook(self._out_of(boundary))
            self._handles.append(handle)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _into(self, boundary: int) -> Callable[[nn.Module, Any, dict[str, Any]], None]:
        def keep(module: nn.Module, inputs: Any, named: dict[str, Any]) -> None:
            hidden = inputs[0] if inputs else named["hidden_states"]
            self.tapped[boundary] = hidden[0].clone()

        return keep

    def _out_of(self, boundary: int) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, inputs: Any, out: Any) -> None:
            hidden = out if isinstance(out, torch.Tensor) else out[0]
            self.tapped[boundary] = hidden[0].clone()

        return keep


def parent_of_layers(model: Any, num_layers: int) -> tuple[nn.Module, str]:
    """The module that has a model's decoder layers as a list, and their name in it. Raises
    ModelRefused.
    """
    for parent in model.base_model.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == num_layers:
                return parent, name
    raise ModelRefused(
        f"{type(model).__name__}: got no list of its {num_layers} layers, whose hidden states a "
        "head or early exit needs"
    )
