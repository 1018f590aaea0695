"""Rules that accept what the target would not have written: faster, and another text.

No server of Outrider's runs them, and none is on unless `allow_lossy` says so; what was on is named
with the answer.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from outrider.actors.reference.speculative_decoder import BadConfig, Floats
from outrider.actors.reference.token_tree import ROOT, TokenTree
from outrider.kernels.ops.distribution import softmax


@dataclass(frozen=True, slots=True)
class TypicalAcceptance:
    """Medusa's rule (Cai and others, arXiv 2401.10774 §2.3.1): a token is accepted whose
    probability exceeds min(epsilon, delta · exp(-entropy)). Raises BadConfig.
    """

    epsilon: float = 0.09  # as Medusa's own code has them: posterior_threshold
    delta: float = 0.3  # and posterior_alpha, its root

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            if not 0 < (value := getattr(self, name)) <= 1:
                raise BadConfig(f"Got {name}={value}, expected 0 < {name} ≤ 1")

    def least(self, probs: Floats) -> float:
        """What a token's probability must exceed. Shapes: probs [V]."""
        positive = probs[probs > 0]
        entropy = -float((positive * np.log(positive)).sum())
        return min(self.epsilon, self.delta * exp(-entropy))


@dataclass(frozen=True, slots=True)
class LossyRules:
    """At most one of the two. Raises BadConfig, above all where `allow_lossy` is not said.

    >>> LossyRules().name
    ''
    >>> LossyRules(allow_lossy=True, acceptance_threshold=0.5).name
    'acceptance_threshold=0.5'
    """

    allow_lossy: bool = False
    acceptance_threshold: float | None = None  # the target's probability from which on
    typical: TypicalAcceptance | None = None

    def __post_init__(self) -> None:
        threshold = self.acceptance_threshold
        if threshold is not None and not 0 < threshold <= 1:
            raise BadConfig(f"Got acceptance_threshold={threshold}, expected 0 < threshold ≤ 1")
        if threshold is not None and self.typical is not None:
            raise BadConfig("Got acceptance_threshold and typical, expected one of them")
        if self.name and not self.allow_lossy:
            raise BadConfig(
                f"Got {self.name} without allow_lossy=True: it changes what the target would say"
            )

    @property
    def name(self) -> str:
        """What is on; nothing for an exact answer."""
        if self.acceptance_threshold is not None:
            return f"acceptance_threshold={self.acceptance_threshold:g}"
        if self.typical is not None:
            return f"typical(epsilon={self.typical.epsilon:g}, delta={self.typical.delta:g})"
        return ""

    def path(self, tree: TokenTree, logits: Floats, temperature: float) -> tuple[int, ...]:
        """The longest path of accepted nodes; of equal ones the target's likeliest.

        Shapes: logits [nodes, V], each behind its node.
        """
        accepted = {ROOT: 0.0}  # and the target's log-probability of the path
        for node in range(1, len(tree.tokens)):
            parent, token = tree.parents[node], tree.tokens[node]
            if parent not in accepted:
                continue
            probs = softmax(logits[parent] / (temperature or 1.0))
            prob = float(probs[token]) if 0 <= token < len(probs) else 0.0
            if self._accepts(prob, probs):
                accepted[node] = accepted[parent] + float(np.log(prob))
        best = max(accepted, key=lambda node: (tree.depths[node], accepted[node]))
        return tree.path_to(best)

    def _accepts(self, prob: float, probs: Floats) -> bool:
        if self.acceptance_threshold is not None:
            return prob >= self.acceptance_threshold
        assert self.typical is not None
        return prob > self.typical.least(probs)
