"""A head's training, step by step, in a folder where it goes on after any end.

FOLDER/plan.json      what is trained, on which target; another plan is refused
FOLDER/texts.jsonl    what the target said, a text a line: its ids, and how many are of the prompt
FOLDER/state.pt       where it stands: weights, their averages, steps
FOLDER/losses.jsonl   a line for each time that the held-out texts were judged
FOLDER/head/          the head, once it is done; of kind `draft` FOLDER/draft/
"""

import io
import json
import shutil
import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.checkpoint import save_tensors
from outrider.actors.heads.training.lesson import HeadLesson, LessonOutcome
from outrider.actors.heads.training.muon import Muon
from outrider.actors.heads.training.plan import (
    LESSONS,
    HeadPlan,
    Text,
    card,
    claimed,
    of_another_version,
    write_plan,
)
from outrider.actors.heads.training.teacher import Teacher, frequent_ids
from outrider.actors.lookahead.round_report import DRAFT

HELD_OUT = 32  # texts, or a tenth
SAVED_EVERY_S, JUDGED_TIMES = 30.0, 20
WARM_UP, LAST_RATE = 50, 0.05
TIMED_STEPS = 3  # from which their number is found, where minutes were asked for
TOKENIZER_FILES = ("token*.json", "*.jinja", "special_tokens_map.json", "vocab.json", "merges.txt")

Optimizers = list[torch.optim.Optimizer]


class HeadWatcher(Protocol):
    """Who is told how it goes."""

    def stage(self, name: str, num_steps: int, num_done: int) -> None: ...

    def step(self, num_done: int, num_tokens: int, loss: float | None) -> None: ...

    def judged(self, shares: tuple[float, ...]) -> None:
        """Of held-out texts: how often the first guess was right, the next behind it, …"""
        ...


class HeadTraining:
    """One training."""

    def __init__(
        self,
        folder: Path,
        plan: HeadPlan,
        target: Path,
        watcher: HeadWatcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises InvalidConfig where the folder holds another training."""
        self.folder, self._watcher, self._clock = folder, watcher, clock
        self._target_path = target
        self.plan = claimed(folder, plan)

    def train(self, texts: Many[Text]) -> Path:
        """All that is not done yet; the head's folder. Raises InvalidConfig, ModelRefused."""
        try:
            return self._train(texts)
        except OSError as error:
            raise InvalidConfig(f"{self.folder} cannot be written: {error.strerror}") from error

    def _train(self, texts: Many[Text]) -> Path:
        if (self._made / "config.json").exists():
            return self._made
        if len(texts) < 4:
            raise InvalidConfig(f"Got {len(texts)} texts to learn from, expected at least 4")
        torch.manual_seed(self.plan.seed)
        teacher = Teacher(self._target_path, self.plan.device, self.plan.dtype)
        known = frequent_ids(texts, teacher.parts.vocab_size)
        lesson = LESSONS[self.plan.kind](
            teacher.parts, known, torch.Generator().manual_seed(self.plan.seed)
        )
        for name, tensor in lesson.tensors.items():
            lesson.tensors[name] = tensor.to(self.plan.device).requires_grad_()
        optimizers = optimizers_of(lesson, self.plan.rate, teacher.parts.dtype)
        num_held_out = min(HELD_OUT, max(1, len(texts) // 10))
        order = np.random.default_rng(self.plan.seed).permutation(len(texts))
        texts = [texts[at] for at in order]
        held_out, learned = texts[:num_held_out], texts[num_held_out:]
        num_done = self._restore(lesson, optimizers)
        steps = self.plan.steps or self._timed_steps(teacher, lesson, learned)
        self._watcher.stage(f"training {self.plan.kind}", steps, num_done)
        saved_s = self._clock()
        shares: tuple[float, ...] = ()
        for step in range(num_done, steps):
            batch = self._batch(learned, step)
            outcome = lesson.run(teacher.taught(batch, lesson.boundaries))
            outcome.loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(lesson.tensors.values(), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = self.plan.rate * rate_at(step, steps)
                optimizer.step()
                optimizer.zero_grad()
            num_tokens = sum(len(ids) for ids, _ in batch)
            self._watcher.step(step + 1, num_tokens, float(outcome.loss.detach()))
            is_last = step + 1 == steps
            if is_last or (step + 1) % max(1, steps // JUDGED_TIMES) == 0:
                shares = self._judge(teacher, lesson, held_out, step + 1)
            if is_last or self._clock() - saved_s > SAVED_EVERY_S:
                self._save(lesson, optimizers, step + 1)
                saved_s = self._clock()
        shares = shares or self._judge(teacher, lesson, held_out, steps)
        return self._write(lesson, shares, len(texts), steps)

    @property
    def _made(self) -> Path:
        return self.folder / ("draft" if self.plan.kind == DRAFT else "head")

    def _batch(self, texts: Many[Text], step: int) -> list[Text]:
        drawn = np.random.default_rng([self.plan.seed, step])
        return [texts[at] for at in drawn.choice(len(texts), min(self.plan.rows, len(texts)))]

    def _timed_steps(self, teacher: Teacher, lesson: HeadLesson, texts: Many[Text]) -> int:
        """As many as fit; from then on they are of the plan."""
        told_s, learned_s = 0.0, 0.0
        for step in range(1 + TIMED_STEPS):
            began = self._clock()
            taught = teacher.taught(self._batch(texts, step), lesson.boundaries)
            told = self._clock()
            lesson.run(taught).loss.backward()  # type: ignore[no-untyped-call]
            if step:  # the first compiles
                told_s += (told - began) / TIMED_STEPS
                learned_s += (self._clock() - told) / TIMED_STEPS
        for tensor in lesson.tensors.values():
            tensor.grad = None
        left_s, num_told = self.plan.minutes * 60, len(texts) / self.plan.rows
        steps = left_s / max(1e-3, told_s + learned_s)
        if steps > num_told and teacher.keeps(len(texts)):  # it tells of each text once
            steps = (left_s - num_told * told_s) / max(1e-3, learned_s)
        steps = max(10, int(steps))
        self.plan = replace(self.plan, steps=steps)
        write_plan(self.folder, self.plan)
        return steps

    @torch.no_grad()
    def _judge(
        self, teacher: Teacher, lesson: HeadLesson, texts: Many[Text], step: int
    ) -> tuple[float, ...]:
        outcome: LessonOutcome = lesson.run(teacher.taught(list(texts), lesson.boundaries))
        self._watcher.judged(outcome.shares)
        line = {"step": step, "loss": float(outcome.loss), "shares": outcome.shares}
        with (self.folder / "losses.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return outcome.shares

    def _save(self, lesson: HeadLesson, optimizers: Optimizers, num_done: int) -> None:
        state = {
            "tensors": {name: tensor.detach() for name, tensor in lesson.tensors.items()},
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "num_done": num_done,
        }
        written = io.BytesIO()
        torch.save(state, written)
        partial = self.folder / "state.partial"
        partial.write_bytes(written.getvalue())
        partial.replace(self.folder / "state.pt")

    def _restore(self, lesson: HeadLesson, optimizers: Optimizers) -> int:
        path = self.folder / "state.pt"
        if not path.exists():
            return 0
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["tensors"].keys() != lesson.tensors.keys():
            raise of_another_version(self.folder)
        with torch.no_grad():
            for name, tensor in lesson.tensors.items():
                tensor.copy_(state["tensors"][name])
        for optimizer, own in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        return int(state["num_done"])

    def _write(
        self, lesson: HeadLesson, shares: tuple[float, ...], num_texts: int, steps: int
    ) -> Path:
        """In bf16; the config comes last, so where it is all is there."""
        folder = self._made
        folder.mkdir(exist_ok=True)
        if self.plan.kind == DRAFT:  # with the target's tokenizer it is a model like any other
            for pattern in TOKENIZER_FILES:
                for file in self._target_path.glob(pattern):
                    shutil.copy(file, folder)
        tensors = {
            name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
            for name, tensor in lesson.tensors.items()
        }
        save_tensors(tensors | lesson.ids, folder)
        (folder / "README.md").write_text(card(self.plan, shares, num_texts, steps))
        partial = folder / "config.partial"
        partial.write_text(json.dumps(lesson.named(self.plan.target), indent=1) + "\n")
        partial.replace(folder / "config.json")
        return folder


def optimizers_of(lesson: HeadLesson, rate: float, dtype: torch.dtype) -> Optimizers:
    """Muon for the layers' matrices, AdamW for the rest: norms, biases, rows of single ids."""
    matrices = [
        tensor
        for name, tensor in lesson.tensors.items()
        if tensor.dim() == 2 and not any(part in name for part in ("lm_head", "embed_tokens"))
    ]
    rest = [each for each in lesson.tensors.values() if not any(each is m for m in matrices)]
    return [
        Muon(matrices, lr=rate, weight_decay=0.0, dtype=dtype),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_at(step: int, steps: int) -> float:
    """Of the learning rate: up, and down in a line."""
    up = (step + 1) / min(WARM_UP, max(1, steps // 10))
    return min(1.0, up, 1 - step / steps * (1 - LAST_RATE))
