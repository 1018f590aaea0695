"""The oracle: the contract as a definition, in NumPy. Slow; every other backend equals it.

Owns nothing that runs in a server. Reads top down: verify, one item, its noise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.contract.arrays import F32, I32
from outrider.kernels.contract.checks import check_draw, check_verify
from outrider.kernels.contract.logits_edits import edited
from outrider.kernels.contract.philox import Purpose, noise_bits
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    Draws,
    SamplingMetadata,
    SpecDecodeMetadata,
    Verdicts,
    VerifyBatch,
)
from outrider.kernels.reference.acceptance_rules import Probs, accepts, judge_equal, judge_rejection
from outrider.kernels.reference.arithmetic import exp, exponential, tree_sum, uniform
from outrider.kernels.reference.row import FaultyRow, Row


@dataclass(frozen=True, slots=True)
class Noise:
    """The random numbers of one item, by row, purpose and token id."""

    seed: int
    choice: int
    position: int  # of row 0

    def bits(self, row: int, purpose: Purpose, ids: I32) -> NDArray[np.uint32]:
        return noise_bits(
            ids,
            seed=self.seed,
            choice=self.choice,
            position=self.position + row,
            purpose=purpose,
        )

    def exponentials(self, row: int, purpose: Purpose, ids: I32) -> F32:
        return exponential(self.bits(row, purpose, ids))


class Item:
    """One proposal, its rows and its noise; the `Chance` of its decisions."""

    def __init__(
        self,
        logits: F32,
        raw: F32,
        b: int,
        drafts: SpecDecodeMetadata,
        sampling: SamplingMetadata,
    ) -> None:
        first = int(drafts.num_drafted[:b].sum())
        count = int(drafts.num_drafted[b])
        self.logits = logits[first + b : first + b + count + 1]
        self.raw = raw[first + b : first + b + count + 1]
        self.drafted = range(first, first + count)
        self.tokens = drafts.tokens[first : first + count].tolist()
        self.rule = AcceptanceRule(sampling.rule[b])
        self.drafts, self.sampling, self.b = drafts, sampling, b
        self.noise = Noise(int(sampling.seed[b]), int(sampling.choice[b]), int(drafts.position[b]))
        self.rows: dict[int, Row] = {}

    def row(self, j: int) -> Row:
        """Row j under the item's sampling. Raises: FaultyRow."""
        if j not in self.rows:
            s, b = self.sampling, self.b
            self.rows[j] = (
                Row.of(self.logits[j])
                if self.rule is AcceptanceRule.GREEDY
                else Row.of(
                    self.logits[j], s.temperature[b], int(s.top_k[b]), s.top_p[b], s.min_p[b]
                )
            )
        return self.rows[j]

    def draft_row(self, j: int) -> F32 | None:
        """Draft probabilities [V] of drafted token j; None where there are none that hold up."""
        n, token, width = self.drafted[j], self.tokens[j], self.logits.shape[1]
        probs = np.zeros(width, np.float32)
        kind = DraftKind(self.drafts.kind[n])
        if not 0 <= token < width or kind is DraftKind.MISSING:
            return None
        if kind is DraftKind.ONE_HOT:
            probs[token] = 1
        elif kind is DraftKind.DENSE:
            assert self.drafts.dense_probs is not None
            probs[:] = self.drafts.dense_probs[n]
        else:
            ids, values = support(self.drafts, n)
            if (np.diff(ids) <= 0).any() or not ((0 <= ids) & (ids < width)).all():
                return None
            probs[ids] = values
        return probs if (probs >= 0).all() and probs[token] > 0 else None

    def own_draw(self, j: int) -> int:
        """The target's own token of row j: argmax, or the race."""
        row = self.row(j)
        if self.rule is AcceptanceRule.GREEDY:
            return int(row.z.argmax())
        return self.race(j, row.probs(), np.zeros(len(row.z), np.bool_), Purpose.TOKEN)

    def guesses(self, count: int) -> list[int]:
        """What the target will draw in the first row, by this row as the draft's; best first."""
        row = self.row(0)
        if self.rule is AcceptanceRule.GREEDY:
            by_rank = np.argsort(-row.z, kind="stable")[:count]
            return [int(i) for i in by_rank[row.z[by_rank] > -np.inf]]
        purpose = Purpose.FINAL if self.rule is AcceptanceRule.REJECTION else Purpose.TOKEN
        ids = np.arange(len(row.z), dtype=np.int32)
        return row.leaders(self.noise.exponentials(0, purpose, ids), count)

    def race(self, j: int, weights: Probs, covered: NDArray[np.bool_], purpose: Purpose) -> int:
        ids = np.arange(len(weights), dtype=np.int32)
        return self.row(j).race(weights, covered, self.noise.exponentials(j, purpose, ids))

    def accept(self, row: int, token: int, draft_prob: F32, target_prob: F32) -> bool:
        bits = self.noise.bits(row, Purpose.ACCEPT, np.array([token], np.int32))
        return accepts(uniform(bits)[0], draft_prob, target_prob)

    def final(self, row: int, weights: Probs, covered: NDArray[np.bool_]) -> int:
        return self.race(row, weights, covered, Purpose.FINAL)

    def judge(self) -> tuple[int, int]:
        """(num_accepted, token). Raises: FaultyRow."""
        if self.rule is AcceptanceRule.REJECTION:
            return judge_rejection(self.tokens, lambda j: self.row(j).probs(), self.draft_row, self)
        return judge_equal(self.tokens, self.own_draw)


def support(drafts: SpecDecodeMetadata, n: int) -> tuple[I32, F32]:
    """The entries of sparse draft row n: ids and probabilities."""
    assert drafts.support_ids is not None
    assert drafts.support_probs is not None
    ids = drafts.support_ids[n]
    ends = np.flatnonzero(ids == -1)
    length = int(ends[0]) if len(ends) else len(ids)
    return ids[:length], drafts.support_probs[n, :length]


def raw_logprob(logits: F32, token: int) -> np.float32:
    """Log-softmax of one token under unmodified logits; NaN if they are faulty."""
    try:
        return Row.of(logits).logprob(token)
    except FaultyRow:
        return np.float32(np.nan)


class ReferenceBackend:
    """`Backend` as it is defined."""

    def verify(self, batch: VerifyBatch[F32]) -> Verdicts:
        """See `Backend.verify`."""
        check_verify(batch)
        raw, drafts, count = batch.logits, batch.drafts, batch.drafts.num_drafted.size
        logits = raw if batch.edits is None else edited(raw, batch.edits)
        verdicts = Verdicts(
            num_accepted=np.zeros(count, np.int32),
            token=np.zeros(count, np.int32),
            logprobs=np.zeros((count, drafts.num_drafted.max(initial=0) + 1), np.float32),
            error=np.zeros(count, np.uint8),
        )
        for b in range(count):
            item = Item(logits, raw, b, drafts, batch.sampling)
            try:
                accepted, token = item.judge()
            except FaultyRow as faulty:
                verdicts.error[b] = faulty.fault
                continue
            verdicts.num_accepted[b], verdicts.token[b] = accepted, token
            for j, emitted in enumerate([*item.tokens[:accepted], token]):
                verdicts.logprobs[b, j] = raw_logprob(item.raw[j], emitted)
        return verdicts

    def draw(self, batch: DrawBatch[F32]) -> Draws:
        """See `Backend.draw`."""
        check_draw(batch)
        rows, top_m, sampling = len(batch.logits), batch.top_m, batch.sampling
        logits = batch.logits if batch.edits is None else edited(batch.logits, batch.edits)
        draws = Draws(
            token=np.zeros(rows, np.int32),
            prob=np.zeros(rows, np.float32),
            support_ids=np.full((rows, top_m), -1, np.int32),
            support_probs=np.zeros((rows, top_m), np.float32),
            guesses=np.full((rows, batch.num_guesses), -1, np.int32),
            error=np.zeros(rows, np.uint8),
        )
        for r in range(rows):
            chain = SpecDecodeMetadata.one_hot([[]], [batch.position[r]])
            alone = SamplingMetadata(
                *(getattr(sampling, name)[r : r + 1] for name in SamplingMetadata.__slots__)
            )
            cut = logits[r : r + 1, : batch.vocab_size]
            try:
                self._draw(Item(cut, cut, 0, chain, alone), draws, r, top_m)
            except FaultyRow as faulty:
                draws.error[r] = faulty.fault
        return draws

    def _draw(self, item: Item, draws: Draws, r: int, top_m: int) -> None:
        row = item.row(0)
        guesses = item.guesses(draws.guesses.shape[1])
        draws.guesses[r, : len(guesses)] = guesses
        if item.rule is not AcceptanceRule.REJECTION:
            draws.token[r] = token = item.own_draw(0)
            draws.prob[r] = row.probs()[token]
            return
        by_rank = np.argsort(-row.z, kind="stable")[:top_m]
        ids = np.sort(by_rank[row.z[by_rank] > -np.inf]).astype(np.int32)
        weights = exp(row.z[ids] - row.peak)
        probs = weights * (np.float32(1) / tree_sum(weights))
        winner = (probs / item.noise.exponentials(0, Purpose.DRAFT, ids)).argmax()
        draws.token[r], draws.prob[r] = ids[winner], probs[winner]
        draws.support_ids[r, : len(ids)], draws.support_probs[r, : len(ids)] = ids, probs
