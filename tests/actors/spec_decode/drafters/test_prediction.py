"""The client's prediction as a drafter."""

from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.spec_decode.drafters.prediction import FIRST_LEN, PredictionDrafter


def test_it_reads_on_from_the_first_token():
    drafter = PredictionDrafter(range(100))
    assert drafter.propose(3) == (0, 1, 2)
    drafter.extend((0, 1, 2, 3))
    assert drafter.propose(2) == (4, 5)


def test_it_waits_after_a_departure_until_the_text_is_back():
    drafter = PredictionDrafter((1, 2, 3, 4, 5, 6, 7))
    drafter.extend((1, 2, 99))
    assert drafter.propose(9) == ()
    drafter.extend((4,))
    assert drafter.propose(9) == ()  # one id says little
    drafter.extend((5,))
    assert drafter.propose(9) == (6, 7)


def test_a_repeated_passage_is_taken_up_ahead_not_behind():
    drafter = PredictionDrafter((1, 2, 3, 1, 2, 4))
    drafter.extend((1, 2, 9, 1, 2))
    assert drafter.propose(9) == (4,)


def test_it_ends_with_the_prediction():
    drafter = PredictionDrafter((1, 2))
    drafter.extend((1, 2))
    assert drafter.propose(9) == ()
    drafter.extend((1, 2))
    assert drafter.propose(9) == ()
    assert PredictionDrafter(()).propose(9) == ()


def test_proposals_grow_while_right_and_shrink_when_wrong():
    drafter = PredictionDrafter(range(100))
    assert len(drafter.propose(99)) == FIRST_LEN
    drafter.extend(range(FIRST_LEN + 1))
    assert len(drafter.propose(99)) == min(MAX_K, 2 * FIRST_LEN)
    at = FIRST_LEN + 1
    drafter.extend((at, at + 1, at + 2, 999, 50, 51))  # three right, then away and back again
    assert drafter.propose(99) == (52, 53, 54, 55)
