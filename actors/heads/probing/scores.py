"""How many first tokens a drafter guesses right, over a text of the target's own."""

import torch
import torch.nn.functional as F

from outrider.actors.heads.eagle import EagleNet
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.heads.probing.probe_text import ProbeText
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.pooled_runner import PooledRunner


@torch.inference_mode()
def eagle_share(net: EagleNet, text: ProbeText) -> float:
    """Each token is read with the state before it, so a text's first has no row."""
    (rows,) = (text.positions > 0).nonzero(as_tuple=True)
    texts, positions, is_scored = text.texts[rows], text.positions[rows], text.is_scored[rows]
    seen = (texts[:, None] == texts) & (positions[:, None] >= positions)
    states = torch.cat([text.states[at][rows - 1] for at in net.convention.boundaries], -1)

    def attend(_: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)
        return out[0].transpose(0, 1)

    out = net.run(text.ids[rows], net.fuse(states), positions, attend)
    return _share(net.logits(out[is_scored]), text)


@torch.inference_mode()
def medusa_share(net: MedusaNet, boundary: int, text: ProbeText) -> float:
    """Of the first head, which guesses the token behind the next one."""
    (rows,) = text.is_scored.nonzero(as_tuple=True)
    return _share(net.logits(0, text.states[boundary][rows - 1]), text)


def exit_share(runner: PooledRunner, text: ProbeText) -> float:
    """Of a model that ends early; its pool has room for all of the text."""
    num_texts = int(text.texts[-1]) + 1
    caches, chunks = [runner.open() for _ in range(num_texts)], []
    for at, cache in enumerate(caches):
        is_of = text.texts == at
        num_scored = int((text.is_scored & is_of).sum())
        chunks.append(Segment(cache, text.ids[is_of].tolist(), num_scored))
    logits = runner.forward(chunks)
    for cache in caches:
        runner.close(cache)
    return _share(logits, text)


def _share(logits: torch.Tensor, text: ProbeText) -> float:
    """Shapes: logits [scored, V]."""
    return float((logits.argmax(-1) == text.follows[text.is_scored]).float().mean())
