"""reStructuredText as a tree: lines, and directives with what is indented under them.

Comments, labels and options are left out. Knows nothing of what a directive means, but that those
which describe an object of Python are followed by its signatures.
"""

import itertools
import re
import textwrap
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

CALLABLES = frozenset(
    "function method classmethod staticmethod decorator coroutinefunction coroutinemethod "
    "awaitablefunction awaitablemethod abstractmethod".split()
)
CLASSES = frozenset({"class", "exception"})
VALUES = frozenset({"data", "attribute"})
OBJECTS = CALLABLES | CLASSES | VALUES

MARK = re.compile(r"^( *)\.\.(?: |$)")
DIRECTIVE = re.compile(r"^ *\.\. ([\w-]+):: *(.*)$")
OPTION = re.compile(r"^ *:[\w-]+:(?: |$)")


@dataclass(frozen=True, slots=True)
class Directive:
    """`.. name:: argument`, and its body."""

    name: str
    arguments: tuple[str, ...]  # of an object its signatures, else the rest of the line
    body: "tuple[Node, ...]"
    indent: int = 0
    is_repeated: bool = False  # said of an object whose own place is elsewhere


Node = str | Directive


def parse(text: str) -> tuple[Node, ...]:
    """The tree of a page."""
    return tuple(_nodes(text.expandtabs().splitlines()))


def _nodes(lines: Many[str]) -> Iterator[Node]:
    at = 0
    while at < len(lines):
        mark = MARK.match(lines[at])
        if mark is None:
            yield lines[at].rstrip()
            at += 1
            continue
        indent = len(mark[1])
        end = _end(lines, at + 1, indent)
        if found := DIRECTIVE.match(lines[at]):
            yield _directive(found[1], found[2], lines[at + 1 : end], indent)
            yield ""
        at = end


def _end(lines: Many[str], start: int, indent: int) -> int:
    """Where the block under a mark ends: at the first line that is not deeper."""
    for at in range(start, len(lines)):
        if lines[at].strip() and len(lines[at]) - len(lines[at].lstrip()) <= indent:
            return at
    return len(lines)


def _directive(name: str, argument: str, block: Many[str], indent: int) -> Directive:
    num_more = 0
    if name in OBJECTS:
        while num_more < len(block) and block[num_more].strip(" :"):
            if OPTION.match(block[num_more]):
                break
            num_more += 1
    signatures = re.sub(r"\\ *\n", " ", "\n".join([argument, *block[:num_more]])).split("\n")
    rest = list(block[num_more:])
    options = list(itertools.takewhile(OPTION.match, rest))
    body = _nodes(textwrap.dedent("\n".join(rest[len(options) :])).split("\n"))
    arguments = tuple(" ".join(signature.split()) for signature in signatures)
    is_repeated = any(option.strip() == ":noindex:" for option in options)
    return Directive(name, arguments, tuple(body), indent, is_repeated)
