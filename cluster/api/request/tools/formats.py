"""The formats in which models write thoughts and calls of tools, as response templates of
transformers (see its documentation of chat response parsing), and the grammars that force a call.

A model may come with a template of its own. Else its chat template says which of these it was
taught, where it is clear: a format's mark stands in it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.clients.schema.messages import Function

ANY_OBJECT: Final = {"type": "object"}
AS_THEY_ARE: Final = {"type": "function", "function": "{content}"}
BY_NAME: Final = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINK: Final = {"open": "<think>", "close": "</think>"}
# Where a text may begin: at once, or behind the thoughts.
BEGIN: Final = r"(?:\A|(?<=</think>))\s*"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a family of models writes its calls."""

    fields: Mapping[str, Any]  # of a response template
    marks: tuple[str, ...] = ()  # in a chat template that teaches it: all of them
    key: str = "arguments"  # of a call that is forced
    before: str = ""  # around it
    after: str = ""

    @property
    def is_forced(self) -> bool:
        """Whether a call is forced in this format: else as a JSON text."""
        return bool(self.before) or self.key == "parameters"

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


def _calls(transform: Any = AS_THEY_ARE, **given: Any) -> dict[str, Any]:
    return {"content": "json", "repeats": True, "transform": transform, **given}


# A whole text of calls, or none: also of calls that are forced where no format is known.
JSON_TEXT: Final = ToolFormat({"tool_calls": _calls(open_pattern=BEGIN + r"(?=\{)")})
FORMATS: Final = {
    "qwen3_coder": ToolFormat(
        {
            "tool_calls": _calls(
                BY_NAME,
                open_pattern=r"<tool_call>\s*<function=(?P<name>[^>]+)>",
                close_pattern=r"</function>\s*</tool_call>",
                content="xml-inline",
                content_args={
                    "tag_pattern": r"<parameter=(?P<key>[^>]+)>\n?(?P<value>.*?)\n?</parameter>"
                },
            )
        },
        marks=("<function=", "<parameter="),
    ),
    "hermes": ToolFormat(
        {"tool_calls": _calls(open="<tool_call>", close="</tool_call>")},
        marks=("<tool_call>", "arguments"),
        before="<tool_call>\n",
        after="\n</tool_call>",
    ),
    "mistral": ToolFormat(
        {
            "tool_calls": _calls(
                BY_NAME,
                open_pattern=r"\[TOOL_CALLS\]\s*(?P<name>[\w.-]+)(?:\[CALL_ID\]\w+)?"
                r"(?:\[ARGS\]\s*|\s*(?=\{))",
                close_pattern=r"(?=\[TOOL_CALLS\])",
            ),
            "tool_calls_in_a_list": _calls(open_pattern=r"\[TOOL_CALLS\]\s*(?=\[)"),
        },
        marks=("[TOOL_CALLS]",),
    ),
    "llama3_json": ToolFormat(
        {"tool_calls": _calls(open_pattern=BEGIN + r"(?:<\|python_tag\|>\s*)?(?=\{)")},
        marks=('"parameters"', "ipython"),
        key="parameters",
    ),
    "pythonic": ToolFormat(
        {
            "tool_calls": {
                "open_pattern": BEGIN + r"(?:<\|python_start\|>)?(?=\[\s*[A-Za-z_][\w.]*\()",
                "close": "<|python_end|>",
                "repeats": True,
            }
        },
        marks=("[func_name1(",),
    ),
}


def forcing(known: ToolFormat | None) -> ToolFormat:
    """In which a call is forced: the model's own format, where there is a grammar of it."""
    return known if known is not None and known.is_forced else JSON_TEXT
