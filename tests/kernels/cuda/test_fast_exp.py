"""The build with the hardware's exponential: near the contract, greedy verdicts its very own.

The emulator's exponential is exp2f, nearer than a GPU's; test_gpu.py has the same on one.
"""

import itertools

from kernels.cases import far_apart, same_bits
from kernels.cuda.batches import BF16, batches
from kernels.cuda.emulated import CPU, emulated, loader

from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.cuda.backend import CudaBackend
from outrider.kernels.cuda.kernels import Module

TOLERANCE = 2e-5  # of a probability: a quotient of exponentials, each to 2**-17


def test_verdicts_and_draws_are_near_the_contracts() -> None:
    """Their tokens too: none of these decisions hangs on a probability's last bits."""
    fast, cpu = emulated(fast_exp=True), CpuBackend()
    num_other_bits = 0
    for batch in itertools.chain(batches(1003, range(80), BF16), batches(4099, range(20), BF16)):
        got, expected = batch.run(fast), batch.expected(cpu)
        assert not far_apart(got, expected, TOLERANCE)
        num_other_bits += bool(same_bits(got, expected))
    assert num_other_bits > 20, "the switch switches nothing"


def test_it_is_off_unless_asked_for() -> None:
    """The define is in the source, so in the key of CuPy's cache too."""
    compiled: list[str] = []

    def load(code: str, names: tuple[str, ...]) -> Module:
        compiled.append(code)
        return loader()(code, names)

    batch = next(batches(5, range(1), BF16))
    for backend in (CudaBackend(CPU, load), CudaBackend(CPU, load, fast_exp=True)):
        batch.run(backend)
    plain = compiled[: len(compiled) // 2]
    assert all("#define FAST_EXP" not in code for code in plain)
    assert compiled[len(plain) :] == ["#define FAST_EXP\n" + code for code in plain]
