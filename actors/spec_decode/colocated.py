"""The draft beside its target in one process, as the coordinator asks the two together.

The pair grows trees, chooses what is worth its place and judges it, all in one message. The trees
of sequences that the draft does not follow are here, of what other drafters offer.
"""

from outrider.actors.lookahead.round_report import DraftPasses
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.proposer import NOTHING, Fallback, Proposal, Proposals
from outrider.actors.transport.messages import Round, RoundReply, Verify
from outrider.actors.transport.rows import GrowRow, GuessRow, TurnRow

Guesses = dict[int, tuple[Proposal, ...]]  # of other drafters, by sequence


class ColocatedDraft(AheadDraft):
    """A draft that takes turns with its target."""

    async def propose_alone(
        self, plan: SchedulerOutput, given: Proposals, fill: Fallback
    ) -> tuple[Proposals, Guesses]:
        """Proposals of rows that the draft does not follow; and for each that it does, what others
        expect there.
        """
        guesses, rest = Guesses(), list[Sequence]()
        price = self._prices.price(len(plan.rows)) if self._prices else None
        for sequence in plan.rows:
            followed, before = self._of(sequence), given.get(sequence.seq_id, NOTHING)
            followed.catch_up()
            followed.learn()
            if not self._is_followed(sequence) or (followed.is_drawn and before.tokens):
                rest.append(sequence)
                continue
            found = () if followed.is_drawn else (before, *fill(sequence))
            guesses[sequence.seq_id] = tuple(guess for guess in found if guess.tokens)
        alone = SchedulerOutput(rest, [], plan.num_nodes)
        proposals = await self.propose(alone, given, fill) if rest else Proposals()
        self._price = price  # of all rows
        return proposals, guesses

    def ask(self, plan: SchedulerOutput, guesses: Guesses, verify: Verify) -> Round | None:
        """The round of a pair; None where there is nothing for the draft to do."""
        least = self._least_chance(len(plan.rows))
        asked = {row.seq_id for row in verify.rows}
        turns = tuple(
            TurnRow(
                grow=self._grow_row(sequence, *least),
                k=self._draft_length.draft_k(sequence),
                is_priced=self._prices is not None and self._followed[sequence.seq_id].is_priced,
                num_nodes=self._draft_length.num_nodes(sequence, plan.num_nodes),
                guesses=tuple(
                    GuessRow(g.drafter, g.tokens, g.parents, g.edges)
                    for g in guesses[sequence.seq_id]
                ),
            )
            for sequence in plan.rows
            if sequence.seq_id in guesses and sequence.seq_id in asked
        )
        waiting = tuple(
            self._grow_row(sequence, *least)
            for sequence, _ in plan.prefill
            if self._is_followed(sequence) and not sequence.state.is_final
        )
        if not turns and not waiting:
            return None
        price = self._price
        rate, curve = (price.rate, price.curve.points) if price else (0.0, ())
        return Round(turns, waiting, verify, rate, curve)

    def take(self, asked: Round, answer: RoundReply) -> Proposals:
        """What was judged; what the draft cannot follow any more is not asked again."""
        self.failure = "it fails for every sequence" if answer.has_draft_failed else ""
        if not answer.has_draft_failed:
            for row in (*(turn.grow for turn in asked.turns), *asked.waiting):
                if followed := self._followed.get(row.seq_id):
                    followed.num_told = row.num_committed
        for stopped in answer.stops:
            if followed := self._followed.get(stopped.seq_id):
                followed.is_stopped = True
                self._statistics.count("draft_stopped", stopped.stop)
        if price := self._price:
            num_tokens = sum(1 + len(row.tokens) for row in asked.verify.rows)
            num_tokens += sum(len(row.tokens) for row in answer.chosen)
            self._statistics.set(price=price.of(num_tokens))
        counts = {(row.drafter, row.what): row.num for row in answer.counts}
        self._statistics.count_nodes(counts)
        for step in answer.draft:
            self._trace.span(
                "draft", "step", step.started_s, step.step_s, num_tokens=step.num_tokens
            )
            self.passes.append(DraftPasses(1, step.num_tokens, step.step_s))
        return {
            row.seq_id: Proposal(row.tokens, (), row.drafters, row.parents, promised=row.promised)
            for row in answer.chosen
        }

    def _is_followed(self, sequence: Sequence) -> bool:
        followed = self._followed.get(sequence.seq_id)
        is_grown = followed is not None and followed.is_grown
        return is_grown and self._draft_length.draft_k(sequence) > 0

    def _grow_row(self, sequence: Sequence, min_chance: float, num_guesses: int) -> GrowRow:
        followed = self._followed[sequence.seq_id]
        is_free = self._is_free(followed)
        return GrowRow(
            seq_id=sequence.seq_id,
            num_committed=sequence.num_committed,
            committed=sequence.since(followed.num_told),
            max_depth=max(0, sequence.num_left - 1),
            min_chance=min_chance if is_free else 0.0,
            num_guesses=num_guesses if is_free else 1,
        )

    def _tell(self) -> None:
        """Nothing is told beside rounds."""
        self._untold = []
        self._count()
