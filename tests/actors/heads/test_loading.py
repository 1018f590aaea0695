"""Heads that were made for a target are accepted whole; those that were not are refused by name."""

import json

import pytest
import torch
from architectures import CONFIGS, DEMO, build
from safetensors.torch import load_file
from toy_heads import (
    CONFIG,
    HIDDEN,
    LAYERS,
    VOCAB,
    after,
    cycling_target,
    eagle3_of_state,
    eagle3_tensors,
    eagle_tensors,
    in_speculators_layout,
    in_vllm_layout,
    medusa_tensors,
    random_head,
    save_head,
    turning_target,
)

from outrider.actors.errors import InvalidConfig, ModelRefused
from outrider.actors.heads.loading import load_head
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model, load_model
from outrider.actors.runner.runner import Runner
from outrider.actors.text.tokenizer import Tokenizer
from outrider.actors.text.user_turn import UserTurn

TARGET = cycling_target()
TEXT = [5, 12, 19, 26, 33]
LAYOUTS = {
    "medusa": ("medusa", {}, medusa_tensors(TARGET)),
    "medusa, vllm": ("medusa", {}, in_vllm_layout(medusa_tensors(TARGET))),
    "eagle": ("eagle", CONFIG, eagle_tensors()),
    "eagle3": ("eagle3", CONFIG, eagle3_tensors(TARGET)),
    "eagle3, speculators": ("eagle3", *in_speculators_layout(eagle3_tensors(TARGET))),
    "eagle3, specforge": (
        "eagle3",
        CONFIG | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}},
        eagle3_tensors(TARGET),
    ),
    "eagle3, of 50 ids": ("eagle3", CONFIG, eagle3_tensors(TARGET, num_ids=50)),
    "eagle3, five states": (
        "eagle3",
        CONFIG | {"eagle_aux_hidden_state_layer_ids": [0, 1, 2, 3, 4]},
        eagle3_tensors(TARGET, num_states=5),
    ),
    "eagle3, last state": ("eagle3", CONFIG, eagle3_tensors(TARGET, num_states=1)),
}


def runner():
    return Runner(from_model(cycling_target()), num_tokens=512)


def loaded(folder, layout, min_score=0.2):
    kind, config, tensors = LAYOUTS[layout]
    target = runner()
    path = save_head(folder / "head", config, tensors)
    return target, load_head(kind, str(path), target, min_score)


def grown(target, head):
    """Logits behind a text's last token, and behind the head's own first guess."""
    source, cache = target.open(), head.runner.open()
    target.forward([Segment(source, TEXT[:-1], 0)])
    if head.runner.has_text:
        head.runner.follow(cache, lambda: source)
        assert head.runner.reach(cache) >= len(TEXT)
    first = head.runner.forward([Segment(cache, TEXT, 1, [-1], root=len(TEXT) - 1)])
    guess = int(first.argmax())
    second = head.runner.forward([Segment(cache, [guess, 9], 2, [-1, 0, 0], root=len(TEXT) - 1)])
    head.runner.close(cache)
    target.close(source)
    return torch.cat([first, second])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_guesses_what_the_target_says(layout, tmp_path):
    target, head = loaded(tmp_path, layout, 0.2 if layout != "eagle3, of 50 ids" else 0.1)
    assert head.scores[0][1] > (0.99 if layout != "eagle3, of 50 ids" else 0.15)
    logits = grown(target, head)
    if layout == "eagle3, of 50 ids":  # every fourth id
        assert logits[:, ::4].isfinite().all()
        assert logits.isfinite().sum() == 3 * 50
        return
    last = TEXT[-1]
    assert logits[0].argmax() == after(last)
    assert logits[1].argmax() == after(last, 2)
    # Medusa knows nothing of what stands between.
    assert logits[2].argmax() == (after(last, 2) if "medusa" in layout else after(9))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("medusa", "medusa, vllm"),
        ("eagle3", "eagle3, speculators"),
    ],
)
def test_layouts_of_one_head_give_the_same_bits(one, other, tmp_path):
    found = [grown(*loaded(tmp_path / layout, layout)) for layout in (one, other)]
    assert torch.equal(*found)


def test_an_early_exit_finds_its_layers():
    target = runner()
    head = load_head("early_exit", "", target, 0.2)
    assert head.scores[0] == (f"the first 2 of {LAYERS} layers", 1.0)  # the fewest that are tried
    assert grown(target, head).argmax(-1).tolist() == [after(33), after(33, 2), after(9)]
    assert load_head("early_exit", "5", target, 0.2).scores == (("the first 5 of 6 layers", 1.0),)


@pytest.mark.parametrize("value", ["0", "6", "x", "-1"])
def test_an_early_exit_of_no_such_layer(value):
    with pytest.raises(InvalidConfig, match="1 to 5"):
        load_head("early_exit", value, runner(), 0.2)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_the_order_of_what_it_reads_is_found(kind, is_reversed, tmp_path):
    tensors = eagle_tensors(is_reversed) if kind == "eagle" else eagle3_tensors(TARGET, is_reversed)
    path = save_head(tmp_path / "head", CONFIG, tensors)
    head = load_head(kind, str(path), runner(), 0.2)
    way, share = head.scores[0]
    assert share == 1.0
    assert ("state, embedding" in way.split(";")[1]) == is_reversed
    assert head.scores[-1][1] < 0.1


@pytest.mark.parametrize("told", [[0, 3, 4], [1, 3, 4]])
@pytest.mark.parametrize("sign", [1, -1])
def test_states_before_or_behind_a_layer_are_found(told, sign, tmp_path):
    """A config's number means one or the other; here they are opposites."""
    model = turning_target()
    config = CONFIG | {"eagle_aux_hidden_state_layer_ids": told}
    path = save_head(tmp_path / "head", config, eagle3_of_state(model, sign))
    head = load_head("eagle3", str(path), Runner(from_model(model), num_tokens=512), 0.2)
    way, share = head.scores[0]
    assert share == 1.0
    meant = told if (-1) ** told[0] == sign else [each + 1 for each in told]
    assert way.startswith(f"states {', '.join(map(str, meant))};")
    assert head.scores[-1][1] < 0.1


def test_a_head_for_another_target_is_refused_with_its_best(tmp_path):
    tensors = medusa_tensors(TARGET)
    for name in [name for name in tensors if name.endswith(".1.weight")]:
        tensors[name] = tensors[name].roll(1, 0)
    path = save_head(tmp_path / "head", {}, tensors)
    with pytest.raises(
        ModelRefused, match=r"medusa:.*head: got 0\.\d\d of first tokens right.*0.2"
    ):
        load_head("medusa", str(path), runner(), 0.2)
    assert load_head("medusa", str(path), runner(), 0.0).scores[0][1] < 0.2


def test_a_kind_that_it_is_not(tmp_path):
    path = save_head(tmp_path / "head", CONFIG, eagle_tensors())
    with pytest.raises(ModelRefused, match=f"accepted: eagle:{path}"):
        load_head("medusa", str(path), runner(), 0.2)


def _without(name):
    return lambda tensors: tensors.pop(name)


def _shaped(name, *shape):
    return lambda tensors: tensors.update({name: torch.zeros(*shape)})


@pytest.mark.parametrize(
    ("layout", "spoil", "message"),
    [
        ("medusa", _without("1.0.linear.weight"), "no tensor 'blocks.1.layers.0.weight'"),
        ("medusa", _shaped("2.1.weight", VOCAB, 3), r"lm_heads.2.weight' of shape \[200, 3\]"),
        ("medusa", _shaped("what", 3), "no medusa head is known to have: what"),
        ("eagle", _without("layers.0.mlp.down_proj.weight"), "no tensor 'layers.0.mlp.down_proj"),
        ("eagle", _shaped("fc.bias", 3), r"'fc.bias' of shape \[3\], expected \[64\]"),
        ("eagle", _shaped("mask_hidden", 3), "known to have: mask_hidden"),
        ("eagle3", _without("norm.weight"), "no tensor 'norm.weight'"),
        ("eagle3", _without("midlayer.hidden_norm.weight"), "no tensor 'layers.0.hidden_norm"),
        ("eagle3", _without("fc.weight"), ""),
        ("eagle3", _shaped("fc.weight", HIDDEN, 100), "reads 100 numbers, expected a multiple"),
        ("eagle3", _shaped("fc.weight", HIDDEN, 4 * HIDDEN), "over 4 of the target's states"),
        ("eagle3", _shaped("lm_head.weight", 50, HIDDEN), r"expected \[200, 64\]"),
        ("eagle3, of 50 ids", _shaped("d2t", 49), r"expected \[49, 64\]"),
        (
            "eagle3, of 50 ids",
            lambda tensors: tensors.update(d2t=torch.full((50,), VOCAB)),
            "target ids of 200 to 249",
        ),
    ],
)
def test_a_tensor_missing_misshapen_or_unknown(layout, spoil, message, tmp_path):
    kind, config, tensors = LAYOUTS[layout]
    tensors = dict(tensors)
    spoil(tensors)
    path = save_head(tmp_path / "head", config, tensors)
    if not message:  # fc may be left out where one state of the head's own width is read
        assert load_head(kind, str(path), runner(), 0.0).scores[0][1] == 1.0
        return
    with pytest.raises(ModelRefused, match=message):
        load_head(kind, str(path), runner(), 0.0)


@pytest.mark.parametrize("config", [{}, CONFIG | {"num_attention_heads": 3}])
def test_a_config_that_does_not_fit(config, tmp_path):
    path = save_head(tmp_path / "head", config, eagle_tensors())
    with pytest.raises(ModelRefused, match=r"num_attention_heads|3 heads of 21"):
        load_head("eagle", str(path), runner(), 0.0)


def test_nothing_is_left_open(tmp_path):
    target, head = loaded(tmp_path, "eagle3")
    assert target.num_free_pages == target.pool.num_pages == 32
    assert head.runner.num_free_pages == head.runner.pool.num_pages


@pytest.mark.parametrize("layout", ["eagle", "eagle3", "eagle3, of 50 ids"])
def test_compiled_code_computes_what_torch_does(layout, tmp_path):
    """Over random numbers, a tree and a text in pieces."""
    kind, config, tensors = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(4)
    drawn = {
        name: torch.randn(tensor.shape, generator=generator) / HIDDEN**0.5
        if tensor.is_floating_point()
        else tensor
        for name, tensor in tensors.items()
    }
    path = save_head(tmp_path / "head", config, drawn)
    found = []
    for is_compiled in (True, False):
        target = runner()
        head = load_head(kind, str(path), target, 0.0).runner
        assert head._compiled is not None
        head._compiled = head._compiled if is_compiled else None
        source, cache = target.open(), head.open()
        target.forward([Segment(source, TEXT, 0)])
        head.follow(cache, lambda source=source: source)
        rows = [head.forward([Segment(cache, TEXT[:3], 2)])]
        rows.append(head.forward([Segment(cache, TEXT[3:], 1, [-1], root=4)]))
        rows.append(head.forward([Segment(cache, [9, 8, 7], 3, [-1, 0, 0, 0], root=4)]))
        rows.append(head.forward([Segment(cache, [6], 1, [-1, 0, 0, 0, 2], root=4)]))
        found.append(torch.cat(rows))
    is_known = found[0].isfinite()
    assert torch.equal(is_known, found[1].isfinite())
    assert torch.allclose(found[0][is_known], found[1][is_known], atol=1e-4)
    assert found[0][is_known].std() > 0.1


@pytest.mark.parametrize("architecture", list(CONFIGS))
def test_any_target_that_is_served_can_have_one(architecture, tmp_path):
    """Also one whose rotation is none that a head could take."""
    target = Runner(from_model(build(architecture, VOCAB)), num_tokens=512)
    for kind in ("medusa", "eagle", "eagle3"):
        path = random_head(kind, HIDDEN, VOCAB, tmp_path / kind)
        head = load_head(kind, str(path), target, 0.0)
        assert head.scores[0][1] < 0.5  # of numbers by chance
        assert grown(target, head).isfinite().all()


def swapped(tensors):
    """As one who has the state before the embedding would save it."""
    for part in "qkv":
        name = f"layers.0.self_attn.{part}_proj.weight"
        tensors[name] = torch.cat(tensors[name].chunk(2, -1)[::-1], -1)


@pytest.mark.parametrize("told", [{}, {"norm_before_residual": False}], ids=["norm", "no norm"])
@pytest.mark.parametrize("ids", [[2, 17, 31], None, [5, 9, 20]], ids=str)
@pytest.mark.parametrize("change", [None, swapped], ids=["as it is", "swapped"])
def test_a_wrong_convention_of_a_trained_head_is_found_out(told, ids, change, tmp_path):
    """Of the demo's: whatever its files say, it is run as it was trained."""
    trained = DEMO / "eagle3"
    config = json.loads((trained / "config.json").read_text()) | told
    config["eagle_aux_hidden_state_layer_ids"] = ids
    tensors = load_file(trained / "model.safetensors")
    if change is not None:
        change(tensors)
    path = save_head(tmp_path / "head", config, tensors)
    target = Runner(load_model(DEMO / "target"), num_tokens=512)
    turn = UserTurn.of(Tokenizer(DEMO / "target"))
    head = load_head("eagle3", str(path), target, 0.2, lambda: turn)
    way, share = head.scores[0]
    assert share > 0.7  # over chats, as it was trained
    order = "embedding, state" if change is None else "state, embedding"
    assert way.startswith(f"states 2, 17, 31; {order}, normed residual"), head.scores
    wrong = [each for name, each in head.scores if order not in name or "normed" not in name]
    assert max(wrong) < share / 2
