"""A model that learns, step by step. Which rows it learns from is another's business."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.training.muon import Muon
from outrider.cluster.demo.training.batches import TrainingBatch
from outrider.cluster.demo.training.plan import TrainingPlan, rate_at

CLIP = 1.0  # of the gradient's norm
WEIGHT_DECAY = 0.05  # of matrices


def reading_loss(logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of predicting the next token.

    Shapes: logits [B, T, V], ids [B, T + 1], weights [B, T].
    """
    each = functional.cross_entropy(
        logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    return (each * weights.flatten()).sum() / weights.sum()


def following_loss(
    logits: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """How far from the teacher's distributions: KL(teacher, own). Shapes: [B, T, V] and [B, T]."""
    each = functional.kl_div(
        logits.float().log_softmax(-1),
        teacher.float().log_softmax(-1),
        reduction="none",
        log_target=True,
    ).sum(-1)
    return (each * weights).sum() / weights.sum()


@dataclass(frozen=True, slots=True)
class Device:
    """Where it learns."""

    name: str  # cpu or cuda
    has_bf16: bool  # instructions for it: then products of matrices are computed in bf16

    def autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.name, torch.bfloat16, enabled=self.has_bf16)

    @contextmanager
    def reproducible(self) -> Iterator[None]:
        """The same sums in the same order every time; on a GPU they are not."""
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(self.name == "cpu")
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)

    @property
    def dtype(self) -> torch.dtype:
        """Of products of matrices."""
        return torch.bfloat16 if self.has_bf16 else torch.float32

    def rows(self, batch: TrainingBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and weights there."""
        ids = torch.from_numpy(batch.ids).to(self.name)
        return ids, torch.from_numpy(batch.weights).to(self.name)


def chosen_device(name: str) -> Device:
    """`auto` is CUDA where there is one. Raises InvalidConfig."""
    if name not in ("auto", "cpu", "cuda"):
        raise InvalidConfig(f"Got device={name!r}, accepted: auto, cpu, cuda")
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise InvalidConfig("Got device='cuda', but no CUDA device is present; accepted: cpu")
    if has_cuda and name != "cpu":
        return Device("cuda", has_bf16=True)
    can = torch.cpu.get_capabilities()
    return Device("cpu", has_bf16=bool(can.get("avx512_bf16") or can.get("amx_bf16")))


class Learner:
    """One model in training, with or without a teacher whose distributions it follows."""

    def __init__(
        self, model: Any, plan: TrainingPlan, steps: int, device: Device, teacher: Any = None
    ) -> None:
        self.model = model.to(device.name).train()
        self.step = 0
        self._plan, self._steps, self._device = plan, steps, device
        self._forward = _forward(self.model, plan)
        self._teach = None if teacher is None else _forward(teacher.to(device.name).eval(), plan)
        self._optimizers = _optimizers(self.model, plan, device)

    def learn(self, batch: TrainingBatch) -> torch.Tensor:
        """Take a step; its loss."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._plan.rate * rate_at(self.step, self._steps)
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()

    def _loss(self, batch: TrainingBatch) -> torch.Tensor:
        ids, weights = self._device.rows(batch)
        with self._device.autocast():
            logits = self._forward(ids[:, :-1])
            if self._teach is None:
                return reading_loss(logits, ids, weights)
            with torch.no_grad():
                teacher = self._teach(ids[:, :-1])
            return following_loss(logits, teacher, weights)

    @torch.no_grad()
    def judge(self, batch: TrainingBatch) -> float:
        """The loss of predicting rows that nothing is learned from."""
        ids, weights = self._device.rows(batch)
        with self._device.autocast():
            logits = self.model(ids[:, :-1], use_cache=False).logits
            return float(reading_loss(logits, ids, weights))

    def save(self, path: Path) -> None:
        """All that going on needs; the old file stays until the new one is whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Go on where `save` was called."""
        state = torch.load(path, map_location=self._device.name, weights_only=True)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        for optimizer, one in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)


def _forward(model: Any, plan: TrainingPlan) -> Callable[[torch.Tensor], torch.Tensor]:
    def logits(ids: torch.Tensor) -> torch.Tensor:
        return model(ids, use_cache=False).logits  # type: ignore[no-any-return]

    return torch.compile(logits, dynamic=False) if plan.is_compiled else logits


def _optimizers(model: Any, plan: TrainingPlan, device: Device) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings and norms."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and "embed" not in name
        (matrices if is_matrix else others).append(parameter)
    return [
        Muon(matrices, plan.rate, WEIGHT_DECAY, dtype=device.dtype),
        torch.optim.AdamW(others, lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
