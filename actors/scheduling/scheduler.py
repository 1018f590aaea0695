"""Who runs in the next round: admission by pages, then a token budget, decoding rows first.

A sequence begins when its text so far finds room beside those that run; where they outgrow the pool
the newest leaves and is computed again later. Knows nothing of workers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.actors.errors import Overloaded
from outrider.actors.runner.kv.prefix_hash import PrefixHasher
from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.scheduling.sequence import Sequence, State

MAX_ROW_NODES = 64  # of one row's proposal in a round: where a forward is flat, it is so up to here
MIN_CHUNK = 16  # a prompt makes at least this progress each round, however full the batch
MAX_TOLD = 64  # rows of one round whose log-probabilities people are told; or one a sequence
AGING_S = 30.0  # waiting so long is worth a step of priority: nobody starves


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What bounds a round."""

    num_pages: int  # of the target's pool
    page_size: int
    max_batch: int  # sequences admitted at once
    max_waiting: int
    token_budget: int  # tokens of one target forward
    has_prefix_cache: bool = True

    @property
    def max_len(self) -> int:
        """Tokens of prompt and output that one sequence can have, alone in the pool."""
        return self.num_pages * self.page_size - MAX_K


@dataclass(slots=True)
class SchedulerOutput:
    """One round."""

    rows: list[Sequence] = field(default_factory=list)  # get a verdict
    prefill: list[tuple[Sequence, int]] = field(default_factory=list)  # and the tokens to compute
    num_nodes: int = MAX_K  # of a proposal: as many as there are pages for, whatever the rows draft

    @property
    def sequences(self) -> list[Sequence]:
        return self.rows + [sequence for sequence, _ in self.prefill]

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens to compute before any verdict; known until the round is committed."""
        last = sum(s.num_to_prefill for s in self.rows if s.state is State.PREFILLING)
        return last + sum(size for _, size in self.prefill)


class Scheduler:
    """Waiting and running sequences. The free pages are the target's own count of them."""

    def __init__(self, limits: SchedulerConfig) -> None:
        self.limits = limits
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []  # by when they were admitted

    def check_room(self, num: int, tenant: str) -> None:
        """Raises Overloaded unless so many more may wait. One tenant has half the queue at most."""
        most, num_waiting = self.limits.max_waiting, len(self.waiting)
        if num_waiting + num > most:
            got = f"Got {num} choices with {num_waiting} waiting"
            raise Overloaded(f"{got}, accepted {most} together")
        num_own = sum(sequence.request.tenant == tenant for sequence in self.waiting)
        if tenant and num_own + num > max(1, most // 2):
            got = f"Got {num} choices of the key {tenant!r} with {num_own} of its own waiting"
            raise Overloaded(f"{got}, accepted {max(1, most // 2)} together")

    def add(self, sequence: Sequence) -> None:
        sequence.page_names = self._page_names(sequence)
        self.waiting.append(sequence)

    def _page_names(self, sequence: Sequence) -> list[bytes]:
        """Of its prompt's full pages; choices of one prompt share them."""
        request = sequence.request
        if not self.limits.has_prefix_cache:
            return []
        for other in (*self.waiting[-1:], *self.running[-1:]):
            theirs = other.request
            is_same = theirs.prompt_ids is request.prompt_ids
            if is_same and theirs.cache_salt == request.cache_salt and other.page_names:
                return other.page_names
        size = self.limits.page_size
        hasher = PrefixHasher(request.cache_salt, size)
        return hasher.upto(request.prompt_ids, len(request.prompt_ids) // size)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended."""
        for line in (self.running, self.waiting):
            if sequence in line:
                line.remove(sequence)

    @property
    def is_full(self) -> bool:
        """Whether as many run as may, whatever room there is."""
        return len(self.running) >= self.limits.max_batch

    def admit(self, now: float, num_free: int) -> list[Sequence]:
        """Move from waiting to running while there is room.

        By priority, then whose tenant has fewest running, then who came first. Nobody overtakes one
        that waits for pages; one that waits for a prompt like its own to be computed lets others
        by. Once these are open more may find room: what the target had of them is known then.
        """
        admitted = []
        while (sequence := self._next(now, num_free)) is not None:
            self.waiting.remove(sequence)
            sequence.admit(now)
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def _next(self, now: float, num_free: int) -> Sequence | None:
        if not self.waiting or self.is_full:
            return None
        shares = Counter(sequence.request.tenant for sequence in self.running)
        for sequence in sorted(self.waiting, key=_turn(now, shares)):
            if not self._is_being_computed(sequence):
                return sequence if self._has_room(sequence, num_free) else None
        return None

    def preempt(self, plan: SchedulerOutput, num_free: int) -> Sequence | None:
        """Move the newest of the least important back to waiting, if the plan needs more pages
        than are free.
        """
        if len(self.running) == 1 or self.most_growth(plan) <= num_free:
            return None
        need = sum(map(self._growth, plan.rows)) + sum(
            self._pages(s.num_computed + size) - self._pages(s.num_computed)
            for s, size in plan.prefill
        )
        if need <= num_free:
            return None
        newest = max(reversed(self.running), key=lambda s: s.request.priority)
        newest.preempt()
        self.running.remove(newest)
        self.waiting.append(newest)
        return newest

    def plan(
        self, k: int, group: list[Sequence] | None = None, num_drafted: int | None = None
    ) -> SchedulerOutput:
        """The next round, if each decoding row drafts up to k tokens, and `num_drafted` of them as
        it is expected; of a group, or of all. Prompts have what rows leave of the budget.
        """
        num_each = 1 + (k if num_drafted is None else num_drafted)
        running = self.running
        if group is not None and group != running:
            running = [sequence for sequence in group if sequence in running]
        plan = SchedulerOutput([s for s in running if s.state is State.DECODING])
        num_telling = sum(s.request.sampling.num_top_logprobs > 0 for s in plan.rows)
        num_told = num_telling * (min(k, told_k(num_telling)) + 1)
        budget = max(MIN_CHUNK, self.limits.token_budget - len(plan.rows) * num_each)
        for sequence in running:
            if budget <= 0:
                break
            if sequence.state is not State.PREFILLING:
                continue
            most = max(budget, MIN_CHUNK)
            if sequence.request.sampling.prompt_logprobs is not None:
                if num_told >= MAX_TOLD and plan.sequences:
                    continue
                most = min(most, max(1, MAX_TOLD - num_told))
                num_told += min(most, sequence.num_to_prefill)
            size = min(sequence.num_to_prefill, most)
            if size == sequence.num_to_prefill:  # the rest travels with the first verdict
                plan.rows.append(sequence)
            else:
                plan.prefill.append((sequence, size))
            budget -= size + num_each
        return plan

    # pages

    def num_nodes(self, plan: SchedulerOutput, num_free: int) -> int:
        """Tokens of a proposal that each row of a round may have, since pages are free."""
        spare = num_free - plan.num_prompt_tokens // self.limits.page_size
        each = (spare - 2 * len(plan.sequences)) // max(1, len(plan.rows))
        return max(MAX_K, min(MAX_ROW_NODES, each * self.limits.page_size))

    def _pages(self, num_rows: int) -> int:
        return -(-num_rows // self.limits.page_size)

    def _growth(self, sequence: Sequence) -> int:
        """Pages that a verdict may need beyond those it has: its text, and the longest proposal."""
        return self._pages(sequence.num_committed + MAX_K) - self._pages(sequence.num_computed)

    def most_growth(self, plan: SchedulerOutput) -> int:
        """Pages that a round cannot need more of, known without a look at each sequence."""
        size = plan.num_prompt_tokens + MAX_K * len(plan.rows)
        return size // self.limits.page_size + 2 * len(plan.sequences)

    def _has_room(self, sequence: Sequence, num_free: int) -> bool:
        """Beside what the running ones need to be computed, and a page for each to grow into."""
        if not self.running:
            return True
        room = num_free - sum(self._growth(other) + 1 for other in self.running)
        need = self._growth(sequence)
        return need <= room or any(
            need - self._common_pages(sequence, other) <= room for other in self.running
        )

    def _is_being_computed(self, sequence: Sequence) -> bool:
        """Whether a running prompt is about to fill pages that this one begins with, too."""
        return any(
            other.state is State.PREFILLING
            and self._common_pages(sequence, other) > other.num_prefilled // self.limits.page_size
            for other in self.running
        )

    def _common_pages(self, sequence: Sequence, other: Sequence) -> int:
        """Full pages that both prompts begin with, and that may be shared; the last id's is not. A
        page's name covers all that precedes it, so where one is equal all before it are.
        """
        if sequence.request.sampling.prompt_logprobs is not None:
            return 0  # all of its own rows are to be told of
        ours, theirs = sequence.page_names, other.page_names
        most = (len(sequence.request.prompt_ids) - 1) // self.limits.page_size
        low, high = 0, min(most, len(ours), len(theirs))
        if ours is theirs:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            is_common = ours[middle - 1] == theirs[middle - 1]
            low, high = (middle, high) if is_common else (low, middle - 1)
        return low


def told_k(num_telling: int) -> int:
    """How far those may draft who tell people of each of their rows, so many in one round."""
    return max(0, MAX_TOLD // max(1, num_telling) - 1)


def _turn(now: float, shares: Counter[str]) -> Callable[[Sequence], tuple[float, int, float]]:
    """What those who wait are sorted by."""

    def turn(sequence: Sequence) -> tuple[float, int, float]:
        request = sequence.request
        steps = int((now - sequence.queued_at) / AGING_S)
        return request.priority - steps, shares[request.tenant], sequence.queued_at

    return turn
