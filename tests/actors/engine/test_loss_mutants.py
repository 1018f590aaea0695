"""The tests of losses can fail: each planted bug is caught by one of them."""

import msgspec
import pytest
from actors.engine import test_losses

from outrider.actors.engine.coordinator import Coordinator
from outrider.actors.errors import OutriderError
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.lockstep import LockstepDraft


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
    names_a_proposal_twice: [
        (test_losses.test_a_proposal_that_was_never_judged_keeps_its_name, ())
    ],
    takes_the_next_draft_for_the_last: [
        (test_losses.test_while_the_draft_is_away_rows_run_plainly_and_then_it_follows_again, ())
    ],
}


async def run(tests):
    for test, arguments in tests:
        await test(*arguments)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_a_planted_bug_is_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, OutriderError)):
        await run(MUTANTS[mutant])
