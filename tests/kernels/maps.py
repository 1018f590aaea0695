"""The compiled scalar arithmetic over arrays, beside the NumPy functions of the same names."""

import numba
import numpy as np

from outrider.kernels.contract.arrays import F32
from outrider.kernels.cpu import arithmetic


@numba.njit(error_model="numpy")
def hardware_fma(a: F32, b: F32, c: F32, out: F32) -> None:
    for i in range(len(a)):
        out[i] = arithmetic.fma(a[i], b[i], c[i])


@numba.njit(error_model="numpy")
def compiled_maps(
    x: F32, bits: np.ndarray, y: F32, exps: F32, exponentials: F32, logs: F32
) -> None:
    for i in range(len(x)):
        exps[i] = arithmetic.exp(x[i])
        exponentials[i] = arithmetic.exponential(bits[i])
        logs[i] = arithmetic.log(y[i])
