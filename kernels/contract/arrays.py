"""The types of the arrays that backends take and give, and the checks of shape and range."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

F32: TypeAlias = NDArray[np.float32]


I32: TypeAlias = NDArray[np.int32]


U8: TypeAlias = NDArray[np.uint8]


U32: TypeAlias = NDArray[np.uint32]


U64: TypeAlias = NDArray[np.uint64]


class ContractError(ValueError):
    """Arrays that do not fit each other or the contract; the message says got and expected."""


def expect_array(
    name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    """Raise ContractError unless the array has this dtype and shape and is contiguous."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ContractError(
            f"Got {name} of shape {array.shape} and dtype {array.dtype}, "
            f"expected {shape} and {np.dtype(dtype)}, C-contiguous"
        )


def expect_within(name: str, values: NDArray[Any], low: float, high: float) -> None:
    """Raise ContractError unless low ≤ every value ≤ high."""
    for value in values.tolist():
        if not low <= value <= high:
            raise ContractError(f"Got {name}={value}, expected {low:g} ≤ {name} ≤ {high:g}")
