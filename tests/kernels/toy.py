"""Toy language models with a table for weights, and every outcome of a run with its probability."""

import itertools
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.contract.verdict import DraftKind

Result = TypeVar("Result")
Tokens = tuple[int, ...]
Modules = ModuleType | SimpleNamespace


class ToyModel:
    """A distribution [V] for each context shorter than `length`; zeros where `is_sparse`."""

    def __init__(self, width: int, length: int, seed: int, is_sparse: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.width = width
        self.rows: dict[Tokens, NDArray[np.float64]] = {}
        for size in range(length):
            for context in itertools.product(range(width), repeat=size):
                row = rng.dirichlet(np.full(width, 0.7))
                if is_sparse:
                    row[rng.integers(0, width)] = 0
                self.rows[context] = row / row.sum()

    def __call__(self, context: Tokens) -> NDArray[np.float64]:
        return self.rows[context]

    def joint(self, length: int) -> dict[Tokens, float]:
        """Probability of every sequence of this length."""
        return {
            tokens: float(np.prod([self(tokens[:i])[token] for i, token in enumerate(tokens)]))
            for tokens in itertools.product(range(self.width), repeat=length)
        }


class Script:
    """Chance that takes a given path through all decisions, then the first option of each.

    Implements `decision.Chance`; the measure of acceptance comes from the rule's own `accepts`.
    """

    def __init__(self, path: list[int], accepts: Callable[[float, float, float], bool]) -> None:
        self.path, self.accepts = path, accepts
        self.taken: list[int] = []
        self.untaken: list[list[int]] = []
        self.probability = 1.0

    def pick(self, weights: Any) -> int:
        """An index in proportion to the weights."""
        probs = np.asarray(weights, np.float64) / np.sum(weights)
        options = np.flatnonzero(probs).tolist()
        if len(self.taken) < len(self.path):
            choice = self.path[len(self.taken)]
        else:
            choice = options[0]
            self.untaken += [[*self.taken, option] for option in options[1:]]
        self.taken.append(choice)
        self.probability *= float(probs[choice])
        return int(choice)

    def accept(self, row: int, token: int, draft_prob: float, target_prob: float) -> bool:
        measure = self.measure(float(draft_prob), float(target_prob))
        return bool(self.pick([1 - measure, measure]))

    def final(self, row: int, weights: Any, covered: NDArray[np.bool_]) -> int:
        return self.pick(weights)

    def measure(self, draft_prob: float, target_prob: float) -> float:
        """The share of uniforms in [0, 1) that are accepted: they form a prefix."""
        if not self.accepts(0.0, draft_prob, target_prob):
            return 0.0
        if self.accepts(float(np.nextafter(1, 0)), draft_prob, target_prob):
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            if self.accepts(middle, draft_prob, target_prob):
                low = middle
            else:
                high = middle
        return low


def outcomes(
    run: Callable[[Script], Result], accepts: Callable[[float, float, float], bool]
) -> Iterator[tuple[float, Result]]:
    """Every result of run with its probability."""
    pending: list[list[int]] = [[]]
    while pending:
        script = Script(pending.pop(), accepts)
        result = run(script)
        yield script.probability, result
        pending += script.untaken


def rejection_joint(
    decision: Modules,
    target: ToyModel,
    draft: ToyModel,
    kinds: tuple[DraftKind, ...],
) -> dict[Tokens, float]:
    """The joint of k + 1 tokens when k drafted ones are judged and the rest drawn plainly."""
    length = len(kinds) + 1

    def drafted(script: Script, context: Tokens, kind: DraftKind) -> int:
        # One-hot: a deterministic guess. Missing: drawn from who knows what.
        row = draft(context)
        return int(row.argmax()) if kind is DraftKind.ONE_HOT else script.pick(row)

    def run(script: Script) -> Tokens:
        tokens: Tokens = ()
        for kind in kinds:
            tokens = (*tokens, drafted(script, tokens, kind))

        def draft_row(j: int) -> NDArray[np.float64] | None:
            if kinds[j] is DraftKind.MISSING:
                return None
            one_hot = np.eye(draft.width)[tokens[j]]
            return one_hot if kinds[j] is DraftKind.ONE_HOT else draft(tokens[:j])

        accepted, final = decision.judge_rejection(
            tokens, lambda j: target(tokens[:j]), draft_row, script
        )
        out = (*tokens[:accepted], final)
        while len(out) < length:
            out = (*out, script.pick(target(out)))
        return out

    total: dict[Tokens, float] = {}
    for probability, tokens in outcomes(run, decision.accepts):
        total[tokens] = total.get(tokens, 0.0) + probability
    return total


def coupled_joint(decision: Modules, target: ToyModel, chain: Tokens) -> dict[Tokens, float]:
    """The joint of k + 1 tokens when a fixed chain is judged against the target's own draws."""

    def run(script: Script) -> Tokens:
        accepted, final = decision.judge_equal(chain, lambda j: script.pick(target(chain[:j])))
        out = (*chain[:accepted], final)
        while len(out) <= len(chain):
            out = (*out, script.pick(target(out)))
        return out

    total: dict[Tokens, float] = {}
    for probability, tokens in outcomes(run, decision.accepts):
        total[tokens] = total.get(tokens, 0.0) + probability
    return total


def largest_gap(got: dict[Tokens, float], expected: dict[Tokens, float]) -> float:
    """The largest difference of probability over all sequences."""
    return max(abs(got.get(key, 0) - expected.get(key, 0)) for key in got.keys() | expected.keys())
