"""The command line as a report may show it: without what is secret."""

import shlex
from collections.abc import Sequence

SECRET = "--api-key", "--header"
HIDDEN = "…"


def redacted(arguments: Sequence[str]) -> str:
    """The command, keys and the values of headers left out.

    >>> redacted(["bench", "serve", "--api-key=abc", "--header", "X-Team: blue", "--rate", "2"])
    "outrider bench serve --api-key=… --header 'X-Team: …' --rate 2"
    """
    shown = ["outrider"]
    hides = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if hides:
            shown.append(_hidden(argument))
        elif name in SECRET and equals:
            shown.append(f"{name}={_hidden(value)}")
        else:
            shown.append(shlex.quote(argument))
        hides = not hides and argument in SECRET
    return " ".join(shown)


def _hidden(value: str) -> str:
    """A header keeps its name."""
    name, colon, _ = value.partition(":")
    return shlex.quote(f"{name}: {HIDDEN}") if colon else HIDDEN
