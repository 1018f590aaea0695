"""Forwards timed at load: for the choice of threads and placement, and of a forward's size.
A few of each kind, within seconds whatever the model; nothing of a text is left behind.
"""

import statistics
import threading
import time
from collections.abc import Sequence as Many

from outrider.actors.runner.cpu.threads import share_among
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.selftest import sample_tokens
from outrider.actors.transport.messages import Timing

PAST = 64  # tokens of context
TIMED_TOKENS, FEWER = (1, 3, 5), (1, 5)
LIMIT_S = 0.15  # of one kind; twice at least
MOST, FEW = 9, 3  # of one kind
IN_ALL_S = 3.0  # after so much fewer threads are not tried any more
SLOW_S = 0.1  # of one token: a past would take longer to compute than is worth it
LASTING_S = 1.0  # a forward that takes so long is run once: what its first one adds is little
LEAST_CHUNK, MOST_CHUNK = 16, 8192
CHUNK_S = 0.25  # a longer forward keeps others waiting
GAIN = 0.9  # of a token's time, in a chunk of twice the size: more is not worth the others' wait
LONG_S = 0.01  # below, two threads of one process would wait for the interpreter, not for memory


def timings(
    target: PooledRunner, draft: PooledRunner | None, thread_counts: Many[int]
) -> tuple[Timing, ...]:
    """One for each number of threads, most first, while there is time."""
    found, end = list[Timing](), time.perf_counter() + IN_ALL_S
    for num in sorted(thread_counts, reverse=True):
        if found and time.perf_counter() > end:
            break
        share_among(num)
        is_quick = _forward_s(target, 1, 0) < SLOW_S
        past, sizes = (PAST, TIMED_TOKENS) if is_quick else (0, FEWER)
        verify = tuple((size, _forward_s(target, size, past)) for size in sizes)
        draft_s = 0.0 if draft is None else _forward_s(draft, 1, past)
        slowdown = 1.0
        if draft is not None and verify[0][1] > LONG_S:
            size, alone_s = verify[1]
            slowdown = _beside_s(target, draft, size, past) / max(alone_s, 1e-9)
        found.append(Timing(num, verify, draft_s, max(1.0, slowdown)))
    return tuple(found)


def chunk_len(runner: PooledRunner) -> int:
    """Tokens of a forward at which a prompt is read at about its best speed: in one of twice as
    many each token would take hardly less, or others would wait for long.
    """
    most = min(MOST_CHUNK, runner.context_len, runner.pool.num_pages * runner.pool.page_size)
    size = min(LEAST_CHUNK, most)
    each_s = min(_times(runner, size, 0, FEW)) / size
    while 2 * size <= most and 2 * size * each_s < CHUNK_S:
        next_s = min(_times(runner, 2 * size, 0, FEW)) / (2 * size)
        if next_s > GAIN * each_s:
            break
        size, each_s = 2 * size, next_s
    return size


def _forward_s(runner: PooledRunner, num_tokens: int, past: int) -> float:
    return statistics.median(_times(runner, num_tokens, past, MOST))


def _times(runner: PooledRunner, num_tokens: int, past: int, most: int) -> list[float]:
    """Of some forwards, without the first."""
    past = min(past, runner.context_len - num_tokens)
    ids, cache = sample_tokens(runner.vocab_size, past + num_tokens), runner.open()
    if past:
        runner.forward([Segment(cache, ids[:past], 1)])
    end, took = time.perf_counter() + LIMIT_S, list[float]()
    while len(took) < 2 or (len(took) < most and time.perf_counter() < end):
        started = time.perf_counter()
        logits = runner.forward([Segment(cache, ids[past:], num_tokens)])
        logits[0, 0].item()  # a device has ended too
        took.append(time.perf_counter() - started)
        runner.rollback(cache, past)
        if took[0] > LASTING_S:
            break
    runner.close(cache)
    return took[1:] or took


def _beside_s(target: PooledRunner, draft: PooledRunner, num_tokens: int, past: int) -> float:
    """The target's forward while the draft is at work all the time."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            _forward_s(draft, 1, past)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        return _forward_s(target, num_tokens, past)
    finally:
        is_over.set()
        thread.join()
