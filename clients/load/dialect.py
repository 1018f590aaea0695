"""Optional fields of a request, and which of them a server takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What the generator itself sets, or must be able to rely on.
OWN = ("prompt", "messages", "model", "max_tokens", "stream", "stream_options", "return_token_ids")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a request carries beside its prompt so that the answer's tokens can be counted."""

    has_usage: bool = False
    has_running_usage: bool = False  # with every chunk
    has_ids: bool = False
    ignores_eos: bool = False

    def __str__(self) -> str:
        named = {
            "stream_options.include_usage": self.has_usage,
            "stream_options.continuous_usage_stats": self.has_running_usage,
            "return_token_ids": self.has_ids,
            "ignore_eos": self.ignores_eos,
        }
        return ", ".join(name for name, is_set in named.items() if is_set) or "no optional field"

    def fields(self) -> dict[str, Any]:
        """The fields."""
        fields: dict[str, Any] = {}
        if self.has_usage:
            fields["stream_options"] = {"include_usage": True}
        if self.has_running_usage:
            fields["stream_options"]["continuous_usage_stats"] = True
        if self.has_ids:
            fields["return_token_ids"] = True
        if self.ignores_eos:
            fields["ignore_eos"] = True
        return fields


# From the one that tells the most for the least to the one that every server takes. Token ids
# come with the prompt's: more to write for the server, so only where running usage is unknown.
LADDER = (
    Dialect(has_usage=True, has_running_usage=True),
    Dialect(has_usage=True, has_ids=True),
    Dialect(has_usage=True),
    Dialect(),
)


def checked_extra(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of a request that the caller adds. Raises ValueError on those that are not theirs."""
    if taken := [name for name in extra if name in OWN]:
        raise ValueError(
            f"Got {', '.join(taken)} in the extra body, expected other fields: these are set by "
            "options of their own, or by the measurement"
        )
    if extra.get("n", 1) != 1:
        raise ValueError(f"Got n={extra['n']!r} in the extra body, expected 1: one text a request")
    return extra
