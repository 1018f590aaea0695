"""What one key may still do now, on this replica: requests at once, and requests a minute."""

from collections.abc import Callable

from outrider.cluster.api.errors import RateLimitExceeded
from outrider.cluster.api.middleware.keys import Key

MINUTE_S = 60.0


class RateLimiter:
    """The use of one key. A minute's requests may come at once; they are then earned back."""

    def __init__(self, key: Key, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock
        self.num_running = 0
        self._num_left = self._burst
        self._counted_at = clock()

    def take(self) -> None:
        """Begin a request; `release` ends it. Raises RateLimitExceeded, and nothing is taken."""
        key = self._key
        if key.max_concurrent is not None and self.num_running >= key.max_concurrent:
            raise RateLimitExceeded(
                f"Got a request with {self.num_running} in progress for the key {key.name!r}, "
                f"accepted {key.max_concurrent} at once (per replica)"
            )
        if key.requests_per_minute is not None:
            self._spend(key.requests_per_minute)
        self.num_running += 1

    def charge(self, num: int) -> None:
        """So many more choices of a request that has begun. Raises RateLimitExceeded."""
        key = self._key
        if key.max_concurrent is not None and self.num_running + num > key.max_concurrent:
            raise RateLimitExceeded(
                f"Got {num + 1} choices with {self.num_running - 1} in progress for the key "
                f"{key.name!r}, accepted {key.max_concurrent} at once (per replica)"
            )
        self.num_running += num

    def release(self, num: int = 1) -> None:
        """End a request of so many choices."""
        self.num_running -= num

    @property
    def _burst(self) -> float:
        return max(1.0, self._key.requests_per_minute or 1.0)

    def _spend(self, requests_per_minute: float) -> None:
        now, per_s = self._clock(), requests_per_minute / MINUTE_S
        self._num_left = min(self._burst, self._num_left + (now - self._counted_at) * per_s)
        self._counted_at = now
        if self._num_left < 1:
            raise RateLimitExceeded(
                f"Got more requests with the key {self._key.name!r} than the accepted "
                f"{requests_per_minute:g} a minute (per replica)",
                (1 - self._num_left) / per_s,
            )
        self._num_left -= 1
