"""A new kind of drafter is its own file and one line of the registry: here a toy's, from there to
the client, with the target's own text.
"""

from collections import Counter
from dataclasses import replace

import pytest
from batches import known, output, requests, speculating

from outrider.actors.engine.config import EngineOptions
from outrider.actors.errors import InvalidConfig, InvalidRequest
from outrider.actors.scheduling.sampling_params import SpeculationParams
from outrider.actors.spec_decode.drafters.guess import copied
from outrider.actors.spec_decode.drafters.registry import DRAFTERS, DrafterKind, Place


class Echo:
    """Guesses that the last token comes again."""

    def __init__(self, request):
        self._last = request.prompt_ids[-1]

    def extend(self, ids):
        self._last = ids[-1]

    def propose(self, max_tokens):
        return copied((self._last,) * max_tokens, 0)

    def end(self):
        pass


@pytest.fixture
def echo(monkeypatch):
    monkeypatch.setitem(
        DRAFTERS, "echo", DrafterKind("echo", Place.COORDINATOR, lambda _: Echo)
    )  # the line


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("drafters", [("echo",), ("ngram", "draft", "echo"), ("echo", "draft")])
async def test_a_toy_drafter_through_the_registry(engine_of, drafters):
    options = {"lookahead": "fixed", "pipeline": "lockstep", "drafters": drafters}
    async with engine_of("demo", "own", **options) as engine:
        assert engine.info.drafters == drafters
        plain = requests(4, {"temperature": 0.0}, 4000)
        expected = await known(engine, plain)
        asked = [speculating(one, k=3) for one in plain]
        assert [await output(engine, one) for one in asked] == expected
        chunks = [chunk async for chunk in engine.generate(asked[0])]
        told = {drafter for chunk in chunks for drafter in chunk.tree.drafters}
        assert told <= {*drafters}
        if drafters[0] == "echo":
            assert told == {"echo"}


@pytest.mark.usefixtures("echo")
def test_a_kind_that_is_loaded_is_given_a_path(monkeypatch):
    monkeypatch.setitem(
        DRAFTERS, "echo", DrafterKind("echo", Place.COORDINATOR, lambda _: Echo, value="PATH")
    )
    [chosen] = EngineOptions(drafters=("echo:/models/echo",)).chosen_drafters
    assert chosen.value == "/models/echo"
    with pytest.raises(InvalidConfig, match=r"Got the drafter 'echo', expected echo:PATH"):
        EngineOptions(drafters=("echo",))


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("has_draft", [True, False])
async def test_texts_of_before_are_drafted_from_within_their_scope(engine_of, sampling, has_draft):
    """The same text with them, and nothing of one key's for another."""

    async def origins(engine, salt):
        told = Counter()
        for number, request in enumerate(asked):
            own = f"{salt}{number}" if salt else ""  # no two of them see each other
            mine = replace(speculating(request), cache_salt=own)
            chunks = [chunk async for chunk in engine.generate(mine)]
            ids.append([i for chunk in chunks for i in chunk.token_ids])
            told.update(drafter for chunk in chunks for drafter in chunk.tree.drafters)
        return told

    options = {"drafters": ("draft", "suffix")} if has_draft else {"drafters": ("suffix",)}
    async with engine_of("demo", "own", has_draft=has_draft, **options) as engine:
        asked, ids = requests(3, sampling, 4000), []
        plain = [await output(engine, speculating(each, is_enabled=False)) for each in asked]
        first = await origins(engine, "me/")
        again = await origins(engine, "me/")
        other = await origins(engine, "you/")
        alone = await origins(engine, "")
        assert ids == [own for own, *_ in plain] * 4
        assert again["suffix"] > 0
        assert first["suffix"] == other["suffix"] == alone["suffix"] == 0


@pytest.mark.parametrize("pipeline", ["ahead", "lockstep"])
async def test_a_request_names_those_that_may_draft_for_it(engine_of, pipeline):
    options = {"pipeline": pipeline} | (
        {"lookahead": "fixed", "k": 3} if pipeline == "lockstep" else {}
    )
    async with engine_of("demo", "own", drafters=("draft", "ngram"), **options) as engine:
        (asked,) = requests(1, {"temperature": 0.0}, 4000)
        asked = replace(asked, prompt_ids=(7, 8, 9, 10) * 8)
        for names in (("draft",), ("ngram",), ()):
            speculation = SpeculationParams(drafters=names)
            chunks = [c async for c in engine.generate(replace(asked, speculation=speculation))]
            told = {drafter for chunk in chunks for drafter in chunk.tree.drafters}
            assert told <= {*names}
            assert told or names != ("draft",)
        with pytest.raises(InvalidRequest, match="accepted: draft, ngram") as refused:
            engine.check(replace(asked, speculation=SpeculationParams(drafters=("eagle",))))
        assert refused.value.param == "speculation.drafters"
