"""Who takes turns, what a ratio is, and what is refused."""

import itertools
import math

import pytest

from outrider.actors.errors import InvalidConfig, OutriderError
from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.bench.compare.claims import claims
from outrider.cluster.bench.compare.comparison import check_field, compare
from outrider.cluster.bench.compare.contender import Absent, Outcome, Work
from outrider.cluster.bench.compare.divergence import Divergence
from outrider.cluster.bench.compare.engines.hugging_face import ASSISTED, BATCHING, GENERATE
from outrider.cluster.bench.compare.engines.outrider_engine import DEFAULT, HTTP, LOCKSTEP, PLAIN
from outrider.cluster.bench.compare.ratio import Ratio

WORK = Work(((1, 2), (3,)), num_tokens=20, temperature=0.0, num_streams=1)


class Scripted:
    """Takes the time that it is told to take; writes zeros, as many as it likes."""

    def __init__(self, name, times, is_ours=False, num_tokens=None, log=None):
        self.name = name
        self.is_ours = is_ours
        self._times = {setting: itertools.cycle(found) for setting, found in times.items()}
        self._num_tokens = num_tokens
        self._log = [] if log is None else log

    def settings(self, work):
        return tuple(self._times)

    async def run(self, work, setting):
        ids = ((0,) * (self._num_tokens or work.num_tokens),) * len(work.prompts)
        if work.num_tokens < WORK.num_tokens:
            return Outcome(0.001, ids)  # warming up
        self._log.append((self.name, setting))
        return Outcome(next(self._times[setting]), ids, Snapshot() if self.is_ours else None)

    async def close(self):
        pass


class Failing(Scripted):
    async def run(self, work, setting):
        raise OutriderError("it is broken")


async def run(*contenders, work=WORK, repeats=3, deadline_s=math.inf):
    return await compare(work, list(contenders), repeats, deadline_s, lambda name: None)


def test_a_ratio_is_of_neighbours() -> None:
    """Both twice as slow for a while: the ratio does not move."""
    assert Ratio.of([1.0, 2.0, 1.0], [3.0, 6.0, 3.0]) == Ratio(3.0, 3.0, 3.0)
    assert Ratio.of([1.0, 1.0, 2.0], [2.0, 4.0, 6.0]) == Ratio(3.0, 2.0, 4.0)
    assert str(Ratio.of([1.0, 1.0, 2.0], [2.0, 4.0, 6.0])) == "3.00x (2.00 to 4.00)"
    with pytest.raises(ValueError, match="zip"):
        Ratio.of([1.0], [1.0, 2.0])


def test_a_divergence_says_where_first() -> None:
    same = Divergence.of(((1, 2), (3, 4)), ((1, 2), (3, 4)))
    assert same.is_none
    assert str(same) == "2/2 texts equal"
    other = Divergence.of(((1, 2, 3), (3, 4, 5), (6,)), ((1, 2, 9), (3, 8, 5), (6,)))
    assert str(other) == "1/3 texts equal, first at token 1"
    assert Divergence.of(((1, 2),), ((1,),)).first_at == 1


async def test_the_best_two_settings_go_on_and_take_turns() -> None:
    log = []
    peer = Scripted("peer", {"a": [3.0], "b": [9.0], "c": [2.0]}, log=log)
    case = await run(peer, Scripted(PLAIN, {"": [1.0]}, is_ours=True, log=log), repeats=2)
    trials, turns = log[:4], log[4:]
    assert trials == [("peer", "a"), ("peer", "b"), ("peer", "c"), (PLAIN, "")]
    assert turns == [("peer", "a"), ("peer", "c"), (PLAIN, "")] * 2
    best = case.best("peer")
    assert best is not None
    assert (best.setting, best.seconds) == ("c", [2.0, 2.0])
    assert case.rate(best) == pytest.approx(20.0)


async def test_after_the_deadline_three_repeats_are_all() -> None:
    case = await run(Scripted("peer", {"": [1.0]}), repeats=9, deadline_s=0.0)
    assert len(case.series[0].seconds) == 3


async def test_a_peer_that_fails_takes_no_part_but_we_do() -> None:
    case = await run(Failing("peer", {"": [1.0]}), Scripted(PLAIN, {"": [1.0]}, is_ours=True))
    assert case.failures == {"peer": "it is broken"}
    assert [series.contender for series in case.series] == [PLAIN]
    with pytest.raises(OutriderError, match="it is broken"):
        await run(Failing(PLAIN, {"": [1.0]}, is_ours=True))


async def test_whoever_writes_less_takes_no_part() -> None:
    case = await run(Scripted("peer", {"": [1.0]}, num_tokens=3))
    assert case.failures == {"peer": "Got texts of [3] tokens from peer, expected 12 of each"}
    assert not case.series


def test_we_are_not_compared_with_ourselves_only() -> None:
    ours = Scripted(PLAIN, {"": [1.0]}, is_ours=True)
    absent = Absent("llama.cpp", "no program llama-server", "build it")
    with pytest.raises(InvalidConfig, match=r"llama\.cpp: no program llama-server; build it"):
        check_field([ours], [absent])
    with pytest.raises(InvalidConfig, match="itself only"):
        check_field([], [])
    check_field([ours, Scripted("peer", {"": [1.0]})], [absent])


async def claimed(*contenders, is_demo, num_streams=1, temperature=0.0):
    work = Work(WORK.prompts, WORK.num_tokens, temperature, num_streams)
    found = claims(await run(*contenders, work=work), is_demo=is_demo)
    return {(c.fast.name, c.slow.name): (c.ratio.median, c.bar, c.is_missed) for c in found}


async def test_what_is_claimed_alone() -> None:
    field = [
        Scripted(GENERATE, {"": [6.0]}),
        Scripted(ASSISTED, {"k=3": [3.0], "k=4": [4.0]}),
        Scripted("OpenVINO GenAI", {"": [1.0]}),
        Scripted(PLAIN, {"": [4.0]}, is_ours=True),
        Scripted(LOCKSTEP, {"k=2": [2.5], "k=3": [2.0]}, is_ours=True),
        Scripted(HTTP, {"k=3": [2.5]}, is_ours=True),
    ]
    best = "Outrider lockstep, k=3"
    assert await claimed(*field, is_demo=True) == {
        (best, GENERATE): (3.0, 3.0, False),
        (best, "HF assisted, k=3"): (1.5, 2.2, True),
        (best, "OpenVINO GenAI"): (0.5, None, False),
        (best, PLAIN): (2.0, None, False),
        (PLAIN, GENERATE): (1.5, None, False),
        ("Outrider over HTTP, k=3", best): (0.8, 0.85, True),
    }
    elsewhere = await claimed(*field, is_demo=False)
    assert elsewhere[best, "OpenVINO GenAI"] == (0.5, 1.0, True)
    sampled = await claimed(*field, is_demo=True, temperature=1.0)
    assert {bar for _, bar, _ in sampled.values()} == {None, 0.85}, "HTTP's alone"


async def test_what_is_claimed_in_a_crowd() -> None:
    field = [
        Scripted(BATCHING, {"": [2.0]}),
        Scripted(PLAIN, {"": [1.0]}, is_ours=True),
        Scripted(DEFAULT, {"": [1.1]}, is_ours=True),
    ]
    found = await claimed(*field, is_demo=True, num_streams=32)
    assert found[DEFAULT, BATCHING] == (pytest.approx(2 / 1.1), 1.3, False)
    assert found[DEFAULT, PLAIN] == (pytest.approx(1 / 1.1), 0.98, True)
    assert found[PLAIN, BATCHING] == (2.0, 1.3, False)
    fewer = await claimed(*field, is_demo=True, num_streams=8)
    assert fewer[PLAIN, BATCHING] == (2.0, None, False)
