"""Whole steps as a device runs them: staged, by Triton's kernels, captured and replayed."""

import pytest
from actors.runner.gpu.replayers import Eager, Traced, as_device
from actors.runner.test_architectures import TOLERANCE, Story, far_from_plain

from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner


@pytest.mark.parametrize("kind", [Eager, Traced])
def test_story(architecture, build, monkeypatch, kind):
    as_device(monkeypatch, kind())
    runner = Runner(from_model(build(architecture)), num_tokens=512, numerics="fast")
    for _ in range(3):
        assert far_from_plain(Story(runner).tell(), build(architecture)) < TOLERANCE
    print(
        architecture,
        runner.model.level,
        runner.model.on_device.num_replayed,
        runner.model.on_device.refusal,
    )
