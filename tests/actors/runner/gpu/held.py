"""What tensors hold while operators make them and Python refers to them."""

import weakref
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Held(TorchDispatchMode):
    """Bytes that what is made under it holds at most, counted from its making until nothing refers
    to it: what a device's allocator gives out, but for rounding.
    """

    def __init__(self):
        super().__init__()
        self.views, self.own, self.now, self.most = Counter(), set(), 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {at for _, at, _ in storages((args, kwargs))}
        made = function(*args, **(kwargs or {}))
        for tensor, at, num_bytes in storages(made):
            if at not in given:
                self.own.add(at)
                self.now += num_bytes
            if at in self.own:
                self.views[at] += 1
                weakref.finalize(tensor, self.dropped, at, num_bytes)
        self.most = max(self.most, self.now)
        return made

    def dropped(self, at, num_bytes):
        self.views[at] -= 1
        if not self.views[at] and at in self.own:
            self.own.discard(at)
            self.now -= num_bytes


def storages(tree):
    """Its tensors, each with its storage's address and size."""
    for each in tree_leaves(tree):
        if isinstance(each, torch.Tensor):
            storage = each.untyped_storage()
            yield each, storage.data_ptr(), storage.nbytes()
