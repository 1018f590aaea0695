"""How a conversation goes through the model's chat template: fields beside messages."""

from typing import Any, Literal

from pydantic import Field, model_validator

from outrider.clients.schema.base import Strict, conflict

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class TemplateFields(Strict):
    """By vLLM's names."""

    reasoning_effort: Effort | None = Field(
        default=None,
        description='"none", "minimal", "low", "medium", "high" or "xhigh", where the chat '
        "template reads reasoning_effort or enable_thinking",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None, description="an object of variables that the model's chat template reads"
    )
    add_generation_prompt: bool | None = Field(
        default=None, description="false: the assistant's turn is not begun"
    )
    continue_final_message: bool | None = Field(
        default=None, description="true: the text goes on in the last message"
    )

    @model_validator(mode="after")
    def _last_turn_is_one(self) -> "TemplateFields":
        if self.continue_final_message and self.add_generation_prompt:
            message = "Got add_generation_prompt beside continue_final_message, expected one"
            raise conflict("continue_final_message", message)
        return self

    def check_messages(self, has_messages: bool) -> None:
        """Raises PydanticCustomError for fields that have nothing to say of a prompt."""
        for name in TemplateFields.model_fields:
            if not has_messages and getattr(self, name) is not None:
                raise conflict(name, f"Got {name} without messages, expected messages beside it")
