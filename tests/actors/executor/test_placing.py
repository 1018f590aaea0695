"""Where workers go when nothing has to be measured, and what is loaded for a trial."""

import asyncio
from typing import Any

import pytest

from outrider.actors.executor import placing
from outrider.actors.executor.placing import Placed, Wish, place
from outrider.actors.transport.messages import Done, Settle, TimedForwards, TimeForwards, Timing
from outrider.actors.transport.worker_spec import WorkerSpec

TARGET = WorkerSpec("target", "/t", 100, 1000)
DRAFT = WorkerSpec("draft", "/d", 100, 1200)
QUICK = (Timing(1, ((1, 3.0), (3, 3.3), (5, 4.0)), 0.2), Timing(2, ((1, 3.5), (3, 4.2)), 0.2))


class Info:
    """As much of a WorkerInfo as is looked at."""

    depends_on_threads = False


class Client:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def call(self, message: Any) -> Any:
        self.asked.append(message)
        match message:
            case TimeForwards():
                return TimedForwards(QUICK)
            case Settle():
                return Done()
        return Info()


class Executor:
    is_parallel = True

    def __init__(self, shares_device: bool | None = None, is_inline: bool = False) -> None:
        self.shares_device, self.is_inline = shares_device, is_inline
        self.cores: tuple[int, ...] = ()
        self.started: list[WorkerSpec] = []
        self.prepared: list[str] = []
        self.client = Client()

    def own_cores(self, role: str, num_threads: int) -> tuple[int, ...]:
        return self.cores

    async def prepare(self, role: str) -> None:
        self.prepared.append(role)

    async def end(self, role: str) -> bool:
        if role in self.prepared:
            self.prepared.remove(role)
        return False

    async def start(self, spec: WorkerSpec) -> Any:
        self.started.append(spec)
        return self.client


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "num_cores", lambda: 4)
    monkeypatch.setattr(placing, "WorkerInfo", Info)


async def placed(executor: Executor, draft: WorkerSpec | None = DRAFT, **wish: Any) -> Placed:
    target = wish.pop("target", TARGET)
    quiet = wish.pop("quiet", None) or asyncio.create_task(asyncio.sleep(0))
    asked = Wish(**wish)
    await executor.prepare("target")
    placed = await place(target, draft, asked, executor, lambda _: None, quiet)
    # What was prepared is what is to be started, and nothing else.
    assert executor.prepared == [spec.role for spec in placed.specs]
    return placed


@pytest.mark.parametrize(
    ("shares_device", "wish", "expected"),
    [
        (True, {}, (True, 4)),  # one GPU: together
        (False, {}, (False, 4)),  # one each
        (True, {"is_colocated": False}, (False, 4)),  # if it has to be
        (None, {"is_colocated": False}, (False, 2)),  # the cores split
        (None, {"is_colocated": True, "num_threads": 3}, (True, 3)),
        (None, {"num_replicas": 4}, (True, 1)),  # a core for each replica
        (None, {"num_replicas": 2, "is_colocated": False}, (False, 1)),
    ],
)
async def test_what_needs_no_measurement(
    shares_device: bool | None, wish: dict[str, Any], expected: tuple[bool, int]
) -> None:
    executor = Executor(shares_device)
    found = await placed(executor, **wish)
    assert (found.placement.is_colocated, found.placement.num_threads) == expected
    assert executor.started == []
    assert len(found.specs) == (1 if expected[0] else 2)
    assert found.specs[0].colocated_draft == ("/d" if expected[0] else None)


async def test_in_this_process_nothing_is_tried() -> None:
    executor = Executor(is_inline=True)
    found = await placed(executor)
    assert [(spec.role, spec.colocated_draft) for spec in found.specs] == [("target", "/d")]
    assert executor.started == []
    found = await placed(Executor(is_inline=True), is_colocated=False)
    assert [spec.role for spec in found.specs] == ["target", "draft"]


@pytest.mark.parametrize("cores", [(0, 1), ()], ids=["pinned", "by-ray"])
async def test_a_trial_times_both_and_goes_on(cores: tuple[int, ...]) -> None:
    """Only an executor that keeps workers on cores has it kept on some."""
    executor = Executor()
    executor.cores = cores
    found = await placed(executor)
    [trial] = executor.started
    assert (trial.colocated_draft, trial.num_draft_tokens) == ("/d", 1200)
    assert TimeForwards((2, 4)) in executor.client.asked
    assert found.started == {"target": executor.client}
    assert not found.placement.is_colocated  # as QUICK has it
    assert executor.client.asked[-1] == Settle(1, cores, False)
    assert [spec.role for spec in found.specs] == ["target", "draft"]


async def test_on_the_cpu_of_a_machine_with_gpus_forwards_are_timed() -> None:
    from dataclasses import replace

    executor = Executor(shares_device=True)
    draft = replace(DRAFT, device="cpu")
    await placed(executor, draft, target=replace(TARGET, device="cpu"))
    assert len(executor.started) == 1


async def test_where_threads_change_bits_nothing_is_left_to_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Info, "depends_on_threads", True)
    found = await placed(Executor())
    assert (found.placement.is_colocated, found.placement.num_threads) == (True, 4)


async def test_forwards_are_timed_once_nothing_else_computes() -> None:
    executor, quiet = Executor(), asyncio.get_running_loop().create_future()
    placing = asyncio.create_task(placed(executor, quiet=quiet))
    await asyncio.sleep(0.01)
    assert len(executor.started) == 1  # it loads beside
    assert not any(isinstance(each, TimeForwards) for each in executor.client.asked)
    quiet.set_result(None)
    await placing
    assert TimeForwards((2, 4)) in executor.client.asked


async def test_without_a_draft_threads_are_tried() -> None:
    executor = Executor()
    found = await placed(executor, draft=None)
    assert executor.started[0].colocated_draft is None
    assert len(found.specs) == 1
