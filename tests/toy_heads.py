"""A target that is easily guessed, and heads that guess it: each built by hand, saved as others
save theirs.

The target's layers change nothing, so its hidden state is the last token's embedding, and its head
turns round a cycle of ids: after v comes `after(v)`, nearly always. A head that finds the embedding
of the token which it reads knows the next one; Medusa's head i knows the one i + 1 places behind.
"""

import json
import math

import torch
import transformers as hf
from safetensors.torch import save_file

VOCAB, HIDDEN, LAYERS, HEADS = 200, 64, 6, 4
STEP, SHARP = 7, 3.0  # ids round the cycle; of the logits

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}


def after(token, times=1, vocab=VOCAB):
    """What the target says behind a token.

    >>> after(190), after(190, 2)
    (197, 4)
    """
    return (token + STEP * times) % vocab


def cycling_target(vocab=VOCAB):
    """The model; every embedding has a mean square of 1."""
    sizes = {"num_hidden_layers": LAYERS, "vocab_size": vocab}
    config = hf.LlamaConfig(**CONFIG | sizes, bos_token_id=1, eos_token_id=2)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(vocab, HIDDEN, generator=generator)
    embeddings *= math.sqrt(HIDDEN) / embeddings.norm(dim=-1, keepdim=True)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(embeddings)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.lm_head.weight.copy_(guesses_of(model, 1))
    return model


def turning_target():
    """The same, but that each layer turns the state round: what goes into a layer is not what
    comes out of it.
    """
    sizes = {"num_hidden_layers": LAYERS, "attention_bias": True}
    config = hf.LlamaConfig(**CONFIG | sizes, bos_token_id=1, eos_token_id=2)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    straight = cycling_target().state_dict()
    with torch.no_grad():
        model.load_state_dict(straight, strict=False)
        for layer in model.model.layers:
            attention = layer.self_attn  # of each token to itself alone
            for part in (attention.q_proj, attention.k_proj):
                part.weight.zero_()
                part.bias.fill_(30.0)
            attention.v_proj.weight.copy_(torch.eye(HIDDEN))
            attention.v_proj.bias.zero_()
            attention.o_proj.weight.copy_(-2 * torch.eye(HIDDEN))
            attention.o_proj.bias.zero_()
    return model


def eagle3_of_state(model, sign):
    """An EAGLE-3 head that guesses out of the first of its three states, if that is turned so."""
    tensors = eagle3_tensors(model)
    tensors["midlayer.self_attn.v_proj.weight"] = torch.zeros(HIDDEN, 2 * HIDDEN)
    tensors["fc.weight"][:, :HIDDEN] = sign * torch.eye(HIDDEN)
    tensors["lm_head.weight"] = guesses_of(model, 2)
    return tensors


def guesses_of(model, times):
    """A head that says what comes so many places behind the token whose embedding it reads."""
    embeddings = model.model.embed_tokens.weight.detach()
    vocab = len(embeddings)
    order = torch.tensor([after(token, times, vocab) for token in range(vocab)])
    weight = torch.empty_like(embeddings)
    weight[order] = embeddings * (SHARP / math.sqrt(HIDDEN))
    return weight


def save_head(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: t.contiguous().clone() for name, t in tensors.items()}, folder / "model.safetensors"
    )
    return folder


def medusa_tensors(model, num_heads=4, num_blocks=1):
    """As FasterDecoding names them; the blocks change nothing."""
    tensors = {}
    for head in range(num_heads):
        for block in range(num_blocks):
            tensors[f"{head}.{block}.linear.weight"] = torch.zeros(HIDDEN, HIDDEN)
            tensors[f"{head}.{block}.linear.bias"] = torch.zeros(HIDDEN)
        tensors[f"{head}.{num_blocks}.weight"] = guesses_of(model, head + 2)
    return tensors


def in_vllm_layout(tensors, num_blocks=1):
    """The same Medusa heads."""
    renamed = {}
    for name, tensor in tensors.items():
        head, at, *rest = name.split(".")
        new = (
            f"lm_heads.{head}.weight"
            if int(at) == num_blocks
            else f"blocks.{head}.layers.{at}.{rest[-1]}"
        )
        renamed[f"medusa_heads.{new}"] = tensor
    return renamed


def _layer(read, prefix):
    zeros = torch.zeros
    return {
        **{f"{prefix}self_attn.{part}_proj.weight": zeros(HIDDEN, read) for part in "qkv"},
        f"{prefix}self_attn.o_proj.weight": zeros(HIDDEN, HIDDEN),
        **{f"{prefix}mlp.{part}_proj.weight": zeros(96, HIDDEN) for part in ("gate", "up")},
        f"{prefix}mlp.down_proj.weight": zeros(HIDDEN, 96),
        f"{prefix}post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def eagle_tensors(is_reversed=False):
    """EAGLE-1: what is read of the embedding is handed on."""
    parts = [torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)]
    return {
        "fc.weight": torch.cat(parts[::-1] if is_reversed else parts, -1),
        "fc.bias": torch.zeros(HIDDEN),
        **_layer(HIDDEN, "layers.0."),
    }


def eagle3_tensors(model, is_reversed=False, num_ids=None, num_states=3):
    """As SafeAILab names them. Each token attends to itself alone, and its embedding becomes its
    state.
    """
    zeros = torch.zeros
    tensors = _layer(2 * HIDDEN, "midlayer.")
    parts = [torch.eye(HIDDEN), -torch.eye(HIDDEN)]  # the state, to which it is added, goes
    value = torch.cat(parts[::-1] if is_reversed else parts, -1)
    tensors["midlayer.self_attn.v_proj.weight"] = value
    tensors["midlayer.self_attn.o_proj.weight"] = torch.eye(HIDDEN)
    for part in "qk":  # alike everywhere, so likest where nobody is turned away
        tensors[f"midlayer.self_attn.{part}_proj.bias"] = torch.full((HIDDEN,), 30.0)
    tensors["midlayer.self_attn.v_proj.bias"] = zeros(HIDDEN)
    tensors["midlayer.input_layernorm.weight"] = torch.ones(HIDDEN)
    tensors["midlayer.hidden_norm.weight"] = torch.ones(HIDDEN)
    tensors["fc.weight"] = zeros(HIDDEN, num_states * HIDDEN)
    tensors["norm.weight"] = torch.ones(HIDDEN)
    head = guesses_of(model, 1)
    if num_ids is None:
        tensors["lm_head.weight"] = head
    else:
        ids = torch.arange(num_ids) * (VOCAB // num_ids)
        tensors["lm_head.weight"] = head[ids]
        tensors["d2t"] = ids - torch.arange(num_ids)
        known = zeros(VOCAB, dtype=torch.bool)
        known[ids] = True
        tensors["t2d"] = known
    return tensors


def in_speculators_layout(tensors):
    """The same EAGLE-3 head, with its config."""
    layer = {name: CONFIG[name] for name in CONFIG if name not in ("architectures",)}
    config = {
        "speculators_model_type": "eagle3",
        "transformer_layer_config": layer,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": None,
    }
    return config, {
        name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()
    }


def random_head(kind, hidden, vocab, folder, fill=None):
    """A head that knows nothing; `fill` for all its numbers, else chance."""
    own = {"medusa": medusa_tensors(cycling_target()), "eagle": eagle_tensors()}
    own["eagle3"] = eagle3_tensors(cycling_target())
    generator, sizes = torch.Generator().manual_seed(1), {VOCAB: vocab}
    tensors = {}
    for name, tensor in own[kind].items():
        shape = [sizes.get(size) or size * hidden // HIDDEN for size in tensor.shape]
        if "mlp" in name:
            shape = [96 if size == 96 else size * hidden // HIDDEN for size in tensor.shape]
        tensors[name] = torch.randn(shape, generator=generator) / math.sqrt(shape[-1])
        if fill is not None:
            tensors[name].fill_(fill)
    return save_head(folder, CONFIG | {"hidden_size": hidden, "vocab_size": vocab}, tensors)
