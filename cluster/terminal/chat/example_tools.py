"""Two tools for `outrider chat --tools`, as an example of how a client runs what a model calls.

Neither reads or changes anything but its arguments and the clock.
"""

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

MOST_LEN: Final = 200  # characters of an expression
MOST_BITS: Final = 4096  # of a whole number on the way
Number = int | float | complex
OPERATORS: Final[Mapping[type, Callable[..., Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True, slots=True)
class ExampleTool:
    """What the model is told of it, and what runs."""

    name: str
    purpose: str
    arguments: Mapping[str, str]  # strings, each with what it says
    run: Callable[..., str]

    @property
    def description(self) -> dict[str, Any]:
        """As OpenAI writes a tool."""
        properties = {
            name: {"type": "string", "description": what} for name, what in self.arguments.items()
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.purpose, "parameters": parameters}
        return {"type": "function", "function": function}


def calculate(expression: str) -> str:
    """The value of an expression. Raises ValueError, SyntaxError or ArithmeticError."""
    if len(expression) > MOST_LEN:
        raise ValueError(f"Got {len(expression)} characters, expected at most {MOST_LEN}")
    value = _value(ast.parse(expression.strip(), mode="eval").body)
    if isinstance(value, complex):
        raise ValueError(f"Got {value}, expected a real number")
    return str(value)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            first, second = _value(left), _value(right)
            if isinstance(op, ast.Pow) and abs(second) * math.log2(abs(first) + 1) > MOST_BITS:
                raise ValueError("expected smaller numbers")
            return OPERATORS[type(op)](first, second)
    raise ValueError(f"Got {ast.unparse(node)}, expected numbers, + - * / // % ** and brackets")


def now() -> str:
    """The date and the time."""
    return datetime.now(UTC).strftime("%A, %Y-%m-%d %H:%M UTC")


TOOLS: Final = {
    tool.name: tool
    for tool in (
        ExampleTool(
            "calculate",
            "Calculate the value of an arithmetic expression",
            {"expression": "for example (3 + 4) * 2"},
            calculate,
        ),
        ExampleTool("now", "Tell the present date and time", {}, now),
    )
}


def called(tools: Mapping[str, ExampleTool], name: str, arguments: str) -> str:
    """What a call comes to, or why it comes to nothing: the model reads either."""
    try:
        return tools[name].run(**json.loads(arguments))
    except (ValueError, TypeError, KeyError, SyntaxError, ArithmeticError, RecursionError) as error:
        return f"error: {error}"
