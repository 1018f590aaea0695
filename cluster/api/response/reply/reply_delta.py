"""What became certain of an answer with one piece of its text."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of one call: its first has the name, and all of them the arguments piece by piece."""

    name: str | None
    arguments: str


@dataclass(slots=True)
class ReplyDelta:
    """Of one choice. Whatever was there before goes on."""

    content: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # why something that began as a call is none

    def add_calls(self, calls: list[CallDelta]) -> None:
        """What follows of a call goes to what there is of it."""
        for call in calls:
            if call.name is None and self.calls:
                last = self.calls[-1]
                call = replace(self.calls.pop(), arguments=last.arguments + call.arguments)
            self.calls.append(call)

    def __iadd__(self, other: "ReplyDelta") -> "ReplyDelta":
        self.content += other.content
        self.reasoning += other.reasoning
        self.add_calls(other.calls)
        self.errors += other.errors
        return self
