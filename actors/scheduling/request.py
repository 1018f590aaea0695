"""What goes into the engine and what comes out of it: one request, and one chunk per commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.transport.draft_tree import parent_rows, path_to

DEFAULT_SPECULATION = SpeculationParams()


class FinishReason(StrEnum):
    """Why a sequence ended, in OpenAI's words."""

    STOP = "stop"  # an EOS id, a stop id or a stop string
    LENGTH = "length"  # max_tokens, or the context is full


@dataclass(frozen=True, slots=True)
class Request:
    """One choice of one prompt. The seed is decided by now: equal requests give equal text."""

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int  # 0 ≤ seed < 2^64
    choice: int = 0  # index among the choices of its own prompt
    speculation: SpeculationParams = DEFAULT_SPECULATION
    prediction_ids: tuple[int, ...] = ()  # what the client expects; drafted from, never believed
    resumed: "Resumed | None" = None
    tenant: str = ""  # whose it is; those who wait take turns
    priority: int = 0  # lower goes first
    cache_salt: str = ""  # KV is shared only among requests with the same one


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a broken stream is taken up: everything goes on as if it had not broken."""

    output_ids: tuple[int, ...]  # generated before, by the same fingerprint and seed
    text_len: int  # characters of their text that the client has


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's raw log-probability, and the likeliest ids there."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (id, log-probability), likeliest first


class OwnDraw(StrEnum):
    """Of a token that the target drew itself, behind what it accepted."""

    PLAIN = "plain"  # nothing was proposed
    RECOVERED = "recovered"  # in place of tokens that it rejected
    BONUS = "bonus"  # behind all that was proposed there


@dataclass(frozen=True, slots=True)
class JudgedTree:
    """What was proposed in one round for one sequence, and what of it the target accepted."""

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()  # see transport/draft_tree.py
    drafters: tuple[str, ...] = ()  # of each token, who proposed it
    node: int = -1  # the last token accepted; -1 for none

    @property
    def accepted(self) -> Sequence[int]:
        """Which of the tokens, in the order of the text."""
        return path_to(self.node, self.parents)

    @property
    def own_draw(self) -> OwnDraw:
        """What the token behind the accepted ones is."""
        num, row = len(self.token_ids), self.node + 1
        if not num:
            return OwnDraw.PLAIN
        is_rejecting = row in parent_rows(num, self.parents)
        return OwnDraw.RECOVERED if is_rejecting else OwnDraw.BONUS


NOTHING_JUDGED = JudgedTree()


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What one commit added to one sequence."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of token_ids, raw: log-softmax of the model's own logits
    text: str  # complete characters only; a stop string is never part of it
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()  # of each token, as TokenLogprobs
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of the prompt from its second id on, if asked
    tree: JudgedTree = NOTHING_JUDGED  # what was proposed in the round that made this commit
    k_reason: str = ""  # why the round drafted as far as it did: a word of lookahead's Reason
    queued_s: float | None = None  # on the first chunk: from submission to admission
    num_cached: int = 0  # on the first chunk: tokens of the prompt whose KV was there already
    finish_reason: FinishReason | None = None  # set on the last chunk

    @property
    def num_drafted(self) -> int:
        """Tokens proposed in that round."""
        return len(self.tree.token_ids)

    @property
    def num_accepted(self) -> int:
        """Of those, accepted."""
        return len(self.tree.accepted)

    @property
    def origins(self) -> tuple[str, ...]:
        """Of each token: the drafter whose it was, or what kind of draw of the target's own."""
        num, tree = len(self.token_ids), self.tree
        found = tuple(tree.drafters[at] for at in tree.accepted[:num])
        return found + (tree.own_draw,) * (num - len(found))
