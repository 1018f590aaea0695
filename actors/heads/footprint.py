"""How much memory a head takes beside its target: nothing is loaded."""

from dataclasses import replace
from pathlib import Path

from outrider.actors.lookahead.round_report import EARLY_EXIT, MEDUSA
from outrider.actors.sizing.footprint import Footprint, footprint, num_parameters


def head_footprint(head: str, target: Path) -> Footprint:
    """Of KIND:PATH; what is kept of a token counts as its keys and values.

    An early exit keeps nothing. What reads hidden states keeps them, and an EAGLE head as many of
    its own, beside a layer's keys and values.
    """
    kind, _, value = head.partition(":")
    beside = footprint(target)
    if kind == EARLY_EXIT:
        return replace(beside, num_parameters=0, kv_width=0)
    kept = beside.hidden_size * (1 if kind == MEDUSA else 4)
    return replace(beside, num_parameters=num_parameters(Path(value)), kv_width=kept)
