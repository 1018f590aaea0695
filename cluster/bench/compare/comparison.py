"""Contenders on one work, pair by pair in one run.

Every setting of every contender runs once first, warmed up, and the best few of each contender
go on. Those take turns, A B A B, so that a ratio compares neighbours in time.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from outrider.actors.errors import InvalidConfig, OutriderError
from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.bench.compare.contender import Contender, Outcome, Work
from outrider.cluster.bench.compare.divergence import Divergence
from outrider.cluster.bench.compare.ratio import Ratio
from outrider.cluster.bench.prompts import Ids

KEPT = 2  # settings of a contender that go on: the first run may have judged them wrongly
MIN_REPEATS = 3
WARM_TOKENS = 12

Progress = Callable[[str], None]


@dataclass(slots=True)
class Series:
    """One setting of one contender, over the repeats."""

    contender: str
    setting: str
    is_ours: bool
    trial_s: float = 0.0
    seconds: list[float] = field(default_factory=list)  # of each repeat; none if it did not go on
    ids: tuple[Ids, ...] = ()
    snapshot: Snapshot | None = None  # of the last run

    @property
    def name(self) -> str:
        return f"{self.contender}, {self.setting}" if self.setting else self.contender

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    def add(self, outcome: Outcome) -> None:
        self.seconds.append(outcome.seconds)
        self.take(outcome)

    def take(self, outcome: Outcome) -> None:
        self.ids, self.snapshot = outcome.ids, outcome.snapshot


@dataclass(slots=True)
class Case:
    """What came of one work."""

    work: Work
    series: list[Series]
    failures: dict[str, str]  # contender to reason: it took no part

    def best(self, contender: str) -> Series | None:
        """The setting with the smallest median; none if the contender took no part."""
        measured = [one for one in self.series if one.contender == contender and one.seconds]
        return min(measured, key=lambda one: one.median_s, default=None)

    def contenders(self, *, is_ours: bool) -> list[str]:
        """Those that took part, each once."""
        names = (one.contender for one in self.series if one.is_ours is is_ours and one.seconds)
        return list(dict.fromkeys(names))

    def rate(self, series: Series) -> float:
        """Tokens per second, of the median run."""
        return self.work.total_tokens / series.median_s

    def ratio(self, fast: Series, slow: Series) -> Ratio:
        return Ratio.of(fast.seconds, slow.seconds)

    def divergence(self, one: Series, other: Series) -> Divergence:
        return Divergence.of(one.ids, other.ids)


def check_field(contenders: Iterable[Contender], absent: Iterable[object]) -> None:
    """Raises InvalidConfig where Outrider would be compared with itself only."""
    if all(contender.is_ours for contender in contenders):
        lines = "".join(f"\n  {one}" for one in absent)
        raise InvalidConfig(
            "Got no peer that could be run, expected at least one: Outrider is not compared with "
            f"itself only. Peers that could be had:{lines or ' ask for one with --peer'}"
        )


async def compare(
    work: Work,
    contenders: list[Contender],
    max_repeats: int,
    deadline_s: float,
    progress: Progress,
    told: Callable[[Case], None] = lambda _: None,
) -> Case:
    """deadline_s: of time.monotonic(); after it no repeat begins, once there are a few. `told` is
    what there is after each repeat.
    """
    case = Case(work, [], {})
    chosen: list[tuple[Contender, Series]] = []
    for contender in contenders:
        try:
            tried = await _tried(work, contender, progress)
        except OutriderError as error:
            if contender.is_ours:
                raise
            case.failures[contender.name] = str(error)
            continue
        case.series += tried
        best = sorted(tried, key=lambda one: one.trial_s)[:KEPT]
        chosen += [(contender, one) for one in tried if one in best]
    for repeat in range(max_repeats):
        if repeat >= MIN_REPEATS and time.monotonic() > deadline_s:
            break
        for contender, series in chosen:
            progress(f"repeat {repeat + 1}: {series.name}")
            series.add(await _ran(contender, work, series.setting))
        told(case)
    return case


async def _tried(work: Work, contender: Contender, progress: Progress) -> list[Series]:
    """Each setting once, after a short run that warms it up."""
    found: list[Series] = []
    for setting in contender.settings(work):
        series = Series(contender.name, setting, contender.is_ours)
        progress(f"trial: {series.name}")
        await _ran(contender, work.shortened(WARM_TOKENS), setting)
        outcome = await _ran(contender, work, setting)
        series.trial_s = outcome.seconds
        series.take(outcome)
        found.append(series)
    return found


async def _ran(contender: Contender, work: Work, setting: str) -> Outcome:
    """One run. Raises OutriderError, also where it did not write as much as was asked."""
    outcome = await contender.run(work, setting)
    if any(len(ids) != work.num_tokens for ids in outcome.ids):
        lens = sorted({len(ids) for ids in outcome.ids})
        raise OutriderError(
            f"Got texts of {lens} tokens from {contender.name}, expected {work.num_tokens} of each"
        )
    return outcome
