"""The flags of the commands that ask a running server, and the client they add up to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, cast

import typer
from rich.text import Text

from outrider.clients.client import Client
from outrider.clients.errors import ConnectionFailed, OutriderClientError
from outrider.clients.options import DEFAULT_URL, KEY_ENV, URL_ENV, Options, RetryPolicy
from outrider.cluster.terminal.console import REFUSED, stderr

INTERRUPTED = 130

Url = Annotated[str | None, typer.Option(help=f"The server; else {URL_ENV}, else {DEFAULT_URL}.")]
ApiKey = Annotated[str | None, typer.Option(help=f"Its API key; else {KEY_ENV}.")]
Model = Annotated[str | None, typer.Option(help="A served model, where there are several.")]
MaxTokens = Annotated[int, typer.Option(help="Tokens to generate at most.")]
Temperature = Annotated[
    float | None, typer.Option(help="0 is greedy; by default the model's own, or 1.")
]
TopP = Annotated[float | None, typer.Option(help="Nucleus, after top_k.")]
TopK = Annotated[int | None, typer.Option(help="Most likely tokens kept; 0 keeps all.")]
MinP = Annotated[float | None, typer.Option(help="Least likelihood, of the most likely's.")]
Seed = Annotated[int | None, typer.Option(help="Repeats the text; drawn if not given.")]
Stop = Annotated[list[str] | None, typer.Option(help="Ends the text. Repeatable.")]
Drafts = Annotated[bool, typer.Option("--speculation/--no-speculation", help="Draft, or not.")]


def options(speculation: bool, **fields: object) -> Options:
    """The flags as fields of a request; the server checks their values."""
    if not speculation:
        fields["speculation"] = {"enabled": False}
    return cast(Options, {name: value for name, value in fields.items() if value not in (None, [])})


@contextmanager
def asked_server(url: str | None, api_key: str | None, model: str | None) -> Iterator[Client]:
    """A client of a server that is there; what goes wrong with it ends the command in a line."""
    try:
        with Client(url, api_key=api_key, model=model, retry=RetryPolicy(max_retries=0)) as once:
            name = model or once.served_model()
        with Client(url, api_key=api_key, model=name) as client:
            yield client
    except ConnectionFailed as error:
        raise refusal(f"{error}; start a server with `outrider serve`") from None
    except (OutriderClientError, ValueError) as error:
        raise refusal(str(error)) from None


def refusal(message: str) -> typer.Exit:
    """The end of a command, its reason said."""
    stderr().print(Text.assemble(("error: ", "bold red"), message))
    return typer.Exit(REFUSED)
