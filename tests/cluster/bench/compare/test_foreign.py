"""An engine in a process of its own: what it answers, and what is said when it does not."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.actors.errors import OutriderError
from outrider.cluster.bench.compare.contender import Work
from outrider.cluster.bench.compare.engines.foreign import (
    FOREIGN,
    Foreign,
    ForeignContender,
    absence,
)
from outrider.cluster.bench.compare.roster import key_of

WORK = Work(((5,), (7, 8)), num_tokens=3, temperature=0.0, num_streams=2)
TOY = Foreign("Toy", "toy", "toy_driver", ("json",), ("plain",), ("fails",), "build a toy")


@pytest.fixture
async def toy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ForeignContender]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    contender = ForeignContender(TOY, sys.executable, {"step": 2, "num_threads": 1})
    yield contender
    await contender.close()


async def test_it_answers_again_and_again(toy: ForeignContender) -> None:
    for _ in range(2):
        outcome = await toy.run(WORK, "plain")
        assert outcome.ids == ((7, 9, 11), (10, 12, 14))
        assert outcome.seconds == 0.5


async def test_its_failures_are_told_and_it_lives_on(toy: ForeignContender) -> None:
    with pytest.raises(OutriderError, match="Toy, fails: ValueError: no such toy"):
        await toy.run(WORK, "fails")
    assert (await toy.run(WORK, "plain")).seconds == 0.5


async def test_its_end_is_told_with_its_last_words(toy: ForeignContender) -> None:
    with pytest.raises(OutriderError, match="Toy ended: the toy ends here"):
        await toy.run(WORK, "dies")


def test_what_is_not_installed_says_how_to_get_it() -> None:
    assert absence(TOY, sys.executable, None) is None
    lacking = Foreign("Toy", "toy", "toy_driver", ("no_such_module",), (), (), "build a toy")
    told = str(absence(lacking, sys.executable, None))
    assert "no_such_module" in told
    assert told.endswith("build a toy")
    assert "/nowhere/python has no json" in str(absence(TOY, "/nowhere/python", None))
    llama = FOREIGN[0]
    assert "no program /nowhere/server" in str(absence(llama, sys.executable, "/nowhere/server"))


async def test_a_target_alone_has_settings_of_its_own() -> None:
    for draft, settings in ((None, FOREIGN[0].undrafted), ("/a/draft", FOREIGN[0].crowd)):
        contender = ForeignContender(FOREIGN[0], sys.executable, {"draft": draft})
        assert contender.settings(WORK) == settings
        await contender.close()


def test_what_is_converted_is_of_these_files_alone(tmp_path: Path) -> None:
    """Another model in the place of the one before must not be measured as that one."""
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    first = key_of(tmp_path)
    assert key_of(tmp_path) == first
    weights.write_bytes(b"two")
    assert key_of(tmp_path) != first
