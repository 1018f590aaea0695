"""What a target does between two questions changes when it is done, and nothing else."""

import json

import architectures
import pytest

from outrider.actors.errors import InvalidRequest
from outrider.actors.text.grammar import GrammarMatcher
from outrider.actors.transport.messages import Open, Verify
from outrider.actors.transport.rows import LogitsParams, OpenRow, SamplingRow, VerifyRow
from outrider.actors.transport.worker_spec import WorkerSpec
from outrider.actors.workers import target as module
from outrider.actors.workers.loading import load_worker

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
PROMPT, EOS = (5, 6, 7), 4


def params(**given):
    usual = {"bias_ids": (), "bias": (), "repetition": 1.0, "frequency": 0.0, "presence": 0.0}
    rest = {"min_tokens": 0, "end_ids": (EOS,), "eos_ids": (EOS,)}
    return LogitsParams(**usual | rest | {"grammar_kind": "", "grammar": ""} | given)


GRAMMAR = {"grammar_kind": "json", "grammar": json.dumps(SCHEMA)}
ROWS = {
    1: params(repetition=1.3, presence=0.5),
    2: params(**GRAMMAR),
    3: params(**GRAMMAR, frequency=0.7, min_tokens=9),
    4: None,
}


@pytest.fixture
def target():
    spec = WorkerSpec("target", str(architectures.DEMO / "target"), 4096, num_tokens=512)
    worker = load_worker(spec)
    for seq_id, logits in ROWS.items():
        sampling = SamplingRow(1.0, 0, 1.0, 0.0, "coupled", 11, 0, logits)
        worker.handle(Open((OpenRow(seq_id, PROMPT, (), sampling, 100, ""),)))
    return worker


def asked(texts, number, guesses):
    return Verify(
        tuple(VerifyRow(i, number, len(PROMPT) + len(texts[i]), guesses, ()) for i in ROWS), ()
    )


def written(worker, is_ahead, num_rounds=8):
    texts = {seq_id: [] for seq_id in ROWS}
    for number in range(num_rounds):
        guesses = (9, 10)[: number % 3]
        reply = worker.handle(asked(texts, number + 1, guesses))
        for row in reply.rows:
            assert not row.error
            texts[row.seq_id] += [*guesses[: row.num_accepted], row.token]
        if is_ahead:
            worker.advance()
    return texts


def test_texts_are_the_same(target):
    ahead = written(target, is_ahead=True)
    assert target.find(2).processor.first_mask is not None
    target.reset()
    for seq_id, logits in ROWS.items():
        sampling = SamplingRow(1.0, 0, 1.0, 0.0, "coupled", 11, 0, logits)
        target.handle(Open((OpenRow(seq_id, PROMPT, (), sampling, 100, ""),)))
    assert written(target, is_ahead=False) == ahead


def test_a_mask_that_is_known_is_not_made_again(target, monkeypatch):
    written(target, is_ahead=True, num_rounds=1)
    monkeypatch.setattr(target.grammars.filler, "fill", lambda asked, out: asked and 1 / 0)
    texts = {i: target.find(i).ids[len(PROMPT) :] for i in ROWS}
    target.handle(asked(texts, 2, ()))
    with pytest.raises(ZeroDivisionError):
        target.handle(asked({i: target.find(i).ids[len(PROMPT) :] for i in ROWS}, 3, ()))


def test_edits_of_rows_without_proposals_are_made_before_they_are_asked_for(target, monkeypatch):
    made, make = [], module.logits_edits
    monkeypatch.setattr(module, "logits_edits", lambda *a, **kw: made.append(a) or make(*a, **kw))
    written(target, is_ahead=True, num_rounds=1)
    assert len(made) == 2
    texts = {i: target.find(i).ids[len(PROMPT) :] for i in ROWS}
    target.handle(asked(texts, 2, ()))
    assert len(made) == 2
    target.advance()
    texts = {i: target.find(i).ids[len(PROMPT) :] for i in ROWS}
    target.handle(asked(texts, 3, (9,)))  # not what was foreseen
    assert len(made) == 4


def test_edits_are_not_foreseen_of_a_text_that_could_not_be_taken_in(target, monkeypatch):
    written(target, is_ahead=False, num_rounds=1)
    take, failing = module.LogitsProcessor.take, [target.find(1).processor]

    def once(self, ids):
        if self in failing and failing.remove(self) is None:
            raise InvalidRequest("Got a text that takes too long")
        take(self, ids)

    monkeypatch.setattr(module.LogitsProcessor, "take", once)
    made, make = [], module.logits_edits
    monkeypatch.setattr(module, "logits_edits", lambda *a, **kw: made.append(a) or make(*a, **kw))
    target.advance()
    assert not failing
    assert not made
    texts = {i: target.find(i).ids[len(PROMPT) :] for i in ROWS}
    target.handle(asked(texts, 2, ()))
    assert len(made) == 1


def test_an_error_waits_until_it_is_asked_for(target, monkeypatch):
    written(target, is_ahead=False, num_rounds=1)

    def beyond(self, ids):
        raise InvalidRequest("Got a grammar beyond what can be followed")

    monkeypatch.setattr(GrammarMatcher, "advance", beyond)
    assert target.advance() is None
    texts = {i: target.find(i).ids[len(PROMPT) :] for i in ROWS}
    with pytest.raises(InvalidRequest, match="beyond what"):
        target.handle(asked(texts, 2, ()))
