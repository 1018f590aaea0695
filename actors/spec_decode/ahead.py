"""Proposals out of speculation trees: everybody offers, the price decides what is judged.

The draft grows its trees while the target verifies. When the target is free, the round goes out at
once, unless one more step of the draft is worth more than what is made in the time that it takes.
"""

import asyncio
import logging
from collections.abc import Iterator

from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.lookahead.round_report import DRAFT, DraftPasses
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Sequence
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.followed import Followed
from outrider.actors.spec_decode.proposer import NOTHING, Fallback, Proposal, Proposals
from outrider.actors.telemetry.statistics import FORESEEN, Statistics
from outrider.actors.telemetry.trace import Trace
from outrider.actors.transport.messages import AnyMessage, Close, Grow, Offers, Open
from outrider.actors.transport.rows import GrowRow, SparseRow
from outrider.actors.transport.worker_client import WorkerClient
from outrider.actors.trees.chances import DRAWN, NUM_FIRST, NUM_GUESSES, Chances
from outrider.actors.trees.choosing import FLOOR, Candidate, drawn_length, worth_judging
from outrider.actors.trees.tree import (
    SpeculationTree,
    TreeNode,
    drafters_of,
    likeliest_end,
    promised_of,
    proposal_of,
)

MAX_STEPS = 8  # that a round waits for
GROWN = 0.05  # of a place's price: may pay after the next verdict; by trial in worlds.py's worlds
SMOOTHING = 1 / 8

log = logging.getLogger(__name__)


class AheadDraft:
    """A draft worker that grows trees, or none, beside what other drafters offer.

    Rows in rejection mode have a chain: what was drawn, as far as it was, or another drafter's.
    """

    def __init__(
        self,
        draft_length: DraftLength,
        prices: PriceController | None,
        statistics: Statistics,
        trace: Trace,
    ) -> None:
        """Without prices every row has a chain as long as `draft_length` says."""
        self._draft_length = draft_length
        self._prices = prices
        self._price: Price | None = None  # of this round
        self._statistics = statistics
        self._trace = trace
        self._client: WorkerClient | None = None
        self._followed: dict[int, Followed] = {}
        self._chances = Chances()
        self._offered = asyncio.Event()
        self._untold: list[Sequence] = []
        self._judged: list[list[TreeNode]] = []  # and not counted yet
        self._step_s, self._hops_s = 0.0, 0.0  # of the draft, of late; and of asking it
        self._step_tokens = 0.0  # that it feeds
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
        self._price = self._prices.price(len(plan.rows)) if self._prices else None
        rows, proposals = list[Followed](), Proposals()
        for sequence in plan.rows:
            followed, before = self._of(sequence), given.get(sequence.seq_id, NOTHING)
            followed.catch_up()
            if followed.is_grown and followed.unlearned:
                self._statistics.count(FORESEEN, followed.foreseen)
            if not followed.is_drawn:
                followed.offer(before)
                for guess in fill(sequence):
                    followed.offer(guess)
            elif before.tokens:
                proposals[sequence.seq_id] = before
                continue
            rows.append(followed)
        self._untold = plan.sequences
        num_tokens = len(plan.rows) + sum(len(each.tokens) for each in proposals.values())
        num_tokens += plan.num_prompt_tokens
        self._judged = await self._choose(rows, num_tokens, plan.num_nodes)
        asyncio.get_running_loop().call_soon(self._tell)
        for followed, nodes in zip(rows, self._judged, strict=True):
            if nodes:
                rows_of = [node.row for node in nodes if node.row] if followed.is_drawn else ()
                proposals[followed.sequence.seq_id] = _proposal(nodes, tuple(rows_of))
            elif followed.is_drawn:
                guess = next(fill(followed.sequence), NOTHING)
                proposals[followed.sequence.seq_id] = guess.chain()
        return proposals

    async def _choose(
        self, rows: list[Followed], num_tokens: int, most: int
    ) -> list[list[TreeNode]]:
        """The nodes of each, once no step of the draft is worth waiting for."""
        loop, price = asyncio.get_running_loop(), self._price
        candidates = [self._candidate(followed, len(rows), most) for followed in rows]
        chosen, worth = worth_judging(candidates, price, num_tokens)
        end = loop.time() + MAX_STEPS * (self._step_s + self._hops_s)
        while price is not None and price.rate and loop.time() < end:
            cost = price.of(num_tokens + sum(map(len, chosen)))
            self._statistics.set(price=cost)
            wait_s, promised = self._next_step(rows, cost)
            if promised * self._brought / self._promised <= price.rate * wait_s:
                break
            self._tell()
            self._offered.clear()
            before, began = worth, loop.time()
            try:
                async with asyncio.timeout(min(2 * wait_s, end - loop.time())):
                    await self._offered.wait()
            except TimeoutError:
                end = 0.0
            self._statistics.add(draft_wait_s=loop.time() - began)
            chosen, worth = worth_judging(candidates, price, num_tokens)
            self._brought += (worth - before) - self._brought * SMOOTHING
            self._promised += promised - self._promised * SMOOTHING
        return chosen

    def _candidate(self, followed: Followed, num_rows: int, most: int) -> Candidate:
        sequence = followed.sequence
        return Candidate(
            followed.tree.root,
            self._chain_length(followed, num_rows, self._price),
            self._draft_length.num_nodes(sequence, most),
            sequence.num_left - 1,
            followed.is_drawn,
        )

    def _next_step(self, rows: list[Followed], price: float) -> tuple[float, float]:
        """Seconds that another step takes, and what its nodes would be worth in tokens."""
        if not self._step_s:
            return 0.0, 0.0
        grown = [
            each
            for each in rows
            if each.is_grown and self._is_free(each) and self._draft_length.draft_k(each.sequence)
        ]
        if not grown:
            return 0.0, 0.0
        wait_s, typical = self._step_s, self._chances.typical
        if any(each.num_told < each.sequence.num_committed for each in grown):
            wait_s += self._hops_s
        gains = [likeliest_end(each.tree.root, price).chance * typical - price for each in grown]
        gains = sorted([gain for gain in gains if gain > 0], reverse=True)
        return wait_s, sum(gains[: max(1, round(self._step_tokens))])

    def _is_free(self, followed: Followed) -> bool:
        """Whether the price decides, node by node, what is judged of it; else it has a chain."""
        return self._prices is not None and followed.is_priced and not followed.is_drawn

    def _chain_length(self, followed: Followed, num_rows: int, price: Price | None) -> int | None:
        """How long its chain may be; None where it has none."""
        if self._is_free(followed):
            return None
        most = self._draft_length.draft_k(followed.sequence)
        if price is None or not followed.is_priced:
            return most
        return drawn_length(price.of(num_rows), self._chances.of(DRAFT, DRAWN), most)

    def _of(self, sequence: Sequence) -> Followed:
        followed = self._followed.get(sequence.seq_id)
        if followed is None:
            last = (sequence.output_ids or sequence.request.prompt_ids)[-1]
            tree = SpeculationTree(last, sequence.num_committed - 1, self._chances)
            followed = Followed(sequence, tree, sequence.num_committed)
            self._followed[sequence.seq_id] = followed
        return followed

    def _tell(self) -> None:
        """The draft, of what was committed. Whatever the target need not wait for is done here."""
        sequences, self._untold = self._untold, []
        self._count()
        rows = tuple(self._grow_rows(sequences))
        if rows and self._client is not None:
            self._asked_at = asyncio.get_running_loop().time()
            self._client.tell(Grow(rows))

    def _count(self) -> None:
        judged, self._judged = self._judged, []
        for nodes in judged:
            self._chances.judge(nodes)
        self._statistics.count_nodes(self._chances.take_counts())

    def _least_chance(self, num_rows: int) -> tuple[float, int]:
        """Of a node that is worth a place in a step of the draft's, at this many rows; and how many
        guesses are worth looking at behind each.
        """
        price = self._price
        cost = price.of(num_rows) if price else 0.0
        num_guesses = NUM_GUESSES if cost < self._chances.late_guess else NUM_FIRST
        return max(FLOOR, min(1.0, GROWN * cost)), num_guesses

    def _grow_rows(self, sequences: list[Sequence]) -> Iterator[GrowRow]:
        price = self._price
        min_chance, num_guesses = self._least_chance(len(sequences))
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
            length = self._chain_length(followed, len(sequences), price)
            if length is not None:  # this chain, the target's token and the next chain
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
            share = SMOOTHING if self._step_s else 1
            self._step_s += (step_s - self._step_s) * share
            self._step_tokens += (num_tokens - self._step_tokens) * share
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


def _proposal(nodes: list[TreeNode], rows: tuple[SparseRow, ...]) -> Proposal:
    tokens, parents = proposal_of(nodes)
    return Proposal(tokens, rows, drafters_of(nodes), parents, promised=promised_of(nodes))
