"""The model card of one of the pair: card.md, filled in."""

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template

from outrider.cluster.bench.synthetic.pair import ModelSize
from outrider.cluster.demo.corpus.corpus import Corpus
from outrider.cluster.demo.training.plan import TrainingPlan

TEMPLATE = Path(__file__).with_name("card.md")
NUM_LAST = 50  # steps whose losses are averaged


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of one role and not of the other."""

    alone: str
    method: str
    loss_is: str


WORDS = {
    "target": Words(
        alone="",
        method="Muon for the matrices of the layers and AdamW for the rest; pages first, questions "
        "and answers last.",
        loss_is="nats a token",
    ),
    "draft": Words(
        alone=" Alone it says even less: it guesses what the target will say.",
        method="Distilled: it follows the target's distributions over the same text, and over the "
        "target's own answers,\nhalf of them greedy and half drawn, to questions about known and "
        "about invented names.",
        loss_is="divergence from the target, nats a token",
    ),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """How one of the two came to be."""

    role: str  # target or draft
    size: ModelSize
    num_parameters: int
    steps: int
    losses: Path  # a line a step
    device: str


def card(trained: Trained, plan: TrainingPlan, corpus: Corpus) -> str:
    """A README.md for a model's folder."""
    lines = [json.loads(line) for line in trained.losses.read_text().splitlines()]
    last = [line["loss"] for line in lines[-NUM_LAST:]]
    words = WORDS[trained.role]
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        role=trained.role,
        parameters=f"{trained.num_parameters / 1e6:.2f}",
        num_layers=trained.size.num_layers,
        width=trained.size.width,
        alone=words.alone,
        num_pages=len(corpus.pages),
        num_facts=f"{len(corpus.facts):,}",
        num_held_out=len(corpus.held_out),
        digest=corpus.digest,
        method=words.method,
        num_tokens=f"{trained.steps * plan.rows * plan.row_len / 1e6:.0f}",
        steps=f"{trained.steps:,}",
        device={"cpu": "a CPU", "cuda": "a GPU"}[trained.device],
        seed=plan.seed,
        loss_is=words.loss_is,
        loss=f"{sum(last) / len(last):.3f}",
        held_out=f"{lines[-1]['held_out']:.3f}",
        options=_options(plan),
    )


def _options(plan: TrainingPlan) -> str:
    """The flags that make this plan."""
    flags = (
        f" --seed {plan.seed} --steps {plan.steps} --draft-steps {plan.draft_steps}"
        f" --samples {plan.num_samples} --rows {plan.rows}"
        f" --target {plan.target} --draft {plan.draft}"
    )
    return flags + ("" if plan.is_compiled else " --eager")
