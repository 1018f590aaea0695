"""What was found for a setting that was left open, and from what: a row of the table that the log,
`/capabilities` and people read.
"""

from dataclasses import dataclass

ASKED = "as asked"


@dataclass(frozen=True, slots=True)
class Found:
    """One setting."""

    name: str
    value: str
    reason: str


def table(rows: tuple[Found, ...]) -> list[str]:
    """Lines with their columns below each other.

    >>> table((Found("k", "4", "as asked"), Found("max_batch", "64", "on cores")))
    ['k          4   as asked', 'max_batch  64  on cores']
    """
    names = max(len(row.name) for row in rows)
    values = max(len(row.value) for row in rows)
    return [f"{row.name:<{names}}  {row.value:<{values}}  {row.reason}" for row in rows]
