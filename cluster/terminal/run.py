"""`outrider run`: a conversation with a model, its server inside; both end together."""

import signal
from types import FrameType
from typing import Annotated

import typer

from outrider.clients.client import Client
from outrider.cluster.config.config import Config
from outrider.cluster.terminal.chat.conversation import Conversation
from outrider.cluster.terminal.console import errors_in_a_line, report
from outrider.cluster.terminal.flags import client_flags, config_flags

Name = Annotated[
    str | None,
    typer.Argument(
        help="A directory, a model of the hub (org/name, org/name@revision), or 'demo'.",
        show_default=False,
    ),
]
System = Annotated[str | None, typer.Option(help="The system's turn, before all others.")]


def run(
    model: Name = None,
    draft: config_flags.Draft = None,
    drafter: config_flags.Drafter = None,
    system: System = None,
    max_tokens: client_flags.MaxTokens = 1024,
    temperature: client_flags.Temperature = None,
    seed: client_flags.Seed = None,
    config: config_flags.ConfigFile = None,
    assignments: config_flags.Assignments = None,
) -> None:
    """Talk to a model here, as soon as it is loaded. Ctrl-C stops an answer, /bye ends it all."""
    with errors_in_a_line():
        chosen = config_flags.load_config(
            config, assignments, drafters=drafter, target=model, draft=draft
        )
        options = client_flags.options(
            True, max_tokens=max_tokens, temperature=temperature, seed=seed
        )
        from outrider.cluster.deploy.launch import served

        with served(of_one(chosen), report) as probe:
            # Ray has put handlers of its own.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, _leave)
            with Client(probe.url, model=chosen.model.served_name) as client:
                Conversation(client, options, system).run()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def of_one(config: Config) -> Config:
    """For one who sits here: on this machine, at a port that nobody has, without a log."""
    from outrider.cluster.deploy.proxy.environment import LOOPBACK, free_ports

    own = {"host": LOOPBACK, "port": free_ports(1)[0], "logs_requests": False}
    return config.model_copy(update={"http": config.http.model_copy(update=own)})
