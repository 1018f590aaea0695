"""A directory that cannot be served is refused by its names and its config.json alone."""

import json
from pathlib import Path

import pytest

from outrider.actors.errors import ModelRefused
from outrider.cluster.config.demo_models import demo_target
from outrider.cluster.models.model_files import check_model, weight_files

PLAIN = {"architectures": ["A"]}


def write_model(folder: Path, config: object) -> None:
    """A directory with every file a model needs, and this config.json."""
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).touch()
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))


def test_the_demo_model_passes() -> None:
    assert check_model("target", demo_target()) == "LlamaForCausalLM"


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(ModelRefused, match="Got draft=/nowhere, expected a model directory"):
        check_model("draft", Path("/nowhere"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_without_one_of_its_files(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, PLAIN)
    (tmp_path / name).unlink()
    with pytest.raises(ModelRefused, match=f"without a readable {name}"):
        check_model("target", tmp_path)


@pytest.mark.parametrize("config", ["{", [], {}, {"architectures": []}])
def test_a_config_that_names_no_architecture(tmp_path: Path, config: object) -> None:
    write_model(tmp_path, config)
    with pytest.raises(ModelRefused, match=r"config\.json"):
        check_model("target", tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "which is quantised (gptq), expected"),
        ({"vision_config": {"depth": 2}}, "a multimodal model (vision_config), expected one of"),
        ({"is_encoder_decoder": True}, "an encoder-decoder, expected a decoder-only"),
        ({"model_type": "mamba2"}, "not attention alone (mamba2)"),
        ({"layer_types": ["full_attention", "conv"]}, "not attention alone (conv)"),
        ({"text_config": {"lru_width": 8}}, "not attention alone (lru_width)"),
        ({"rope_scaling": {"type": "dynamic"}}, "with rope_type='dynamic', whose frequencies"),
    ],
)
def test_what_cannot_be_served_is_named(
    tmp_path: Path, config: dict[str, object], words: str
) -> None:
    write_model(tmp_path, PLAIN | config)
    with pytest.raises(ModelRefused) as refused:
        check_model("target", tmp_path)
    assert words in str(refused.value)


def test_windows_and_known_ropes_pass(tmp_path: Path) -> None:
    layers = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}
    write_model(tmp_path, PLAIN | layers | {"rope_scaling": {"rope_type": "llama3"}})
    assert check_model("target", tmp_path) == "A"


def test_every_file_of_the_index_has_to_be_there(tmp_path: Path) -> None:
    write_model(tmp_path, PLAIN)
    (tmp_path / "model.safetensors").unlink()
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "1.safetensors").touch()
    assert weight_files(tmp_path) == ["1.safetensors", "2.safetensors"]
    with pytest.raises(ModelRefused, match=r"without a readable 2\.safetensors"):
        check_model("target", tmp_path)
    index["weight_map"]["a"] = "../1.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelRefused, match="expected plain names"):
        check_model("target", tmp_path)
