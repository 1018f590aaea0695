"""Modules swapped inside a Hugging Face model, and the way back."""

from torch import nn


class ModulePatches:
    """What was swapped, in order, so that a failed self-test can undo it."""

    def __init__(self) -> None:
        self._swapped: list[tuple[nn.Module, str, nn.Module]] = []

    def swap(self, parent: nn.Module, name: str, new: nn.Module) -> None:
        self._swapped.append((parent, name, getattr(parent, name)))
        setattr(parent, name, new)

    def undo(self) -> None:
        for parent, name, old in reversed(self._swapped):
            setattr(parent, name, old)
        self._swapped.clear()

    def keep(self) -> None:
        """Make the swaps final: the old modules' weights are let go."""
        self._swapped.clear()
