"""Names of a text's full pages, by what they hold: pages of equal text have equal names.

A page's keys and values depend on every id up to its last, so each name covers the name before it.
"""

import hashlib
from collections.abc import Sequence as Many

import numpy as np

NAME_BYTES = 16  # long enough that nobody finds two texts of one name


class PrefixHasher:
    """Of one sequence, made as far as they are needed. Another salt gives other names."""

    def __init__(self, salt: str, page_size: int) -> None:
        self._names = [hashlib.blake2b(salt.encode(), digest_size=NAME_BYTES).digest()]
        self._size = page_size

    def upto(self, ids: Many[int], num_pages: int) -> list[bytes]:
        """The names of the first pages; `ids` holds them whole, and never changes there."""
        names, size = self._names, self._size
        for at in range(len(names) - 1, num_pages):
            text = np.array(ids[at * size : (at + 1) * size], np.int32).tobytes()
            names.append(hashlib.blake2b(names[-1] + text, digest_size=NAME_BYTES).digest())
        return names[1 : num_pages + 1]
