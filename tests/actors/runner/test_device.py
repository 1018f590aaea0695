"""What a model on a GPU is spared, as far as it can be seen without one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import architectures
import pytest
import torch
from transformers import AutoModelForCausalLM

from outrider.actors.errors import ModelRefused
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model, load_model
from outrider.actors.runner.runner import Runner

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None  # whoever imports it fails
import outrider.actors.executor.worker_host
import outrider.kernels.cuda.backend
"""


def test_a_worker_needs_no_numba_unless_it_computes_on_the_cpu() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def bfloat16_runner() -> Runner:
    model = architectures.build("llama").bfloat16()
    return Runner(from_model(model), num_tokens=128, numerics="fast")


def test_no_plan_is_built_for_every_length() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    bfloat16_runner()
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


def test_logits_of_a_device_go_to_the_verdict_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = bfloat16_runner()

    def logits() -> torch.Tensor:
        cache = runner.open()
        found = runner.forward([Segment(cache, [3, 4, 5], 3)])
        runner.close(cache)
        return found

    wide = logits()
    monkeypatch.setattr(runner.model, "parts", None)  # as on a device
    narrow = logits()
    assert (wide.dtype, narrow.dtype) == (torch.float32, torch.bfloat16)
    assert narrow.float().equal(wide)  # nothing is lost


def test_a_device_is_filled_tensor_by_tensor(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = architectures.save(architectures.build("llama"), tmp_path / "model")
    asked: list[Any] = []

    def from_pretrained(*_: Any, **options: Any) -> Any:
        asked.append(options["device_map"])
        raise OSError("no such device here")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    for device in ("auto", "cuda:1", "cpu"):
        with pytest.raises(ModelRefused, match="no such device"):
            load_model(folder, device=device)
    assert asked == [{"": "cuda"}, {"": "cuda:1"}, None]


@pytest.mark.parametrize(
    ("piece", "tests"),
    [
        ("kernels", ["test_gpu.py::test_bytes_equal_the_cpus"]),
        ("law", ["test_architectures.py::test_cuda", "test_cuda.py::test_output_equals_plain"]),
    ],
)
def test_a_day_with_a_gpu_finds_its_tests(piece: str, tests: list[str]) -> None:
    """Without our settings, and without the plugins that they name."""
    line = f"bash tests/benches/gpu/day.sh {piece}"
    assert line in (ROOT / "CONTRIBUTING.md").read_text()
    command = [*line.split(), "--collect-only", "-p", "no:asyncio"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert all(test in done.stdout for test in tests)
