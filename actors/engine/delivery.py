"""What a round committed, on its way to the readers: made into text, counted and told while the
target is at the next round.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.engine.streams import OutputProcessor, RequestState, pairs
from outrider.actors.errors import OutriderError
from outrider.actors.lookahead.round_report import RowReport
from outrider.actors.scheduling.request import (
    NOTHING_JUDGED,
    FinishReason,
    JudgedTree,
    OutputDelta,
)
from outrider.actors.spec_decode.proposer import Proposal
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.transport.draft_tree import path_to
from outrider.actors.transport.rows import VerdictRow

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Commit:
    """Of one sequence, decided."""

    live: RequestState
    ids: tuple[int, ...]
    reason: FinishReason | None
    proposal: Proposal
    verdict: VerdictRow
    k_reason: str
    queued_s: float | None
    is_told: bool = False  # to its reader

    def report(self) -> RowReport:
        """For the controller."""
        drafter, num_drafted = self.proposal.drafter, len(self.proposal.tokens)
        return RowReport(drafter, num_drafted, self.verdict.num_accepted)

    def delta(self) -> OutputDelta:
        num_ids, proposal = len(self.ids), self.proposal
        return OutputDelta(
            token_ids=self.ids,
            logprobs=self.verdict.logprobs[:num_ids],
            text=self.live.rules.text(self.ids, self.reason),
            top_logprobs=tuple(pairs(row) for row in self.verdict.top[:num_ids]),
            tree=JudgedTree(proposal.tokens, proposal.parents, proposal.drafters, self.verdict.node)
            if proposal.tokens
            else NOTHING_JUDGED,
            k_reason=self.k_reason,
            queued_s=self.queued_s,
            num_cached=0 if self.queued_s is None else self.live.sequence.num_cached,
            finish_reason=self.reason,
        )


def nodes_told(commits: Sequence[Commit]) -> dict[str, float]:
    """Nodes of a round, by drafter and what became of them, for its trace."""
    judged, accepted = Counter[str](), Counter[str]()
    for commit in commits:
        drafters, parents = commit.proposal.drafters, commit.proposal.parents
        judged.update(drafters)
        accepted.update(drafters[at] for at in path_to(commit.verdict.node, parents))
    told: dict[str, float] = {}
    for drafter, num in judged.items():
        told[f"{drafter}_judged"] = num
        told[f"{drafter}_accepted"] = accepted[drafter]
        told[f"{drafter}_wasted"] = num - accepted[drafter]
    if judged:
        told["promised"] = sum(commit.proposal.promised for commit in commits)
    return told


class Delivery:
    """Counts commits, then tells readers of them, each once."""

    def __init__(self, streams: OutputProcessor, statistics: Statistics) -> None:
        self._streams = streams
        self._statistics = statistics
        self.commits: list[Commit] = []  # that nobody has been told of yet
        self._num_counted = 0  # of those

    def count(self) -> list[Commit]:
        """Into the statistics, with their round: passes and tokens are of the same rounds then."""
        commits = self.commits[self._num_counted :]
        self._num_counted = len(self.commits)
        self._statistics.add(
            num_drafted=sum(len(commit.proposal.tokens) for commit in commits),
            num_accepted=sum(commit.verdict.num_accepted for commit in commits),
            num_promised=sum(commit.proposal.promised for commit in commits),
            num_tokens=sum(len(commit.ids) for commit in commits),
            num_rows=len(commits),
        )
        return commits

    def tell_ended(self) -> None:
        """Those whose sequence has ended: whoever waits for its place is part of the next round."""
        for commit in self.commits:
            if commit.live.sequence.state.is_final:
                self._tell(commit)

    def run(self) -> list[Commit]:
        """Tell of all that there are; which those were."""
        commits, self.commits, self._num_counted = self.commits, [], 0
        for commit in commits:
            self._tell(commit)
        return commits

    def _tell(self, commit: Commit) -> None:
        if commit.is_told:
            return
        commit.is_told = True
        try:
            commit.live.chunk(commit.delta())
        except Exception as error:  # a bug of ours, or a library's: the others' texts go on
            log.exception("sequence %d could not be told", commit.live.sequence.seq_id)
            message = f"The answer could not be continued: {type(error).__name__}: {error}"
            self._streams.fail_reader(commit.live, OutriderError(message))
