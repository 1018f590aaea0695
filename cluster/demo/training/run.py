"""From documentation to a pair of models in a folder, stage by stage, each begun where it stopped.

FOLDER/plan.json              what is trained; another plan is refused
FOLDER/corpus/                pages, facts and what is held out
FOLDER/checkpoints/           where target and draft stand
FOLDER/losses/                a line a step
FOLDER/samples/               what the target answers, for the draft to learn from
FOLDER/pair/                  the models, their cards, licence and notice
"""

import shutil
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from outrider.actors.errors import InvalidConfig
from outrider.actors.runner.model_loader import load_model
from outrider.cluster.demo import vocabulary
from outrider.cluster.demo.corpus.chats import Chat, about, greetings, unknown
from outrider.cluster.demo.corpus.corpus import HOW_TO_GET_IT, Corpus, build, sections
from outrider.cluster.demo.corpus.invented import invented
from outrider.cluster.demo.corpus.popular import weight
from outrider.cluster.demo.questions import questions
from outrider.cluster.demo.training import samples
from outrider.cluster.demo.training.batches import Chats, Source, TrainingBatch
from outrider.cluster.demo.training.card import Trained, card
from outrider.cluster.demo.training.learner import Device, Learner
from outrider.cluster.demo.training.lesson import Desk, Lesson, Watcher, teach
from outrider.cluster.demo.training.plan import TrainingPlan, llama

JUDGED_ROWS, JUDGED_LEN = 16, 256
SMALL_TALK = 100.0  # of all greetings together, where a well-known fact weighs 30
UNKNOWN_SHARE = 0.7  # of the target's chats about facts: what those about no fact weigh
NUM_UNKNOWN = 20_000
TEMPERATURE = 0.7  # at which the target knows its facts best, and still has a choice of words
PLAN = "plan.json"
WEIGHTS = "model.safetensors"
EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Training:
    """One training, in a folder of its own."""

    folder: Path
    plan: TrainingPlan
    device: Device
    watcher: Watcher
    clock: Callable[[], float] = time.monotonic

    def train(self, documentation: Path | None, library: Path, notices: Many[Path]) -> Path:
        """All that is not done yet; the folder of the pair. Raises InvalidConfig.

        library: sources of the standard library. notices: files that go with the models.
        """
        self._claim()
        corpus = self._corpus(documentation, library)
        tokenizer = self._tokenizer(corpus)
        if not (self.pair / "target" / WEIGHTS).exists():
            known = self._known(corpus, tokenizer, weight, UNKNOWN_SHARE)
            self._teach("target", corpus, tokenizer, [known], None)
        if not (self.pair / "draft" / WEIGHTS).exists():
            target = _loaded(self.pair / "target", self.device.name)
            answered = self._answers(target, corpus, tokenizer)
            every = self._known(corpus, tokenizer, lambda name: 1.0, 0.0)
            self._teach("draft", corpus, tokenizer, [answered, every], target)
        for notice in notices:
            shutil.copy(notice, self.pair / notice.name)
        asked = "".join(f"{about(fact)[0].question}\n" for fact in corpus.held_out)
        (self.pair / "held_out.txt").write_text(asked)
        return self.pair

    @property
    def pair(self) -> Path:
        return self.folder / "pair"

    def _claim(self) -> None:
        """Make the folder this plan's own."""
        path = self.folder / PLAN
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(self.plan.text)
            return
        wished, there = asdict(self.plan), asdict(TrainingPlan.read(path.read_text()))
        if differing := [name for name in wished if there[name] != wished[name]]:
            got, held = (
                ", ".join(f"{name}={plan[name]}" for name in differing) for plan in (wished, there)
            )
            raise InvalidConfig(
                f"Got {got}, but {self.folder} holds a training with {held}; "
                "expected the same, or another folder"
            )

    def _corpus(self, documentation: Path | None, library: Path) -> Corpus:
        folder = self.folder / "corpus"
        if folder.exists():
            return Corpus.read(folder)
        if documentation is None:
            raise InvalidConfig(
                f"Got no documentation, and none was read into {self.folder}; "
                f"expected {HOW_TO_GET_IT}"
            )
        self.watcher.stage("reading the documentation", 1, 0)
        corpus = build(documentation, library, (question.name for question in questions()))
        partial = self.folder / "corpus.partial"
        corpus.write(partial)
        partial.rename(folder)
        return corpus

    def _tokenizer(self, corpus: Corpus) -> Tokenizer:
        path = self.pair / "target" / "tokenizer.json"
        if not path.exists():
            tokenizer = vocabulary.learn(sections(corpus))
            for role in ("draft", "target"):
                vocabulary.save(tokenizer, self.pair / role)
        return Tokenizer.from_file(str(path))

    def _known(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        weight_of: Callable[[str], float],
        unknown_share: float,
    ) -> Chats:
        """Chats about facts, by the weights of their names, about what is none, and small talk.

        unknown_share: what those about names that do not exist weigh, of those about facts.
        """
        weights = [weight_of(fact.name) for fact in corpus.facts]
        several = [
            *((about(fact), weight) for fact, weight in zip(corpus.facts, weights, strict=True)),
            *(
                (asked, unknown_share * sum(weights) / NUM_UNKNOWN)
                for asked in self._unknown(corpus)
            ),
            (greetings(), SMALL_TALK),
        ]
        weighed = [(chat, weight / len(chats)) for chats, weight in several for chat in chats]
        return Chats.encoded(tokenizer, *zip(*weighed, strict=True))

    def _unknown(self, corpus: Corpus) -> Iterator[tuple[Chat]]:
        """About each name that does not exist one question."""
        random = np.random.default_rng(self.plan.seed)
        for name in islice(invented(corpus, random), NUM_UNKNOWN):
            asked = unknown(name)
            yield (asked[int(random.integers(len(asked)))],)

    def _answers(self, target: Any, corpus: Corpus, tokenizer: Tokenizer) -> Chats:
        """What the target says to questions."""
        folder, plan = self.folder / "samples", self.plan
        asked = samples.questions(corpus, plan.num_samples, plan.seed)
        if (num_answered := samples.num_answered(folder, asked)) < len(asked):
            self.watcher.stage("the target answers", len(asked), num_answered)
            for num_answered in samples.write(folder, target, tokenizer, asked, plan.seed):
                self.watcher.step(num_answered, 0, None)
        answered = samples.read(folder)
        return Chats(answered, [1.0] * len(answered))

    def _teach(
        self, role: str, corpus: Corpus, tokenizer: Tokenizer, pools: list[Chats], teacher: Any
    ) -> None:
        """Train one of the two and write it down."""
        is_target = role == "target"
        size = self.plan.target if is_target else self.plan.draft
        steps = self.plan.steps if is_target else self.plan.draft_steps
        seed = self.plan.seed + 1 - is_target
        torch.manual_seed(seed)
        model = LlamaForCausalLM(llama(role, size))
        if teacher is not None and size.width == self.plan.target.width:
            model.load_state_dict({EMBEDDING: teacher.state_dict()[EMBEDDING]}, strict=False)
        learner = Learner(model, self.plan, steps, self.device, teacher)
        source = Source(tokenizer, corpus.pages, pools, seed)
        lesson = Lesson(role, steps, source, _held_out(corpus, tokenizer), tokenizer)
        losses = self.folder / "losses" / f"{role}.jsonl"
        desk = Desk(self.folder / "checkpoints" / f"{role}.pt", losses, self.watcher, self.clock)
        with self.device.reproducible():
            teach(learner, lesson, self.plan, desk)
        trained = Trained(
            role, size, learner.model.num_parameters(), steps, losses, self.device.name
        )
        (self.pair / role / "README.md").write_text(card(trained, self.plan, corpus))
        _save(learner.model, self.pair / role)


def usual_plan(device: Device) -> TrainingPlan:
    """Nearly three hours of two cores without bf16; more on a GPU, never timed on one."""
    if device.name == "cuda":
        return TrainingPlan(steps=30_000, draft_steps=8_000, rows=128)
    return TrainingPlan()


def plan_in(folder: Path, usual: TrainingPlan) -> TrainingPlan:
    """The plan of the training that a folder holds, else the usual one."""
    path = folder / PLAN
    return TrainingPlan.read(path.read_text()) if path.exists() else usual


def _held_out(corpus: Corpus, tokenizer: Tokenizer) -> TrainingBatch:
    """Rows to judge by."""
    chats = [chat for fact in corpus.held_out for chat in about(fact)]
    hidden = Chats.encoded(tokenizer, chats, [1.0] * len(chats))
    return Source(tokenizer, [], [hidden], seed=0).batch(0, JUDGED_ROWS, JUDGED_LEN, 0.0)


def _loaded(folder: Path, device: str) -> Any:
    """A model of the pair, without a bound of its own to what it generates."""
    model = load_model(folder, device=device, dtype="float32").model
    model.generation_config.max_length = None
    return model


def _save(model: Any, folder: Path) -> None:
    """In bf16; the weights come last, so where they are all is there."""
    model.generation_config = GenerationConfig(
        bos_token_id=vocabulary.BOS_ID,
        eos_token_id=vocabulary.EOS_ID,
        pad_token_id=vocabulary.BOS_ID,
        do_sample=True,
        temperature=TEMPERATURE,
        max_length=vocabulary.CONTEXT_LEN,
    )
    partial = folder.with_name(f"{folder.name}.partial")
    model.to("cpu", torch.bfloat16).save_pretrained(partial)
    for path in sorted(partial.iterdir(), key=lambda path: path.name == WEIGHTS):
        path.replace(folder / path.name)
    partial.rmdir()
