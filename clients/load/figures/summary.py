"""What a measurement comes to. Arithmetic over records; knows neither HTTP nor how it is shown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from outrider.clients.load.figures.distribution import Distribution, distribution
from outrider.clients.load.figures.goodput import is_good
from outrider.clients.load.figures.server_counters import ServerCounters
from outrider.clients.load.figures.speculation import DraftStats, told_by_answers, told_by_counters
from outrider.clients.load.figures.timeline import most_open, timeline
from outrider.clients.load.load_generator import LoadRun
from outrider.clients.load.record import RequestRecord


@dataclass(frozen=True)
class Summary:
    """A run in figures; times in milliseconds where a name ends so, else in seconds."""

    run: LoadRun
    objectives_ms: Mapping[str, float]
    counters: ServerCounters | None = None  # of the server, while it was measured

    @cached_property
    def records(self) -> list[RequestRecord]:
        """By the order in which they were due."""
        return sorted(self.run.records, key=lambda record: record.index)

    @cached_property
    def completed(self) -> list[RequestRecord]:
        """With a whole answer."""
        return [record for record in self.records if record.is_complete]

    @cached_property
    def failures(self) -> Counter[str]:
        """Failed requests by kind; what was interrupted from here did not fail."""
        failed = (r.failure for r in self.records if r.failure and not r.is_interrupted)
        return Counter(failure.kind for failure in failed)

    @property
    def num_interrupted(self) -> int:
        """Requests that the end of the measurement cut off."""
        return sum(record.is_interrupted for record in self.records)

    @property
    def num_input_tokens(self) -> int | None:
        """Of the prompts of whole answers, as the server counted; None where it did not."""
        counts = [record.num_prompt_tokens for record in self.completed]
        return sum(map(int, filter(None, counts))) if any(counts) else None

    @property
    def num_cached_tokens(self) -> int | None:
        """Of those, the ones the server had not to compute; None where it did not say."""
        counts = [r.num_cached_tokens for r in self.completed if r.num_cached_tokens is not None]
        return sum(counts) if counts else None

    @property
    def num_output_tokens(self) -> int:
        """Of whole answers."""
        return sum(record.num_output_tokens for record in self.completed)

    @property
    def num_chunks(self) -> int:
        """That these came in."""
        return sum(len(record.chunks) for record in self.completed)

    def a_second(self, count: float) -> float:
        """A count of the whole measurement as a rate."""
        return count / self.run.duration_s if self.run.duration_s else 0.0

    @property
    def num_good(self) -> int:
        """Requests that met every objective."""
        return sum(is_good(record, self.objectives_ms) for record in self.completed)

    @cached_property
    def latencies(self) -> dict[str, Distribution | None]:
        """By vLLM's name of the measure; milliseconds; whole answers only."""
        done = self.completed
        values: dict[str, Sequence[float]] = {
            "ttft": [record.ttft_s for record in done],
            "tpot": [record.tpot_s for record in done if record.tpot_s is not None],
            "itl": [gap_s for record in done for gap_s in record.itls_s],
            "e2el": [record.e2el_s for record in done],
            "chunk_gap": [gap_s for record in done for gap_s in record.chunk_gaps_s],
            "client_queue_time": [record.queue_s for record in done],
            "lateness": [record.lateness_s for record in self.records],
            "timer_lag": self.run.lags_s,
        }
        return {name: distribution([1e3 * s for s in each]) for name, each in values.items()}

    @property
    def most_tokens_a_second(self) -> int:
        """Tokens of whole answers in the best second."""
        return max(timeline(self.completed, self.run.duration_s).num_tokens)

    @property
    def most_open(self) -> int:
        """Requests open at once."""
        return most_open(self.records)

    @property
    def cpu_share(self) -> float:
        """Of one core, by this process."""
        return self.a_second(self.run.cpu_s)

    @cached_property
    def counted_by(self) -> Counter[str]:
        """Whole answers by how their tokens were counted."""
        return Counter(record.counted_by.name.lower() for record in self.completed)

    @cached_property
    def speculations(self) -> list[DraftStats]:
        """How drafting went: as the answers tell, and as the server's counters do."""
        told = [told_by_answers(self.completed)]
        if self.counters is not None:
            told.append(told_by_counters(self.counters))
        return [each for each in told if each is not None]
