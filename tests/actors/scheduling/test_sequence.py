"""A sequence: every legal step, every illegal one, and tokens that only a commit changes."""

import itertools

import pytest

from outrider.actors.errors import IllegalTransition
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.sequence import TRANSITIONS, Event, Sequence, State


def sequence(state=State.WAITING, prompt=(1, 2, 3), max_len=10):
    made = Sequence(1, Request(prompt, SamplingParams(), seed=0), max_len)
    made.state = state
    return made


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_the_table_is_the_whole_law(state, event):
    subject = sequence(state)
    if (state, event) in TRANSITIONS:
        subject.apply(event)
        assert subject.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"Got {event.name} for a sequence that is"):
            subject.apply(event)
        assert subject.state is state


def test_what_has_ended_stays_ended():
    assert not any(state.is_final for state, _ in TRANSITIONS)


def test_commit_appends():
    subject = sequence(State.DECODING)
    subject.commit((7, 8))
    subject.commit((9,))
    assert subject.output_ids == [7, 8, 9]
    assert (subject.num_committed, subject.num_left) == (6, 4)
    assert subject.since(4) == (8, 9)


@pytest.mark.parametrize("ids", [(), (1,) * 8], ids=["nothing", "too much"])
def test_an_illegal_commit_changes_nothing(ids):
    subject = sequence(State.DECODING)
    with pytest.raises(
        IllegalTransition, match=f"Got {len(ids)} tokens to commit, expected 1 to 7"
    ):
        subject.commit(ids)
    assert subject.output_ids == []


def test_a_commit_before_the_prompt_is_computed_changes_nothing():
    subject = sequence(State.PREFILLING)
    with pytest.raises(IllegalTransition):
        subject.commit((1,))
    assert subject.output_ids == []


def test_open_row_is_enough_to_start_again():
    subject = sequence(State.DECODING)
    subject.commit((7, 8))
    row = subject.open_row()
    assert (row.prompt_ids, row.committed_ids) == ((1, 2, 3), (7, 8))
    assert row.max_len == 10


def test_reopening_computes_everything_again_under_a_new_proposal():
    subject = sequence(State.DECODING)
    subject.num_prefilled = 2
    subject.commit((7, 8))
    subject.reopen()
    assert subject.state is State.PREFILLING
    assert (subject.num_committed, subject.num_to_prefill) == (5, 4)
    assert (subject.output_ids, subject.num_proposals) == ([7, 8], 1)
