"""Names that do not exist, put together from those that are known."""

from collections.abc import Iterator
from collections.abc import Sequence as Many

import numpy as np

from outrider.cluster.demo.corpus.corpus import Corpus

PATCHED = 0.5  # share of those whose last part is made of two
AT_HOME = 0.5  # share of those whose last part comes from the same module


def invented(corpus: Corpus, random: np.random.Generator) -> Iterator[str]:
    """Without end: the place of a name with the last part of another, or of two in one.

    They look like names that are seldom asked for, of which most of what is known consists.
    """
    names = [tuple(fact.name.split(".")) for fact in corpus.facts]
    taken = {*names, *(tuple(fact.name.split(".")) for fact in corpus.held_out)}
    modules: dict[str, list[tuple[str, ...]]] = {}
    for name in names:
        modules.setdefault(name[0], []).append(name)
    while True:
        *place, last = _any(names, random)
        others = modules[place[0]] if place and random.random() < AT_HOME else names
        other = _any(others, random)[-1]
        made = (*place, _patched(last, other, random) if random.random() < PATCHED else other)
        if made not in taken:
            yield ".".join(made)


def _any(names: Many[tuple[str, ...]], random: np.random.Generator) -> tuple[str, ...]:
    return names[int(random.integers(len(names)))]


def _patched(first: str, second: str, random: np.random.Generator) -> str:
    """Words that the one begins with and words that the other ends with."""
    begin, end = first.split("_"), second.split("_")
    begins, ends = (int(random.integers(len(words))) for words in (begin, end))
    return "_".join([*begin[: begins + 1], *end[ends:]])
