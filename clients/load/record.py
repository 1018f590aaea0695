"""What became of one request, and the latencies that follow from it. Times are seconds."""

from dataclasses import dataclass
from itertools import pairwise

from outrider.clients.load.answer import AnswerDraftStats, StreamChunk
from outrider.clients.load.token_counts import CountedBy

INTERRUPTED = "interrupted"  # by whoever ran the measurement: no error of the server's


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """Why a request has no whole answer."""

    kind: str  # one of few: connection, timeout, http_503, …
    message: str


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Times count from the start of the measurement."""

    index: int
    due_s: float  # by the schedule; in a closed loop, when its place was free
    start_s: float  # when the generator got to it
    sent_s: float  # when it went out, after waiting for a free place where they are limited
    end_s: float
    max_tokens: int
    chunks: tuple[StreamChunk, ...] = ()  # those with tokens
    counted_by: CountedBy = CountedBy.CHUNKS
    num_prompt_tokens: int | None = None  # as the server counted
    num_cached_tokens: int | None = None
    finish_reason: str | None = None
    drafting: AnswerDraftStats | None = None
    fingerprint: str | None = None
    failure: RequestFailure | None = None

    def __post_init__(self) -> None:
        assert self.due_s <= self.start_s <= self.sent_s <= self.end_s
        assert self.chunks or self.failure, "an answer without tokens is a failure"

    @property
    def is_complete(self) -> bool:
        """Whether the whole answer came."""
        return self.failure is None

    @property
    def is_interrupted(self) -> bool:
        """Whether the measurement ended before the answer."""
        return self.failure is not None and self.failure.kind == INTERRUPTED

    @property
    def num_output_tokens(self) -> int:
        """Tokens that came."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def lateness_s(self) -> float:
        """How far behind its schedule the generator was."""
        return self.start_s - self.due_s

    @property
    def queue_s(self) -> float:
        """How long the request waited here for one of a limited number of places."""
        return self.sent_s - self.start_s

    @property
    def ttft_s(self) -> float:
        """Time to first token: from sending to the first chunk with tokens."""
        return self.chunks[0].at_s - self.sent_s

    @property
    def e2el_s(self) -> float:
        """End-to-end latency: from sending to the last token, as `vllm bench serve` has it."""
        return self.chunks[-1].at_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for an answer of one token."""
        num_gaps = self.num_output_tokens - 1
        return (self.e2el_s - self.ttft_s) / num_gaps if num_gaps else None

    @property
    def chunk_gaps_s(self) -> list[float]:
        """From each chunk with tokens to the next."""
        times = [chunk.at_s for chunk in self.chunks]
        return [later - earlier for earlier, later in pairwise(times)]

    @property
    def itls_s(self) -> list[float]:
        """Inter-token latencies: one for each token but the first, so their mean is the TPOT.

        A chunk of m tokens is one gap, then m - 1 of zero: they came together. Counting chunks
        in the place of tokens would make a server look slower the more it sends at once.
        """
        if not self.chunks:
            return []
        first, *others = self.chunks
        gaps = [0.0] * (first.num_tokens - 1)
        for chunk, gap_s in zip(others, self.chunk_gaps_s, strict=True):
            gaps += [gap_s] + [0.0] * (chunk.num_tokens - 1)
        return gaps
