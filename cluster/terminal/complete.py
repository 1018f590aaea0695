"""`outrider complete`: one text from a running server, as it is written."""

import dataclasses
import json
import sys
from typing import Annotated

import typer

from outrider.cluster.terminal import asking


def complete(
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
    url: asking.Url = None,
    api_key: asking.ApiKey = None,
    model: asking.Model = None,
    max_tokens: asking.MaxTokens = 64,
    temperature: asking.Temperature = None,
    top_p: asking.TopP = None,
    top_k: asking.TopK = None,
    min_p: asking.MinP = None,
    seed: asking.Seed = None,
    stop: asking.Stop = None,
    speculation: asking.Drafts = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole answer as a JSON object, at its end.")
    ] = False,
) -> None:
    """Complete a text on a running server."""
    options = asking.options(
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
            asking.asked_server(url, api_key, model) as client,
            client.stream(text, **options) as stream,
        ):
            for chunk in stream:
                if not as_json:
                    typer.echo(chunk.text, nl=False)
            answer = dataclasses.asdict(stream.result())
    except KeyboardInterrupt:
        raise typer.Exit(asking.INTERRUPTED) from None
    typer.echo(json.dumps(answer, ensure_ascii=False) if as_json else "")
