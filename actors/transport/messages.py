"""The messages between coordinator and workers: one frozen struct each. Knows no sockets."""

from outrider.actors.transport.rows import (
    ChosenRow,
    Count,
    CountRow,
    GrowRow,
    MessagePart,
    OfferRow,
    OpenRow,
    PrefillRow,
    PromptRow,
    ProposalRow,
    ProposeRow,
    StepRow,
    StopRow,
    TokenId,
    TurnRow,
    UInt64,
    VerdictRow,
    VerifyRow,
)


class Message(MessagePart, frozen=True, forbid_unknown_fields=True, tag=True, tag_field="type"):
    """The body of a frame; its class name travels as `type`."""


class Open(Message, frozen=True):
    """Take these sequences on. Answered by OpenReply."""

    rows: tuple[OpenRow, ...]


class Close(Message, frozen=True):
    """Forget these sequences and free their pages; unknown ones are ignored.

    Answered by OpenReply.
    """

    seq_ids: tuple[int, ...]


class OpenReply(Message, frozen=True):
    """What the pool holds now."""

    num_free_pages: Count  # those included that are only kept in case
    num_cached: tuple[Count, ...] = ()  # of each row of OPEN: tokens whose KV was there already


class Done(Message, frozen=True):
    """Carried out."""


class Propose(Message, frozen=True):
    """Answered by ProposeReply, its rows in this order."""

    rows: tuple[ProposeRow, ...]
    prefill: tuple[PrefillRow, ...]


class ProposeReply(Message, frozen=True):
    """The draft's answer to Propose."""

    rows: tuple[ProposalRow, ...]
    started_s: float  # by its machine's monotonic clock
    step_s: float  # forwards and draws
    num_passes: Count


class Grow(Message, frozen=True):
    """Grow the trees of these. Not answered: Offers are pushed as they come."""

    rows: tuple[GrowRow, ...]


class Offers(Message, frozen=True):
    """Pushed by the draft after each step."""

    rows: tuple[OfferRow, ...]
    num_tokens: Count  # that the step fed
    started_s: float  # by its machine's monotonic clock
    step_s: float  # forward and draws


class Verify(Message, frozen=True):
    """One target forward. Answered by VerifyReply, its rows in this order."""

    rows: tuple[VerifyRow, ...]
    prefill: tuple[PrefillRow, ...]

    @property
    def seq_ids(self) -> tuple[int, ...]:
        """Of the sequences that are in it, each once."""
        return (*(row.seq_id for row in self.rows), *(row.seq_id for row in self.prefill))


class StepTimes(MessagePart, frozen=True):
    """When a step of the target began, and the parts of its seconds."""

    started_s: float  # by its machine's monotonic clock
    forward_s: float
    verdict_s: float
    host_s: float  # all else: edits, masks, log-probabilities, the sequences' own lists

    @property
    def parts(self) -> dict[str, float]:
        return {"forward": self.forward_s, "verdict": self.verdict_s, "host": self.host_s}

    @property
    def total_s(self) -> float:
        return sum(self.parts.values())

    def __add__(self, later: "StepTimes") -> "StepTimes":
        return StepTimes(
            self.started_s or later.started_s,
            self.forward_s + later.forward_s,
            self.verdict_s + later.verdict_s,
            self.host_s + later.host_s,
        )


NO_TIME = StepTimes(0.0, 0.0, 0.0, 0.0)


class VerifyReply(Message, frozen=True):
    """The target's answer to Verify."""

    rows: tuple[VerdictRow, ...]
    times: StepTimes
    num_free_pages: Count  # now, as OpenReply's
    prompts: tuple[PromptRow, ...] = ()


class Round(Message, frozen=True):
    """Grow trees, then verify what of them is worth its place: a round of a pair in one process.

    The rows of `verify` whose trees are grown come without tokens. Answered by RoundReply.
    """

    turns: tuple[TurnRow, ...]
    waiting: tuple[GrowRow, ...]  # sequences without a verdict yet, for the draft to catch up
    verify: Verify
    rate: float  # tokens a second that are being made; 0 while nothing is known
    curve: tuple[tuple[float, float], ...]  # of the target's forward: (tokens, seconds)


class RoundReply(Message, frozen=True):
    """The pair's answer to Round."""

    chosen: tuple[ChosenRow, ...]
    stops: tuple[StopRow, ...]
    verdicts: VerifyReply
    draft: tuple[StepRow, ...]  # steps of the draft since the last answer
    counts: tuple[CountRow, ...]  # and nodes of its trees
    has_draft_failed: bool = False  # altogether, and no sequence alone


class Describe(Message, frozen=True):
    """Answered by WorkerInfo."""


class WorkerInfo(Message, frozen=True):
    """What a worker's model is, once loaded."""

    role: str
    pid: Count
    model: str
    num_parameters: UInt64
    vocab_size: Count
    context_len: Count
    eos_ids: tuple[TokenId, ...]
    device: str
    dtype: str
    numerics: str  # in effect: "exact" | "fast"
    numerics_reason: str  # why not exact, or empty
    verdicts: str  # whose kernels judge, and why
    fingerprint: str  # of weights, dtype, numerics and instruction set
    page_size: Count
    num_pages: Count
    files: str = ""  # names the model's files as they are on this disk
    digest: str = ""  # of what they hold
    token_s: float = 0.0  # seconds of a forward for each of its tokens, as it began; 0: not timed
    token_budget: Count = 0  # tokens in one forward, as asked or as found; 0: neither
    depends_on_threads: bool = False  # whether its logits may be others with others
    steps: tuple[str, str] = ("", "")  # how a device runs them, and why so; empty on the CPU
    head: str = ""  # the kind that drafts in the same process
    # Each way to run it that was tried, the one that was taken first: first tokens right.
    head_scores: tuple[tuple[str, float], ...] = ()


class TimeForwards(Message, frozen=True):
    """Time forwards with each of these numbers of threads. Settle has to follow. Answered by
    TimedForwards.
    """

    num_threads: tuple[Count, ...]


class Timing(MessagePart, frozen=True):
    """Seconds of a pair's forwards with so many threads."""

    num_threads: Count
    verify: tuple[tuple[Count, float], ...]  # the target's, by tokens, ascending
    draft_s: float = 0.0  # of one step; 0: there is no draft
    slowdown: float = 1.0  # of the target's forward while the draft works beside it


class TimedForwards(Message, frozen=True):
    """One for each number of threads, most first; the last ones are left out if time was short."""

    found: tuple[Timing, ...]


class Settle(Message, frozen=True):
    """Go on with so many threads, on these cores (none: any), with or without the draft beside.

    Answered by Done.
    """

    num_threads: Count
    cores: tuple[Count, ...]
    keeps_draft: bool


class Compile(Message, frozen=True):
    """Have this grammar ready. Answered beside the model's steps, by Done or WorkerError."""

    kind: str  # of sampling.GrammarKind
    text: str
    eos_ids: tuple[TokenId, ...]  # all that it allows once it is fulfilled


class Heartbeat(Message, frozen=True):
    """Pushed by a thread beside the model's, again and again."""

    step_s: float  # how long the present step has been running; 0 if there is none


class Ping(Message, frozen=True):
    """Answered by Pong."""


class Pong(Message, frozen=True):
    """What a worker says of itself."""

    role: str
    pid: Count
    num_sequences: Count
    num_pages: Count
    num_free_pages: Count


class ToDraft(Message, frozen=True):
    """For the draft of a pair, where a message would else be its target's."""

    message: Open | Close | Ping | Describe


class WorkerError(Message, frozen=True):
    """The call could not be carried out: the error's class name, and its message."""

    kind: str
    message: str


AnyMessage = (
    Open
    | Close
    | OpenReply
    | Done
    | TimeForwards
    | TimedForwards
    | Settle
    | Propose
    | ProposeReply
    | Grow
    | Offers
    | Verify
    | VerifyReply
    | Round
    | RoundReply
    | ToDraft
    | Compile
    | Describe
    | WorkerInfo
    | Heartbeat
    | Ping
    | Pong
    | WorkerError
)


PUSH = 0  # the id of a frame that is neither call nor answer: told, or pushed


class Frame(MessagePart, frozen=True):
    """A call, or the answer that carries its id; or PUSH."""

    id: UInt64
    body: AnyMessage
