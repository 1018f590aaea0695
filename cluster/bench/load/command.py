"""`outrider bench serve`: what a server does under load, be it ours or another's."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from outrider.cluster.bench.load import options as flags
from outrider.cluster.terminal.console import report
from outrider.cluster.terminal.flags import client_flags

if TYPE_CHECKING:
    from outrider.clients.load.measurement import LoadSpec, Measurement

FAILED = 1  # the exit code where nothing could be measured


def serve(
    url: client_flags.Url = None,
    api_key: client_flags.ApiKey = None,
    model: client_flags.Model = None,
    headers: flags.Headers = None,
    endpoint: flags.Endpoint = None,
    timeout: flags.Timeout = 600.0,
    prompts: flags.Prompts = None,
    input_len: flags.InputLen = 256,
    output_len: flags.OutputLen = 128,
    prefix_len: flags.PrefixLen = 0,
    spread: flags.Spread = 0.0,
    token_ids: flags.TokenIds = None,
    temperature: flags.Temperature = None,
    ignore_eos: flags.IgnoreEos = None,
    extra_body: flags.ExtraBody = None,
    rate: flags.Rate = None,
    burstiness: flags.Burstiness = 1.0,
    concurrency: flags.Concurrency = None,
    num_prompts: flags.NumPrompts = None,
    duration: flags.Duration = None,
    warmup: flags.Warmup = 3,
    seed: flags.Seed = 0,
    goodput: flags.Goodput = None,
    json_file: flags.Json = None,
    html_file: flags.Html = None,
) -> None:
    """Measure an OpenAI-compatible server under load: ours, vLLM, SGLang, llama-server, …

    Latencies are by token: a chunk of m tokens is one gap and m − 1 of zero.
    """
    given = dict(locals())
    from outrider.cluster.bench.load.load_spec import load_spec
    from outrider.cluster.bench.load.redaction import redacted

    files = given.pop("json_file"), given.pop("html_file")
    try:
        for file in filter(None, files):
            check_writable(file)
        spec = load_spec(**given)
    except (ValueError, OSError) as error:
        raise client_flags.refusal(str(error)) from None
    command = redacted(sys.argv[1:])
    measurement = _measured(spec)
    _write(measurement, command, *files)
    if measurement.summary.run.is_stopped:
        raise typer.Exit(client_flags.INTERRUPTED)
    if not measurement.summary.completed:
        raise typer.Exit(FAILED)


def check_writable(file: Path) -> None:
    """Before a measurement rather than after it. Raises ValueError."""
    place = file if file.exists() else file.parent
    if file.is_dir() or not os.access(place, os.W_OK):
        raise ValueError(f"Got {file}, expected a file that can be written")


def _measured(spec: "LoadSpec") -> "Measurement":
    from outrider.clients.errors import OutriderClientError
    from outrider.clients.load.measurement import Stopped

    try:
        return asyncio.run(_measure(spec))
    except OutriderClientError as error:
        client_flags.refusal(str(error))  # its line; the exit code is another
        code = client_flags.INTERRUPTED if isinstance(error, Stopped) else FAILED
        raise typer.Exit(code) from None
    except KeyboardInterrupt:
        raise typer.Exit(client_flags.INTERRUPTED) from None


async def _measure(spec: "LoadSpec") -> "Measurement":
    """With a bar, and Ctrl-C as the end of the measurement; the second one ends the command."""
    from outrider.clients.load.measurement import Measuring
    from outrider.cluster.bench.load.progress import BenchProgress

    measuring, loop = Measuring(spec), asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        measuring.stop()

    gc.collect()
    gc.freeze()  # what is there already is not looked through again while time is measured
    with contextlib.suppress(NotImplementedError, ValueError):  # Windows, or not the main thread
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        with BenchProgress(spec.plan) as progress:
            return await measuring.measure(progress.stage, progress.record)
    finally:
        gc.unfreeze()


def _write(
    measurement: "Measurement", command: str, json_file: Path | None, html_file: Path | None
) -> None:
    """The table, and the files."""
    from outrider.clients.load.result import result_of
    from outrider.cluster.bench.load.report.page import page_of
    from outrider.cluster.bench.load.table import print_summary

    print_summary(measurement)
    result = result_of(measurement, command)
    if json_file is not None:
        json_file.write_text(json.dumps(result, allow_nan=False) + "\n", encoding="utf-8")
        report(f"wrote {json_file}")
    if html_file is not None:
        html_file.write_text(page_of(measurement, result), encoding="utf-8")
        report(f"wrote {html_file}")
