"""The texts of single tokens: together they are the text of their chunk, wherever rounds end."""

import itertools
from pathlib import Path

import httpx
import pytest
from cluster.toy_engine import ToyEngine

from outrider.actors.scheduling.request import OutputDelta, Request, Resumed
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.text.stopping_criteria import StoppingCriteria
from outrider.actors.text.tokenizer import Tokenizer
from outrider.cluster.api.response.token_texts import TokenTexts

DEMO = Path(__file__).parents[4] / "cluster" / "demo" / "target"
TEXT = "Naïve 日本語 🙂 text, e\u0301 and 👩‍👩‍👧: str.split STOP and more"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(DEMO)


def chunks_of(
    tokenizer: Tokenizer, ids: list[int], stop: str, sizes: list[int]
) -> list[OutputDelta]:
    """As the engine cuts them: whole characters, nothing of the stop string."""
    rules = StoppingCriteria(tokenizer.stream((), (stop,)), ())
    chunks, left = [], ids
    for size in itertools.cycle(sizes):
        taken, reason = rules.cut(tuple(left[:size]), len(left))
        text = rules.text(taken, reason)
        chunks.append(OutputDelta(taken, (0.0,) * len(taken), text, finish_reason=reason))
        left = left[size:]
        if reason is not None:
            return chunks
    raise AssertionError


@pytest.mark.parametrize("stop", ["STOP", "never", "e\u0301 and"])
@pytest.mark.parametrize("sizes", [[1], [2], [3, 1], [7], [100]])
def test_together_they_are_the_chunks_text(
    tokenizer: Tokenizer, stop: str, sizes: list[int]
) -> None:
    ids = tokenizer.encode(TEXT)
    texts = TokenTexts(tokenizer, Request((), SamplingParams(), 0))
    for chunk in chunks_of(tokenizer, ids, stop, sizes):
        pieces = texts.of(chunk)
        assert len(pieces) == len(chunk.token_ids)
        assert "".join(pieces) == chunk.text


def test_each_is_its_tokens_own(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("str.split returns a list")
    texts = TokenTexts(tokenizer, Request((), SamplingParams(), 0))
    (chunk,) = chunks_of(tokenizer, ids, "never", [100])
    assert texts.of(chunk) == [tokenizer.decode([token_id]) for token_id in ids]


@pytest.mark.parametrize("sizes", [[1], [4]])
def test_a_resumed_text_goes_on_where_it_broke(tokenizer: Tokenizer, sizes: list[int]) -> None:
    chunks = chunks_of(tokenizer, tokenizer.encode(TEXT), "STOP", sizes)
    whole = TokenTexts(tokenizer, Request((), SamplingParams(), 0))
    expected = [whole.of(chunk) for chunk in chunks]
    for cut in range(len(chunks)):
        ids = tuple(token_id for chunk in chunks[:cut] for token_id in chunk.token_ids)
        resumed = Resumed(ids, sum(len(chunk.text) for chunk in chunks[:cut]))
        texts = TokenTexts(tokenizer, Request((), SamplingParams(), 0, resumed=resumed))
        assert [texts.of(chunk) for chunk in chunks[cut:]] == expected[cut:]


async def test_they_are_told_where_asked_for(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    body = {"model": "toy", "prompts": ["hi"], "max_tokens": 3, "seed": 0}
    asking = body | {"return_token_texts": True}
    (choice,) = (await http.post("/v1/generate", json=asking)).json()["choices"]
    assert choice["token_texts"] == list(choice["text"])
    stream = (await http.post("/v1/generate", json=asking | {"stream": True})).text
    assert '"token_texts":["c","d"]' in stream
    for silent in (body, body | {"stream": True}):
        assert "token_texts" not in (await http.post("/v1/generate", json=silent)).text
