"""`outrider chat`: the command."""

from typing import Annotated

import typer

from outrider.cluster.terminal.chat.conversation import Conversation
from outrider.cluster.terminal.chat.example_tools import TOOLS
from outrider.cluster.terminal.flags import client_flags


def chat(
    url: client_flags.Url = None,
    api_key: client_flags.ApiKey = None,
    model: client_flags.Model = None,
    system: Annotated[
        str | None, typer.Option(help="The system's turn, before all others.")
    ] = None,
    max_tokens: client_flags.MaxTokens = 256,
    temperature: client_flags.Temperature = None,
    top_p: client_flags.TopP = None,
    top_k: client_flags.TopK = None,
    min_p: client_flags.MinP = None,
    seed: client_flags.Seed = None,
    stop: client_flags.Stop = None,
    speculation: client_flags.Drafts = True,
    tools: Annotated[
        bool, typer.Option("--tools", help=f"Let the model call {' and '.join(TOOLS)}, run here.")
    ] = False,
) -> None:
    """Talk to a running server. Ctrl-C stops an answer, /bye ends the conversation, /help says
    more.
    """
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
    with client_flags.asked_server(url, api_key, model) as client:
        if tools and client.capabilities()["tool_format"] is None:
            words = "Got --tools, expected none: it is not known how this model writes calls"
            raise client_flags.refusal(words)
        Conversation(client, options, system, TOOLS if tools else {}).run()
