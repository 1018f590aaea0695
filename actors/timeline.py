"""A round as it appears in a trace."""

from collections.abc import Sequence as Many

from outrider.actors.messages import Verdicts
from outrider.actors.scheduler import Plan
from outrider.actors.tracing import Trace

STEPS = ("schedule", "propose", "verify", "commit")


def record_round(trace: Trace, plan: Plan, verdicts: Verdicts, times: Many[float]) -> None:
    """The coordinator's steps, whose five bounds are `times`, and what the target did in them."""
    num_rows, num_prefill = len(plan.rows), sum(size for _, size in plan.prefill)
    for name, since, until in zip(STEPS, times, times[1:], strict=False):
        trace.span("coordinator", name, since, until - since, num_rows=num_rows)
    started_s, forward_s = verdicts.started_s, verdicts.forward_s
    trace.span(
        "target", "forward", started_s, forward_s, num_rows=num_rows, num_prefill=num_prefill
    )
    trace.span("target", "verdict", started_s + forward_s, verdicts.verdict_s)
