"""What a model directory must be, and what is refused by name."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from outrider.actors.errors import InvalidConfig, ModelRefused
from outrider.actors.runner.attention.probe import Recorder
from outrider.actors.runner.model_loader import from_model, load_model
from outrider.actors.runner.runner import Runner


@pytest.fixture
def directory(tmp_path: Path, build: Callable[[str], Any]) -> Path:
    model = build("llama").bfloat16()
    model.generation_config.eos_token_id = [7, 9]
    model.save_pretrained(tmp_path)
    return tmp_path


def edit_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_loads(directory: Path) -> None:
    loaded = load_model(directory, device="cpu")
    assert (loaded.dtype, loaded.device, loaded.path) == (torch.float32, "cpu", directory)
    assert (loaded.vocab_size, loaded.context_len, loaded.eos_ids) == (200, 512, (2, 7, 9))
    assert loaded.num_parameters == sum(p.numel() for p in loaded.model.parameters())
    assert not loaded.model.training
    assert load_model(directory, device="cpu", dtype="bfloat16").dtype == torch.bfloat16


def test_unknown_device_and_dtype(directory: Path) -> None:
    with pytest.raises(InvalidConfig, match="Got dtype='int8', expected auto, float32"):
        load_model(directory, dtype="int8")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidConfig, match="no CUDA device is present; accepted: cpu"):
            load_model(directory, device="cuda")


def test_not_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="not a directory; expected a local Hugging Face model"):
        load_model(tmp_path / "nowhere")


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=r"no config\.json"):
        load_model(tmp_path)


def test_no_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    with pytest.raises(ModelRefused, match=r"got no weights, expected \*\.safetensors"):
        load_model(directory)


def test_pickle_only(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    torch.save(weights, directory / "pytorch_model.bin")
    with pytest.raises(
        ModelRefused, match=r"only pickled weights \(pytorch_model\.bin\), expected"
    ):
        load_model(directory)


def test_missing_weights(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelRefused, match=r"1 missing weights \(model\.norm\.weight\)"):
        load_model(directory)


def test_weights_of_another_shape(directory: Path) -> None:
    edit_config(directory, intermediate_size=128)
    with pytest.raises(ModelRefused):
        load_model(directory)


def test_unreadable_weights(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(ModelRefused, match="transformers cannot load it"):
        load_model(directory)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rope_that_depends_on_the_batch(directory: Path, kind: str) -> None:
    width = 8
    rope = {
        "rope_type": kind,
        "rope_theta": 10000.0,
        "factor": 2.0,
        "short_factor": [1.0] * width,
        "long_factor": [2.0] * width,
        "original_max_position_embeddings": 256,
    }
    edit_config(directory, rope_parameters=rope)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ModelRefused, match=f"got rope_type='{kind}', whose frequencies"):
            load_model(directory)


def test_code_in_the_repository(directory: Path) -> None:
    (directory / "modeling_evil.py").write_text("raise SystemExit('this ran')")
    edit_config(
        directory,
        model_type="evil",
        auto_map={
            "AutoConfig": "modeling_evil.EvilConfig",
            "AutoModelForCausalLM": "modeling_evil.EvilModel",
        },
    )
    with pytest.raises(ModelRefused, match="cannot read its config"):
        load_model(directory)


def test_recurrent() -> None:
    config = hf.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(ModelRefused, match=r"got a recurrent model \(mamba\).*rolled back"):
        from_model(hf.AutoModelForCausalLM.from_config(config))


def test_encoder_decoder() -> None:
    config = hf.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ModelRefused, match="got an encoder-decoder"):
        from_model(hf.T5ForConditionalGeneration(config))


def test_a_window_that_only_the_mask_knows(
    make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that does not tell its attention about its window would see too far."""
    attend = Recorder.attend

    def forget(recorder: Recorder, *args: Any) -> torch.Tensor:
        args[-1].window = 0
        return attend(recorder, *args)

    monkeypatch.setattr(Recorder, "attend", forget)
    for name in ("mistral", "gemma3"):
        with pytest.raises(ModelRefused, match=r"sliding window.*only in the mask"):
            make_runner(name)


def test_unknown_layer_types(build: Callable[[str], Any]) -> None:
    model = build("llama")
    model.config.layer_types = ["full_attention", "chunked_attention", "full_attention"]
    with pytest.raises(ModelRefused, match="got layer type 'chunked_attention', expected full"):
        Runner(from_model(model), num_tokens=64)


def test_an_encoder(build: Callable[[str], Any]) -> None:
    model = build("llama")
    model.model.layers[1].self_attn.is_causal = False
    with pytest.raises(ModelRefused, match="attention layer 1 is not causal"):
        Runner(from_model(model), num_tokens=64)
