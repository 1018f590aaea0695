"""What begins late, or is hidden in a class of its own, is run as the model says, or refused."""

from typing import Any

import pytest
import torch
import transformers as hf
from transformers.models.llama import modeling_llama as llama

from outrider.actors.errors import ModelRefused
from outrider.actors.runner.attention.probe import trace
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.selftest import MOST_STARTS, TEXT_LEN, sample_tokens, starts

FAR, CONTEXT = 8192, 16_384
SHAPE = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT,
}


def strong(model: Any) -> Any:
    """Logits of order one, attention that matters."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def scaled_from(at: int, beta: float = 1.0, context: int = CONTEXT) -> Any:
    rope = {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": beta}
    rope["original_max_position_embeddings"] = at
    shape = SHAPE | {"max_position_embeddings": context}
    return strong(hf.Ministral3ForCausalLM(hf.Ministral3Config(**shape, rope_parameters=rope)))


@torch.inference_mode()
def end_of(model: Any, ids: list[int]) -> torch.Tensor:
    model.set_attn_implementation("sdpa")
    logits: torch.Tensor = model(torch.tensor([ids]), use_cache=False, logits_to_keep=8).logits[0]
    return logits


def runners_end(model: Any, ids: list[int]) -> torch.Tensor:
    runner = Runner(from_model(model), num_tokens=len(ids) + 64)
    cache = runner.open()
    for at in range(0, len(ids) - 8, 1024):
        runner.forward([Segment(cache, ids[at : min(at + 1024, len(ids) - 8)], 1)])
    return runner.forward([Segment(cache, ids[-8:], 8)])


def test_a_scale_that_grows_far_from_the_start_is_run_exactly() -> None:
    ids = torch.randint(0, 100, (FAR + 40,), generator=torch.Generator().manual_seed(3)).tolist()
    wanted = end_of(scaled_from(FAR), ids)
    without = end_of(scaled_from(CONTEXT), ids)
    assert (wanted - without).abs().max() > 1e-2  # it matters
    got = runners_end(scaled_from(FAR), ids)
    assert (got - wanted).abs().max() < 1e-3 * wanted.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("scale", "is_rotary"),
    [(None, True), ((FAR, 1.0), False), ((FAR, 0.1), False), ((CONTEXT, 0.1), True)],
)
def test_rotary_in_any_precision(
    dtype: torch.dtype, scale: tuple[int, float] | None, is_rotary: bool
) -> None:
    """A scale of 7 % is seen through rounding; one that begins behind the context is none."""
    model = strong(hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE)))
    if scale is not None:
        model = scaled_from(*scale)
    loaded = from_model(model.to(dtype))
    assert trace(loaded, sample_tokens(100, TEXT_LEN)).is_rotary == is_rotary


def test_a_scale_near_the_end_of_a_long_context_is_seen_through_rounding() -> None:
    """Beyond where logits are compared: there the lengths of queries tell."""
    for start, is_rotary in ((40_000, False), (65_536, True)):
        loaded = from_model(scaled_from(start, 0.1, 65_536).to(torch.bfloat16))
        assert trace(loaded, sample_tokens(100, TEXT_LEN)).is_rotary == is_rotary


class LateAttention(llama.LlamaAttention):
    """Another model beyond a position that no config names."""

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        late = (kwargs["position_ids"] >= FAR)[..., None].to(hidden_states.dtype)
        return super().forward(hidden_states * (1 + late), *args, **kwargs)


class SilentLayer(llama.LlamaDecoderLayer):
    """Hands its attention nothing but what it knows."""

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> Any:
        known = ("attention_mask", "position_embeddings", "position_ids")
        return super().forward(hidden_states, **{name: kwargs.get(name) for name in known})


class ViewingAttention(llama.LlamaAttention):
    """Takes it that what comes of attention lies in one piece, as that of HF's functions does."""

    def forward(self, hidden_states: torch.Tensor, position_embeddings: Any, **kwargs: Any) -> Any:
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        asked, keys, values = (
            project(hidden_states).view(shape).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        asked, keys = llama.apply_rotary_pos_emb(asked, keys, *position_embeddings)
        attend = llama.ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, llama.eager_attention_forward
        )
        mask = kwargs.pop("attention_mask", None)
        out, _ = attend(self, asked, keys, values, mask, scaling=self.scaling, **kwargs)
        return self.o_proj(out.view(*shape[:-2], -1)), None


def changed(monkeypatch: pytest.MonkeyPatch, name: str, kind: type) -> Any:
    """A Llama one of whose classes is another."""
    monkeypatch.setattr(llama, name, kind)
    return strong(hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE)))


def test_what_begins_late_without_a_word_is_run_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.randint(0, 100, (FAR + 40,), generator=torch.Generator().manual_seed(3)).tolist()
    model = changed(monkeypatch, "LlamaAttention", LateAttention)
    wanted = end_of(model, ids)
    got = runners_end(model, ids)
    assert (got - wanted).abs().max() < 1e-3 * wanted.abs().max().clamp(min=1.0)


def test_a_class_that_keeps_keywords_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = changed(monkeypatch, "LlamaDecoderLayer", SilentLayer)
    with pytest.raises(ModelRefused, match="LlamaForCausalLM fails in its own forward, or with an"):
        Runner(from_model(model), num_tokens=64)


def test_a_class_that_views_what_attention_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    model = changed(monkeypatch, "LlamaAttention", ViewingAttention)
    ids = list(range(30))
    wanted = end_of(model, ids)
    assert (runners_end(model, ids) - wanted).abs().max() < 1e-3 * wanted.abs().max()


def test_a_class_that_fails_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model = changed(monkeypatch, "LlamaMLP", llama.LlamaMLP)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no kernel of mine\nand a long story")

    monkeypatch.setattr(type(model.model.layers[0].mlp), "forward", fail)
    with pytest.raises(ModelRefused) as refused:
        Runner(from_model(model), num_tokens=64)
    assert str(refused.value).endswith("RuntimeError: no kernel of mine")


def test_the_config_says_where_to_look() -> None:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = hf.LlamaConfig(**SHAPE | {"max_position_embeddings": 131_072}, rope_parameters=rope)
    assert starts(config, 131_072) == [0, 8192 - TEXT_LEN // 2, 131_072 - TEXT_LEN]
    window = hf.MistralConfig(**SHAPE, sliding_window=4096)
    assert starts(window, CONTEXT) == [0, 4096 - TEXT_LEN // 2, CONTEXT - TEXT_LEN]
    assert starts(hf.GPT2Config(n_positions=TEXT_LEN), TEXT_LEN) == [0]
    assert len(starts(hf.LlamaConfig(**SHAPE), CONTEXT)) <= MOST_STARTS
