"""The shape of proposals."""

import random

import pytest

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.draft_tree import check_parents, leaf_paths, parent_rows, path_to

#  0 ─ 2 ─ 4       1 ─ 3
TREE = (0, 1, 0, 1, 2)


def test_a_tree():
    check_parents(5, TREE)
    assert parent_rows(5, TREE) == [0, 0, 1, 2, 3]
    assert [path_to(node, TREE) for node in range(-1, 5)] == [
        *([], [0], [1], [0, 2], [1, 3], [0, 2, 4])
    ]
    assert leaf_paths(5, TREE) == [([1, 3], 0), ([0, 2, 4], 1)]


def test_no_parents_are_a_chain():
    check_parents(3, ())
    assert list(parent_rows(3, ())) == [0, 1, 2]
    assert list(path_to(1, ())) == [0, 1]
    assert list(path_to(-1, ())) == []
    assert leaf_paths(3, ()) == [(range(3), 0)]
    assert leaf_paths(0, ()) == [(range(0), 0)]


@pytest.mark.parametrize("seed", range(50))
def test_leaf_paths_hold_every_row_once(seed):
    rng = random.Random(seed)
    parents = [rng.randint(0, own) for own in range(rng.randint(1, 30))]
    rows = []
    for path, num_shared in leaf_paths(len(parents), parents):
        assert path == path_to(path[-1], parents)
        rows += [0, *(node + 1 for node in path)][num_shared:]
    assert sorted(rows) == list(range(len(parents) + 1))


@pytest.mark.parametrize(
    ("num_tokens", "parents", "said"),
    [
        (3, (0, 0), "Got 2 parents of 3 tokens"),
        (2, (0, 2), "Got parent 2 of token 1, expected 0 to 1"),
        (1, (-1,), "Got parent -1 of token 0, expected 0 to 0"),
    ],
)
def test_others_are_refused(num_tokens, parents, said):
    with pytest.raises(ProtocolViolation, match=said):
        check_parents(num_tokens, parents)
