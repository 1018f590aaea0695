"""Law 1, lockstep: the draft never changes the answer, token for token, numerics exact."""

import asyncio

import pytest
import torch
import transformers as hf
from batches import PAIRS, alone, check, known, output, requests, speculating

from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, VerificationMode
from outrider.actors.spec_decode.lockstep import LockstepDraft
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Propose, ProposeReply
from outrider.actors.transport.rows import PrefillRow, ProposalRow, ProposeRow

LOCKSTEP = {"pipeline": "lockstep", "lookahead": "fixed"}


@pytest.mark.parametrize(("architecture", "kind"), PAIRS, ids=lambda value: value)
async def test_output_equals_plain_decoding(engine_of, architecture, kind):
    async with engine_of(architecture, kind, **LOCKSTEP) as engine:
        sizes = (1, 8) if architecture != "demo" else (1, 3, 8)
        await check(engine, sizes, ks=(1, 3, 5), oracle=known)
        snapshot = engine.statistics.snapshot()
    if kind == "good":
        assert snapshot.acceptance_rate > 0.3  # the draft is taken at its word, at times
    assert snapshot.num_drafted > 500


async def test_over_sockets_too(engine_of):
    async with engine_of("demo", "own", executor="process", **LOCKSTEP) as engine:
        await check(engine, sizes=(1, 8), ks=(0, 1, 3, 5))


def test_an_answer_about_prompts_only_does_not_clear_a_failure():
    draft = LockstepDraft(None, 24, Trace(None))
    ask = Propose((ProposeRow(1, 3, (5,), 2),), ())
    draft.take(ask, ProposeReply((ProposalRow(1, (), (), DraftStop.FAILED),), 0.0, 0.0, 0))
    draft.take(Propose((), (PrefillRow(2, 4),)), ProposeReply((), 0.0, 0.0, 1))
    assert draft.failure == "it fails for every sequence"
    draft.take(ask, ProposeReply((ProposalRow(1, (7,), ()),), 0.0, 0.0, 1))
    assert not draft.failure


async def test_batches_of_mixed_k_and_chunked_prompts(engine_of):
    """Neighbours of every k, prompts cut by a small token budget, more requests than places."""
    async with engine_of("llama", "good", token_budget=24, max_batch=5, **LOCKSTEP) as engine:
        batch = requests(8, {"temperature": 1.0}, 4096, seed=5)
        expected = await alone(engine, batch)
        asked = [speculating(each, k=index) for index, each in enumerate(batch)]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected


async def test_greedy_is_what_transformers_generates(engine_of, models):
    """Independent of all our code but the weights; a near-tie of the top two may differ."""
    target, _ = models("demo", "own")
    model = hf.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    async with engine_of("demo", "own", **LOCKSTEP) as engine:
        for text in ("What does os.path.join do?", "The Python tutorial"):
            prompt = tuple(engine.tokenizer.encode(text))
            request = Request(prompt, SamplingParams(temperature=0.0, max_tokens=64), seed=0)
            ids = [i async for chunk in engine.generate(request) for i in chunk.token_ids]
            generated = model.generate(
                torch.tensor([prompt]), do_sample=False, max_new_tokens=64, max_length=None
            )
            reference = generated[0, len(prompt) :].tolist()
            assert_equal_but_for_ties(model, prompt, ids, reference)


def assert_equal_but_for_ties(model, prompt, ids, reference):
    for at, (ours, theirs) in enumerate(zip(ids, reference, strict=False)):
        if ours != theirs:
            with torch.inference_mode():
                row = model(torch.tensor([[*prompt, *ids[:at]]])).logits[0, -1]
            top = row.topk(2).values
            assert top[0] - top[1] < 1e-3, (at, ours, theirs)
            return
    assert len(ids) == len(reference)


async def test_rejection_is_a_function_of_the_seed_and_its_draft(engine_of):
    """Not token for token, but reproducible, and the same in any batch."""
    async with engine_of("demo", "own", **LOCKSTEP) as engine:
        batch = requests(6, {"temperature": 1.0}, 4096, seed=9)
        asked = [speculating(e, k=3, verification=VerificationMode.REJECTION) for e in batch]
        one_by_one = [await output(engine, each) for each in asked]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == one_by_one
        assert engine.statistics.snapshot().acceptance_rate > 0.1
