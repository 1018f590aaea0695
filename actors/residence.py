"""Which sequences the target holds: opened when admitted, closed when they leave or make room."""

from outrider.actors.errors import OutriderError, WorkerLost
from outrider.actors.live_streams import LiveStreams
from outrider.actors.scheduler import Plan, Scheduler
from outrider.actors.sequence import Sequence
from outrider.actors.statistics import Statistics
from outrider.actors.verifying import Verifying


class Residence:
    """Carries out at the target what the scheduler decides. Its calls raise WorkerLost."""

    def __init__(
        self,
        verifying: Verifying,
        scheduler: Scheduler,
        streams: LiveStreams,
        statistics: Statistics,
    ) -> None:
        self._verifying = verifying
        self._scheduler = scheduler
        self._streams = streams
        self._statistics = statistics

    async def reopen(self) -> None:
        """Tell a new target of every running sequence."""
        running = list(self._scheduler.running)
        for sequence in running:
            sequence.reopen()
        await self._open(running)

    async def admit(self, now: float) -> None:
        """Whoever there is room for."""
        while admitted := self._scheduler.admit(now, self._verifying.num_free_pages):
            await self._open(admitted)
            self._statistics.add(
                num_prompt_tokens=sum(len(s.request.prompt_ids) for s in admitted),
                num_cached_tokens=sum(sequence.num_cached for sequence in admitted),
            )

    async def plan(self, k: int) -> Plan:
        """The next round; who must leave for it has left."""
        plan = self._scheduler.plan(k)
        while sequence := self._scheduler.preempt(plan, self._verifying.num_free_pages):
            self._statistics.add(num_preempted=1)
            self._streams.left.append(sequence.seq)
            await self.close_left()
            plan = self._scheduler.plan(k)
        return plan

    async def close_left(self) -> None:
        """Whoever left since this was last done."""
        left = self._streams.left
        if left:
            seqs = tuple(left)
            await self._verifying.close(seqs)
            del left[: len(seqs)]  # others may have joined them

    async def _open(self, sequences: list[Sequence]) -> None:
        try:
            await self._verifying.open(sequences)
        except WorkerLost:
            raise
        except OutriderError as error:
            self._streams.fail_some(sequences, error)
