"""Who runs in the next round: admission by pages, then a token budget, decoding rows first.

A sequence is admitted when the pool could hold it grown to its full length, so no round can run out
of pages. Knows nothing of workers or time.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from outrider.actors.errors import InvalidRequest, Overloaded
from outrider.actors.sampling import MAX_K
from outrider.actors.sequence import Event, Sequence, State

MIN_CHUNK = 16  # a prompt makes at least this progress each round, however full the batch


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a round."""

    num_pages: int  # of the target's pool
    page_size: int
    max_batch: int  # sequences admitted at once
    max_waiting: int
    token_budget: int  # tokens of one target forward


@dataclass(slots=True)
class Plan:
    """One round."""

    rows: list[Sequence] = field(default_factory=list)  # get a verdict
    prefill: list[tuple[Sequence, int]] = field(default_factory=list)  # and the tokens to compute

    @property
    def sequences(self) -> list[Sequence]:
        return self.rows + [sequence for sequence, _ in self.prefill]

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens to compute before any verdict; known until the round is committed."""
        last = sum(s.num_to_prefill for s in self.rows if s.state is State.PREFILLING)
        return last + sum(size for _, size in self.prefill)


class Scheduler:
    """Waiting and running sequences."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_reserved = 0  # pages

    def num_pages_for(self, max_len: int) -> int:
        """Pages of a sequence at its longest, with a full proposal beyond it."""
        return -(-(max_len + MAX_K) // self.limits.page_size)

    def check(self, max_len: int) -> None:
        """Raises InvalidRequest if it could never run, Overloaded if the queue is full."""
        need = self.num_pages_for(max_len)
        if need > self.limits.num_pages:
            most = self.limits.num_pages * self.limits.page_size - MAX_K
            raise InvalidRequest(
                f"Got {max_len} tokens of prompt and output, this server holds {most}",
                "max_tokens",
            )
        if len(self.waiting) >= self.limits.max_waiting:
            raise Overloaded(
                f"Got a request with {len(self.waiting)} waiting, "
                f"accepted {self.limits.max_waiting}"
            )

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended; its pages are free again."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.num_reserved -= self.num_pages_for(sequence.max_len)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def admit(self) -> list[Sequence]:
        """Move from waiting to running while there is room: whose tenant has fewest running, of
        equals who came first. Nobody overtakes one that is next and waits for pages.
        """
        admitted: list[Sequence] = []
        shares = Counter(sequence.request.tenant for sequence in self.running)
        while self.waiting and len(self.running) < self.limits.max_batch:
            sequence = min(self.waiting, key=lambda each: shares[each.request.tenant])
            need = self.num_pages_for(sequence.max_len)
            if self.num_reserved + need > self.limits.num_pages:
                break
            self.waiting.remove(sequence)
            shares[sequence.request.tenant] += 1
            self.num_reserved += need
            sequence.apply(Event.ADMIT)
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def plan(self, k: int) -> Plan:
        """The next round, if each decoding row drafts up to k tokens."""
        plan = Plan([s for s in self.running if s.state is State.DECODING])
        budget = max(MIN_CHUNK, self.limits.token_budget - len(plan.rows) * (k + 1))
        for sequence in self.running:
            if budget <= 0:
                break
            if sequence.state is not State.PREFILLING:
                continue
            size = min(sequence.num_to_prefill, max(budget, MIN_CHUNK))
            if size == sequence.num_to_prefill:  # the rest travels with the first verdict
                plan.rows.append(sequence)
            else:
                plan.prefill.append((sequence, size))
            budget -= size + k + 1
        return plan
