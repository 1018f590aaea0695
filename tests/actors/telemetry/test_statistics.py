"""What is derived from the counts."""

import pytest

from outrider.actors.telemetry.statistics import FORESEEN, Snapshot, Statistics


def test_where_the_time_goes():
    snapshot = Snapshot(
        schedule_s=0.1, propose_s=0.2, verify_s=2.0, commit_s=0.2, target_forward_s=1.6,
        verdict_s=0.1, target_host_s=0.05,
    )  # fmt: skip
    assert snapshot.elapsed_s == pytest.approx(2.5)
    assert snapshot.target_idle == pytest.approx(0.3)
    assert snapshot.transport_s == pytest.approx(0.25)


def test_nothing_yet():
    snapshot = Statistics().snapshot()
    assert snapshot.target_idle == snapshot.foreseen_rate == snapshot.transport_s == 0
    assert snapshot.events == {}


def test_events_and_their_reset():
    statistics = Statistics()
    for what, count in (("hit", 8), ("miss", 1), ("late", 1)):
        statistics.count(FORESEEN, what, count)
    statistics.add(num_draft_fed=30, num_accepted=12)
    before = statistics.reset()
    assert before.foreseen_rate == pytest.approx(0.8)
    assert before.num_draft_wasted == 18
    assert statistics.snapshot().events == {}
