"""How far each sequence is drafted: what its request asks, else what the server chose."""

from outrider.actors.lookahead.reason import Reason
from outrider.actors.lookahead.round_report import DRAFT, DraftChoice
from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.scheduling.sequence import Sequence


class DraftLength:
    """The present choice, as it applies to one sequence or another."""

    def __init__(self, drafter: str = DRAFT) -> None:
        """`drafter` grows the trees: the draft, or a head."""
        self._drafter = drafter
        self.choice = DraftChoice(0, 0, Reason.FIXED)
        self.told_k = MAX_K  # for those that tell of the likeliest ids of each row

    def draft_k(self, sequence: Sequence) -> int:
        """Tokens of the draft's; at 0 it does not follow the sequence."""
        if not sequence.request.speculation.may(self._drafter):
            return 0
        return self._asked(sequence, self.choice.k)

    def guessed_k(self, sequence: Sequence, ignores_k: bool) -> int:
        """Tokens that a drafter of the coordinator's may guess."""
        return self._asked(sequence, MAX_K if ignores_k else self.choice.ngram_k)

    def num_nodes(self, sequence: Sequence, most: int) -> int:
        """Of a tree, where its size is the server's choice."""
        if not self._asked(sequence, self.choice.most):
            return 0
        return min(most, self.told_k) if sequence.request.sampling.num_top_logprobs else most

    def reason(self, sequence: Sequence) -> Reason:
        """Why its k is what it is."""
        speculation = sequence.request.speculation
        if not speculation.is_enabled:
            return Reason.DISABLED
        if sequence.is_plain:
            return Reason.SUSPECT
        return self.choice.reason if speculation.k is None else Reason.REQUEST

    def _asked(self, sequence: Sequence, chosen: int) -> int:
        speculation = sequence.request.speculation
        if not speculation.is_enabled or sequence.is_plain:
            return 0
        k = chosen if speculation.k is None else speculation.k
        if sequence.request.sampling.num_top_logprobs:
            k = min(k, self.told_k)
        return max(0, min(k, sequence.num_left - 1))
