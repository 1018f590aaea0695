"""The facts on pages of the Python documentation, each under its qualified name."""

import re
from collections.abc import Iterator
from collections.abc import Sequence as Many
from collections.abc import Set as AbstractSet
from dataclasses import replace

from outrider.cluster.demo.corpus.fact import Fact, Kind, sentences
from outrider.cluster.demo.corpus.prose import paragraphs
from outrider.cluster.demo.corpus.rst import CALLABLES, CLASSES, OBJECTS, Directive, Node

NAME = re.compile(r"[\w.]+")
OF_CLASSES = frozenset(
    "method classmethod staticmethod coroutinemethod awaitablemethod abstractmethod "
    "attribute".split()
)


def qualified(nodes: Many[Node]) -> tuple[Node, ...]:
    """The page with every object's signatures under its full name."""
    return tuple(_Scope().page(nodes))


def facts(nodes: Many[Node]) -> Iterator[tuple[Fact, bool]]:
    """Of a qualified page, in its order, each with whether its own place is another."""
    for node in nodes:
        if isinstance(node, str):
            continue
        if node.name in OBJECTS and (said := sentences(paragraphs(node.body))):
            yield Fact(name_of(node), _kind(node), node.arguments[0], said), node.is_repeated
        yield from facts(node.body)


def without(nodes: Many[Node], names: AbstractSet[str]) -> tuple[Node, ...]:
    """A qualified page that does not tell of those."""
    return tuple(
        node if isinstance(node, str) else replace(node, body=without(node.body, names))
        for node in nodes
        if isinstance(node, str) or node.name not in OBJECTS or name_of(node) not in names
    )


def name_of(directive: Directive) -> str:
    """Of an object; empty if its signature begins with no name."""
    found = NAME.match(directive.arguments[0])
    return found[0] if found else ""


def _kind(directive: Directive) -> Kind:
    if directive.name in CALLABLES:
        return Kind.CALLABLE
    return Kind.CLASS if directive.name in CLASSES else Kind.VALUE


class _Scope:
    """The module that a page is in, line by line."""

    def __init__(self) -> None:
        self._module = ""

    def page(self, nodes: Many[Node], owner: str = "") -> Iterator[Node]:
        for node in nodes:
            if isinstance(node, str):
                yield node
                continue
            if node.name in ("module", "currentmodule"):
                self._module = node.arguments[0]
            if node.name not in OBJECTS:
                yield replace(node, body=tuple(self.page(node.body, owner)))
                continue
            node = replace(node, arguments=tuple(self._full(node.name, owner, node.arguments)))
            inner = name_of(node) if node.name in CLASSES else owner
            yield replace(node, body=tuple(self.page(node.body, inner)))

    def _full(self, directive: str, owner: str, signatures: Many[str]) -> Iterator[str]:
        """`join(path)` in os.path is os.path.join(path); a method may be written with its class."""
        for signature in signatures:
            found = NAME.match(signature)
            local = found[0] if found else ""
            prefix = f"{self._module}." if self._module else ""
            is_owned = bool(owner) and directive in OF_CLASSES and "." not in local
            if is_owned:
                prefix = f"{owner}."
            elif directive not in OF_CLASSES and local.startswith(prefix):
                prefix = ""
            yield prefix + signature if local else signature
