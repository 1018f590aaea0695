"""The target as a teacher: what it sees in texts, and what it says to them."""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outrider.actors.heads.target_parts import TargetParts
from outrider.actors.heads.training.lesson import Taught
from outrider.actors.heads.training.plan import Text
from outrider.actors.runner.model_loader import load_model
from outrider.actors.sizing.machine import this_machine

ROW_LEN = 256
KNOWN_SHARE = 0.99  # of what the target said: a head that knows no more costs less a step
NUM_LIKELY = 64  # ids that the target finds likeliest: the others' chances teach next to nothing
KEPT_SHARE = 0.25  # of the memory that is free, for what the target told of texts


class Teacher:
    """The target, as transformers has it."""

    def __init__(self, path: Path, device: str, dtype: str) -> None:
        self._device = device
        self._model: Any = load_model(path, device=device, dtype=dtype).model
        for parameter in self._model.parameters():
            parameter.requires_grad_(requires_grad=False)
        config = self._model.config.get_text_config()
        embed, head = self._model.get_input_embeddings(), self._model.get_output_embeddings()
        self.parts = TargetParts(
            hidden_size=embed.weight.shape[1],
            num_layers=config.num_hidden_layers,
            vocab_size=head.weight.shape[0],
            embed=embed,
            head=head,
            config=config,
            dtype=self._model.dtype,
            device=device,
        )
        self._kept: dict[tuple[int, ...], TaughtText] = {}
        self._store = KeptTensors(int(KEPT_SHARE * (this_machine().free_bytes or 0)))

    def taught(self, texts: Many[Text], boundaries: tuple[int, ...]) -> Taught:
        """What it sees in texts and says to them; what is behind a prompt counts."""
        told = [self._told(tuple(ids[:ROW_LEN]), num, boundaries) for ids, num in texts]
        length = max(len(each.ids) for each in told)
        counts = torch.zeros(len(told), length, dtype=torch.bool)
        for row, each in enumerate(told):
            counts[row, each.first : len(each.ids) - 1] = True

        def padded(rows: list[torch.Tensor]) -> torch.Tensor:
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self._device)

        return Taught(
            padded([torch.tensor(each.ids) for each in told]),
            counts.to(self._device),
            {at: padded([each.states[at] for each in told]) for at in boundaries},
            torch.cat([each.likely for each in told]).to(self._device),
            torch.cat([each.chances for each in told]).to(self._device),
        )

    def keeps(self, num_texts: int) -> bool:
        """Whether there is room for all that it tells of so many texts, by those so far."""
        of_text = sum(each.num_bytes for each in self._kept.values()) / max(1, len(self._kept))
        return of_text * (num_texts - len(self._kept)) <= self._store.num_free

    def _told(
        self, ids: tuple[int, ...], num_prompt: int, boundaries: tuple[int, ...]
    ) -> "TaughtText":
        """By itself, so that nothing depends on what is told beside it or was before. On the CPU,
        where there is room for more.
        """
        if found := self._kept.get(ids):
            return found
        with torch.no_grad():
            out = self._model(
                input_ids=torch.tensor([ids], device=self._device),
                output_hidden_states=True,
                use_cache=False,
            )
        last = self.parts.num_layers  # whose states transformers norms
        states = {at: out.hidden_states[min(at, last)][0].cpu() for at in boundaries}
        first = min(max(0, num_prompt - 1), len(ids) - 1)
        logits = out.logits[0, first:-1].float()
        best = logits.softmax(-1).topk(min(NUM_LIKELY, logits.shape[-1]))
        told = TaughtText(ids, first, states, best.indices.cpu(), best.values.cpu())
        if told.num_bytes <= self._store.num_free:
            told = self._kept[ids] = told.within(self._store)
        return told


@dataclass(frozen=True, slots=True)
class TaughtText:
    """One text."""

    ids: tuple[int, ...]
    first: int  # behind which what it says counts
    states: dict[int, torch.Tensor]  # [T, H]
    likely: torch.Tensor  # [counted, K]
    chances: torch.Tensor

    @property
    def num_bytes(self) -> int:
        """That it takes of a store."""
        parts = *self.states.values(), self.likely, self.chances
        return sum(_aligned(each.nbytes) for each in parts)

    def within(self, store: "KeptTensors") -> "TaughtText":
        states = {at: store.put(rows) for at, rows in self.states.items()}
        likely, chances = store.put(self.likely), store.put(self.chances)
        return TaughtText(self.ids, self.first, states, likely, chances)


class KeptTensors:
    """Room for tensors that stay, in one piece that is taken as it fills: among those that come and
    go they would leave gaps of several times their size.
    """

    def __init__(self, num_bytes: int) -> None:
        self._bytes = torch.empty(num_bytes, dtype=torch.uint8)
        self.num_free = num_bytes

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy that lies here."""
        start = len(self._bytes) - self.num_free
        self.num_free -= _aligned(tensor.nbytes)
        place = self._bytes[start : start + tensor.nbytes]
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


def frequent_ids(texts: Many[Text], vocab_size: int) -> torch.Tensor | None:
    """The fewest ids that make up nearly all that the target said, in order; None where they are
    most of the vocabulary anyway.
    """
    said = np.concatenate([np.asarray(ids[num_prompt:], np.int64) for ids, num_prompt in texts])
    counts = np.bincount(said, minlength=vocab_size)
    by_count = np.argsort(-counts, kind="stable")
    num = int(np.searchsorted(counts[by_count].cumsum(), KNOWN_SHARE * len(said))) + 1
    if num > vocab_size // 2:
        return None
    return torch.from_numpy(np.sort(by_count[:num]))
