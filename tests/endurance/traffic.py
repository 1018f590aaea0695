"""The clients of a soak: some always there, bursts of more, and those that leave in mid-stream."""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

import httpx
from endurance.asks import LostRequest, pieces

SHOWN = 5  # of each kind of failure, in full


@dataclass
class Figures:
    """What the clients saw."""

    num_texts: int = 0  # complete, and as they should be
    num_tokens: int = 0
    num_left: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    # When a commit came (monotonic), the time since the last one by its tokens, and their number.
    latencies: list[tuple[float, float, int]] = field(default_factory=list)


class Clients:
    """Ask a server and compare what it says with what it said undisturbed."""

    def __init__(self, http, asks, rng):
        self._http = http
        self._asks = asks
        self._rng = rng
        self._expected = []
        self.figures = Figures()

    async def learn(self):
        """Ask for everything once, one at a time."""
        for ask in self._asks:
            self._expected.append(await self._answer(ask.undisturbed, Figures()))

    async def stay(self, is_over, leaving):
        """Ask again and again; leave the first stream and that share of the others early."""
        await self.one(self._rng.randrange(len(self._asks)), leaves_after=1)
        while not is_over():
            number = self._rng.randrange(len(self._asks))
            leaves_after = self._rng.randrange(1, 9) if self._rng.random() < leaving else None
            await self.one(number, leaves_after)

    async def burst(self, size):
        """So many at once."""
        numbers = [self._rng.randrange(len(self._asks)) for _ in range(size)]
        await asyncio.gather(*(self.one(number) for number in numbers))

    async def one(self, number, leaves_after=None):
        """Ask for one text; a failure is noted, not raised."""
        figures, ask = self.figures, self._asks[number]
        try:
            got = await self._answer(ask, figures, leaves_after)
        except (LostRequest, httpx.HTTPError) as error:
            figures.lost.append(f"{ask}: {error!r}")
            return
        if got is None:
            figures.num_left += 1
        elif got != self._expected[number]:
            figures.wrong.append(f"{ask}: got {got}, expected {self._expected[number]}")
        else:
            figures.num_texts += 1

    async def _answer(self, ask, figures, leaves_after=None):
        """Text and reason of each choice; None if it left before the end."""
        texts, reasons, last_at, num_events = defaultdict(str), {}, {}, 0
        async with self._http.stream("POST", ask.path, json=ask.body) as reply:
            if reply.status_code != 200:
                raise LostRequest(f"{reply.status_code}: {(await reply.aread())[:300]!r}")
            async for line in reply.aiter_lines():
                now = time.monotonic()
                for piece in pieces(line):
                    texts[piece.index] += piece.text
                    reasons[piece.index] = piece.reason
                    figures.num_tokens += piece.num_tokens
                    if piece.num_tokens and (before := last_at.get(piece.index)) is not None:
                        each_s = (now - before) / piece.num_tokens
                        figures.latencies.append((now, each_s, piece.num_tokens))
                    last_at[piece.index] = now
                num_events += 1
                if num_events == leaves_after:
                    return None
        if len(reasons) != ask.body.get("n", 1) or None in reasons.values():
            raise LostRequest("the stream broke off")
        return dict(texts), reasons
