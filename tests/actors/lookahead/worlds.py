"""Worlds in which the best choice can be counted out: draft, target and rows as numbers."""

import math
import random
from dataclasses import dataclass, field, replace

from outrider.actors.lookahead.adaptive import FANS
from outrider.actors.lookahead.controller import DraftChoice, Pipeline
from outrider.actors.lookahead.round_report import (
    DRAFT,
    NGRAM,
    NOBODY,
    DraftPasses,
    Lookup,
    RoundReport,
    RowReport,
)

MAX_K = 16


@dataclass
class World:
    """Milliseconds throughout. What a test changes between rounds is how the world drifts."""

    pipeline: Pipeline = Pipeline.LOCKSTEP
    num_rows: int = 1
    acceptance: float = 0.8  # of each drafted token
    ngram_acceptance: float = 0.0
    hit: float = 0.9  # of an outcome in a forecast of four guesses a position
    fixed_ms: float = 12.0  # of a verify
    token_ms: float = 0.0  # of a verify, for each token
    company: float = 1.0  # a verify beside a busy draft takes so many times as long
    drift: float = 0.0  # how far the machine's speed wanders, relative
    free_tokens: int = 0  # that cost nothing, as on a GPU that waits for its memory
    step_ms: float = 1.5  # of the draft
    step_token_ms: float = 0.0
    fullness: float = 1.0  # share of the branches that grow on, of those a verdict may come to
    rest_ms: float = 0.1
    noise: float = 0.0  # standard deviation of each time, relative
    outlier_every: int = 0  # rounds between two verifies of 200 ms
    seed: int = 1
    clock_ms: float = 0.0
    num_tokens: int = 0
    num_rounds: int = 0
    branches: list[int | None] = field(default_factory=list)  # of each row: its length, or none

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def verify_ms(self, num_tokens: float) -> float:
        return self.fixed_ms + self.token_ms * max(0.0, num_tokens - self.free_tokens)

    def draft_ms(self, num_tokens: float) -> float:
        return self.step_ms + self.step_token_ms * num_tokens

    def round(self, choice: DraftChoice) -> RoundReport:
        """One round of that choice."""
        self.branches = (self.branches + [None] * self.num_rows)[: self.num_rows]
        drafted = [self._proposal(choice, row) for row in range(self.num_rows)]
        num_tokens = self.num_rows + sum(count for _, count in drafted)
        verify_ms = self._noisy(self.verify_ms(num_tokens))
        verify_ms *= 1 + self.drift * math.sin(self.num_rounds / 97)
        if choice.k and self.pipeline is Pipeline.FORECAST:
            verify_ms *= self.company
        if self.outlier_every and self.num_rounds % self.outlier_every == self.outlier_every - 1:
            verify_ms = 200.0
        draft = self._draft(choice, verify_ms)
        reports = tuple(self._judge(choice, row, *drafted[row]) for row in range(self.num_rows))
        round_ms = verify_ms + self.rest_ms
        if self.pipeline is Pipeline.LOCKSTEP:
            round_ms += sum(passes.seconds * 1000 for passes in draft)
        self.clock_ms += round_ms
        self.num_tokens += sum(report.num_accepted + 1 for report in reports)
        self.num_rounds += 1
        return RoundReport(reports, num_tokens, verify_ms / 1000, round_ms / 1000, draft)

    def _noisy(self, ms: float) -> float:
        return max(0.1 * ms, ms * self._random.gauss(1, self.noise)) if self.noise else ms

    def _proposal(self, choice: DraftChoice, row: int) -> tuple[str, int]:
        if self.pipeline is Pipeline.LOCKSTEP and choice.k:
            return DRAFT, choice.k
        length = self.branches[row]
        if length is not None and choice.k:
            count = min(length, choice.k)
            return (DRAFT, count) if count else (NOBODY, 0)
        if self.ngram_acceptance and choice.ngram_k:
            return NGRAM, choice.ngram_k
        return NOBODY, 0

    def _draft(self, choice: DraftChoice, verify_ms: float) -> tuple[DraftPasses, ...]:
        if choice.k == 0:
            self._grown = 0
            return ()
        if self.pipeline is Pipeline.LOCKSTEP:
            ms = choice.k * self._noisy(self.draft_ms(self.num_rows))
            return (DraftPasses(choice.k, choice.k * self.num_rows, ms / 1000),)
        first = self.num_rows
        reached = sum(self.acceptance**count for count in range(choice.k + 1)) / (choice.k + 1)
        width = max(1, round(self.num_rows * choice.num_branches * reached * self.fullness))
        left_ms = verify_ms + self.rest_ms - self.draft_ms(first)
        self._grown = max(0, min(choice.k, int(left_ms / self.draft_ms(width))))
        step = DraftPasses(1, width, self._noisy(self.draft_ms(width)) / 1000)
        num_begun = min(choice.k, self._grown + 1)  # the last may end after the verdict
        return (DraftPasses(1, first, self.draft_ms(first) / 1000), *[step] * num_begun)

    def _judge(self, choice: DraftChoice, row: int, drafter: str, num_drafted: int) -> RowReport:
        chance = self.ngram_acceptance if drafter == NGRAM else self.acceptance
        num_accepted = 0
        while num_accepted < num_drafted and self._random.random() < chance:
            num_accepted += 1
        if self.pipeline is Pipeline.LOCKSTEP or choice.k == 0:
            self.branches[row] = None
            return RowReport(drafter, num_drafted, num_accepted)
        fan = choice.num_branches / (num_drafted + 1)
        is_hit = self._random.random() < 1 - (1 - self.hit) * (4 / max(fan, 0.25)) ** 0.5
        self.branches[row] = self._grown if is_hit else None
        return RowReport(drafter, num_drafted, num_accepted, Lookup.HIT if is_hit else Lookup.MISS)


def rate(world: World, choose, num_rounds: int) -> float:
    """Tokens per second over the next rounds of a world."""
    tokens, clock = world.num_tokens, world.clock_ms
    for _ in range(num_rounds):
        world.round(choose(world.num_rows))
    return 1000 * (world.num_tokens - tokens) / (world.clock_ms - clock)


def best_rate(**settings) -> float:
    """Of every constant choice: lockstep's by its formula, a forecast's by trying it out."""
    world = World(**settings | {"noise": 0.0})
    if world.pipeline is Pipeline.LOCKSTEP:
        return max(lockstep_rate(world, k) for k in range(MAX_K + 1))
    copies = (0, MAX_K) if world.ngram_acceptance else (0,)
    choices = [
        DraftChoice(k, max(1, round(fan * (k + 1))), ngram_k, "")
        for k in (0, 1, 2, 3, 4, 5, 6, 8, 12, 16)
        for fan in FANS
        for ngram_k in copies
    ]
    num_rounds = 1600 // world.num_rows
    return max(
        rate(replace(world, branches=[]), lambda _, choice=choice: choice, num_rounds)
        for choice in choices
    )


def lockstep_rate(world: World, k: int) -> float:
    tokens = sum(world.acceptance**count for count in range(k + 1))
    ms = world.verify_ms(world.num_rows * (1 + k)) + k * world.draft_ms(world.num_rows)
    return 1000 * world.num_rows * tokens / (ms + world.rest_ms)


def plain_rate(**world) -> float:
    """Of plain decoding: every round is alike."""
    return rate(World(**world | {"noise": 0.0}), lambda _: DraftChoice(0, 0, 0, ""), 1)


def drive(world: World, controller, num_rounds: int) -> list[DraftChoice]:
    """The controller runs the world; what it chose."""
    choices = []
    for _ in range(num_rounds):
        choices.append(controller.choose(world.num_rows))
        controller.observe(world.round(choices[-1]))
    return choices
