"""The KV pool: token-major pages per layer, and the caches that hold them.

Knows pages, rows and lengths; not tokens, models or attention. Who may have which page is `pages`'
to know; a page that two caches share is never written.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from outrider.actors.errors import IllegalTransition, PoolExhausted
from outrider.actors.runner.kv.page_allocator import PageAllocator
from outrider.actors.runner.kv.row_moves import RowMoves, row_moves
from outrider.kernels.cuda.kernels import Launcher, why_unusable

HUGE_PAGE = 2 << 20  # bytes
Store = tuple[list[torch.Tensor], torch.Tensor | None]
Rows = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Shape = tuple[int, int, int]  # KV heads, key width, value width


@dataclass(slots=True, eq=False)
class PageTable:
    """One sequence's place in the pool: `len` rows in `pages`, 0 <= len <= pages * page size."""

    slot: int
    len: int = 0
    pages: list[int] = field(default_factory=list)
    is_open: bool = True


class KvPool:
    """Pages `[num_pages, page_size, kv_heads, width]` of keys and of values for every layer."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        *,
        num_tokens: int,
        page_size: int,
        max_rows: int,  # of one cache
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        has_spare: bool = False,  # a page that is nobody's: where a step's padding is written
    ) -> None:
        self.page_size = page_size
        self.num_pages = -(-num_tokens // page_size)
        self.spare_row = self.num_pages * page_size
        size = (self.num_pages + has_spare, page_size)
        self.keys, self._key_block = self._allocate(
            [(*size, heads, width) for heads, width, _ in shapes], dtype, device
        )
        self.values, self._value_block = self._allocate(
            [(*size, heads, width) for heads, _, width in shapes], dtype, device
        )
        self._layers: list[tuple[Rows, Rows]] = []
        self._arrays: tuple[Rows, Rows] | None = None
        self.features: torch.Tensor | None = None  # of each row's token, see runner/taps.py
        self.device, self._dtype = torch.device(device), dtype
        # Where one launch can make them; else a move is made at once.
        self.moves: RowMoves | None = None
        if self.device.type == "cuda" and why_unusable() is None:
            self.moves = row_moves(Launcher(self.device), self.stores())
        self._pages = PageAllocator(self.num_pages)
        self._free_slots: list[int] = []
        most_pages = min(self.num_pages, -(-max_rows // page_size))
        self.table: npt.NDArray[np.int32] = np.zeros((0, most_pages), np.int32)
        # Its changes (slot, place, page) since somebody who keeps a copy of it last looked.
        self.appended: list[tuple[int, int, int]] | None = None

    @staticmethod
    def _allocate(sizes: list[tuple[int, ...]], dtype: torch.dtype, device: str) -> Store:
        """One tensor a layer; where all layers agree they are views of one block."""
        if len(set(sizes)) == 1:
            block = _zeros((len(sizes), *sizes[0]), dtype, device)
            return list(block), block
        return [_zeros(size, dtype, device) for size in sizes], None

    def layer(self, number: int) -> tuple[Rows, Rows]:
        """One layer's keys and values as [rows, kv_heads, width]; CPU, float32."""
        while len(self._layers) <= number:
            at = len(self._layers)
            keys, values = (stores[at].flatten(0, 1).numpy() for stores in (self.keys, self.values))
            self._layers.append((keys, values))
        return self._layers[number]

    def arrays(self) -> tuple[Rows, Rows]:
        """Keys and values as [L, rows, kv_heads, width]; only where all layers have one shape."""
        if self._arrays is None:
            blocks = (self._key_block, self._value_block)
            keys, values = (block.flatten(1, 2).numpy() for block in blocks if block is not None)
            self._arrays = keys, values
        return self._arrays

    def keep_features(self, width: int) -> None:
        """Have room for so many numbers more beside each row; they move as it does."""
        size = (self.num_pages * self.page_size, width)
        self.features = _zeros(size, self._dtype, str(self.device))

    @property
    def num_free_pages(self) -> int:
        """Those included that are only kept, in case a text begins as theirs did."""
        return self._pages.num_free

    def open(self) -> PageTable:
        """A new, empty cache; it holds no page until something is written."""
        if not self._free_slots:
            old = len(self.table)
            new = max(8, old)
            self.table = np.concatenate(
                [self.table, np.zeros_like(self.table, shape=(new, self.table.shape[1]))]
            )
            self._free_slots = list(range(old, old + new))[::-1]
        return PageTable(self._free_slots.pop())

    def close(self, cache: PageTable) -> None:
        """Give a cache's pages back; closing twice is nothing."""
        if cache.is_open:
            self.truncate(cache, 0)
            cache.is_open = False
            self._free_slots.append(cache.slot)

    def reserve(self, wanted: Iterable[tuple[PageTable, int]]) -> None:
        """Pages for `num_tokens` more rows in each cache: all of them or none. What was moved lies
        there from here on.

        Raises PoolExhausted, with nothing changed, naming what is needed and what is free.
        """
        if self.moves:
            self.moves.make()
        short = [
            (cache, count)
            for cache, num in wanted
            if (count := -(-(cache.len + num) // self.page_size) - len(cache.pages)) > 0
        ]
        need = sum(count for _, count in short)
        if need > self._pages.num_free:
            raise PoolExhausted(
                f"This step needs {need} more pages of {self.page_size} tokens, "
                f"{self._pages.num_free} of {self.num_pages} are free"
            )
        room = self.table.shape[1]
        if any(len(cache.pages) + count > room for cache, count in short):
            raise PoolExhausted(f"A sequence may hold {room} pages, got one that needs more")
        for cache, count in short:
            for _ in range(count):
                self._append(cache, self._pages.take())

    def share(self, cache: PageTable, names: Sequence[bytes]) -> None:
        """Begin an empty cache with the pages of these names, as many as are there in a row."""
        if cache.pages or not cache.is_open:
            raise IllegalTransition("Only an open, empty cache can begin with shared pages")
        for name in names[: self.table.shape[1]]:
            page = self._pages.share(name)
            if page is None:
                break
            self._append(cache, page)
        cache.len = len(cache.pages) * self.page_size

    def name(self, cache: PageTable, first: int, names: Sequence[bytes]) -> None:
        """Let others share pages of a cache from `first` on: full, and as they will stay."""
        for at, name in enumerate(names, first):
            self._pages.name(cache.pages[at], name)

    def rows_of(self, slots: I64, places: I64) -> I64:
        """Where rows of caches lie, `places` counted from a cache's first. Shapes: [N] each."""
        size = self.page_size
        found: I64 = self.table[slots, places // size] * size + places % size
        return found

    def _append(self, cache: PageTable, page: int) -> None:
        self.table[cache.slot, len(cache.pages)] = page
        if self.appended is not None:
            self.appended.append((cache.slot, len(cache.pages), page))
        cache.pages.append(page)

    def truncate(self, cache: PageTable, length: int) -> None:
        """Roll a cache back to `length` rows; whole pages beyond it become free."""
        if not cache.is_open:
            raise IllegalTransition("This cache is closed")
        if not 0 <= length <= cache.len:
            raise IllegalTransition(
                f"Got a rollback to {length}, expected 0 ≤ length ≤ {cache.len}"
            )
        keep = -(-length // self.page_size)
        if length % self.page_size:
            self._pages.own(cache.pages[keep - 1])
        cache.len = length
        for page in reversed(cache.pages[keep:]):  # of a text that is kept its end goes first
            self._pages.give_back(page)
        del cache.pages[keep:]

    def row(self, cache: PageTable, position: int) -> int:
        """The pool row that holds `position` of a cache."""
        return cache.pages[position // self.page_size] * self.page_size + position % self.page_size

    def stores(self) -> list[torch.Tensor]:
        """Every layer's keys, then every layer's values, as rows."""
        return [store.flatten(0, 1) for store in (*self.keys, *self.values)]

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Copy pool rows `sources` onto `targets`, in every layer; no target is a later source."""
        extra = [] if self.features is None else [self.features]
        if self.device.type == "cpu" and self._dtype is torch.float32:  # NumPy takes microseconds
            arrays = [array for number in range(len(self.keys)) for array in self.layer(number)]
            for array in (*arrays, *(features.numpy() for features in extra)):
                array[targets] = array[sources]
            return
        if self.moves:
            self.moves.add(sources, targets)
        pools = [*extra, *(() if self.moves else self.stores())]
        if pools:
            source, target = (torch.tensor(rows, device=self.device) for rows in (sources, targets))
            for rows in pools:
                rows[target] = rows[source]


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """On the CPU its memory is taken when it is first written: NumPy asks for zeros, torch writes
    them. NumPy also asks for huge pages, of which the first tokens would take two a layer where a
    layer's rows began within one.
    """
    if device != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    assert dtype is torch.float32 or dtype.itemsize == 2
    num_bytes = math.prod(size) * dtype.itemsize
    block = np.zeros(num_bytes + HUGE_PAGE, np.uint8)
    start = -block.ctypes.data % HUGE_PAGE
    rows = block[start : start + num_bytes]
    return torch.from_numpy(rows).view(dtype).view(size)
