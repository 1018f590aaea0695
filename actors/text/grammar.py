"""Grammars over a tokenizer: which ids may come next. The library's engine, our three words.

Compiling is for whoever has time: a few milliseconds, more for large schemas, within the library's
own limits of size and effort.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Many
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llguidance
import numpy as np
import numpy.typing as npt

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text.regex_size import check_size

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

Mask = npt.NDArray[np.uint32]
ALL = np.uint32(0xFFFFFFFF)
PARAM = "structured_outputs"
MAX_KNOWN = 64  # compiled grammars that are kept
# Wide enough for 499 properties over 131k tokens; a mask's own time is bounded below.
LIMITS = llguidance.LLParserLimits(
    max_items_in_row=20_000, step_max_items=500_000, initial_lexer_fuel=300_000
)
# Of one text, in CPU time: so much at first, and so much for each mask. Over 131k tokens a usual
# schema's take 0.4 ms at most, and one of 499 properties 7 ms.
FIRST_MASKS_S, MASK_S = 0.5, 0.02
JSON_GAP = r"( |\n[ \t]{0,32})?"  # between JSON's tokens: without a bound a text may never end


class GrammarMatcher:
    """Where one text stands in its grammar."""

    def __init__(
        self, matcher: llguidance.LLMatcher, eos_bits: Mask, is_over: bool = False
    ) -> None:
        self.inner = matcher
        self._eos_bits = eos_bits
        self._is_over = is_over  # fulfilled, or left: nothing but the end is allowed
        self._num_masks = 0
        self._spent_s = 0.0  # on them

    def copy(self) -> GrammarMatcher:
        """Another text at the same place."""
        return GrammarMatcher(self.inner.deep_copy(), self._eos_bits, self._is_over)

    def advance(self, ids: Many[int]) -> None:
        """Take committed ids in. Raises InvalidRequest beyond the library's limits."""
        for token_id in ids:
            self._is_over = self._is_over or not self._consume(token_id)

    def enter(self, path: Many[int]) -> bool:
        """Go on by these ids until `leave`; False, and stay, where nothing but the end is allowed,
        or they are not.
        """
        if self._is_over:
            return False
        num_taken: int = self.inner.try_consume_tokens(list(path))
        self._check()
        if num_taken == len(path) and not self.inner.is_stopped():
            return True
        self.inner.rollback(num_taken)
        return False

    def leave(self, num_ids: int) -> None:
        """Go back as far. Raises InvalidRequest beyond the library's limits."""
        self._check()
        if num_ids:
            self.inner.rollback(num_ids)

    def masks(self, path: Many[int], out: Mask, num_skipped: int = 0) -> None:
        """The ids allowed after each prefix of `path` but the first ones, bit by bit. Changes
        nothing.

        After an id that is not allowed every id is: nobody will get there. Raises InvalidRequest
        beyond the library's limits, and where masks take too long.
        Shapes: out [len(path) + 1 - num_skipped, ceil(V / 32)].
        """
        out[:] = ALL
        num_taken, was_over = 0, self._is_over
        for at in range(len(path) + 1):
            if at >= num_skipped:
                self._fill(out[at - num_skipped])
            if at == len(path) or self._is_over or not self._consume(path[at]):
                break
            num_taken += 1
        if num_taken:
            self.inner.rollback(num_taken)
        self._is_over = was_over

    def _consume(self, token_id: int) -> bool:
        taken: int = self.inner.try_consume_tokens([token_id])
        self._check()
        return taken == 1

    def _fill(self, out: Mask) -> None:
        if self._is_over or self.inner.is_stopped():
            out[:] = self._eos_bits
            return
        started = time.thread_time()
        self.inner.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
        self._check()
        self._num_masks += 1
        self._spent_s += time.thread_time() - started
        if self._spent_s > FIRST_MASKS_S + self._num_masks * MASK_S:
            raise InvalidRequest(
                f"Got a grammar whose {self._num_masks} masks took {self._spent_s:.2g} s, expected "
                f"at most {MASK_S * 1e3:g} ms each, or a simpler one",
                PARAM,
            )

    def _check(self) -> None:
        """An error makes everything stop as if the text were complete, and is never left."""
        if self.inner.is_error():
            reason = _first_line(self.inner.get_error())
            raise InvalidRequest(f"Got a grammar beyond what can be followed: {reason}", PARAM)


class GrammarCompiler:
    """Compiles grammars for one tokenizer, each text once. May be asked from several threads."""

    def __init__(self, folder: Path, eos_ids: Many[int], width: int) -> None:
        """Over the tokenizer of a model's folder; `width`: ids that a row of logits has, padding
        included. With a large vocabulary this takes a second, in which no other thread runs.
        """
        self._eos_bits = bits_of(eos_ids, width)
        text = (folder / "tokenizer.json").read_text()
        self._tokenizer = llguidance.LLTokenizer(text, n_vocab=width, eos_token=list(eos_ids))
        self._known: OrderedDict[Grammar, GrammarMatcher] = OrderedDict()  # used last comes last
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """At the text's beginning. Raises InvalidRequest."""
        with self._lock:
            found = self._known.pop(grammar, None)
            if found is not None:
                self._known[grammar] = found
        if found is None:
            found = self._compiled(grammar)
            with self._lock:
                self._known[grammar] = found
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
        return found.copy()

    def _compiled(self, grammar: Grammar) -> GrammarMatcher:
        """Its first mask included: some are cheap to compile, and dear to follow."""
        try:
            source = _source(grammar)
            found = llguidance.LLMatcher(self._tokenizer, source, log_level=0, limits=LIMITS)
        except ValueError as error:
            raise _refusal(grammar, str(error)) from None
        if found.is_error():
            raise _refusal(grammar, found.get_error())
        matcher = GrammarMatcher(found, self._eos_bits)
        matcher.copy().masks((), np.empty((1, len(self._eos_bits)), np.uint32))
        return matcher


def bits_of(ids: Many[int], width: int) -> Mask:
    """A mask that allows these ids. Shape [ceil(V / 32)]."""
    bits = np.zeros(-(-width // 32), np.uint32)
    for token_id in ids:
        bits[token_id // 32] |= np.uint32(1 << token_id % 32)
    return bits


def _source(grammar: Grammar) -> str:
    """The grammar as the library reads it. Raises ValueError."""
    match grammar.kind:
        case GrammarKind.JSON:
            for pattern in _patterns(json.loads(grammar.text)):
                check_size(pattern)
            options: JsonCompileOptions = {"whitespace_pattern": JSON_GAP}
            return str(llguidance.LLMatcher.grammar_from_json_schema(grammar.text, options))
        case GrammarKind.REGEX:
            check_size(grammar.text)
            return str(llguidance.LLMatcher.grammar_from_regex(grammar.text))
        case GrammarKind.LARK:
            return str(llguidance.LLMatcher.grammar_from_lark(grammar.text))
        case GrammarKind.CHOICE:
            choices = json.loads(grammar.text)
            if not choices:
                raise ValueError("no choices")
            # A regular expression, not alternatives of a grammar: of those there may be 2000.
            pattern = "|".join(re.escape(choice) for choice in choices)
            return str(llguidance.LLMatcher.grammar_from_regex(pattern))


def _patterns(schema: Any) -> Iterator[str]:
    """Every regular expression of a schema."""
    inner = [schema]
    while inner:
        value = inner.pop()
        if isinstance(value, dict):
            if isinstance(pattern := value.get("pattern"), str):
                yield pattern
            inner += [
                *value.values(),
                *({"pattern": key} for key in value.get("patternProperties", ())),
            ]
        elif isinstance(value, list):
            inner += value


def _refusal(grammar: Grammar, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"Got {grammar.kind}={grammar.text[:80]!r}, which does not compile: {_first_line(reason)}",
        PARAM,
    )


def _first_line(reason: str) -> str:
    return reason.strip().splitlines()[0] if reason.strip() else "no reason given"
