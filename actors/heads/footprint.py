"""How much memory a head takes beside its target: nothing is loaded."""

from dataclasses import replace
from pathlib import Path

from outrider.actors.lookahead.round_report import EARLY_EXIT, MEDUSA
from outrider.actors.sizing.footprint import Footprint, footprint, num_parameters

MOST_EXIT = 2 / 3  # of the target's layers, where their number is to be found


def head_footprint(head: str, target: Path) -> Footprint:
    """Of KIND:PATH; what is kept of a token counts as its keys and values.

    An early exit keeps those of some layers once more. What reads hidden states keeps them, and an
    EAGLE head as many of its own, beside a layer's keys and values.
    """
    kind, _, value = head.partition(":")
    beside = footprint(target)
    if kind == EARLY_EXIT:
        share = int(value) / max(1, beside.num_layers) if value.isdecimal() else MOST_EXIT
        kept = None if beside.kv_width is None else int(beside.kv_width * share)
        return replace(beside, num_parameters=0, kv_width=kept)
    kept = beside.hidden_size * (1 if kind == MEDUSA else 4)
    return replace(beside, num_parameters=num_parameters(Path(value)), kv_width=kept)
