"""The model's word on times that it could have made itself, and what a sweep holds."""

from dataclasses import replace

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.bench.sweep.promise import Point, promises
from outrider.cluster.bench.sweep.sweep import DrafterChoice, SweepPlan, drafters

ROWS, PASS_S, REST_S, RATE = 4, 0.001, 0.002, 0.7


def part(k: int) -> Point:
    """Of a machine that is just as the model has it: a forward is 5 ms and 0.1 ms a token."""
    fed = 1.0 + k
    verify_s, draft_s = 0.005 + 0.0001 * ROWS * fed, k * PASS_S
    tokens_per_row = sum(RATE**i for i in range(k + 1))
    round_s = verify_s + draft_s + REST_S
    rate = ROWS * tokens_per_row / round_s
    return Point(k, rate, tokens_per_row, fed, ROWS, RATE, round_s, verify_s, draft_s,
                PASS_S if k else 0.0)  # fmt: skip


def test_it_promises_what_such_a_machine_does() -> None:
    parts = [part(k) for k in (0, 1, 2, 4, 6)]
    assert promises(parts, is_draft=True) == pytest.approx(
        [one.tokens_per_s for one in parts], rel=1e-6
    )


def test_a_slower_draft_is_promised_less() -> None:
    parts = [part(k) for k in (0, 1, 4)]
    slow = [replace(one, pass_s=3 * one.pass_s) for one in parts]
    said, less = promises(parts, is_draft=True), promises(slow, is_draft=True)
    assert less[0] == said[0]
    assert less[1] < said[1]
    assert less[2] / said[2] < less[1] / said[1], "the more, the longer the chain"


def test_copies_cost_no_time_of_a_draft() -> None:
    parts = [part(0), replace(part(4), draft_s=0.0, pass_s=0.0, round_s=part(4).round_s - 0.004)]
    said = promises(parts, is_draft=False)
    assert said == pytest.approx([part(0).tokens_per_s, ROWS * parts[1].tokens_per_row
                                  / parts[1].round_s])  # fmt: skip


def test_a_part_is_means_of_a_round() -> None:
    snapshot = Snapshot(
        num_drafted=40, num_accepted=30, num_tokens=50, num_rows=20, num_target_passes=10,
        num_draft_passes=20, target_forward_s=1.0, verdict_s=0.5, draft_step_s=0.4,
    )  # fmt: skip
    found = Point.of(2, snapshot, seconds=2.0)
    assert found == Point(2, 25.0, 2.5, 3.0, 2.0, 0.75, 0.2, 0.15, 0.04, 0.02)
    assert found.rest_s == pytest.approx(0.01)


def test_a_sweep_has_no_point_twice() -> None:
    both = tuple(VerificationMode)
    plan = SweepPlan((1, 8), (2, 4), tuple(DrafterChoice), both, (0.0, 1.0), num_tokens=16)
    cells = list(plan.cells())
    assert len(set(cells)) == len(cells) == 2 * ((1 + 4) + (1 + 8))
    assert {cell.verification for cell in cells if not cell.temperature} == {both[0]}
    for wrong in ({"ks": (0,)}, {"ks": (17,)}, {"batches": (0,)}, {"num_tokens": 2}):
        with pytest.raises(InvalidConfig, match="Got"):
            replace(plan, **wrong)
    with pytest.raises(InvalidConfig, match=r"accepted: none, ngram$"):
        drafters(["draft"], has_draft=False)
