"""One row of logits as the contract defines it, in NumPy: scale, filters, masses, the race."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.verdict import TILE, Fault
from outrider.kernels.reference.arithmetic import exp, log, tile_sum, tree_sum

MINUS_INF, ZERO, ONE = np.float32(-np.inf), np.float32(0), np.float32(1)


class FaultyRow(Exception):
    """A row of logits that nothing can be drawn from."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def tiles_of(values: F32) -> list[F32]:
    """Consecutive pieces of at most 4096."""
    return [values[start : start + TILE] for start in range(0, len(values), TILE)]


def scaled(logits: F32, inverse: np.float32) -> F32:
    """Logits over the temperature, -0 as +0. Raises: FaultyRow."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = logits * inverse + np.float32(0)
    if np.isnan(z).any() or (z == np.inf).any():
        raise FaultyRow(Fault.NOT_A_NUMBER)
    if not np.isfinite(z).any():
        raise FaultyRow(Fault.NO_FINITE_LOGIT)
    return z


def tile_exps(z: F32) -> list[F32]:
    """exp(z - m_t) of every tile."""
    with np.errstate(invalid="ignore"):
        return [exp(piece - piece.max()) for piece in tiles_of(z)]


def measure(z: F32) -> tuple[np.float32, np.float32]:
    """(M, Z): the largest z and the sum of exp(z - M)."""
    peaks = np.array([piece.max() for piece in tiles_of(z)], np.float32)
    sums = np.array([tile_sum(weights) for weights in tile_exps(z)], np.float32)
    peak = peaks.max()
    return peak, tree_sum(sums * exp(peaks - peak))


def from_value(z: F32, cut: np.float32) -> F32:
    """z where it is at least the cut, else -inf."""
    return np.where(z >= cut, z, MINUS_INF)


def keep_top_k(z: F32, k: int) -> F32:
    """The k largest and what equals the last of them; 0 keeps all."""
    if k == 0 or k >= len(z):
        return z
    return from_value(z, np.sort(z)[-k])


def keep_top_p(z: F32, top_p: np.float32) -> F32:
    """From the largest value on which at least top_p of the mass lies; 1 keeps all."""
    if top_p >= 1:
        return z
    needed = top_p * measure(z)[1]
    values = np.unique(z[z > MINUS_INF])
    low, high = 0, len(values) - 1  # values[low] always has the mass
    while low < high:
        middle = (low + high + 1) // 2
        if measure(from_value(z, values[middle]))[1] >= needed:
            low = middle
        else:
            high = middle - 1
    return from_value(z, values[low])


def keep_min_p(z: F32, min_p: np.float32) -> F32:
    """What is at least min_p times as probable as the most probable; 0 keeps all."""
    if min_p <= 0:
        return z
    return np.where(exp(z - z.max()) >= min_p, z, MINUS_INF)


def first_of(scores: F32, count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest positive scores, best first, of equals the lowest index."""
    by_rank = np.argsort(-scores, kind="stable")[:count]
    return by_rank[scores[by_rank] > 0]


@dataclass(frozen=True, slots=True)
class Row:
    """A row after scale and filters."""

    z: F32  # [V] -inf where masked or dropped
    peak: np.float32  # M
    mass: np.float32  # Z

    @classmethod
    def of(
        cls,
        logits: F32,
        temperature: np.float32 = ONE,
        top_k: int = 0,
        top_p: np.float32 = ONE,
        min_p: np.float32 = ZERO,
    ) -> Self:
        """Scale, top-k, top-p, min-p, measure. Raises: FaultyRow."""
        z = scaled(logits, np.float32(1) / temperature)
        z = keep_min_p(keep_top_p(keep_top_k(z, top_k), top_p), min_p)
        return cls(z, *measure(z))

    def probs(self) -> F32:
        """Target probabilities [V]."""
        return exp(self.z - self.peak) * (np.float32(1) / self.mass)

    def logprob(self, token: int) -> np.float32:
        """Natural log of the probability of one token."""
        return np.float32(self.z[token] - self.peak - log(np.array([self.mass]))[0])

    def race(self, weights: F32, covered: NDArray[np.bool_], exponentials: F32) -> int:
        """The id that wins: free ids first inside their tile, then with the covered ones."""
        runners: list[int] = np.flatnonzero(covered).tolist()
        pieces = zip(tile_exps(self.z), tiles_of(exponentials), strict=True)
        for t, (exps, noise) in enumerate(pieces):
            free = np.where(covered[t * TILE : (t + 1) * TILE], 0, exps / noise)
            if free.max() > 0:
                runners.append(t * TILE + int(free.argmax()))
        ids = np.sort(np.array(runners))
        return int(ids[(weights[ids] / exponentials[ids]).argmax()])

    def leaders(self, exponentials: F32, count: int) -> list[int]:
        """The first `count` ids of the race over the whole row, best first."""
        runners: list[int] = []
        pieces = zip(tile_exps(self.z), tiles_of(exponentials), strict=True)
        for t, (exps, noise) in enumerate(pieces):
            runners += (t * TILE + first_of(exps / noise, count)).tolist()
        ids = np.sort(np.array(runners, np.int64))
        return [int(i) for i in ids[first_of(self.probs()[ids] / exponentials[ids], count)]]
