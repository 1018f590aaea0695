"""Every architecture we claim, against the unbatched plain Hugging Face forward, and bit for bit.

One story per model: ragged prefill in chunks, decode beside prefill, chains with junk drafts and
rollback, a tree, its accepted path. Every row of logits it returns is compared twice: with the
plain forward of the same text (1e-4), and, in exact numerics, with the text decoded token by token.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.actors.runner.cpu import parts
from outrider.actors.runner.cpu.linear import can_pack_onednn
from outrider.actors.runner.cpu.matmul import can_multiply
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.kv.pool import PageTable
from outrider.actors.runner.runner import Runner

VOCAB = 200
PARENTS = [-1, 0, 0, 1, 2, 2]
TOLERANCE = 1e-4


@dataclass
class Story:
    """Runs chunks of several sequences and keeps (text, rows of logits behind its end)."""

    runner: Runner
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(1))
    told: list[tuple[list[int], torch.Tensor]] = field(default_factory=list)

    def tokens(self, num: int) -> list[int]:
        ids: list[int] = torch.randint(1, VOCAB, (num,), generator=self.generator).tolist()
        return ids

    def forward(self, *asks: tuple[PageTable, list[int], list[int]]) -> None:
        """Each ask: cache, the text committed so far, new tokens; a chain each."""
        rows = self.runner.forward([Segment(cache, new, len(new)) for cache, _, new in asks])
        for (_, text, new), own in zip(asks, rows.split([len(a[2]) for a in asks]), strict=True):
            self.told.append((text + new, own))

    def tell(self) -> list[tuple[list[int], torch.Tensor]]:
        caches = [self.runner.open() for _ in range(3)]
        texts = [self.tokens(60) for _ in range(3)]
        self._prefill(caches, texts)
        lens = [6, 21, 37]
        for round_ in range(3):  # chains with junk behind the true next token, and rollback
            asks = [
                (cache, text[:n], [text[n], *self.tokens((round_ + b) % 5)])
                for b, (cache, text, n) in enumerate(zip(caches, texts, lens, strict=True))
            ]
            self.forward(*asks)
            lens = [n + 1 for n in lens]
            for cache, n in zip(caches, lens, strict=True):
                self.runner.rollback(cache, n)
        self._tree(caches, [text[:n] for text, n in zip(texts, lens, strict=True)])
        for cache in caches:
            self.runner.close(cache)
        assert self.runner.num_free_pages == self.runner.pool.num_pages
        return self.told

    def _prefill(self, caches: list[PageTable], texts: list[list[int]]) -> None:
        a, b, c = caches
        x, y, z = texts
        self.forward((a, [], x[:5]), (b, [], y[:8]), (c, [], z[:30]))
        self.forward((c, z[:30], z[30:37]), (a, x[:5], x[5:6]), (b, y[:8], y[8:21]))

    def _tree(self, caches: list[PageTable], texts: list[list[int]]) -> None:
        """Two trees around a decode row; then one path is accepted and goes on."""
        a, b, c = caches
        nodes, single = self.tokens(6), self.tokens(1)
        base = [cache.len for cache in caches]
        rows = self.runner.forward(
            [
                Segment(a, nodes, 6, PARENTS),
                Segment(b, single, 1),
                Segment(c, nodes, 6, PARENTS),
            ]
        )
        self.told.append((texts[1] + single, rows[6:7]))
        for path in ([0, 1, 3], [0, 2, 4], [0, 2, 5]):
            tail = [nodes[node] for node in path]
            self.told.append((texts[0] + tail, rows[path]))
            self.told.append((texts[2] + tail, rows[[7 + node for node in path]]))
        for cache, start in ((a, base[0]), (c, base[2])):
            self.runner.accept_path(cache, start, [0, 2, 5])
            assert cache.len == start + 3
        tail = [nodes[node] for node in (0, 2, 5)]
        self.forward((c, texts[2] + tail, [7, 8]), (a, texts[0] + tail, [9]))


@torch.inference_mode()
def far_from_plain(told: list[tuple[list[int], torch.Tensor]], plain: Any) -> float:
    """The largest difference between told rows and the plain forward of their texts."""
    worst = 0.0
    for text, rows in told:
        wanted = plain(input_ids=torch.tensor([text]), use_cache=False).logits[0, -len(rows) :]
        worst = max(worst, (rows - wanted.float()).abs().max().item())
    return worst


def rows_not_bitwise(told: list[tuple[list[int], torch.Tensor]], runner: Runner) -> int:
    """How many told rows differ in any bit from their text decoded alone, token by token."""
    different = 0
    for text, rows in told:
        cache = runner.open()
        alone = [runner.forward([Segment(cache, [token])]) for token in text]
        runner.close(cache)
        different += int((torch.cat(alone)[-len(rows) :] != rows).any(1).sum())
    return different


def test_exact(
    architecture: str, make_runner: Callable[..., Runner], build: Callable[[str], Any]
) -> None:
    runner = make_runner(architecture, numerics="exact", is_strict=True)
    told = Story(runner).tell()
    assert far_from_plain(told, build(architecture)) < TOLERANCE
    assert rows_not_bitwise(told, runner) == 0


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"])
def test_fused_blocks(
    name: str, numerics: str, make_runner: Callable[..., Runner], build: Callable[[str], Any]
) -> None:
    runner = make_runner(name, numerics=numerics, is_strict=True)
    kinds = {type(module).__name__ for module in runner.loaded.model.modules()}
    assert {"FusedAttention", "FusedMlp", "RmsNorm", "PanelLinear"} <= kinds
    assert ("FusedLayer" in kinds) == (not name.startswith("gemma"))  # those have four norms
    told = Story(runner).tell()
    assert far_from_plain(told, build(name)) < TOLERANCE
    if numerics == "exact":
        assert rows_not_bitwise(told, runner) == 0


@pytest.mark.usefixtures("no_fused_blocks")
@pytest.mark.parametrize("name", ["qwen3", "phi3", "gemma2"])
def test_plain_blocks(
    name: str, make_runner: Callable[..., Runner], build: Callable[[str], Any]
) -> None:
    runner = make_runner(name, numerics="exact", is_strict=True)
    kinds = {type(module).__name__ for module in runner.loaded.model.modules()}
    assert "FusedAttention" not in kinds
    assert "PanelLinear" in kinds
    told = Story(runner).tell()
    assert far_from_plain(told, build(name)) < TOLERANCE
    assert rows_not_bitwise(told, runner) == 0


def tell_with_two_threads() -> None:
    """Run by test_two_threads in a process of its own: products shared by threads, or oneDNN's."""
    from architectures import build as build_model

    from outrider.actors.runner.cpu import linear
    from outrider.actors.runner.cpu.threads import share_among
    from outrider.actors.runner.model_loader import from_model

    linear.LEAST_SHARED = 0
    share_among(2)
    for kind in ("PanelLinear", "PackedLinear"):
        linear.can_multiply = lambda kind=kind: kind == "PanelLinear"  # type: ignore[misc]
        for name in ("llama", "gemma2", "gpt2"):
            loaded = from_model(build_model(name))
            runner = Runner(loaded, num_tokens=512, is_strict=True)
            assert kind in {type(module).__name__ for module in loaded.model.modules()}, name
            told = Story(runner).tell()
            assert far_from_plain(told, build_model(name)) < TOLERANCE, name
            assert rows_not_bitwise(told, runner) == 0, name
            print(name, runner.numerics)


@pytest.mark.skipif(
    not (can_multiply() and can_pack_onednn(torch.float32)), reason="one of the two is not here"
)
def test_two_threads() -> None:
    """In its own process: how idle threads wait is read at import, and spinning takes minutes."""
    code = "import test_architectures; test_architectures.tell_with_two_threads()"
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": tests},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == 2 * ["llama", "exact", "gemma2", "exact", "gpt2", "exact"]


@pytest.mark.usefixtures("no_fused_blocks")
@pytest.mark.parametrize("is_by_row", [True, False])
def test_gathered_attention_is_an_oracle(
    is_by_row: bool,
    make_runner: Callable[..., Runner],
    build: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way that CUDA and bfloat16 take, run where it can be compared."""
    monkeypatch.setattr(parts, "suits", lambda *_: False)
    numerics = "exact" if is_by_row else "fast"
    runner = make_runner("gemma2", numerics=numerics, is_strict=True)
    told = Story(runner).tell()
    assert far_from_plain(told, build("gemma2")) < TOLERANCE


@pytest.mark.gpu
def test_cuda(architecture: str, build: Callable[[str], Any]) -> None:
    from outrider.actors.runner.model_loader import from_model

    runner = Runner(from_model(build(architecture).to("cuda")), num_tokens=512)
    told = [(text, rows.cpu()) for text, rows in Story(runner).tell()]
    assert far_from_plain(told, build(architecture)) < 5e-3
