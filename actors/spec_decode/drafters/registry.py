"""What guesses on the coordinator's side: from token ids alone, one drafter per sequence.

None sees how its guesses are judged. They are one-hot: the verdict needs no probabilities of them.
"""

from collections.abc import Sequence as Many
from typing import Protocol


class Drafter(Protocol):
    """Follows one sequence."""

    def extend(self, ids: Many[int]) -> None:
        """Take in ids that the sequence gained: its prompt, then every commit."""
        ...

    def propose(self, max_tokens: int) -> tuple[int, ...]:
        """Guesses of what comes next, none where there is nothing to go by. Changes nothing."""
        ...
