"""What a token was drawn from in rejection mode, as it travels."""

from outrider.actors.transport.rows import SparseRow
from outrider.kernels.contract.verdict import Draws

TOP_M = 64  # rejection mode draws from its own 64 likeliest, and sends just those


def sparse_row(draws: Draws, at: int) -> SparseRow:
    """The distribution that a drafted token was drawn from."""
    ids = draws.support_ids[at]
    is_real = ids >= 0
    return SparseRow(tuple(ids[is_real].tolist()), tuple(draws.support_probs[at][is_real].tolist()))
