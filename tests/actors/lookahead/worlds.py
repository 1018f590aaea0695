"""Worlds in which the best k can be counted out: draft, target and rows in lockstep, as numbers."""

import random
from dataclasses import dataclass

from outrider.actors.lookahead.controller import DraftChoice
from outrider.actors.lookahead.round_report import (
    DRAFT,
    NGRAM,
    NOBODY,
    DraftPasses,
    RoundReport,
    RowReport,
)

MAX_K = 16


@dataclass
class World:
    """Milliseconds throughout. What a test changes between rounds is how the world drifts."""

    num_rows: int = 1
    acceptance: float = 0.8  # of each drafted token
    ngram_acceptance: float = 0.0
    fixed_ms: float = 12.0  # of a verify
    token_ms: float = 0.0  # of a verify, for each token
    free_tokens: int = 0  # that cost nothing, as on a GPU that waits for its memory
    step_ms: float = 1.5  # of the draft
    step_token_ms: float = 0.0
    rest_ms: float = 0.1
    noise: float = 0.0  # standard deviation of each time, relative
    outlier_every: int = 0  # rounds between two verifies of 200 ms
    seed: int = 1
    clock_ms: float = 0.0
    num_tokens: int = 0
    num_rounds: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def verify_ms(self, num_tokens: float) -> float:
        return self.fixed_ms + self.token_ms * max(0.0, num_tokens - self.free_tokens)

    def draft_ms(self, num_tokens: float) -> float:
        return self.step_ms + self.step_token_ms * num_tokens

    def round(self, choice: DraftChoice) -> RoundReport:
        """One round of that choice."""
        drafted = [self._proposal(choice) for _ in range(self.num_rows)]
        num_tokens = self.num_rows + sum(count for _, count in drafted)
        verify_ms = self._noisy(self.verify_ms(num_tokens))
        if self.outlier_every and self.num_rounds % self.outlier_every == self.outlier_every - 1:
            verify_ms = 200.0
        draft = self._draft(choice)
        reports = tuple(self._judge(*each) for each in drafted)
        round_ms = verify_ms + self.rest_ms + sum(passes.seconds * 1000 for passes in draft)
        self.clock_ms += round_ms
        self.num_tokens += sum(report.num_accepted + 1 for report in reports)
        self.num_rounds += 1
        return RoundReport(reports, num_tokens, verify_ms / 1000, round_ms / 1000, draft)

    def _noisy(self, ms: float) -> float:
        return max(0.1 * ms, ms * self._random.gauss(1, self.noise)) if self.noise else ms

    def _proposal(self, choice: DraftChoice) -> tuple[str, int]:
        if choice.k:
            return DRAFT, choice.k
        if self.ngram_acceptance and choice.ngram_k:
            return NGRAM, choice.ngram_k
        return NOBODY, 0

    def _draft(self, choice: DraftChoice) -> tuple[DraftPasses, ...]:
        if choice.k == 0:
            return ()
        ms = choice.k * self._noisy(self.draft_ms(self.num_rows))
        return (DraftPasses(choice.k, choice.k * self.num_rows, ms / 1000),)

    def _judge(self, drafter: str, num_drafted: int) -> RowReport:
        chance = self.ngram_acceptance if drafter == NGRAM else self.acceptance
        num_accepted = 0
        while num_accepted < num_drafted and self._random.random() < chance:
            num_accepted += 1
        return RowReport(drafter, num_drafted, num_accepted)


def rate(world: World, choose, num_rounds: int) -> float:
    """Tokens per second over the next rounds of a world."""
    tokens, clock = world.num_tokens, world.clock_ms
    for _ in range(num_rounds):
        world.round(choose(world.num_rows))
    return 1000 * (world.num_tokens - tokens) / (world.clock_ms - clock)


def best_rate(**settings) -> float:
    """Of every constant choice: a draft's by its formula, copies by trying them out."""
    world = World(**settings | {"noise": 0.0})
    best = max(lockstep_rate(world, k) for k in range(MAX_K + 1))
    if world.ngram_acceptance:
        best = max(best, rate(world, lambda _: DraftChoice(0, MAX_K, ""), 1600 // world.num_rows))
    return best


def lockstep_rate(world: World, k: int) -> float:
    tokens = sum(world.acceptance**count for count in range(k + 1))
    ms = world.verify_ms(world.num_rows * (1 + k)) + k * world.draft_ms(world.num_rows)
    return 1000 * world.num_rows * tokens / (ms + world.rest_ms)


def plain_rate(**world) -> float:
    """Of plain decoding: every round is alike."""
    return rate(World(**world | {"noise": 0.0}), lambda _: DraftChoice(0, 0, ""), 1)


def drive(world: World, controller, num_rounds: int) -> list[DraftChoice]:
    """The controller runs the world; what it chose."""
    choices = []
    for _ in range(num_rounds):
        choices.append(controller.choose(world.num_rows))
        controller.observe(world.round(choices[-1]))
    return choices
