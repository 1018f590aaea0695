"""What is loaded, and what can be asked of it at once: a worker that is started again does not read
its checkpoint twice, forwards are timed beside a draft model and of a target alone.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import architectures
import pytest
import torch

from outrider.actors.heads import loading as head_loading
from outrider.actors.runner.runner import Runner
from outrider.actors.sizing.footprint import footprint
from outrider.actors.transport.messages import Describe, Done, Settle, TimeForwards
from outrider.actors.transport.worker_spec import WorkerSpec
from outrider.actors.workers import loading
from outrider.cluster.config.demo_models import demo_head


@pytest.fixture
def spec(tmp_path):
    folder = tmp_path / "draft"
    shutil.copytree(architectures.DEMO / "draft", folder)
    return WorkerSpec("draft", str(folder), num_target_ids=4096, num_tokens=256)


def test_files_that_have_not_changed_are_not_read_again(spec, monkeypatch):
    first = loading.load_worker(spec).description
    again = replace(spec, known_files=first.files, known_digest=first.digest)
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_digest", lambda path: pytest.fail("it was read"))
        assert loading.load_worker(again).description.fingerprint == first.fingerprint
    config = loading.Path(spec.model) / "config.json"
    config.write_text(config.read_text() + " ")
    changed = loading.load_worker(again).description
    assert changed.files != first.files
    assert changed.fingerprint != first.fingerprint


class FullDevice:
    """What torch says of a device with 80 GB: one forward takes as many bytes as it makes logits,
    other processes hold a gigabyte.
    """

    TOTAL, OTHERS, WEIGHTS = 80_000_000_000, 1_000_000_000, 16_000_000_000

    def __init__(self, monkeypatch):
        self.peak = 0
        for name in ("reset_peak_memory_stats", "synchronize", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: None)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: self.WEIGHTS)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: self.WEIGHTS + self.peak)
        free = self.TOTAL - self.OTHERS - self.WEIGHTS
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, self.TOTAL))
        forward = Runner.forward
        monkeypatch.setattr(Runner, "forward", lambda *given: self.seen(forward(*given)))

    def seen(self, logits):
        self.peak = max(self.peak, logits.nbytes)
        return logits


def test_a_device_is_filled_beside_its_largest_forward(monkeypatch):
    """By what is in use amid it: nine tenths of the device, less that, are for text."""
    target = str(architectures.DEMO / "target")
    worker = loading.load_worker(WorkerSpec("target", target, 4096, 4096, max_batch=1 << 20))
    worker.runner.loaded = replace(worker.runner.loaded, device="cuda")
    device, sizes = FullDevice(monkeypatch), []
    monkeypatch.setattr(worker.runner, "resize", sizes.append)
    monkeypatch.setattr(loading.torch, "device", lambda name: name)
    own = footprint(Path(target))
    loading._fill_device(WorkerSpec("target", target, 4096, 0, max_batch=1 << 20), worker)
    num_tokens = min(loading.PROFILED_TOKENS, worker.runner.context_len) - 1
    assert device.peak == num_tokens * worker.runner.vocab_size * 4
    room = 0.9 * device.TOTAL - device.OTHERS - device.WEIGHTS - device.peak
    assert sizes == [int(room) // own.kv_bytes(4)]


@pytest.mark.parametrize(
    ("beside", "has_draft"),
    [
        ({}, False),
        ({"colocated_draft": str(architectures.DEMO / "draft")}, True),
        ({"head": f"eagle3:{demo_head('eagle3')}"}, False),
        ({"head": "early_exit:4"}, False),
    ],
    ids=["alone", "draft", "eagle3", "early-exit"],
)
def test_forwards_are_timed_with_a_draft_model_beside_or_alone(beside, has_draft):
    target = str(architectures.DEMO / "target")
    worker = loading.load_worker(WorkerSpec("target", target, 4096, 1024, **beside))
    both, one = worker.handle(TimeForwards((1, 2))).found
    assert (both.num_threads, one.num_threads) == (2, 1)
    for timing in (both, one):
        assert [size for size, _ in timing.verify] == [1, 3, 5]
        assert all(seconds > 0 for _, seconds in timing.verify)
        assert (timing.draft_s > 0) is has_draft
    assert worker.handle(Settle(1, (), keeps_draft=True)) == Done()


@pytest.mark.parametrize(("kind", "least"), [("eagle3", 0.7), ("medusa", 0.5)])
def test_a_head_is_tried_over_chats(kind, least):
    """It learned from chats: behind nothing at all it guesses half as much."""
    target = str(architectures.DEMO / "target")
    head = f"{kind}:{demo_head(kind)}"
    worker = loading.load_worker(WorkerSpec("target", target, 4096, 1024, head=head))
    (_, share), *_ = worker.handle(Describe()).head_scores
    assert share > least


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "early_exit"])
def test_a_head_that_is_known_is_not_tried_again(kind, monkeypatch):
    """Its way is taken as it was found, which need not be the first."""
    target = str(architectures.DEMO / "target")
    head = kind if kind == "early_exit" else f"{kind}:{demo_head(kind)}"
    spec = WorkerSpec("target", target, 4096, 1024, head=head)
    first, *others = loading.load_worker(spec).handle(Describe()).head_scores
    known = (*others, first)
    monkeypatch.setattr(head_loading, "probe_text", lambda *_: pytest.fail("it was tried"))
    worker = loading.load_worker(replace(spec, known_head_scores=known))
    assert worker.handle(Describe()).head_scores == known
    runner = worker._beside.runner
    if kind == "early_exit":
        assert f"the first {runner._num_layers} of" in known[0][0]
    elif kind == "eagle3":
        assert str(runner._net.convention) == known[0][0]
    else:
        assert worker._target.runner._taps.boundaries == (34,)
    monkeypatch.undo()
    other = loading.load_worker(replace(spec, known_head_scores=known[:1]))  # not the same ways
    assert other.handle(Describe()).head_scores == (first, *others)
