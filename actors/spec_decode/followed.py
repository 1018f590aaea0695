"""A sequence's tree on the coordinator's side, and what the draft knows of it.

The draft names the nodes that it offers, and may not have heard of the last commits yet. So a name
stands for a node of this tree, or for a committed position; what hangs from anything else is gone.
"""

from dataclasses import dataclass, field

from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.proposer import Proposal
from outrider.actors.transport.rows import OfferRow
from outrider.actors.trees.chances import Edge
from outrider.actors.trees.tree import SpeculationTree, TreeNode

NUM_NAMES = 1024  # of nodes, before those that are gone are forgotten
NUM_REMEMBERED = 64  # committed positions whose nodes late offers may hang from


@dataclass(slots=True)
class Followed:
    """A sequence's tree, and what the draft knows of it."""

    sequence: Sequence
    tree: SpeculationTree
    num_told: int  # committed length that the draft knows of
    # By the draft's names; of what was committed, its position.
    names: dict[int, TreeNode | int] = field(default_factory=dict)
    is_opened: bool = False  # on the draft
    is_told: bool = False  # to grow it
    is_stopped: bool = False  # the draft does not follow it any more

    @property
    def is_grown(self) -> bool:
        """By the draft."""
        return self.is_opened and not self.is_stopped

    def forget_draft(self) -> None:
        """Another draft has names of its own."""
        self.is_opened = self.is_told = self.is_stopped = False
        self.names.clear()
        for node in self.tree.root.subtree():
            node.name = 0

    def catch_up(self) -> None:
        """Take in what was committed."""
        tokens = self.sequence.since(self.tree.num_committed)
        if not tokens:
            return
        path = self.tree.commit(tokens)
        self.names |= {node.name: node.position for node in path if node.name}
        if len(self.names) > NUM_NAMES:
            self._forget_names()

    def _forget_names(self) -> None:
        """Of what is gone, and of what was committed long ago."""
        first = self.tree.num_committed - NUM_REMEMBERED
        names: dict[int, TreeNode | int] = {
            name: at for name, at in self.names.items() if isinstance(at, int) and at >= first
        }
        nodes = self.tree.root.subtree()
        self.names = names | {node.name: node for node in nodes if node.name}

    def offer(self, guess: Proposal) -> None:
        """Somebody else's chain; the place of a token is all that is said of it."""
        node: TreeNode | None = self.tree.root
        for place, token in enumerate(guess.tokens):
            if node is None:
                return
            node = self.tree.add(node, token, guess.drafter, place)

    def take(self, row: OfferRow) -> None:
        """Hang each node where it belongs by now; drop it where that has gone."""
        self.catch_up()
        told = zip(row.parents, row.tokens, row.edges, strict=True)
        for name, (parent, token, edge) in enumerate(told, row.first):
            behind = self.names.get(parent) if parent else row.num_committed - 1
            if isinstance(behind, int) or (behind and self.tree.holds(behind)):
                self._take_one(name, behind, token, edge)

    def _take_one(self, name: int, behind: TreeNode | int, token: int, edge: Edge) -> None:
        if isinstance(behind, int):
            position = behind + 1
            if position < self.sequence.num_committed:
                if self.sequence.since(position)[0] == token:
                    self.names[name] = position
                return
            behind = self.tree.root
        node = self.tree.add(behind, token, DRAFT, edge)
        if node is not None:
            node.name = node.name or name
            self.names[name] = node
