"""What suffixes of other texts guess, whose they are, and what they cost."""

import random
from collections import Counter

import pytest
from actors.spec_decode.drafters.counted_lines import num_lines

from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.spec_decode.drafters import suffix
from outrider.actors.spec_decode.drafters.guess import NO_GUESS
from outrider.actors.spec_decode.drafters.suffix import (
    BLOCK,
    GRAM,
    MAX_NODES,
    MAX_PLACES,
    NUM_BUCKETS,
    SCOPE_SHARE,
    TOKEN_BYTES,
    SuffixLog,
    SuffixStore,
)
from outrider.actors.transport.draft_tree import check_parents
from outrider.actors.trees.chances import counted_edge

TEXT = tuple(range(100, 140))


def asked(prompt, salt="me/", key=""):
    sampling = SamplingParams(max_tokens=64)
    return Request(tuple(prompt), sampling, 0, tenant=key, cache_salt=salt)


def store(max_bytes=64 << 20, is_shared=False):
    return SuffixStore(max_bytes, is_shared=is_shared)


def wrote(whose, prompt, output, salt="me/"):
    drafter = whose.follow(asked(prompt, salt))
    drafter.extend(output)
    drafter.end()


def guess_behind(whose, prompt, k=8, salt="me/"):
    drafter = whose.follow(asked(prompt, salt))
    return NO_GUESS if drafter is None else drafter.propose(k)


def paths(guess):
    """Every chain of a guess, from its beginning to a leaf."""
    parents = guess.parents or [max(0, at - 1) for at in range(len(guess.tokens))]
    found = []
    for at, parent in enumerate(parents):
        before = () if parent == at else found[parent]
        found.append((*before, guess.tokens[at]))
    inner = {parent for at, parent in enumerate(parents) if parent != at}
    return [path for at, path in enumerate(found) if at not in inner]


def test_an_output_of_before_is_read_on_in():
    known = store()
    wrote(known, (1, 2, 3), TEXT)
    assert paths(guess_behind(known, (7, 8, *TEXT[10:14]))) == [TEXT[14:22]]
    assert guess_behind(known, (9, 9, *TEXT[10:12])) == NO_GUESS, "two ids say little"


def test_what_went_on_differently_are_branches_with_their_shares():
    known = store()
    for last in (5, 5, 5, 6):
        wrote(known, (1, 2, 3), (10, 11, 12, last, last, last))
    guess = guess_behind(known, (10, 11, 12), k=2)
    check_parents(len(guess.tokens), guess.parents)
    shares = dict(zip(guess.tokens, guess.edges, strict=True))
    assert sorted(paths(guess)) == [(5, 5), (6, 6)]
    assert shares[6] in (counted_edge(3, 1, 0.25), counted_edge(4, 1, 1.0))
    edges = {(guess.tokens[at], guess.parents[at] == at): guess.edges[at] for at in range(4)}
    assert edges[5, True] == counted_edge(3, 3, 0.75)
    assert edges[6, True] == counted_edge(3, 1, 0.25)
    assert edges[5, False] == counted_edge(4, 3, 1.0)


def test_places_that_the_text_went_along_with_are_kept():
    """However often what it says now was said since."""
    known = store()
    wrote(known, (1, 2, 3), TEXT)
    drafter = known.follow(asked(TEXT[:6]))
    assert paths(drafter.propose(3)) == [TEXT[6:9]]
    drafter.extend(TEXT[6:8])
    for _ in range(2 * suffix.MAX_STEPS):
        wrote(known, (1, 2, 3), (*TEXT[5:8], 9, 9, 9))
    assert TEXT[8:11] in paths(drafter.propose(3))
    drafter.extend((55,))
    assert drafter.propose(3) == NO_GUESS


def test_keys_and_salts_do_not_see_each_other():
    known = store()
    wrote(known, (1, 2, 3), TEXT, "me/")
    for salt in ("you/", "me/other", ""):
        assert guess_behind(known, TEXT[:8], salt=salt) == NO_GUESS
    assert guess_behind(known, TEXT[:8], salt="me/") != NO_GUESS
    for key in ("ann", "bob"):
        drafter = known.follow(asked(TEXT[:8], "me/", key))
        assert drafter.propose(8) == NO_GUESS, "a key's is its own under the same salt"
        drafter.extend(TEXT[8:20])
        drafter.end()
    for key, salt in (("ann", "me/"), ("ann", "")):
        guess = known.follow(asked(TEXT[:8], salt, key)).propose(8)
        assert (guess != NO_GUESS) == (salt == "me/")


def test_without_a_scope_nothing_is_kept_but_where_the_operator_says_so():
    known = store()
    assert known.follow(asked(TEXT, "")) is None
    shared = store(is_shared=True)
    wrote(shared, (1, 2, 3), TEXT, "")
    assert guess_behind(shared, TEXT[:8], salt="") != NO_GUESS
    assert guess_behind(shared, TEXT[:8], salt="me/") == NO_GUESS


def test_it_stays_within_its_bytes_and_who_wrote_least_recently_goes():
    fixed = 8 * NUM_BUCKETS
    known = store(SCOPE_SHARE * (fixed + 400 * TOKEN_BYTES))
    for who in "abcdef":
        wrote(known, (1, 2, 3), TEXT, f"{who}/")
    logs = known._logs
    assert sum(log.num_bytes for log in logs.values()) <= SCOPE_SHARE * (fixed + 400 * TOKEN_BYTES)
    assert ("", "f/") in logs
    assert ("", "a/") not in logs
    assert guess_behind(known, TEXT[:8], salt="a/") == NO_GUESS, "and its texts with it"


def test_the_newest_texts_of_a_scope_stay():
    log = SuffixLog(100)
    for first in range(0, 1000, 10):
        log.add(range(first, first + 10))
    assert len(log._ids) == 100
    assert log.places(range(990, 996)), "the last"
    assert not log.places(range(500, 506)), "long overwritten"
    assert log.at(log.floor - 1) == suffix.NO_ID == log.at(log._end)


def test_a_chat_that_grows_is_kept_once():
    log, chat = SuffixLog(10_000), list(range(10 * BLOCK))
    log.add_prompt(chat)
    num = len(log._ids)
    log.add_prompt([*chat, *range(5000, 5000 + BLOCK)])
    assert len(log._ids) - num <= 2 * BLOCK + 1
    assert paths_of(log, range(5000, 5004)) == [5004]
    log.add_prompt(chat)
    assert len(log._ids) - num <= 3 * BLOCK + 3


def test_a_chat_whose_beginning_was_overwritten_is_kept_anew():
    log, chat = SuffixLog(4 * BLOCK), list(range(2 * BLOCK))
    log.add_prompt(chat)
    log.add(range(1000, 1000 + 5 * BLOCK))
    assert paths_of(log, chat[:5]) == []
    log.add_prompt(chat)
    assert paths_of(log, chat[:5]) == [5]


def paths_of(log, tail):
    return [log.at(place) for place, _ in log.places(list(tail))]


def test_texts_do_not_run_into_each_other():
    known = store()
    wrote(known, (1, 2, 3), (10, 11, 12, 13))
    wrote(known, (4, 5, 6), (20, 21, 22, 23))
    assert paths(guess_behind(known, (10, 11, 12))) == [(13,)]
    assert guess_behind(known, (11, 12, 13)) == NO_GUESS


@pytest.mark.parametrize("seed", range(5))
def test_it_guesses_what_a_search_finds(seed):
    """Beside a plain search through all texts, over few ids so that much reads alike."""
    draw, known, texts = random.Random(seed), store(), []
    for _ in range(12):
        output = [draw.randrange(4) for _ in range(24)]
        wrote(known, (90, 91, 92), output)
        texts.append((90, 91, 92, *output))
        tail = [draw.randrange(4) for _ in range(5)]
        texts.append((80, 81, *tail))  # a prompt is kept too
        guess = guess_behind(known, texts[-1], k=1)
        after = Counter(
            text[at]
            for text in texts
            for at in range(GRAM, len(text))
            if list(text[at - GRAM : at]) == tail[-GRAM:]
        )
        assert set(guess.tokens) <= set(after)
        if sum(after.values()) <= MAX_PLACES and after:
            assert guess.tokens
        assert len(guess.tokens) <= MAX_NODES


def test_what_it_costs_does_not_grow_with_what_is_kept():
    known = store()
    for number in range(50):
        wrote(known, (1, 2, 3), [7] * 100 + [number])
    drafter = known.follow(asked([7] * 40))
    few = num_lines(suffix, drafter.propose, 16)
    for number in range(200):
        wrote(known, (1, 2, 3), [7] * 100 + [number])
    assert num_lines(suffix, drafter.propose, 16) < 1.5 * few
    assert len(drafter.propose(16).tokens) <= MAX_NODES
