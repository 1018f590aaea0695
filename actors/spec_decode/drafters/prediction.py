"""The client's prediction of its own answer, drafted from as long as the text goes along with it.

Owns the place in the prediction that the text has come to. After a departure it goes on behind the
nearest place ahead where the prediction reads like the text's end. Longer while it is right.
"""

from collections.abc import Sequence as Many

from outrider.actors.scheduling.sampling_params import MAX_K

PAIR = 2  # ids that must match before the text is taken to be back
FIRST_LEN = 8


class PredictionDrafter:
    """A Drafter that reads on."""

    def __init__(self, prediction: Many[int]) -> None:
        self._prediction = tuple(prediction)
        self._at = 0  # what comes next, while the text goes along
        self._is_along = True
        self._tail: tuple[int, ...] = ()
        self._len = FIRST_LEN

    def extend(self, ids: Many[int]) -> None:
        """Take committed ids in."""
        for token_id in ids:
            self._tail = (*self._tail[1 - PAIR :], token_id)
            self._follow(token_id)

    def judged(self, num_drafted: int, num_accepted: int) -> None:
        """What became of a proposal."""
        is_whole = num_accepted == num_drafted
        self._len = min(MAX_K, 2 * self._len) if is_whole else max(PAIR, num_accepted + 1)

    def propose(self, max_tokens: int) -> tuple[int, ...]:
        """What the prediction says next; nothing where the text has left it."""
        if not self._is_along:
            return ()
        return self._prediction[self._at : self._at + min(max_tokens, self._len)]

    def _follow(self, token_id: int) -> None:
        at = self._at
        if self._is_along and self._prediction[at : at + 1] == (token_id,):
            self._at += 1
            return
        self._is_along = False
        if len(self._tail) == PAIR:
            for place in range(max(PAIR, at + 1), len(self._prediction) + 1):
                if self._prediction[place - PAIR : place] == self._tail:
                    self._at, self._is_along = place, True
                    return
