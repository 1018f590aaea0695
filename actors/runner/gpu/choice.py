"""Whether a model runs by our kernels and CUDA graphs here, and if not why."""

import importlib.util
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.gpu.staging import MANY_ROWS
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.structure import NotRecognised

if TYPE_CHECKING:  # Triton comes with it
    from outrider.actors.runner.gpu.device_model import DeviceModel, Forward, Replayer
    from outrider.actors.runner.gpu.fused_body import FusedBody

log = logging.getLogger(__name__)


def is_device(device: str) -> bool:
    """Whether a model there is run by what is in this folder."""
    return device.startswith("cuda")


def replayer() -> "Replayer":
    from outrider.actors.runner.gpu.device_model import CudaGraphs

    return CudaGraphs()


def device_model(
    loaded: LoadedModel,
    traced: AttentionProbe,
    forward: "Forward",
    only_first: Callable[[int], AbstractContextManager[None]],
    *,
    is_exact: bool,
) -> "tuple[DeviceModel | None, str]":
    """What runs a model's steps on a device, or None and why; on the CPU there is no reason."""
    if not is_device(loaded.device):
        return None, ""
    if reason := _why_not(traced):
        return None, reason
    from outrider.actors.runner.gpu.device_model import DeviceModel

    exact_len = loaded.context_len if is_exact else 0
    return DeviceModel(traced, forward, only_first, lambda: replayer(), exact_len=exact_len), ""


def fused_body(body: Any, traced: AttentionProbe, *, is_exact: bool) -> "FusedBody | None":
    """The body's layers as few launches, or None where they are of another structure."""
    from outrider.actors.runner.gpu.fused_body import FusedBody

    try:
        return FusedBody(body, traced, is_exact=is_exact)
    except NotRecognised as reason:
        log.info("layers run as Hugging Face wrote them: %s", reason)
        return None


def _why_not(traced: AttentionProbe) -> str:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    groups = {heads / kv[0] for heads, kv in zip(traced.num_heads, traced.shapes, strict=True)}
    if len(groups) != 1 or not next(iter(groups)) <= MANY_ROWS:
        return f"got {sorted(groups)} query heads a KV head, expected one number up to {MANY_ROWS}"
    if len({kv[0] for kv in traced.shapes}) != 1:
        return "its layers differ in KV heads"
    return ""
