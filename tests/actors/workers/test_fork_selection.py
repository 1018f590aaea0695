"""Bets go where they are likeliest to come true, and are as many as asked for on average."""

import random
from collections import Counter

import pytest

from outrider.actors.workers.ahead.fork_selection import (
    MOST,
    UNKNOWN,
    WIDEST,
    Odds,
    Position,
    likeliest,
)
from outrider.actors.workers.ahead.token_tree import TokenTree

OWN, OTHERS = 1, tuple(range(100, 100 + WIDEST))


def position(prob, drafted=OWN):
    return Position(drafted, (OWN, *OTHERS), Odds().sure(prob))


def places(bets):
    return [(bet.num_accepted, bet.token) for bet in bets]


@pytest.mark.parametrize("prob", [0.0, 0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("drafted", [OWN, OTHERS[2], None])
def test_chances_are_no_more_than_certain(prob, drafted):
    """Of an outcome, whatever came before it; the better guess is never the less likely."""
    chances = [chance for chance, _ in position(prob, drafted).outcomes()]
    assert sum(chances) <= 1
    assert chances == sorted(chances, reverse=True)
    trunk = [position(prob, OWN if drafted is None else drafted)] * 5 + [position(prob, None)]
    assert sum(bet.chance for bet in likeliest(trunk)) <= 1


def test_nothing_is_bet_against_what_the_draft_is_sure_of():
    bets = likeliest([position(0.9999), position(0.2), position(0.9999), position(0.9, None)])
    assert {bet.num_accepted for bet in bets[:3]} == {1, 3}
    assert all(bet.chance < 1e-4 for bet in bets if bet.num_accepted in (0, 2))


def test_what_comes_late_is_reached_seldom():
    bets = likeliest([position(0.5)] * 4 + [position(0.5, None)])
    first = [bet.chance for bet in bets if bet.token == OTHERS[0]]
    assert first == sorted(first, reverse=True)
    assert [bet.num_accepted for bet in bets if bet.token == OTHERS[0]][:4] == [0, 1, 2, 3]


def test_behind_all_of_them_the_draft_goes_on_by_itself():
    assert places(likeliest([position(0.9), position(0.9, None)]))[0] == (1, OWN)


def test_against_a_copied_token_stands_the_drafts_own():
    """And what follows a token that the draft does not expect at all is hardly worth a guess."""
    bets = likeliest([position(0.8, OTHERS[1]), position(0.8, None)])
    assert places(bets)[0] == (0, OWN)
    assert (0, OTHERS[1]) not in places(bets)
    bets = likeliest([position(0.8, 999), position(0.8, None)])
    assert places(bets)[0] == (0, OWN)
    assert bets[0].chance > 20 * max(bet.chance for bet in bets if bet.num_accepted == 1)


def expect(tree, index, prob):
    """What a forward would: the node's own token is that of the trunk behind it."""
    node = tree.nodes[index]
    at = tree.trunk.index(index)
    is_last = at == len(tree.trunk) - 1
    node.next_token = OWN if is_last else tree.nodes[tree.trunk[at + 1]].token
    node.prob, node.guesses = prob, (node.next_token, *OTHERS)
    tree.feed([index])


def test_a_trunk_that_is_fed_in_parts_is_forked_in_parts():
    """The first part leaves the second its share, and nothing is forked twice."""
    tree = TokenTree(5, 9, (6, 7), Odds())
    assert tree.fork(2) == []
    for index in tree.trunk[:2]:
        expect(tree, index, 0.3)
    early = tree.fork(2)
    assert early
    assert all(at < 2 for at, _ in early)
    assert tree.fork(2) == []
    expect(tree, tree.trunk[2], 0.9)
    late = tree.fork(2)
    assert (2, OWN) in late
    assert not set(early) & set(late)
    assert len(early) + len(late) <= MOST * 2
    assert UNKNOWN not in {token for _, token in (*early, *late)}


@pytest.mark.parametrize("asked", [1, 2, 4, 8])
def test_the_average_is_what_was_asked_for(asked):
    """Whether texts are easy or hard: the easy ones get fewer, the hard ones more."""
    source, odds, made = random.Random(3), Odds(), Counter()
    for number in range(3000):
        kind, prob = ("easy", 0.97) if number % 2 else ("hard", 0.4)
        tree = TokenTree(5, 9, (6, 7, 8), odds)
        for index in tree.trunk:
            expect(tree, index, min(1.0, prob * source.uniform(0.8, 1.2)))
        num_forks = len(tree.fork(asked))
        assert num_forks <= MOST * asked
        made[kind] += num_forks * (number >= 1000)
    assert (made["easy"] + made["hard"]) / 2000 == pytest.approx(asked, rel=0.15)
    assert made["hard"] > made["easy"] or asked == 1


@pytest.mark.parametrize("prob", [0.1, 0.9, 0.999])
def test_an_empty_proposal_does_not_cheapen_bets(prob):
    """One position cannot give as many as are asked for."""
    odds = Odds()
    before = odds.least
    for _ in range(100):
        tree = TokenTree(5, 9, (), odds)
        expect(tree, 0, prob)
        tree.fork(3 * WIDEST)
    assert odds.least == before


@pytest.mark.parametrize("prob", [0.2, 0.7, 0.999])
def test_a_draft_that_is_wrong_while_it_is_sure_is_believed_less(prob):
    """By as much as it is wrong beyond its own doubt; without that, as before."""
    source = random.Random(5)
    for extra in (0.0, 0.25):
        odds, wrong = Odds(), 1 - Odds().sure(prob) + extra
        if wrong > 0.7:
            continue
        found = []
        for _ in range(4000):
            odds.learn(prob, is_right=source.random() >= wrong)
            found.append(odds.sure(prob))
        assert sum(found[1000:]) / 3000 == pytest.approx(1 - wrong, abs=0.03)


def test_against_an_overconfident_draft_is_bet_along_the_proposal():
    odds = Odds()
    sure = [0.9999] * 4
    assert {node for node, _ in forks_of(sure, odds)} == {3}
    for number in range(400):
        odds.learn(0.9999, is_right=number % 4 > 0)
    assert {node for node, _ in forks_of(sure, odds)} >= {0, 1, 3}


def forks_of(probs, odds, num_branches=4):
    tree = TokenTree(5, 9, (6, 7, 8), odds)
    for index, prob in zip(tree.trunk, probs, strict=True):
        expect(tree, index, prob)
    return tree.fork(num_branches)


CONTEXT_LEN = 100


def forked(probs, odds=None, *, num_branches=4):
    """A tree whose trunk was fed and forked."""
    tree = TokenTree(5, 9, (6, 7, 8), odds)
    for index, prob in zip(tree.trunk, probs, strict=True):
        expect(tree, index, prob)
    tree.fork(num_branches)
    return tree


def grow(tree, prob, next_token=50, min_chance=0.0):
    """Feed what is hungry, each node expecting the next."""
    indices = tree.hungry(9, CONTEXT_LEN)
    for index in indices:
        tree.nodes[index].next_token, tree.nodes[index].prob = next_token, prob
    tree.feed(indices)
    return {number for number, _ in tree.grow(min_chance)}


def test_what_is_not_likely_to_be_needed_waits():
    """A branch whose chance fell below the least."""
    tree = forked([0.6, 0.6, 0.6, 0.6], Odds())
    num_branches = len(tree.branches)
    assert num_branches > 2
    assert grow(tree, prob=0.05) == set(range(num_branches)), "each had its chance"
    likely = {at for at, branch in enumerate(tree.branches) if branch.chance >= Odds().least}
    assert 0 < len(likely) < num_branches
    assert grow(tree, prob=0.05) == likely
    for branch in tree.branches:
        branch.chance *= 1e-3
    assert not tree.hungry(9, CONTEXT_LEN)


def test_a_branch_ends_before_a_token_that_is_not_worth_its_place():
    """However likely the branch; all its tokens must be accepted, not the last alone."""
    sure = Odds().sure(0.9)
    for num_tokens in (1, 2, 3):
        tree = forked([0.6, 0.6, 0.6, 0.6], Odds())
        likeliest_one = max(tree.branches, key=lambda branch: branch.chance)
        likeliest_one.chance = 1.0
        min_chance = (sure**num_tokens + sure ** (num_tokens + 1)) / 2
        while tree.hungry(9, CONTEXT_LEN):
            grow(tree, prob=0.9, min_chance=min_chance)
        assert likeliest_one.num_tokens == num_tokens
        assert max(branch.num_tokens for branch in tree.branches) == num_tokens
        assert not grow(tree, prob=1.0, min_chance=min_chance), "what has ended does not go on"


def test_a_branch_that_cannot_grow_stops_no_other():
    """Its tip expects nothing, or stands at the context's end."""
    for odds in (Odds(), None):
        tree = forked([0.6, 0.6, 0.6, 0.6], odds)
        likeliest_one = max(tree.branches, key=lambda branch: branch.chance)
        tree.feed([likeliest_one.tip])
        assert tree.hungry(9, CONTEXT_LEN)
        end = tree.nodes[tree.trunk[-1]].position + 1
        assert all(tree.nodes[index].position < end for index in tree.hungry(9, end))
        assert tree.hungry(9, end)


def shape(tree):
    """Where branches stand, and which of them grow."""
    forks = [tree.nodes[branch.tip].position for branch in tree.branches]
    return forks, [sorted(grow(tree, prob, min_chance=1.0)) for prob in (0.01, 0.9, 0.01)]


def test_without_odds_nothing_that_was_drawn_shapes_the_tree():
    """As rejection needs it; with one it does, which is what the comparison would see."""
    probabilities = ([0.99] * 4, [0.1] * 4, [0.9, 0.01, 0.9, 0.01], [0.01, 0.9, 0.9, 0.9])
    assert len({str(shape(forked(probs))) for probs in probabilities}) == 1
    assert len({str(shape(forked(probs, Odds()))) for probs in probabilities}) > 1
    assert len(forked([0.5] * 4, num_branches=6).branches) == 6
