"""What the controller's model promises, from times measured, beside what was measured.

The parts of every k at one load are put together: the target's forward by its tokens, the draft's
pass, what else a round takes, and one acceptance. From these the model says what each k is worth.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass

from outrider.actors.lookahead.latency_curve import TimeCurve
from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.telemetry.statistics import Snapshot


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement, in means of a round."""

    k: int
    tokens_per_s: float
    tokens_per_row: float
    fed_per_row: float  # tokens of the target's forward
    num_rows: float
    acceptance: float
    round_s: float
    verify_s: float  # the target's step
    draft_s: float  # all of the draft's passes
    pass_s: float  # one of them

    @classmethod
    def of(cls, k: int, snapshot: Snapshot, seconds: float) -> "Point":
        """From what was counted in so many seconds."""
        rounds, rows = max(1, snapshot.num_target_passes), max(1, snapshot.num_rows)
        return cls(
            k,
            snapshot.num_tokens / seconds,
            snapshot.tokens_per_row,
            (snapshot.num_rows + snapshot.num_drafted) / rows,
            rows / rounds,
            snapshot.acceptance_rate,
            seconds / rounds,
            snapshot.target_s / rounds,
            snapshot.draft_step_s / rounds,
            snapshot.draft_step_s / max(1, snapshot.num_draft_passes),
        )

    @property
    def rest_s(self) -> float:
        """Of a round, beside both models."""
        return max(0.0, self.round_s - self.verify_s - self.draft_s)


def promises(parts: Many[Point], *, is_draft: bool) -> list[float]:
    """Tokens per second of each part's k; the parts are of one load, plain decoding among them.

    is_draft: the guesses are a draft model's. Copies cost no time, and come as often as they came.
    """
    plain = next(part for part in parts if part.k == 0)
    drafted = [part for part in parts if part.k] or [plain]
    verify, draft = TimeCurve(), TimeCurve()
    for part in parts:
        verify.add(part.num_rows * part.fed_per_row, part.verify_s, 0)
        draft.add(part.num_rows, part.pass_s, 0)
    for curve in (verify, draft):
        curve.refresh(0)
    survival = _survival(max(drafted, key=lambda part: part.k))
    num_rows, found = round(plain.num_rows), list[float]()
    for part in parts:
        k = part.k if is_draft else 0
        tokens, fed = (sum(survival[: k + 1]), 1 + k) if k else (1.0, 1.0)
        if not is_draft:
            tokens, fed = part.tokens_per_row, part.fed_per_row
        seconds = verify.at(num_rows * fed) + k * draft.at(num_rows)
        seconds += sum(one.rest_s for one in drafted) / len(drafted) if k else plain.rest_s
        found.append(num_rows * tokens / max(seconds, 1e-9))
    return found


def _survival(part: Point) -> list[float]:
    """[MAX_K + 1]: chances of so many accepted tokens, each as likely as the last."""
    low, high = 0.0, 1.0
    for _ in range(40):
        rate = (low + high) / 2
        if sum(rate**i for i in range(part.k + 1)) < part.tokens_per_row:
            low = rate
        else:
            high = rate
    return [high**i for i in range(MAX_K + 1)]
