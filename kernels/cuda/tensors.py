"""Whether the kernels can read a tensor of logits as it lies."""

import torch

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.contract.verdict import TILE
from outrider.kernels.cuda.kernels import ELEMENT_OF

MAX_WIDTH = 128 * TILE  # MAX_TILES of row.cuh
MAX_ROWS = 65_535  # of a grid's second dimension


def check_logits(name: str, logits: torch.Tensor, rows: int, device: torch.device) -> None:
    """Raise ContractError unless logits are [rows, V] of a known type on this device, each row
    contiguous."""
    shape, stride = list(logits.shape), logits.stride()
    if logits.device != device:
        raise ContractError(f"Got {name} on {logits.device}, expected {device}")
    if logits.dtype not in ELEMENT_OF:
        accepted = ", ".join(map(str, ELEMENT_OF))
        raise ContractError(f"Got {name} of {logits.dtype}, expected one of {accepted}")
    if len(shape) != 2 or shape[0] != rows or not 1 <= shape[1] <= MAX_WIDTH:
        raise ContractError(
            f"Got {name} of shape {shape}, expected [{rows}, V] with 1 ≤ V ≤ {MAX_WIDTH}"
        )
    if not 1 <= rows <= MAX_ROWS:
        raise ContractError(f"Got {rows} rows of {name}, expected 1 to {MAX_ROWS}")
    is_contiguous = stride[1] == 1 or shape[1] == 1
    if not is_contiguous or (rows > 1 and stride[0] < shape[1]):
        raise ContractError(
            f"Got {name} with strides {stride}, expected contiguous rows that do not overlap"
        )
