"""The rows of messages: what is asked and answered of one sequence, checked field by field.

Every row names its sequence; an unknown or missing field is an error. Token ids, counts and a few
probabilities are all that travels: nothing of vocabulary size does.
"""

from typing import Annotated

import msgspec

from outrider.actors.transport.draft_stop import DraftStop

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Chance = Annotated[float, msgspec.Meta(ge=0, le=1)]
UInt64 = Annotated[int, msgspec.Meta(ge=0)]  # msgpack's widest; bounded by the format itself


class MessagePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a message."""


class LogitsParams(MessagePart, frozen=True):
    """What is done to each row of a sequence's logits before it is sampled.

    Meaning and order: kernels/contract/logits_edits.py.
    """

    bias_ids: tuple[TokenId, ...]
    bias: tuple[float, ...]
    repetition: float
    frequency: float
    presence: float
    min_tokens: Count  # of output, before one of `end_ids` may be drawn
    end_ids: tuple[TokenId, ...]
    eos_ids: tuple[TokenId, ...]  # all that a grammar allows once it is fulfilled
    grammar_kind: str  # of sampling.GrammarKind, or empty
    grammar: str


class SamplingRow(MessagePart, frozen=True):
    """How a sequence's tokens are drawn and judged."""

    temperature: float
    top_k: Count
    top_p: float
    min_p: float
    verification: str  # "coupled" | "rejection"
    seed: UInt64
    choice: Count
    logits: LogitsParams | None = None  # None takes the logits as they are


class OpenRow(MessagePart, frozen=True):
    """Everything a worker must know of a sequence; also the way back after a worker's death."""

    seq_id: int
    prompt_ids: tuple[TokenId, ...]
    committed_ids: tuple[TokenId, ...]  # output so far
    sampling: SamplingRow
    max_len: Count  # the sequence never grows beyond this many positions
    cache_salt: str = ""  # KV is shared only among sequences with the same one
    num_top: Count = 0  # likeliest ids to tell with each token
    prompt_top: Count | None = None  # and with each of the prompt's; None tells nothing of those


class PrefillRow(MessagePart, frozen=True):
    """Compute the next `num_tokens` ids of a sequence that has more than that to catch up."""

    seq_id: int
    num_tokens: Count


class ProposeRow(MessagePart, frozen=True):
    """Draft up to k tokens after position num_committed - 1."""

    seq_id: int
    num_committed: Count  # committed length, prompt included
    committed: tuple[TokenId, ...]  # ids since its last proposal (or OPEN)
    k: Count


class SparseRow(MessagePart, frozen=True):
    """The distribution a drafted token was drawn from: ids and probabilities, summing to 1."""

    ids: tuple[TokenId, ...]
    probs: tuple[float, ...]


class ProposalRow(MessagePart, frozen=True):
    """A chain of drafted tokens."""

    seq_id: int
    tokens: tuple[TokenId, ...]
    rows: tuple[SparseRow, ...]  # one per token in rejection mode, else empty
    stop: DraftStop | None = None  # why it follows the sequence no longer


class GrowRow(MessagePart, frozen=True):
    """Where a sequence stands: grow its tree from there. A newer one supersedes an older."""

    seq_id: int
    num_committed: Count  # committed length, prompt included
    committed: tuple[TokenId, ...]  # ids since the last one (or OPEN)
    max_depth: Count  # behind the last committed token
    min_chance: Chance  # of a node that is worth a place in a step
    num_guesses: Count  # behind each that was fed


class GuessRow(MessagePart, frozen=True):
    """What another drafter than the draft expects."""

    drafter: str
    tokens: tuple[TokenId, ...]
    parents: tuple[Count, ...]  # see transport/draft_tree.py
    edges: tuple[Count, ...]  # of each token, see trees/chances.py


class TurnRow(MessagePart, frozen=True):
    """One sequence's part in a round of a pair that takes turns: its tree, and what of it may be
    judged.
    """

    grow: GrowRow
    k: Count  # tokens of a chain, at most
    is_priced: bool  # whether it is the price that decides, of a tree or of what is drawn
    num_nodes: Count  # of a tree, at most
    guesses: tuple[GuessRow, ...]


class ChosenRow(MessagePart, frozen=True):
    """What of a tree was judged."""

    seq_id: int
    tokens: tuple[TokenId, ...]
    parents: tuple[Count, ...]  # see transport/draft_tree.py
    drafters: tuple[str, ...]  # of each token
    promised: float  # of them, how many should be accepted


class StepRow(MessagePart, frozen=True):
    """One forward of the draft's, and what it drew."""

    num_tokens: Count  # that were fed
    started_s: float  # by its machine's monotonic clock
    step_s: float


class CountRow(MessagePart, frozen=True):
    """Nodes of a drafter's."""

    drafter: str
    what: str  # "offered", "judged" or "accepted"
    num: Count


class StopRow(MessagePart, frozen=True):
    """The draft follows a sequence no longer."""

    seq_id: int
    stop: DraftStop


class OfferRow(MessagePart, frozen=True):
    """Nodes that one step added to a tree.

    Each has a name, never used twice in an OPEN: `first`, and on from there. A parent is named too;
    0 is the last of `num_committed` tokens. So an offer that comes late harms nothing: what has
    been committed meanwhile is known by position, and what hangs from a node that is gone goes too.
    """

    seq_id: int
    num_committed: Count  # as the draft knew when it made them
    first: Count
    parents: tuple[Count, ...]
    tokens: tuple[TokenId, ...]
    edges: tuple[Count, ...]  # see trees/chances.py
    rows: tuple[SparseRow, ...] = ()  # of the nodes that were drawn, in rejection mode
    stop: DraftStop | None = None  # why it follows the sequence no longer


class VerifyRow(MessagePart, frozen=True):
    """Judge what was drafted after position num_committed - 1; no tokens is plain decoding."""

    seq_id: int
    id: Count  # of the proposal, unique in the sequence
    num_committed: Count
    tokens: tuple[TokenId, ...]
    rows: tuple[SparseRow, ...]  # see ProposalRow
    parents: tuple[Count, ...] = ()  # see transport/draft_tree.py; in rejection mode a chain's


class TopRow(MessagePart, frozen=True):
    """The likeliest ids of a row of logits, likeliest first, and their raw log-probabilities."""

    ids: tuple[TokenId, ...]
    logprobs: tuple[float, ...]


class PromptRow(MessagePart, frozen=True):
    """Log-probabilities of consecutive ids of a prompt, where the sequence asked for them."""

    seq_id: int
    start: Count  # position of the first of the ids; 1 or more
    logprobs: tuple[float, ...]  # raw
    top: tuple[TopRow, ...]


class VerdictRow(MessagePart, frozen=True):
    """What the target made of a proposal. With an error, only `seq_id` and `id` mean anything."""

    seq_id: int
    id: Count
    node: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]  # the last token accepted; -1 for none
    token: TokenId  # recovered if a drafted token was rejected, else bonus
    logprobs: tuple[float, ...]  # raw, one per accepted token and one for `token`
    error: str
    top: tuple[TopRow, ...] = ()  # as logprobs, where the sequence asked for them

    @property
    def num_accepted(self) -> int:
        return max(0, len(self.logprobs) - 1)
