"""Forwards timed at load, for the choice of threads and placement: a few of each kind, within a
second or two. Nothing of a text is left behind.
"""

import statistics
import threading
import time
from collections.abc import Sequence as Many

from outrider.actors.runner.cpu.linear import share_among
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.selftest import sample_tokens
from outrider.actors.transport.messages import Timing

PAST = 64  # tokens of context
TIMED_TOKENS = (1, 3, 5)
LIMIT_S = 0.15  # of one kind; once at least
MOST = 9
LONG_S = 0.01  # below, two threads of one process would wait for the interpreter, not for memory


def timings(target: Runner, draft: Runner | None, thread_counts: Many[int]) -> tuple[Timing, ...]:
    """One for each number of threads; the last one's is kept."""
    found = []
    for num in thread_counts:
        share_among(num)
        verify = tuple((size, _forward_s(target, size)) for size in TIMED_TOKENS)
        draft_s = 0.0 if draft is None else _forward_s(draft, 1)
        slowdown = 1.0
        if draft is not None and verify[0][1] > LONG_S:
            slowdown = _beside_s(target, draft) / max(verify[1][1], 1e-9)
        found.append(Timing(num, verify, draft_s, max(1.0, slowdown)))
    return tuple(found)


def _forward_s(runner: Runner, num_tokens: int) -> float:
    """The median, without the first."""
    past = min(PAST, runner.context_len - num_tokens)
    ids, cache = sample_tokens(runner.vocab_size, past + num_tokens), runner.open()
    runner.forward([Segment(cache, ids[:past], 1)])
    end, took = time.perf_counter() + LIMIT_S, list[float]()
    while len(took) < 2 or (len(took) < MOST and time.perf_counter() < end):
        started = time.perf_counter()
        logits = runner.forward([Segment(cache, ids[past:], num_tokens)])
        logits[0, 0].item()  # a device has ended too
        took.append(time.perf_counter() - started)
        runner.rollback(cache, past)
    runner.close(cache)
    return statistics.median(took[1:])


def _beside_s(target: Runner, draft: Runner) -> float:
    """The target's forward of TIMED_TOKENS[1] while the draft is at work all the time."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            _forward_s(draft, 1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        return _forward_s(target, TIMED_TOKENS[1])
    finally:
        is_over.set()
        thread.join()
