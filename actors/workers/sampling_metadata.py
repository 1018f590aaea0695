"""A sequence's sampling as the kernels take it."""

from collections.abc import Sequence as Many

import numpy as np

from outrider.actors.transport.rows import OpenRow
from outrider.kernels.contract.verdict import Rule, Sampling


def rule_of(row: OpenRow) -> Rule:
    """Greedy at temperature 0, else what the request chose."""
    if row.temperature == 0:
        return Rule.GREEDY
    return Rule.REJECTION if row.verification == "rejection" else Rule.COUPLED


def sampling_of(rows: Many[OpenRow]) -> Sampling:
    """One entry per row."""
    return Sampling(
        rule=np.array([rule_of(row) for row in rows], np.uint8),
        temperature=np.array([row.temperature for row in rows], np.float32),
        top_k=np.array([row.top_k for row in rows], np.int32),
        top_p=np.array([row.top_p for row in rows], np.float32),
        min_p=np.array([row.min_p for row in rows], np.float32),
        seed=np.array([row.seed for row in rows], np.uint64),
        choice=np.array([row.choice for row in rows], np.uint32),
    )
