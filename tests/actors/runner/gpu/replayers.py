"""Steps of a device, run and captured on the CPU: plain operators, and traces for graphs."""

import inspect

import torch
from actors.runner.gpu import plain_ops
from torch.fx.experimental.proxy_tensor import make_fx

from outrider.actors.runner import paged_model, runner
from outrider.actors.runner.gpu import attention, choice, fused_body
from outrider.actors.runner.gpu.staging import Staged
from outrider.actors.runner.rms_norm import RmsNorm


def opaque(where, name, mutated):
    """The plain operator as one node of a trace, called as the kernels' function is."""
    function = getattr(plain_ops, name)
    function.__signature__ = inspect.signature(getattr(where, name))
    return torch.library.custom_op(f"outrider_test::{name}", function, mutates_args=mutated)


KERNELS = (  # a function, what it changes, how many launches it is
    (attention, "store", ("keys", "values"), 1),
    (attention, "attend", (), 2),
    (fused_body, "place", ("keys", "values"), 1),
    (fused_body, "add_norm", ("hidden",), 1),
    (fused_body, "gate", (), 1),
)
NODES = {(where, name): opaque(where, name, to) for where, name, to, _ in KERNELS}


class Traced:
    """Replays what the first run did to its tensors, with nothing of Python's in between."""

    def __init__(self):
        self.graphs = []

    def capture(self, run, staged):
        names = Staged.__slots__
        tensors = [getattr(staged, name) for name in names]
        graph = make_fx(lambda *given: run(Staged(*given)))(*tensors)
        self.graphs.append(graph)
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
