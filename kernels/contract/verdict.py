"""The verdict's contract: what goes in, what comes out, and the arithmetic in between.

Owns the words (`AcceptanceRule`, `DraftKind`, `Fault`), what crosses the boundary
(`VerifyBatch` and `DrawBatch` in, `Verdicts` and `Draws` out) and the protocol `Backend`. Knows no
implementation: `reference/backend.py` is the definition in NumPy, `cpu/backend.py` the same bits
fast.

B items, R rows of logits, N drafted tokens, V ids, M entries of a sparse row, K = max(num_drafted).
Item b owns num_drafted[b] + 1 consecutive rows; its row j draws the token at position[b] + j.

**Arithmetic.** Part of the contract: every backend gives the same bits from the same logits. All
of it is IEEE float32, round to nearest, no contraction; `fma` only where written.

1.  Scale: `z = logit * (1 / temperature) + 0`. The sum turns -0 into +0; greedy scales by 1.
    A NaN or +inf among them, or nothing above -inf, is the item's fault; -inf is a masked id.
2.  Tiles of 4096 consecutive ids. `m_t` is a tile's largest z, `M` the row's. `exp` and `log` are
    the polynomials of `reference/arithmetic.py`; `exp(x) = 0` for x <= -64.
3.  Sums. `tree(a)`: pad with zeros to a power of two, add neighbours (0+1, 2+3, ...) until one is
    left. A tile: pad to 4096, add the upper half to the lower, then tree. (256 threads with 8
    neighbours each in two strides of 2048; lanes by xor 1, 2, 4, 8, 16; then warps.) A row:
    `Z = tree_t(s_t * exp(m_t - M))`, with `s_t` the tile's sum of `exp(z - m_t)`.
4.  Filters, after the scale; each sets z to -inf for what it drops, and ties stay together.
    top-k: c = the k-th largest z, keep z >= c. top-p, over what top-k kept: c = the largest value
    with mass(c) >= top_p * mass(-inf), where mass(c) is Z over z >= c: keep z >= c (rounding is
    monotone, so mass is, so any search finds the same c). min-p: keep exp(z - M) >= min_p.
5.  `target_probs[v] = exp(z_v - M) * (1 / Z)`, Z over what is left.
6.  Noise: Philox, keyed as `contract/philox.py` says (ARCHITECTURE.md, Noise). `Exp(1)` from one
    32-bit lane x is `-log1p(-(x + 0.5) / 2**32)`: relative precision near zero, smallest value
    2**-33. An id more than about 26 nats below the row's largest therefore never wins: total
    variation <= V * 5e-12 (1e-6 at 152k ids). A uniform is `(x >> 8) / 2**24`.
7.  Race for weights w: first inside each tile at the tile's scale (largest `exp(z - m_t) / E`, over
    ids no draft row covers), then the tile winners and the covered ids at the row's scale (largest
    `w / E`, positive). Ties go to the lowest id. One pass over the logits, no cumulative sums.
8.  Rejection accepts x iff `u * draft_probs[x] < target_probs[x]`. On rejection
    `w = max(0, target_probs - draft_probs)`; none positive: `w = target_probs`, nothing covered.
    Covered are the ids with a positive draft probability.
9.  Log-probs: `(z_x - M) - log(Z)` of the raw row: temperature 1, no filter.
10. A draft's row in rejection mode: after the filters the `top_m` largest z (of equals the lowest
    ids), by ascending id, `exp(z - M) * (1 / tree)`; raced at that scale.
11. A draft's guesses of the target's draw, best first: greedy by z; else by item 7's race over the
    draft's whole row (rejection: with the recovered token's noise), each tile sending as many
    winners as guesses are asked. Only ids of positive weight; of equals the lowest id first.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outrider.kernels.contract.arrays import (
    F32,
    I32,
    U8,
    U32,
    U64,
    ContractError,
    expect_array,
    expect_within,
)
from outrider.kernels.contract.logits_edits import LogitsEdits

TILE = 4096
MAX_GUESSES = 64  # of a draft's row
MAX_CHOICE = 2**24 - 1  # shares a counter word with the purpose
MIN_TEMPERATURE, MAX_TEMPERATURE = 2.0**-20, 2.0**20


class AcceptanceRule(IntEnum):
    """How a drafted token is judged."""

    GREEDY = 0  # equal to the argmax
    COUPLED = 1  # equal to the target's own draw with position-keyed noise
    REJECTION = 2  # Leviathan / Chen, with residual sampling


class DraftKind(IntEnum):
    """What is known of the distribution a drafted token came from (rejection only)."""

    MISSING = 0  # due but not there: the chain ends before this token
    ONE_HOT = 1  # no distribution by nature: n-gram, client prediction
    SPARSE = 2  # a row of support_ids / support_probs
    DENSE = 3  # a row of dense_probs


class Fault(IntEnum):
    """Why an item has no verdict."""

    NONE = 0
    NO_FINITE_LOGIT = 1
    NOT_A_NUMBER = 2  # NaN, or +inf, also by dividing by the temperature


@dataclass(frozen=True, slots=True)
class SamplingMetadata:
    """How each of B sequences is sampled. Ignored by GREEDY: everything but the rule."""

    rule: U8  # [B] Rule
    temperature: F32  # [B]
    top_k: I32  # [B] ids kept, ties more; 0 = off
    top_p: F32  # [B] mass kept, in (0, 1]; 1 = off
    min_p: F32  # [B] probability kept, relative to the largest; 0 = off
    seed: U64  # [B] Philox key
    choice: U32  # [B] index within its own prompt

    def __post_init__(self) -> None:
        shape = (self.rule.shape[0] if self.rule.ndim else 0,)
        expect_array("rule", self.rule, np.uint8, shape)
        expect_array("temperature", self.temperature, np.float32, shape)
        expect_array("top_k", self.top_k, np.int32, shape)
        expect_array("top_p", self.top_p, np.float32, shape)
        expect_array("min_p", self.min_p, np.float32, shape)
        expect_array("seed", self.seed, np.uint64, shape)
        expect_array("choice", self.choice, np.uint32, shape)
        expect_within("rule", self.rule, AcceptanceRule.GREEDY, AcceptanceRule.REJECTION)
        sampled = self.temperature[self.rule != AcceptanceRule.GREEDY]
        expect_within("temperature", sampled, MIN_TEMPERATURE, MAX_TEMPERATURE)
        expect_within("top_k", self.top_k, 0, 2**31 - 1)
        expect_within("top_p", self.top_p, float(np.finfo(np.float32).tiny), 1)
        expect_within("min_p", self.min_p, 0, 1)
        expect_within("choice", self.choice, 0, MAX_CHOICE)

    @classmethod
    def of(
        cls,
        *,
        rule: AcceptanceRule | Sequence[AcceptanceRule],
        temperature: ArrayLike = 1.0,
        top_k: ArrayLike = 0,
        top_p: ArrayLike = 1.0,
        min_p: ArrayLike = 0.0,
        seed: int | Sequence[int] = 0,
        choice: ArrayLike = 0,
        batch: int | None = None,
    ) -> Self:
        """From scalars and per-sequence lists, broadcast; `batch` repeats one sequence.

        Seeds are any int64 or uint64; negative ones are taken mod 2**64.
        """
        seeds = [seed] if isinstance(seed, int) else seed
        given: list[NDArray[Any]] = [
            np.atleast_1d(np.asarray(rule, np.uint8)),
            np.atleast_1d(np.asarray(temperature, np.float32)),
            np.atleast_1d(np.asarray(top_k, np.int32)),
            np.atleast_1d(np.asarray(top_p, np.float32)),
            np.atleast_1d(np.asarray(min_p, np.float32)),
            np.asarray([int(s) % 2**64 for s in seeds], np.uint64),
            np.atleast_1d(np.asarray(choice, np.uint32)),
        ]
        size = max(batch or 1, *(len(array) for array in given))
        for array in given:
            if array.shape not in ((1,), (size,)):
                raise ContractError(f"Got {len(array)} values for {size} sequences")
        return cls(*(np.ascontiguousarray(np.broadcast_to(array, size)) for array in given))


@dataclass(frozen=True, slots=True)
class SpecDecodeMetadata:
    """B drafted chains, their tokens and draft rows one after another (N = sum(num_drafted))."""

    num_drafted: I32  # [B] may be 0
    position: I32  # [B] absolute position of the token that the item's first row draws
    tokens: I32  # [N] an id outside the vocabulary is never accepted
    kind: U8  # [N] DraftKind; read in rejection mode only
    support_ids: I32 | None = None  # [N, M] strictly ascending, then -1; for SPARSE
    support_probs: F32 | None = None  # [N, M]; what the draft really drew from
    dense_probs: F32 | None = None  # [N, V]; for DENSE

    def __post_init__(self) -> None:
        batch, drafted = self.num_drafted.size, self.num_drafted.tolist()
        expect_array("num_drafted", self.num_drafted, np.int32, (batch,))
        expect_array("position", self.position, np.int32, (batch,))
        expect_within("num_drafted", self.num_drafted, 0, 2**20)
        expect_within("position", self.position, 0, 2**31 - 1)
        if self.tokens.shape != (sum(drafted),):
            raise ContractError(
                f"Got tokens of shape {self.tokens.shape}, "
                f"expected ({sum(drafted)},) = sum(num_drafted)"
            )
        count = self.tokens.shape[0]
        expect_array("tokens", self.tokens, np.int32, (count,))
        expect_array("kind", self.kind, np.uint8, (count,))
        self._check_rows(count)

    def _check_rows(self, count: int) -> None:
        kinds = self.kind.tobytes()
        if kinds and max(kinds) > DraftKind.DENSE:
            raise ContractError(f"Got kind={max(kinds)}, expected 0 ≤ kind ≤ 3")
        if (self.support_ids is None) != (self.support_probs is None):
            raise ContractError("Got one of support_ids and support_probs, expected both or none")
        if self.support_ids is not None and self.support_probs is not None:
            width = self.support_ids.shape[-1] if self.support_ids.ndim == 2 else 0
            expect_array("support_ids", self.support_ids, np.int32, (count, width))
            expect_array("support_probs", self.support_probs, np.float32, (count, width))
        elif DraftKind.SPARSE in kinds:
            raise ContractError("Got a SPARSE draft row and no support_ids")
        if self.dense_probs is not None:
            width = self.dense_probs.shape[-1] if self.dense_probs.ndim == 2 else 0
            expect_array("dense_probs", self.dense_probs, np.float32, (count, width))
        elif DraftKind.DENSE in kinds:
            raise ContractError("Got a DENSE draft row and no dense_probs")

    @classmethod
    def one_hot(cls, chains: Sequence[Sequence[int]], position: Sequence[int]) -> Self:
        """Chains without draft distributions: all that greedy and coupled verification need."""
        tokens = np.asarray([token for chain in chains for token in chain], np.int32)
        lengths = np.asarray([len(chain) for chain in chains], np.int32)
        kind = np.full(len(tokens), DraftKind.ONE_HOT, np.uint8)
        return cls(lengths, np.asarray(position, np.int32), tokens, kind)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the target made of B proposals. Where `error` is set the rest of the item is zero.

    Rows after the first rejection are conditioned on text that is not there: they are not
    examined and cannot fault the item.
    """

    num_accepted: I32  # [B]
    token: I32  # [B] recovered (after a rejection) or bonus (all accepted); always there
    logprobs: F32  # [B, K + 1] natural, raw, of each emitted token; zeros beyond; NaN: a faulty row
    error: U8  # [B] Fault


@dataclass(frozen=True, slots=True)
class Draws:
    """One drafted token per row, and the distribution it was drawn from. R rows."""

    token: I32  # [R]
    prob: F32  # [R] its probability after filters and truncation; greedy: under the plain softmax
    support_ids: I32  # [R, top_m] ascending, then -1; empty rows outside rejection
    support_probs: F32  # [R, top_m] zero beyond the support
    guesses: I32  # [R, num_guesses] of what the target will draw here, best first, then -1
    error: U8  # [R] Fault


L = TypeVar("L")  # what the logits are: an array for NumPy's backends, a torch tensor for others


@dataclass(frozen=True, slots=True)
class VerifyBatch(Generic[L]):
    """B proposals to judge, and the target's logits: each row contiguous, any row stride."""

    logits: L  # [R, V], R = sum(num_drafted + 1), rows of an item consecutive
    drafts: SpecDecodeMetadata  # of B items
    sampling: SamplingMetadata  # of B sequences
    edits: LogitsEdits | None = None  # of R rows; log-probs are of the rows before them


@dataclass(frozen=True, slots=True)
class DrawBatch(Generic[L]):
    """R rows of a draft's logits, to draw one token from each; strides as in `VerifyBatch`."""

    logits: L  # [R, V]
    sampling: SamplingMetadata  # of R sequences
    position: I32  # [R] absolute position of the token that the row draws
    _: KW_ONLY
    vocab_size: int  # the target's: only ids below it are drawn or guessed, 1 to V
    top_m: int = 64  # ids that a row in rejection mode is cut down to, 1 to 4096
    num_guesses: int = 0  # of what the target will draw, 0 to 64
    edits: LogitsEdits | None = None  # of R rows


class Backend(Protocol[L]):
    """Verdicts and draws. The same input gives the same bits from every implementation."""

    def verify(self, batch: VerifyBatch[L]) -> Verdicts:
        """Judge B proposals. Raises: ContractError. A fault in the logits is its item's `error`.

        In rejection mode a draft row that does not hold up is a missing one: ids not ascending or
        outside the vocabulary, a negative or NaN probability, none above zero for the drafted
        token. The position is then drawn from the full target row.
        """

    def draw(self, batch: DrawBatch[L]) -> Draws:
        """Draft one token per row, by the row's rule: argmax, the target's own race, or a private
        race over the top_m ids; and guess what the target will draw there. Raises: ContractError.
        A fault in the logits is its row's `error`.
        """
