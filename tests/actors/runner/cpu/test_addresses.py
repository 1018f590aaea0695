"""Compiled code gives the same bits wherever its arrays lie, and in every process.

Loops that write one array and read others are compiled twice, and which of the two runs is decided
by addresses: far apart, or one right behind another. And a process may have compiled the code, or
loaded what another one kept.
"""

import os
import random
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from outrider.actors.runner.cpu import jit, layer_ops, paged_attention
from outrider.actors.runner.structure import GELU_TANH, SILU

FAR, NEAR = 4096, 80  # floats between two arrays
EPS = np.float32(1e-6)


def placed(arrays, most, rng):
    """Copies in one piece of memory, in any order, up to so many floats apart."""
    order, gaps = list(arrays), [rng.randint(most // 2 if most == FAR else 0, most) for _ in arrays]
    rng.shuffle(order)
    memory = np.zeros(sum(map(np.size, arrays.values())) + sum(gaps) + 16, np.float32)
    found, at = {}, -(memory.ctypes.data // 4) % 16
    for name, gap in zip(order, gaps, strict=True):
        given, at = arrays[name], at + gap
        found[name] = memory[at : at + given.size].reshape(given.shape)
        found[name][...] = given
        at += given.size
    return found


def norm(numbers, width):
    x, weight, delta = numbers(3, width), numbers(width), numbers(3, width)
    yield (
        {"x": x, "weight": weight, "out": x},
        lambda a: layer_ops.norm_rows(a["x"], a["weight"], EPS, a["out"]),
    )
    yield (
        {"x": x, "delta": delta, "weight": weight, "out": x},
        lambda a: layer_ops.add_norm_rows(a["x"], a["delta"], a["weight"], EPS, a["out"]),
    )


def gate(numbers, width):
    for activation in (SILU, GELU_TANH):
        yield (
            {"x": numbers(3, 2 * width), "out": numbers(3, width)},
            lambda a, activation=activation: layer_ops.gate_rows(a["x"], activation, a["out"]),
        )


def attention(numbers, width):
    """Heads of such a width, normed and rotated, and what comes of them."""
    heads, kv_heads, num = 4, 2, 3
    tokens = np.array([[0, at, 0, at + 1, 0, 5 + at] for at in range(5, 5 + num)], np.int64)
    table = np.zeros((1, 4), np.int32)
    tokens[:, 5] = tokens[:, 1]
    arrays = {
        "qkv": numbers(num, (heads + 2 * kv_heads) * width),
        "cosines": numbers(num, width // 2 * 2),
        "sines": numbers(num, width // 2 * 2),
        "q_norm": numbers(width),
        "k_norm": numbers(width),
        "keys": numbers(16, kv_heads, width),
        "values": numbers(16, kv_heads, width),
        "out": numbers(num, heads * width),
    }

    def run(a):
        paged_attention.attend_projected(
            a["qkv"], a["cosines"], a["sines"], a["q_norm"], a["k_norm"], EPS, a["keys"],
            a["values"], tokens, np.zeros(1, np.int64), table, 16, 0, np.float32(0.3),
            np.float32(20.0), a["out"],
        )  # fmt: skip

    yield arrays, run


def num_different(stage, width, num_times, seed):
    """How often something differs from where all lie far apart."""
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    different = 0

    def numbers(*shape):
        return generator.normal(size=shape).astype(np.float32)

    for arrays, run in stage(numbers, width):
        expected = placed(arrays, FAR, rng)
        run(expected)
        for _ in range(num_times):
            found = placed(arrays, NEAR, rng)
            run(found)
            different += any(found[name].tobytes() != expected[name].tobytes() for name in arrays)
    return different


@pytest.mark.parametrize("width", [6, 16, 24, 64, 70, 128])
@pytest.mark.parametrize("stage", [norm, gate, attention])
def test_addresses_change_no_bit(stage, width):
    assert num_different(stage, width, 600, width) == 0


@jit.inlined
def regrouped(x, weight, eps, out):
    """The norm of a row whose second loop may be regrouped."""
    total = np.float32(0.0)
    for i in range(weight.size):
        total += x[i] * x[i]
    factor = np.float32(1.0) / np.sqrt(total / np.float32(weight.size) + eps)
    for i in range(weight.size):
        out[i] = x[i] * factor * weight[i]


@jit.inlined
def regrouped_rows(x, weight, eps, out):
    for t in range(x.shape[0]):
        regrouped(x[t], weight, eps, out[t])


def test_a_loop_that_may_be_regrouped_is_caught(monkeypatch):
    monkeypatch.setattr(layer_ops, "norm_rows", regrouped_rows)
    assert num_different(norm, 16, 600, 1) > 0


def digest():
    """Of all that every stage makes of the same numbers."""
    told, generator, rng = sha256(), np.random.default_rng(0), random.Random(0)

    def numbers(*shape):
        return generator.normal(size=shape).astype(np.float32)

    for stage in (norm, gate, attention):
        for width in (16, 24, 64, 70):
            for arrays, run in stage(numbers, width):
                found = placed(arrays, FAR, rng)
                run(found)
                told.update(b"".join(found[name].tobytes() for name in arrays))
    return told.hexdigest()


def test_what_was_kept_has_the_bits_of_what_was_compiled(tmp_path):
    """Two processes: the first compiles, the second loads."""
    code = "from actors.runner.cpu.test_addresses import digest; print(digest())"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ
            | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert list(tmp_path.rglob("*.nbc"))
