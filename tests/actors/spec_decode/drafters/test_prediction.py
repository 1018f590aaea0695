"""The client's prediction as a drafter."""

import random

from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.spec_decode.drafters import prediction as module
from outrider.actors.spec_decode.drafters.guess import NO_GUESS, copied
from outrider.actors.spec_decode.drafters.prediction import FIRST_LEN, PredictionDrafter


def test_it_reads_on_from_the_first_token():
    drafter = PredictionDrafter(range(100))
    assert drafter.propose(3).tokens == (0, 1, 2)
    drafter.extend((0, 1, 2, 3))
    assert drafter.propose(2).tokens == (4, 5)


def test_it_waits_after_a_departure_until_the_text_is_back():
    drafter = PredictionDrafter((1, 2, 3, 4, 5, 6, 7))
    drafter.extend((1, 2, 99))
    assert drafter.propose(9).tokens == ()
    drafter.extend((4,))
    assert drafter.propose(9).tokens == ()  # one id says little
    drafter.extend((5,))
    assert drafter.propose(9).tokens == (6, 7)


def test_a_repeated_passage_is_taken_up_ahead_not_behind():
    drafter = PredictionDrafter((1, 2, 3, 1, 2, 4))
    drafter.extend((1, 2, 9, 1, 2))
    assert drafter.propose(9).tokens == (4,)


def test_it_ends_with_the_prediction():
    drafter = PredictionDrafter((1, 2))
    drafter.extend((1, 2))
    assert drafter.propose(9).tokens == ()
    drafter.extend((1, 2))
    assert drafter.propose(9).tokens == ()
    assert PredictionDrafter(()).propose(9).tokens == ()


def test_proposals_grow_while_right_and_shrink_when_wrong():
    drafter = PredictionDrafter(range(100))
    assert len(drafter.propose(99).tokens) == FIRST_LEN
    drafter.extend(range(FIRST_LEN + 1))
    assert len(drafter.propose(99).tokens) == min(MAX_K, 2 * FIRST_LEN)
    at = FIRST_LEN + 1
    drafter.extend((at, at + 1, at + 2, 999, 50, 51))  # three right, then away and back again
    assert drafter.propose(99).tokens == (52, 53, 54, 55)


def test_a_prediction_is_gone_through_once_for_all_choices(monkeypatch):
    """27 ms a token it was, for one of 100,000: it was searched whole each time."""
    indexed = []
    places = module.PairPlaces
    monkeypatch.setattr(module, "PairPlaces", lambda ids: indexed.append(ids) or places(ids))
    prediction = tuple(random.Random(1).choices(range(1000), k=10_000))
    drafters = [PredictionDrafter(prediction) for _ in range(64)]  # of one request's choices
    for drafter in drafters:
        drafter.extend(range(2000, 2100))
        assert drafter.propose(8).tokens == ()
    assert len(indexed) == 1


def test_the_nearest_place_ahead_is_found_wherever_it_is():
    rng = random.Random(2)
    for _ in range(200):
        prediction = tuple(rng.choices(range(4), k=rng.randrange(2, 40)))
        drafter, at = PredictionDrafter(prediction), 0
        drafter.extend((9,))  # it has left
        pair = tuple(rng.choices(range(4), k=2))
        drafter.extend(pair)
        places = [p for p in range(2, len(prediction) + 1) if prediction[p - 2 : p] == pair]
        ahead = [p for p in places if p > at]
        if prediction[:1] != (9,):
            assert drafter.propose(2).tokens == (prediction[ahead[0] :][:2] if ahead else ())


def test_it_says_how_far_it_agrees_with_the_text():
    drafter = PredictionDrafter((1, 2, 3, 4, 5, 6, 7))
    assert drafter.propose(1) == copied((1,), 0)
    drafter.extend((1, 2, 3))
    assert drafter.propose(2) == copied((4, 5), 3)
    drafter.extend((9,))
    assert drafter.propose(1) == NO_GUESS
    drafter.extend((4, 5))
    assert drafter.propose(4) == copied((6, 7), 2)
