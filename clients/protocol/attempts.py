"""When to try again, and when to give up. Knows no clock and no randomness of its own."""

import math
from collections.abc import Callable

from outrider.clients.errors import ApiError, DeadlineExceeded, OutriderClientError
from outrider.clients.options import RetryPolicy


class Attempts:
    """The attempts at one answer."""

    def __init__(
        self,
        policy: RetryPolicy,
        started_s: float,  # by the clock that `now_s` is read from
        total_s: float | None,
        uniform: Callable[[], float],  # 0 ≤ uniform() < 1
    ) -> None:
        self._policy = policy
        self._total_s = math.inf if total_s is None else total_s
        self._deadline_s = started_s + self._total_s
        self._uniform = uniform
        self._num_failures = 0  # in a row
        self.num_made = 0

    def begin(self, now_s: float) -> float:
        """Count an attempt; the seconds left to it, infinite without a deadline.

        Raises DeadlineExceeded.
        """
        self.check(now_s)
        self.num_made += 1
        return self._deadline_s - now_s

    def check(self, now_s: float) -> None:
        """Raises DeadlineExceeded."""
        if now_s >= self._deadline_s:
            raise DeadlineExceeded(f"Got no whole answer within total_s={self._total_s:g}")

    def succeed(self) -> None:
        """Something new came: failures are counted from here."""
        self._num_failures = 0

    def delay_after(self, error: OutriderClientError, now_s: float) -> float:
        """Seconds to wait before the next attempt. Raises the error, or DeadlineExceeded."""
        if not error.is_retryable:
            raise error
        try:
            self.check(now_s)
        except DeadlineExceeded as late:
            raise late from error
        policy = self._policy
        if self._num_failures >= policy.max_retries:
            error.add_note(f"Gave up after {self.num_made} attempts")
            raise error
        ceiling_s = min(policy.cap_s, policy.base_s * 2.0**self._num_failures)
        delay_s = self._uniform() * ceiling_s
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            delay_s += error.retry_after_s
        if now_s + delay_s >= self._deadline_s:
            error.add_note(f"No time for another attempt within total_s={self._total_s:g}")
            raise error
        self._num_failures += 1
        return delay_s
