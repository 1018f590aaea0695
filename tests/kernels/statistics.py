"""Odds that counts came from a distribution."""

import numpy as np
from scipy import stats


def chi_square_odds(counts: np.ndarray, probs: np.ndarray, least: float = 8) -> float:
    """The chance that a correct sampler's counts are at least this far off (Pearson).

    Cells that expect fewer than `least` are added up. A count where none can be gives 0.
    """
    expected = np.asarray(probs, np.float64) / np.sum(probs, dtype=np.float64) * counts.sum()
    if counts[expected == 0].any():
        return 0.0
    small = expected < least
    if small.any():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    live = expected > 0
    statistic = ((counts[live] - expected[live]) ** 2 / expected[live]).sum()
    return float(stats.chi2.sf(statistic, max(int(live.sum()) - 1, 1)))
