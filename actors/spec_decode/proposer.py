"""Where proposals come from, and how long they are.

The draft's own come through its client, the coordinator's drafters are asked here. All are part of
a tree; where a row has one chain, those that `engine.drafters` names before the draft go first, the
others where the draft has nothing.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from outrider.actors.lookahead.controller import Controller
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import (
    MODELS,
    NOBODY,
    DraftChoice,
    DraftPasses,
    RoundReport,
    RowReport,
)
from outrider.actors.scheduling.scheduler import SchedulerOutput, told_k
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.drafters.guess import Guess
from outrider.actors.spec_decode.drafters.registry import (
    ChosenDrafter,
    Drafter,
    DrafterKind,
    DrafterSettings,
    Place,
)
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.transport.draft_tree import path_to
from outrider.actors.transport.rows import SparseRow, TokenId
from outrider.actors.transport.worker_client import WorkerClient
from outrider.actors.trees.chances import Edge

USUAL = DrafterSettings()
SMOOTHING = 1 / 8


class Proposal(NamedTuple):
    """Tokens for the target to judge; none is plain decoding."""

    tokens: tuple[TokenId, ...] = ()
    rows: tuple[SparseRow, ...] = ()  # one per token where it was drawn in rejection mode
    drafters: tuple[str, ...] = ()  # of each token, a name of the registry
    parents: tuple[int, ...] = ()  # see transport/draft_tree.py
    edges: tuple[Edge, ...] = ()  # of each token, see trees/chances.py; of other drafters' guesses
    promised: float = 0.0  # of its tokens, how many should be accepted by what chances are known

    @property
    def drafter(self) -> str:
        """Who made it: the draft or a head, where any of it is its own."""
        models = (drafter for drafter in self.drafters if drafter in MODELS)
        return next(models, self.drafters[0] if self.drafters else NOBODY)

    def chain(self) -> "Proposal":
        """The first token, the first behind it, and so on."""
        if not self.parents:
            return self
        path = [0]
        for node, parent in enumerate(self.parents[1:], 1):
            if parent == path[-1]:
                path.append(node)
        return Proposal(
            tuple(self.tokens[n] for n in path),
            (),
            tuple(self.drafters[n] for n in path),
            edges=tuple(self.edges[n] for n in path),
        )

    def along(self, node: int) -> tuple[TokenId, ...]:
        """The tokens down to this one; none for -1."""
        return tuple(self.tokens[at] for at in path_to(node, self.parents))


NOTHING = Proposal()

Fallback = Callable[[Sequence], Iterator[Proposal]]
Proposals = dict[int, Proposal]  # by sequence


class DraftClient(Protocol):
    """The draft worker as it is used: LockstepDraft, or AheadDraft."""

    failure: str  # why it had no answer when last asked
    passes: list[DraftPasses]  # told of and not yet taken

    def use(self, client: WorkerClient | None) -> None:
        """Go on with this worker, or with none; a new one knows of no sequence yet."""
        ...

    def follow(self, running: list[Sequence]) -> None:
        """Have the draft close what has ended, and open what runs and is drafted for."""
        ...

    async def propose(
        self, plan: SchedulerOutput, given: Proposals, fallback: Fallback
    ) -> Proposals:
        """Proposals; `fallback` has others, the preferred first; those `given` are not asked."""
        ...


@dataclass(slots=True)
class _Reader:
    """A drafter, and how far it has read its sequence."""

    drafter: Drafter
    position: int

    def guess(self, sequence: Sequence, k: int) -> Guess:
        if self.position < sequence.num_committed:
            self.drafter.extend(sequence.since(self.position))
            self.position = sequence.num_committed
        return self.drafter.propose(k)


class Proposer:
    """Every source of proposals, and the controller that sets their length."""

    def __init__(
        self,
        draft: DraftClient,
        draft_length: DraftLength,
        controller: Controller,
        statistics: Statistics,
        drafters: tuple[ChosenDrafter, ...] = (),
        settings: DrafterSettings = USUAL,
    ) -> None:
        self.draft = draft
        self.draft_length = draft_length
        self._controller = controller
        self._num_rows = 0  # that got a verdict of late: of those that run some are being read
        self._num_drafted = 0.0  # a row, of late
        self._statistics = statistics
        kinds = [chosen.kind for chosen in drafters]
        at = next((n for n, kind in enumerate(kinds) if kind.place is Place.DRAFT), 0)
        self._before = [kind for kind in kinds[:at] if kind.place is Place.COORDINATOR]
        self._behind = [kind for kind in kinds[at:] if kind.place is Place.COORDINATOR]
        self._follow = {kind.name: kind.start(settings) for kind in kinds if kind.start}
        self._drafters: dict[int, dict[str, _Reader]] = {}  # of each sequence, by kind

    def choose(self, running: list[Sequence]) -> DraftChoice:
        """This round's choice; the draft is told who runs."""
        num_rows = min(len(running), self._num_rows or len(running))
        choice = self.draft_length.choice = self._controller.choose(max(1, num_rows))
        num_telling = sum(s.request.sampling.num_top_logprobs > 0 for s in running)
        self.draft_length.told_k = told_k(num_telling)
        self._statistics.count("k_reason", choice.reason)
        self._statistics.set(reason=choice.reason.value)
        self.draft.follow(running)
        for seq_id in self._drafters.keys() - {sequence.seq_id for sequence in running}:
            for reader in self._drafters.pop(seq_id).values():
                reader.drafter.end()
        return choice

    def num_expected(self, choice: DraftChoice) -> int:
        """Tokens that each row will have drafted: as many as of late, where the price decides."""
        if choice.reason is Reason.FIXED:
            return choice.most
        return min(choice.most, math.ceil(self._num_drafted))

    async def propose(self, plan: SchedulerOutput) -> Proposals:
        """For rows that have one."""
        return await self.draft.propose(plan, self.preferred(plan), self.fallback)

    def preferred(self, plan: SchedulerOutput) -> Proposals:
        """Of the drafters that go before the draft."""
        if not self._before:
            return {}
        found = ((s.seq_id, next(self._guesses(self._before, s), None)) for s in plan.rows)
        return {seq_id: proposal.chain() for seq_id, proposal in found if proposal is not None}

    def fallback(self, sequence: Sequence) -> Iterator[Proposal]:
        """Of the drafters behind it, each that has anything."""
        return self._guesses(self._behind, sequence)

    def _guesses(self, kinds: list[DrafterKind], sequence: Sequence) -> Iterator[Proposal]:
        readers = self._drafters.get(sequence.seq_id)
        if readers is None:
            readers = self._drafters[sequence.seq_id] = self._readers(sequence)
        for kind in kinds:
            if (reader := readers.get(kind.name)) is None:
                continue
            k = self.draft_length.guessed_k(sequence, kind.ignores_k)
            if k and (guess := reader.guess(sequence, k)).tokens:
                drafters = (kind.name,) * len(guess.tokens)
                yield Proposal(guess.tokens, (), drafters, guess.parents, guess.edges)

    def _readers(self, sequence: Sequence) -> "dict[str, _Reader]":
        """Of the drafters that its request allows, those that can help it."""
        request = sequence.request
        if not request.speculation.is_enabled:
            return {}
        allowed = [name for name in self._follow if request.speculation.may(name)]
        found = ((name, self._follow[name](request)) for name in allowed)
        position = len(request.prompt_ids)
        return {name: _Reader(drafter, position) for name, drafter in found if drafter is not None}

    def observe(
        self,
        choice: DraftChoice,
        rows: list[RowReport],
        num_prompt_tokens: int,
        verify_s: float,
        round_s: float,
    ) -> None:
        """Learn from a round, whose forward took in so many tokens of prompts beside its rows."""
        num_drafted = sum(row.num_drafted for row in rows)
        if rows:
            self._num_rows = len(rows)
            self._num_drafted += (num_drafted / len(rows) - self._num_drafted) * SMOOTHING
        passes, self.draft.passes = tuple(self.draft.passes), []
        self._statistics.add(
            num_draft_passes=sum(each.num_passes for each in passes),
            num_draft_fed=sum(each.num_tokens for each in passes),
            draft_step_s=sum(each.seconds for each in passes),
        )
        num_tokens = len(rows) + num_drafted + num_prompt_tokens
        self._controller.observe(
            RoundReport(choice, tuple(rows), num_tokens, verify_s, round_s, passes)
        )
