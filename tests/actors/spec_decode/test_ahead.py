"""What the draft is told to grow: by price, or what a request asks for."""

import asyncio

import pytest

from outrider.actors.lookahead.price import PRICED, Price
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Event, Sequence
from outrider.actors.spec_decode.ahead import FLOOR, AheadDraft
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.proposer import NOTHING
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import Close, Grow, Open
from outrider.actors.trees.tree import TreeNode


class Listener:
    """A client that only listens."""

    def __init__(self):
        self.heard = []

    def tell(self, message):
        self.heard.append(message)

    def on_push(self, take):
        pass


def decoding(**speculation):
    asked = SpeculationParams(**speculation)
    request = Request((1, 2, 3), SamplingParams(max_tokens=64), 0, speculation=asked)
    sequence = Sequence(7, request, 67)
    sequence.apply(Event.ADMIT)
    sequence.num_prefilled = sequence.num_committed - 1
    sequence.apply(Event.PREFILLED)
    return sequence


@pytest.fixture
def draft():
    length, statistics, trace = DraftLength(), Statistics(), Trace()
    length.choice = PRICED
    ahead = AheadDraft(length, Price(), statistics, trace)
    ahead.use(Listener())
    return ahead


async def propose(draft, sequence):
    return await draft.propose(SchedulerOutput([sequence]), {}, lambda _: NOTHING)


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
    [(None, 0, (63, FLOOR)), (3, 0, (6, pytest.approx((4 / 208) ** 6))), (3, 200, (6, FLOOR))],
)
async def test_a_requests_own_k_has_no_price(draft, k, hits, expected):
    """However wrong the draft was: this round's chain and the next one's."""
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
