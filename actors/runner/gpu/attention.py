"""One step's attention by the Triton kernels: what they are told, and how keys are split."""

from dataclasses import dataclass

import torch
import triton

from outrider.actors.runner.attention.interface import AttentionParams
from outrider.actors.runner.gpu.attention_kernels import attend_split, merge_splits, write_rows
from outrider.actors.runner.gpu.staging import FEW_ROWS, WORDS, Staged
from outrider.actors.runner.kv.pool import KvPool

# Keys. On an H100, with 8B's shapes, the fastest for one token behind 512 and 4,096 of them; 7 %
# slower than 256 for six tokens behind 4,096. Fewer were not tried.
LEAST_SPLIT = 128
MOST_SPLITS, MERGED_AT_ONCE = 512, 16  # one machine code for any number of splits
FEW_BYTES = 256  # of a head in one row: wider ones take fewer keys at once


@dataclass(frozen=True, slots=True)
class Splits:
    """How the keys of every sequence are cut: `number` parts of `size` keys at most."""

    number: int
    size: int


def splits_of(most_keys: int, num_groups: int, programs: int) -> Splits:
    """Enough parts of the keys of so many tiles' KV heads to fill the card, none of them small."""
    most = min(MOST_SPLITS, max(1, -(-programs // num_groups)))
    number = min(most, -(-most_keys // LEAST_SPLIT))
    size = max(LEAST_SPLIT, -(-most_keys // number))
    return Splits(number, -(-size // 64) * 64)


def exact_splits_of(most_keys: int, context_len: int) -> Splits:
    """Of one size, whatever a step holds: as small as the longest text allows."""
    size = max(LEAST_SPLIT, -(-context_len // MOST_SPLITS // 64) * 64)
    return Splits(-(-most_keys // size), size)


def programs_of(device: torch.device) -> int:
    """That fill a card: two a multiprocessor, of which an H100 has 132. It is taken for one where
    there is none.
    """
    if device.type != "cuda":
        return 264
    found: int = torch.cuda.get_device_properties(device).multi_processor_count
    return 2 * found


class TritonAttention:
    """Of one step; its tensors may be those of a graph."""

    def __init__(self, pool: KvPool, step: Staged, rows: int, splits: Splits) -> None:
        self.pool, self.step, self.rows, self.splits = pool, step, rows, splits

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Shapes: as pool_attention's."""
        layer: int = module.layer_idx  # type: ignore[assignment]
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        step, splits = self.step, self.splits
        store(key, value, keys, values, step.write)
        out = attend(
            query[0].transpose(0, 1), keys, values, step.at, step.ends, step.masks, step.nodes,
            step.offsets, step.tiles, step.table, params.sinks if params.sinks.numel() else None,
            params.scale, params.softcap, params.window, self.rows, splits.number, splits.size,
        )  # fmt: skip
        return out[None]


def store(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    write: torch.Tensor,
) -> None:
    """Into pool rows. Shapes: key and value [1, Hk, T, D], keys and values [pages, page, Hk, D]."""
    key, value = (x[0] if x.stride(-1) == 1 else x[0].contiguous() for x in (key, value))
    kv_heads, num_tokens, width = key.shape
    value_width = value.shape[-1]
    write_rows[num_tokens, kv_heads](
        key, value, keys, values, write,
        key.stride(0), key.stride(1), value.stride(0), value.stride(1),
        kv_heads, width, value_width, _power_of_two(width), _power_of_two(value_width),
        num_warps=1,
    )  # fmt: skip


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    at: torch.Tensor,
    ends: torch.Tensor,
    masks: torch.Tensor,
    nodes: torch.Tensor,
    offsets: torch.Tensor,
    tiles: torch.Tensor,
    table: torch.Tensor,
    sinks: torch.Tensor | None,
    scale: float,
    softcap: float,
    window: int,
    rows: int,
    num_splits: int,
    per_split: int,
) -> torch.Tensor:
    """Shapes: query [T, H, D], keys and values [pages, page, Hk, D], sinks [H], the rest as
    `Staged` has it → [T, H, Dv].
    """
    if query.stride(-1) != 1:
        query = query.contiguous()
    num_tokens, heads, width = query.shape
    _, page, kv_heads, value_width = values.shape
    group, num_tiles = heads // kv_heads, len(tiles)
    block, value_block = _power_of_two(width), _power_of_two(value_width)
    out = query.new_empty(num_tokens, heads, value_width)
    is_exact = nodes.numel() > 0
    is_direct = num_splits == 1 and not is_exact
    room = 0 if is_direct else num_tokens * heads * num_splits
    sums = query.new_empty(room * value_block, dtype=torch.float32)
    stats = query.new_empty(room * 2, dtype=torch.float32)
    has_sinks, given = sinks is not None, query if sinks is None else sinks
    few = block * query.element_size() > FEW_BYTES
    attend_split[num_tiles, kv_heads, num_splits](
        query, keys, values, table, tiles, at, ends, masks, nodes, offsets, given, sums, stats, out,
        scale, softcap, window, per_split, num_splits, table.stride(0),
        query.stride(1), query.stride(0),
        group, kv_heads, width, value_width, block, value_block, rows, 32 if few else 64,
        page, WORDS, softcap != 0.0, has_sinks, is_direct, is_exact,
        "ieee" if query.dtype == torch.float32 else "tf32",
        num_warps=4 if rows == FEW_ROWS else 8, num_stages=2,
    )  # fmt: skip
    if not is_direct:
        merge_splits[num_tiles, kv_heads * rows](
            tiles, given, sums, stats, out, per_split, num_splits,
            group, kv_heads, value_width, value_block, rows,
            MOST_SPLITS, MERGED_AT_ONCE, has_sinks,
            num_warps=2,
        )  # fmt: skip
    return out


def _power_of_two(number: int) -> int:
    return max(16, int(triton.next_power_of_2(number)))
