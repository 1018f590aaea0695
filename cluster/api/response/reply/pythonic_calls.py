"""Calls that are written as Python: `[weather(city="Ulm"), time()]`. Told once all are there."""

import ast
import json
from collections.abc import Collection

from outrider.cluster.api.response.reply.reply_delta import CallDelta


class PythonicCalls:
    """The calls in one region of a text."""

    is_cut = is_over = False

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self.unread = ""  # at the end what is no call: all or nothing
        self.num_calls = 0
        self.error = ""

    def push(self, text: str) -> list[CallDelta]:
        """Take a piece of the region."""
        self.unread += text
        return []

    def close(self) -> list[CallDelta]:
        """The region has ended."""
        try:
            calls = [self._call(node) for node in _elements(self.unread)]
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            self.error = f"Got a list of calls that is not to be read: {error}"
            return []
        self.unread, self.num_calls = "", len(calls)
        return calls

    def _call(self, node: ast.expr) -> CallDelta:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            raise ValueError("expected calls by name")
        name = ast.unparse(node.func)
        if name not in self._names:
            raise ValueError(f"Got a call of {name!r}, expected one of {sorted(self._names)}")
        if node.args or any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("expected arguments by name")
        given = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
        return CallDelta(name, json.dumps(given, allow_nan=False))


def _elements(text: str) -> list[ast.expr]:
    tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.List):
        raise ValueError("expected a list")
    return tree.elts
