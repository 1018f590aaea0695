"""Speculative decoding over any two models that can be asked for distributions: the textbook loop.

For models that are not Hugging Face's, for teaching and for tests; the serving path is the
coordinator. The verdict is the same kernel: distributions go in as log-probabilities, draft rows
dense. Source: Leviathan et al. 2211.17192, Chen et al. 2302.01318.

    SpeculationError
    ├── BadConfig            k, cost_ratio or a token id out of range
    ├── EmptyPrefix          nothing to continue
    ├── VocabularyDiffers    both sizes
    ├── DraftShape           tokens, log-probs and distributions of a proposal do not match
    ├── TargetShape          not k + 1 distributions
    ├── DistributionWidth    a distribution that is not as wide as the vocabulary
    └── TokenOutOfRange      a token that is no id
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outrider.actors.errors import InvalidConfig, OutriderError
from outrider.kernels.contract.arrays import F32
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    Backend,
    DraftKind,
    SamplingMetadata,
    SpecDecodeMetadata,
    VerifyBatch,
)

Floats = npt.NDArray[np.floating]

DEFAULT_SEED = 0
LEAST_K, MOST_K = 2, 8  # of a k that adapts
LEAST_PROPOSED = 32  # before it is asked whether enough of them are accepted
RAISE_ABOVE, LOWER_BELOW = 0.9, 0.5  # of the drafted tokens of a round, accepted


class SpeculationError(OutriderError):
    """Root of what the two models, or their caller, can get wrong."""


class BadConfig(SpeculationError, InvalidConfig):
    """A configuration value out of range."""


class EmptyPrefix(SpeculationError):
    """Decoding needs at least one token to continue."""


class VocabularyDiffers(SpeculationError):
    """Draft and target have vocabularies of different sizes."""


class DraftShape(SpeculationError):
    """A proposal whose parts do not match."""


class TargetShape(SpeculationError):
    """Not one distribution per drafted token and one more."""


class DistributionWidth(SpeculationError):
    """A distribution that is not as wide as the vocabulary."""


class TokenOutOfRange(SpeculationError):
    """A token id outside the vocabulary."""


@dataclass(frozen=True, slots=True)
class DraftProposal:
    """What a draft model proposes after a prefix."""

    tokens: tuple[int, ...]  # k
    logprobs: tuple[float, ...]  # k, of the tokens
    distributions: Floats  # [k, V]


class DraftModel(Protocol):
    """Cheap guesses."""

    vocab_size: int

    def propose(self, prefix: Many[int], k: int) -> DraftProposal:
        """k tokens drawn one after another, and what each was drawn from."""
        ...


class TargetModel(Protocol):
    """The model whose distribution the output has."""

    vocab_size: int

    def verify(self, prefix: Many[int], tokens: Many[int]) -> Floats:
        """[len(tokens) + 1, V]: the distribution after the prefix, and after each token."""
        ...


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Raises BadConfig."""

    k: int = 4
    adapts_k: bool = False  # by what the last round accepted: see next_k
    cost_ratio: float = 0.125  # one draft step over one target pass
    min_acceptance_ratio: float = 0.0  # of drafted tokens, below which it decodes plainly
    stops_on_eos: bool = True
    eos_token: int | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise BadConfig(f"Got k={self.k}, expected at least 1")
        if not 0 <= self.cost_ratio < float("inf"):
            raise BadConfig(f"Got cost_ratio={self.cost_ratio}, expected a finite number ≥ 0")
        if not 0 <= self.min_acceptance_ratio <= 1:
            raise BadConfig(
                f"Got min_acceptance_ratio={self.min_acceptance_ratio}, expected 0 to 1"
            )
        if self.eos_token is not None and self.eos_token < 0:
            raise BadConfig(f"Got eos_token={self.eos_token}, expected a token id")


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """Sums over rounds."""

    num_rounds: int = 0
    num_proposed: int = 0
    num_accepted: int = 0
    num_committed: int = 0

    def is_below(self, ratio: float) -> bool:
        """Whether so few were accepted, once enough are known to say so."""
        return self.num_proposed >= LEAST_PROPOSED and self.num_accepted < ratio * self.num_proposed

    def modelled_speedup(self, cost_ratio: float) -> float:
        """Tokens per unit of target time, over the one of plain decoding; 1 before any round."""
        time = self.num_rounds + cost_ratio * self.num_proposed
        return self.num_committed / time if time else 1.0


def should_use_speculative(
    temperature: float, top_k: int = 0, max_tokens: int = 2, max_temperature: float = 0.5
) -> bool:
    """A rule of thumb by a request's parameters: where text is nearly certain, and long enough.

    >>> should_use_speculative(0.0), should_use_speculative(1.0), should_use_speculative(1.0, 1)
    (True, False, True)
    """
    return max_tokens > 1 and (temperature <= max_temperature or top_k == 1)


def next_k(k: int, num_proposed: int, num_accepted: int) -> int:
    """One more after a round that accepted nearly all, one fewer after a poor one; 2 to 8.

    >>> next_k(4, 4, 4), next_k(4, 4, 2), next_k(4, 4, 1), next_k(8, 8, 8)
    (5, 4, 3, 8)
    """
    if num_proposed:
        rate = num_accepted / num_proposed
        k += (rate > RAISE_ABOVE) - (rate < LOWER_BELOW)
    return min(max(k, LEAST_K), MOST_K)


class SpeculativeDecoder:
    """Draft, verify, commit. The noise is a function of the seed and the position alone."""

    def __init__(
        self,
        draft: DraftModel,
        target: TargetModel,
        backend: Backend[F32],
        config: SpeculativeConfig | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        if draft.vocab_size != target.vocab_size:
            raise VocabularyDiffers(
                f"Got a draft of {draft.vocab_size} tokens for a target of {target.vocab_size}, "
                "expected equal vocabularies"
            )
        self.config = config or SpeculativeConfig()
        self.metrics = RoundMetrics()
        self.k = self.config.k  # of the next round
        self._draft = draft
        self._target = target
        self._backend = backend
        self._sampling = SamplingMetadata.of(rule=AcceptanceRule.REJECTION, seed=seed)

    def reset_metrics(self) -> None:
        """Count from zero again, and draft again where it had been given up."""
        self.metrics = RoundMetrics()

    def generate(self, prefix: Many[int], max_tokens: int) -> list[int]:
        """Up to max_tokens after the prefix, ending with the first EOS if that stops."""
        if max_tokens < 1:
            raise BadConfig(f"Got max_tokens={max_tokens}, expected at least 1")
        output: list[int] = []
        while len(output) < max_tokens:
            tokens = self.round([*prefix, *output], max_tokens - len(output))
            output += tokens
            if self._ends(tokens[-1]):
                break
        return output

    def round(self, prefix: Many[int], num_left: int) -> list[int]:
        """One round: 1 to k + 1 tokens, never more than num_left. Raises SpeculationError."""
        self._check_prefix(prefix)
        k = min(self.k, num_left - 1)
        if self.metrics.is_below(self.config.min_acceptance_ratio):
            k = 0
        proposal = self._propose(prefix, k)
        k = len(proposal.tokens)
        target_probs = self._verify(prefix, proposal.tokens)
        num_accepted, token = self._judge(len(prefix), proposal, target_probs)
        if self.config.adapts_k:
            self.k = next_k(self.k, k, num_accepted)
        tokens = [*proposal.tokens[:num_accepted], token]
        for count, drawn in enumerate(tokens, start=1):
            if self._ends(drawn):
                tokens = tokens[:count]
                break
        now = self.metrics
        self.metrics = RoundMetrics(
            now.num_rounds + 1,
            now.num_proposed + len(proposal.tokens),
            now.num_accepted + num_accepted,
            now.num_committed + len(tokens),
        )
        return tokens

    def _ends(self, token: int) -> bool:
        return self.config.stops_on_eos and token == self.config.eos_token

    def _check_prefix(self, prefix: Many[int]) -> None:
        if not prefix:
            raise EmptyPrefix("Got an empty prefix, expected at least one token")
        self._check_tokens("prefix", prefix)

    def _check_tokens(self, name: str, tokens: Many[int]) -> None:
        for token in tokens:
            if not 0 <= token < self._target.vocab_size:
                raise TokenOutOfRange(
                    f"Got token {token} in the {name}, expected 0 ≤ token < "
                    f"{self._target.vocab_size}"
                )

    def _check_width(self, name: str, rows: Floats) -> None:
        if rows.ndim != 2 or rows.shape[1] != self._target.vocab_size:
            raise DistributionWidth(
                f"Got {name} distributions of shape {rows.shape}, expected "
                f"[{len(rows)}, {self._target.vocab_size}]"
            )

    def _propose(self, prefix: Many[int], k: int) -> DraftProposal:
        if k == 0:
            return DraftProposal((), (), np.zeros((0, self._target.vocab_size), np.float32))
        proposal = self._draft.propose(prefix, k)
        counts = len(proposal.tokens), len(proposal.logprobs), len(proposal.distributions)
        if counts == (0, 0, 0):  # it has nothing to say: this round is plain
            return self._propose(prefix, 0)
        if counts != (k, k, k):
            raise DraftShape(
                f"Got {counts[0]} tokens, {counts[1]} log-probs and {counts[2]} distributions "
                f"from the draft, expected {k} of each"
            )
        self._check_width("draft", proposal.distributions)
        self._check_tokens("proposal", proposal.tokens)
        return proposal

    def _verify(self, prefix: Many[int], tokens: Many[int]) -> Floats:
        rows = self._target.verify(prefix, tokens)
        if len(rows) != len(tokens) + 1:
            raise TargetShape(
                f"Got {len(rows)} distributions from the target, expected {len(tokens) + 1}"
            )
        self._check_width("target", rows)
        return rows

    def _judge(
        self, position: int, proposal: DraftProposal, target_probs: Floats
    ) -> tuple[int, int]:
        """Number accepted, and the recovered or bonus token."""
        count = len(proposal.tokens)
        proposals = SpecDecodeMetadata(
            num_drafted=np.array([count], np.int32),
            position=np.array([position], np.int32),
            tokens=np.array(proposal.tokens, np.int32),
            kind=np.full(count, DraftKind.DENSE, np.uint8),
            dense_probs=np.ascontiguousarray(proposal.distributions, np.float32),
        )
        with np.errstate(divide="ignore"):
            logits = np.ascontiguousarray(np.log(target_probs), np.float32)
        verdicts = self._backend.verify(VerifyBatch(logits, proposals, self._sampling))
        if verdicts.error[0]:
            raise TargetShape("Got a target distribution without a positive probability")
        return int(verdicts.num_accepted[0]), int(verdicts.token[0])
