"""A prompt's log-probabilities are computed for one of its choices and reach all of them."""

import asyncio
from collections.abc import Sequence

import pytest

from outrider.actors.scheduling.request import OutputDelta, Request, Resumed, TokenLogprobs
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.cluster.api.request.job import PromptsTold, told_once

TOLD = (TokenLogprobs(5, -1.0, ()), TokenLogprobs(6, -2.0, ()))
ASKING = SamplingParams(prompt_logprobs=0)


def requests(
    num_prompts: int, num_choices: int, resumed: Sequence[int] = ()
) -> tuple[Request, ...]:
    """Those of `resumed` go on from a text that the client has."""
    made = [
        Request((1 + at // num_choices, 5, 6), ASKING, 0, at % num_choices)
        for at in range(num_prompts * num_choices)
    ]
    for at in resumed:
        made[at] = Request((1, 5, 6), ASKING, 0, at, resumed=Resumed((9,), 1))
    return tuple(told_once(made, num_choices))


def tellers(made: Sequence[Request]) -> list[int]:
    return [at for at, each in enumerate(made) if each.sampling.prompt_logprobs is not None]


def test_one_choice_of_each_prompt_is_computed_for() -> None:
    assert tellers(requests(1, 1)) == [0]
    assert tellers(requests(3, 1)) == [0, 1, 2]
    assert tellers(requests(2, 3)) == [0, 3]
    assert tellers(requests(1, 4, resumed=[0, 2])) == [1]
    assert tellers(requests(1, 2, resumed=[0, 1])) == []
    unasked = [Request((1, 5), SamplingParams(), 0, choice) for choice in range(3)]
    assert list(told_once(unasked, 3)) == unasked


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_all_have_them_with_their_first_chunk(order: Sequence[int]) -> None:
    got: dict[int, list[tuple[TokenLogprobs, ...]]] = {0: [], 1: [], 2: []}

    async def on_chunk(index: int, chunk: OutputDelta) -> None:
        got[index].append(chunk.prompt_logprobs)

    told = PromptsTold(requests(1, 3), 3, on_chunk)

    async def choice(index: int) -> None:
        first = OutputDelta((7,), (-1.0,), "a", prompt_logprobs=TOLD if index == 0 else ())
        await told.on_chunk(index, first)
        await told.on_chunk(index, OutputDelta((8,), (-1.0,), "b"))

    tasks = []
    for index in order:
        tasks.append(asyncio.create_task(choice(index)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert got == {index: [TOLD, ()] for index in range(3)}


async def test_one_that_is_taken_up_waits_for_nothing() -> None:
    got = []

    async def on_chunk(index: int, chunk: OutputDelta) -> None:
        got.append((index, chunk.prompt_logprobs))

    told = PromptsTold(requests(1, 2, resumed=[0]), 2, on_chunk)
    await told.on_chunk(0, OutputDelta((7,), (-1.0,), "a"))
    await told.on_chunk(1, OutputDelta((7,), (-1.0,), "a", prompt_logprobs=TOLD))
    assert got == [(0, ()), (1, TOLD)]
