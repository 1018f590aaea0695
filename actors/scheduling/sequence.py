"""One choice being decoded: its tokens, its state, and the table of what may happen to it when.

The only mutation of a sequence's tokens is `commit`. Knows nothing of workers, text or time.
"""

from enum import Enum, auto

from outrider.actors.errors import IllegalTransition
from outrider.actors.scheduling.request import FinishReason, Request
from outrider.actors.transport.rows import LogitsParams, OpenRow, SamplingRow


class State(Enum):
    """Where a sequence is."""

    WAITING = auto()  # for pages
    PREFILLING = auto()  # what it holds is being computed
    DECODING = auto()  # one verdict a round
    PREEMPTED = auto()  # waiting again: others needed its pages
    FINISHED = auto()
    FAILED = auto()
    CANCELLED = auto()

    __hash__ = object.__hash__  # Enum's own, of the name, takes longer than the lookup

    @property
    def is_final(self) -> bool:
        return self in (State.FINISHED, State.FAILED, State.CANCELLED)


class Event(Enum):
    """What may happen to it."""

    ADMIT = auto()
    PREFILLED = auto()
    REOPEN = auto()
    COMMIT = auto()
    PREEMPT = auto()
    FINISH = auto()
    FAIL = auto()
    CANCEL = auto()

    __hash__ = object.__hash__


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.WAITING, Event.ADMIT): State.PREFILLING,
    (State.PREFILLING, Event.PREFILLED): State.DECODING,
    (State.PREFILLING, Event.REOPEN): State.PREFILLING,
    (State.DECODING, Event.REOPEN): State.PREFILLING,
    (State.DECODING, Event.COMMIT): State.DECODING,
    (State.DECODING, Event.FINISH): State.FINISHED,
    (State.PREFILLING, Event.PREEMPT): State.PREEMPTED,
    (State.DECODING, Event.PREEMPT): State.PREEMPTED,
    (State.PREEMPTED, Event.ADMIT): State.PREFILLING,
    **{(state, Event.FAIL): State.FAILED for state in State if not state.is_final},
    **{(state, Event.CANCEL): State.CANCELLED for state in State if not state.is_final},
}


class Sequence:
    """prompt_ids + output_ids, and a state that only `apply` changes."""

    def __init__(
        self, seq_id: int, request: Request, max_len: int, eos_ids: tuple[int, ...] = ()
    ) -> None:
        self.seq_id = seq_id
        self._eos_ids = eos_ids
        self.request = request
        self.max_len = max_len  # positions it may fill: prompt + max_tokens, at most the context
        self.state = State.WAITING
        self.output_ids = [] if request.resumed is None else list(request.resumed.output_ids)
        # Prompt included: the position of the next token.
        self.num_committed = len(request.prompt_ids) + len(self.output_ids)
        self.finish_reason: FinishReason | None = None
        self.num_prefilled = 0  # tokens that the target was told to compute since its OPEN
        self.num_proposals = 0
        self.queued_at = 0.0  # by the coordinator's clock
        self.queued_s: float | None = None  # once admitted, until told
        self.num_cached = 0  # of the prompt's: KV was there when the target last opened it
        self.page_names: list[bytes] = []  # of its prompt's full pages
        self.is_plain = False  # proposals for it may have killed targets: it gets no more

    @property
    def num_left(self) -> int:
        """Tokens it may still commit."""
        return self.max_len - self.num_committed

    @property
    def num_computed(self) -> int:
        """Rows of KV that the target holds of it between two rounds."""
        return self.num_committed - 1 if self.state is State.DECODING else self.num_prefilled

    @property
    def num_to_prefill(self) -> int:
        """Tokens to compute before the next verdict, which computes the last one itself."""
        return self.num_committed - 1 - self.num_prefilled

    def apply(self, event: Event) -> None:
        """Move to the next state. Raises IllegalTransition and changes nothing if there is none."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise IllegalTransition(f"Got {event.name} for a sequence that is {self.state.name}")
        self.state = state

    def admit(self, now: float) -> None:
        """It is its turn; how long it was queued counts the first time only."""
        is_new = self.state is State.WAITING
        self.apply(Event.ADMIT)
        if is_new:
            self.queued_s = now - self.queued_at

    def opened(self, num_cached: int) -> None:
        """The target has taken it on, and need not compute so many of its tokens."""
        self.num_prefilled = num_cached
        self.num_cached = min(num_cached, len(self.request.prompt_ids))

    def commit(self, token_ids: tuple[int, ...]) -> None:
        """Append what a verdict gave, already cut at the token that ends the sequence."""
        num_left = self.num_left
        if not 1 <= len(token_ids) <= num_left:
            raise IllegalTransition(
                f"Got {len(token_ids)} tokens to commit, expected 1 to {num_left}"
            )
        self.apply(Event.COMMIT)
        self.output_ids += token_ids
        self.num_committed += len(token_ids)

    def reopen(self) -> None:
        """The target's copy is gone: everything committed is computed again."""
        self._begin_again(Event.REOPEN)

    def preempt(self) -> None:
        """Give the target's copy up, until there is room for it again."""
        self._begin_again(Event.PREEMPT)

    def _begin_again(self, event: Event) -> None:
        self.apply(event)
        self.num_prefilled = 0
        self.num_proposals += 1  # the proposal that was judged there keeps its name

    def ids_from(self, position: int) -> tuple[int, ...]:
        """Ids from any position on, the prompt's included."""
        prompt = self.request.prompt_ids
        return (*prompt[position:], *self.output_ids[max(0, position - len(prompt)) :])

    def since(self, num_committed: int) -> tuple[int, ...]:
        """Ids from position `num_committed` on, which is never inside the prompt."""
        return tuple(self.output_ids[num_committed - len(self.request.prompt_ids) :])

    def open_row(self) -> OpenRow:
        """What a worker must know of it."""
        request, sampling = self.request, self.request.sampling
        return OpenRow(
            seq_id=self.seq_id,
            prompt_ids=request.prompt_ids,
            committed_ids=tuple(self.output_ids),
            sampling=SamplingRow(
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
                verification=request.speculation.verification.value,
                seed=request.seed,
                choice=request.choice,
                logits=self._logits_params(),
            ),
            max_len=self.max_len,
            cache_salt=request.cache_salt,
            num_top=sampling.num_top_logprobs,
            prompt_top=None if self.output_ids else sampling.prompt_logprobs,
        )

    def _logits_params(self) -> LogitsParams | None:
        """What a worker does to its logits; None takes them as they are."""
        sampling = self.request.sampling
        penalties = sampling.frequency_penalty, sampling.presence_penalty
        is_plain = sampling.repetition_penalty == 1 and not any(penalties)
        if (
            is_plain
            and not sampling.logit_bias
            and sampling.min_tokens <= len(self.output_ids)
            and sampling.grammar is None
        ):
            return None
        grammar = sampling.grammar
        ends = () if sampling.ignores_eos and grammar is None else self._eos_ids
        return LogitsParams(
            bias_ids=tuple(token_id for token_id, _ in sampling.logit_bias),
            bias=tuple(bias for _, bias in sampling.logit_bias),
            repetition=sampling.repetition_penalty,
            frequency=sampling.frequency_penalty,
            presence=sampling.presence_penalty,
            min_tokens=sampling.min_tokens,
            end_ids=tuple(sorted({*ends, *sampling.stop_token_ids})),
            eos_ids=self._eos_ids,
            grammar_kind="" if grammar is None else grammar.kind.value,
            grammar="" if grammar is None else grammar.text,
        )
