"""The tests of losses can fail: each planted bug is caught by one of them."""

import asyncio

import msgspec
import pytest
from actors.engine import test_blame, test_losses

from outrider.actors.engine import isolation
from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.engine.isolation import Isolation, Judged, judged
from outrider.actors.engine.suspects import Suspects
from outrider.actors.engine.target_client import TargetClient
from outrider.actors.errors import OutriderError, WorkerLost
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.transport.messages import NO_TIME, VerifyReply


def forgets_to_open_again(patch):
    """A new target hears only of what is admitted from then on."""

    async def attend(self):
        await self._target.successor()
        self._proposer.draft.use(self._draft.client)

    patch.setattr(Coordinator, "_attend", attend)


def drops_the_committed_ids(patch):
    """A new target is told of prompts only."""
    open_row = Sequence.open_row
    patch.setattr(
        Sequence,
        "open_row",
        lambda self: msgspec.structs.replace(open_row(self), committed_ids=()),
    )


def computes_everything_at_once(patch):
    """What a new target has to compute is not cut into chunks."""

    def opened(self, num_cached):
        self.num_prefilled = self.num_committed - 1

    patch.setattr(Sequence, "opened", opened)


def names_a_proposal_twice(patch):
    """The round that was lost and the one after it speak of the same proposal."""
    reopen = Sequence.reopen

    def mutant(self):
        reopen(self)
        self.num_proposals -= 1

    patch.setattr(Sequence, "reopen", mutant)


def takes_the_next_draft_for_the_last(patch):
    """A new draft is asked about sequences that it never opened."""

    def use(self, client):
        self._client = client

    patch.setattr(LockstepDraft, "use", use)


def fails_a_whole_round(patch):
    """An error of one row is told to all."""

    async def verify(self, question, pending):
        try:
            return judged(question, await self._ask(question))
        except WorkerLost:
            raise
        except OutriderError as error:
            return Judged(
                VerifyReply((), NO_TIME, 0), failures=dict.fromkeys(question.seq_ids, error)
            )

    patch.setattr(Isolation, "verify", verify)


def drops_a_proposal_at_once(patch):
    """In rejection mode too."""
    patch.setattr(isolation, "_ways", lambda question: iter([question, isolation.plain(question)]))


def keeps_a_proposal_that_breaks(patch):
    patch.setattr(isolation, "_proposed", lambda question: set())


def never_asks_for_less(patch):
    patch.setattr(isolation, "_less", lambda question, pending: None)


def suspects_nobody(patch):
    """After a death everybody runs together again."""
    patch.setattr(Suspects, "group", lambda self, running, alive: running)
    patch.setattr(Suspects, "includes", lambda self, sequence: False)


def forgives_after_a_good_round(patch):
    """Deaths count only in a row."""
    group = Suspects.group

    def mutant(self, running, alive):
        for record in self._records.values():
            record.num_deaths = 0
        return group(self, running, alive)

    patch.setattr(Suspects, "group", mutant)


def blames_a_row_for_a_broken_target(patch):
    """No token of no request is asked for."""

    async def check(self, asked):
        pass

    patch.setattr(TargetClient, "check", check)


def never_halves(patch):
    died = Suspects.died

    def mutant(self, asked, has_proposals):
        found = died(self, asked, has_proposals)
        self._most = None
        return found

    patch.setattr(Suspects, "died", mutant)


def tells_an_open_error_to_all(patch):
    async def settle(self, failures, is_well):
        for _, error in failures:
            self._streams.fail_all(error)

    patch.setattr(TargetClient, "settle", settle)


DEATHS = [
    (test_losses.test_whichever_call_a_worker_dies_of, (role, number, True))
    for role in ("target", "draft")
    for number in (4, 9, 15)
]
MUTANTS = {
    forgets_to_open_again: DEATHS,
    drops_the_committed_ids: DEATHS,
    computes_everything_at_once: [
        (test_losses.test_what_was_committed_is_opened_anew_and_computed_in_chunks, ())
    ],
    fails_a_whole_round: [
        (test_blame.test_one_poisoned_row_of_many_fails_alone, (test_blame.of(9), False))
    ],
    drops_a_proposal_at_once: [
        (test_blame.test_in_rejection_mode_the_same_proposal_is_asked_once_more, ())
    ],
    keeps_a_proposal_that_breaks: [(test_blame.test_a_proposal_that_breaks_a_round_is_dropped, ())],
    never_asks_for_less: [
        (test_blame.test_a_prompt_that_is_too_much_at_once_is_computed_by_halves, (is_last,))
        for is_last in (False, True)
    ],
    suspects_nobody: [
        (test_blame.test_each_suspect_runs_alone_until_it_has_committed, ()),
    ],
    forgives_after_a_good_round: [
        (test_blame.test_innocents_are_never_given_up_and_each_death_alone_counts, ())
    ],
    blames_a_row_for_a_broken_target: [
        (test_blame.test_a_target_that_answers_everything_with_an_error_is_replaced, ())
    ],
    never_halves: [(test_blame.test_where_nobody_dies_alone_rounds_get_smaller, (3,))],
    tells_an_open_error_to_all: [
        (test_blame.test_what_cannot_be_opened_fails_alone_and_nobody_reads_its_error, ())
    ],
    names_a_proposal_twice: [
        (test_losses.test_a_proposal_that_was_never_judged_keeps_its_name, ())
    ],
    takes_the_next_draft_for_the_last: [
        (test_losses.test_while_the_draft_is_away_rows_run_plainly_and_then_it_follows_again, ())
    ],
}


def run(tests):
    for test, arguments in tests:
        outcome = test(*arguments)
        if asyncio.iscoroutine(outcome):  # else it had a loop of its own
            asyncio.run(outcome)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, OutriderError)):
        run(MUTANTS[mutant])
