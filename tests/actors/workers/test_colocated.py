"""A pair drafts the next round before it is asked: what was expected is answered without a pass."""

import architectures
import pytest

from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.messages import Close, Open, Propose, Round, ToDraft, Verify
from outrider.actors.transport.rows import OpenRow, ProposeRow, SamplingRow, VerifyRow
from outrider.actors.workers.colocated import ColocatedWorker
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.target import TargetWorker
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.torch_backend import HostBackend


class Description:
    role = "target"


def sampling(seed):
    return SamplingRow(1.0, 0, 1.0, 0.0, "coupled", seed, choice=0)


@pytest.fixture
def pair():
    def runner():
        return Runner(from_model(architectures.build("llama")), num_tokens=512)

    backend = HostBackend(CpuBackend())
    draft = DraftWorker(runner(), backend, Description(), 1000)
    worker = ColocatedWorker(TargetWorker(runner(), backend, Description()), draft)
    rows = tuple(
        OpenRow(seq_id, (3, 4, 5 + seq_id), (), sampling(seq_id), 100) for seq_id in (1, 2)
    )
    worker.handle(Open(rows))
    worker.handle(ToDraft(Open(rows)))
    return worker


def play(pair, is_ahead, num_rounds=6, drop=None):
    """Rounds as a coordinator plays them; each one's answers."""
    ids = {1: [3, 4, 6], 2: [3, 4, 7]}
    committed = {1: (), 2: ()}
    for number in range(num_rounds):
        if number == drop:
            pair.handle(Close((2,)))
            pair.handle(ToDraft(Close((2,))))
            del ids[2]
        asked = tuple(ProposeRow(seq_id, len(ids[seq_id]), committed[seq_id], 3) for seq_id in ids)
        verify = tuple(VerifyRow(seq_id, number + 1, len(ids[seq_id]), (), ()) for seq_id in ids)
        answer = pair.handle(Round(Propose(asked, ()), Verify(verify, ())))
        if is_ahead:
            pair.advance()
        yield answer
        for proposal, verdict in zip(answer.proposals.rows, answer.verdicts.rows, strict=True):
            assert proposal.stop is None
            seq_id = verdict.seq_id
            committed[seq_id] = (*proposal.tokens[: verdict.num_accepted], verdict.token)
            ids[seq_id] += committed[seq_id]


def texts(answers):
    return [(a.proposals.rows, a.verdicts.rows) for a in answers]


@pytest.mark.parametrize("drop", [None, 3])
def test_ahead_and_not_give_the_same_rounds(pair, drop):
    plain = texts(play(pair, is_ahead=False, drop=drop))
    opened = OpenRow(1, (3, 4, 6), (), sampling(1), 100)
    other = OpenRow(2, (3, 4, 7), (), sampling(2), 100)
    pair.reset()
    pair.handle(Open((opened, other)))
    pair.handle(ToDraft(Open((opened, other))))
    assert texts(play(pair, is_ahead=True, drop=drop)) == plain


def test_what_was_expected_costs_no_pass_when_asked(pair):
    drafts = []
    draft = pair._draft.handle
    pair._draft.handle = lambda message: drafts.append(message) or draft(message)
    for answer in play(pair, is_ahead=True):
        assert answer.proposals.num_passes == 3  # told of with the round that used them
    assert [type(message).__name__ for message in drafts].count("Propose") == 6 + 1


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_draft_that_fails_costs_the_pair_no_round(pair, is_ahead, monkeypatch):

    def broken(chunks):
        raise MemoryError("no room for a draft")

    monkeypatch.setattr(pair._draft.runner, "forward", broken)
    asked = tuple(ProposeRow(i, 3, (), 3) for i in (1, 2))
    for number in range(2):
        verify = tuple(VerifyRow(i, number + 1, 3 + number, (), ()) for i in (1, 2))
        answer = pair.handle(Round(Propose(asked, ()), Verify(verify, ())))
        assert [row.tokens for row in answer.proposals.rows] == [(), ()]
        assert len(answer.verdicts.rows) == 2
        assert [row.num_accepted for row in answer.verdicts.rows] == [0, 0]
        if is_ahead:
            pair.advance()
