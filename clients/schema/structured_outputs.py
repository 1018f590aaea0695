"""What a client may demand of the text's form. Whether it compiles is the server's to say."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from outrider.clients.schema.base import Many, Strict, conflict


class StructuredOutputs(Strict):
    """The form of the whole text, as vLLM writes it; exactly one of the four."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    json_schema: dict[str, Any] | str | None = Field(
        default=None, alias="json", description="a JSON schema: an object, or its text"
    )
    regex: str | None = Field(default=None, description="a regular expression of the whole text")
    choice: Annotated[Many[str], Field(min_length=1)] | None = Field(
        default=None, description="a list of strings, at least one"
    )
    grammar: str | None = Field(default=None, description="a grammar in Lark's notation")

    @model_validator(mode="after")
    def _is_one(self) -> "StructuredOutputs":
        given = [name for name, field in self.forms.items() if field is not None]
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise conflict("", f"Got {got} of structured_outputs, expected exactly one field")
        return self

    @property
    def forms(self) -> dict[str, object]:
        """Each form by its name on the wire."""
        return {
            "json": self.json_schema,
            "regex": self.regex,
            "choice": self.choice,
            "grammar": self.grammar,
        }


class NamedSchema(Strict):
    """A JSON schema as `response_format` carries it."""

    name: str = Field(description="a string")
    description: str | None = Field(default=None, description="a string")
    content: dict[str, Any] = Field(alias="schema", description="a JSON schema, an object")
    strict: bool | None = Field(
        default=None, description="true or false; the schema always holds strictly"
    )


class ResponseFormat(Strict):
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description='"text", "json_object" or "json_schema"'
    )
    json_schema: NamedSchema | None = Field(
        default=None, description="an object of name and schema"
    )

    @model_validator(mode="after")
    def _schema_where_due(self) -> "ResponseFormat":
        if (self.json_schema is not None) != (self.type == "json_schema"):
            got = "no json_schema" if self.json_schema is None else "json_schema"
            raise conflict(
                "json_schema",
                f'Got {got} beside type "{self.type}", expected it with type "json_schema" only',
            )
        return self
