"""What a sweep holds, and what one of its points says."""

from dataclasses import replace

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.bench.sweep.point import Point
from outrider.cluster.bench.sweep.sweep import DrafterChoice, SweepPlan, drafters


def test_a_point_is_means_of_a_round() -> None:
    snapshot = Snapshot(
        num_drafted=40, num_accepted=30, num_promised=36.0, num_tokens=50, num_rows=20,
        num_target_passes=10, num_draft_passes=20, target_forward_s=1.0, verdict_s=0.5,
        draft_step_s=0.4,
    )  # fmt: skip
    found = Point.of(2, snapshot, seconds=2.0)
    assert found == Point(2, 25.0, 2.5, 3.0, 2.0, 0.75, 0.2, 0.15, 0.04, 0.02, 2.8)
    assert found.rest_s == pytest.approx(0.01)
    assert Point.of(0, replace(snapshot, num_promised=0.0), 2.0).promised_per_row == 0


def test_a_sweep_has_no_point_twice() -> None:
    both = tuple(VerificationMode)
    plan = SweepPlan((1, 8), (2, 4), tuple(DrafterChoice), both, (0.0, 1.0), num_tokens=16)
    cells = list(plan.cells())
    assert len(set(cells)) == len(cells) == 2 * ((1 + 5) + (1 + 10))
    assert {cell.verification for cell in cells if not cell.temperature} == {both[0]}
    assert {cell.k for cell in cells if cell.drafter is DrafterChoice.TREE} == {None}
    for wrong in ({"ks": (0,)}, {"ks": (17,)}, {"batches": (0,)}, {"num_tokens": 2}):
        with pytest.raises(InvalidConfig, match="Got"):
            replace(plan, **wrong)
    with pytest.raises(InvalidConfig, match=r"accepted: none, ngram, tree$"):
        drafters(["draft"], has_draft=False)
