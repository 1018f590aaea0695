"""The k that promises most tokens per second in lockstep at the present load.

Decides every few rounds, from the model in `cost_model` and what was measured. Only a promise of
some percent moves it, but plain decoding needs none: a tie goes to the target alone. Of what was
not measured for long the best is hoped, and so it is tried for a few rounds.
"""

from dataclasses import dataclass, field

from outrider.actors.lookahead.acceptance import GOOD, Acceptance, Copies
from outrider.actors.lookahead.controller import DraftChoice
from outrider.actors.lookahead.cost_model import Throughput
from outrider.actors.lookahead.latency_curve import Level, TimeCurve
from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import DRAFT, NGRAM, NOBODY, RoundReport
from outrider.actors.scheduling.sampling_params import MAX_K

PERIOD = 16  # rounds between decisions
TRIAL = 4  # rounds that show what an untried choice is worth
MARGIN = 1.03  # what another choice must promise over the present one
FADE = 0.9  # of what was observed, each period
NGRAM_FADE = 0.97  # of guesses not made, so that they are tried again
DRAFT_PRIOR, NGRAM_PRIOR = 0.7, 0.5  # acceptance before any was seen
MIN_PATIENCE, MAX_PATIENCE = 400, 3200  # plain rounds before the draft is tried again


@dataclass(slots=True)
class _Load:
    """What is known and chosen at about the same number of rows."""

    choice: DraftChoice
    verify: TimeCurve = field(default_factory=TimeCurve)
    plain_rest_s: Level = field(default_factory=Level)
    drafted_rest_s: Level = field(default_factory=Level)
    num_rounds_left: float = TRIAL  # until the next decision
    num_made: float = 0.0  # tokens, in rounds without prompts
    seconds: float = 0.0  # that those took

    @property
    def rate(self) -> float:
        """Tokens per second of late."""
        return self.num_made / self.seconds if self.seconds else 0.0


class AdaptiveController:
    """Starts at the configured k."""

    def __init__(self, k: int, has_draft: bool = True) -> None:
        self._start_k = k
        self._has_draft = has_draft
        self._loads: dict[int, _Load] = {}  # by the bit length of the number of rows
        self._draft = TimeCurve()
        self._acceptance = {
            DRAFT: Acceptance(DRAFT_PRIOR),
            NGRAM: Acceptance(NGRAM_PRIOR),
        }
        self._copies = Copies()
        self._round = 0
        self._drafted_in = 0  # the last round that judged tokens of the draft's
        self._patience = MIN_PATIENCE

    def choose(self, num_rows: int) -> DraftChoice:
        return self._load(num_rows).choice

    # learning

    def observe(self, report: RoundReport) -> None:
        self._round += 1
        num_rows = len(report.rows)
        if not num_rows:
            return  # prefill only
        load = self._load(num_rows)
        is_drafted = self._learn_rows(report)
        self._learn_times(report, load, is_drafted)
        is_as_chosen = is_drafted or load.choice.k == 0
        if report.num_tokens == sum(row.num_drafted + 1 for row in report.rows):
            load.num_made += sum(row.num_accepted + 1 for row in report.rows)
            load.seconds += report.round_s
        load.num_rounds_left -= PERIOD / TRIAL if is_as_chosen and _is_trial(load) else 1
        if load.num_rounds_left <= 0:
            self._decide(load, num_rows)

    def _learn_rows(self, report: RoundReport) -> bool:
        """Whether there were tokens of the draft's among them."""
        is_drafted = False
        for row in report.rows:
            if row.drafter in self._acceptance:
                self._acceptance[row.drafter].add(row.num_drafted, row.num_accepted)
            if row.drafter == DRAFT:
                is_drafted = True
            elif row.is_ours and row.drafter in (NGRAM, NOBODY):
                self._copies.add(row.num_drafted, row.num_accepted)
        if is_drafted:
            self._drafted_in = self._round
        return is_drafted

    def _learn_times(self, report: RoundReport, load: _Load, is_drafted: bool) -> None:
        load.verify.add(report.num_tokens, report.verify_s, self._round)
        rest_s = report.round_s - report.verify_s
        for passes in report.draft:
            if passes.num_passes:
                size, each_s = passes.num_tokens, passes.seconds / passes.num_passes
                self._draft.add(size / passes.num_passes, each_s, self._round)
            rest_s -= passes.seconds
        (load.drafted_rest_s if is_drafted else load.plain_rest_s).add(max(rest_s, 0.0))

    # deciding

    def _load(self, num_rows: int) -> _Load:
        """The load's; a new one begins with what is known of the nearest."""
        key = num_rows.bit_length()
        load = self._loads.get(key)
        if load is None:
            if self._loads:
                near = self._loads[min(self._loads, key=lambda other: abs(other - key))]
                load = _Load(near.choice, near.verify.copy())
            else:
                k, reason = (
                    (self._start_k, Reason.START) if self._has_draft else (0, Reason.NO_DRAFT)
                )
                load = _Load(DraftChoice(k, self._start_k, reason))
            self._loads[key] = load
        return load

    @property
    def _is_long_ago(self) -> bool:
        """Whether the draft may have changed since its tokens were last judged."""
        return self._round - self._drafted_in >= self._patience

    def _decide(self, load: _Load, num_rows: int) -> None:
        model = self._model(load, num_rows)
        k, reason = self._best(load, model)
        if self._is_long_ago:
            self._acceptance[DRAFT].doubt()
        elif k:
            self._patience = MIN_PATIENCE
        elif load.choice.reason == Reason.PROBE:
            self._patience = min(2 * self._patience, MAX_PATIENCE)
        most = min(MAX_K, 2 * load.choice.ngram_k + 1)  # as k: by steps, so that each is measured
        price = _price(load, model.num_tokens(k))
        chances = self._acceptance[NGRAM].survival()[1:]
        ngram_k = min(most, sum(chance > price for chance in chances))
        load.choice = DraftChoice(k, ngram_k, reason)
        load.num_rounds_left = PERIOD
        self._fade(load)

    def _model(self, load: _Load, num_rows: int) -> Throughput:
        load.verify.refresh(self._round)
        self._draft.refresh(self._round)
        plain, drafted = load.plain_rest_s, load.drafted_rest_s
        plain_tokens, plain_fed = self._copies.means()
        survival = self._acceptance[DRAFT].survival(GOOD if self._is_long_ago else 0.0)
        return Throughput(
            num_rows=num_rows,
            survival=survival,
            plain_tokens=plain_tokens,
            plain_fed=plain_fed,
            verify=load.verify,
            draft=self._draft,
            plain_rest_s=(plain or drafted).value,
            drafted_rest_s=(drafted or plain).value,
        )

    def _best(self, load: _Load, model: Throughput) -> tuple[int, Reason]:
        """k, and why."""
        now = load.choice.k
        if not self._has_draft:
            return 0, Reason.NO_DRAFT
        most = min(MAX_K, 2 * now + 1)  # it falls at once, but rises step by step
        k = max(range(1, most + 1), key=model.at)
        plain, best = model.at(0), model.at(k)
        if best <= plain or (now == 0 and best <= plain * MARGIN):
            is_known = load.verify.covers(model.num_tokens(0))
            return 0, Reason.PLAIN if is_known else Reason.UNTRIED
        if now and best <= model.at(now) * MARGIN:
            k, reason = now, Reason.KEPT
        else:
            reason = Reason.BEST
        if self._is_long_ago:
            return k, Reason.PROBE
        return k, reason if load.verify.covers(model.num_tokens(k)) else Reason.UNTRIED

    def _fade(self, load: _Load) -> None:
        if self._round - self._drafted_in < PERIOD:
            self._acceptance[DRAFT].fade(FADE)
        load.num_made *= FADE
        load.seconds *= FADE
        self._copies.fade(FADE)
        self._acceptance[NGRAM].fade(FADE if load.choice.ngram_k else NGRAM_FADE)


def _price(load: _Load, num_tokens: float) -> float:
    """Of one more in a forward of so many: how many tokens are made in the time that it adds, one
    at most.

    Taken over as many tokens again: over a few, what they add drowns in the noise.
    """
    size = max(8.0, num_tokens)
    added_s = (load.verify.at(num_tokens + size) - load.verify.at(num_tokens)) / size
    return min(load.rate * max(added_s, 0.0), 1.0)


def _is_trial(load: _Load) -> bool:
    return load.choice.reason in (Reason.UNTRIED, Reason.PROBE)
