"""Sound kernels give CUDA's results under every schedule; what CUDA leaves undefined is refused."""

import itertools
import re

import numpy as np
import pytest
from kernels.emulator.arguments import ArgumentError
from kernels.emulator.conftest import SOURCE
from kernels.emulator.emulator import RawModule
from kernels.emulator.structures import EmulatorError

SEEDS = range(6)


def marked_lines(kernel: str) -> list[int]:
    """The lines of a kernel of faulty.cu that carry the mark `// <-`."""
    before, _, after = SOURCE.partition(f"void {kernel}(")
    first = before.count("\n") + 1
    body = after.partition("\n}")[0].split("\n")
    return [first + i for i, line in enumerate(body) if line.endswith("// <-")]


def out(n: int) -> np.ndarray:
    return np.full(n, -1, np.int32)


@pytest.mark.parametrize("switch", ["faulty", "with_ucontext"])
@pytest.mark.parametrize("seed", SEEDS)
def test_sum_over_blocks_warps_and_lanes(
    switch: str, seed: int, request: pytest.FixtureRequest
) -> None:
    module: RawModule = request.getfixturevalue(switch)
    x, y = np.arange(1000, dtype=np.float32), np.zeros(5, np.float32)
    module.get_function("sum<64>")((5,), (64,), (x, y, np.int32(1000)), seed=seed)
    assert y.sum() == x.sum()


def test_indices_of_every_thread_of_a_grid(faulty: RawModule) -> None:
    got = out(3 * 2 * 2 * 5 * 2 * 4)
    faulty.get_function("where")((3, 2, 2), (5, 2, 4), (got,), seed=2)
    blocks, threads = np.mgrid[:12, :40]
    assert np.array_equal(got, (blocks * 1000 + threads).ravel())


@pytest.mark.parametrize("seed", SEEDS)
def test_shuffles_votes_and_reductions(faulty: RawModule, seed: int) -> None:
    got = out(32 * 12)
    faulty.get_function("warp_words")((1,), (32,), (got,), seed=seed)
    lane = np.arange(32)
    square = lane**2
    ones = sum(1 << i for i in range(32) if square[i] % 3 == 1)
    expected = [
        np.full(32, 25),
        (lane // 8 * 8 + 1) ** 2,
        np.where(lane >= 3, (lane - 3) ** 2, square),
        np.where(lane < 29, (lane + 3) ** 2, square),
        (lane ^ 4) ** 2,
        np.full(32, np.uint32(ones).astype(np.int32)),
        np.full(32, 2),
        np.full(32, square.sum()),
        np.full(32, (square % 7).max()),
        np.where(lane < 8, 49, 81),
        np.full(32, 7),
        np.full(32, 1),
    ]
    assert np.array_equal(got.reshape(32, 12).T, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_last_block_finishes_and_resets_its_counter(faulty: RawModule, seed: int) -> None:
    x, part, total = np.arange(9, dtype=np.int32), out(9), out(1)
    counter = np.zeros(1, np.uint32)
    kernel = faulty.get_function("last_block")
    for _ in range(2):
        total[:] = -1
        kernel((9,), (32,), (x, part, counter, total), seed=seed)
        assert (total[0], counter[0]) == (36, 0)


def test_seeds_permute_blocks_and_threads(faulty: RawModule) -> None:
    def order(seed: int) -> list[int]:
        log, following = out(6 * 64), np.zeros(1, np.int32)
        faulty.get_function("order")((6,), (64,), (log, following), seed=seed)
        return [int(thread) for thread in log]

    forward, threads = order(0), 6 * 64
    assert forward == list(range(threads))
    assert order(1) == forward[::-1]
    orders = [order(seed) for seed in (2, 3, 4)]
    assert all(sorted(o) == forward for o in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert order(2) == orders[0]
    blocks = [o // 64 for o in orders[0]]
    assert sum(a != b for a, b in itertools.pairwise(blocks)) > 12, "blocks mingle"


def test_denormals_are_flushed_unless_asked_for(faulty: RawModule) -> None:
    tiny = np.finfo(np.float32).tiny
    x = np.array([tiny, tiny / 2, -tiny], np.float32)
    kernel = faulty.get_function("product")
    flushed, kept = np.full(3, np.nan, np.float32), np.full(3, np.nan, np.float32)
    kernel((1,), (3,), (x, flushed), flush_denormals=True)
    kernel((1,), (3,), (x, kept))
    assert np.array_equal(flushed, [0, 0, 0])
    assert np.array_equal(kept, x / 4)
    assert x[1] / 4 > 0, "the caller's own floating-point mode is as it was"


REFUSED = {
    "divergent_barrier": "thread 40 is at __syncthreads(), {1} while others wait at "
    "__syncthreads(), {0}: divergent",
    "early_return": "thread 7 returned while others wait at __syncthreads(), {0}",
    "late_barrier": "thread 7 is at __syncthreads(), {0} after others of its block returned",
    "divergent_shuffle": "thread 16 is at __shfl_xor_sync(), {1} while lanes of its warp wait at "
    "__shfl_xor_sync(), {0}",
    "not_in_mask": "thread 16 is not named in its own mask at __ballot_sync(), {0}",
    "reads_outside_mask": "thread 7 reads lane 9, which is not in the mask, at __shfl_sync(), {0}",
    "gone_lane": "thread 3 returned while its warp waits for it at __any_sync(), {0}",
    "deadlock": "deadlock: block (0, 0, 0) thread 0 waits at __syncthreads(), {0};",
    "too_much_shared": "needs 65536 bytes of static shared memory, expected at most 49152",
    "traps": "thread 9 stops at __trap(), {0}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_undefined_behaviour_is_refused_by_place(faulty: RawModule, name: str) -> None:
    places = [f"faulty.cu:{line}" for line in marked_lines(name)]
    with pytest.raises(EmulatorError, match=re.escape(REFUSED[name].format(*places))) as refusal:
        faulty.get_function(name)((1,), (64,), (out(64),), seed=0)
    assert "block (0, 0, 0) thread" in str(refusal.value)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", REFUSED)
def test_undefined_behaviour_is_refused_under_every_schedule(
    faulty: RawModule, name: str, seed: int
) -> None:
    with pytest.raises(EmulatorError):
        faulty.get_function(name)((2,), (64,), (out(64),), seed=seed)


def test_a_launch_after_a_refusal_runs(faulty: RawModule) -> None:
    with pytest.raises(EmulatorError):
        faulty.get_function("early_return")((1,), (64,), (out(1),))
    got = out(32)
    faulty.get_function("warp_fence")((1,), (32,), (got,))
    assert np.array_equal(got, (np.arange(32) ^ 1) + 1)


def results(module: RawModule, name: str, seeds: range, fills: tuple[int, ...]) -> set[bytes]:
    """The distinct outputs of a one-array kernel of 64 threads."""
    found = set()
    for seed in seeds:
        for fill in fills:
            got = out(64)
            module.get_function(name)((1,), (64,), (got,), seed=seed, fill=fill)
            found.add(got.tobytes())
    return found


def test_unset_shared_memory_shows_as_a_dependence_on_the_poison(faulty: RawModule) -> None:
    assert len(results(faulty, "unset_shared", range(1), (0x00, 0xFF))) == 2


def test_a_missing_barrier_shows_as_a_dependence_on_the_schedule(faulty: RawModule) -> None:
    assert len(results(faulty, "missing_barrier", range(2), (0,))) == 2


def test_atomics_taken_for_one_step_show_in_a_random_schedule(faulty: RawModule) -> None:
    """Two atomics in a row are sound only if nothing comes between."""
    found = set()
    for seed in range(30):
        counter, y = np.zeros(1, np.uint32), np.zeros(2, np.int32)
        faulty.get_function("counter_in_parts")((8,), (1,), (counter, y), seed=seed)
        found.add((int(counter[0]), *y.tolist()))
    assert len(found) > 1


def test_arguments_must_fit_the_kernel(faulty: RawModule) -> None:
    got, kernel = out(1), faulty.get_function("types")
    sound = [np.int8(1), np.int16(2), np.int32(3), 4, 5.0, got]
    kernel((1,), (1,), sound)
    assert got[0] == 15
    for i, wrong, message in [
        (2, 3, "argument 2, of 8 bytes, the kernel takes 4"),
        (4, np.float32(5), "argument 4, of 4 bytes, the kernel takes 8"),
        (3, got, "argument 3, an array, the kernel takes a value of 8 bytes"),
    ]:
        with pytest.raises(EmulatorError, match=message):
            kernel((1,), (1,), [*sound[:i], wrong, *sound[i + 1 :]])
    with pytest.raises(EmulatorError, match="Got 5 arguments, the kernel takes 6"):
        kernel((1,), (1,), sound[:5])
    with pytest.raises(ArgumentError, match="type str"):
        kernel((1,), (1,), [*sound[:5], "text"])
    with pytest.raises(ArgumentError, match="expected none below 0"):
        kernel((1,), (1,), [*sound[:5], out(4)[::-1]])


def test_launches_must_fit_the_device(faulty: RawModule) -> None:
    kernel, got = faulty.get_function("dynamic"), out(64)
    kernel((1,), (64,), (got, np.int32(8)), shared_mem=256)
    assert np.array_equal(got, np.full(64, 8))
    for grid, block, shared, message in [
        ((0,), (32,), 0, "grid"),
        ((1,), (32, 64), 0, "2048 threads"),
        ((1, 70000), (32,), 0, "grid"),
        ((1,), (32,), 48 * 1024 + 1, "shared_mem=49153, expected 0 ≤ shared_mem ≤ 49152"),
    ]:
        with pytest.raises(ArgumentError, match=re.escape(message)):
            kernel(grid, block, (got, np.int32(8)), shared_mem=shared)
    kernel.max_dynamic_shared_size_bytes = 64 * 1024
    kernel((1,), (64,), (got, np.int32(9)), shared_mem=64 * 1024)
    assert got[0] == 9
