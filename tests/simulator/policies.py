"""Ways to choose what is drafted and when, under one protocol: what a coordinator is built with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.machines import Machine

from outrider.actors.lookahead.controller import Controller, Pipeline
from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price_controller import PriceController

ALONE, ALL = ("prediction", "draft"), ("prediction", "draft", "ngram")
COPIES = ("prediction", "ngram")
LOCKSTEP_KS, AHEAD_KS = (1, 2, 3, 4, 6, 8, 12), (2, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Setting:
    """One way to run."""

    pipeline: Pipeline
    controller: Callable[[], Controller]
    drafters: tuple[str, ...] = ALONE
    is_colocated: bool = False
    label: str = ""


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


POLICIES = {"none": plain, "lockstep": lockstep, "ahead": ahead, "present": present}
