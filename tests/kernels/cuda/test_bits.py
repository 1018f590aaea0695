"""Emulated kernels give the oracle's bytes, whatever the schedule and the poison."""

import itertools
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from kernels.cases import same_bits
from kernels.cuda.batches import batches, run
from kernels.cuda.comparison import differences
from kernels.cuda.emulated import emulated

from outrider.kernels.contract.verdict import TILE

NUM_PARTS = 8
# 5,100 batches of two proposals or three draws: rules, filters, kinds of draft rows, dtypes, k 0-8.
COUNTS = {5: 1500, 60: 1500, 300: 1200, 1003: 700, TILE: 80, TILE + 3: 80, 2 * TILE + 9: 40}
LARGE = {32_000: 4, 50_257: 4, 151_936: 3, 152_064: 3}


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Of as many processes as cores; spawned, because torch's threads do not survive a fork."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize(("width", "count"), [*COUNTS.items(), *LARGE.items()])
def test_bytes_equal_the_oracles(workers: ProcessPoolExecutor, width: int, count: int) -> None:
    parts = [range(first, count, NUM_PARTS) for first in range(NUM_PARTS)]
    found = workers.map(differences, itertools.repeat(width), parts)
    assert list(itertools.chain(*found)) == []


def test_there_are_five_thousand_batches() -> None:
    assert sum(COUNTS.values()) >= 5_000


def more_of(part: Any) -> Any:
    """Every array of it twice, one behind the other."""
    if isinstance(part, torch.Tensor):
        return torch.cat((part, part))
    if isinstance(part, np.ndarray):
        return np.concatenate((part, part))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(
        part,
        **{each.name: more_of(getattr(part, each.name)) for each in fields(part) if each.init},
    )


@pytest.mark.parametrize("width", [60, 1003])
def test_items_beside_others_have_the_same_bytes(width: int) -> None:
    """So what a batch is padded with changes nothing: verify, draw, and the filters of both."""
    backend = emulated()
    for batch in batches(width, range(40)):
        first, more = run(batch, backend), run(more_of(batch), backend)
        for name in first.__slots__:
            once, both = getattr(first, name), getattr(more, name)
            assert both.tobytes() == once.tobytes() * 2, (width, name)


@pytest.mark.parametrize("width", [300, 2 * TILE + 9])
def test_bytes_do_not_depend_on_schedule_or_poison(width: int) -> None:
    backend = emulated()
    for batch in batches(width, range(5)):
        first = run(batch, backend)
        for seed, fill in itertools.product((0, 1, 7), (0x00, 0xA5)):
            got = run(batch, emulated(seed, fill))
            assert not same_bits(got, first), (width, seed, fill)
