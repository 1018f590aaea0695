"""A sequence's sampling as the kernels take it."""

from collections.abc import Sequence as Many

import numpy as np

from outrider.actors.transport.rows import SamplingRow
from outrider.kernels.contract.verdict import AcceptanceRule, SamplingMetadata


def acceptance_rule(row: SamplingRow) -> AcceptanceRule:
    """Greedy at temperature 0, else what the request chose."""
    if row.temperature == 0:
        return AcceptanceRule.GREEDY
    return AcceptanceRule.REJECTION if row.verification == "rejection" else AcceptanceRule.COUPLED


def sampling_metadata(rows: Many[SamplingRow]) -> SamplingMetadata:
    """One entry per row."""
    return SamplingMetadata(
        rule=np.array([acceptance_rule(row) for row in rows], np.uint8),
        temperature=np.array([row.temperature for row in rows], np.float32),
        top_k=np.array([row.top_k for row in rows], np.int32),
        top_p=np.array([row.top_p for row in rows], np.float32),
        min_p=np.array([row.min_p for row in rows], np.float32),
        seed=np.array([row.seed for row in rows], np.uint64),
        choice=np.array([row.choice for row in rows], np.uint32),
    )
