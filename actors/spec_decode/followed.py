"""A sequence's tree on the coordinator's side, and what the draft knows of it.

The draft names the nodes that it offers, and may not have heard of the last commits yet. So a name
stands for a node of this tree, or for a committed position; what hangs from anything else is gone.
"""

from dataclasses import dataclass, field

from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.proposer import Proposal
from outrider.actors.transport.rows import OfferRow
from outrider.actors.trees.chances import DRAWN
from outrider.actors.trees.tree import SpeculationTree, TreeNode

NUM_REMEMBERED = 64  # committed positions whose nodes late offers may hang from


@dataclass(slots=True)
class Followed:
    """A sequence's tree, and what the draft knows of it."""

    sequence: Sequence
    tree: SpeculationTree
    num_told: int  # committed length that the draft knows of
    nodes: dict[int, TreeNode] = field(default_factory=dict)  # of this tree, by the draft's names
    positions: dict[int, int] = field(default_factory=dict)  # of what was committed, by name too
    unlearned: list[list[TreeNode]] = field(default_factory=list)  # paths that came true
    kept: list[TreeNode] = field(default_factory=list)  # all of the tree, if `nodes` is older
    is_opened: bool = False  # on the draft
    is_told: bool = False  # to grow it
    is_stopped: bool = False  # the draft does not follow it any more
    is_drawn: bool = field(init=False)  # drafts are drawn, and accepted or rejected by chance
    is_priced: bool = field(init=False)  # it asks for no k of its own

    def __post_init__(self) -> None:
        request = self.sequence.request
        is_rejection = request.speculation.verification is VerificationMode.REJECTION
        self.is_drawn = is_rejection and request.sampling.temperature > 0
        self.is_priced = request.speculation.k is None

    @property
    def is_grown(self) -> bool:
        """By the draft."""
        return self.is_opened and not self.is_stopped

    @property
    def foreseen(self) -> str:
        """What the tree has for the last commit: "hit", something stands behind it; "late", it
        was foreseen, and nothing stands behind it yet; "miss".
        """
        root = self.tree.root
        return "hit" if root.children else "late" if root.name else "miss"

    def forget_draft(self) -> None:
        """Another draft has names of its own."""
        self.is_opened = self.is_told = self.is_stopped = False
        self.nodes, self.positions = {}, {}
        self.kept = []
        for node in self.tree.root.subtree():
            node.name, node.row = 0, None

    def catch_up(self) -> None:
        """Take in what was committed."""
        known = self.tree.root.position + 1
        if known == self.sequence.num_committed:
            return
        path, self.kept = self.tree.commit(self.sequence.since(known))
        self.unlearned.append(path)
        for node in path:
            if node.name:
                self.positions[node.name] = node.position
        while len(self.positions) > NUM_REMEMBERED:
            del self.positions[next(iter(self.positions))]

    def learn(self) -> None:
        """From what was committed, once there is time."""
        paths, self.unlearned = self.unlearned, []
        for path in paths:
            self.tree.learn(path)

    def offer(self, guess: Proposal) -> None:
        """Somebody else's."""
        if guess.tokens:
            self.tree.offer(guess.drafter, guess.tokens, guess.parents, guess.edges)

    def take(self, row: OfferRow) -> None:
        """Hang each node where it belongs by now; drop it where that has gone."""
        self.catch_up()
        if self.kept:
            self.nodes = {node.name: node for node in self.kept if node.name}
            self.kept = []
        root, nodes, positions = self.tree.root, self.nodes, self.positions
        told, rows = zip(row.parents, row.tokens, row.edges, strict=True), iter(row.rows)
        for name, (parent, token, edge) in enumerate(told, row.first):
            drawn_from = next(rows, None) if edge == DRAWN else None
            behind = nodes.get(parent) if parent else None
            if behind is None:
                position = positions.get(parent, -1) if parent else row.num_committed - 1
                if position < 0:
                    continue
                if position < root.position:
                    if self.sequence.since(position + 1)[0] == token:
                        positions[name] = position + 1
                    continue
                behind = root
            if (node := self.tree.add(behind, token, DRAFT, edge)) is not None:
                node.name, node.row, nodes[name] = name, drawn_from, node
