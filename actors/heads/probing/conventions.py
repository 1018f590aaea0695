"""What a head was trained on, found by trying: over a text of the target's own.

Which states it reads, and how, is not in every checkpoint, and a wrong guess runs without an error,
at a fraction of the speed. So each way that is plausible is tried once at load, and the best kept.
"""

from collections.abc import Iterator
from itertools import product

from outrider.actors.errors import ModelRefused
from outrider.actors.heads.checkpoint import HeadCheckpoint
from outrider.actors.heads.eagle import Convention, EagleSizes
from outrider.actors.heads.target_parts import TargetParts
from outrider.actors.lookahead.round_report import EAGLE3, MEDUSA


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
