"""What the draft is told to grow, and what is proposed: by price, or what a request asks for."""

import asyncio

import pytest
from actors.spec_decode.listener import Listener, decoding, propose

from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.price_controller import PRICED, PriceController
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.proposer import Proposal
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import Close, Grow, Offers, Open
from outrider.actors.transport.rows import OfferRow, SparseRow
from outrider.actors.trees.chances import DRAWN, PRIVATE, draft_edge
from outrider.actors.trees.choosing import FLOOR
from outrider.actors.trees.tree import TreeNode


@pytest.fixture
def draft():
    length, statistics, trace = DraftLength(), Statistics(), Trace()
    length.choice = PRICED
    ahead = AheadDraft(length, PriceController(), statistics, trace)
    ahead.use(Listener())
    return ahead


async def test_the_draft_is_told_of_commits_once_the_target_has_its_round(draft):
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    heard = draft._client.heard
    assert [type(message) for message in heard] == [Open], "the verify is sent before it"
    await asyncio.sleep(0)
    assert [type(message) for message in heard] == [Open, Grow]


async def test_another_draft_is_not_told_of_what_this_one_was_asked(draft):
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    draft.use(Listener())
    await asyncio.sleep(0)
    assert draft._client.heard == []


async def test_what_ends_at_once_is_told_in_order(draft):
    """A round that all of its rows left has nothing to wait for."""
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    draft.follow([])
    await asyncio.sleep(0)
    assert [type(message) for message in draft._client.heard] == [Open, Close]


@pytest.mark.parametrize(
    ("k", "hits", "expected"),
    [(None, 0, (63, FLOOR)), (3, 0, (7, pytest.approx((4 / 208) ** 7))), (3, 200, (7, FLOOR))],
)
async def test_a_requests_own_k_has_no_price(draft, k, hits, expected):
    """However wrong the draft was: this round's chain, the target's token and the next chain."""
    for at in range(200):
        node = TreeNode(1, None, 0)
        node.edges["draft"] = 0
        draft._chances.learn([node], 1 if at < hits else 2)
    sequence = decoding(k=k)
    draft.follow([sequence])
    await propose(draft, sequence)
    await asyncio.sleep(0)
    (row,) = draft._client.heard[-1].rows
    assert (row.max_depth, row.min_chance) == expected


REJECTION = {"verification": VerificationMode.REJECTION}
ROWS = tuple(SparseRow((token,), (1.0,)) for token in (6, 7))


def tree_of(draft, sequence):
    """Drawn 6, then 7; 5 and 8 are what may come in the place of 6."""
    draft.follow([sequence])
    guess = draft_edge(0.9, 1, PRIVATE)
    edges = (DRAWN, guess, DRAWN, guess)
    draft._take(
        Offers((OfferRow(7, 3, 1, (0, 0, 1, 0), (6, 5, 7, 8), edges, ROWS),), 1, 0.0, 0.001)
    )


@pytest.mark.parametrize(("k", "expected"), [(1, (6,)), (2, (6, 7)), (9, (6, 7)), (None, (6, 7))])
async def test_in_rejection_mode_the_chain_is_what_was_drawn(draft, k, expected):
    sequence = decoding(k=k, **REJECTION)
    tree_of(draft, sequence)
    copied = Proposal((5, 6), (), ("ngram", "ngram"), edges=(1, 2))
    plan = SchedulerOutput([sequence])
    found = (await draft.propose(plan, {}, lambda _: iter([copied])))[7]
    assert (found.tokens, found.rows) == (expected, ROWS[: len(expected)])
    assert (found.drafter, found.parents) == ("draft", ())
    assert await draft.propose(plan, {7: copied}, lambda _: iter(())) == {7: copied}


@pytest.mark.parametrize(("rate", "is_waited_for"), [(0.0, False), (1e-3, True), (1e9, False)])
async def test_a_step_is_waited_for_where_it_is_worth_its_time(
    draft, monkeypatch, rate, is_waited_for
):
    """Not while nobody knows what time is worth."""
    load = draft._prices._at(1)
    load.tokens, load.seconds = rate, 1.0
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    draft._step_s, draft._step_tokens = 0.005, 1.0
    began = asyncio.get_running_loop().time()
    await propose(draft, sequence)
    took_s = asyncio.get_running_loop().time() - began
    assert (took_s > 0.004) is is_waited_for


async def test_where_nothing_was_drawn_another_drafter_has_the_chain(draft):
    sequence, copied = (
        decoding(k=3, **REJECTION),
        Proposal((5, 6), (), ("ngram", "ngram"), edges=(1, 2)),
    )
    draft.follow([sequence])
    found = await draft.propose(SchedulerOutput([sequence]), {}, lambda _: iter([copied]))
    assert found == {7: copied}


@pytest.mark.parametrize("num_right", [0, 40, 95, 100])
async def test_how_far_a_drawn_chain_goes_depends_on_the_past_only(draft, monkeypatch, num_right):
    """As far as a token's chance, by how many before it came true, is more than its price."""
    monkeypatch.setattr(Price, "of", lambda self, num_tokens: 0.2)
    for at in range(100):
        node = TreeNode(1, None, 0)
        node.edges["draft"] = DRAWN
        draft._chances.learn([node], 1 if at < num_right else 2)
    sequence = decoding(**REJECTION)
    chance = draft._chances.of("draft", DRAWN)
    lengths = [length for length in range(1, 17) if chance**length > 0.2]
    assert draft._chain_length(draft._of(sequence), 1, draft._prices.price(1)) == len(lengths)
    tree_of(draft, sequence)
    assert draft._chain_length(draft._of(sequence), 1, draft._prices.price(1)) == len(lengths)
    draft._followed.clear()
    own = draft._of(decoding(k=3, **REJECTION))
    assert draft._chain_length(own, 1, draft._prices.price(1)) == 3
