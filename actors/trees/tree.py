"""A speculation tree: everything that is guessed about one sequence's future.

The root is its last committed token, a node a token behind its parent. Drafters offer nodes; equal
paths are one, and a node remembers who offered it and what was said of it. A node's chance, that
the target's own text goes through it, is its parent's times that of the edge, as
trees/chances.py has learned it. A commit walks down: the subtree stays, all else goes.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from outrider.actors.lookahead.round_report import DRAFT, MAX_NODES, PREDICTION
from outrider.actors.transport.draft_tree import parent_rows
from outrider.actors.transport.rows import SparseRow
from outrider.actors.trees.chances import Chances, Edge


class TreeNode:
    """A token, and who expects it behind its parent."""

    __slots__ = (
        "chance",
        "children",
        "edges",
        "guesses",
        "is_judged",
        "name",
        "parent",
        "place",
        "position",
        "prob",
        "row",
        "token",
    )

    def __init__(self, token: int, parent: "TreeNode | None", position: int) -> None:
        self.token = token
        self.parent = parent
        self.position = position
        self.children: dict[int, TreeNode] = {}  # by token
        self.edges: dict[str, Edge] = {}  # by drafter
        self.chance = 1.0
        self.is_judged = False  # by the target
        self.name = 0  # the draft's, see transport/rows.py; 0 where it knows nothing of it
        self.row: SparseRow | None = None  # that it was drawn from, in rejection mode
        # Of the draft, once it was fed:
        self.place = -1  # of its row in the cache, from the root's
        self.guesses: list[int] = []  # behind it, best first, its children among them
        self.prob = 0.0  # of the first

    def subtree(self) -> Iterator["TreeNode"]:
        """It and all behind it, parents first."""
        nodes = [self]
        for node in nodes:
            yield node
            nodes.extend(node.children.values())


class SpeculationTree:
    """Of one sequence, from one commit to the next."""

    def __init__(self, token: int, position: int, chances: Chances) -> None:
        """`position` is the root's."""
        self.root = TreeNode(token, None, position)
        self.num_nodes = 0  # the root not counted
        self._chances = chances

    def add(self, parent: TreeNode, token: int, drafter: str, edge: Edge) -> TreeNode | None:
        """Somebody offers a node. None where there is no room for another."""
        chance = parent.chance * self._chances.of(drafter, edge)
        node = parent.children.get(token)
        if node is None:
            if self.num_nodes >= MAX_NODES:
                return None
            node = parent.children[token] = TreeNode(token, parent, parent.position + 1)
            node.chance = chance
            self.num_nodes += 1
        if drafter not in node.edges:
            self._chances.counts[drafter, "offered"] += 1
        node.edges[drafter] = edge
        if chance > node.chance:
            node.chance = chance
            if node.children:
                self._refresh(node)
        return node

    def offer(
        self,
        drafter: str,
        tokens: Sequence[int],
        parents: Sequence[int],
        edges: Sequence[Edge],
    ) -> list[TreeNode]:
        """Somebody's guess behind the root, see transport/draft_tree.py; the nodes that are new."""
        nodes, new = list[TreeNode | None](), list[TreeNode]()
        rows = parent_rows(len(tokens), parents)
        for token, row, edge in zip(tokens, rows, edges, strict=True):
            behind = nodes[row - 1] if row else self.root
            num = self.num_nodes
            node = None if behind is None else self.add(behind, token, drafter, edge)
            nodes.append(node)
            if node is not None and self.num_nodes > num:
                new.append(node)
        return new

    def chance_of(self, edge: Edge) -> float:
        """Of a draft's, behind a node that comes true."""
        return self._chances.of(self._chances.model, edge)

    def commit(self, tokens: Sequence[int]) -> tuple[list[TreeNode], list[TreeNode]]:
        """Go on from these: the nodes that came true, the old root first; and the new root and all
        behind it, parents first.
        """
        path = [self.root]
        for token in tokens:
            found = path[-1].children.get(token)
            path.append(found or TreeNode(token, None, path[-1].position + 1))
        self.root = path[-1]
        kept, chance = [self.root], self.root.chance
        for node in kept:
            node.chance /= chance
            kept += node.children.values()
        self.root.parent, self.num_nodes = None, len(kept) - 1
        return path, kept

    def clear(self) -> None:
        """All behind the root goes."""
        self.root = TreeNode(self.root.token, None, self.root.position)
        self.num_nodes = 0

    def learn(self, path: Sequence[TreeNode]) -> None:
        """From what was offered behind each that came true. It shows in what is offered next."""
        for node, after in pairwise(path):
            self._chances.learn(node.children.values(), after.token)
            if after.is_judged:
                for drafter in after.edges:
                    self._chances.counts[drafter, "accepted"] += 1

    def judge(self, nodes: Sequence[TreeNode]) -> None:
        """The target is at these."""
        counts = self._chances.counts
        for node in nodes:
            node.is_judged = True
            for drafter in node.edges:
                counts[drafter, "judged"] += 1

    def _refresh(self, top: TreeNode) -> None:
        """The chances behind a node."""
        for node in top.subtree():
            for child in node.children.values():
                edges = child.edges.items()
                child.chance = node.chance * max(self._chances.of(*edge) for edge in edges)


def likeliest(
    trees: Sequence[tuple[TreeNode, int, int]], floor: float
) -> Iterator[tuple[int, TreeNode]]:
    """Of several trees the nodes that are no less likely than `floor`, likeliest first and parents
    before children: (which tree, node). Of each: its root, how many at most, and how deep.
    """
    order, left = count(), [size for _, size, _ in trees]
    heap = [
        (-child.chance, next(order), number, child)
        for number, (root, _, _) in enumerate(trees)
        for child in root.children.values()
    ]
    heapq.heapify(heap)
    while heap:
        chance, _, number, node = heapq.heappop(heap)
        if -chance < floor:
            return
        root, _, depth = trees[number]
        if not left[number] or node.position - root.position > depth:
            continue
        left[number] -= 1
        yield number, node
        for child in node.children.values():
            heapq.heappush(heap, (-child.chance, next(order), number, child))


def proposal_of(nodes: Sequence[TreeNode]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens and parents (transport/draft_tree.py) of nodes, each behind its parent; a chain's
    parents are none.
    """
    at = {id(node): own for own, node in enumerate(nodes)}
    parents = [at.get(id(node.parent), own) for own, node in enumerate(nodes)]
    is_chain = all(parent == max(0, own - 1) for own, parent in enumerate(parents))
    return tuple(node.token for node in nodes), () if is_chain else tuple(parents)


def drafters_of(nodes: Sequence[TreeNode]) -> tuple[str, ...]:
    """Whose each one counts as: the client's prediction, else the draft's, else another's."""
    return tuple(
        PREDICTION
        if PREDICTION in node.edges
        else DRAFT
        if DRAFT in node.edges
        else min(node.edges)
        for node in nodes
    )


def promised_of(nodes: Sequence[TreeNode]) -> float:
    """How many of them should be accepted, by their chances."""
    return sum(node.chance for node in nodes)
