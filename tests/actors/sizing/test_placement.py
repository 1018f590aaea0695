"""The choice of threads and placement, by timed forwards."""

import pytest

from outrider.actors.sizing.placement import choose, tokens_of, verify_s
from outrider.actors.transport.messages import Timing

# Taken on two cores of an AMD EPYC machine, in milliseconds: with one thread, with two.
BOUND = ((44.6, 48.9, 71.6, 3.1, 1.08), (31.2, 34.5, 45.3, 2.5, 2.0))  # 197M and 15M parameters
DEMO = ((3.0, 3.3, 4.0, 0.18, 1.0), (3.5, 4.2, 5.3, 0.19, 1.0))  # 7.8M and 0.95M


def timing(num_threads: int, ms: tuple[float, ...], has_draft: bool = True) -> Timing:
    one, three, five, draft, slowdown = (value / 1e3 for value in ms)
    verify = ((1, one), (3, three), (5, five))
    return Timing(num_threads, verify, draft if has_draft else 0.0, 1e3 * slowdown)


def test_a_bandwidth_bound_pair_is_together_with_all_threads() -> None:
    timings = [timing(n + 1, ms) for n, ms in enumerate(BOUND)]
    found = choose(timings, 2, may_be_apart=True)
    assert (found.is_colocated, found.num_threads) == (True, 2)
    assert "together, 2 threads: " in found.reason


def test_a_pair_bound_by_calls_is_apart() -> None:
    timings = [timing(n + 1, ms) for n, ms in enumerate(DEMO)]
    found = choose(timings, 2, may_be_apart=True)
    assert (found.is_colocated, found.num_threads) == (False, 1)
    assert choose(timings, 2, may_be_apart=False).is_colocated


def test_without_a_draft_the_threads_are_chosen() -> None:
    for shape, num in ((BOUND, 2), (DEMO, 1)):
        timings = [timing(n + 1, ms, has_draft=False) for n, ms in enumerate(shape)]
        assert choose(timings, 2, may_be_apart=False).num_threads == num


@pytest.mark.parametrize(
    ("with_two", "with_one"),
    [((25.4, 21.0, 31.1), (24.5, 25.5, 43.3)), ((22.5, 22.5, 27.6), (21.3, 25.0, 37.1))],
)
def test_a_noisy_time_of_one_size_does_not_choose(
    with_two: tuple[float, ...], with_one: tuple[float, ...]
) -> None:
    """SmolLM2-135M, in two of nine starts on two busy vCPUs: one thread is 0.7 times as fast."""
    timings = [
        timing(2, (*with_two, 0, 0), has_draft=False),
        timing(1, (*with_one, 0, 0), has_draft=False),
    ]
    assert choose(timings, 2, may_be_apart=False).num_threads == 2


def test_apart_each_needs_its_cores() -> None:
    found = choose([timing(2, DEMO[0])], 2, may_be_apart=True)
    assert found.is_colocated


def test_a_draft_slower_than_its_target_promises_nothing() -> None:
    slow = Timing(1, ((1, 0.01), (3, 0.011), (5, 0.012)), 0.02, 1.0)
    assert choose([slow], 2, may_be_apart=True).reason.count("100.0") == 2  # plain, both


def test_times_between_and_beyond() -> None:
    found = timing(1, DEMO[0])
    assert verify_s(found, 1) == pytest.approx(0.003)
    assert verify_s(found, 2) == pytest.approx(0.00315)
    assert verify_s(found, 5) == pytest.approx(0.004)
    assert verify_s(found, 9) == pytest.approx(0.004 + 4 * 0.00035)
    assert tokens_of(0) == pytest.approx(1)
