"""Grammars over a tokenizer: which ids may come next. The library's engine, our three words.

Compiling is for whoever has time: a few milliseconds, more for large schemas, within the library's
own limits of size and effort.
"""

from __future__ import annotations

import json
from collections.abc import Sequence as Many
from pathlib import Path
from typing import TYPE_CHECKING

import llguidance
import numpy as np
import numpy.typing as npt
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

Mask = npt.NDArray[np.uint32]
ALL = np.uint32(0xFFFFFFFF)
JSON_GAP = r"( |\n[ \t]{0,32})?"  # between JSON's tokens: without a bound a text may never end


class GrammarMatcher:
    """Where one text stands in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, eos_bits: Mask) -> None:
        self._matcher = matcher
        self._eos_bits = eos_bits
        self._num_ids = 0
        self._is_over = False  # fulfilled, or left: nothing but the end is allowed

    def advance(self, ids: Many[int]) -> None:
        """Take committed ids in."""
        for token_id in ids:
            self._is_over = self._is_over or not self._consume(token_id)

    def masks(self, path: Many[int], out: Mask) -> None:
        """The ids allowed after each prefix of `path`, bit by bit. Changes nothing.

        After an id that is not allowed every id is: nobody will get there.
        Shapes: out [len(path) + 1, ceil(V / 32)].
        """
        out[:] = ALL
        num_taken = 0
        for at in range(len(path) + 1):
            self._fill(out[at])
            if at == len(path) or self._is_over or not self._consume(path[at]):
                break
            num_taken += 1
        if num_taken:
            self._matcher.rollback(num_taken)

    def _consume(self, token_id: int) -> bool:
        taken: int = self._matcher.try_consume_tokens([token_id])
        return taken == 1

    def _fill(self, out: Mask) -> None:
        if self._is_over or self._matcher.is_stopped():
            out[:] = self._eos_bits
        else:
            self._matcher.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)


class GrammarCompiler:
    """Compiles grammars for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, eos_ids: Many[int], width: int) -> None:
        """`width`: ids that a row of logits has, padding included."""
        self._eos_bits = bits_of(eos_ids, width)
        self._tokenizer = from_tokenizer(tokenizer, n_vocab=width, eos_token=list(eos_ids))

    @classmethod
    def of(cls, folder: Path, eos_ids: Many[int], width: int) -> GrammarCompiler:
        """Those of a model's folder."""
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        return cls(tokenizer, eos_ids, width)

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """At the text's beginning. Raises InvalidRequest."""
        try:
            found = llguidance.LLMatcher(self._tokenizer, _source(grammar), log_level=0)
        except ValueError as error:
            raise _refusal(grammar, str(error)) from None
        if found.is_error():
            raise _refusal(grammar, found.get_error())
        return GrammarMatcher(found, self._eos_bits)


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
            options: JsonCompileOptions = {"whitespace_pattern": JSON_GAP}
            return str(llguidance.LLMatcher.grammar_from_json_schema(grammar.text, options))
        case GrammarKind.REGEX:
            return str(llguidance.LLMatcher.grammar_from_regex(grammar.text))
        case GrammarKind.LARK:
            return str(llguidance.LLMatcher.grammar_from_lark(grammar.text))
        case GrammarKind.CHOICE:
            choices = json.loads(grammar.text)
            if not choices:
                raise ValueError("no choices")
            alternatives = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
            return str(llguidance.LLMatcher.grammar_from_lark(f"start: {alternatives}"))


def _refusal(grammar: Grammar, reason: str) -> InvalidRequest:
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return InvalidRequest(
        f"Got {grammar.kind}={grammar.text[:80]!r}, which does not compile: {first}",
        "structured_outputs",
    )
