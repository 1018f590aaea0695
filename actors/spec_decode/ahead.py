"""Proposals out of speculation trees: everybody offers, the price decides what is judged.

The draft grows its trees while the target verifies. When the target is free, the round goes out at
once, unless one more step of the draft is worth more than what is made in the time that it takes.
"""

import asyncio
import logging
from collections.abc import Iterator

from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.round_report import DRAFT, DraftPasses
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.followed import Followed
from outrider.actors.spec_decode.proposer import NOTHING, Fallback, Proposal, Proposals
from outrider.actors.telemetry.statistics import FORESEEN, Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import AnyMessage, Close, Grow, Offers, Open
from outrider.actors.transport.rows import GrowRow
from outrider.actors.transport.worker_client import WorkerClient
from outrider.actors.trees.chances import DRAWN, NUM_FIRST, NUM_GUESSES, Chances
from outrider.actors.trees.tree import SpeculationTree, TreeNode, likeliest, proposal_of

MAX_STEPS = 8  # that a round waits for
GROWN = 0.15  # of a place's price: may pay after the next verdict; found by trial on two cores
FLOOR = 0.005  # the least chance that is looked at: what a price may come to is more
SMOOTHING = 1 / 8

log = logging.getLogger(__name__)


class AheadDraft:
    """A draft worker that grows trees, or none, beside what other drafters offer.

    Rows in rejection mode have a chain: what was drawn, as far as it was, or another drafter's.
    """

    def __init__(
        self,
        draft_length: DraftLength,
        price: Price | None,
        statistics: Statistics,
        trace: Trace,
    ) -> None:
        """Without a price every row has a chain as long as `draft_length` says."""
        self._draft_length = draft_length
        self._price = price
        self._statistics = statistics
        self._trace = trace
        self._client: WorkerClient | None = None
        self._followed: dict[int, Followed] = {}
        self._chances = Chances()
        self._offered = asyncio.Event()
        self._untold: list[Sequence] = []
        self._step_s, self._hops_s = 0.0, 0.0  # of the draft, of late; and of asking it
        self._promised = self._brought = 1.0  # tokens by steps that were waited for
        self._asked_at: float | None = None  # the first answer tells of the hops
        self.passes: list[DraftPasses] = []
        self.failure = ""

    def use(self, client: WorkerClient | None) -> None:
        if client is not self._client:
            self._client, self._untold = client, []
            for followed in self._followed.values():
                followed.forget_draft()
            if client is not None:
                client.on_push(self._take)

    def follow(self, running: list[Sequence]) -> None:
        ended = self._followed.keys() - {s.seq_id for s in running}
        opened = tuple(i for i in ended if self._followed.pop(i).is_opened)
        if self._client is None:
            return
        if opened:
            self._client.tell(Close(opened))
        for sequence in running:
            followed = self._of(sequence)
            if not followed.is_opened and self._draft_length.draft_k(sequence):
                followed.is_opened = True
                followed.num_told = sequence.num_committed
                self._client.tell(Open((sequence.open_row(),)))

    async def propose(self, plan: SchedulerOutput, given: Proposals, fill: Fallback) -> Proposals:
        """What is worth its place. The draft is told of commits once the target has its round."""
        rows, proposals = list[Sequence](), Proposals()
        for sequence in plan.rows:
            followed, before = self._of(sequence), given.get(sequence.seq_id, NOTHING)
            followed.catch_up()
            if followed.is_grown and followed.unlearned:
                self._statistics.count(FORESEEN, followed.foreseen)
            if not _is_drawn(sequence):
                followed.offer(before)
                followed.offer(fill(sequence))
            elif before.tokens:
                proposals[sequence.seq_id] = before
                continue
            rows.append(sequence)
        self._untold = plan.sequences
        num_tokens = len(plan.rows) + sum(len(each.tokens) for each in proposals.values())
        num_tokens += plan.num_prompt_tokens
        chosen = await self._choose(rows, num_tokens, plan.num_nodes)
        asyncio.get_running_loop().call_soon(self._tell)
        proposals |= {seq_id: _proposal(nodes) for seq_id, nodes in chosen.items() if nodes}
        for sequence in rows:
            if _is_drawn(sequence) and sequence.seq_id not in proposals:
                proposals[sequence.seq_id] = fill(sequence)
        return proposals

    async def _choose(
        self, rows: list[Sequence], num_tokens: int, most: int
    ) -> dict[int, list[TreeNode]]:
        """The nodes of each, once no step of the draft is worth waiting for."""
        chosen, worth = self._worth(rows, num_tokens, most)
        loop = asyncio.get_running_loop()
        end = loop.time() + MAX_STEPS * (self._step_s + self._hops_s)
        while self._price is not None and loop.time() < end:
            size = num_tokens + sum(map(len, chosen.values()))
            wait_s, promised = self._next_step(rows, self._price.of(size))
            if promised * self._brought / self._promised <= self._price.rate * wait_s:
                break
            self._tell()
            self._offered.clear()
            before = worth
            try:
                async with asyncio.timeout(min(2 * wait_s, end - loop.time())):
                    await self._offered.wait()
            except TimeoutError:
                end = 0.0
            chosen, worth = self._worth(rows, num_tokens, most)
            self._brought += (worth - before) - self._brought * SMOOTHING
            self._promised += promised - self._promised * SMOOTHING
        return chosen

    def _worth(
        self, rows: list[Sequence], num_tokens: int, most: int
    ) -> tuple[dict[int, list[TreeNode]], float]:
        """The nodes of each that are worth their place, and what they are worth in tokens; where k
        is given, a chain.
        """
        chosen: dict[int, list[TreeNode]] = {}
        free: list[Sequence] = []
        for sequence in rows:
            if self._has_tree(sequence):
                free.append(sequence)
            elif length := self._chain_length(sequence, len(rows)):
                root = self._followed[sequence.seq_id].tree.root
                chosen[sequence.seq_id] = _chain(root, length, _is_drawn(sequence))
        if self._price is None or not free:
            return chosen, 0.0
        trees = [
            (
                self._followed[sequence.seq_id].tree.root,
                self._draft_length.num_nodes(sequence, most),
                sequence.num_left - 1,
            )
            for sequence in free
        ]
        found = list(likeliest(trees, FLOOR))
        num_tokens += sum(map(len, chosen.values()))
        size, worth = self._price.worth([node.chance for _, node in found], num_tokens)
        for number, node in found[:size]:
            chosen.setdefault(free[number].seq_id, []).append(node)
        return chosen, worth

    def _next_step(self, rows: list[Sequence], price: float) -> tuple[float, float]:
        """Seconds that another step takes, and what its nodes would be worth in tokens."""
        grown = [
            self._followed[sequence.seq_id]
            for sequence in rows
            if self._has_tree(sequence) and self._draft_length.draft_k(sequence)
        ]
        grown = [followed for followed in grown if followed.is_grown]
        if not grown or not self._step_s:
            return 0.0, 0.0
        wait_s = self._step_s
        if any(each.num_told < each.sequence.num_committed for each in grown):
            wait_s += self._hops_s
        return wait_s, sum(max(0.0, self._next_chance(each) - price) for each in grown)

    def _next_chance(self, followed: Followed) -> float:
        """Of the best node that the draft would add next: behind the likeliest without one."""
        node = followed.tree.root
        while node.children:
            node = max(node.children.values(), key=lambda child: child.chance)
        return node.chance * self._chances.typical

    def _has_tree(self, sequence: Sequence) -> bool:
        """Whether the price decides, node by node, what is judged of it; else it has a chain."""
        is_free = self._price is not None and sequence.request.speculation.k is None
        return is_free and not _is_drawn(sequence)

    def _chain_length(self, sequence: Sequence, num_rows: int) -> int:
        """How long its chain may be: as was asked; or, of what is drawn, as far as a token is
        worth its place. Nothing that was drawn for it may decide this.
        """
        most = self._draft_length.draft_k(sequence)
        if self._price is None or sequence.request.speculation.k is not None:
            return most
        price, chance = self._price.of(num_rows), self._chances.of(DRAFT, DRAWN)
        return sum(chance**length > price for length in range(1, most + 1))

    def _of(self, sequence: Sequence) -> Followed:
        followed = self._followed.get(sequence.seq_id)
        if followed is None:
            last = (sequence.output_ids or sequence.request.prompt_ids)[-1]
            tree = SpeculationTree(last, sequence.num_committed - 1, self._chances)
            followed = Followed(sequence, tree, sequence.num_committed)
            self._followed[sequence.seq_id] = followed
        return followed

    def _tell(self) -> None:
        """The draft, of what was committed."""
        sequences, self._untold = self._untold, []
        rows = tuple(self._grow_rows(sequences))
        if rows and self._client is not None:
            self._asked_at = asyncio.get_running_loop().time()
            self._client.tell(Grow(rows))

    def _grow_rows(self, sequences: list[Sequence]) -> Iterator[GrowRow]:
        price = self._price.of(len(sequences)) if self._price else 0.0
        is_cheap = price < self._chances.late_guess
        num_guesses = NUM_GUESSES if is_cheap else NUM_FIRST
        min_chance = max(FLOOR, min(1.0, GROWN * price))
        for sequence in sequences:
            followed = self._followed.get(sequence.seq_id)
            if followed is None:
                continue
            followed.learn()
            if not followed.is_grown:
                continue
            committed = sequence.since(followed.num_told)
            if not self._draft_length.draft_k(sequence) or (followed.is_told and not committed):
                continue
            depth, least = max(0, sequence.num_left - 1), min_chance
            if not self._has_tree(sequence):  # this chain, the target's token and the next chain
                length = self._chain_length(sequence, len(sequences))
                depth = min(depth, 2 * length + 1)
                least = min(FLOOR, self._chances.typical**depth)
            followed.num_told, followed.is_told = sequence.num_committed, True
            yield GrowRow(
                seq_id=sequence.seq_id,
                num_committed=sequence.num_committed,
                committed=committed,
                max_depth=depth,
                min_chance=least,
                num_guesses=num_guesses,
            )

    def _take(self, message: AnyMessage) -> None:
        """A step of the draft's."""
        if not isinstance(message, Offers):
            log.warning("got %s from the draft, expected Offers", type(message).__name__)
            return
        step_s, num_tokens = message.step_s, message.num_tokens
        if num_tokens:
            told = {"num_tokens": num_tokens, "num_sequences": len(message.rows)}
            self._trace.span("draft", "step", message.started_s, step_s, **told)
            self.passes.append(DraftPasses(1, num_tokens, step_s))
            self._step_s += (step_s - self._step_s) * (SMOOTHING if self._step_s else 1)
        for row in message.rows:
            followed = self._followed.get(row.seq_id)
            if followed is None or not followed.is_opened:
                continue
            if row.stop is not None:
                followed.is_stopped = True
                self._statistics.count("draft_stopped", row.stop)
            else:
                followed.take(row)
            if self._asked_at is not None and row.num_committed == followed.num_told:
                hops_s = asyncio.get_running_loop().time() - self._asked_at - step_s
                self._asked_at = None
                self._hops_s += (hops_s - self._hops_s) * (SMOOTHING if self._hops_s else 1)
        self._offered.set()


def _is_drawn(sequence: Sequence) -> bool:
    """Whether its drafts are drawn, and accepted or rejected by chance."""
    request = sequence.request
    is_rejection = request.speculation.verification is VerificationMode.REJECTION
    return is_rejection and request.sampling.temperature > 0


def _chain(root: TreeNode, length: int, is_drawn: bool) -> list[TreeNode]:
    """The likeliest child, its likeliest, and so on; or what was drawn."""
    nodes, node = list[TreeNode](), root
    while len(nodes) < length:
        behind = [each for each in node.children.values() if each.row is not None or not is_drawn]
        if not behind:
            break
        node = max(behind, key=lambda child: child.chance)
        nodes.append(node)
    return nodes


def _proposal(nodes: list[TreeNode]) -> Proposal:
    tokens, parents = proposal_of(nodes)
    rows = tuple(node.row for node in nodes if node.row is not None)
    drafters = {drafter for node in nodes for drafter in node.edges}
    drafter = DRAFT if DRAFT in drafters else min(drafters)
    return Proposal(tokens, rows, drafter, parents)
