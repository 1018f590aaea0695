"""A new kind of drafter is its own file and one line of the registry: here a toy's, from there to
the client, with the target's own text.
"""

import pytest
from batches import known, output, requests, speculating

from outrider.actors.engine.config import EngineOptions
from outrider.actors.errors import InvalidConfig
from outrider.actors.spec_decode.drafters.registry import DRAFTERS, DrafterKind, Place


class Echo:
    """Guesses that the last token comes again."""

    agreed = 0

    def __init__(self, request):
        self._last = request.prompt_ids[-1]

    def extend(self, ids):
        self._last = ids[-1]

    def propose(self, max_tokens):
        return (self._last,) * max_tokens


@pytest.fixture
def echo(monkeypatch):
    monkeypatch.setitem(DRAFTERS, "echo", DrafterKind("echo", Place.COORDINATOR, Echo))  # the line


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
        DRAFTERS, "echo", DrafterKind("echo", Place.COORDINATOR, Echo, takes_path=True)
    )
    [chosen] = EngineOptions(drafters=("echo:/models/echo",)).chosen_drafters
    assert str(chosen.path) == "/models/echo"
    with pytest.raises(InvalidConfig, match=r"Got the drafter 'echo', expected echo:PATH"):
        EngineOptions(drafters=("echo",))
