"""One model, its KV pool, and a packed ragged forward over many sequences.

Prefill chunks, decode rows, chains and trees of any number of sequences are one forward. Knows
tokens and logits; not sampling, proposals or who asks.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Literal

import torch

from outrider.actors.errors import InvalidConfig, ModelRefused
from outrider.actors.runner.attention.probe import AttentionProbe, trace
from outrider.actors.runner.batch_invariance import check_batch_invariance
from outrider.actors.runner.forward import forward
from outrider.actors.runner.forward_batch import Segment, check
from outrider.actors.runner.gpu.choice import is_device
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.paged_model import PagedModel
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.selftest import (
    TEXT_LEN,
    References,
    references,
    sample_tokens,
    selftest,
)
from outrider.actors.runner.taps import Taps

Numerics = Literal["exact", "fast"]
log = logging.getLogger(__name__)

PROBE_ROWS = 256  # tokens in the small pool that self-test and probe run over
TREE_ROWS = 1024  # a tree at the context's end may have so many nodes


class Runner(PooledRunner):
    """Forwards of one model over its own KV pool of `num_tokens` rows.

    `numerics` exact makes a row of logits bitwise independent of batch, chunking, rejected drafts
    and trees; fast does not promise it. Default: exact on CPU. It is probed here; where the probe
    fails exact becomes fast, with the reason in `numerics_reason`, or InvalidConfig if `is_strict`.
    The loaded module is the runner's from here on: its layers are replaced in place.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        num_tokens: int,
        page_size: int = 16,
        numerics: Numerics | None = None,
        is_strict: bool = False,
    ) -> None:
        if num_tokens < 1 or page_size < 1:
            raise InvalidConfig(f"Got {num_tokens=}, {page_size=}, expected both ≥ 1")
        self.loaded = loaded
        self.vocab_size, self.context_len = loaded.vocab_size, loaded.context_len
        self.num_embeddings: int = loaded.model.get_input_embeddings().weight.shape[0]
        self.numerics: Numerics = numerics or ("exact" if loaded.device == "cpu" else "fast")
        self.numerics_reason = ""
        text = sample_tokens(loaded.vocab_size, TEXT_LEN)
        wanted, traced = self._itself(text)
        small = self._pool(traced, PROBE_ROWS, page_size)
        self.model = self._first_sound(traced, small, text, wanted)
        if self.numerics == "exact":
            self._probe(small, is_strict)
        self.model.changes.keep()  # one copy of the weights
        self._traced, self.shapes = traced, traced.shapes
        self._taps: Taps | None = None
        self.pool = self._pool(traced, num_tokens, page_size)

    def _itself(self, text: list[int]) -> tuple[References, AttentionProbe]:
        """What the model makes of a text on its own, and what it asks of attention."""
        try:
            return references(self.loaded, text), trace(self.loaded, text)
        except ModelRefused:
            raise
        except Exception as error:  # a class can fail in any way
            lines = str(error).strip().splitlines() or [""]
            raise ModelRefused(
                f"{self._name}: {type(self.loaded.model).__name__} fails in its own forward, or "
                f"with an attention function of ours: {type(error).__name__}: {lines[0][:200]}"
            ) from error

    def tap(self, taps: Taps | None) -> None:
        """Keep these hidden states of every token from here on; nothing may be open. Raises
        ModelRefused.
        """
        self.model.tap(taps)
        self._taps = taps
        self.pool.features = None
        if taps is not None:
            self.pool.keep_features(taps.width)

    def _pool(self, traced: AttentionProbe, num_tokens: int, page_size: int) -> KvPool:
        return KvPool(
            traced.shapes,
            num_tokens=num_tokens,
            page_size=page_size,
            max_rows=max(self.context_len, PROBE_ROWS) + TREE_ROWS,
            dtype=self.loaded.dtype,
            device=self.loaded.device,
            has_spare=is_device(self.loaded.device),
        )

    def _candidates(self, traced: AttentionProbe) -> Iterator[PagedModel]:
        """Fastest first; each is built only when the one before has failed its self-test."""
        for level in (3, 2, 1, 0):
            model = PagedModel(self.loaded, traced, is_exact=self.numerics == "exact", level=level)
            yield model
            model.changes.undo()

    def _first_sound(
        self, traced: AttentionProbe, pool: KvPool, text: list[int], wanted: References
    ) -> PagedModel:
        trouble = ""
        for model in self._candidates(traced):
            try:
                trouble = selftest(model, pool, text, wanted, self.loaded.dtype)
            except Exception as error:  # what a replaced part raises is as good as a difference
                trouble = f"{type(error).__name__}: {error}"
            if not trouble:
                return model
            log.warning("not replaced to level %d, by the self-test: %s", model.level, trouble)
        raise ModelRefused(
            f"{self._name}: the runner does not compute what the model computes: {trouble}"
        )

    def _probe(self, pool: KvPool, is_strict: bool) -> None:
        reason = check_batch_invariance(self.model, pool, self.vocab_size)
        if reason and self.model.isolate_experts():
            try:
                reason = check_batch_invariance(self.model, pool, self.vocab_size)
            except Exception as error:
                raise ModelRefused(
                    f"{self._name}: {type(self.loaded.model).__name__} fails where its experts "
                    f"take one token at a time: {type(error).__name__}: {error}"
                ) from error
        if reason and is_strict:
            raise InvalidConfig(f"Got numerics='exact', but {reason}; accepted here: 'fast'")
        if reason:
            self.numerics, self.numerics_reason = "fast", reason

    def resize(self, num_tokens: int) -> None:
        """Another pool, of so many rows; nothing may be open."""
        self.pool = self._pool(self._traced, num_tokens, self.pool.page_size)
        self.tap(self._taps)

    @property
    def _name(self) -> str:
        return str(self.loaded.path or type(self.loaded.model).__name__)

    @property
    def is_queued(self) -> bool:
        """Whether a forward may be asked for while the one before is still computed."""
        return self.model.on_device is not None

    def forward(self, chunks: Sequence[Segment], drawn: torch.Tensor | None = None) -> torch.Tensor:
        """Run all chunks as one forward; every token's rows are written and every len advances.

        `drawn`, i32 [T] on the device, are the tokens where those of the chunks are places only.
        Returns logits [sum of num_logits, V], chunk by chunk: float32 on the CPU, as the model
        makes them elsewhere. Raises, with nothing changed, PoolExhausted, InvalidRequest (context,
        ids) and IllegalTransition (closed, repeated).
        """
        if not chunks:
            return torch.empty(0, self.vocab_size, device=self.loaded.device)
        check(chunks, self.num_embeddings, self.context_len)
        return forward(self.model, self.pool, chunks, drawn=drawn)
