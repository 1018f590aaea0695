"""Retries by a clock and a die of the test's own."""

import math

import pytest

from outrider.clients.errors import (
    BadRequest,
    ConnectionFailed,
    DeadlineExceeded,
    RateLimited,
    StreamBroken,
)
from outrider.clients.options import RetryPolicy, Timeouts
from outrider.clients.protocol.attempts import Attempts

POLICY = RetryPolicy(max_retries=5, base_s=1.0, cap_s=6.0)
LOST = ConnectionFailed("lost")


def attempts(uniform: float = 0.5, total_s: float | None = None) -> Attempts:
    return Attempts(POLICY, started_s=100.0, total_s=total_s, uniform=lambda: uniform)


def test_the_wait_is_a_draw_below_a_doubling_ceiling() -> None:
    for uniform in (0.0, 0.5, 0.999):
        tries = attempts(uniform)
        waits = [tries.delay_after(LOST, 100.0) for _ in range(POLICY.max_retries)]
        assert waits == [uniform * ceiling for ceiling in (1, 2, 4, 6, 6)]


def test_the_last_failure_is_raised_and_says_after_how_many() -> None:
    tries = attempts()
    for _ in range(POLICY.max_retries):
        tries.begin(100.0)
        tries.delay_after(LOST, 100.0)
    tries.begin(100.0)
    last = StreamBroken("the last")
    with pytest.raises(StreamBroken) as raised:
        tries.delay_after(last, 100.0)
    assert raised.value is last
    assert last.__notes__ == ["Gave up after 6 attempts"]


def test_what_gets_on_may_fail_again() -> None:
    tries = attempts()
    for _ in range(50):
        assert tries.delay_after(LOST, 100.0) == 0.5
        tries.succeed()


def test_what_would_fail_again_is_not_tried_again() -> None:
    error = BadRequest("no", status=400)
    with pytest.raises(BadRequest) as raised:
        attempts().delay_after(error, 100.0)
    assert raised.value is error


def test_never_before_retry_after() -> None:
    full = RateLimited("full", status=429, retry_after_s=7.0, is_retryable=True)
    assert attempts(uniform=0.0).delay_after(full, 100.0) == 7.0
    assert attempts(uniform=0.5).delay_after(full, 100.0) == 7.5


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    full = RateLimited("full", status=429, retry_after_s=7.0, is_retryable=True)
    with pytest.raises(RateLimited):
        attempts(total_s=6.0).delay_after(full, 100.0)
    assert attempts(total_s=8.0).delay_after(full, 100.0) == 7.5


def test_the_deadline_ends_everything() -> None:
    tries = attempts(total_s=10.0)
    assert tries.begin(104.0) == 6.0
    tries.check(109.9)
    with pytest.raises(DeadlineExceeded, match="within total_s=10"):
        tries.check(110.0)
    with pytest.raises(DeadlineExceeded):
        tries.begin(110.0)
    with pytest.raises(DeadlineExceeded) as raised:
        tries.delay_after(LOST, 111.0)
    assert raised.value.__cause__ is LOST
    assert tries.num_made == 1


def test_without_a_deadline_there_is_none() -> None:
    assert attempts().begin(1e12) == math.inf


@pytest.mark.parametrize("fields", [{"max_retries": -1}, {"base_s": -1.0}, {"cap_s": 0.1}], ids=str)
def test_a_policy_that_exists_is_valid(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected max_retries ≥ 0"):
        RetryPolicy(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["connect_s", "read_s", "total_s"])
def test_a_timeout_is_above_zero(name: str) -> None:
    for value in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=f"Got {name}={value!r}"):
            Timeouts(**{name: value})
