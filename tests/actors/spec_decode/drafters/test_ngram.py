"""Prompt lookup: which earlier place is copied, that it costs what it may, and nothing more."""

import random

import pytest
from actors.spec_decode.drafters.counted_lines import num_lines

from outrider.actors.spec_decode.drafters import ngram
from outrider.actors.spec_decode.drafters.guess import NO_GUESS, Guess
from outrider.actors.spec_decode.drafters.ngram import NgramDrafter
from outrider.actors.trees.chances import copied_edge


def proposal(ids, max_tokens=4, **kwargs):
    drafter = NgramDrafter(**kwargs)
    drafter.extend(ids)
    return drafter.propose(max_tokens).tokens


def test_it_copies_what_followed_the_same_pair():
    assert proposal([1, 2, 3, 4, 5, 6, 1, 2], 3) == (3, 4, 5)


@pytest.mark.parametrize("ids", [[], [1], [1, 2], [1, 2, 3, 4], [1, 2, 3, 2]])
def test_without_an_earlier_place_nothing_is_guessed(ids):
    assert proposal(ids) == ()


def test_the_longest_match_beats_a_later_shorter_one():
    ids = [9, 1, 2, 70, 0, 8, 1, 2, 71, 0, 9, 1, 2]
    assert proposal(ids, 1) == (70,)


def test_the_most_recent_of_equal_matches_is_copied():
    assert proposal([1, 2, 70, 0, 1, 2, 71, 0, 1, 2], 2) == (71, 0)


def test_text_that_loops_is_continued_beyond_its_end():
    assert proposal([5, 6, 7, 5, 6, 7, 5, 6], 8) == (7, 5, 6, 7, 5, 6, 7, 5)
    assert proposal([3, 3, 3], 5) == (3,) * 5


@pytest.mark.parametrize("max_tokens", range(6))
def test_no_guess_is_longer_than_asked(max_tokens):
    assert len(proposal([1, 2, 3, 4, 5, 6, 1, 2], max_tokens)) == max_tokens


def test_in_which_portions_the_ids_came_does_not_matter():
    source = random.Random(1)
    ids = [source.randrange(12) for _ in range(600)]
    drafter, at = NgramDrafter(), 0
    while at < len(ids):
        count = source.randrange(1, 9)
        drafter.extend(ids[at : at + count])
        at += count
        assert drafter.propose(5).tokens == drafter.propose(5).tokens == proposal(ids[:at], 5)


def test_it_agrees_with_a_search_through_all_places(monkeypatch):
    """Without its bounds, it is the longest match wherever it lies, the last of equals."""
    monkeypatch.setattr(ngram, "MAX_PLACES", 10**6)
    monkeypatch.setattr(ngram, "MAX_MATCH", 10**6)
    source = random.Random(2)
    ids = [source.randrange(6) for _ in range(250)]
    num_found = 0
    for end in range(len(ids)):
        known = ids[:end]
        best = (0, 0)
        for at in range(ngram.PAIR, end):
            length = 0
            while length < at and known[at - 1 - length] == known[end - 1 - length]:
                length += 1
            if length >= ngram.PAIR:
                best = max(best, (length, at))
        expected = known[best[1]] if best[1] else None
        assert (*proposal(known, 1), None)[0] == expected
        num_found += best[1] > 0
    assert num_found > 100


def test_what_is_remembered_is_bounded():
    source = random.Random(3)
    ids = [source.randrange(1000) for _ in range(5000)]
    drafter = NgramDrafter(window=100)
    for at in range(0, len(ids), 7):
        drafter.extend(ids[at : at + 7])
        assert len(drafter._ids) == len(drafter._before) <= 200
        assert len(drafter._last) <= 200
    assert drafter._ids == ids[-len(drafter._ids) :]
    assert len(drafter._ids) >= 100


def test_a_prompt_beyond_the_window_is_known_by_its_end():
    ids = [1, 2, 77, *range(10, 200), 3, 4, 88, 0, 0]
    assert proposal([*ids, 3, 4], 1, window=50) == (88,)
    assert proposal([*ids, 1, 2], 1, window=50) == ()


def test_a_window_too_small_for_a_pair_is_refused():
    with pytest.raises(ValueError, match="Got window=1, expected at least 2"):
        NgramDrafter(window=1)


def test_a_guess_costs_no_more_in_a_long_sequence():
    """The worst text: every pair alike, every match broken just before it is long enough."""
    block = [*([1] * (ngram.MAX_MATCH - 2)), 2]
    drafter = NgramDrafter()
    drafter.extend(block * 20)
    short = num_lines(ngram, drafter.propose, 4)
    drafter.extend(block * 200)
    assert num_lines(ngram, drafter.propose, 4) <= short + 8
    assert short < 10 * ngram.MAX_PLACES * ngram.MAX_MATCH
    assert num_lines(ngram, drafter.extend, [1] * 100) < 1200


def test_it_says_how_long_the_match_is():
    drafter = NgramDrafter()
    drafter.extend((1, 2, 3, 4, 9, 8, 7, 2, 3, 4))
    assert drafter.propose(1) == Guess((9,), (copied_edge(3),))
    assert drafter.propose(2) == Guess((9, 8), (copied_edge(3), copied_edge(4)))
    drafter.extend((5,))
    assert drafter.propose(1) == NO_GUESS
