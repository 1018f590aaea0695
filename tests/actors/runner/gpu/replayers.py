"""Steps of a device, run and captured on the CPU: Triton's interpreter, and traces for graphs."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from outrider.actors.runner import paged_model, runner
from outrider.actors.runner.gpu import attention, choice, fused_body
from outrider.actors.runner.gpu.staging import Staged
from outrider.actors.runner.rms_norm import RmsNorm


def opaque(function, mutated):
    """The function as one node of a trace: Triton's interpreter looks into its tensors."""
    return torch.library.custom_op(
        f"outrider_test::{function.__name__}", function, mutates_args=mutated
    )


OPAQUE = (
    (attention, "store", ("keys", "values")),
    (attention, "attend", ()),
    (fused_body, "place", ("keys", "values")),
    (fused_body, "add_norm", ("hidden",)),
    (fused_body, "gate", ()),
)
NODES = {(where, name): opaque(getattr(where, name), to) for where, name, to in OPAQUE}


class Eager:
    """Runs the step again."""

    def capture(self, run, staged):
        return lambda: run(staged)


class Traced:
    """Replays what the first run did to its tensors, with nothing of Python's in between."""

    def __init__(self):
        self.num_captured = 0

    def capture(self, run, staged):
        names = Staged.__slots__
        tensors = [getattr(staged, name) for name in names]
        graph = make_fx(lambda *given: run(Staged(*given)))(*tensors)
        self.num_captured += 1
        return lambda: graph(*tensors)


def as_device(monkeypatch, replayer):
    """From here on, a model on the CPU is run as one on a device is."""
    for place in (choice, paged_model, runner):
        monkeypatch.setattr(place, "is_device", lambda _: True)
    for (where, name), node in NODES.items():
        monkeypatch.setattr(where, name, node)
    monkeypatch.setattr(choice, "replayer", lambda: replayer)
    monkeypatch.setattr(RmsNorm, "compile", lambda _: None)
    return replayer
