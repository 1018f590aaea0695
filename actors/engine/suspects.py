"""Who may have killed a target, and who runs with whom until that is known.

Whoever a target was asked about when it died is a suspect: runs alone and without proposals, one a
round, until it has committed a token. A request that targets keep dying of alone is given up. Where
nobody dies alone, it was a proposal or the company: from the second such death on its sequences go
on without proposals, and from the third in a row in smaller rounds. Pure: knows no workers.
"""

from collections.abc import Collection
from dataclasses import dataclass

from outrider.actors.scheduling.sequence import Sequence

MAX_DEATHS = 3  # that one request may cost: one in company, and one alone each time after
PLAIN_AFTER, HALVED_AFTER = 2, 3  # deaths in company
IN_A_ROW = 32  # tokens: what happens after so many more has another cause


@dataclass(slots=True)
class _Record:
    """What is held against one sequence."""

    num_deaths: int = 0  # all those in company count as one
    num_in_company: int = 0
    num_in_a_row: int = 0  # of those
    num_committed: int = 0  # when it was last there


class Suspects:
    """Of one engine; kept for as long as its sequences run, whatever good rounds lie between."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}  # by sequence
        self._most: int | None = None  # sequences in one round
        self._num_turns = 0

    def died(self, asked: list[Sequence], has_proposals: bool) -> list[Sequence]:
        """A target died of a question about these: those that are given up, if any."""
        is_alone = len(asked) == 1 and not has_proposals
        for sequence in asked:
            record = self._records.setdefault(sequence.seq_id, _Record())
            record.num_deaths = record.num_deaths + 1 if is_alone else max(record.num_deaths, 1)
            if not is_alone:
                is_next = sequence.num_committed - record.num_committed < IN_A_ROW
                record.num_in_a_row = record.num_in_a_row + 1 if is_next else 1
                record.num_in_company += 1
            sequence.is_plain |= record.num_in_company >= PLAIN_AFTER
            if record.num_in_a_row >= HALVED_AFTER:
                self._most = max(1, len(asked) // 2)
            record.num_committed = sequence.num_committed
        return [s for s in asked if self._records[s.seq_id].num_deaths >= MAX_DEATHS]

    def includes(self, sequence: Sequence) -> bool:
        """Whether it has yet to show, alone, that it is harmless."""
        record = self._records.get(sequence.seq_id)
        return record is not None and sequence.num_committed == record.num_committed

    def group(self, running: list[Sequence], alive: Collection[int]) -> list[Sequence]:
        """Who may be in the next round: one suspect, or all, or as many as went well. Whoever is
        not alive is forgotten.
        """
        if not self._records:
            return running
        self._records = {i: record for i, record in self._records.items() if i in alive}
        if all(record.num_in_a_row < HALVED_AFTER for record in self._records.values()):
            self._most = None
        suspects = [sequence for sequence in running if self.includes(sequence)]
        if suspects:
            return [min(suspects, key=lambda s: self._records[s.seq_id].num_deaths)]
        if self._most is None or len(running) <= self._most:
            return running
        self._num_turns += 1
        at = self._num_turns * self._most % len(running)
        return (running[at:] + running[:at])[: self._most]
