"""An event loop whose sleeps take no time: when nothing is ready, its clock jumps to the next
timer.
"""

import asyncio
import functools
import selectors


class _Jumping(selectors.DefaultSelector):
    def __init__(self):
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        if timeout:
            self.now += timeout
            timeout = 0
        return super().select(timeout)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now


def in_virtual_time(test):
    """Run an async test on such a loop."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
