"""`outrider generate`: one text, without Ray; in this process, or with a process per model."""

import asyncio
import os
import secrets
import sys
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.actors.scheduling.sampling_params import (
    SamplingParams,
    SpeculationParams,
    VerificationMode,
    seed_of,
)
from outrider.cluster.config.config import Config
from outrider.cluster.terminal.console import errors_in_a_line, report
from outrider.cluster.terminal.flags import client_flags, config_flags

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class GenerateArgs:
    """What one run is asked for."""

    prompt: str
    is_chat: bool
    sampling: SamplingParams
    given: frozenset[str]  # fields of it that were asked for
    seed: int  # as the operator wrote it, or drawn
    is_speculated: bool
    has_stats: bool
    is_apart: bool


def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
    target: config_flags.Target = None,
    draft: config_flags.Draft = None,
    drafter: config_flags.Drafter = None,
    k: config_flags.K = None,
    verification: config_flags.Verification = None,
    numerics: config_flags.Numerics = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 64,
    temperature: client_flags.Temperature = None,
    top_p: client_flags.TopP = None,
    top_k: client_flags.TopK = None,
    min_p: client_flags.MinP = None,
    seed: Annotated[int | None, typer.Option(help="Repeats the text; drawn if not given.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Ends the text. Repeatable.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a user's message.")] = False,
    speculation: Annotated[bool, typer.Option(help="Draft, or decode plainly.")] = True,
    stats: Annotated[bool, typer.Option("--stats", help="Print what speculation did.")] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="Draft and target each in a process of its own.")
    ] = False,
    trace: config_flags.Trace = None,
    config: config_flags.ConfigFile = None,
    assignments: config_flags.Assignments = None,
) -> None:
    """Generate a text without a server."""
    with errors_in_a_line():
        chosen = config_flags.load_config(
            config,
            assignments,
            target=target,
            draft=draft,
            drafters=drafter,
            k=k,
            verification=verification,
            numerics=numerics,
            trace=trace,
        )
        told: dict[str, Any] = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
        }
        given = {name: value for name, value in told.items() if value is not None}
        # The rest is the model's own, once it is loaded.
        sampling = SamplingParams(max_tokens=max_tokens, stop=tuple(stop or ()), **given)
        drawn = secrets.randbits(64) - 2**63 if seed is None else seed
        seed_of(drawn)  # refused before the models are loaded
        text = sys.stdin.read() if prompt == "-" else prompt
        args = GenerateArgs(
            text, chat, sampling, frozenset(given), drawn, speculation, stats, apart
        )
        try:
            asyncio.run(_run(chosen, args))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


async def _run(config: Config, args: GenerateArgs) -> None:
    from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor
    from outrider.actors.transport.worker_spec import worker_environment
    from outrider.cluster.models.local_models import with_local_models

    config = with_local_models(config, report)
    os.environ.update(worker_environment(config.engine.most_threads))  # before torch is imported
    from outrider.actors.engine.engine import Engine
    from outrider.cluster.deploy.settings import engine_config

    executor = ProcessExecutor() if args.is_apart else InlineExecutor()
    engine = await Engine.start(engine_config(config), executor, report)
    try:
        await _write(engine, args)
    finally:
        await engine.stop()
    if args.has_stats:
        from outrider.cluster.terminal.stats import print_stats

        print_stats(engine.statistics.snapshot(), engine.info, args.seed)


async def _write(engine: "Engine", args: GenerateArgs) -> None:
    from outrider.actors.scheduling.request import Request

    tokenizer = engine.tokenizer
    ids = (
        tokenizer.render_chat([{"role": "user", "content": args.prompt}])
        if args.is_chat
        else tokenizer.encode(args.prompt)
        if args.prompt
        else []
    )
    mode = VerificationMode(engine.info.verification)
    speculation = SpeculationParams(is_enabled=args.is_speculated, verification=mode)
    own: dict[str, Any] = {
        n: v for n, v in engine.info.sampling_defaults.items() if n not in args.given
    }
    sampling = replace(args.sampling, **own)
    request = Request(tuple(ids), sampling, seed_of(args.seed), speculation=speculation)
    async with aclosing(engine.generate(request)) as chunks:
        async for chunk in chunks:
            typer.echo(chunk.text, nl=False)
    typer.echo()
