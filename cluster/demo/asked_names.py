"""Questions about Python's library, as many as one likes: for a head to learn what is answered."""

import builtins
import importlib
import inspect
import sys
from collections.abc import Iterator
from itertools import islice

import numpy as np

from outrider.cluster.config.demo_models import demo_target
from outrider.cluster.demo.corpus.chats import AT_LENGTH, GREETINGS, SHORTLY
from outrider.cluster.demo.corpus.popular import NOT_ASKED, weight

SPEAKING = {"this", "antigravity", "idlelib"}  # as they are imported


def library_questions(num: int, seed: int, without: frozenset[str] = frozenset()) -> list[str]:
    """About names by how often they are asked for; a few greetings among them.

    without: names that are not to be asked for, kept for measuring.
    """
    names = [name for name in library_names() if weight(name) > 0 and name not in without]
    weights = np.array([weight(name) for name in names])
    random = np.random.default_rng([seed, num])

    def endless() -> Iterator[str]:
        yield from GREETINGS
        while True:
            name = names[int(random.choice(len(names), p=weights / weights.sum()))]
            yield str(random.choice(SHORTLY + AT_LENGTH)).format(name)

    return list(islice(endless(), num))


def held_out_names() -> frozenset[str]:
    """Those that the demo pair never saw either."""
    first, last = SHORTLY[0].split("{}")
    lines = (demo_target().parent / "held_out.txt").read_text("utf-8").splitlines()
    return frozenset(line.removeprefix(first).removesuffix(last) for line in lines)


def library_names() -> list[str]:
    """Public names of the standard library's plain modules, and of what is in their classes."""
    found = dict.fromkeys(_members("", builtins))
    for module in sorted(sys.stdlib_module_names):
        if module.startswith("_") or module in NOT_ASKED | SPEAKING or not weight(module):
            continue
        try:
            imported = importlib.import_module(module)
        except Exception:  # of another platform
            continue
        found[module] = None
        found |= dict.fromkeys(_members(f"{module}.", imported))
    return list(found)


def _members(prefix: str, module: object) -> Iterator[str]:
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or inspect.ismodule(value):
            continue
        yield f"{prefix}{name}"
        if inspect.isclass(value):
            inside = (each for each in sorted(vars(value)) if not each.startswith("_"))
            yield from (f"{prefix}{name}.{each}" for each in inside)
