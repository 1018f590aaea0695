"""The loop of a training: learn, write down, judge now and then, save; and go on after a stop."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer

from outrider.cluster.demo.corpus.chats import prompt
from outrider.cluster.demo.questions import questions
from outrider.cluster.demo.training.batches import Source, TrainingBatch
from outrider.cluster.demo.training.journal import Journal
from outrider.cluster.demo.training.learner import Learner
from outrider.cluster.demo.training.plan import TrainingPlan, pages_share_at, shape_at
from outrider.cluster.demo.training.samples import generate

JUDGED_EVERY = 250  # steps
SAVED_EVERY_S = 120.0
SAMPLE_LEN = 64  # tokens


class Watcher(Protocol):
    """Who is told how it goes."""

    def stage(self, name: str, num_steps: int, num_done: int) -> None:
        """A stage begins, or goes on."""

    def step(self, num_done: int, num_tokens: int, loss: float | None) -> None:
        """So many steps are done; the last took so many tokens."""

    def sample(self, question: str, answer: str, held_out: float) -> None:
        """What the model answers now, and its loss on answers that it never saw."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one model learns."""

    name: str
    steps: int
    source: Source
    held_out: TrainingBatch  # judged, never learned from
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a lesson is written down."""

    checkpoint: Path
    losses: Path
    watcher: Watcher
    clock: Callable[[], float]


def teach(learner: Learner, lesson: Lesson, plan: TrainingPlan, desk: Desk) -> None:
    """All steps that are not done."""
    if desk.checkpoint.exists():
        learner.load(desk.checkpoint)
    desk.watcher.stage(lesson.name, lesson.steps, learner.step)
    asked = islice(cycle(questions()), learner.step // JUDGED_EVERY, None)
    saved_s = desk.clock()
    with closing(Journal(desk.losses, learner.step)) as journal:
        while learner.step < lesson.steps:
            step = learner.step
            rows, tokens = shape_at(step, plan, lesson.steps)
            share = pages_share_at(step, lesson.steps)
            loss = float(learner.learn(lesson.source.batch(step, rows, tokens, share)))
            said: dict[str, Any] = {"step": step, "loss": loss}
            if (step + 1) % JUDGED_EVERY == 0 or learner.step == lesson.steps:
                said["held_out"] = learner.judge(lesson.held_out)
                question = next(asked).question
                said["question"] = question
                said["answer"] = answer(learner.model, lesson.tokenizer, question)
                desk.watcher.sample(question, said["answer"], said["held_out"])
            journal.add(**said)
            desk.watcher.step(learner.step, rows * tokens, loss)
            if desk.clock() - saved_s > SAVED_EVERY_S or learner.step == lesson.steps:
                learner.save(desk.checkpoint)
                saved_s = desk.clock()


@torch.no_grad()
def answer(model: Any, tokenizer: Tokenizer, question: str) -> str:
    """What a model says to it, greedily."""
    ids = torch.tensor([tokenizer.encode(prompt(question)).ids], device=model.device)
    model.eval()
    told = generate(model, ids, SAMPLE_LEN, is_drawn=False)[0, ids.shape[1] :]
    model.train()
    return str(tokenizer.decode(told.tolist()))
