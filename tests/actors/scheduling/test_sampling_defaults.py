"""A model's generation_config.json as the defaults of requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.actors.scheduling.sampling_defaults import FILE, sampling_defaults


def written(folder: Path, config: Any) -> Path:
    (folder / FILE).write_text(json.dumps(config))
    return folder


def test_what_the_makers_recommend(tmp_path: Path) -> None:
    """Llama 3's and Qwen3's own."""
    llama = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}
    assert sampling_defaults(written(tmp_path, llama)) == {"temperature": 0.6, "top_p": 0.9}
    qwen = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
    assert sampling_defaults(written(tmp_path, qwen)) == qwen


def test_a_model_that_says_nothing(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path) == {}
    assert sampling_defaults(written(tmp_path, {"top_k": None, "max_length": 20})) == {}


@pytest.mark.parametrize("value", [-1, "hot", True, 1000])
def test_what_cannot_be_is_refused_with_a_way_out(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"temperature.*engine\.generation_config=none"):
        sampling_defaults(written(tmp_path, {"temperature": value}))


def test_no_json(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(InvalidConfig, match="unreadable generation_config"):
        sampling_defaults(tmp_path)
