"""A timeline of rounds for people to look at: Chrome's trace events, which ui.perfetto.dev opens.

Owns the newest spans of a run and writes them once, at the end. Knows no clock and no worker: who
records a span says on which track, since when and for how long.
"""

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Many
from pathlib import Path
from typing import NamedTuple

import msgspec

from outrider.actors.errors import InvalidConfig

MAX_SPANS = 100_000  # the newest: 36 MB held, 13 MB written

Argument = str | int | float | bool


class Span(NamedTuple):
    """Something that took time."""

    track: str
    name: str
    start_s: float
    duration_s: float
    args: dict[str, Argument]


class Trace:
    """Records spans and writes them when closed; without a path, does neither."""

    def __init__(self, path: Path | None = None, max_spans: int = MAX_SPANS) -> None:
        """Raises InvalidConfig if the file cannot be written: not after the run, but now."""
        self.is_on = path is not None
        self._spans: deque[Span] = deque(maxlen=max_spans)
        self._num_recorded = 0
        if path is not None:
            try:
                self._file = path.open("wb")
            except OSError as error:
                raise InvalidConfig(f"Got a trace file that cannot be written: {error}") from error

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def span(
        self, track: str, name: str, start_s: float, duration_s: float, **args: Argument
    ) -> None:
        """Record a span. Those of one track may hold one another but not cross."""
        if self.is_on:
            self._spans.append(Span(track, name, start_s, duration_s, args))
            self._num_recorded += 1

    def close(self) -> None:
        """Write the file. Nothing is recorded any more."""
        if not self.is_on:
            return
        self.is_on = False
        with self._file as file:
            file.write(msgspec.json.encode(self._document()))
        self._spans.clear()

    def _document(self) -> dict[str, object]:
        tracks: dict[str, int] = {}
        for span in self._spans:
            tracks.setdefault(span.track, len(tracks) + 1)
        names = [
            {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": track}}
            for track, tid in tracks.items()
        ]
        started_s = min((span.start_s for span in self._spans), default=0.0)
        spans = [
            {
                "ph": "X",  # complete: its start and its length in one event
                "pid": 1,
                "tid": tracks[span.track],
                "name": span.name,
                "ts": round((span.start_s - started_s) * 1e6, 3),  # µs, as the format wants
                "dur": round(span.duration_s * 1e6, 3),
                "args": span.args,
            }
            for span in self._spans
        ]
        num_lost = self._num_recorded - len(self._spans)
        return {
            "traceEvents": [*names, *spans],
            "displayTimeUnit": "ms",
            "otherData": {"num_spans_lost": num_lost},
        }


STEPS = ("schedule", "propose", "verify", "commit")


def record_round(
    trace: Trace,
    *,
    bounds: Many[float],
    num_rows: int,
    num_prefill: int,
    target: tuple[float, Mapping[str, float]],
    nodes: Mapping[str, float],
) -> None:
    """The coordinator's four steps between five bounds, and what the target did in them.

    What its device had no part in is drawn last, though some of it came before: only how long it
    took is known. Units: seconds of one monotonic clock; `target` is when it began, and its parts.
    `nodes`: of trees, by drafter and what became of them; they stand at "verify".
    """
    for name, since, until in zip(STEPS, bounds, bounds[1:], strict=False):
        told = nodes if name == "verify" else {}
        trace.span("coordinator", name, since, until - since, num_rows=num_rows, **told)
    since, parts = target
    for name, seconds in parts.items():
        trace.span("target", name, since, seconds, num_rows=num_rows, num_prefill=num_prefill)
        since += seconds
