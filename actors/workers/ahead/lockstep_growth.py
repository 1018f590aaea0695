"""The draft and its target taking turns: trees are grown while that is worth the target's time.

One more step of the draft's is worth it while the chances that it is expected to add, each less the
price of its place in the forward, are more than the tokens that could be made in its time. Chains
whose length is given, or that are drawn, are grown to that length.
"""

import logging
from collections.abc import Iterator
from collections.abc import Sequence as Many
from typing import TypedDict

import msgspec

from outrider.actors.errors import ProtocolViolation
from outrider.actors.lookahead.latency_curve import TimeCurve
from outrider.actors.lookahead.price import Price
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.transport.messages import Offers, Round, VerifyReply
from outrider.actors.transport.rows import CountRow, GrowRow, StepRow, StopRow, TurnRow
from outrider.actors.trees.chances import DRAWN
from outrider.actors.trees.choosing import Candidate, drawn_length, worth_judging
from outrider.actors.trees.tree import TreeNode
from outrider.actors.workers.ahead.grower import STEP_TOKENS
from outrider.actors.workers.ahead.growing_tree import (
    MAX_STEP_NODES,
    GrowingTree,
    Hungry,
    likeliest_of,
    path_of,
)
from outrider.actors.workers.draft import DraftWorker

LIKELY = 0.5  # what is fed before anything was measured
TRIED = 0.01  # of the time, for steps that by what is known are not worth it: else it stays so
SMOOTHING = 1 / 8

log = logging.getLogger(__name__)


class Told(TypedDict):
    """Parts of a RoundReply."""

    draft: tuple[StepRow, ...]
    stops: tuple[StopRow, ...]
    counts: tuple[CountRow, ...]


class LockstepGrowth:
    """Of one pair."""

    def __init__(self, draft: DraftWorker) -> None:
        self._draft, self._grower = draft, draft.grower
        self._turns: dict[int, TurnRow] = {}  # of the present round, by sequence
        self._price = Price(TimeCurve(), 0.0)
        self._num_tokens = 0  # of the target's forward, beside what is drafted now
        self._num_chosen = 0  # of those, in the last one
        self._fed: list[TreeNode] = []  # by the present step, for what it promises
        self._promised = self._brought = 1.0  # tokens, by steps
        self._num_rested = 0  # verdicts, a token each or more, since a step was made
        self._is_tried = False  # whether a step is made however little it is worth
        self._steps: list[StepRow] = []  # that the coordinator was not told of
        self._stops: list[StopRow] = []

    def begin(self, message: Round) -> None:
        """A round, from what was committed on."""
        curve = self._price.curve
        if curve.points != message.curve:
            curve = TimeCurve.through(message.curve)
        self._price = Price(curve, message.rate)
        verify = message.verify
        num_prompt_tokens = sum(row.num_tokens for row in verify.prefill)
        self._num_tokens = sum(1 + len(row.tokens) for row in verify.rows) + num_prompt_tokens
        self._turns = {turn.grow.seq_id: turn for turn in message.turns}
        self._num_rested += len(verify.rows)
        cost = message.rate * self._grower.times.curve.at(1)  # of a step, in tokens
        self._is_tried = self._num_rested * TRIED > cost > 0
        for turn in message.turns:
            self._go_on(turn.grow, is_waiting=False)
        for row in message.waiting:
            self._go_on(row, is_waiting=True)
        for turn, growing in self._growing():
            _offer(turn, growing)
        self.grow(max(STEP_TOKENS, num_prompt_tokens))

    def grow(self, num_behind: int = 0) -> None:
        """Until no step is worth its time. num_behind: tokens of prompts to catch up with."""
        advance = self._grower.advance
        while (told := advance(self._choose, num_behind, self._further)) is not None:
            num_behind = 0
            self._stops += (StopRow(r.seq_id, r.stop) for r in told.rows if r.stop is not None)
            if told.num_tokens:
                self._num_rested, self._is_tried = 0, False
                self._steps += _steps_of(told, self._grower.sizes)
            cost = self._cost
            for node in self._fed:
                found = list(node.children.values())
                for each in found:
                    if each.place >= 0 or self._grower.num_places > 1:
                        found += each.children.values()
                behind = (each.chance - cost for each in found)
                self._brought += sum(gain for gain in behind if gain > 0)
            self._fed = []

    def chosen(self) -> dict[int, list[TreeNode]]:
        """What is worth its place in the target's forward, by sequence."""
        followed = list(self._growing())
        candidates = [
            Candidate(
                growing.tree.root,
                self._chain_length(turn, growing),
                turn.num_nodes,
                turn.grow.max_depth,
                growing.is_drawn,
            )
            for turn, growing in followed
        ]
        chosen, _ = worth_judging(candidates, self._price, self._num_tokens)
        self._num_chosen = sum(map(len, chosen))
        for nodes in chosen:
            self._grower.chances.judge(nodes)
        found = zip(followed, chosen, strict=True)
        return {turn.grow.seq_id: nodes for (turn, _), nodes in found if nodes}

    def told(self) -> Told:
        """What happened since this was last asked for."""
        steps, stops, self._steps, self._stops = self._steps, self._stops, [], []
        counts = self._grower.chances.take_counts().items()
        return {
            "draft": tuple(steps),
            "stops": tuple(stops),
            "counts": tuple(CountRow(drafter, what, num) for (drafter, what), num in counts),
        }

    def follow(self, verdicts: VerifyReply, chosen: dict[int, list[TreeNode]]) -> None:
        """Go on behind the target's own verdict, before the coordinator has committed it."""
        followed = {turn.grow.seq_id for turn, _ in self._growing()}
        ids = {
            row.seq_id: (
                *(path_of(chosen[row.seq_id][row.node]) if row.node >= 0 else ()),
                row.token,
            )
            for row in verdicts.rows
            if row.seq_id in followed and not row.error
        }
        turns, self._turns = self._turns, {}
        for seq_id, committed in ids.items():
            asked = turns[seq_id].grow
            left = asked.max_depth - len(committed)
            if left < 1:
                continue
            row = msgspec.structs.replace(
                asked,
                num_committed=asked.num_committed + len(committed),
                committed=committed,
                max_depth=left,
            )
            self._turns[seq_id] = msgspec.structs.replace(turns[seq_id], grow=row, guesses=())
            self._grow_from(row)

    def forget(self, seq_ids: Many[int]) -> None:
        """They have ended."""
        for seq_id in seq_ids:
            self._turns.pop(seq_id, None)

    @property
    def _cost(self) -> float:
        """Of one more token in the target's forward."""
        return self._price.of(self._num_tokens + self._num_chosen)

    def _growing(self) -> Iterator[tuple[TurnRow, GrowingTree]]:
        """Of this round, those that the draft follows."""
        for seq_id, turn in self._turns.items():
            if (growing := self._grower.tree(seq_id)) is not None:
                yield turn, growing

    def _chain_length(self, turn: TurnRow, growing: GrowingTree) -> int | None:
        """None where the price decides node by node."""
        if not turn.is_priced:
            return turn.k
        if growing.is_drawn:
            chance = self._grower.chances.of(growing.drafter, DRAWN)
            return drawn_length(self._price.of(len(self._turns)), chance, turn.k)
        return None

    def _grow_from(self, row: GrowRow) -> None:
        """Where a step grows a tree to its end, as far as it is worth judging."""
        if self._grower.num_places > 1:
            least = max(row.min_chance, self._cost)
            row = msgspec.structs.replace(row, min_chance=least)
        self._draft.grow(row)

    def _go_on(self, row: GrowRow, *, is_waiting: bool) -> None:
        """From there, of which the verdict may have told already; or not at all."""
        try:
            sequence = self._draft.find(row.seq_id)
            known = len(sequence.ids) - (row.num_committed - len(row.committed))
            if 0 < known <= len(row.committed):
                row = msgspec.structs.replace(row, committed=row.committed[known:])
            self._grow_from(row)
        except ProtocolViolation as error:  # nobody else's draft
            log.error("the draft cannot follow sequence %d: %s", row.seq_id, error)
            self._grower.forget(row.seq_id)
            self._stops.append(StopRow(row.seq_id, DraftStop.FAILED))
        if growing := self._grower.tree(row.seq_id):
            growing.is_waiting = is_waiting

    def _choose(self, hungry: Many[Hungry]) -> Many[Hungry]:
        """Of a step: the ends of chains, and as many other nodes as are worth the time."""
        ends, free = set[int](), set[int]()
        for turn, growing in self._growing():
            length = self._chain_length(turn, growing)
            if length is None:
                free.add(id(growing))
            elif end := growing.chain_end(length):
                ends.add(id(end))
        chosen = [each for each in hungry if id(each[0]) in ends][:MAX_STEP_NODES]
        found = likeliest_of([each for each in hungry if id(each[1]) in free])
        chances = [node.chance for node, _ in found[: MAX_STEP_NODES - len(chosen)]]
        likely = found[: self._num_worth(chances, len(chosen))]
        self._fed = [node for node, _ in likely]
        return chosen + likely

    def _further(self, fed: Many[Hungry]) -> dict[int, int]:
        """Behind chains as far as they go; behind others as far as a step is worth it by what is
        typical of a first guess.
        """
        lengths = {id(each): self._chain_length(turn, each) for turn, each in self._growing()}
        chains, most, free = dict[int, int](), dict[int, int](), list[TreeNode]()
        for node, growing in fed:
            most[id(node)] = self._grower.most_further(node, growing)
            if (length := lengths.get(id(growing), 0)) is None:
                free.append(node)
            else:
                left = length - 1 - (node.position - growing.first)
                chains[id(node)] = max(0, min(left, most[id(node)]))
        if not self._price.rate or self._is_tried or not self._grower.times.is_known:
            return chains
        free.sort(key=lambda node: -node.chance)
        depths, level, typical = dict(chains), 0, self._grower.chances.typical
        while free:
            level += 1
            num_chains = sum(depth >= level for depth in chains.values())
            free = [node for node in free if most[id(node)] >= level]
            chances = [node.chance * typical**level for node in free]
            free = free[: self._num_worth(chances, num_chains)]
            depths |= {id(node): level for node in free}
        return depths

    def _gain(self, chance: float, typical: float, cost: float) -> float:
        """Tokens that a step with a node of this chance is expected to bring, by the best guess at
        each place that it tells of, less what they cost in the target's forward.
        """
        gain, chance = 0.0, chance * typical
        for _ in range(self._grower.num_places):
            if chance <= cost:
                break
            gain += chance - cost
            chance *= typical
        return gain

    def _num_worth(self, chances: Many[float], num_chosen: int) -> int:
        """Of nodes of these chances, greatest first, how many a step is worth beside others."""
        grower, rate = self._grower, self._price.rate
        typical, curve = grower.chances.typical, grower.times.curve
        if not rate:
            return sum(chance > LIKELY for chance in chances)
        if self._is_tried or not self._grower.times.is_known:
            rate = 0.0
        cost, trust = self._cost, self._brought / self._promised
        before_s = curve.at(num_chosen) if num_chosen else 0.0
        best, worth, total, promised = 0, 0.0, 0.0, 0.0
        for size, chance in enumerate(chances, 1):
            gain = self._gain(chance, typical, cost)
            if gain <= 0:
                break
            total += gain
            net = total * trust - rate * (curve.at(num_chosen + size) - before_s)
            if net > worth:
                best, worth, promised = size, net, total
        if best:
            self._promised += promised - self._promised * SMOOTHING
            self._brought -= self._brought * SMOOTHING
        return best


def _steps_of(told: Offers, sizes: Many[int]) -> Iterator[StepRow]:
    """One behind another, of which none was timed alone."""
    step_s, num_first = told.step_s / len(sizes), told.num_tokens - sum(sizes[1:])
    for at, num_tokens in enumerate((num_first, *sizes[1:])):
        yield StepRow(num_tokens, told.started_s + at * step_s, step_s)


def _offer(turn: TurnRow, growing: GrowingTree) -> None:
    """What others expect."""
    for guess in turn.guesses:
        growing.hungry += growing.tree.offer(
            guess.drafter, guess.tokens, guess.parents, guess.edges
        )
