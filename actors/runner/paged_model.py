"""The Hugging Face model over the KV pool: any architecture, any device, its parts made faster."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from outrider.actors.runner.attention.gathered import GatheredAttention
from outrider.actors.runner.attention.interface import AttentionStep
from outrider.actors.runner.attention.probe import AttentionProbe
from outrider.actors.runner.forward_batch import POSITION, TOKEN_ID, WRITE, ForwardBatch
from outrider.actors.runner.gpu.choice import device_model, fused_body, is_device
from outrider.actors.runner.gpu.products import make_linears_exact
from outrider.actors.runner.kv.pool import KvPool
from outrider.actors.runner.model_loader import LoadedModel
from outrider.actors.runner.replacement import ModulePatches
from outrider.actors.runner.rms_norm import fuse_norms
from outrider.actors.runner.taps import LayerHooks, Tapped, Taps, parent_of_layers

if TYPE_CHECKING:
    from outrider.actors.runner.cpu.fused_model import FusedModel
    from outrider.actors.runner.cpu.parts import CpuParts
    from outrider.actors.runner.gpu.attention import TritonAttention
    from outrider.actors.runner.gpu.fused_body import FusedBody
    from outrider.actors.runner.gpu.staging import Staged


class ByRow(nn.Module):
    """Runs a block one token at a time: exact where the block's products depend on their rows."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """Shapes: hidden [1, T, H] → [1, T, H], and None for whatever else the block returns."""
        (hidden,) = (*inputs, *named.values())
        outs = [self.block(hidden[:, t : t + 1]) for t in range(hidden.shape[1])]
        if not isinstance(outs[0], tuple):
            return torch.cat(outs, 1)
        return torch.cat([out[0] for out in outs], 1), *[None] * (len(outs[0]) - 1)


def is_of_one(block: nn.Module) -> bool:
    """Whether it takes hidden states and nothing else, as an MLP does: attention takes more."""
    parameters = inspect.signature(block.forward).parameters.values()
    return sum(each.kind is not each.VAR_KEYWORD for each in parameters) == 1


class PagedModel:
    """The Hugging Face model itself, its parts replaced by faster equals.

    `most_tokens` is how many a step may have, found where the device had no memory for more.
    `level` is how much is replaced: 3 whole decoder layers, and the body is entered past its own
    forward or, where that is not known, past its decorators; 2 attention and MLP blocks, linears
    and norms; 1 linears and norms; 0 nothing.
    """

    def __init__(
        self, loaded: LoadedModel, traced: AttentionProbe, *, is_exact: bool, level: int
    ) -> None:
        self.model, self.device = loaded.model, loaded.device
        self.attention: Callable[[KvPool, ForwardBatch], AttentionStep]
        self.attention = partial(GatheredAttention, is_by_row=is_exact)
        # It would build a plan for every length: tens of milliseconds a step.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.changes = ModulePatches()
        self.level = level
        self.most_tokens = 1 << 30
        self.is_direct = level >= 2  # past the outer module, which only wraps body and head
        config = self.model.config.get_text_config()
        self.softcap: float = getattr(config, "final_logit_softcapping", None) or 0.0
        self.parts: CpuParts | None = None
        if not is_device(self.device):
            from outrider.actors.runner.cpu import parts  # numba comes with it

            self.parts = parts.CpuParts(
                loaded, traced, self.changes, is_exact=is_exact, level=level
            )
            self.attention = self.parts.attention or self.attention
        elif level >= 1:
            fuse_norms(self.model, self.changes)
        body = self.model.base_model
        self.body: Callable[..., Any] = body
        self.head = self.model.get_output_embeddings()
        is_whole = self.parts is not None and self.parts.fuse_body(body, self.head)
        if level == 3 and not is_whole:
            self.body = partial(inspect.unwrap(type(body).forward), body)
        self.num_layers = len(traced.shapes)
        self._taps: Taps | None = None
        self._hooks: LayerHooks | None = None
        self._num_run: int | None = None  # of the first layers, while only those run
        found = device_model(loaded, traced, self._staged, self._only_first, is_exact=is_exact)
        self.on_device, self._why_not = found
        self.fused_body: FusedBody | None = None
        if self.on_device is not None:
            if level == 3:
                self.fused_body = fused_body(body, traced, is_exact=is_exact)
        if is_exact and is_device(self.device):
            make_linears_exact(self.model, self.changes)
            self.head = self.model.get_output_embeddings()

    @property
    def depends_on_threads(self) -> bool:
        """Whether other threads may make other bits."""
        return self.parts is not None and self.parts.depends_on_threads

    @property
    def steps(self) -> tuple[str, str]:
        """How a device runs them, and why so; empty on the CPU."""
        if self.on_device is None or self.on_device.refusal:
            reason = self._why_not if self.on_device is None else self.on_device.refusal
            return ("launched one by one", reason) if reason else ("", "")
        layers = "layers as Hugging Face wrote them"
        return "CUDA graphs", layers if self.fused_body is None else "layers of ten launches"

    def isolate_experts(self) -> bool:
        """Run mixture-of-experts blocks by row; False where there are none."""
        found = False
        for parent in list(self.model.modules()):
            for name, child in list(parent.named_children()):
                if hasattr(child, "experts") and not isinstance(parent, ByRow) and is_of_one(child):
                    self.changes.swap(parent, name, ByRow(child))
                    found = True
        if found and self.on_device is not None:
            self.on_device.tap(self._hooks)  # what was captured has the blocks as they were
        return found

    def tap(self, taps: Taps | None) -> None:
        """Keep these of every token, beside its row of the pool. Raises ModelRefused."""
        boundaries = () if taps is None else taps.boundaries
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        if self._fused is not None:
            self._fused.boundaries = boundaries
        elif boundaries:
            self._hooks = LayerHooks(self.model, self.num_layers, boundaries)
        self._taps = taps
        if self.on_device is not None:
            self.on_device.tap(self._hooks)

    @property
    def _fused(self) -> "FusedModel | None":
        return None if self.parts is None else self.parts.fused

    def run(
        self, step: ForwardBatch, pool: KvPool, shift: int = 0, num_layers: int | None = None
    ) -> torch.Tensor:
        """Logits [W, V] of the step's wanted tokens: float32 on the CPU, as the model makes them
        elsewhere. The model is told positions that are so many further on than those of the pool.
        With fewer layers its norm and head stand behind those.
        """
        if self.on_device is not None and self.on_device.suits(step):
            logits, tapped = self.on_device.logits(step, pool, shift, num_layers)
        else:
            logits, tapped = self._by_parts(step, pool, shift, num_layers)
        if self._taps is not None and num_layers is None:
            self._keep(self._taps, tapped, step, pool)
        if self.is_direct and self.softcap:
            logits = torch.tanh(logits.float() / self.softcap) * self.softcap
        return logits if len(logits) == len(step.wanted) else logits[: len(step.wanted)]

    def _by_parts(
        self, step: ForwardBatch, pool: KvPool, shift: int, num_layers: int | None
    ) -> tuple[torch.Tensor, Tapped]:
        """By what stands for the model's parts, and what was tapped."""
        if step.drawn is not None:
            step.tokens[:, TOKEN_ID] = step.drawn.cpu().numpy()
        tokens, wanted = self._padded(step.tokens), self._padded(np.array(step.wanted, np.int64))
        if shift:
            tokens = tokens + shift * (np.arange(tokens.shape[1]) == POSITION)
        tapped: Tapped = {}
        if self._fused is not None:
            logits = torch.from_numpy(self._fused.logits(tokens, wanted, step, pool, num_layers))
            tapped, self._fused.tapped = self._fused.tapped, {}
        elif num_layers is None:
            logits = self._logits(tokens, wanted, step, pool)
        else:
            with self._only_first(num_layers):
                logits = self._logits(tokens, wanted, step, pool)
        if self._hooks is not None:
            tapped, self._hooks.tapped = self._hooks.tapped, {}
        return logits, tapped

    @torch.inference_mode()
    def _keep(self, taps: Taps, tapped: Tapped, step: ForwardBatch, pool: KvPool) -> None:
        assert pool.features is not None
        rows = torch.from_numpy(step.tokens[:, WRITE]).to(pool.features.device)
        pool.features[rows] = taps.of(tapped, len(step.tokens)).to(pool.features.dtype)

    @contextmanager
    def _only_first(self, num_layers: int) -> Iterator[None]:
        """The model without its later layers."""
        parent, name = parent_of_layers(self.model, self.num_layers)
        layers = getattr(parent, name)
        setattr(parent, name, nn.ModuleList(list(layers)[:num_layers]))
        self._num_run = num_layers
        try:
            yield
        finally:
            setattr(parent, name, layers)
            self._num_run = None

    @torch.inference_mode()
    def _logits(
        self,
        tokens: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        step: ForwardBatch,
        pool: KvPool,
    ) -> torch.Tensor:
        """The same through the modules, for the rows of a padded table."""
        table, wanted = (torch.from_numpy(rows).to(self.device) for rows in (tokens, places))
        logits = self._of_modules(table[:, 0], table[:, 1], self.attention(pool, step), wanted)
        return logits if self.parts is None else logits.float()

    def _staged(
        self, staged: "Staged", attention: "TritonAttention", wanted: torch.Tensor | None
    ) -> torch.Tensor:
        """The same of a step that is on the device; all its logits where no token is named."""
        if self.fused_body is not None:
            boundaries = () if self._taps is None else self._taps.boundaries
            hidden, tapped = self.fused_body.hidden(staged, attention, self._num_run, boundaries)
            if self._hooks is not None:
                self._hooks.tapped = tapped
            logits: torch.Tensor = self.head(
                hidden if wanted is None else hidden.index_select(0, wanted)
            )
            return logits
        return self._of_modules(staged.ids, staged.positions, attention, wanted)

    def _of_modules(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionStep,
        wanted: torch.Tensor | None,
    ) -> torch.Tensor:
        asked = {
            "input_ids": ids[None],
            "position_ids": positions[None],
            "use_cache": False,
            "step": attention,
        }
        if not self.is_direct:
            kept = 0 if wanted is None else wanted
            logits: torch.Tensor = self.model(**asked, logits_to_keep=kept).logits[0]
            return logits
        hidden = self.body(**asked)[0][0]
        if self._hooks is not None:
            self._hooks.tapped[self.num_layers + 1] = hidden
        logits = self.head(hidden if wanted is None else hidden.index_select(0, wanted))
        return logits

    def _padded(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """As many as packed linears take, so that none of them pads; what is added goes nowhere."""
        num_added = 0 if self.parts is None else self.parts.num_padding(len(rows))
        return np.concatenate((rows, rows[-1:].repeat(num_added, axis=0))) if num_added else rows
