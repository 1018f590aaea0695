"""What a head is, by its tensors; and every file that is none, refused by name."""

import json

import pytest
import torch
from safetensors.torch import save_file
from toy_heads import (
    CONFIG,
    HIDDEN,
    cycling_target,
    eagle3_tensors,
    eagle_tensors,
    in_speculators_layout,
    in_vllm_layout,
    medusa_tensors,
    save_head,
)

from outrider.actors.errors import ModelRefused
from outrider.actors.heads.checkpoint import (
    config_of,
    kind_of,
    kinds_of,
    load_checkpoint,
    made_for,
    shapes_of,
)
from outrider.actors.heads.conversion import convert_head

TARGET = cycling_target()
MEDUSA, EAGLE, EAGLE3 = medusa_tensors(TARGET), eagle_tensors(), eagle3_tensors(TARGET)


@pytest.mark.parametrize(
    ("kind", "tensors"),
    [
        ("medusa", MEDUSA),
        ("medusa", in_vllm_layout(MEDUSA)),
        ("medusa", {f"medusa_head.{name}": tensor for name, tensor in MEDUSA.items()}),
        ("eagle", EAGLE),
        ("eagle", {name.replace("fc.", "fusion_fc."): tensor for name, tensor in EAGLE.items()}),
        ("eagle3", EAGLE3),
        ("eagle3", eagle3_tensors(TARGET, num_ids=50)),
        ("eagle3", in_speculators_layout(EAGLE3)[1]),
        ("eagle3", {f"model.{name}": tensor for name, tensor in EAGLE3.items()}),
    ],
)
def test_a_kind_is_told_by_names_and_shapes(kind, tensors, tmp_path):
    folder = save_head(tmp_path / "whatever", {}, tensors)
    assert kind_of(folder, shapes_of(folder)) == kind
    checkpoint = load_checkpoint(folder, torch.float32, "cpu")
    assert checkpoint.kind == kind
    assert shapes_of(folder) == {n: tuple(t.shape) for n, t in checkpoint.tensors.items()}


def test_none_and_several_are_refused_with_the_tensors_seen(tmp_path):
    whole = save_head(tmp_path / "model", CONFIG, {"model.norm.weight": torch.ones(HIDDEN)})
    with pytest.raises(ModelRefused, match=r"a head of no known kind.*norm.weight \[64\]"):
        kind_of(whole, shapes_of(whole))
    both = save_head(tmp_path / "both", {}, MEDUSA | EAGLE)
    assert kinds_of(shapes_of(both)) == ["medusa", "eagle"]
    with pytest.raises(ModelRefused, match="what may be medusa or eagle"):
        kind_of(both, shapes_of(both))


def test_what_training_left_behind_is_not_looked_at(tmp_path):
    more = {
        "verifier_norm.weight": torch.ones(3),
        "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2),
    }
    folder = save_head(tmp_path / "head", {}, EAGLE3 | more)
    assert shapes_of(folder).keys() == {n.replace("midlayer", "layers.0") for n in EAGLE3}


def test_files_that_are_none(tmp_path):
    with pytest.raises(ModelRefused, match="not a directory"):
        shapes_of(tmp_path / "nowhere")
    with pytest.raises(ModelRefused, match=r"no \*.safetensors$"):
        shapes_of(tmp_path)
    torch.save(MEDUSA, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelRefused, match=r"outrider convert-head .*medusa_lm_head[.]pt"):
        shapes_of(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no head at all")
    with pytest.raises(ModelRefused, match=r"model[.]safetensors: not to be read"):
        shapes_of(tmp_path)
    for text in ("{", "[1]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelRefused, match=r"config[.]json"):
            config_of(tmp_path)


def test_the_speculators_config_is_read_through(tmp_path):
    config, tensors = in_speculators_layout(EAGLE3)
    read = config_of(save_head(tmp_path / "head", config, tensors))
    assert read["num_attention_heads"] == CONFIG["num_attention_heads"]
    assert read["norm_before_residual"] is False
    assert made_for(read) == ""
    assert (
        made_for({"speculators_config": {"verifier": {"name_or_path": "acme/big"}}}) == "acme/big"
    )
    assert made_for({"base_model_name_or_path": "acme/big"}) == "acme/big"


class TestConversion:
    """Of pickled files."""

    def test_tensors_are_the_same(self, tmp_path):
        torch.save({"state_dict": EAGLE3}, tmp_path / "pytorch_model.bin")
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        assert convert_head(tmp_path / "pytorch_model.bin", tmp_path / "new") == "eagle3"
        read = load_checkpoint(tmp_path / "new", torch.float32, "cpu")
        assert read.config == CONFIG
        for name, tensor in EAGLE3.items():
            assert torch.equal(read.tensors[name.replace("midlayer", "layers.0")], tensor)
        modes = {path.stat().st_mode for path in (tmp_path / "new").iterdir()}
        assert len(modes) == 1  # who may read the config may read the tensors

    def test_code_is_not_run(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return (tmp_path.joinpath("ran").touch, ())

        torch.save({"0.0.linear.weight": Evil()}, tmp_path / "evil.bin")
        with pytest.raises(ModelRefused, match="not a file of tensors alone"):
            convert_head(tmp_path / "evil.bin", tmp_path / "new")
        assert not (tmp_path / "ran").exists()
        assert not (tmp_path / "new").exists()

    def test_what_is_no_head_leaves_nothing(self, tmp_path):
        torch.save({"lm_head.weight": torch.ones(2, 2)}, tmp_path / "model.bin")
        with pytest.raises(ModelRefused, match="no known kind"):
            convert_head(tmp_path / "model.bin", tmp_path / "new")
        assert not (tmp_path / "new").exists()
        torch.save([1, 2], tmp_path / "list.bin")
        with pytest.raises(ModelRefused, match="got list without tensors"):
            convert_head(tmp_path / "list.bin", tmp_path / "new")
        with pytest.raises(ModelRefused, match="not a file"):
            convert_head(tmp_path / "nowhere.bin", tmp_path / "new")

    def test_a_folder_with_something_in_it_is_kept(self, tmp_path):
        save_file({"a": torch.ones(1)}, tmp_path / "kept.safetensors")
        torch.save(MEDUSA, tmp_path / "head.bin")
        with pytest.raises(ModelRefused, match="not empty"):
            convert_head(tmp_path / "head.bin", tmp_path)
        assert (tmp_path / "kept.safetensors").exists()
