"""Law 1 over everything a request can ask of the sampler, two and two together.

On the CPU, numerics exact: ids, text and raw log-probabilities with speculation are those without.
Rejection mode above temperature 0 promises the distribution only (test_rejection_statistics), so
here it is asked at temperature 0.
"""

import asyncio
import json
from dataclasses import replace

import pytest
from batches import known, requests, speculating
from pairwise import pairwise
from sampling_cases import PARAMETERS, batch_of, told
from unreliable import UnreliableExecutor

from outrider.actors.errors import WorkerFailed
from outrider.actors.scheduling.request import Resumed
from outrider.actors.scheduling.sampling_params import (
    GrammarKind,
    SamplingParams,
)
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.actors.text.grammar_masks import MaskFiller
from outrider.actors.workers.logits.logits_processor import NOT_DRAFTED, LogitsProcessor

ENGINES = {
    "draft ahead": {"pipeline": "ahead", "drafters": ("prediction", "draft")},
    "draft ahead and copies": {"pipeline": "ahead", "drafters": USUAL_DRAFTERS},
    "lockstep": {"pipeline": "lockstep", "drafters": USUAL_DRAFTERS},
    "in turns": {"is_colocated": True, "drafters": USUAL_DRAFTERS},
    "copies": {"pipeline": "lockstep", "has_draft": False, "drafters": USUAL_DRAFTERS},
}


@pytest.mark.parametrize(("architecture", "kind"), [("demo", "own"), ("llama", "good")])
@pytest.mark.parametrize("name", ENGINES)
async def test_everything_together(engine_of, architecture, kind, name):
    cases = pairwise(PARAMETERS)
    executor = UnreliableExecutor(trouble=0.1) if "ahead" in name else "inline"
    config = {"lookahead": "fixed", "token_budget": 48}
    async with engine_of(
        architecture, kind, executor=executor, **ENGINES[name], **config
    ) as engine:
        plain, asked = batch_of(cases, 4000)
        expected = await known(engine, plain, told)
        with_predictions = [
            replace(request, prediction_ids=tuple(one["ids"][:9] + one["ids"][11:]))
            if is_predicted
            else request
            for (request, is_predicted), one in zip(asked, expected, strict=True)
        ]
        for size in (1, 8):
            got = []
            for at in range(0, len(cases), size):
                several = with_predictions[at : at + size]
                got += await asyncio.gather(*(told(engine, request) for request in several))
            for case, one, other in zip(cases, expected, got, strict=True):
                assert one == other, case
        assert engine.statistics.snapshot().num_accepted > len(cases)
        check_promises(cases, expected, engine.tokenizer)


def check_promises(cases, expected, tokenizer):
    """What each parameter says, said of the text without speculation."""
    for case, one in zip(cases, expected, strict=True):
        assert len(one["logprobs"]) == len(one["ids"])
        assert 200 not in one["ids"] or not case["logit_bias"]
        for row, logprob, token in zip(one["top"], one["logprobs"], one["ids"], strict=False):
            assert len(row) == 3
            assert [p for _, p in row] == pytest.approx(sorted((p for _, p in row), reverse=True))
            assert logprob <= row[0][1] + 1e-5
            assert dict(row).get(token, logprob) == logprob
        assert len(one["top"]) == (len(one["ids"]) if case["num_top_logprobs"] else 0)
        grammar = case["grammar"]
        if case["stop"] or grammar is None or one["why"] != "stop" or case["stop_token_ids"]:
            continue
        if grammar.kind is GrammarKind.JSON:
            assert "name" in json.loads(one["text"])
        if grammar.kind is GrammarKind.CHOICE:
            assert one["text"] in json.loads(grammar.text)


@pytest.mark.parametrize("name", ["draft ahead and copies", "lockstep"])
async def test_a_stream_is_taken_up_anywhere(engine_of, name):
    """Cut after any chunk: what was sent and what comes then are the whole; penalties go on."""
    cases = pairwise({n: v for n, v in PARAMETERS.items() if n not in ("prompt_logprobs", "top_k")})
    executor = UnreliableExecutor(trouble=0.0) if "ahead" in name else "inline"
    config = {"lookahead": "fixed"}
    async with engine_of("demo", "own", executor=executor, **ENGINES[name], **config) as engine:
        _, asked = batch_of(cases, 4000)
        for request, _ in asked:
            chunks = [chunk async for chunk in engine.generate(request)]
            whole = [i for chunk in chunks for i in chunk.token_ids]
            text = "".join(chunk.text for chunk in chunks)
            for cut in {1, len(chunks) // 2, len(chunks)}:
                ids = tuple(i for chunk in chunks[:cut] for i in chunk.token_ids)
                sent = "".join(chunk.text for chunk in chunks[:cut])
                lost = min(2, len(sent))  # characters that never arrived
                resumed = Resumed(ids, len(sent) - lost)
                rest = await told(engine, replace(request, resumed=resumed))
                assert (*ids, *rest["ids"]) == tuple(whole)
                assert sent[: len(sent) - lost] + rest["text"] == text
                assert rest["why"] == chunks[-1].finish_reason


async def test_prompt_logprobs_are_those_of_generating_it(engine_of):
    """The first prompt generates a text; as a prompt that text gets the same log-probabilities."""
    async with engine_of("demo", "own", token_budget=16) as engine:
        prompt = tuple(range(40, 60))
        asked = SamplingParams(temperature=0.0, max_tokens=24, ignores_eos=True)
        request = requests(1, {}, 4000)[0]
        first = await told(engine, replace(request, prompt_ids=prompt, sampling=asked))
        again = replace(asked, max_tokens=1, prompt_logprobs=1)
        longer = prompt + tuple(first["ids"])
        second = await told(engine, replace(request, prompt_ids=longer, sampling=again))
        assert [row.token_id for row in second["prompt"]] == list(longer[1:])
        own = [row.logprob for row in second["prompt"]][len(prompt) - 1 :]
        assert own == pytest.approx(first["logprobs"], abs=1e-5)
        tops = [row.top[0][0] for row in second["prompt"]][len(prompt) - 1 :]
        assert tops == first["ids"]


async def test_a_good_prediction_is_worth_its_tokens(engine_of):
    async with engine_of("demo", "own", has_draft=False, drafters=USUAL_DRAFTERS) as engine:
        sampling = SamplingParams(temperature=0.0, max_tokens=60, ignores_eos=True)
        request = replace(requests(1, {}, 4000)[0], sampling=sampling)
        ids = (await told(engine, speculating(request, is_enabled=False)))["ids"]
        asked = replace(request, prediction_ids=tuple(ids))
        chunks = [chunk async for chunk in engine.generate(asked)]
        assert [i for chunk in chunks for i in chunk.token_ids] == ids
        assert {origin for chunk in chunks for origin in chunk.origins} >= {"prediction"}
        assert len(chunks) < len(ids) / 8


@pytest.mark.parametrize("bug", ["penalties", "grammar"])
async def test_edits_that_forget_the_drafted_tokens_are_caught(engine_of, monkeypatch, bug):
    rows = LogitsProcessor.rows
    if bug == "penalties":
        monkeypatch.setattr(
            LogitsProcessor,
            "rows",
            lambda self, drafted, skip=0: rows(self, NOT_DRAFTED) * (len(drafted[0]) + 1 - skip),
        )
    else:

        def forgetful(self, asked, out):
            for each in asked:
                each.matcher.masks((), each.of(out)[:1])
                each.of(out)[:] = each.of(out)[0]

        monkeypatch.setattr(MaskFiller, "fill", forgetful)
    with pytest.raises((AssertionError, WorkerFailed)):
        await test_everything_together(engine_of, "demo", "own", "lockstep")
