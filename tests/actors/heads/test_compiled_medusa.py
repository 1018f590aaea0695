"""Medusa's heads in compiled code: the same logits, of every row alone."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.compiled_medusa import CompiledMedusa, suits
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.lookahead.round_report import MEDUSA
from outrider.actors.runner.cpu.matmul import PANEL, can_multiply

WIDTH, VOCAB, HEADS, BLOCKS = 2 * PANEL, 90, 3, 2

pytestmark = pytest.mark.skipif(not can_multiply(), reason="needs fused multiply-adds")


def net(width=WIDTH, ids=None, round_=torch.Tensor.bfloat16):
    random = torch.Generator().manual_seed(0)
    names = [f"blocks.{h}.layers.{b}" for h in range(HEADS) for b in range(BLOCKS)]
    tensors = {"lm_head.weight": torch.randn(VOCAB, width, generator=random)}
    for name in names:
        tensors[f"{name}.weight"] = torch.randn(width, width, generator=random) / width**0.5
        tensors[f"{name}.bias"] = torch.randn(width, generator=random)
    tensors = {name: round_(tensor).float() for name, tensor in tensors.items()}
    if ids is not None:
        tensors |= {"token_map": ids, "lm_head.weight": tensors["lm_head.weight"][: len(ids)]}
    target = SimpleNamespace(vocab_size=VOCAB, hidden_size=width, head=None)
    return MedusaNet(HeadCheckpoint(Path(), MEDUSA, {}, tensors), target)


@pytest.mark.parametrize("ids", [None, torch.arange(0, VOCAB, 3)])
def test_they_are_the_same_logits_whatever_stands_beside(ids):
    states = torch.randn(7, WIDTH, generator=torch.Generator().manual_seed(1))
    whole = net(ids=ids)
    assert suits(whole)
    found = CompiledMedusa(whole).all_logits(states.numpy())
    torch.testing.assert_close(found, whole.all_logits(states), rtol=1e-4, atol=1e-4)
    for row in range(len(states)):
        alone = CompiledMedusa(whole).all_logits(states.numpy()[row : row + 1])
        assert torch.equal(alone[0], found[row])


def test_what_it_does_not_know_is_left_to_torch():
    assert not suits(net(width=PANEL + 1))  # no whole panels
    assert not suits(net(width=1024))  # for several threads
    assert not suits(net(round_=torch.Tensor.half))  # more bits than it reads
