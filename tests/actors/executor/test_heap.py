"""The collector has nothing to look at of what was there before."""

import gc

from outrider.actors.executor import heap


def test_what_lives_is_not_looked_at_again() -> None:
    kept = [[number] for number in range(1000)]
    before = gc.get_freeze_count()
    try:
        heap.freeze()
        assert gc.get_freeze_count() >= before + len(kept)
        assert all(known is not kept for known in gc.get_objects())
    finally:
        gc.unfreeze()


def test_a_start_is_not_interrupted() -> None:
    heap.pause()
    try:
        assert not gc.isenabled()
        heap.freeze(collects=False)
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
