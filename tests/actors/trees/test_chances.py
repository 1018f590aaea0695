"""How often offers come true: from a prior on, by what was said of them."""

import random

import pytest

from outrider.actors.trees.chances import (
    BOUNDS,
    MEMORY,
    NUM_FIRST,
    NUM_GUESSES,
    PRIVATE,
    SAMPLED,
    Chances,
    copied_edge,
    counted_edge,
    draft_edge,
)


class Node:
    def __init__(self, token, **edges):
        self.token, self.edges = token, edges


def test_edges_tell_what_they_are_of():
    seen = {
        draft_edge(prob, rank, mode)
        for prob in (0.0, *BOUNDS)
        for rank in range(NUM_GUESSES)
        for mode in (0, SAMPLED, PRIVATE)
    }
    assert len(seen) == 10 * 8 * 2 + 10 * 7 + 1, "nothing is said of what was drawn"
    assert (
        draft_edge(0.5, 4, SAMPLED) == draft_edge(0.64, 5, SAMPLED) != draft_edge(0.5, 6, SAMPLED)
    )


@pytest.mark.parametrize("mode", [0, SAMPLED])
def test_a_prior_takes_the_draft_at_its_word(mode):
    chances = Chances()
    for prob in (0.0, *BOUNDS):
        known = [chances.of("draft", draft_edge(prob, r, mode)) for r in range(NUM_GUESSES)]
        assert known == sorted(known, reverse=True) or prob < 0.2
        assert all(0 < chance < 1 for chance in known)
    firsts = [chances.of("draft", draft_edge(prob, 0, mode)) for prob in (0.0, *BOUNDS)]
    assert firsts == sorted(firsts)


def test_it_learns_from_every_drafter_at_once():
    chances, rng = Chances(), random.Random(1)
    for _ in range(2000):
        token = int(rng.random() < 0.3)  # 1 is what the draft says, 0 what the copy says
        chances.learn([Node(1, draft=36), Node(0, ngram=2, draft=37), Node(7, other=0)], token)
    assert chances.of("draft", 36) == pytest.approx(0.3, abs=0.05)
    assert chances.of("ngram", 2) == pytest.approx(0.7, abs=0.05)
    assert chances.of("draft", 37) == pytest.approx(0.7, abs=0.05)
    assert chances.of("other", 0) < 0.01
    assert chances.of("ngram", 0) == 0.5  # not seen


def test_it_forgets():
    chances = Chances()
    for _ in range(5000):
        chances.learn([Node(1, draft=0)], 1)
    assert chances.of("draft", 0) > 0.98
    for _ in range(int(MEMORY)):
        chances.learn([Node(1, draft=0)], 2)
    assert chances.of("draft", 0) < 0.45
    for _ in range(int(3 * MEMORY)):
        chances.learn([Node(1, draft=0)], 2)
    assert chances.of("draft", 0) < 0.05


def test_the_typical_is_of_first_guesses_only():
    chances = Chances()
    for _ in range(200):
        chances.learn([Node(1, draft=draft_edge(0.9, 0)), Node(2, ngram=0)], 1)
        chances.learn([Node(1, draft=draft_edge(0.9, 1))], 5)
    assert chances.typical > 0.95
    assert chances.late_guess == chances.of("draft", draft_edge(0.0, NUM_FIRST))


def test_what_is_copied_is_believed_the_more_agrees_before_it():
    chances = Chances()
    several = [(1, 0.2), (1, 0.5), (2, 0.8), (1, 1.0), (2, 1.0)]
    shares = [chances.of("suffix", counted_edge(8, num, share)) for num, share in several]
    assert shares == sorted(set(shares))
    assert shares[-1] == chances.of("suffix", copied_edge(8)), "what all go on with is a copy"
    assert shares[-1] < chances.of("ngram", copied_edge(8)), "of another text"
    edges = [copied_edge(agreed) for agreed in range(200)]
    assert edges == sorted(edges)
    found = [chances.of("ngram", edge) for edge in dict.fromkeys(edges)]
    assert found == sorted(found)
    assert found[0] == 0.5
    assert 0.95 < found[-1] < 1
