"""The formats of tool calls by name: who parses one, and the grammar that forces one."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.clients.schema.messages import Function
from outrider.cluster.api.request.tools import hermes, llama3
from outrider.cluster.api.request.tools.parser import ToolParser

ANY_OBJECT: Final = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a family of models writes its calls."""

    parser: Callable[[Collection[str]], ToolParser]  # of the names on offer
    key: str  # of a call's arguments
    before: str = ""  # around a call that is forced
    after: str = ""

    def forced(self, functions: Sequence[Function]) -> Grammar:
        """The text is one call of one of these, its arguments as the schema says."""
        calls = [
            self._schema(function, "" if len(functions) == 1 else f"/anyOf/{index}")
            for index, function in enumerate(functions)
        ]
        text = json.dumps(calls[0] if len(calls) == 1 else {"anyOf": calls})
        if not self.before:
            return Grammar(GrammarKind.JSON, text)
        before, after = json.dumps(self.before), json.dumps(self.after)
        lark = f"start: {before} call {after}\ncall: %json {text}"
        return Grammar(GrammarKind.LARK, lark)

    def _schema(self, function: Function, where: str) -> dict[str, Any]:
        arguments = ANY_OBJECT if function.parameters is None else function.parameters
        return {
            "type": "object",
            "properties": {
                "name": {"const": function.name},
                self.key: _moved(arguments, f"#{where}/properties/{self.key}"),
            },
            "required": ["name", self.key],
            "additionalProperties": False,
        }


def _moved(schema: Any, root: str) -> Any:
    """A schema whose references to itself hold although it now stands at `root`."""
    if isinstance(schema, Mapping):
        return {
            key: root + value[1:]
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _moved(value, root)
            for key, value in schema.items()
        }
    return [_moved(item, root) for item in schema] if isinstance(schema, list) else schema


FORMATS: Final = {
    "hermes": ToolFormat(hermes.HermesParser, hermes.KEY, f"{hermes.OPEN}\n", f"\n{hermes.CLOSE}"),
    "llama3_json": ToolFormat(llama3.Llama3Parser, llama3.KEY),
}
