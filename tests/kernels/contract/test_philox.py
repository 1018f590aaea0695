"""Philox against Random123's vectors, and our keys word by word (ARCHITECTURE.md, Noise)."""

import numpy as np
import pytest

from outrider.kernels.contract.philox import Purpose, noise_bits, philox4x32

# Random123, kat_vectors, philox4x32 10 rounds: counter, key (low word first), result.
VECTORS = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        0xFFFFFFFF_FFFFFFFF,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0_A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter: tuple[int, ...], key: int, expected: tuple[int, ...]) -> None:
    assert tuple(philox4x32(counter, key).tolist()) == expected


def test_noise_is_keyed_as_designed() -> None:
    ids = np.array([0, 5, 6, 151_935], np.int32)
    bits = noise_bits(ids, seed=2**64 - 3, choice=5, position=77, purpose=Purpose.FINAL)
    for token, word in zip(ids.tolist(), bits.tolist(), strict=True):
        assert word == philox4x32((token // 4, 77, 2 | 5 << 8, 0), 2**64 - 3)[token % 4]
    assert [int(purpose) for purpose in Purpose] == [0, 1, 2, 3]


def test_every_part_of_the_key_matters() -> None:
    ids = np.arange(64, dtype=np.int32)
    base = {"seed": 1, "choice": 0, "position": 3, "purpose": Purpose.TOKEN}
    others = [
        base | {"seed": 1 + 2**32},
        base | {"seed": 2},
        base | {"choice": 1},
        base | {"position": 4},
        *(base | {"purpose": purpose} for purpose in list(Purpose)[1:]),
    ]
    seen = [set(noise_bits(ids, **key).tolist()) for key in [base, *others]]
    assert len(set.union(*seen)) == len(seen) * len(ids)
