"""What became certain of an answer with one piece of its text."""

from dataclasses import dataclass, field
from enum import StrEnum


class TextKind(StrEnum):
    """Of a text."""

    CONTENT = "content"
    REASONING = "reasoning"


@dataclass(slots=True)
class TextDelta:
    """More of a text."""

    kind: TextKind
    text: str


@dataclass(slots=True)
class CallDelta:
    """More of one call: its first has the name, and all of them the arguments piece by piece."""

    name: str | None
    arguments: str


@dataclass(slots=True)
class ReplyDelta:
    """Of one choice, in the order in which it was written. Whatever was there before goes on."""

    parts: list[TextDelta | CallDelta] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # why something that began as a call is none

    def say(self, kind: TextKind, text: str) -> None:
        """More of a text, if it is any."""
        last = self.parts[-1] if self.parts else None
        if isinstance(last, TextDelta) and last.kind is kind:
            last.text += text
        elif text:
            self.parts.append(TextDelta(kind, text))

    def add_call(self, call: CallDelta) -> None:
        """What follows of a call goes to what there is of it."""
        last = self.parts[-1] if self.parts else None
        if call.name is None and isinstance(last, CallDelta):
            last.arguments += call.arguments
        else:
            self.parts.append(CallDelta(call.name, call.arguments))

    def text(self, kind: TextKind) -> str:
        """All of a kind."""
        texts = (part for part in self.parts if isinstance(part, TextDelta))
        return "".join(part.text for part in texts if part.kind is kind)

    @property
    def content(self) -> str:
        return self.text(TextKind.CONTENT)

    @property
    def reasoning(self) -> str:
        return self.text(TextKind.REASONING)

    @property
    def calls(self) -> list[CallDelta]:
        return [part for part in self.parts if isinstance(part, CallDelta)]

    def __iadd__(self, other: "ReplyDelta") -> "ReplyDelta":
        for part in other.parts:
            if isinstance(part, CallDelta):
                self.add_call(part)
            else:
                self.say(part.kind, part.text)
        self.errors += other.errors
        return self
