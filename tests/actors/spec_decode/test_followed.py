"""The coordinator's trees: whatever comes late, in any order of commits, hangs where it belongs."""

import random

import pytest

from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.followed import NUM_REMEMBERED, Followed
from outrider.actors.transport.rows import OfferRow
from outrider.actors.trees.chances import Chances
from outrider.actors.trees.tree import SpeculationTree

PROMPT = (3, 14, 15)


def followed():
    request = Request(PROMPT, SamplingParams(max_tokens=200), seed=0)
    sequence = Sequence(1, request, 220)
    tree = SpeculationTree(PROMPT[-1], len(PROMPT) - 1, Chances())
    return Followed(sequence, tree, len(PROMPT))


def commit(sequence, ids):
    sequence.output_ids += ids
    sequence.num_committed += len(ids)


def texts(tree, committed):
    """All paths, as whole texts."""
    found = set()

    def walk(node, text):
        for child in node.children.values():
            found.add((*text, child.token))
            walk(child, (*text, child.token))

    walk(tree.root, tuple(committed))
    return found


class Draft:
    """Grows at random, and names what it grew; it hears of commits late."""

    def __init__(self, rng):
        self.rng, self.named, self.num_named = rng, {}, 0
        self.known = list(PROMPT)

    def step(self):
        """An offer, and the whole text of each of its nodes."""
        base = len(self.known)
        live = [
            (name, text)
            for name, text in self.named.items()
            if len(text) > base and list(text[:base]) == self.known
        ]
        parents, tokens, whole = [], [], []
        first = self.num_named + 1
        taken = {text for _, text in live}
        for _ in range(self.rng.randrange(1, 5)):
            name, text = self.rng.choice([(0, tuple(self.known)), *live])
            token = self.rng.randrange(4)
            if (*text, token) in taken:
                continue
            self.num_named += 1
            taken.add((*text, token))
            live.append((self.num_named, (*text, token)))
            self.named[self.num_named] = (*text, token)
            parents.append(name)
            tokens.append(token)
            whole.append((*text, token))
        edges = (0,) * len(tokens)
        return OfferRow(1, base, first, tuple(parents), tuple(tokens), edges), whole


@pytest.mark.parametrize("seed", range(120))
def test_late_offers_hang_where_they_belong(seed):
    rng, seen = random.Random(seed), followed()
    draft, on_its_way, delivered = Draft(rng), [], set()
    committed = list(PROMPT)
    for _ in range(60):
        match rng.randrange(4):
            case 0:
                on_its_way.append(draft.step())
            case 1 if on_its_way:
                row, whole = on_its_way.pop(0)
                seen.take(row)
                delivered |= set(whole)
            case 2:
                draft.known = committed[: rng.randint(len(draft.known), len(committed))]
            case 3:
                new = [rng.randrange(4) for _ in range(rng.randint(1, 3))]
                committed += new
                commit(seen.sequence, new)
                if rng.random() < 0.7:
                    seen.catch_up()
        seen.catch_up()
        expected = {
            text
            for text in delivered
            if len(text) > len(committed) and list(text[: len(committed)]) == committed
        }
        assert texts(seen.tree, committed) == expected
        assert seen.tree.num_nodes == len(expected)
        assert seen.tree.root.position == len(committed) - 1


def test_another_draft_begins_with_its_own_names():
    seen = followed()
    seen.take(OfferRow(1, 3, 1, (0, 1), (5, 6), (0, 0)))
    seen.forget_draft()
    assert texts(seen.tree, PROMPT) == {(*PROMPT, 5), (*PROMPT, 5, 6)}  # guesses they stay
    seen.take(OfferRow(1, 3, 1, (0, 1), (9, 6), (0, 0)))
    assert texts(seen.tree, PROMPT) == {
        (*PROMPT, 5),
        (*PROMPT, 5, 6),
        (*PROMPT, 9),
        (*PROMPT, 9, 6),
    }


def test_what_hangs_from_a_node_that_is_gone_goes_too():
    seen = followed()
    seen.take(OfferRow(1, 3, 1, (0, 0), (5, 6), (0, 0)))
    commit(seen.sequence, [6])
    seen.take(OfferRow(1, 3, 3, (1, 3, 2), (7, 8, 9), (0, 0, 0)))
    assert texts(seen.tree, (*PROMPT, 6)) == {(*PROMPT, 6, 9)}


def test_of_what_was_committed_the_last_positions_are_remembered():
    seen, last = followed(), 3 * NUM_REMEMBERED
    for name in range(1, last + 1):
        seen.take(OfferRow(1, 2 + name, name, (0,), (5,), (0,)))
        commit(seen.sequence, [5])
        seen.catch_up()
    assert len(seen.positions) == NUM_REMEMBERED
    seen.take(OfferRow(1, 2 + last, last + 1, (last, 1), (6, 7), (0, 0)))
    assert [node.token for node in seen.tree.root.children.values()] == [6], "1 is forgotten"
