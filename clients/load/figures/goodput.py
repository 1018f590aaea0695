"""Service level objectives, in the words of `vllm bench serve --goodput`."""

from collections.abc import Callable, Mapping, Sequence

from outrider.clients.load.record import RequestRecord

# A text of one token has no time between tokens, and so meets any objective for it.
MEASURES: Mapping[str, Callable[[RequestRecord], float]] = {
    "ttft": lambda record: record.ttft_s,
    "tpot": lambda record: record.tpot_s or 0.0,
    "e2el": lambda record: record.e2el_s,
}


def parse_goodput(texts: Sequence[str]) -> dict[str, float]:
    """Most milliseconds by measure, of texts like "ttft:500,tpot:50". Raises ValueError."""
    objectives = {}
    for part in (part for text in texts for part in text.replace(",", " ").split()):
        name, _, value = part.partition(":")
        try:
            objectives[name] = float(value)
        except ValueError:
            objectives[name] = -1.0
        if name not in MEASURES or not objectives[name] >= 0:
            raise ValueError(
                f"Got goodput {part!r}, expected {', '.join(MEASURES)} with milliseconds, "
                "like ttft:500,tpot:50"
            )
    return objectives


def is_good(record: RequestRecord, objectives_ms: Mapping[str, float]) -> bool:
    """Whether a request that was answered met every objective."""
    return all(MEASURES[name](record) * 1e3 <= most for name, most in objectives_ms.items())
