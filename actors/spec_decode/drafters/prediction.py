"""The client's prediction of its own answer, drafted from as long as the text goes along with it.

Owns the place in the prediction that the text has come to. After a departure it goes on behind the
nearest place ahead where the prediction reads like the text's end. Longer while it is right.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import MAX_K
from outrider.actors.spec_decode.drafters.guess import NO_GUESS, Guess, copied

PAIR = 2  # ids that must match before the text is taken to be back
FIRST_LEN = 8
ID_BITS = 32
NUM_INDEXED = 32  # predictions at once


@dataclass(frozen=True, slots=True)
class _Whole:
    """A prediction told by its identity: to compare long ones costs more than to index them."""

    ids: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and other.ids is self.ids

    def __hash__(self) -> int:
        return id(self.ids)


def follow(request: Request) -> "PredictionDrafter | None":
    """A drafter, if the client predicted anything."""
    return PredictionDrafter(request.prediction_ids) if request.prediction_ids else None


class PairPlaces:
    """Where each pair of neighbours is: arrays, as the loop would stand still for a dictionary."""

    def __init__(self, ids: Many[int]) -> None:
        array = np.array(ids, np.int64)
        pairs = array[:-1] << ID_BITS | array[1:]
        order = pairs.argsort(kind="stable")
        self._pairs, self._places = pairs[order], order + PAIR

    def after(self, pair: tuple[int, ...], at: int) -> int | None:
        """The first place behind such a pair that lies beyond `at`."""
        wanted = pair[0] << ID_BITS | pair[1]
        first, end = (int(self._pairs.searchsorted(wanted, side)) for side in ("left", "right"))
        first += int(self._places[first:end].searchsorted(at, "right"))
        return int(self._places[first]) if first < end else None


@lru_cache(maxsize=NUM_INDEXED)
def _indexed(prediction: _Whole) -> PairPlaces:
    return PairPlaces(prediction.ids)


def places_of(prediction: tuple[int, ...]) -> PairPlaces:
    """Made once for all choices of a request."""
    return _indexed(_Whole(prediction))


class PredictionDrafter:
    """A Drafter that reads on."""

    def __init__(self, prediction: Many[int]) -> None:
        self._prediction = tuple(prediction)
        self._at = 0  # what comes next, while the text goes along
        self._is_along = True
        self._agreed = 0
        self._tail: tuple[int, ...] = ()
        self._len = FIRST_LEN

    def extend(self, ids: Many[int]) -> None:
        """Take committed ids in."""
        expected = self.propose(MAX_K).tokens
        if expected and ids:
            num_right = _common_len(expected, ids)
            is_missed = num_right < min(len(expected), len(ids))
            self._len = max(PAIR, num_right + 1) if is_missed else min(MAX_K, 2 * self._len)
        for token_id in ids:
            self._tail = (*self._tail[1 - PAIR :], token_id)
            self._follow(token_id)

    def propose(self, max_tokens: int) -> Guess:
        """What the prediction says next; nothing where the text has left it."""
        if not self._is_along:
            return NO_GUESS
        tokens = self._prediction[self._at : self._at + min(max_tokens, self._len)]
        return copied(tokens, self._agreed)

    def end(self) -> None:
        """Nothing is kept."""

    def _follow(self, token_id: int) -> None:
        at = self._at
        if self._is_along and self._prediction[at : at + 1] == (token_id,):
            self._at += 1
            self._agreed += 1
            return
        self._is_along, self._agreed = False, 0
        if len(self._tail) == PAIR:
            nearest = places_of(self._prediction).after(self._tail, at)
            if nearest is not None:
                self._at, self._is_along, self._agreed = nearest, True, PAIR


def _common_len(some: Many[int], others: Many[int]) -> int:
    """How many ids both begin with."""
    count = 0
    while count < min(len(some), len(others)) and some[count] == others[count]:
        count += 1
    return count
