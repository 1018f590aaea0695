"""The draft grows trees: what it guesses of each sequence's future, the likeliest first.

One step is one packed forward over the likeliest nodes of all sequences, as many as its own times
make worthwhile; what it found is pushed after each step. A node that was fed owns a row of its
sequence's cache, in the order of feeding. Whatever was computed along what came true is kept, and
all behind it.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Many

import msgspec
import torch

from outrider.actors.errors import PoolExhausted, ProtocolViolation
from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import Runner
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Offers
from outrider.actors.transport.rows import GrowRow, OfferRow
from outrider.actors.trees.chances import Chances
from outrider.actors.trees.tree import SpeculationTree, TreeNode
from outrider.actors.workers.ahead.growing_tree import (
    GrowingTree,
    Growth,
    Hungry,
    chunk_of,
    likeliest_of,
)
from outrider.actors.workers.ahead.growth_times import GrowthTimes
from outrider.actors.workers.ahead.queued_steps import Deepen, QueuedStep, queue_steps
from outrider.actors.workers.ahead.tree_sampler import TreeSampler
from outrider.actors.workers.model_worker import WorkerSequence

MAX_FAILED = 3  # sequences in a row: it is the draft's fault then
STEP_TOKENS = 256  # of a prompt to catch up with, in one step: what comes next waits for it

Choose = Callable[[Many[Hungry]], Many[Hungry]]

log = logging.getLogger(__name__)


class Grower:
    """The trees of one draft worker."""

    def __init__(
        self,
        runner: PooledRunner,
        sampler: TreeSampler,
        clock: Callable[[], float],
        drafter: str = DRAFT,
    ) -> None:
        """`drafter` is whose guesses they are, of MODELS."""
        self._clock = clock
        self._drafter = drafter
        self._runner = runner
        self._sampler = sampler
        self._trees: dict[int, GrowingTree] = {}
        self._untold: list[OfferRow] = []
        self._num_failed = 0  # sequences in a row that failed alone
        self.chances = Chances(drafter)
        self.times = GrowthTimes()
        self.sizes: list[int] = []  # of the last step, and of those behind it

    def grow(self, row: GrowRow, sequence: WorkerSequence) -> None:
        """Go on from what was committed. Raises ProtocolViolation."""
        known = row.num_committed - len(row.committed)
        if known != len(sequence.ids):
            raise ProtocolViolation(
                f"Got ids from position {known} for sequence {row.seq_id}, "
                f"expected from {len(sequence.ids)}"
            )
        if row.max_depth > self._runner.max_depth:
            row = msgspec.structs.replace(row, max_depth=self._runner.max_depth)
        growing = self._trees.get(row.seq_id)
        sequence.ids += row.committed
        stop = sequence.draft_stop or self._trouble(row, sequence)
        if stop is not None:
            self._stop(sequence, stop)
            return
        if growing is None:
            tree = SpeculationTree(sequence.ids[-1], row.num_committed - 1, self.chances)
            growing = GrowingTree(sequence, row, tree, self._drafter, hungry=[tree.root])
            self._trees[row.seq_id] = growing
            return
        growing.asked, growing.is_over = row, False
        if row.committed and (nearer := growing.follow(row.committed, self._runner)):
            self._untold.append(growing.offer(nearer))

    def forget(self, seq_id: int) -> None:
        """The sequence has ended, or begins anew."""
        self._trees.pop(seq_id, None)
        self._untold = [row for row in self._untold if row.seq_id != seq_id]

    def start_over(self) -> None:
        """Rows of guesses are gone, of all trees."""
        for growing in self._trees.values():
            for node in growing.fed:
                node.place = -1
            growing.fed, growing.hungry = [], [growing.tree.root]

    @property
    def num_places(self) -> int:
        """That a step tells of behind a root."""
        return self._runner.num_places

    def most_further(self, node: TreeNode, growing: GrowingTree) -> int:
        """How many steps behind this one may be fed before it is known what it draws there."""
        if growing.sequence.processor is not None:
            return 0
        depth = growing.asked.max_depth - (node.position - growing.first)
        return max(0, min(depth, self._runner.context_len - node.position) - 1)

    def tree(self, seq_id: int) -> GrowingTree | None:
        """A sequence's, while it is followed."""
        return self._trees.get(seq_id)

    def advance(
        self,
        choose: Choose | None = None,
        num_behind: int | None = None,
        deepen: Deepen | None = None,
    ) -> Offers | None:
        """One step: of the nodes that `choose` takes, else of as many as make the most of its time;
        None if there is nothing left to do. num_behind: tokens of prompts to catch up with. Where
        a device need not wait for the host, as many steps behind it as `deepen` says.
        """
        started = self._clock()
        num_behind = STEP_TOKENS if num_behind is None else num_behind
        growths = self._growths(choose or self._most_a_second, num_behind)
        if not growths:
            rows, self._untold = self._untold, []
            return Offers(tuple(rows), 0, started, 0.0) if rows else None
        try:
            logits = self._runner.forward([growth.chunk for growth in growths])
            by_place = self._runner.by_place()
        except PoolExhausted:  # an optimisation must not fail a round
            self._give_up(growths)
            return self.advance(choose, num_behind, deepen)
        except Exception:
            log.exception("a step of the draft failed")
            (growths, logits), by_place = self._each_alone(growths), None
            if not growths:
                return self.advance(choose, num_behind, deepen)
        for growth in growths:
            growth.growing.feed(growth.nodes)
        queued = self._queued(growths, logits, deepen)
        drawn = self._taken(queued) if queued else self._drawn(growths, logits, by_place)
        rows, self._untold = self._untold + drawn, []
        num_fed = sum(len(growth.nodes) for growth in growths)
        num_tokens, step_s = sum(len(g.chunk.tokens) for g in growths), self._clock() - started
        first = num_tokens if self._runner.computes_text else num_fed
        self.sizes = [first, *(len(step.rows) for step in queued[1:])]
        self.times.add(self.sizes, step_s)
        return Offers(tuple(rows), num_tokens + sum(self.sizes[1:]), started, step_s)

    def _growths(self, choose: Choose, num_behind: int) -> list[Growth]:
        """What the next step feeds: nodes, and what prompts have yet to catch up."""
        context_len, growths, hungry = self._runner.context_len, list[Growth](), list[Hungry]()
        room = max(STEP_TOKENS, num_behind)  # for texts that are not fed yet
        for growing in self._trees.values():
            if growing.is_over:
                continue
            cache, has_text = growing.sequence.cache, self._runner.has_text
            size = growing.first - cache.len if has_text and not growing.fed else 0
            reach = self._runner.reach(cache)
            if size > room or growing.is_waiting or reach <= growing.first:
                most = min(size, room, num_behind, reach - cache.len)
                if most > 0:
                    behind = growing.sequence.ids[cache.len :][:most]
                    growths.append(Growth(growing, Segment(cache, behind, 0), []))
                    num_behind -= most
                room = 0 if size > room else room - size
                continue
            room -= size
            hungry += [
                (node, growing)
                for node in growing.hungry
                if growing.is_worth_feeding(node, context_len)
            ]
        chosen: dict[int, tuple[GrowingTree, list[TreeNode]]] = {}
        for node, growing in choose(hungry):
            if node.parent is None or node.parent.place >= 0:
                chosen.setdefault(id(growing), (growing, []))[1].append(node)
        for growing, nodes in chosen.values():
            nodes.sort(key=lambda node: node.position)  # those at one place share their noise
            growths.append(Growth(growing, chunk_of(growing, nodes), nodes))
            growing.hungry = [node for node in growing.hungry if node not in nodes]
        return growths

    def _most_a_second(self, hungry: Many[Hungry]) -> Many[Hungry]:
        """As many of the likeliest as make the most of a step's time."""
        found = likeliest_of(hungry)
        return found[: self.times.most_a_second([node.chance for node, _ in found])]

    def _drawn(
        self, growths: list[Growth], logits: torch.Tensor, by_place: torch.Tensor | None
    ) -> list[OfferRow]:
        """New nodes behind all that were fed; where a grammar fails, that sequence has none."""
        if not any(growth.nodes for growth in growths):
            return []
        try:
            return self._offers(self._sampler.draw(growths, logits, by_place))
        except Exception:
            log.exception("a step of the draft failed")
        rows, at = [], 0
        for growth in growths:
            end = at + len(growth.nodes)
            try:
                rows += self._offers(self._sampler.draw([growth], logits[at:end]))
            except Exception as error:
                self._drop(growth, error)
            at = end
        return rows

    def _queued(
        self, growths: list[Growth], logits: torch.Tensor, deepen: Deepen | None
    ) -> list[QueuedStep]:
        """This step and those behind it; none where it is enough, or that fails."""
        runner = self._runner
        if deepen is None or not isinstance(runner, Runner) or not runner.is_queued:
            return []
        depths = deepen([(node, each.growing) for each in growths for node in each.nodes])
        if not any(depths.values()):
            return []
        try:
            return queue_steps(runner, self._sampler, growths, logits, depths)
        except Exception:
            log.exception("a step of the draft failed")
            return []

    def _taken(self, queued: list[QueuedStep]) -> list[OfferRow]:
        """New nodes behind all that they fed."""
        rows = list[OfferRow]()
        try:
            for number, step in enumerate(queued):
                if number:
                    step.settle(queued[number - 1])
                rows += self._offers(self._sampler.take(step.drafting))
        except Exception:
            log.exception("a step of the draft failed")
            for step in queued:
                step.give_up()
        return rows

    def _offers(self, children: dict[int, list[TreeNode]]) -> list[OfferRow]:
        return [self._trees[seq_id].offer(nodes) for seq_id, nodes in children.items() if nodes]

    def _trouble(self, row: GrowRow, sequence: WorkerSequence) -> DraftStop | None:
        """Why the draft cannot follow any more."""
        if max(row.committed, default=0) >= self._runner.num_embeddings:
            return DraftStop.VOCABULARY
        return DraftStop.CONTEXT if row.num_committed >= self._runner.context_len else None

    def _stop(self, sequence: WorkerSequence, stop: DraftStop) -> None:
        sequence.draft_stop = stop
        self._runner.rollback(sequence.cache, 0)
        self._trees.pop(sequence.row.seq_id, None)
        row = OfferRow(sequence.row.seq_id, len(sequence.ids), 0, (), (), (), stop=stop)
        self._untold.append(row)

    def _drop(self, growth: Growth, error: Exception) -> None:
        """Follow a sequence no more. Raises the error if several in a row were dropped."""
        sequence = growth.growing.sequence
        log.error("the draft cannot follow sequence %d: %s", sequence.row.seq_id, error)
        self._stop(sequence, DraftStop.FAILED)
        self._num_failed += 1
        if self._num_failed >= MAX_FAILED:
            raise error

    def _each_alone(self, growths: list[Growth]) -> tuple[list[Growth], torch.Tensor]:
        """Those that can be computed, and their logits; the others are not followed any more.

        Raises if several in a row cannot: it is no sequence's fault then.
        """
        done, logits = [], []
        for growth in growths:
            try:
                logits.append(self._runner.forward([growth.chunk]))
                done.append(growth)
                self._num_failed = 0
            except Exception as error:
                self._drop(growth, error)
        return done, torch.cat(logits) if logits else torch.empty(0, self._runner.vocab_size)

    def _give_up(self, growths: list[Growth]) -> None:
        """No pages for all of them: trees grow no more, then the last text waits for a commit.

        Commits give back what trees hold; where there are none, that text is not followed.
        """
        if not self._runner.has_text:
            for growth in growths:
                growth.growing.is_over = True
            return
        for growth in growths:
            growth.growing.hungry += growth.nodes
        if grown := [growth.growing for growth in growths if growth.growing.fed]:
            for growing in grown:
                growing.is_over = True
            return
        last = growths[-1].growing
        last.is_over = True
        if not any(growing.fed for growing in self._trees.values()):
            self._stop(last.sequence, DraftStop.PAGES)
