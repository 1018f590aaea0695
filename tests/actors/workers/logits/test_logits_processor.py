"""Edits of rows along proposals, beside the plainest possible reckoning of them."""

import numpy as np
import pytest

from outrider.actors.transport.draft_tree import path_to
from outrider.actors.transport.rows import LogitsParams
from outrider.actors.workers.logits.logits_processor import (
    NOT_DRAFTED,
    LogitsProcessor,
    logits_edits,
)
from outrider.kernels.contract.logits_edits import edited

WIDTH = 50
PROMPT = (3, 4, 5, 4)


def rules(**given):
    usual = {"bias_ids": (), "bias": (), "repetition": 1.0, "frequency": 0.0, "presence": 0.0}
    ends = {"min_tokens": 0, "end_ids": (), "eos_ids": (0,), "grammar_kind": "", "grammar": ""}
    return LogitsParams(**usual | ends | given)


def processor(given):
    return LogitsProcessor(given, len(PROMPT), WIDTH)


def plainly(logits, text, given):
    """One row after `text`, in the contract's order."""
    out = logits.astype(np.float32).copy()
    output = text[len(PROMPT) :]
    for token, bias in zip(given.bias_ids, given.bias, strict=True):
        out[token] += np.float32(bias)
    if len(output) < given.min_tokens:
        out[list(given.end_ids)] = -np.inf
    for token in set(text):
        factor = np.float32(given.repetition)
        out[token] = out[token] / factor if out[token] > 0 else out[token] * factor
    for token in set(output):
        count = np.float32(output.count(token))
        out[token] -= np.float32(given.frequency) * count + np.float32(given.presence)
    return out


@pytest.mark.parametrize(
    "given",
    [
        rules(repetition=1.3),
        rules(frequency=0.5, presence=1.0),
        rules(bias_ids=(4, 9), bias=(2.0, -100.0), repetition=0.8, presence=-0.5),
        rules(min_tokens=3, end_ids=(0, 7), frequency=1.5),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_rows_along_a_path(given, is_last):
    rng = np.random.default_rng(1)
    committed, path = [6, 4], [6, 9, 6]
    one = processor(given)
    one.take([*PROMPT, *committed[:1]])
    one.take([*PROMPT, *committed])
    firsts = range(len(path), len(path) + 1) if is_last else range(len(path) + 1)
    logits = rng.normal(size=(len(firsts) + 2, WIDTH)).astype(np.float32)
    plain = [(None, (path[:1], ()))] if not is_last else [(None, NOT_DRAFTED), (None, (path, ()))]
    edits = logits_edits([(one, (path, ())), *plain], WIDTH, None, is_last=is_last)
    for _ in range(2):  # nothing was changed by asking
        got = edited(logits, edits)
        for row, at in enumerate(firsts):
            want = plainly(logits[row], [*PROMPT, *committed, *path[:at]], given)
            np.testing.assert_array_equal(got[row], want)
        np.testing.assert_array_equal(got[len(firsts) :], logits[len(firsts) :])


def test_no_edits_where_nobody_edits():
    assert (
        logits_edits([(None, ((1, 2), ())), (None, NOT_DRAFTED)], WIDTH, None, is_last=False)
        is None
    )


def test_ids_beyond_a_narrow_draft_are_left_out():
    given = rules(bias_ids=(4, 60), bias=(1.0, 1.0), end_ids=(70,), min_tokens=9, presence=1.0)
    one = processor(given)
    one.take([*PROMPT, 80])
    assert logits_edits([(one, ((90, 5), ()))], WIDTH, None, is_last=True).ids.max() < WIDTH


def test_of_a_real_vocabulary_only_what_is_touched_is_held():
    """Every row went through all 128,256 ids, some 300 µs of the target's thread."""
    prompt = tuple(range(0, 30_000, 15))
    for given, num_held in (
        (rules(repetition=1.1, presence=0.5), len(prompt) + 1),
        (rules(bias_ids=(3,), bias=(1.0,)), 1),
    ):
        one = LogitsProcessor(given, len(prompt), 128_256)
        one.take([*prompt, 7, 15])  # one that is new, one of the prompt
        assert one._edits.table.shape[1] == num_held
        assert max(row.shape[1] for row in one.rows(((8, 9), ()))) <= num_held + 2


@pytest.mark.parametrize("seed", range(30))
def test_any_text_any_rules(seed):
    rng = np.random.default_rng(seed)
    ids = rng.permutation(WIDTH)[: rng.integers(0, 6)]
    given = rules(
        bias_ids=tuple(ids.tolist()),
        bias=tuple(rng.normal(size=ids.size).tolist()),
        repetition=float(rng.choice([1.0, 0.7, 1.4])),
        frequency=float(rng.choice([0.0, 0.3])),
        presence=float(rng.choice([0.0, -0.4])),
        min_tokens=int(rng.integers(0, 4)),
        end_ids=tuple(rng.integers(0, WIDTH, rng.integers(0, 3)).tolist()),
    )
    committed = rng.integers(0, WIDTH, rng.integers(0, 12)).tolist()
    drafted = rng.integers(0, WIDTH, rng.integers(0, 5)).tolist()
    parents = [int(rng.integers(0, own + 1)) for own in range(len(drafted))] if seed % 2 else []
    one = processor(given)
    cut = int(rng.integers(0, len(PROMPT) + len(committed) + 1))
    one.take([*PROMPT, *committed][:cut])  # a cut inside the prompt included
    one.take([*PROMPT, *committed])
    logits = rng.normal(size=(len(drafted) + 1, WIDTH)).astype(np.float32)
    got = edited(logits, logits_edits([(one, (drafted, parents))], WIDTH, None, is_last=False))
    for at in range(len(drafted) + 1):
        path = [drafted[node] for node in path_to(at - 1, parents)]
        want = plainly(logits[at], [*PROMPT, *committed, *path], given)
        np.testing.assert_array_equal(got[at], want)
