"""What a head was trained on, found by trying: over a text of the target's own.

Which states it reads, and how, is not in every checkpoint, and a wrong guess runs without an error,
at a fraction of the speed. So each way that is plausible is tried once at load, and the best kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F

from outrider.actors.errors import ModelRefused
from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.eagle import Convention, EagleNet, EagleSizes
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.heads.target_parts import TargetParts
from outrider.actors.lookahead.round_report import EAGLE3, MEDUSA
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.taps import Taps

NUM_TEXTS = 8
NUM_DRAWN, NUM_GREEDY = 4, 32  # tokens: a text begins by chance, and goes on as the target would
PROBE_TOKENS = 1024  # in the pool meanwhile


@dataclass(frozen=True, slots=True)
class ProbeText:
    """Texts of the target's own, one behind the other."""

    ids: torch.Tensor  # [N, T]
    best: torch.Tensor  # [N, T]: behind each token, the target's likeliest
    states: dict[int, torch.Tensor]  # by boundary: [N, T, H]


@torch.inference_mode()
def probe_text(runner: Runner, boundaries: set[int]) -> ProbeText:
    """Nothing may be open: the runner has another pool while it writes."""
    num_tokens = runner.pool.num_pages * runner.pool.page_size
    runner.resize(PROBE_TOKENS)
    ids = _written(runner)
    order, num = sorted(boundaries), ids.shape[1]
    hidden = runner.loaded.model.get_input_embeddings().weight.shape[1]
    if order:
        runner.tap(Taps(tuple(order), len(order) * hidden, lambda states: states))
    caches = [runner.open() for _ in range(NUM_TEXTS)]
    chunks = [Segment(c, text, num) for c, text in zip(caches, ids.tolist(), strict=True)]
    best = runner.forward(chunks).argmax(-1).view(NUM_TEXTS, num)
    states = {}
    if order:
        features = runner.pool.features
        assert features is not None
        rows = [[runner.pool.row(cache, at) for at in range(num)] for cache in caches]
        kept = features[torch.tensor(rows, device=features.device)]
        kept = kept.view(NUM_TEXTS, num, len(order), hidden)
        states = {boundary: kept[:, :, at] for at, boundary in enumerate(order)}
    for cache in caches:
        runner.close(cache)
    runner.tap(None)
    runner.resize(num_tokens)
    return ProbeText(ids.to(best.device), best, states)


def _written(runner: Runner) -> torch.Tensor:
    """What the target says behind its first id, or its last [N, T]."""
    generator = torch.Generator().manual_seed(0)
    config = runner.loaded.model.config.get_text_config()
    starts = (config.bos_token_id, *runner.loaded.eos_ids, 0)
    known = range(runner.num_embeddings)
    first = next(start for start in starts if isinstance(start, int) and start in known)
    caches = [runner.open() for _ in range(NUM_TEXTS)]
    ids = torch.full((NUM_TEXTS, 1), first)
    for at in range(min(NUM_DRAWN + NUM_GREEDY, runner.context_len - 1)):
        last = zip(caches, ids[:, -1:].tolist(), strict=True)
        logits = runner.forward([Segment(cache, token) for cache, token in last]).cpu()
        if at < NUM_DRAWN:
            drawn = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)
        else:
            drawn = logits.argmax(-1, keepdim=True)
        ids = torch.cat((ids, drawn), 1)
    for cache in caches:
        runner.close(cache)
    return ids


def conventions(checkpoint: HeadCheckpoint, target: TargetParts) -> Iterator[Convention]:
    """All that are plausible, that of the config first. Raises ModelRefused."""
    last = target.num_layers
    if checkpoint.kind != EAGLE3:
        states: list[tuple[int, ...]] = [(last + 1,), (last,)]
        norms = [False]
    else:
        states = _states(checkpoint, target)
        told = bool(checkpoint.config.get("norm_before_residual"))
        norms = [told, not told]
    ways = [False] if checkpoint.kind == MEDUSA else [False, True]
    for boundaries, norm, is_reversed, is_targets in product(states, norms, ways, ways):
        yield Convention(boundaries, norm, is_reversed, not is_targets)


def _states(checkpoint: HeadCheckpoint, target: TargetParts) -> list[tuple[int, ...]]:
    """Of EAGLE-3: those that the config names, taken as what goes into a layer and as what comes
    out of it; else those that all published heads read.
    """
    num, last = EagleSizes.of(checkpoint, target).num_states, target.num_layers
    config = checkpoint.config
    inner = config.get("eagle_config")
    told = config.get("eagle_aux_hidden_state_layer_ids") or (
        inner.get("eagle_aux_hidden_state_layer_ids") if isinstance(inner, dict) else None
    )
    found = list[tuple[int, ...]]()
    usual = (2, last // 2, last - 3)
    for ids in (told, usual if num == 3 else None):
        if isinstance(ids, list | tuple) and len(ids) == num:
            for more in (0, 1):
                moved = tuple(int(each) % (last + 1) + more for each in ids)
                if moved not in found and max(moved) <= last + 1 and min(moved) >= 0:
                    found.append(moved)
    if num == 1:
        found += [(last + 1,), (last,)]
    if not found:
        raise ModelRefused(
            f"{checkpoint.folder}: got a head over {num} of the target's states and no "
            f"eagle_aux_hidden_state_layer_ids of {num} layers in its config.json"
        )
    return found


@torch.inference_mode()
def eagle_share(net: EagleNet, text: ProbeText) -> float:
    """Of the first tokens that a head guesses, those that are the target's own."""
    num_texts, length = text.ids.shape
    positions = torch.arange(1, length, device=text.ids.device).repeat(num_texts)
    numbers = torch.arange(num_texts, device=positions.device).repeat_interleave(length - 1)
    seen = (numbers[:, None] == numbers) & (positions[:, None] >= positions)
    kept = [text.states[at][:, :-1].flatten(0, 1) for at in net.convention.boundaries]

    def attend(_: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)
        return out[0].transpose(0, 1)

    states = net.run(text.ids[:, 1:].flatten(), net.fuse(torch.cat(kept, -1)), positions, attend)
    return _share(net.logits(states).view(num_texts, length - 1, -1), text.best[:, 1:])


@torch.inference_mode()
def medusa_share(net: MedusaNet, boundary: int, text: ProbeText) -> float:
    """Likewise of the first head, which guesses the token behind the next one."""
    states = text.states[boundary][:, :-1]
    logits = net.logits(0, states.flatten(0, 1)).view(*states.shape[:2], -1)
    return _share(logits, text.best[:, 1:])


def exit_share(runner: PooledRunner, text: ProbeText) -> float:
    """Likewise of a model that ends early."""
    num_texts, length = text.ids.shape
    caches = [runner.open() for _ in range(num_texts)]
    chunks = [Segment(c, ids, length) for c, ids in zip(caches, text.ids.tolist(), strict=True)]
    logits = runner.forward(chunks)
    for cache in caches:
        runner.close(cache)
    return _share(logits.view(num_texts, length, -1), text.best)


def _share(logits: torch.Tensor, right: torch.Tensor) -> float:
    """Of greedy places, where the likeliest is the target's. Shapes: [N, T, V], [N, T]."""
    is_right = logits.argmax(-1) == right
    return float(is_right[:, NUM_DRAWN:].float().mean())
