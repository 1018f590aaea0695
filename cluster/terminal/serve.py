"""`outrider serve`: the HTTP server, until a signal ends it."""

import json
import signal
import threading
import time
from types import FrameType
from typing import Annotated

import typer
from rich.markup import escape

from outrider.actors.errors import InvalidConfig
from outrider.actors.executor import heap
from outrider.cluster.api.metrics.throughput import reading, throughput
from outrider.cluster.config.config import Config
from outrider.cluster.deploy.probe import Probe
from outrider.cluster.terminal.console import errors_in_a_line, report, stderr
from outrider.cluster.terminal.flags import config_flags

WATCH_S, THROUGHPUT_S = 5.0, 10.0
ASKED = "What does math.sqrt do?"  # the demo knows

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[str | None, typer.Option(help="Port to listen on.")]
Model = Annotated[str | None, typer.Argument(help="The same as --target.", show_default=False)]
ApiKeyFile = Annotated[
    str | None, typer.Option(help="A YAML file of names with API keys; without keys all may ask.")
]


class _Stopped(BaseException):
    """A signal came while the server was starting."""


def serve(
    model: Model = None,
    target: config_flags.Target = None,
    draft: config_flags.Draft = None,
    drafter: config_flags.Drafter = None,
    k: config_flags.K = None,
    verification: config_flags.Verification = None,
    numerics: config_flags.Numerics = None,
    host: Host = None,
    port: Port = None,
    api_key_file: ApiKeyFile = None,
    trace: config_flags.Trace = None,
    config: config_flags.ConfigFile = None,
    assignments: config_flags.Assignments = None,
) -> None:
    """Serve a model over HTTP, with OpenAI's API."""
    with errors_in_a_line():
        if model is not None and target is not None:
            raise InvalidConfig(f"Got {model} and --target {target}, expected one of both")
        chosen = config_flags.load_config(
            config,
            assignments,
            target=model or target,
            draft=draft,
            drafters=drafter,
            k=k,
            verification=verification,
            numerics=numerics,
            host=host,
            port=port,
            api_key_file=api_key_file,
            trace=trace,
        )
        _run(chosen)


def _run(config: Config) -> None:
    from outrider.cluster.deploy.launch import served

    is_over = threading.Event()
    is_starting = True

    def stop(number: int, frame: FrameType | None) -> None:
        if is_starting and not is_over.is_set():
            is_over.set()
            raise _Stopped
        is_over.set()

    def listen() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)

    def say(line: str) -> None:
        listen()  # again, as Ray puts a handler of its own in place
        report(line)

    listen()
    heap.pause()
    try:
        with served(config, say) as probe:
            listen()
            is_starting = False
            _welcome(config, probe.url)
            heap.freeze()
            _watch(probe, is_over)
    except _Stopped:
        report("stopped while starting")
    finally:
        heap.resume()


def _watch(probe: Probe, is_over: threading.Event) -> None:
    """Report each change of health, and how busy it is, until the server is to end."""
    last, before = "ok", reading(probe.metrics(), time.monotonic())
    while not is_over.wait(WATCH_S):
        state = probe.state()
        if state != last:
            report(f"health is {state}")
        last = state
        if time.monotonic() - before.at_s >= THROUGHPUT_S:
            now = reading(probe.metrics(), time.monotonic())
            if line := throughput(before, now):
                report(line)
            before = now


def _welcome(config: Config, url: str) -> None:
    name = config.model.served_name
    says = {"role": "user", "content": ASKED}
    body = json.dumps({"model": name, "messages": [says], "max_tokens": 64})
    console = stderr()
    console.print(f"\n[bold]{escape(name)}[/bold] is served at [bold]{url}/v1[/bold]. Try:\n")
    console.print(
        escape(f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
    )
    console.print(escape(f"outrider chat --url {url}\n"))
