"""A tiny training: the same twice, the same after a stop, and what it leaves behind."""

import contextlib
import itertools
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaForCausalLM

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.training.muon import Muon
from outrider.cluster.bench.synthetic.pair import ModelSize
from outrider.cluster.demo import vocabulary
from outrider.cluster.demo.corpus.chats import UNKNOWN, US, about, unknown
from outrider.cluster.demo.corpus.corpus import Corpus
from outrider.cluster.demo.corpus.invented import invented
from outrider.cluster.demo.training import samples
from outrider.cluster.demo.training.batches import ASKING, Chats, Source, Turns
from outrider.cluster.demo.training.learner import chosen_device
from outrider.cluster.demo.training.plan import DRAFT, TARGET, TrainingPlan, llama, shape_at
from outrider.cluster.demo.training.run import SMALL_TALK, UNKNOWN_SHARE, Training

TINY = TrainingPlan(
    steps=6, draft_steps=4, num_samples=6, rows=2, row_len=32, is_compiled=False,
    target=ModelSize(64, 2), draft=ModelSize(64, 1),
)  # fmt: skip
MB = 1e6
SHAPES = (8, 8), (8, 24), (24, 8), (8, 8)


class Told:
    """A Watcher that may stop a training: at this step of this stage."""

    def __init__(self, stops_at: tuple[str, int] | None = None) -> None:
        self.stages: list[tuple[str, int]] = []
        self.samples: list[str] = []
        self._stops_at = stops_at

    def stage(self, name: str, num_steps: int, num_done: int) -> None:
        self.stages.append((name, num_done))

    def step(self, num_done: int, num_tokens: int, loss: float | None) -> None:
        if (self.stages[-1][0], num_done) == self._stops_at:
            raise KeyboardInterrupt

    def sample(self, question: str, answer: str, held_out: float) -> None:
        self.samples.append(question)


def trained(
    folder: Path, documentation: Path, told: Told | None = None, plan: TrainingPlan = TINY
) -> Path:
    """Saved at every other step."""
    clock = itertools.count(0.0, 100.0)
    notice = documentation / "NOTICE"
    notice.write_text("As it is.")
    run = Training(folder, plan, chosen_device("cpu"), told or Told(), lambda: next(clock))
    return run.train(documentation, documentation / "nothing", [notice])


@pytest.fixture(scope="module")
def pair(documentation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("run"), documentation)


def files(pair: Path) -> dict[str, bytes]:
    """All that a training writes of its result, and its losses."""
    paths = [*pair.rglob("*"), *(pair.parent / "losses").iterdir()]
    return {
        str(path.relative_to(pair.parent)): path.read_bytes() for path in paths if path.is_file()
    }


def test_twice_is_the_same(pair: Path, documentation: Path, tmp_path: Path) -> None:
    told = Told()
    assert files(trained(tmp_path, documentation, told)) == files(pair)
    names = [name for name, _ in told.stages]
    assert names == ["reading the documentation", "target", "the target answers", "draft"]
    assert len(told.samples) == 2


def test_stops_change_nothing(pair: Path, documentation: Path, tmp_path: Path) -> None:
    goes_on_with = []
    for stops_at in (("target", 4), ("the target answers", 6), ("draft", 3), None):
        told = Told(stops_at)
        with pytest.raises(KeyboardInterrupt) if stops_at else contextlib.nullcontext():
            trained(tmp_path, documentation, told)
        goes_on_with.append(told.stages[0])
    assert goes_on_with[1:] == [("target", 2), ("draft", 0), ("draft", 2)], "saved every other step"
    assert files(tmp_path / "pair") == files(pair)


def test_rows_follow_from_seed_and_step(corpus: Corpus) -> None:
    tokenizer = vocabulary.learn(corpus.pages)
    chats = [chat for fact in corpus.facts for chat in about(fact)]
    pool = Chats.encoded(tokenizer, chats, [1.0] * len(chats))
    rows = [
        Source(tokenizer, corpus.pages, [pool], seed).batch(step, 4, 64, 0.25)
        for seed, step in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert all(batch.ids.shape == (4, 65) and batch.weights.shape == (4, 64) for batch in rows)
    assert np.array_equal(rows[0].ids, rows[1].ids)
    assert not np.array_equal(rows[0].ids, rows[2].ids)
    assert not np.array_equal(rows[0].ids, rows[3].ids)
    assert set(np.unique(rows[0].weights[:3])) == {np.float32(ASKING), np.float32(1.0)}
    assert rows[0].weights[3].min() == 1.0, "a page, all of which counts"
    for row, weights in zip(rows[0].ids[:3], rows[0].weights[:3], strict=True):
        asked = tokenizer.decode(row[1:][weights < 0.5].tolist(), skip_special_tokens=False)
        told = tokenizer.decode(row[1:][weights > 0.5].tolist(), skip_special_tokens=False)
        assert "<|assistant|>" in asked
        assert "<|assistant|>" not in told


def test_nobody_learns_to_ask_about_what_does_not_exist(corpus: Corpus) -> None:
    """But what to answer."""
    tokenizer = vocabulary.learn([*corpus.pages, UNKNOWN])
    pool = Chats.encoded(tokenizer, unknown("abacus.nothing"), [1.0] * 8)
    batch = Source(tokenizer, corpus.pages, [pool], 1).batch(0, 2, 64, 0.0)
    assert set(np.unique(batch.weights)) == {np.float32(0.0), np.float32(1.0)}
    for row, weights in zip(batch.ids, batch.weights, strict=True):
        learned = tokenizer.decode(row[1:][weights > 0].tolist(), skip_special_tokens=False)
        assert learned.replace("\n", "") in 9 * f"{UNKNOWN}<|end|>"


def test_a_pool_is_drawn_from_by_weight() -> None:
    turns = [Turns(np.array([number]), np.array([number])) for number in range(3)]
    pool = Chats(turns, [0.0, 3.0, 1.0])
    random = np.random.default_rng(0)
    drawn = [int(pool.draw(random).prompt[0]) for _ in range(4000)]
    assert 0 not in drawn
    assert abs(drawn.count(1) / 4000 - 0.75) < 0.04  # 5 standard deviations of chance


def test_muon_is_torchs_own() -> None:
    """But for rounding: torch's computes in bf16."""
    models = [torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES)
              for _ in range(2)]  # fmt: skip
    ours = Muon(models[0], 0.1, 0.05, dtype=torch.float32)
    theirs = torch.optim.Muon(
        models[1], lr=0.1, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for one, other in zip(*models, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        ours.step()
        theirs.step()
    for one, other in zip(*models, strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


def test_there_is_a_loss_of_every_step_and_it_is_judged(pair: Path) -> None:
    for role, steps in (("target", TINY.steps), ("draft", TINY.draft_steps)):
        path = pair.parent / "losses" / f"{role}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(steps))
        assert lines[-1]["held_out"] > 0
        assert all(line["loss"] > 0 for line in lines)


def test_the_pair_is_complete_and_in_bf16(pair: Path, documentation: Path) -> None:
    for role, size in (("target", TINY.target), ("draft", TINY.draft)):
        weights = load_file(pair / role / "model.safetensors")
        assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
        count = sum(tensor.numel() for tensor in weights.values())
        assert count == LlamaForCausalLM(llama(role, size)).num_parameters()
        card = (pair / role / "README.md").read_text()
        assert "$" not in card
        assert "license_name: psf-2.0" in card
        assert f"--steps {TINY.steps}" in card
        tokenizer = AutoTokenizer.from_pretrained(pair / role)
        chat = [{"role": "user", "content": "What does len do?"}]
        told = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert told == "<|user|>\nWhat does len do?<|end|>\n<|assistant|>\n"
    assert (pair / "NOTICE").read_bytes() == (documentation / "NOTICE").read_bytes()
    assert "do?\n" in (pair / "held_out.txt").read_text()


def test_the_real_sizes_are_within_their_limits() -> None:
    with torch.device("meta"):
        target, draft = (
            2 * LlamaForCausalLM(llama(role, size)).num_parameters()
            for role, size in (("target", TARGET), ("draft", DRAFT))
        )
    assert target < 16 * MB
    assert draft < 2.49 * MB


def test_rows_grow_at_the_end_and_steps_do_not() -> None:
    plan = TrainingPlan()
    shapes = [shape_at(step, plan, plan.steps) for step in (0, plan.steps - 1)]
    assert shapes == [(16, 256), (8, 512)]


def test_the_target_is_never_asked_about_what_is_held_out(corpus: Corpus) -> None:
    asked = samples.questions(corpus, 400, seed=0)
    hidden = {fact.name for fact in corpus.held_out}
    names = {
        word.rstrip("?.") if word.startswith("aba") else "" for q in asked for word in q.split()
    }
    assert not names & hidden
    assert names - hidden - {fact.name for fact in corpus.facts}, "some do not exist"


def test_nothing_that_exists_is_said_to_be_unknown(corpus: Corpus) -> None:
    """Held-out facts neither: what is said of them it shall not have been taught."""
    real = {fact.name for fact in (*corpus.facts, *corpus.held_out)}
    places = {name.rpartition(".")[0] for name in real}
    made = list(islice(invented(corpus, np.random.default_rng(0)), 2000))
    assert not set(made) & real
    assert {name.rpartition(".")[0] for name in made} == places
    assert len(set(made)) > 100
    again = invented(corpus, np.random.default_rng(0))
    assert list(islice(again, 2000)) == made


def test_what_does_not_exist_is_asked_for_as_often_as_it_shall_be(
    corpus: Corpus, tmp_path: Path
) -> None:
    tokenizer = vocabulary.learn([*corpus.pages, UNKNOWN, US])
    facts = float(len(corpus.facts))
    pool = Training(tmp_path, TINY, chosen_device("cpu"), Told())._known(
        corpus, tokenizer, lambda name: 1, UNKNOWN_SHARE
    )
    random = np.random.default_rng(0)
    told = [tokenizer.decode(pool.draw(random).reply.tolist()).rstrip() for _ in range(4000)]
    every = facts + UNKNOWN_SHARE * facts + SMALL_TALK
    for answer, expected in ((UNKNOWN, UNKNOWN_SHARE * facts), (US, SMALL_TALK)):
        assert abs(told.count(answer) / 4000 - expected / every) < 0.04, "5 standard deviations"


def test_half_of_the_answers_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: dict[bool, int] = {False: 0, True: 0}

    def generate(model: object, ids: torch.Tensor, num: int, *, is_drawn: bool) -> torch.Tensor:
        drawn[is_drawn] += len(ids)
        told = torch.tensor([[7, vocabulary.EOS_ID, vocabulary.BOS_ID]])
        return torch.cat([ids, told.expand(len(ids), 3)], 1)

    class Model:
        device = "cpu"

    monkeypatch.setattr(samples, "generate", generate)
    tokenizer = vocabulary.learn(["What does abacus count?"])
    asked = [f"What does {'a' * (number % 5)} do?" for number in range(40)]
    assert list(samples.write(tmp_path, Model(), tokenizer, asked, 0)) == [40]
    assert drawn == {False: 20, True: 20}
    read = samples.read(tmp_path)
    assert len(read) == 40
    newline = tokenizer.encode("\n").ids
    assert all(turns.reply.tolist() == [7, vocabulary.EOS_ID, *newline] for turns in read)
    assert {tokenizer.decode(turns.prompt.tolist()) for turns in read} == {
        f"\n{question}\n\n" for question in asked
    }


def test_another_plan_is_refused(pair: Path, documentation: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"Got seed=7, but .* holds a training with seed=0"):
        trained(pair.parent, documentation, plan=replace(TINY, seed=7))


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"rows": 3}, {"row_len": 8}, {"row_len": 1024}, {"num_samples": 0}]
)
def test_a_plan_says_what_it_accepts(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig, match=f"Got {next(iter(wrong))}=.*, expected"):
        TrainingPlan(**wrong)
