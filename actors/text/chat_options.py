"""How a conversation is to be written for the model, beside its turns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a request may choose of its chat template's work."""

    begins_turn: bool = True  # the assistant's turn begins behind the conversation
    goes_on: bool = False  # the last turn is left open: the text goes on in it
    variables: Mapping[str, Any] = field(default_factory=dict)  # that the template reads


USUAL = ChatOptions()
