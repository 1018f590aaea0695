"""Stand-ins for models: a target that continues by a rule, a draft that guesses it at times."""

from outrider.actors.errors import ProtocolViolation
from outrider.actors.transport.messages import (
    Close,
    Open,
    OpenReply,
    Ping,
    Pong,
    Propose,
    ProposeReply,
    StepTimes,
    Verify,
    VerifyReply,
)
from outrider.actors.transport.rows import ProposalRow, VerdictRow

VOCAB = 50


def successor(ids):
    """The toy target's next token: a function of all ids, so that any slip shows."""
    return sum((at + 1) * token for at, token in enumerate(ids)) * 7919 % VOCAB


def continuation(prompt, count):
    ids = list(prompt)
    for _ in range(count):
        ids.append(successor(ids))
    return ids[len(prompt) :]


class ToyWorker:
    """Keeps ids as a real worker does, and checks every length."""

    def __init__(self, num_pages=1000):
        self.num_pages = num_pages  # of 16 rows
        self.num_rows = {}  # of KV, by sequence
        self.ids = {}
        self.log = []
        self.failure = None

    def advance(self):
        return None

    def handle(self, message):
        self.log.append(message)
        if self.failure is not None:
            raise self.failure
        match message:
            case Open():
                for row in message.rows:
                    assert row.seq_id not in self.ids
                    self.ids[row.seq_id] = [*row.prompt_ids, *row.committed_ids]
                    self.num_rows[row.seq_id] = 0
                return OpenReply(self.num_free_pages, (0,) * len(message.rows))
            case Close():
                for seq_id in message.seq_ids:
                    self.ids.pop(seq_id, None)
                    self.num_rows.pop(seq_id, None)
                return OpenReply(self.num_free_pages)
            case Ping():
                return Pong(self.role, 1, len(self.ids), 1, 1)
        return self.step(message)

    @property
    def num_free_pages(self):
        return self.num_pages - sum(-(-rows // 16) for rows in self.num_rows.values())

    def reset(self):
        self.ids.clear()
        self.num_rows.clear()


class ToyTarget(ToyWorker):
    role = "target"

    def step(self, message):
        assert isinstance(message, Verify)
        for row in message.rows:
            self.num_rows[row.seq_id] = row.num_committed + len(row.tokens)
        for row in message.prefill:
            self.num_rows[row.seq_id] += row.num_tokens
        assert self.num_free_pages >= 0  # as a real one would raise
        rows = tuple(self.judge(row) for row in message.rows)
        for row in message.rows:
            self.num_rows[row.seq_id] = len(self.ids[row.seq_id]) - 1
        return VerifyReply(rows, StepTimes(0.0, 0.001, 0.0, 0.0), self.num_free_pages)

    def judge(self, row):
        ids = self.ids[row.seq_id]
        if row.num_committed != len(ids):
            raise ProtocolViolation(f"Got num_committed={row.num_committed}, expected {len(ids)}")
        count = 0
        while count < len(row.tokens) and row.tokens[count] == successor(ids):
            ids.append(row.tokens[count])
            count += 1
        token = successor(ids)
        ids.append(token)
        return VerdictRow(row.seq_id, row.id, count - 1, token, (-1.0,) * (count + 1), "")


class ToyDraft(ToyWorker):
    """Right at every position but each `period`-th."""

    role = "draft"

    def __init__(self, period=3):
        super().__init__()
        self.period = period

    def step(self, message):
        assert isinstance(message, Propose)
        rows = []
        for ask in message.rows:
            ids = self.ids[ask.seq_id]
            ids[ask.num_committed - len(ask.committed) :] = ask.committed
            assert len(ids) == ask.num_committed
            tokens = []
            for _ in range(ask.k):
                known = [*ids, *tokens]
                slip = len(known) % self.period == 0
                tokens.append((successor(known) + slip) % VOCAB)
            rows.append(ProposalRow(ask.seq_id, tuple(tokens), ()))
        return ProposeReply(tuple(rows), 0.0, 0.001, 1)
