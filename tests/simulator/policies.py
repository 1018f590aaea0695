"""Ways to choose what is drafted and when, under one protocol: what a coordinator is built with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.machines import Machine

from outrider.actors.lookahead.controller import Controller, Pipeline
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.latency_curve import TimeCurve
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.lookahead.round_report import EAGLE3, RoundReport

ALONE, ALL = ("prediction", "draft"), ("prediction", "draft", "ngram")
COPIES = ("prediction", "ngram")
LOCKSTEP_KS, AHEAD_KS = (1, 2, 3, 4, 6, 8, 12), (2, 4, 8, 16)
BUDGETS = (4, 8, 16, 32)  # nodes a round


@dataclass(frozen=True)
class Setting:
    """One way to run."""

    pipeline: Pipeline
    controller: Callable[[], Controller]
    drafters: tuple[str, ...] = ALONE
    is_colocated: bool = False
    label: str = ""

    @property
    def head(self) -> str:
        """The head that it drafts with, if it does."""
        return EAGLE3 if EAGLE3 in self.drafters else ""


def plain(machine: Machine, has_draft: bool) -> Sequence[Setting]:
    return [Setting(Pipeline.LOCKSTEP, lambda: FixedController(0), (), label="k=0")]


def lockstep(machine: Machine, has_draft: bool) -> Sequence[Setting]:
    """Each k, with draft and target in one process where they share a device; without a draft the
    past is copied from.
    """
    if not has_draft:
        return [
            Setting(Pipeline.LOCKSTEP, lambda k=k: FixedController(k), COPIES, label=f"k={k}")
            for k in LOCKSTEP_KS
        ]
    return [
        Setting(
            Pipeline.LOCKSTEP,
            lambda k=k: FixedController(k),
            is_colocated=machine.is_shared,
            label=f"k={k}",
        )
        for k in LOCKSTEP_KS
    ]


def ahead(machine: Machine, has_draft: bool) -> Sequence[Setting]:
    if not has_draft:
        return []
    return [
        Setting(Pipeline.AHEAD, lambda k=k: FixedController(k), label=f"k={k}") for k in AHEAD_KS
    ]


@dataclass(frozen=True, slots=True)
class Budget(Price):
    """So many nodes, whatever they cost; none is waited for."""

    num_nodes: int = 0

    def least(self, num_tokens: int) -> float:
        return 0.0

    def room(self, num_tokens: int) -> int:
        return self.num_nodes

    def worth(self, chances: Sequence[float], num_tokens: int) -> tuple[int, float]:
        size = min(len(chances), self.num_nodes)
        return size, sum(chances[:size])


class FixedBudget(PriceController):
    """Of all rows together."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self._price = Budget(TimeCurve(), 0.0, num_nodes)

    def price(self, num_rows: int) -> Price:
        return self._price

    def observe(self, report: RoundReport) -> None:
        pass


def budget(machine: Machine, has_draft: bool) -> Sequence[Setting]:
    """The same tree without a price."""
    if not has_draft or machine.is_shared:
        return []
    return [
        Setting(Pipeline.AHEAD, lambda n=n: FixedBudget(n), ALL, label=f"n={n}") for n in BUDGETS
    ]


def present(machine: Machine, has_draft: bool) -> Sequence[Setting]:
    """As `outrider serve` comes: one tree, one price."""
    drafters, is_shared = ALL if has_draft else COPIES, has_draft and machine.is_shared
    return [
        Setting(
            Pipeline.LOCKSTEP if is_shared else Pipeline.AHEAD,
            lambda: PriceController(is_lockstep=is_shared),
            drafters,
            is_colocated=is_shared,
        )
    ]


def with_head(machine: Machine, has_draft: bool) -> Sequence[Setting]:
    """Of each k a chain of the head's."""
    return [
        Setting(
            Pipeline.LOCKSTEP,
            lambda k=k: FixedController(k),
            (EAGLE3,),
            is_colocated=True,
            label=f"k={k}",
        )
        for k in LOCKSTEP_KS
    ]


def _priced(*drafters: str) -> Callable[[Machine, bool], Sequence[Setting]]:
    is_pair = EAGLE3 in drafters

    def one(machine: Machine, has_draft: bool) -> Sequence[Setting]:
        pipeline = Pipeline.LOCKSTEP if is_pair else Pipeline.AHEAD
        return [
            Setting(
                pipeline,
                lambda: PriceController(is_lockstep=is_pair),
                drafters,
                is_colocated=is_pair,
            )
        ]

    return one


OF_HEADS = {  # each drafter by itself, and all together
    "none": plain,
    "lockstep": with_head,
    "head alone": _priced(EAGLE3),
    "copies alone": _priced(*COPIES),
    "present": _priced(*COPIES, EAGLE3),
}
POLICIES = {
    "none": plain,
    "lockstep": lockstep,
    "ahead": ahead,
    "fixed budget": budget,
    "present": present,
}
