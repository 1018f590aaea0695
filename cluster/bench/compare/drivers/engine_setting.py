"""What a setting's words mean to a driver: how it drafts, and behind a comma in what it computes.

"plain", "k=3" (by the draft model), or what the engine calls its own guessing from the text; then
nothing for float32, or ", bf16".
"""

from dataclasses import dataclass

PRECISIONS = ("f32", "bf16")


@dataclass(frozen=True)
class EngineSetting:
    """One of an engine's ways to run."""

    k: int  # tokens that the draft model proposes; 0 without it
    lookup: str  # the engine's word for its own guessing; empty without it
    precision: str

    @classmethod
    def of(cls, words: str) -> "EngineSetting":
        """Raises ValueError for another precision."""
        way, _, precision = words.partition(", ")
        if precision not in ("", *PRECISIONS):
            raise ValueError(f"Got precision {precision!r}, accepted: {', '.join(PRECISIONS)}")
        k = int(way.removeprefix("k=")) if way.startswith("k=") else 0
        return cls(k, "" if k or way == "plain" else way, precision or PRECISIONS[0])
