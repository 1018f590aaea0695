"""A sequence's tree: what merges, what stays, what is likeliest."""

import random

import pytest

from outrider.actors.lookahead.round_report import MAX_NODES
from outrider.actors.trees.chances import Chances
from outrider.actors.trees.tree import SpeculationTree, likeliest, proposal_of


class Told(Chances):
    """An edge is its chance, in hundredths."""

    def of(self, drafter, edge):
        return edge / 100


def tree_of(*paths):
    """[(token, chance in hundredths), ...] for each path."""
    tree = SpeculationTree(1, 9, Told())
    for path in paths:
        node = tree.root
        for token, edge in path:
            node = tree.add(node, token, "draft", edge)
    return tree


def paths(tree):
    """Each node's tokens from the root, and its chance."""
    found = {}

    def walk(node, path):
        for child in node.children.values():
            found[(*path, child.token)] = round(child.chance, 6)
            walk(child, (*path, child.token))

    walk(tree.root, ())
    return found


def test_equal_paths_are_one_and_a_chance_is_that_of_the_path():
    tree = tree_of([(5, 50), (6, 50)], [(5, 50), (7, 20)])
    tree.add(tree.root, 5, "ngram", 80)  # thinks more of it
    assert paths(tree) == {(5,): 0.8, (5, 6): 0.4, (5, 7): 0.16}
    assert tree.num_nodes == 3
    assert tree.root.children[5].edges == {"draft": 50, "ngram": 80}


def test_a_commit_keeps_what_is_behind_it():
    tree = tree_of([(5, 50), (6, 50), (8, 90)], [(5, 50), (7, 20)], [(4, 10)])
    kept = tree.root.children[5].children[6]
    path, left = tree.commit((5, 6))
    assert [node.token for node in path] == [1, 5, 6]
    assert [node.token for node in left] == [6, 8]
    assert paths(tree) == {(8,): 0.9}
    assert (tree.root.position, tree.num_nodes, tree.root.chance) == (11, 1, 1.0)
    assert tree.root is kept


def test_a_commit_that_nobody_foresaw_leaves_nothing():
    tree = tree_of([(5, 50), (6, 50)])
    tree.commit((5, 9))
    assert paths(tree) == {}
    assert (tree.root.token, tree.root.position, tree.num_nodes) == (9, 11, 0)


def test_all_that_was_offered_at_a_committed_place_is_learned_from():
    seen = []

    class Recorded(Told):
        def learn(self, offered, token):
            seen.append((sorted(node.token for node in offered), token))

    tree = SpeculationTree(1, 9, Recorded())
    for token in (5, 6):
        tree.add(tree.root, token, "draft", 50)
    tree.add(tree.root.children[6], 7, "draft", 50)
    tree.learn(tree.commit((6, 8, 3))[0])
    assert seen == [([5, 6], 6), ([7], 8), ([], 3)]


def test_a_full_tree_takes_no_more_but_merges():
    tree = tree_of(*([(token, 1)] for token in range(MAX_NODES)))
    assert tree.add(tree.root, MAX_NODES, "draft", 1) is None
    assert tree.add(tree.root, 0, "ngram", 2) is tree.root.children[0]


@pytest.mark.parametrize("seed", range(30))
def test_the_likeliest_of_several_trees(seed):
    """Against the plainest reckoning: all nodes, sorted."""
    rng = random.Random(seed)
    trees = []
    for _ in range(3):
        tree = SpeculationTree(1, 9, Told())
        nodes = [tree.root]
        for _ in range(20):
            parent = rng.choice(nodes)
            nodes.append(tree.add(parent, rng.randrange(6), "draft", rng.randrange(1, 100)))
        trees.append(tree)
    depth, floor = rng.randrange(1, 5), rng.choice([0.0, 0.05])
    asked = [(tree.root, 100, depth) for tree in trees]
    found = [(number, node) for number, node in likeliest(asked, floor)]
    chances = [node.chance for _, node in found]
    assert chances == sorted(chances, reverse=True)
    wanted = [
        chance
        for tree in trees
        for path, chance in paths(tree).items()
        if chance >= floor and len(path) <= depth
    ]
    assert sorted(round(chance, 6) for chance in chances) == sorted(wanted)
    for at, (number, node) in enumerate(found):
        assert node.parent is trees[number].root or (number, node.parent) in found[:at]
    few = list(likeliest([(tree.root, 2, depth) for tree in trees], floor))
    for number, tree in enumerate(trees):
        assert sum(which == number for which, _ in few) == min(
            2, sum(len(p) <= depth and c >= floor for p, c in paths(tree).items())
        )
        assert [node for which, node in few if which == number] == [
            node for which, node in found if which == number
        ][:2]


def test_a_proposal_is_tokens_and_parents():
    tree = tree_of([(5, 90), (6, 80)], [(7, 50)])
    nodes = [node for _, node in likeliest([(tree.root, 9, 9)], 0.0)]
    assert proposal_of(nodes) == ((5, 6, 7), (0, 0, 2))
    assert proposal_of(nodes[:2]) == ((5, 6), ())
    assert proposal_of(nodes[2:]) == ((7,), ())
    assert proposal_of([]) == ((), ())


def test_nodes_are_counted_by_who_offered_them():
    chances = Chances()
    tree = SpeculationTree(1, 9, chances)
    for drafter in ("draft", "ngram", "draft"):  # offered twice is offered once
        first = tree.add(tree.root, 5, drafter, 0)
    tree.add(tree.root, 6, "draft", 0)
    chances.judge([first])
    path, _ = tree.commit([5, 7])
    tree.learn(path)
    assert chances.take_counts() == {
        ("draft", "offered"): 2,
        ("ngram", "offered"): 1,
        ("draft", "judged"): 1,
        ("ngram", "judged"): 1,
        ("draft", "accepted"): 1,
        ("ngram", "accepted"): 1,
    }
    path, _ = tree.commit([8])
    tree.learn(path)
    assert not chances.take_counts(), "what was not judged was not accepted"
