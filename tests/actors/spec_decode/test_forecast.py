"""The draft's side of a round, as the coordinator asks it to be: nobody waits for it."""

import asyncio

import pytest
from actors.spec_decode.listener import Listener, decoding, propose

from outrider.actors.lookahead.controller import DraftChoice
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.forecast import ForecastDraft
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import Close, Open, Outcomes


@pytest.fixture
def draft():
    depth = DraftLength()
    depth.choice = DraftChoice(4, 5, 0, "best", min_chance=0.25)
    forecasting = ForecastDraft(depth, Statistics(), Trace())
    forecasting.use(Listener())
    return forecasting


async def test_the_draft_is_told_of_a_proposal_once_the_target_has_it(draft):
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    heard = draft._client.heard
    assert [type(message) for message in heard] == [Open], "the verify is sent before it"
    await asyncio.sleep(0)
    assert [type(message) for message in heard] == [Open, Outcomes]


async def test_what_ends_at_once_is_told_in_order(draft):
    """A round that all of its rows left has nothing to wait for."""
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    draft.follow([])
    await asyncio.sleep(0)
    assert [type(message) for message in draft._client.heard] == [Open, Outcomes, Close]


async def test_another_draft_is_not_told_of_what_this_one_was_asked(draft):
    sequence = decoding()
    draft.follow([sequence])
    await propose(draft, sequence)
    draft.use(Listener())
    await asyncio.sleep(0)
    assert draft._client.heard == []


@pytest.mark.parametrize(("k", "min_chance"), [(None, 0.25), (3, 0.0)])
async def test_a_requests_own_k_is_exact(draft, k, min_chance):
    """Else a branch ends where a token is not worth its place."""
    sequence = decoding(k=k)
    draft.follow([sequence])
    await propose(draft, sequence)
    await asyncio.sleep(0)
    (outcome,) = draft._client.heard[-1].rows
    assert (outcome.max_tokens, outcome.min_chance) == (k or 4, min_chance)
