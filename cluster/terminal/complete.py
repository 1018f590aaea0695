"""`outrider complete`: one text from a running server, as it is written."""

import dataclasses
import json
import sys
from typing import Annotated

import typer

from outrider.cluster.terminal.flags import client_flags


def complete(
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
    url: client_flags.Url = None,
    api_key: client_flags.ApiKey = None,
    model: client_flags.Model = None,
    max_tokens: client_flags.MaxTokens = 64,
    temperature: client_flags.Temperature = None,
    top_p: client_flags.TopP = None,
    top_k: client_flags.TopK = None,
    min_p: client_flags.MinP = None,
    seed: client_flags.Seed = None,
    stop: client_flags.Stop = None,
    speculation: client_flags.Drafts = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole answer as a JSON object, at its end.")
    ] = False,
) -> None:
    """Complete a text on a running server."""
    options = client_flags.options(
        speculation,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    try:
        with (
            client_flags.asked_server(url, api_key, model) as client,
            client.stream(text, **options) as stream,
        ):
            for chunk in stream:
                if not as_json:
                    typer.echo(chunk.text, nl=False)
            answer = dataclasses.asdict(stream.result())
    except KeyboardInterrupt:
        raise typer.Exit(client_flags.INTERRUPTED) from None
    typer.echo(json.dumps(answer, ensure_ascii=False) if as_json else "")
