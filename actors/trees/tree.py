"""A speculation tree: everything that is guessed about one sequence's future.

The root is its last committed token, a node a token behind its parent. Drafters offer nodes; equal
paths are one, and a node remembers who offered it and what was said of it. A node's chance, that
the target's own text goes through it, is its parent's times that of the edge, as
trees/chances.py has learned it. A commit walks down: the subtree stays, all else goes.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from operator import attrgetter

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
        self.children: dict[int, TreeNode] = CHILDLESS  # by token
        self.edges: dict[str, Edge] = {}  # by drafter
        self.chance = 1.0
        self.is_judged = False  # by the target
        self.name = 0  # the draft's, see transport/rows.py; 0 where it knows nothing of it
        self.row: SparseRow | None = None  # that it was drawn from, in rejection mode
        # Of the draft, once it was fed:
        self.place = -1  # of its row in the cache, from the root's
        self.guesses: Sequence[int] = ()  # behind it, best first, its children among them
        self.prob = 0.0  # of the first

    def subtree(self) -> Iterator["TreeNode"]:
        """It and all behind it, parents first."""
        nodes = [self]
        for node in nodes:
            yield node
            nodes.extend(node.children.values())


CHILDLESS: dict[int, TreeNode] = {}  # of all that have no children; nothing is put in here


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
            node = TreeNode(token, parent, parent.position + 1)
            node.chance = chance
            if parent.children is CHILDLESS:
                parent.children = {}
            parent.children[token] = node
            self.num_nodes += 1
        elif chance > node.chance:
            _raise(node, chance / node.chance)
        if drafter not in node.edges:
            self._chances.counts[drafter, "offered"] += 1
        node.edges[drafter] = edge
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
            if node.children:
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


def _raise(top: TreeNode, factor: float) -> None:
    """Its chance, and those behind it."""
    for node in top.subtree():
        node.chance *= factor


_chance_of = attrgetter("chance")


def likeliest_end(node: TreeNode, floor: float) -> TreeNode:
    """Where one comes to who goes on to the likeliest of a node's children, that one's likeliest,
    and so on; or the first on this way that is less likely than `floor`.
    """
    while node.children and node.chance >= floor:
        node = max(node.children.values(), key=_chance_of)
    return node


def likeliest(
    trees: Sequence[tuple[TreeNode, int, int]], floor: float
) -> Iterator[tuple[int, TreeNode]]:
    """Of several trees the nodes that are no less likely than `floor`, likeliest first and parents
    before children: (which tree, node). Of each: its root, how many at most, and how deep.
    """
    order, left = count(), [size for _, size, _ in trees]
    ends = [root.position + depth for root, _, depth in trees]
    heap = [
        (-child.chance, next(order), number, child)
        for number, (root, _, depth) in enumerate(trees)
        if depth
        for child in root.children.values()
        if child.chance >= floor
    ]
    heapq.heapify(heap)
    while heap:
        _, _, number, node = heapq.heappop(heap)
        if not left[number]:
            continue
        left[number] -= 1
        yield number, node
        if node.position < ends[number]:
            for child in node.children.values():
                if child.chance >= floor:
                    heapq.heappush(heap, (-child.chance, next(order), number, child))


def proposal_of(nodes: Sequence[TreeNode]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens and parents (transport/draft_tree.py) of nodes, each behind its parent; a chain's
    parents are none.
    """
    at: dict[TreeNode | None, int] = {node: own for own, node in enumerate(nodes)}
    parents = [at.get(node.parent, own) for own, node in enumerate(nodes)]
    is_chain = parents == [0, *range(len(nodes) - 1)][: len(nodes)]
    return tuple([node.token for node in nodes]), () if is_chain else tuple(parents)


def drafters_of(nodes: Sequence[TreeNode]) -> tuple[str, ...]:
    """Whose each one counts as: the client's prediction, else the draft's, else another's."""
    return tuple([_drafter_of(node.edges) for node in nodes])


def _drafter_of(edges: dict[str, Edge]) -> str:
    if len(edges) == 1:
        return next(iter(edges))
    return next((each for each in (PREDICTION, DRAFT) if each in edges), "") or min(edges)


def promised_of(nodes: Sequence[TreeNode]) -> float:
    """How many of them should be accepted, by their chances."""
    return sum(node.chance for node in nodes)
