"""What a draft has computed beyond a sequence's committed tokens: a tree of tokens, rooted at the
last committed one.

The trunk is the proposal that the target is judging. Behind each of its tokens stand guesses of
what the target will draw there, and a branch grows from each guess. Knows nothing of models; a
node that was fed owns one row of the sequence's cache, in the order of feeding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.actors.transport.rows import SparseRow
from outrider.actors.workers.ahead.fork_selection import (
    MOST,
    UNKNOWN,
    WIDEST,
    Odds,
    Position,
    likeliest,
)


@dataclass(slots=True)
class Node:
    """A token and, once fed, what the draft expects after it."""

    token: int
    parent: int  # index in the tree's nodes; -1 for the root
    position: int
    place: int = -1  # among the fed: its row, counted from the root's; -1 before it is fed
    next_token: int = -1  # the draft's own; -1 where its logits were faulty
    prob: float = 0.0  # of that
    next_row: SparseRow | None = None  # what that was drawn from, in rejection mode
    guesses: tuple[int, ...] = ()  # of the target's token, best first

    @property
    def is_fed(self) -> bool:
        return self.place >= 0

    def take(self, old: "Node") -> None:
        """Expect what the same node of another tree expected."""
        self.next_token, self.prob = old.next_token, old.prob
        self.next_row, self.guesses = old.next_row, old.guesses

    def before(self, drafted: int | None, odds: Odds | None) -> Position:
        """What may be known of the position behind it."""
        if odds is None or not self.is_fed:
            return Position.by_rank(drafted, self.guesses)
        guesses = self.guesses
        if drafted == self.next_token:  # which is what prob is of
            guesses = (self.next_token, *(guess for guess in guesses if guess != drafted))
        return Position(drafted, guesses, odds.sure(self.prob))


@dataclass(slots=True)
class Branch:
    """A guess of an outcome and the tokens drafted behind it."""

    tip: int  # its last node
    chance: float  # that its next token is needed
    accepted: float = 1.0  # that all its tokens are, if the guess comes true
    num_tokens: int = 0  # behind the guess


class TokenTree:
    """The tree of one proposal; without odds its branches depend on nothing that was drawn."""

    def __init__(self, root: int, position: int, tokens: Sequence[int], odds: Odds | None) -> None:
        self.nodes = [Node(root, -1, position)]
        self.parents: list[int] = []  # of the fed, both by place
        self._children: dict[tuple[int, int], int] = {}
        self.trunk = [0]
        for token in tokens:
            self.trunk.append(self.add(self.trunk[-1], token))
        self.branches: list[Branch] = []
        self._odds = odds
        self._least = odds.least if odds else 0.0
        self._forks: set[tuple[int, int]] = set()
        self._num_seen = 0  # fed nodes of the trunk when it was last forked

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
            self.nodes[index].take(old)
            self._place(index)
            assert self.nodes[index].place == at

    def fork(self, num_branches: int) -> list[tuple[int, int]]:
        """Branch where it is likeliest to pay, of what was fed: (tokens accepted, guess).

        num_branches is an average, or without odds the most. What was not fed yet of the trunk
        keeps its share.
        """
        num_fed = sum(self.nodes[index].is_fed for index in self.trunk)
        if num_fed == self._num_seen or not num_branches:
            return []
        self._num_seen = num_fed
        most = MOST * num_branches if self._odds else num_branches
        bets = likeliest(self._positions(), self._least)[:most]
        new = [bet for bet in bets if (bet.num_accepted, bet.token) not in self._forks]
        forks = []
        for bet in new[: most - len(self._forks)]:
            if bet.token != UNKNOWN:
                forks.append((bet.num_accepted, bet.token))
                tip = self.add(self.trunk[bet.num_accepted], bet.token)
                self.branches.append(Branch(tip, bet.chance))
        self._forks.update(forks)
        if self._odds and 1 < num_fed == len(self.trunk):  # an empty proposal tells little
            possible = WIDEST * len(self.trunk) + 1
            self._odds.follow(len(self._forks), min(num_branches, possible))
        return forks

    def _positions(self) -> list[Position]:
        nodes = [self.nodes[index] for index in self.trunk]
        drafted = [*(node.token for node in nodes[1:]), None]
        return [node.before(token, self._odds) for node, token in zip(nodes, drafted, strict=True)]

    def hungry(self, max_tokens: int, context_len: int) -> list[int]:
        """Nodes to feed next: what is left of the trunk, and the tips whose next token is likely
        enough to be needed.
        """

        def is_food(index: int) -> bool:
            return not self.nodes[index].is_fed and self.nodes[index].position < context_len

        growing = (
            branch.tip
            for branch in self.branches
            if branch.chance >= self._least and branch.num_tokens < max_tokens
        )
        return [*filter(is_food, self.trunk), *filter(is_food, growing)]

    def feed(self, indices: Sequence[int]) -> list[int]:
        """These nodes get their rows, in this order. The parents of all rows, as places."""
        for index in indices:
            self._place(index)
        return self.parents

    def grow(self, min_chance: float = 0.0) -> Iterator[tuple[int, Node]]:
        """Lengthen each branch whose tip was fed by a token: (branch, the tip it follows).

        With odds, it ends before a token that is less likely than that to be accepted.
        """
        for number, branch in enumerate(self.branches):
            tip = self.nodes[branch.tip]
            if branch.accepted < min_chance or not tip.is_fed or tip.next_token < 0:
                continue
            if self._odds:
                sure = self._odds.sure(tip.prob)
                branch.accepted *= sure
                branch.chance *= sure
            if branch.accepted >= min_chance:
                branch.tip = self.add(branch.tip, tip.next_token)
                branch.num_tokens += 1
                yield number, tip

    def _place(self, index: int) -> None:
        node = self.nodes[index]
        node.place = len(self.parents)
        self.parents.append(self.nodes[node.parent].place if node.parent >= 0 else -1)
