"""Ragged batches of requests, and what an engine makes of one."""

import random

from outrider.actors.request import Request
from outrider.actors.sampling import SamplingParams, Speculation


def requests(size, sampling, vocab, seed=0):
    """A ragged batch: prompts of 1 to 60 ids, outputs of 3 to 24."""
    rng = random.Random(seed)
    return [
        Request(
            tuple(rng.randrange(5, vocab) for _ in range(rng.choice([1, 2, 7, 17, 60]))),
            SamplingParams(max_tokens=rng.randrange(3, 25), ignores_eos=True, **sampling),
            seed=rng.randrange(2**64),
            choice=index % 3,
        )
        for index in range(size)
    ]


def speculating(request, **speculation):
    return Request(
        request.prompt_ids,
        request.sampling,
        request.seed,
        request.choice,
        Speculation(**speculation),
    )


async def output(engine, request):
    chunks = [chunk async for chunk in engine.generate(request)]
    ids = [token for chunk in chunks for token in chunk.token_ids]
    assert len(ids) == request.sampling.max_tokens
    assert sum(len(chunk.logprobs) for chunk in chunks) == len(ids)
    return ids, "".join(chunk.text for chunk in chunks), [p for c in chunks for p in c.logprobs]
