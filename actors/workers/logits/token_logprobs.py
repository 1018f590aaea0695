"""Raw log-probabilities for people, where the logits are: only what is told leaves the device."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from outrider.kernels.contract.arrays import F32, I32
from outrider.kernels.ops.logprobs import likeliest, logprobs_at


class AskedRow(NamedTuple):
    """What to tell of a row of logits."""

    row: int
    num_top: int  # of the likeliest ids, largest first
    ids: tuple[int, ...] = ()  # and of these, which come before them


def told_rows(logits: torch.Tensor, asked: Sequence[AskedRow]) -> list[tuple[I32, F32]]:
    """(ids, log-probabilities) of each row that is asked for. Shapes: logits [R, V].

    On the CPU each row by itself, so that nothing depends on the others; on a device all together,
    with one transfer. There it is unspecified which of equal logits count as the likeliest.
    """
    if not asked:
        return []
    if logits.device.type == "cpu":
        return [_told(logits[row].float().numpy(), num, ids) for row, num, ids in asked]
    return _told_together(logits, asked)


def _told(row: F32, num_top: int, ids: tuple[int, ...]) -> tuple[I32, F32]:
    told = np.concatenate((np.array(ids, np.int32), likeliest(row, num_top)))
    return told, logprobs_at(row, told)


def _told_together(logits: torch.Tensor, asked: Sequence[AskedRow]) -> list[tuple[I32, F32]]:
    places = torch.tensor([each.row for each in asked], device=logits.device)
    rows = logits.index_select(0, places).float()
    most = min(max(each.num_top for each in asked), rows.shape[1])
    width = max(len(each.ids) for each in asked)
    own = torch.tensor(
        [(*each.ids, *[0] * (width - len(each.ids))) for each in asked],
        dtype=torch.int64,
        device=rows.device,
    ).reshape(len(asked), width)
    ids = torch.cat((own, rows.topk(most).indices), dim=1)
    found = rows.gather(1, ids) - rows.logsumexp(1, keepdim=True)
    both = torch.cat((ids.double(), found.double()), dim=1).cpu().numpy()
    all_ids, all_found = np.split(both, 2, axis=1)
    told = []
    for each, row_ids, row in zip(asked, all_ids, all_found, strict=True):
        kept = np.r_[: len(each.ids), width : width + min(each.num_top, most)]
        told.append((row_ids[kept].astype(np.int32), row[kept].astype(np.float32)))
    return told
