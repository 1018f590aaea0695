"""A worker's grammars: one compiler over its tokenizer, and the masks of all its texts."""

import os
import threading
from collections.abc import Sequence as Many

import torch

from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.actors.text.grammar import GrammarCompiler, GrammarMatcher
from outrider.actors.text.grammar_masks import MaskFiller

MAX_THREADS = 8  # for masks beside a device


class WorkerGrammars:
    """Made in full when a grammar is first asked for. May be asked from several threads."""

    def __init__(self, runner: PooledRunner) -> None:
        self._runner = runner
        self._compiler: GrammarCompiler | None = None
        self._lock = threading.Lock()
        self.filler: MaskFiller | None = None  # for the model's thread only

    def load(self, eos_ids: Many[int]) -> None:
        """Read the tokenizer, which nothing else runs beside; `eos_ids` end every text."""
        with self._lock:
            if self._compiler is None:
                folder = self._runner.loaded.path
                assert folder is not None, "a worker's model comes from a folder"
                self._compiler = GrammarCompiler(folder, eos_ids, self._runner.vocab_size)
                self.filler = MaskFiller(_num_threads(self._runner))

    def matcher(self, kind: str, text: str, eos_ids: Many[int]) -> GrammarMatcher:
        """At a text's beginning. Raises InvalidRequest."""
        self.load(eos_ids)
        assert self._compiler is not None
        return self._compiler.matcher(Grammar(GrammarKind(kind), text))


def _num_threads(runner: PooledRunner) -> int:
    """The CPU's share of a worker; where a device computes, the cores that have nothing to do."""
    if runner.loaded.device == "cpu":
        return torch.get_num_threads()
    return min(MAX_THREADS, len(os.sched_getaffinity(0)))
