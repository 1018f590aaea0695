"""Heads that are trained here: they learn, go on after any end to the same bytes, and whatever is
said of what they were trained on, it is found out.
"""

import itertools
from collections import Counter
from dataclasses import replace

import architectures
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from outrider.actors.errors import InvalidConfig
from outrider.actors.heads.checkpoint import load_checkpoint
from outrider.actors.heads.eagle import Convention, EagleNet
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.heads.target_parts import TargetParts
from outrider.actors.heads.training import medusa_lesson, teacher, trainer
from outrider.actors.heads.training.lesson import Said, Taught
from outrider.actors.heads.training.plan import HeadPlan, append_texts, read_texts
from outrider.actors.heads.training.trainer import HeadTraining
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model, load_model
from outrider.actors.runner.runner import Runner

VOCAB, NUM_TEXTS, LENGTH = 200, 192, 40
PLAN = HeadPlan("eagle3", "toy", "0", seed=3, steps=12, rows=8)


class Told:
    """A HeadWatcher that may stop a training."""

    def __init__(self, stops_at=None):
        self.stops_at, self.shares, self.begun = stops_at, [], []

    def stage(self, name, num_steps, num_done):
        self.begun.append((num_steps, num_done))

    def step(self, num_done, num_tokens, loss):
        if num_done == self.stops_at:
            raise KeyboardInterrupt

    def judged(self, shares):
        self.shares.append(shares)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Beside other processes a second one would wait for them in every product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A model of three layers, and what it says: half of it greedy, half drawn."""
    folder = tmp_path_factory.mktemp("target")
    model = architectures.build("llama", VOCAB, scale=1.5)
    architectures.save(model, folder)
    runner = Runner(from_model(model), num_tokens=4096, numerics="fast")
    generator, texts = torch.Generator().manual_seed(5), []
    for _ in range(0, NUM_TEXTS, 32):
        caches = [runner.open() for _ in range(32)]
        ids = torch.randint(3, VOCAB, (32, 3), generator=generator)
        fed = ids
        for _ in range(LENGTH):
            chunks = [Segment(c, row, 1) for c, row in zip(caches, fed.tolist(), strict=True)]
            logits = runner.forward(chunks)
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            fed = torch.where(torch.arange(32)[:, None] % 2 == 0, logits.argmax(-1)[:, None], drawn)
            ids = torch.cat((ids, fed), 1)
        texts += [(row, 3) for row in ids.tolist()]
        for cache in caches:
            runner.close(cache)
    return folder, texts


def trained(folder, target, plan=PLAN, told=None):
    path, texts = target
    return HeadTraining(folder, plan, path, told or Told(), clock=lambda: 0.0).train(texts)


def files_of(head):
    return {path.name: path.read_bytes() for path in sorted(head.iterdir())}


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "draft"])
def test_after_any_end_it_goes_on_to_the_same_bytes(kind, target, tmp_path, monkeypatch):
    plan = replace(PLAN, kind=kind)
    head = trained(tmp_path / "whole", target, plan)
    whole = files_of(head)
    assert (head / "model.safetensors").stat().st_mode == (head / "README.md").stat().st_mode
    monkeypatch.setattr(trainer, "SAVED_EVERY_S", -1.0)  # at every step
    for stop in (1, 5, 12):
        told = Told(stop)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "stopped", target, plan, told)
    told = Told()
    assert files_of(trained(tmp_path / "stopped", target, plan, told)) == whole
    assert told.begun == [(12, 11)]
    assert files_of(trained(tmp_path / "stopped", target, plan)) == whole  # which is there
    other = files_of(trained(tmp_path / "other", target, replace(plan, seed=4)))
    assert other["model.safetensors"] != whole["model.safetensors"]


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_it_knows_the_ids_that_are_said_most(kind, target, tmp_path, monkeypatch):
    """Fewer than half of the vocabulary: it guesses those as it would, and no other."""
    path, texts = target
    said = Counter(token for ids, num_prompt in texts for token in ids[num_prompt:])
    monkeypatch.setattr(teacher, "KNOWN_SHARE", 0.4)
    known = teacher.frequent_ids(texts, VOCAB)
    assert len(known) < VOCAB // 2
    others = set(said) - set(known.tolist())
    assert min(said[each] for each in known.tolist()) >= max(said[each] for each in others)
    share = sum(said[each] for each in known.tolist()) / said.total()
    assert 0.4 <= share < 0.42
    monkeypatch.setattr(teacher, "KNOWN_SHARE", 1.0)
    assert teacher.frequent_ids(texts, VOCAB) is None

    monkeypatch.setattr(teacher, "KNOWN_SHARE", 0.4)
    head = trained(tmp_path / "few", target, replace(PLAN, kind=kind))
    runner = Runner(load_model(path), num_tokens=512)
    parts = TargetParts.of(runner)
    checkpoint = load_checkpoint(head, torch.float32, "cpu")
    if kind == "eagle3":
        assert checkpoint.config["draft_vocab_size"] == len(known)
        net = EagleNet(checkpoint, parts, Convention((2, 1, 0), norms_residual=True))
        logits = net.logits(torch.randn(5, parts.hidden_size))
    else:
        logits = MedusaNet(checkpoint, parts).all_logits(torch.randn(5, parts.hidden_size))
    is_known = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, known, True)
    assert logits[..., is_known].isfinite().all()
    assert logits[..., ~is_known].isneginf().all()


def test_what_a_head_does_not_know_is_guessed_wrongly_and_teaches_nothing():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 10, generator=generator)
    counts = torch.ones(2, 6, dtype=torch.bool)
    counts[:, 0] = counts[1, 5] = False
    best = logits[counts].softmax(-1).topk(10)
    taught = Taught(torch.zeros(2, 6, dtype=torch.long), counts, {}, best.indices, best.values)
    known, own = torch.tensor([1, 4, 7, 8]), torch.full((10,), -1)
    own[known] = torch.arange(4)
    for places in (0, 2):
        whole, part = Said(taught, None), Said(taught, own)
        assert whole.counted(places).equal(part.counted(places))
        at = [(b, t + 1 + places) for b, t in part.counted(places).nonzero().tolist()]
        assert len(at) == 9 - 2 * places
        guessed = torch.randn(len(at), 10, generator=generator)
        wanted = torch.stack([logits[each] for each in at])
        expected = -(wanted.softmax(-1) * guessed.log_softmax(-1)).sum(-1).mean()
        loss, share = whole.judge(guessed, places)
        assert torch.allclose(loss, expected)
        assert share == sum(guessed.argmax(-1) == wanted.argmax(-1)) / len(at)
        few = guessed[:, known]
        loss, share = part.judge(few, places)
        expected = -(wanted.softmax(-1)[:, known] * few.log_softmax(-1)).sum(-1).mean()
        assert torch.allclose(loss, expected)
        assert share == sum(known[few.argmax(-1)] == wanted.argmax(-1)) / len(at)


def test_a_draft_knows_by_heart_what_it_learned_and_is_a_model_like_any_other(target, tmp_path):
    path, texts = target
    few, told = texts[:24], Told()
    folder = trained(tmp_path, (path, few), replace(PLAN, kind="draft", steps=80, rate=1e-2), told)
    assert folder == tmp_path / "draft"
    assert (folder / "tokenizer.json").read_bytes() == (path / "tokenizer.json").read_bytes()
    assert "outrider serve --target toy --draft FOLDER" in (folder / "README.md").read_text()
    both = [AutoModelForCausalLM.from_pretrained(each).float() for each in (path, folder)]
    runner, shares = Runner(load_model(folder), num_tokens=512), []
    for at in np.random.default_rng(PLAN.seed).permutation(len(few)):
        ids, num_prompt = few[at]
        with torch.inference_mode():
            wanted, theirs = (model(torch.tensor([ids])).logits[0] for model in both)
        cache = runner.open()
        ours = runner.forward([Segment(cache, ids, len(ids))])
        runner.close(cache)
        assert torch.allclose(ours, theirs, atol=1e-4)
        is_right = (wanted.argmax(-1) == ours.argmax(-1))[num_prompt - 1 : -1]
        shares.append(float(is_right.float().mean()))
    never_saw, learned = shares[:2], shares[2:]
    assert abs(np.mean(never_saw) - told.shares[-1][0]) < 0.02
    assert np.mean(learned) > 0.6 > 0.2 > np.mean(never_saw)


def test_in_bfloat16_it_learns_as_much(target, tmp_path):
    wide, narrow = Told(), Told()
    trained(tmp_path / "wide", target, replace(PLAN, dtype="float32"), wide)
    trained(tmp_path / "narrow", target, replace(PLAN, dtype="bfloat16"), narrow)
    pairs = zip(wide.shares[-1], narrow.shares[-1], strict=True)
    assert all(abs(one - other) < 0.03 for one, other in pairs), (wide.shares, narrow.shares)
    with pytest.raises(InvalidConfig, match=r"dtype=float32, but .* training with dtype=bfloat16"):
        trained(tmp_path / "narrow", target, replace(PLAN, dtype="float32"))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["eagle3", "medusa", "draft"])
def test_on_a_gpu_it_learns_as_much(kind, target, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "KNOWN_SHARE", 0.4)
    here, there = Told(), Told()
    plan = replace(PLAN, kind=kind, dtype="float32")
    trained(tmp_path / "here", target, replace(plan, device="cpu"), here)
    head = trained(tmp_path / "there", target, replace(plan, device="cuda"), there)
    pairs = zip(here.shares[-1], there.shares[-1], strict=True)
    assert all(abs(one - other) < 0.03 for one, other in pairs), (here.shares, there.shares)
    found = load_file(head / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_minutes_become_steps_once(target, tmp_path, monkeypatch):
    path, texts = target
    seconds = itertools.count(0.0, 0.5)
    told = Told(4)
    monkeypatch.setattr(trainer, "SAVED_EVERY_S", -1.0)
    plan = replace(PLAN, steps=0, minutes=0.2)
    with pytest.raises(KeyboardInterrupt):
        HeadTraining(tmp_path, plan, path, told, clock=lambda: next(seconds)).train(texts)
    assert told.begun == [(12, 0)]  # half a second to be told and half a second to learn
    again = Told(5)
    with pytest.raises(KeyboardInterrupt):
        HeadTraining(tmp_path, plan, path, again).train(texts)
    assert again.begun == [(12, 3)]


def test_what_it_refuses(target, tmp_path, monkeypatch):
    path, texts = target
    trained(tmp_path / "a", target)
    with pytest.raises(InvalidConfig, match=r"digest=1, but .* holds a training with digest=0"):
        HeadTraining(tmp_path / "a", replace(PLAN, digest="1"), path, Told())
    old = tmp_path / "old"
    old.mkdir()
    (old / "plan.json").write_text('{"kind": "eagle3", "target": "toy", "digest": "0"}')
    with pytest.raises(InvalidConfig, match="a training of another version of Outrider"):
        HeadTraining(old, PLAN, path, Told())
    monkeypatch.setattr(trainer, "SAVED_EVERY_S", -1.0)
    blocks, plan = tmp_path / "blocks", replace(PLAN, kind="medusa")
    with pytest.raises(KeyboardInterrupt):
        trained(blocks, target, plan, Told(3))
    monkeypatch.setattr(medusa_lesson, "NUM_BLOCKS", 2)
    with pytest.raises(InvalidConfig, match="a training of another version of Outrider"):
        trained(blocks, target, plan)
    with pytest.raises(InvalidConfig, match="Got kind='eagle', accepted: eagle3, medusa, draft"):
        replace(PLAN, kind="eagle")
    with pytest.raises(InvalidConfig, match="Got 3 texts to learn from"):
        HeadTraining(tmp_path / "b", PLAN, path, Told()).train(texts[:3])
    full = tmp_path / "c"
    training = HeadTraining(full, PLAN, path, Told())
    (full / "losses.jsonl").symlink_to("/dev/full")
    with pytest.raises(InvalidConfig, match="c cannot be written: No space left on device"):
        training.train(texts)


def test_texts_are_kept_but_for_what_was_cut_off(tmp_path):
    texts = [([1, 2, 3], 2), ([4], 1)]
    append_texts(tmp_path / "texts.jsonl", texts)
    with (tmp_path / "texts.jsonl").open("a") as file:
        file.write("[[5, 6")
    assert read_texts(tmp_path / "texts.jsonl") == texts
    assert read_texts(tmp_path / "nowhere.jsonl") == []
