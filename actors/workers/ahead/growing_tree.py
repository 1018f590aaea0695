"""One sequence's tree in the draft: what was fed, what is hungry, and what comes of a node.

A node that was fed owns a row of the sequence's cache, in the order of feeding, the root's first.
"""

import heapq
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.transport.rows import GrowRow, OfferRow
from outrider.actors.trees.chances import DRAWN, PRIVATE, SAMPLED, draft_edge
from outrider.actors.trees.tree import SpeculationTree, TreeNode
from outrider.actors.workers.model_worker import WorkerSequence
from outrider.actors.workers.sampling_metadata import acceptance_rule
from outrider.kernels.contract.verdict import AcceptanceRule

MAX_STEP_NODES = 64
MODES = {
    AcceptanceRule.GREEDY: 0,
    AcceptanceRule.COUPLED: SAMPLED,
    AcceptanceRule.REJECTION: PRIVATE,
}
LEAST = 0.3  # of the chance that is worth a place in a step, for a node to be offered


@dataclass(slots=True)
class GrowingTree:
    """One sequence's."""

    sequence: WorkerSequence
    asked: GrowRow
    tree: SpeculationTree
    drafter: str = DRAFT  # who grows it
    fed: list[TreeNode] = field(default_factory=list)  # the root first; rows in this order
    hungry: list[TreeNode] = field(default_factory=list)  # not fed
    num_named: int = 0
    is_over: bool = False  # until the next GROW: there are no pages
    is_waiting: bool = False  # for a first verdict: it catches up, and is not grown yet
    # Whether its tokens are drawn to be accepted or rejected by chance: a chain is proposed, and
    # all else is what may come in its place.
    is_drawn: bool = field(init=False)
    mode: int = field(init=False)  # of its edges, see trees/chances.py

    def __post_init__(self) -> None:
        rule = acceptance_rule(self.sequence.row.sampling)
        self.is_drawn = rule is AcceptanceRule.REJECTION
        self.mode = MODES[rule]

    @property
    def first(self) -> int:
        """The root's row."""
        return self.tree.root.position

    def has(self, node: TreeNode) -> bool:
        """Whether it is one of the tree's."""
        parent = node.parent
        return node is self.tree.root if parent is None else parent.children.get(node.token) is node

    def feed(self, nodes: Many[TreeNode]) -> None:
        """Their rows are in the cache now."""
        for node in nodes:
            node.place = len(self.fed)
            self.fed.append(node)

    def follow(self, committed: Many[int], runner: PooledRunner) -> list[TreeNode]:
        """Down the tree. Rows of what came true, and behind it, move up; all others go. Returns
        guesses that are worth offering now that the text has come nearer.
        """
        tree, first, cache = self.tree, self.first, self.sequence.cache
        path, left = tree.commit(committed)
        tree.learn(path)
        if not runner.keeps_guesses:  # they were made of what it expected, not of what came
            if self.fed:
                runner.accept_path(cache, first, [0])
            tree.clear()
            self.fed, self.hungry = [], [tree.root]
            return []
        if self.fed:
            kept = [node for node in path[:-1] if node.place >= 0]
            behind = sorted((n for n in left if n.place >= 0), key=lambda node: node.place)
            places = [node.place for node in (*kept, *behind)]
            runner.accept_path(cache, first, places)
            self.fed = behind
            for place, node in enumerate(behind):
                node.place = place
        self.hungry = [node for node in left if node.place < 0]
        return [child for node in self.fed for child in children_of(self, node)]

    def offer(self, nodes: Many[TreeNode]) -> OfferRow:
        """Name these, for the coordinator; those behind which nothing is known yet get hungry."""
        first = self.num_named + 1
        for node in nodes:
            self.num_named += 1
            node.name = self.num_named
        self.hungry += [node for node in nodes if not node.guesses]
        root = self.tree.root
        return OfferRow(
            seq_id=self.asked.seq_id,
            num_committed=self.asked.num_committed,
            first=first,
            parents=tuple(0 if n.parent is root else n.parent.name for n in nodes if n.parent),
            tokens=tuple(node.token for node in nodes),
            edges=tuple(node.edges[self.drafter] for node in nodes),
            rows=tuple(node.row for node in nodes if node.row is not None),
        )

    def chain_end(self, length: int) -> TreeNode | None:
        """The node behind which a chain of this length goes on, if it is not as long yet."""
        node = self.tree.root
        for _ in range(length):
            if node.place < 0:
                return node
            behind = [
                each
                for each in node.children.values()
                if self.drafter in each.edges and (each.row is not None or not self.is_drawn)
            ]
            if not behind:
                return None
            node = max(behind, key=lambda child: child.chance)
        return None

    def is_worth_feeding(self, node: TreeNode, context_len: int) -> bool:
        depth = node.position - self.first
        return (
            node.chance >= self.asked.min_chance
            and depth < self.asked.max_depth
            and node.position < context_len
        )


@dataclass(frozen=True, slots=True)
class Growth:
    """One sequence's part in a step."""

    growing: GrowingTree
    chunk: Segment
    nodes: list[TreeNode]  # fed by it, whose logits are its rows


Hungry = tuple[TreeNode, GrowingTree]  # that a step may feed


def likeliest_of(hungry: Many[Hungry]) -> list[Hungry]:
    """As many as one step takes, likeliest first."""
    return heapq.nsmallest(
        MAX_STEP_NODES, hungry, key=lambda each: (-each[0].chance, each[0].position)
    )


def chunk_of(growing: GrowingTree, nodes: list[TreeNode]) -> Segment:
    """These nodes, and before a root all that it follows and has no row yet."""
    cache, places = growing.sequence.cache, {id(n): n.place for n in growing.fed}
    behind = [] if growing.fed else growing.sequence.ids[cache.len : growing.first]
    for node in nodes:
        places[id(node)] = len(places)
    parents = [-1 if n.parent is None else places[id(n.parent)] for n in (*growing.fed, *nodes)]
    tokens = [*behind, *(node.token for node in nodes)]
    return Segment(cache, tokens, len(nodes), parents, root=growing.first)


def path_of(node: TreeNode) -> list[int]:
    """The tokens from the root, itself left out, to a node."""
    tokens = []
    while node.parent is not None:
        tokens.append(node.token)
        node = node.parent
    return tokens[::-1]


def children_of(growing: GrowingTree, node: TreeNode) -> list[TreeNode]:
    """The guesses behind a node that are worth offering and were not, best first.

    What is not worth it now may be when the text has come nearer.
    """
    mode, found = growing.mode, []
    num_offered = sum(growing.drafter in child.edges for child in node.children.values())
    for rank in range(num_offered, len(node.guesses)):
        edge = draft_edge(node.prob, rank, mode)
        chance = node.chance * growing.tree.chance_of(edge)
        if edge != DRAWN and chance < LEAST * growing.asked.min_chance:
            break
        child = growing.tree.add(node, node.guesses[rank], growing.drafter, edge)
        if child is None:
            break
        found.append(child)
    return found


def grown_at_once(growing: GrowingTree, behind: Many[tuple[float, list[int]]]) -> list[TreeNode]:
    """All that is worth offering behind the root, where guesses depend on a node's depth alone: the
    first one's probability and the guesses, best first, behind the root, a node of the first
    level, and so on. The likeliest nodes first, each behind its parent.
    """
    root, found = growing.tree.root, list[TreeNode]()
    waiting = [(-root.chance, 0, root)]
    while waiting:
        _, _, node = heapq.heappop(waiting)
        depth = node.position - growing.first
        if depth >= min(len(behind), growing.asked.max_depth):
            continue
        if node.chance < growing.asked.min_chance:
            break  # nor are those behind it worth it
        prob, guesses = behind[depth]
        node.prob, node.guesses = prob, list(guesses)
        for child in children_of(growing, node):
            found.append(child)
            heapq.heappush(waiting, (-child.chance, len(found), child))
    return found
