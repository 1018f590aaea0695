"""A chain of drafted tokens, whoever drafted it."""

from dataclasses import dataclass

from outrider.actors.control.report import Origin
from outrider.actors.rows import SparseRow, TokenId


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens for the target to judge; none is plain decoding."""

    tokens: tuple[TokenId, ...] = ()
    rows: tuple[SparseRow, ...] = ()  # one per token where it was drawn in rejection mode
    origin: Origin = Origin.NONE


NOTHING = Proposal()
