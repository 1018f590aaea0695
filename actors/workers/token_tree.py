"""What a draft has computed beyond a sequence's committed tokens: a tree of tokens, rooted at the
last committed one.

The trunk is the proposal that the target is judging. Behind each of its tokens stand guesses of
what the target will draw there, and a branch grows from each guess. Knows nothing of models; a
node that was fed owns one row of the sequence's cache, in the order of feeding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.actors.rows import SparseRow


@dataclass(slots=True)
class Node:
    """A token and, once fed, what the draft expects after it."""

    token: int
    parent: int  # index in the tree's nodes; -1 for the root
    position: int
    place: int = -1  # among the fed: its row, counted from the root's; -1 before it is fed
    next_token: int = -1  # the draft's own; -1 where its logits were faulty
    next_row: SparseRow | None = None  # what that was drawn from, in rejection mode
    guesses: tuple[int, ...] = ()  # of the target's token, best first

    @property
    def is_fed(self) -> bool:
        return self.place >= 0


@dataclass(slots=True)
class Branch:
    """A guess of an outcome and the tokens drafted behind it."""

    tip: int  # its last node
    num_tokens: int = 0  # behind the guess


class TokenTree:
    """The tree of one proposal."""

    def __init__(self, root: int, position: int, tokens: Sequence[int]) -> None:
        self.nodes = [Node(root, -1, position)]
        self.parents: list[int] = []  # of the fed, both by place
        self._children: dict[tuple[int, int], int] = {}
        self.trunk = [0]
        for token in tokens:
            self.trunk.append(self.add(self.trunk[-1], token))
        self.branches: list[Branch] = []
        self._num_forked = 0  # trunk nodes whose guesses have become branches

    @property
    def first(self) -> int:
        """The root's position, which is its row."""
        return self.nodes[0].position

    def add(self, parent: int, token: int) -> int:
        """A new node; the one that is there already, if so."""
        at = self._children.setdefault((parent, token), len(self.nodes))
        if at == len(self.nodes):
            self.nodes.append(Node(token, parent, self.nodes[parent].position + 1))
        return at

    def path(self, index: int) -> list[int]:
        """The tokens from the root, itself left out, to a node."""
        tokens = []
        while index > 0:
            tokens.append(self.nodes[index].token)
            index = self.nodes[index].parent
        return tokens[::-1]

    def fed_along(self, tokens: Sequence[int]) -> list[Node]:
        """The root and its descendants by these tokens, as far as they were fed."""
        at: int | None = 0
        found: list[Node] = []
        for token in (*tokens, None):
            if at is None or not self.nodes[at].is_fed:
                break
            found.append(self.nodes[at])
            at = None if token is None else self._children.get((at, token))
        return found

    def inherit(self, fed: Sequence[Node]) -> None:
        """Take over what was computed for the trunk's first nodes; their rows lie in order."""
        for at, (index, old) in enumerate(zip(self.trunk, fed, strict=False)):
            node = self.nodes[index]
            node.next_token, node.next_row, node.guesses = (
                old.next_token,
                old.next_row,
                old.guesses,
            )
            self._place(index)
            assert node.place == at

    def fork(self, num_branches: int) -> list[tuple[int, int]]:
        """Branch from every trunk node fed since the last time: (tokens accepted, guess)."""
        forks = []
        last = len(self.trunk) - 1
        fans = fan_out(num_branches, last)
        while self._num_forked <= last and self.nodes[self.trunk[self._num_forked]].is_fed:
            at = self._num_forked
            index = self.trunk[at]
            drafted = self.nodes[self.trunk[at + 1]].token if at < last else -1
            guesses = [g for g in self.nodes[index].guesses if g != drafted][: fans[at]]
            for guess in guesses:
                forks.append((at, guess))
                self.branches.append(Branch(self.add(index, guess)))
            self._num_forked += 1
        return forks

    def hungry(self, max_tokens: int, context_len: int) -> list[int]:
        """Nodes to feed next: what is left of the trunk, and the tips that may still grow."""
        tips = [b.tip for b in self.branches if b.num_tokens < max_tokens]
        return [
            index
            for index in (*self.trunk, *tips)
            if not self.nodes[index].is_fed and self.nodes[index].position < context_len
        ]

    def feed(self, indices: Sequence[int]) -> list[int]:
        """These nodes get their rows, in this order. The parents of all rows, as places."""
        for index in indices:
            self._place(index)
        return self.parents

    def grow(self) -> Iterator[tuple[int, Node]]:
        """Lengthen each branch whose tip was fed by a token: (branch, the tip it follows)."""
        for number, branch in enumerate(self.branches):
            tip = self.nodes[branch.tip]
            if tip.is_fed and tip.next_token >= 0:
                branch.tip = self.add(branch.tip, tip.next_token)
                branch.num_tokens += 1
                yield number, tip

    def _place(self, index: int) -> None:
        node = self.nodes[index]
        node.place = len(self.parents)
        self.parents.append(self.nodes[node.parent].place if node.parent >= 0 else -1)


def fan_out(num_branches: int, last: int) -> list[int]:
    """Guesses at each trunk node 0 to `last`: evenly, the odd ones to the bonus, then the front."""
    each, odd = divmod(num_branches, last + 1)
    fans = [each] * (last + 1)
    for at in [last, *range(last)][:odd]:
        fans[at] += 1
    return fans
