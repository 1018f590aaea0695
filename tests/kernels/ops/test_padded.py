"""Trees against padded arrays: acceptance, the grown cache, and every mismatch by name."""

import numpy as np
import pytest

from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.ops.padded import Greedy, PaddedTrees, PaddedVerdicts, Sampled, verify_padded

BACKEND = CpuBackend()
BINARY = (0, 1, 0, 0, 1, 1)  # two roots with two children each


def logits_for(*rows: list[int], width: int = 9) -> np.ndarray:
    """Rows [B, depth, V] whose argmax is given."""
    return np.eye(width, dtype=np.float32)[np.array(rows)] * 5


def trees(*tokens: list[int], parents: tuple[int, ...] = BINARY) -> PaddedTrees:
    return PaddedTrees(np.array(tokens, np.int32), parents)


def judge(logits: np.ndarray, tree: PaddedTrees, cache: list[list[int]]) -> PaddedVerdicts:
    return verify_padded(logits, tree, np.array(cache, np.int32), Greedy(), BACKEND)


def test_greedy_follows_the_tree_and_grows_the_cache() -> None:
    tree = trees([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])
    logits = logits_for([2, 6, 7], [1, 5, 7], [8, 5, 7])
    verdict = judge(logits, tree, [[7, 7, 7], [7, 7, -1], [7, -1, -1]])
    assert verdict.accepted == ((2, 6), (1,), ())
    assert verdict.next_token == (7, 5, 8)
    assert verdict.cache_tokens.tolist() == [
        [7, 7, 7, 2, 6],
        [7, 7, 1, -1, -1],
        [7, -1, -1, -1, -1],
    ]


def test_without_a_row_past_the_tree_there_is_no_next_token() -> None:
    verdict = judge(logits_for([1, 3]), trees([1, 2, 3, 4, 5, 6]), [[0]])
    assert (verdict.accepted, verdict.next_token) == (((1, 3),), (None,))


def test_nan_ranks_last() -> None:
    logits = logits_for([2, 6, 7])
    logits[0, 0, 8] = np.nan
    assert judge(logits, trees([1, 2, 3, 4, 5, 6]), [[0]]).accepted == ((2, 6),)


def test_sampled_equals_the_targets_own_draws() -> None:
    """Feeding back what was drawn is accepted whole; the cache's length is part of the noise."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 4, 9)).astype(np.float32)
    mode, cache = Sampled(0.8, (5, -6)), np.array([[1, 2], [3, -1]], np.int32)
    chain, seen = (0, 0, 1), []
    for _ in range(4):
        tokens = np.array([[*row, 0, 0, 0][:3] for row in seen or [[], []]], np.int32)
        verdict = verify_padded(logits, PaddedTrees(tokens, chain), cache, mode, BACKEND)
        pairs = zip(verdict.accepted, verdict.next_token, strict=True)
        seen = [[*accepted, following] for accepted, following in pairs]
    assert [len(accepted) for accepted in verdict.accepted] == [3, 3]
    moved = verify_padded(logits, PaddedTrees(tokens, chain), cache[:, :1], mode, BACKEND)
    assert moved.accepted[1] == verdict.accepted[1]
    assert moved.accepted[0] != verdict.accepted[0]


def test_mismatches_are_refused() -> None:
    tree, logits = trees([1, 2, 3, 4, 5, 6]), logits_for([2, 6, 7])
    for call, message in (
        (lambda: judge(logits[:, :0], tree, [[0]]), "Got target_logits of shape .1, 0, 9."),
        (
            lambda: judge(logits[:, :1], tree, [[0]]),
            "Got target_logits of depth 1, expected at least 2",
        ),
        (lambda: judge(logits, tree, [[]]), "Got cache_tokens of shape .1, 0."),
        (lambda: judge(logits, tree, [[0], [0]]), "Got cache_tokens of batch 2, expected 1"),
        (lambda: judge(logits, trees([1] * 6, [1] * 6), [[0]]), "Got trees of batch 2, expected 1"),
        (
            lambda: judge(logits, trees([1, 2, 3, 4, 5, 9]), [[0]]),
            "Got tree token 9, expected 0 to 8",
        ),
        (lambda: judge(logits, tree, [[9]]), "Got cache token 9, expected -1 to 8"),
        (lambda: judge(logits, tree, [[-1, 1]]), "Got padding before the end of cache_tokens.0."),
        (lambda: judge(logits * np.nan, tree, [[0]]), "Got no finite logit in item 0 at depth 0"),
        (lambda: trees([1, 2], parents=(0, 2)), "Got parent 2 of node 1, expected 0 to 1"),
        (lambda: trees([1, 2]), "Got 6 parents, expected 2"),
        (lambda: trees([]), "Got tree tokens of shape"),
        (lambda: Sampled(0, (1,)), "Got temperature=0, expected temperature > 0"),
        (
            lambda: verify_padded(
                logits, tree, np.zeros((1, 1), np.int32), Sampled(1, (1, 2)), BACKEND
            ),
            "Got 2 seeds, expected 1",
        ),
    ):
        with pytest.raises(ContractError, match=message):
            call()
