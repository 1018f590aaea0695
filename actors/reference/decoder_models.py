"""Draft and target of the textbook loop over Hugging Face models: distributions out of decoders."""

from collections.abc import Sequence as Many

import numpy as np
import torch

from outrider.actors.reference.model_decoder import ModelDecoder
from outrider.actors.reference.speculative_decoder import DraftProposal, Floats
from outrider.kernels.ops.distribution import softmax, top_k_filter, top_p_filter


class DecoderModel:
    """A decoder's distributions: temperature, then the filters; at temperature 0 all of it on the
    likeliest token.
    """

    def __init__(
        self,
        decoder: ModelDecoder,
        vocab_size: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
    ) -> None:
        self.vocab_size = vocab_size
        self._decoder = decoder
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k

    def _observe(self, prefix: Many[int]) -> None:
        """Go on from what it shares with the text before."""
        known, same = self._decoder.history, 0
        while same < min(len(known), len(prefix)) and known[same] == prefix[same]:
            same += 1
        if same < len(known):
            self._decoder.rollback_to(same)
        self._decoder.observe(list(prefix[same:]))

    def _probs(self, rows: torch.Tensor) -> Floats:
        """Shapes: [N, V] → [N, V]."""
        logits = rows[:, : self.vocab_size].double().numpy()
        if not self._temperature:
            likeliest: Floats = np.eye(self.vocab_size)[logits.argmax(-1)]
            return likeliest
        logits = top_k_filter(logits / self._temperature, self._top_k)
        return softmax(top_p_filter(logits, self._top_p))


class DecoderTarget(DecoderModel):
    """A `TargetModel`."""

    def verify(self, prefix: Many[int], tokens: Many[int]) -> Floats:
        """[len(tokens) + 1, V], in one forward."""
        self._observe(prefix)
        return self._probs(self._decoder.batched_logits(tokens))


class DecoderDraft(DecoderModel):
    """A `DraftModel`; what it draws depends on its seed and on all that it has drawn."""

    def __init__(
        self,
        decoder: ModelDecoder,
        vocab_size: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(decoder, vocab_size, temperature, top_p, top_k)
        self._random = np.random.default_rng(seed)

    def propose(self, prefix: Many[int], k: int) -> DraftProposal:
        """k tokens, each behind those before it."""
        tokens: list[int] = []
        rows: list[Floats] = []
        for _ in range(k):
            self._observe([*prefix, *tokens])
            # What is told is what it is drawn from, to the last bit: single precision.
            probs = self._probs(self._decoder.batched_logits(()))[0].astype(np.float32)
            total = probs.astype(np.float64).cumsum()
            drawn = np.searchsorted(total, self._random.random() * total[-1], side="right")
            tokens.append(int(min(drawn, probs.nonzero()[0][-1])))
            rows.append(probs)
        logprobs = tuple(float(np.log(row[token])) for row, token in zip(rows, tokens, strict=True))
        stacked = np.stack(rows) if rows else np.zeros((0, self.vocab_size), np.float32)
        return DraftProposal(tuple(tokens), logprobs, stacked)
