"""Ragged batches of requests, what an engine makes of one, and that it holds nothing after."""

import asyncio
import random
import time

from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.transport.messages import Ping

ARCHITECTURES = ["llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "gpt2", "phi3"]
KINDS = ["good", "random", "adversarial"]
PAIRS = [("demo", "own"), *((a, k) for a in ARCHITECTURES for k in KINDS)]
SAMPLINGS = [
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 40, "min_p": 0.02},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.9},
]


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
        SpeculationParams(**speculation),
    )


async def output(engine, request):
    chunks = [chunk async for chunk in engine.generate(request)]
    ids = [token for chunk in chunks for token in chunk.token_ids]
    assert len(ids) == request.sampling.max_tokens
    assert sum(len(chunk.logprobs) for chunk in chunks) == len(ids)
    return ids, "".join(chunk.text for chunk in chunks), [p for c in chunks for p in c.logprobs]


async def alone(engine, batch):
    """The oracle: each request by itself, without the draft."""
    return [await output(engine, speculating(each, is_enabled=False)) for each in batch]


_KNOWN = {}


async def known(engine, batch, tell=output):
    """What `alone` gives, asked of one engine for all with its target: it depends on no more."""
    key = tell, engine.info.fingerprint, tuple(batch)
    if key not in _KNOWN:
        plain = [speculating(each, is_enabled=False) for each in batch]
        _KNOWN[key] = [await tell(engine, each) for each in plain]
    return _KNOWN[key]


async def check(engine, sizes, ks, oracle=alone):
    vocab = engine.info.vocab_size
    for number, sampling in enumerate(SAMPLINGS):
        batch = requests(max(sizes), sampling, vocab, number)
        expected = await oracle(engine, batch)
        for size in sizes:
            for k in ks:
                asked = [speculating(each, k=k) for each in batch[:size]]
                got = await asyncio.gather(*(output(engine, each) for each in asked))
                assert got == expected[:size], (sampling, size, k)
    assert engine.info.numerics == "exact"
    assert engine.health().status == "ok"


async def pages_of(engine):
    """(free, all) pages of each worker."""
    worker_group = [
        each
        for each in (engine._worker_group.target, engine._worker_group.draft)
        if each is not None
    ]
    pongs = [await (await supervisor.up()).call(Ping()) for supervisor in worker_group]
    return [(pong.num_free_pages, pong.num_pages, pong.num_sequences) for pong in pongs]


async def drained(engine):
    """Wait until nothing runs, then check that nothing is held."""
    deadline = time.monotonic() + 60
    while True:
        health, pages = engine.health(), await pages_of(engine)
        is_idle = health.num_running == health.num_waiting == 0
        if is_idle and all(free == num and not sequences for free, num, sequences in pages):
            return
        assert time.monotonic() < deadline, (health, pages)
        await asyncio.sleep(0.01)
