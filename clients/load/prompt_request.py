"""What one request asks for: a prompt in its endpoint's words, and how long an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Endpoint(Enum):
    """Where text is asked for."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """Of its URL."""
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, without what all have in common."""

    fields: Mapping[str, Any]  # prompt, or messages
    max_tokens: int

    def __post_init__(self) -> None:
        if not self.max_tokens >= 1:
            raise ValueError(f"Got max_tokens={self.max_tokens}, expected max_tokens ≥ 1")


def prompt_fields(endpoint: Endpoint, prompt: str | Sequence[int]) -> dict[str, Any]:
    """A prompt as this endpoint takes it. Raises ValueError."""
    if endpoint is Endpoint.COMPLETIONS:
        return {"prompt": prompt if isinstance(prompt, str) else list(prompt)}
    if not isinstance(prompt, str):
        raise ValueError("Got a prompt of token ids for chat, expected text or messages")
    return {"messages": [{"role": "user", "content": prompt}]}


def message_fields(endpoint: Endpoint, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Messages as this endpoint takes them. Raises ValueError."""
    if endpoint is Endpoint.COMPLETIONS:
        raise ValueError("Got messages for completions, expected a prompt (or the chat endpoint)")
    return {"messages": list(messages)}
