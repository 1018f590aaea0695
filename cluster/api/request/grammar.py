"""The form that a request demands of its text, as a grammar that is compiled before it is used."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outrider.actors.errors import InvalidRequest
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind
from outrider.clients.schema.openai_requests import OpenAIRequest
from outrider.clients.schema.structured_outputs import ResponseFormat, StructuredOutputs
from outrider.cluster.api.service import ApiLimits

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def structured_grammar(asked: StructuredOutputs | None) -> Grammar | None:
    """The grammar of `structured_outputs`. Raises InvalidRequest."""
    if asked is None:
        return None
    if asked.json_schema is not None:
        return Grammar(GrammarKind.JSON, _schema_text(asked.json_schema, "structured_outputs.json"))
    if asked.regex is not None:
        return Grammar(GrammarKind.REGEX, asked.regex)
    if asked.choice is not None:
        return Grammar(GrammarKind.CHOICE, json.dumps(asked.choice, ensure_ascii=False))
    return Grammar(GrammarKind.LARK, asked.grammar or "")


def grammar_of(body: OpenAIRequest) -> tuple[Grammar | None, str]:
    """The grammar that a request demands, and the field that does. Raises InvalidRequest."""
    if body.structured_outputs is not None:
        return structured_grammar(body.structured_outputs), "structured_outputs"
    return format_grammar(body.response_format), "response_format"


def format_grammar(asked: ResponseFormat | None) -> Grammar | None:
    """The grammar of `response_format`. Raises InvalidRequest."""
    if asked is None or asked.type == "text":
        return None
    schema: dict[str, Any] = {"type": "object"}
    if asked.json_schema is not None:
        schema = asked.json_schema.content
    return Grammar(GrammarKind.JSON, _schema_text(schema, "response_format.json_schema.schema"))


async def check_grammar(engine: "Engine", grammar: Grammar, limits: ApiLimits, param: str) -> None:
    """Raises InvalidRequest, blaming `param`, unless it is small and compiles soon enough."""
    size, most = len(grammar.text.encode()), limits.max_grammar_bytes
    if size > most:
        raise InvalidRequest(f"Got a grammar of {size} bytes, expected at most {most}", param)
    try:
        await engine.check_grammar(grammar, limits.grammar_timeout_s)
    except InvalidRequest as error:
        raise InvalidRequest(str(error), param) from None


def _schema_text(schema: Mapping[str, Any] | str, param: str) -> str:
    """The schema as text, free of references to elsewhere."""
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        text = json.dumps(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"Got {param} that is no JSON: {error}", param) from None
    if not isinstance(schema, dict):
        raise InvalidRequest(f"Got {param} that is no object, expected a JSON schema", param)
    check_references(schema, param)
    return text


def check_references(schema: Any, param: str) -> None:
    """Raises InvalidRequest for a reference out of the schema: nothing is fetched."""
    inner: list[Any] = [schema]
    while inner:
        value = inner.pop()
        if isinstance(value, Mapping):
            for name in REFERENCES:
                target = value.get(name)
                if isinstance(target, str) and not target.startswith("#"):
                    raise InvalidRequest(
                        f"Got {name}={target[:80]!r} in {param}, expected one within the schema "
                        "(it begins with #)",
                        param,
                    )
            inner.extend(value.values())
        elif isinstance(value, list):
            inner.extend(value)
