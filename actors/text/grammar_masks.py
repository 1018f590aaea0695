"""The masks of many texts' grammars at once, by the library's own threads."""

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass

import llguidance

from outrider.actors.text.grammar import MASK_S, GrammarMatcher, Mask


@dataclass(frozen=True, slots=True)
class MaskRows:
    """What is wanted of one text: the masks after each prefix of `path` but the first ones."""

    matcher: GrammarMatcher
    path: Many[int]
    num_skipped: int
    at: int  # the first one's row

    def of(self, out: Mask) -> Mask:
        return out[self.at : self.at + len(self.path) + 1 - self.num_skipped]


class MaskFiller:
    """Of one worker."""

    def __init__(self, num_threads: int) -> None:
        self._executor = llguidance.LLExecutor(num_threads)
        self._times_each = False  # one of the last masks may have taken too long: whose was it?

    def fill(self, asked: Many[MaskRows], out: Mask) -> None:
        """Each into its rows of `out`. Changes nothing else. Raises as `GrammarMatcher.masks` does.

        Shapes: out [R, ceil(V / 32)].
        """
        if self._times_each:
            self._times_each = any([_is_slow(each, out) for each in asked])
            return
        started = time.monotonic()
        rest = self._fill_together(asked, out)
        self._times_each = time.monotonic() - started > MASK_S  # else nobody's did
        for each in rest:
            each.matcher.masks(each.path, each.of(out), each.num_skipped)

    def _fill_together(self, asked: Many[MaskRows], out: Mask) -> list[MaskRows]:
        """Those that the library's call is not for: whose grammar is over, or will be left."""
        rest, entered, matchers, seen = [], [], list[GrammarMatcher](), set[int]()
        for each in asked:  # copied before any of them moves
            matchers.append(each.matcher.copy() if id(each.matcher) in seen else each.matcher)
            seen.add(id(each.matcher))
        for each, matcher in zip(asked, matchers, strict=True):
            if matcher.enter(each.path[: each.num_skipped]):
                each.of(out)[-1] = 0  # no mask is: so it is seen whether the call came so far
                entered.append((each, matcher))
            else:
                rest.append(each)
        place = out.ctypes.data, out.strides[0], len(out)
        calls = [(m.inner, each.at, list(each.path[each.num_skipped :])) for each, m in entered]
        if single := [(inner, at) for inner, at, path in calls if not path]:
            self._executor.unsafe_compute_mask_ptr(single, *place)
        if along := [call for call in calls if call[2]]:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(along, *place)
        for each, matcher in entered:
            matcher.leave(each.num_skipped)
            if not each.of(out)[-1].any():
                rest.append(each)
        return rest


def _is_slow(asked: MaskRows, out: Mask) -> bool:
    """Fill one text's rows by themselves; whether a mask may have taken too long."""
    rows, started = asked.of(out), time.thread_time()
    asked.matcher.masks(asked.path, rows, asked.num_skipped)
    return time.thread_time() - started > MASK_S
