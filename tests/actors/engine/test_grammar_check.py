"""Grammars go to the workers, few at a time, and outlive a death that was not theirs."""

import asyncio

import pytest

from outrider.actors.engine.request_check import MAX_AT_ONCE, GrammarCheck
from outrider.actors.errors import InvalidRequest, Overloaded, WorkerFailed, WorkerLost
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.transport.messages import Compile, Done

REGEX = Grammar(GrammarKind.REGEX, "a+")
ASKED = Compile("regex", "a+", (4,))


class Client:
    """A worker that answers when it is told to, or dies."""

    def __init__(self, answer=None, failure=None):
        self.answer, self.failure, self.asked = answer, failure, []

    async def call(self, message):
        self.asked.append(message)
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            await self.answer.wait()
        return Done()

    def tell(self, message):
        self.asked.append(message)


class Upright:
    """A supervisor: its workers one after another."""

    def __init__(self, *clients):
        self.clients = list(clients)

    @property
    def client(self):
        return self.clients[0]

    async def up(self):
        return self.clients.pop(0) if len(self.clients) > 1 else self.clients[0]


async def test_the_target_is_asked_and_the_draft_told():
    target, draft = Client(), Client()
    await GrammarCheck(Upright(target), Upright(draft), (4,)).compile(REGEX, 5)
    assert target.asked == draft.asked == [ASKED]


async def test_no_grammar_is_the_clients_error_and_no_drafts_business():
    target, draft = Client(failure=InvalidRequest("Got no grammar")), Client()
    check = GrammarCheck(Upright(target), Upright(draft), (4,))
    with pytest.raises(InvalidRequest, match="Got no grammar"):
        await check.compile(REGEX, 5)
    assert draft.asked == []


async def test_a_target_that_died_is_asked_again_once():
    lost, well = Client(failure=WorkerLost("gone")), Client()
    await GrammarCheck(Upright(lost, well), None, (4,)).compile(REGEX, 5)
    assert (lost.asked, well.asked) == ([ASKED], [ASKED])
    both = [Client(failure=WorkerLost("gone")) for _ in range(3)]
    with pytest.raises(WorkerFailed, match="both targets"):
        await GrammarCheck(Upright(*both), None, (4,)).compile(REGEX, 5)
    assert [len(client.asked) for client in both] == [1, 1, 0]


async def test_few_are_under_way_and_who_waits_too_long_is_told():
    answer = asyncio.Event()
    target = Client(answer)
    check = GrammarCheck(Upright(target), None, (4,))
    first = [asyncio.create_task(check.compile(REGEX, 60)) for _ in range(MAX_AT_ONCE)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="while others"):
        await check.compile(REGEX, 0.01)
    assert len(target.asked) == MAX_AT_ONCE
    answer.set()
    await asyncio.gather(*first)
    await check.compile(REGEX, 60)


async def test_one_that_takes_too_long_keeps_its_place_until_it_is_done():
    answer = asyncio.Event()
    check = GrammarCheck(Upright(Client(answer)), None, (4,))
    for _ in range(MAX_AT_ONCE):
        with pytest.raises(InvalidRequest, match="did not compile within"):
            await check.compile(REGEX, 0.01)
    with pytest.raises(Overloaded):  # both are still at the worker's
        await check.compile(REGEX, 0.01)
    answer.set()
    await check.compile(REGEX, 60)


async def test_a_client_that_leaves_keeps_no_place_it_does_not_need():
    answer = asyncio.Event()
    check = GrammarCheck(Upright(Client(answer)), None, (4,))
    tasks = [asyncio.create_task(check.compile(REGEX, 60)) for _ in range(4)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    answer.set()
    await check.compile(REGEX, 60)
