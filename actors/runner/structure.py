"""What attention modules, MLPs, decoder layers and bodies of the common kind are made of.

Recognised by their parts, not by name of model: q, k, v (or fused qkv) and o projections with
optional per-head norms; gate and up (or fused) and down projections; pre-norm layers of the two.
What is not of that structure stays as it is, and the self-test guards what stands for a part.
Knows no device: the CPU's compiled layers and the GPU's are made from this.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.rms_norm import RmsNorm, as_rms_norm

SILU, GELU_TANH = range(2)


class NotRecognised(Exception):
    """A module is not of the structure that something faster can stand for; says what it met."""


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """Of a layer whose queries, keys and values are the outputs of `qkv`, side by side."""

    layer: int
    qkv: list[nn.Linear]
    out: nn.Linear
    norms: tuple[RmsNorm | None, RmsNorm | None]  # of each head of queries, of keys
    heads: int
    kv_heads: int
    width: int  # of a head

    @property
    def eps(self) -> float:
        return max((norm.eps for norm in self.norms if norm is not None), default=0.0)


def attention_parts(attention: Any, trace: AttentionProbe) -> AttentionParts:
    """Raises NotRecognised."""
    layer: int = attention.layer_idx
    params, (kv_heads, width, value_width) = trace.params[layer], trace.shapes[layer]
    heads = trace.num_heads[layer]
    names = ["qkv_proj"] if hasattr(attention, "qkv_proj") else ["q_proj", "k_proj", "v_proj"]
    parts = _linears(attention, names, "attention")
    (out,) = _linears(attention, ["o_proj"], "attention")
    norms = [getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)]
    _account(attention, [*parts, out, *norms])
    if params.sinks.numel() or value_width != width:
        raise NotRecognised("attention sinks, or values of another width than keys")
    if sum(part.out_features for part in parts) != (heads + 2 * kv_heads) * width:
        raise NotRecognised("projections of another width than the heads")
    found = [None if norm is None else _norm(norm) for norm in norms]
    if any((norm is None) != (fast is None) for norm, fast in zip(norms, found, strict=True)):
        raise NotRecognised("a head norm that is no RMSNorm")
    if any(norm is not None and norm.weight.numel() != width for norm in found):
        raise NotRecognised("a head norm of another width than a head")
    return AttentionParts(layer, parts, out, (found[0], found[1]), heads, kv_heads, width)


@dataclass(frozen=True, slots=True)
class MlpParts:
    """down(act(gate) * up), gate and up the outputs of `gates`, side by side."""

    gates: list[nn.Linear]
    down: nn.Linear
    activation: int  # SILU or GELU_TANH


def mlp_parts(mlp: Any) -> MlpParts:
    """Raises NotRecognised."""
    names = ["gate_up_proj"] if hasattr(mlp, "gate_up_proj") else ["gate_proj", "up_proj"]
    (down,) = _linears(mlp, ["down_proj"], "an MLP")
    gates = _linears(mlp, names, "an MLP")
    _account(mlp, [*gates, down])
    return MlpParts(gates, down, _activation(mlp))


@dataclass(frozen=True, slots=True)
class LayerParts:
    """x += attention(before(x)); x += mlp(between(x))."""

    before: Any
    attention: Any
    between: Any
    mlp: Any


def layer_parts(layer: Any) -> LayerParts:
    """Raises NotRecognised."""
    names = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
    children = {n: c for n, c in layer.named_children() if not isinstance(c, nn.Dropout)}
    if tuple(sorted(children)) != tuple(sorted(names)):
        raise NotRecognised(f"a layer of {', '.join(children)}")
    return LayerParts(*(children[name] for name in names))


def check_body(body: Any) -> None:
    """It embeds, rotates, runs its layers and norms what comes out. Raises NotRecognised."""
    children = dict(body.named_children())
    if set(children) != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        raise NotRecognised(f"a body of {', '.join(children)}")


def _norm(module: nn.Module) -> RmsNorm | None:
    return module if isinstance(module, RmsNorm) else as_rms_norm(module)


def _linears(module: Any, names: list[str], what: str) -> list[nn.Linear]:
    found = [getattr(module, name, None) for name in names]
    if any(type(linear) is not nn.Linear for linear in found):
        raise NotRecognised(f"{what} without {', '.join(names)} projections")
    return found  # type: ignore[return-value]


def _activation(mlp: Any) -> int:
    """Which of the known activations an MLP uses, told by trying."""
    function = getattr(mlp, "act_fn", None) or getattr(mlp, "activation_fn", None)
    x = torch.linspace(-6, 6, 97)
    known = ((SILU, F.silu(x)), (GELU_TANH, F.gelu(x, approximate="tanh")))
    for name, values in known:
        if function is not None and torch.allclose(function(x), values, atol=1e-6):
            return name
    raise NotRecognised("an activation other than SiLU and tanh-GELU")


def _account(module: nn.Module, parts: list[nn.Module | None]) -> None:
    """Every parameter of a module must be in one of the parts we know. Raises NotRecognised."""
    known = {id(p) for part in parts if part is not None for p in part.parameters()}
    if any(id(parameter) not in known for parameter in module.parameters()):
        raise NotRecognised(f"{type(module).__name__} has more parameters than its projections")
