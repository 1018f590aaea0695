"""Where the workers of one engine go, and with how many threads: as asked, as devices have it, or
by how long forwards take. For that a trial is started, draft and target in one process; it goes on
as what was chosen, so that nothing is loaded twice but a draft that goes elsewhere.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from outrider.actors.executor.executor import Executor
from outrider.actors.sizing.machine import num_cores
from outrider.actors.sizing.placement import Placement, choose
from outrider.actors.transport.messages import (
    Describe,
    Settle,
    TimedForwards,
    TimeForwards,
    WorkerInfo,
)
from outrider.actors.transport.worker_client import WorkerClient
from outrider.actors.transport.worker_spec import WorkerSpec

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator has fixed; None is left open."""

    is_colocated: bool | None = None
    num_threads: int | None = None
    num_replicas: int = 1  # that share this machine


@dataclass(frozen=True, slots=True)
class Placed:
    """The workers to run, and those that do already."""

    placement: Placement
    specs: list[WorkerSpec]
    started: dict[str, WorkerClient] = field(default_factory=dict)  # by role


async def place(
    target: WorkerSpec,
    draft: WorkerSpec | None,
    wish: Wish,
    executor: Executor,
    say: Progress,
    quiet: Awaitable[object],
) -> Placed:
    """After `prepare` of the target. Forwards are timed once `quiet` has come: what this process
    computes until then would count as theirs. Raises what that does, and OutriderError, of a trial
    that could not be loaded.
    """
    if draft is not None and wish.is_colocated is not True:
        await executor.prepare("draft")  # not sooner: until now all cores are busy
    placed = await _place(target, draft, wish, executor, say, quiet)
    if draft is not None and placed.placement.is_colocated:
        await executor.end("draft")  # what was prepared for one
    return placed


async def _place(
    target: WorkerSpec,
    draft: WorkerSpec | None,
    wish: Wish,
    executor: Executor,
    say: Progress,
    quiet: Awaitable[object],
) -> Placed:
    most = _most_threads(wish)
    together = wish.is_colocated
    shared = None if target.device == "cpu" else executor.shares_device
    has_devices = shared is not None
    if draft is not None and draft.device != target.device:
        together = shared = False
    if together is None and draft is not None:
        together = shared
    if fixed := _fixed(wish, together, draft is not None, most, executor.is_inline, has_devices):
        return Placed(fixed, specs_of(target, draft, fixed))
    counts = (wish.num_threads,) if wish.num_threads else tuple(sorted({max(1, most // 2), most}))
    trial = _together(replace(target, num_threads=counts[-1]), draft)
    say(f"loading {trial.model}" + (f" and {draft.model}" if draft else "") + " for a trial")
    client = await executor.start(trial)
    info = await client.call(Describe())
    assert isinstance(info, WorkerInfo)
    if info.depends_on_threads:
        reason = "its logits depend on the number of threads: it is not left to measurement"
        placement = Placement(draft is not None, counts[-1], reason, draft is not None)
    else:
        await quiet
        timings = await client.call(TimeForwards(counts))
        assert isinstance(timings, TimedForwards)
        placement = choose(timings.found, most, draft is not None and together is not True)
    is_apart = not placement.is_colocated and not target.head
    cores = executor.own_cores("target", placement.num_threads) if is_apart else ()
    await client.call(Settle(placement.num_threads, cores, not is_apart))
    return Placed(placement, specs_of(target, draft, placement), {"target": client})


def _most_threads(wish: Wish) -> int:
    return max(1, num_cores() // wish.num_replicas)


def specs_of(
    target: WorkerSpec, draft: WorkerSpec | None, placement: Placement
) -> list[WorkerSpec]:
    """The target and, if there is one in a process of its own, the draft."""
    target = replace(target, num_threads=placement.num_threads)
    if draft is None:
        return [target]
    if placement.is_colocated:
        return [_together(target, draft)]
    return [target, replace(draft, num_threads=placement.num_threads)]


def _together(target: WorkerSpec, draft: WorkerSpec | None) -> WorkerSpec:
    if draft is None:
        return target
    return replace(target, colocated_draft=draft.model, num_draft_tokens=draft.num_tokens)


def _fixed(
    wish: Wish, together: bool | None, has_draft: bool, most: int, is_inline: bool, on_devices: bool
) -> Placement | None:
    """What needs no measurement."""
    if is_inline or on_devices:
        where = "in this process" if is_inline else "by the devices"
        is_colocated = has_draft and (together if together is not None else is_inline)
        return Placement(is_colocated, wish.num_threads or most, where, has_draft)
    if together is False and has_draft:
        return Placement(False, wish.num_threads or max(1, most // 2), "as asked")
    if wish.num_threads is not None and (together is True or not has_draft):
        return Placement(has_draft, wish.num_threads, "as asked", has_draft)
    if most == 1:
        return Placement(has_draft, wish.num_threads or 1, "there is one core", has_draft)
    return None
