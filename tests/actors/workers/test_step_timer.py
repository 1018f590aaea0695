"""Where a step's seconds go."""

import time

import torch

from outrider.actors.workers.step_timer import StepTimer


class Device:
    """A stand-in for CUDA's events: work is queued, and done when somebody waits for it."""

    def __init__(self):
        self.busy_until, self.num_waits = 0.0, 0

    def work(self, seconds):
        self.busy_until += seconds

    def event(self, enable_timing):
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, device):
        self.device, self.at, self.is_passed = device, None, False

    def record(self):
        self.at = self.device.busy_until

    def synchronize(self):
        self.is_passed = True
        self.device.num_waits += 1

    def elapsed_time(self, later):
        assert later.is_passed, "an event that nobody waited for has no time yet"
        return 1e3 * (later.at - self.at)


def test_the_parts_add_up_to_the_step():
    started = time.monotonic()
    timer = StepTimer("cpu")
    with timer.part("forward"):
        time.sleep(0.02)
    time.sleep(0.01)
    with timer.part("verdict"):
        time.sleep(0.015)
    times = timer.times()
    assert times.forward_s >= 0.02
    assert times.verdict_s >= 0.015
    assert times.host_s >= 0.01
    assert times.total_s <= time.monotonic() - started


def test_a_devices_work_is_told_by_its_events_not_by_when_calls_return(monkeypatch):
    device = Device()
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    timer = StepTimer("cuda:0")
    with timer.part("forward"):
        device.work(3.0)  # the call returns at once
    device.work(0.5)  # between them: no part's
    with timer.part("verdict"):
        device.work(0.25)
    assert device.num_waits == 0
    times = timer.times()
    assert (times.forward_s, times.verdict_s) == (3.0, 0.25)
    assert times.host_s == 0.0  # what the host did, it did meanwhile


def test_a_step_without_a_verdict_has_none():
    timer = StepTimer("cpu")
    with timer.part("forward"):
        pass
    assert timer.times().verdict_s == 0.0
