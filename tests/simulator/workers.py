"""A target and a draft without models: they take the time that they are told to, on the loop's
clock, and speak the real messages.
"""

import asyncio
from collections import deque

from outrider.actors.lookahead.fork_selection import DOUBTED, WIDEST, Odds
from outrider.actors.transport.messages import (
    Close,
    Done,
    Forecasts,
    Open,
    OpenReply,
    Outcomes,
    Ping,
    Pong,
    Propose,
    ProposeReply,
    StepTimes,
    Verify,
    VerifyReply,
)
from outrider.actors.transport.rows import ForecastRow, ProposalRow, VerdictRow
from outrider.actors.workers.token_tree import TokenTree

STEP_TOKENS = 256  # to catch up with in one step


class ModelledWorker:
    """A WorkerClient: one thread that takes messages in order, each hop_s after it was sent."""

    node = "here"
    is_lost = False

    def __init__(self, hop_s):
        self.pid = 1
        self.busy_s = 0.0
        self._hop_s = hop_s
        self._loop = asyncio.get_running_loop()
        self._sent = deque()
        self._inbox = deque()
        self._arrived = asyncio.Event()
        self._take = lambda message: None
        self._task = self._loop.create_task(self._run())

    async def call(self, message):
        future = self._loop.create_future()
        self._send(message, future)
        return await future

    def tell(self, message):
        self._send(message, None)

    def on_push(self, take):
        self._take = take

    def push(self, message):
        self._loop.call_later(self._hop_s, lambda: self._take(message))

    async def ended(self):
        await self._loop.create_future()

    async def close(self):
        self._task.cancel()

    async def handle(self, message):
        match message:
            case Open():
                for row in message.rows:
                    self.open(row)
                return OpenReply(10**9, (0,) * len(message.rows))
            case Close():
                for seq_id in message.seq_ids:
                    self.forget(seq_id)
                return OpenReply(10**9)
            case Ping():
                return Pong(self.role, 1, 0, 0, 0)
        return await self.step(message)

    async def advance(self):
        """Work that nobody waits for; whether there was any."""
        return False

    async def works(self, seconds):
        self.busy_s += seconds
        await asyncio.sleep(seconds)

    def _send(self, message, future):
        self._sent.append((message, future))
        self._loop.call_later(self._hop_s, self._arrive)

    def _arrive(self):
        self._inbox.append(self._sent.popleft())
        self._arrived.set()

    async def _run(self):
        while True:
            while self._inbox:
                message, future = self._inbox.popleft()
                answer = await self.handle(message)
                if future is not None:
                    self._loop.call_later(self._hop_s, _answer, future, answer)
            if not await self.advance() and not self._inbox:
                self._arrived.clear()
                await self._arrived.wait()


def _answer(future, answer):
    if not future.done():  # its caller was cancelled
        future.set_result(answer)


class ModelledTarget(ModelledWorker):
    role = "target"

    def __init__(self, text, verify_s, hop_s):
        super().__init__(hop_s)
        self._text = text
        self._verify_s = verify_s  # of the number of tokens
        self._lens = {}
        self._num_computed = {}  # tokens with KV, by sequence

    def open(self, row):
        self._num_computed[row.seq_id] = 0
        self._lens[row.seq_id] = len(row.prompt_ids) + len(row.committed_ids)

    def forget(self, seq_id):
        self._lens.pop(seq_id, None)

    async def step(self, message):
        assert isinstance(message, Verify)
        computed = self._num_computed
        num_tokens = sum(
            row.num_committed - computed[row.seq_id] + len(row.tokens) for row in message.rows
        )
        for row in message.prefill:
            num_tokens += row.num_tokens
            computed[row.seq_id] += row.num_tokens
        started_s, verify_s = self._loop.time(), self._verify_s(num_tokens)
        await self.works(verify_s)
        rows = tuple(self._judge(row) for row in message.rows)
        return VerifyReply(rows, StepTimes(started_s, verify_s, 0.0, 0.0), num_free_pages=10**9)

    def _judge(self, row):
        assert row.num_committed == self._lens[row.seq_id]
        count = 0
        while count < len(row.tokens) and row.tokens[count] == self._text.token(
            row.seq_id, row.num_committed + count
        ):
            count += 1
        self._num_computed[row.seq_id] = row.num_committed + count
        self._lens[row.seq_id] += count + 1
        token = self._text.token(row.seq_id, row.num_committed + count)
        return VerdictRow(row.seq_id, row.id, count, token, (0.0,) * (count + 1), "")


class ModelledDraft(ModelledWorker):
    """Forecasts with the real token tree; only what its nodes expect is made up."""

    role = "draft"

    def __init__(self, text, step_s, hop_s):
        super().__init__(hop_s)
        self._text = text
        self._step_s = step_s  # of the number of tokens
        self._num_computed = {}  # committed tokens, by sequence
        self._forecasts = {}  # seq_id -> (outcome, tree)
        self._odds = Odds()

    def open(self, row):
        self._num_computed[row.seq_id] = 0

    def forget(self, seq_id):
        self._num_computed.pop(seq_id, None)
        self._forecasts.pop(seq_id, None)

    async def step(self, message):
        match message:
            case Outcomes():
                for row in message.rows:
                    self._outcome(row)
                return Done()
            case Propose():
                return await self._propose(message)

    async def _propose(self, message):
        num_passes = max((row.k for row in message.rows), default=1)
        seconds = num_passes * self._step_s(len(message.rows))
        started_s = self._loop.time()
        await self.works(seconds)
        rows = tuple(
            ProposalRow(
                row.seq_id,
                tuple(
                    self._text.drafted(row.seq_id, row.num_committed + at) for at in range(row.k)
                ),
                (),
            )
            for row in message.rows
        )
        return ProposeReply(rows=rows, started_s=started_s, step_s=seconds, num_passes=num_passes)

    def _outcome(self, row):
        before, fed = self._forecasts.get(row.seq_id), []
        if before is not None:
            fed = before[1].fed_along((*row.committed, *row.tokens))
            self._num_computed[row.seq_id] = before[1].first + len(fed)
        tree = TokenTree(0, row.num_committed - 1, row.tokens, self._odds)
        tree.inherit(fed[len(row.committed) :])
        self._forecasts[row.seq_id] = row, tree

    async def advance(self):
        rows = [row for row, _ in self._steps(fed=False)]
        started_s = self._loop.time()
        if rows:
            self._push(rows, 0, started_s, 0.0)
            return True
        jobs, num_tokens = [], 0
        for seq_id, (asked, tree) in self._forecasts.items():
            indices = tree.hungry(asked.max_tokens, 1 << 30)
            behind = 0 if tree.parents or not indices else tree.first - self._num_computed[seq_id]
            if behind > STEP_TOKENS:
                self._num_computed[seq_id] += STEP_TOKENS
                indices, behind = [], STEP_TOKENS
            num_tokens += len(indices) + behind
            jobs.append((seq_id, tree, indices))
        if not num_tokens:
            return False
        seconds = self._step_s(num_tokens)
        await self.works(seconds)
        for seq_id, tree, indices in jobs:
            for index in indices:
                self._expect(seq_id, tree.nodes[index])
            tree.feed(indices)
        fed = {seq_id for seq_id, _, indices in jobs if indices}
        rows = [row for row, seq_id in self._steps(fed=True) if seq_id in fed]
        self._push(rows, num_tokens, started_s, seconds)
        return True

    def _expect(self, seq_id, node):
        node.next_token = self._text.drafted(seq_id, node.position + 1)
        node.prob = 1 - (1 - self._text.acceptance) / DOUBTED
        node.guesses = self._text.guesses(seq_id, node.position + 1, WIDEST + 1)

    def _steps(self, fed):
        """What changed, by sequence."""
        for seq_id, (asked, tree) in self._forecasts.items():
            growth = (
                tuple((number, tip.next_token) for number, tip in tree.grow(asked.min_chance))
                if fed
                else ()
            )
            forks = tuple(tree.fork(asked.num_branches))
            if forks or growth:
                yield ForecastRow(seq_id, asked.id, forks, growth, ()), seq_id

    def _push(self, rows, num_tokens, started_s, seconds):
        self.push(
            Forecasts(rows=tuple(rows), num_tokens=num_tokens, started_s=started_s, step_s=seconds)
        )
