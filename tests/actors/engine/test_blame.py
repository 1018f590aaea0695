"""One bad row, one bad proposal or one bad worker: who pays for it, and that nobody else does."""

import asyncio
import itertools

import pytest
import toy
from toy_bench import Bench
from virtual_time import in_virtual_time

from outrider.actors.engine.isolation import Isolation
from outrider.actors.engine.suspects import MAX_DEATHS, Suspects
from outrider.actors.errors import InvalidRequest, WorkerFailed, WorkerLost
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.sequence import Event, Sequence
from outrider.actors.transport.messages import Close, Open, StepTimes, Verify, VerifyReply
from outrider.actors.transport.rows import PrefillRow, SparseRow, VerdictRow, VerifyRow

NUM = 32
PROMPTS = [[(7 * i + j) % toy.VOCAB for j in range(1 + 5 * i)] for i in range(NUM)]
TEXTS = [toy.continuation(prompt, 12 + i) for i, prompt in enumerate(PROMPTS)]


class Poisoned(Bench):
    """Its target breaks whenever it computes what `is_poison` says is poison."""

    def __init__(self, is_poison, *, dies, **options):
        super().__init__(**{"max_batch": NUM, "token_budget": 256} | options)
        self.num_errors = 0
        bench = self

        class Target(toy.ToyTarget):
            def step(self, message):
                if is_poison(self, message):
                    bench.num_errors += 1
                    if dies:
                        bench.targets.client.lose("Segmentation fault")
                    raise WorkerFailed("IndexError: poison")
                return super().step(message)

        self.targets._make = lambda: Target(options.get("num_pages", 1000))

    async def texts(self):
        """Of all the prompts; an error in place of a text."""
        asked = (self.ids(prompt, 12 + i) for i, prompt in enumerate(PROMPTS))
        return await asyncio.gather(*asked, return_exceptions=True)


def of(seq_id):
    """A row, whatever it is given."""
    return lambda _, message: seq_id in message.seq_ids


def after(seq_id, length):
    """A row, once it is so long."""
    return lambda _, message: any(
        row.seq_id == seq_id and row.num_committed > length for row in message.rows
    )


def drafted(token):
    """A token, as long as it is only proposed."""
    return lambda _, message: any(token in row.tokens for row in message.rows)


@pytest.mark.parametrize("dies", [False, True], ids=["raises", "dies"])
@pytest.mark.parametrize("is_poison", [of(9), after(20, 105)], ids=["at-once", "later"])
@in_virtual_time
async def test_one_poisoned_row_of_many_fails_alone(is_poison, dies):
    async with Poisoned(is_poison, dies=dies) as bench:
        texts = await bench.texts()
        failed = [i for i, text in enumerate(texts) if isinstance(text, BaseException)]
        assert len(failed) == 1
        assert isinstance(texts[failed[0]], WorkerFailed)
        assert [t for i, t in enumerate(texts) if i not in failed] == [
            t for i, t in enumerate(TEXTS) if i not in failed
        ]
        assert len(bench.targets.clients) == 1 + (MAX_DEATHS if dies else 0)
        assert await bench.ids() == toy.continuation((1, 2, 3), 20)


@pytest.mark.parametrize("dies", [False, True], ids=["raises", "dies"])
@in_virtual_time
async def test_a_poisonous_proposal_costs_no_text(dies):
    async with Poisoned(drafted(7), dies=dies) as bench:
        assert await bench.texts() == TEXTS
        assert bench.num_errors > 0
        assert (
            len(bench.targets.clients) <= 1 + 2 * 3
        )  # twice for those that ran, and who came later


@in_virtual_time
async def test_a_long_prompt_that_kills_is_given_up_whatever_good_rounds_lie_between():
    """Its first chunks do well each time."""

    def is_poison(target, message):
        return any(
            row.seq_id == 2 and target.num_rows[row.seq_id] >= 160
            for row in (*message.rows, *message.prefill)
        )

    async with Poisoned(is_poison, dies=True, token_budget=64) as bench:
        first = asyncio.create_task(bench.ids(max_tokens=300))
        await asyncio.sleep(0)
        with pytest.raises(WorkerFailed, match="Given up"):
            await bench.ids([3] * 200)
        assert await first == toy.continuation((1, 2, 3), 300)
        assert len(bench.targets.clients) == 1 + MAX_DEATHS


@pytest.mark.parametrize("most", [1, 3, 10])
@in_virtual_time
async def test_where_nobody_dies_alone_rounds_get_smaller(most):
    """As of a machine that has memory for so many."""
    async with Poisoned(lambda _, message: len(message.rows) > most, dies=True) as bench:
        assert await bench.texts() == TEXTS
        sizes = [len(m.rows) for m in bench.target.log if isinstance(m, Verify)]
        assert 1 <= max(sizes) <= most
        assert len(bench.targets.clients) <= 1 + 2 + 6


@in_virtual_time
async def test_a_target_that_answers_everything_with_an_error_is_replaced():
    async with Bench(max_batch=NUM) as bench:
        streams = [asyncio.create_task(bench.ids((i,), 30)) for i in range(4)]
        while not bench.target.ids:
            await asyncio.sleep(0)
        broken = bench.target
        broken.failure, num_before = WorkerFailed("CUDA error"), len(broken.log)
        assert await asyncio.gather(*streams) == [toy.continuation((i,), 30) for i in range(4)]
        assert len(bench.targets.clients) == 2
        rounds = [m for m in broken.log[num_before:] if isinstance(m, Verify)]
        assert len(rounds) <= 2 + 2 * 4  # one round, in parts
        assert "answers with errors" in bench.supervisors[0].health().reason


@in_virtual_time
async def test_so_is_one_that_cannot_even_close_what_has_ended():
    async with Bench(max_batch=NUM) as bench:
        leaving, staying = bench.submit((1,), 100), asyncio.create_task(bench.ids((2,), 60))
        await leaving.__anext__()
        handle = bench.target.handle

        def broken(message):
            if isinstance(message, Close):
                raise WorkerFailed("CUDA error")
            return handle(message)

        bench.target.handle = broken
        await leaving.aclose()
        assert await staying == toy.continuation((2,), 60)
        assert bench.coordinator.failure is None
        assert len(bench.targets.clients) == 2


@in_virtual_time
async def test_what_cannot_be_opened_fails_alone_and_nobody_reads_its_error():
    async with Bench() as bench:
        handle = toy.ToyTarget.handle

        def picky(self, message):
            if isinstance(message, Open) and 13 in message.rows[0].prompt_ids:
                raise InvalidRequest("Got a grammar 'secret', which does not compile", "grammar")
            return handle(self, message)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(toy.ToyTarget, "handle", picky)
            good = [asyncio.create_task(bench.ids((i, 2), 20)) for i in range(5)]
            with pytest.raises(InvalidRequest, match="secret"):
                await bench.ids((13, 2))
            assert await asyncio.gather(*good) == [toy.continuation((i, 2), 20) for i in range(5)]
        assert len(bench.targets.clients) == 1


@in_virtual_time
async def test_who_kills_by_being_opened_is_given_up():
    async with Bench(max_batch=NUM) as bench:
        handle = toy.ToyTarget.handle

        def deadly(self, message):
            if isinstance(message, Open) and 13 in message.rows[0].prompt_ids:
                bench.targets.client.lose("Killed")
            return handle(self, message)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(toy.ToyTarget, "handle", deadly)
            good = [asyncio.create_task(bench.ids((i, 2), 30)) for i in range(5)]
            with pytest.raises(WorkerFailed, match="Given up"):
                await bench.ids((13, 2))
            assert await asyncio.gather(*good) == [toy.continuation((i, 2), 30) for i in range(5)]
        assert len(bench.targets.clients) == 1 + MAX_DEATHS


@in_virtual_time
async def test_whom_others_kill_is_nobodys_victim():
    """As an operator does, or a test: nobody is suspected, and all run together at once."""
    async with Bench(max_batch=NUM) as bench:
        bench.targets.is_struck = True
        streams = [asyncio.create_task(bench.ids((i,), 150)) for i in range(4)]
        for _ in range(4 * MAX_DEATHS):
            while len(bench.target.ids) < 4:
                await asyncio.sleep(0)
            bench.targets.client.lose()
            await bench.supervisors[0].up()
        assert await asyncio.gather(*streams) == [toy.continuation((i,), 150) for i in range(4)]
        assert len(bench.targets.clients) == 1 + 4 * MAX_DEATHS
        rounds = [m for m in bench.target.log if isinstance(m, Verify)]
        assert len(rounds[0].rows) == 4


# asking again, by itself


def row(seq_id, tokens=(), rows=()):
    return VerifyRow(seq_id, 1, 10, tokens, rows)


async def isolated(question, bad, pending=None):
    """The outcome, and what was asked, of a target that cannot do with those that are bad."""
    asked = []

    async def ask(message):
        asked.append(message)
        if bad(message):
            raise WorkerFailed("a bug")
        verdicts = tuple(VerdictRow(r.seq_id, r.id, -1, 5, (-1.0,), "") for r in message.rows)
        return VerifyReply(verdicts, StepTimes(1.0, 0.5, 0.25, 0.125), 3)

    return await Isolation(ask).verify(question, pending or {}), asked


@pytest.mark.parametrize("num_rows", range(6))
@pytest.mark.parametrize("num_prefill", range(3))
async def test_whichever_are_bad_exactly_these_fail(num_rows, num_prefill):
    size = num_rows + num_prefill
    question = Verify(
        tuple(row(i, (1,) * (i % 3)) for i in range(num_rows)),
        tuple(PrefillRow(i, 16) for i in range(num_rows, size)),
    )
    for bad in itertools.chain(*(itertools.combinations(range(size), n) for n in range(size + 1))):
        found, asked = await isolated(question, lambda m, bad=bad: bool({*m.seq_ids} & {*bad}))
        assert found.failures.keys() == {*bad}
        done = {verdict.seq_id for verdict in found.reply.rows} | found.num_prefilled.keys()
        assert done == {*range(size)} - {*bad}
        assert found.has_success == bool(done)
        most = max(1, size - 1).bit_length() * max(1, len(bad))
        assert len(asked) <= (2 + 2 * most if bad else 1)
        if not bad:
            assert not found.without_proposal


async def test_a_proposal_that_breaks_a_round_is_dropped():
    question = Verify((row(1, (7, 8)), row(2)), ())
    found, asked = await isolated(question, lambda m: any(r.tokens for r in m.rows))
    assert (found.failures, found.without_proposal, len(asked)) == ({}, {1}, 2)


async def test_in_rejection_mode_the_same_proposal_is_asked_once_more():
    question = Verify((row(1, (7,), (SparseRow((7,), (1.0,)),)),), ())
    answers = iter([True, False])
    found, asked = await isolated(question, lambda _: next(answers))
    assert (found.failures, found.without_proposal, asked) == ({}, set(), [question] * 2)


@pytest.mark.parametrize("is_last", [False, True])
async def test_a_prompt_that_is_too_much_at_once_is_computed_by_halves(is_last):
    question = Verify((row(1),), ()) if is_last else Verify((), (PrefillRow(1, 64),))

    def too_much(message):
        return bool(message.rows) or message.prefill[0].num_tokens > 32

    found, asked = await isolated(question, too_much, {1: 64})
    assert (found.failures, found.num_prefilled, len(asked)) == ({}, {1: 32}, 2)


# who is suspected, by itself


def sequences(num):
    made = [Sequence(i, Request((1,), SamplingParams(), seed=0), 100) for i in range(1, num + 1)]
    for sequence in made:
        sequence.apply(Event.ADMIT)
        sequence.apply(Event.PREFILLED)
    return made


def test_each_suspect_runs_alone_until_it_has_committed():
    suspects, running = Suspects(), sequences(3)
    alive = {1, 2, 3}
    assert suspects.group(running, alive) == running
    assert suspects.died(running[:2], has_proposals=True) == []
    for sequence in running[:2]:
        assert suspects.group(running, alive) == [sequence]
        assert suspects.group(running, alive) == [sequence]  # a chunk of its prompt went well
        sequence.commit((5,))
        assert not suspects.includes(sequence)
    assert suspects.group(running, alive) == running


def test_innocents_are_never_given_up_and_each_death_alone_counts():
    suspects, running = Suspects(), sequences(2)
    for _ in range(20):
        assert suspects.died(running, has_proposals=True) == []
        for sequence in running:
            sequence.commit((5,))
    assert suspects.died(running[:1], has_proposals=False) == []
    running[0].commit((5,))
    assert suspects.group(running, {1, 2}) == [running[1]]  # a good round lies between
    assert suspects.died(running[:1], has_proposals=False) == running[:1]


def test_a_round_of_one_with_a_proposal_may_be_the_proposals_fault():
    suspects, (one,) = Suspects(), sequences(1)
    assert suspects.died([one], has_proposals=True) == []
    assert not one.is_plain
    one.commit((5,))
    assert suspects.died([one], has_proposals=True) == []
    assert one.is_plain


def test_smaller_rounds_take_everybody_in_turn_and_end_with_those_who_needed_them():
    suspects, running = Suspects(), sequences(7)
    for _ in range(3):
        suspects.died(running, has_proposals=False)
        for sequence in running:
            sequence.commit((5,))
    seen = set()
    for _ in range(7):
        group = suspects.group(running, range(1, 8))
        assert len({s.seq_id for s in group}) == 3
        seen |= {s.seq_id for s in group}
    assert seen == {*range(1, 8)}
    later = sequences(9)[7:]
    assert suspects.group(later, {8, 9}) == later


async def test_a_death_between_two_questions_is_nobodys_fault():
    async with Bench() as bench:
        stream = bench.submit(max_tokens=50)
        ids = list((await stream.__anext__()).token_ids)
        bench.coordinator._target._question = None
        assert bench.coordinator._target.blamed() == ([], False)
        for _ in range(2 * MAX_DEATHS):
            await bench.supervisors[0].up()
            bench.targets.client.lose(WorkerLost("between"))
            ids += (await stream.__anext__()).token_ids
        ids += [i async for chunk in stream for i in chunk.token_ids]
        assert ids == toy.continuation((1, 2, 3), 50)
