"""/tokenize and /detokenize, in vLLM's shapes."""

from pydantic import ConfigDict, Field, model_validator

from outrider.clients.schema.base import Many, Reply, Strict, conflict, requires_field
from outrider.clients.schema.messages import ChatMessage, Tools
from outrider.clients.schema.template_fields import TemplateFields


class TokenizeRequest(TemplateFields):
    """A text, or a conversation as the model's template renders it."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [requires_field("prompt"), requires_field("messages")]}
    )

    model: str | None = Field(default=None, description="the name of a served model")
    prompt: str | None = Field(default=None, description="a string")
    messages: Many[ChatMessage] | None = Field(default=None, description="a list of messages")
    tools: Tools | None = Field(default=None, description="a list of at most 128 tools")
    add_special_tokens: bool = Field(
        default=True, description="true or false: the special tokens around a prompt"
    )

    @model_validator(mode="after")
    def _source_is_one(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            got = "neither" if self.prompt is None else "both"
            raise conflict("prompt", f"Got {got} of prompt and messages, expected one")
        if self.tools and self.messages is None:
            raise conflict("tools", "Got tools beside prompt, expected them with messages")
        self.check_messages(self.messages is not None)
        return self


class Tokenized(Reply):
    """The ids."""

    count: int
    max_model_len: int  # prompt and output together, in tokens
    tokens: list[int]


class DetokenizeRequest(Strict):
    """Ids to spell."""

    model: str | None = Field(default=None, description="the name of a served model")
    tokens: Many[int] = Field(description="a list of token ids")


class Detokenized(Reply):
    """The text, special tokens left out."""

    prompt: str
