"""Rejection mode where trees grow, ahead or in turns: the joint of four tokens is the target's.

Coupled and greedy verification are tested token for token; here only odds can be given. False
alarm: 1e-6 for each test, whatever the timing does to the proposals' lengths.
"""

import asyncio

import numpy as np
import pytest
import torch
import transformers as hf
from architectures import DEMO
from kernels.statistics import chi_square_odds
from unreliable import UnreliableExecutor

from outrider.actors.lookahead import price, price_controller
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import (
    SamplingParams,
    SpeculationParams,
    VerificationMode,
)
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.actors.trees import choosing
from outrider.actors.workers.ahead import tree_sampler
from outrider.actors.workers.sparse_row import sparse_row

NUM_REQUESTS, LENGTH, TOP_K, TEMPERATURE = 6000, 4, 3, 1.6
ENOUGH = 1200  # accepted, and rejected, for the odds to say anything
PROMPT = "You can"
LIMIT = 1e-6
HEAD = f"eagle3:{DEMO / 'eagle3'}"
PLACES = {
    "ahead": {"is_colocated": False, "drafters": USUAL_DRAFTERS},
    "in turns": {"is_colocated": True, "drafters": USUAL_DRAFTERS},
    "a head": {"is_colocated": "auto", "has_draft": False, "drafters": (HEAD, "ngram")},
}


@pytest.fixture(scope="module")
def joint(models):
    """Every text of LENGTH tokens that the filter leaves, and its probability."""
    target, _ = models("demo", "own")
    model = hf.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    tokenizer = hf.AutoTokenizer.from_pretrained(target)
    prompt = tokenizer.encode(PROMPT)
    found = {}

    def walk(text, chance):
        if len(text) == LENGTH:
            found[text] = chance
            return
        with torch.inference_mode():
            row = model(torch.tensor([[*prompt, *text]])).logits[0, -1].double() / TEMPERATURE
        values, ids = row.topk(TOP_K)
        for token, share in zip(ids.tolist(), values.softmax(0).tolist(), strict=True):
            walk((*text, token), chance * share)

    walk((), 1.0)
    return tuple(prompt), found


async def odds(engine_of, joint, place, k=3, num_requests=NUM_REQUESTS):
    prompt, probs = joint
    counts = dict.fromkeys(probs, 0)
    sampling = SamplingParams(
        temperature=TEMPERATURE, top_k=TOP_K, max_tokens=LENGTH, ignores_eos=True
    )
    rule = SpeculationParams(k=k, verification=VerificationMode.REJECTION)
    config = dict(PLACES[place])
    config["executor"] = UnreliableExecutor(5, trouble=0.2)
    async with engine_of("demo", "own", **config) as engine:

        async def one(seed):
            request = Request(prompt, sampling, seed=seed, speculation=rule)
            chunks = [chunk async for chunk in engine.generate(request)]
            counts[tuple(i for chunk in chunks for i in chunk.token_ids)] += 1

        for batch in (range(at, at + 24) for at in range(0, num_requests, 24)):
            await asyncio.gather(*(one(seed) for seed in batch))
        snapshot = engine.statistics.snapshot()
    found = chi_square_odds(np.array(list(counts.values())), np.array(list(probs.values())))
    return found, snapshot


def turns_rows_round(monkeypatch):
    """Tokens travel with another distribution than they came from."""
    monkeypatch.setattr(tree_sampler, "sparse_row", lambda draws, at: turned(sparse_row(draws, at)))


def turned(row):
    """The same ids, their probabilities turned round."""
    return type(row)(row.ids, row.probs[::-1])


def proposes_the_likely_only(monkeypatch):
    """A chain ends before a token that is itself unlikely: how far it goes tells of the token."""
    chain = choosing.chain

    def mutant(root, length, is_drawn):
        found = chain(root, length, is_drawn)
        unlikely = (at for at, node in enumerate(found) if is_drawn and share(node) <= 0.4)
        return found[: next(unlikely, len(found))]

    monkeypatch.setattr(choosing, "chain", mutant)


def share(node):
    return node.row.probs[node.row.ids.index(node.token)]


@pytest.mark.parametrize(
    ("place", "k"),
    [("ahead", 3), ("ahead", None), ("in turns", 3), ("in turns", None), ("a head", 3)],
)
async def test_the_joint_is_the_targets(engine_of, joint, monkeypatch, k, place):
    if k is None:  # as on a machine where drafting pays, and never plainly to compare
        monkeypatch.setattr(price.Price, "of", lambda self, num_tokens: 0.02)
        monkeypatch.setattr(price_controller, "DOUBTFUL", 0.0)
    found, snapshot = await odds(engine_of, joint, place, k)
    assert found > LIMIT
    assert snapshot.num_accepted > ENOUGH
    assert snapshot.num_drafted - snapshot.num_accepted > ENOUGH


@pytest.mark.parametrize("place", ["ahead", "in turns"])
@pytest.mark.parametrize(
    ("plant", "num_requests"),
    [(turns_rows_round, 2400), (proposes_the_likely_only, NUM_REQUESTS)],
)
async def test_a_planted_bug_is_caught(engine_of, joint, monkeypatch, plant, num_requests, place):
    plant(monkeypatch)
    found, _ = await odds(engine_of, joint, place, num_requests=num_requests)
    assert found < LIMIT
