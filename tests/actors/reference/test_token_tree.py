"""Trees of one shape: their nodes, paths and probabilities, and every shape that is none."""

import numpy as np
import pytest
import torch

from outrider.actors.errors import IllegalTransition
from outrider.actors.reference.speculative_decoder import BadConfig
from outrider.actors.reference.token_tree import TokenTree, TreeConfig, grow, grow_batch

VOCAB = 9


class Table:
    """Logits are a function of a node's token."""

    def __init__(self, logits, history=(1,)):
        self.logits, self.history, self.asked = logits, tuple(history), []

    def observe(self, ids):
        self.history += tuple(ids)

    def tree_logits(self, tokens, parents):
        self.asked.append((list(tokens), list(parents)))
        return torch.tensor(self.logits[list(tokens)], dtype=torch.float32)


@pytest.fixture
def table():
    return Table(np.random.default_rng(0).normal(size=(VOCAB, VOCAB)))


@pytest.mark.parametrize("branch", [1, 2, 3])
@pytest.mark.parametrize(("depth", "most"), [(1, 8), (3, 8), (5, 2)])
def test_levels_in_order_with_so_many_branches(table, branch, depth, most):
    tree = grow(table, TreeConfig(branch, depth, most))
    levels = min(depth, most)
    assert tree.depths == [level for level in range(levels + 1) for _ in range(branch**level)]
    assert tree.parents == sorted(tree.parents)
    probs = torch.tensor(table.logits).softmax(-1).numpy()
    for node in range(1, len(tree.tokens)):
        parent = tree.parents[node]
        best = np.argsort(-probs[tree.tokens[parent]])[:branch].tolist()
        siblings = [n for n in range(len(tree.tokens)) if tree.parents[n] == parent]
        assert [tree.tokens[n] for n in siblings] == best
        assert tree.probs[node] == pytest.approx(
            probs[tree.tokens[parent], tree.tokens[node]], rel=1e-5
        )
    assert len(table.asked) == levels
    assert table.history == (1,)


def test_paths_and_the_best_one(table):
    tree = grow(table, TreeConfig(3, 3))
    paths = tree.paths()
    assert len(paths) == len(set(paths)) == 27
    for path in paths:
        assert [tree.depths[node] for node in path] == [1, 2, 3]
        assert [tree.parents[node] for node in path] == [0, *path[:-1]]
        logprob = sum(np.log(tree.probs[node]) for node in path)
        assert tree.logprobs[path[-1]] == pytest.approx(logprob)
    assert tree.best_path() == max(paths, key=lambda path: tree.logprobs[path[-1]])
    assert TokenTree(3).paths() == []
    assert TokenTree(3).best_path() == ()
    with pytest.raises(IllegalTransition, match="Got parent 4 of 1 nodes"):
        TokenTree(3).add(4, 1, 0.5)


def test_where_one_is_sure_its_tree_is_one_level_deep(table):
    sure = Table(np.where(np.eye(VOCAB), 4.0, 0.0))
    best = float(torch.tensor(sure.logits[1]).softmax(-1).max())
    for threshold, depths in ((best * 0.999, (3, 1)), (best * 1.001, (3, 3)), (None, (3, 3))):
        config = TreeConfig(2, 3, early_exit_threshold=threshold)
        trees = grow_batch([table, sure], config)
        assert tuple(max(tree.depths) for tree in trees) == depths
    certain = Table(np.where(np.eye(VOCAB), 0.0, -np.inf))
    assert max(grow(certain, TreeConfig(early_exit_threshold=1.0)).depths) == 1


def test_nan_ranks_last_and_what_cannot_be_is_not_guessed():
    logits = np.zeros((VOCAB, VOCAB))
    logits[1] = [np.nan, 1, np.nan, 5, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf]
    logits[3] = np.nan
    tree = grow(Table(logits), TreeConfig(4, 2))
    assert tree.tokens[1:3] == [3, 1]
    behind = [tree.tokens[node] for node in range(1, len(tree.tokens)) if tree.parents[node] == 1]
    assert behind == []  # of a row of NaN
    assert tree.depths.count(1) == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"branch_factor": 0}, "branch_factor=0, expected at least 1"),
        ({"depth": 0}, "depth=0, expected at least 1"),
        ({"max_speculation_length": 0}, "max_speculation_length=0, expected at least 1"),
        ({"early_exit_threshold": 0.0}, "early_exit_threshold=0.0, expected 0 < threshold ≤ 1"),
        ({"early_exit_threshold": 1.1}, "early_exit_threshold=1.1"),
        ({"branch_factor": 4, "depth": 4}, "340 nodes, expected at most 256"),
        (
            {"branch_factor": 1, "depth": 10**9, "max_speculation_length": 10**9},
            "expected at most 256",
        ),
    ],
)
def test_a_shape_that_is_none_is_told(config, message):
    with pytest.raises(BadConfig, match=message):
        TreeConfig(**config)


def test_nothing_is_grown_behind_nothing(table):
    table.history = ()
    with pytest.raises(IllegalTransition, match="no observed token"):
        grow(table, TreeConfig())
