"""Runs CUDA sources on the CPU behind the call shape of `cupy.RawModule`.

    module = RawModule(code, name_expressions=["add<float>"])
    module.get_function("add<float>")((blocks,), (threads,), (x, y, np.int32(n)), seed=2, fill=0)

One fiber per CUDA thread, one at a time; `seed` chooses their order and `fill` the byte that shared
memory holds at first. What CUDA leaves undefined and a lucky run would hide is an `EmulatorError`
that names block, thread and line: divergent or missed barriers, lanes at different collectives or
not in their mask, too much shared memory, deadlock, arguments of the wrong size.

Floats are IEEE, subnormals included, without contraction. CuPy's -ftz=true would change that on a
GPU; that nothing in the machine code is left to it is shown by tests/kernels/machine_code.

With a `sanitizer` each launch is a process of its own, watched by ASan and UBSan or by TSan; what
they find is a `SanitizerError` (sanitized.py).

Not modelled: weak memory beyond TSan's happens-before, warps in step, occupancy, clusters, grid
barriers, approximate intrinsics.
"""

import ctypes
from collections.abc import Sequence

from kernels.emulator.arguments import Argument, ArgumentError, dimensions
from kernels.emulator.build import Sanitizer, build
from kernels.emulator.sanitized import run_sanitized
from kernels.emulator.structures import EmulatorError, LaunchStruct, as_structs

MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_SHARED_OPT_IN = 227 * 1024


class Kernel:
    """One kernel, to be called as CuPy's; `num_switches` counts the last launch's."""

    def __init__(self, module: "RawModule", index: int) -> None:
        self._module, self._index = module, index
        self.max_dynamic_shared_size_bytes = 48 * 1024  # raised by those who ask for more
        self.num_switches = 0

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[object],
        shared_mem: int = 0,
        stream: object = None,
        *,
        seed: int | None = None,
        fill: int | None = None,
        flush_denormals: bool = False,
    ) -> None:
        """Run the grid to its end.

        seed: 0 threads and blocks ascending, 1 descending, more: a random schedule of its own.
        Raises ArgumentError before anything runs, EmulatorError for what CUDA leaves undefined.
        """
        limit = self.max_dynamic_shared_size_bytes
        if not 0 <= shared_mem <= min(limit, MAX_SHARED_OPT_IN):
            raise ArgumentError(f"Got shared_mem={shared_mem}, expected 0 ≤ shared_mem ≤ {limit}")
        launch = LaunchStruct()
        launch.grid[:] = dimensions("grid", grid, MAX_GRID)
        launch.block[:] = x, y, z = dimensions("block", block, MAX_BLOCK)
        if x * y * z > MAX_THREADS:
            raise ArgumentError(
                f"Got a block of {x * y * z} threads, expected at most {MAX_THREADS}"
            )
        launch.shared_bytes = shared_mem
        launch.seed = self._module.seed if seed is None else seed
        launch.poison = self._module.fill if fill is None else fill
        launch.flush_denormals = flush_denormals
        self._module.launch(self._index, launch, [Argument.of(given) for given in args])
        self.num_switches = launch.num_switches


class RawModule:
    """Kernels of one source. `seed` and `fill` are the schedule of launches that name none."""

    def __init__(
        self,
        code: str,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] = (),
        *,
        sanitizer: Sanitizer | None = None,
        seed: int = 0,
        fill: int = 0xFF,
    ) -> None:
        self._names, self._sanitizer = list(name_expressions), sanitizer
        self.seed, self.fill = seed, fill
        self._path = build(code, self._names, options, sanitizer)
        # PyDLL holds the GIL: a library runs one launch at a time.
        self._library = None if sanitizer else ctypes.PyDLL(str(self._path))

    def get_function(self, name: str) -> Kernel:
        if name not in self._names:
            raise ValueError(f"Got kernel {name!r}, expected one of {self._names}")
        return Kernel(self, self._names.index(name))

    def launch(self, index: int, launch: LaunchStruct, arguments: Sequence[Argument]) -> None:
        """Run kernel `index` here, or under the sanitizer."""
        if self._sanitizer:
            run_sanitized(self._path, self._sanitizer, index, launch, arguments)
            return
        assert self._library
        structs = as_structs(arguments)
        if self._library.emulator_launch(ctypes.byref(launch), index, structs, len(arguments)):
            raise EmulatorError(launch.error.decode())
