"""The flags of `outrider bench serve`, as they are typed."""

from pathlib import Path
from typing import Annotated

import typer

SERVER, PROMPTS, LOAD, REPORT = "The server", "What is asked", "When", "What comes of it"

Headers = Annotated[
    list[str] | None,
    typer.Option("--header", help="'Name: value', with each request.", rich_help_panel=SERVER),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        help="'completions' or 'chat'; by default what the prompts are for.",
        rich_help_panel=SERVER,
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds for a whole answer.", rich_help_panel=SERVER)]
Prompts = Annotated[
    Path | None,
    typer.Option(
        help="A file in the place of random prompts: .jsonl (`prompt` or `messages`), .json "
        "(a list of such, or ShareGPT's), or text with a prompt a line.",
        rich_help_panel=PROMPTS,
    ),
]
InputLen = Annotated[int, typer.Option(help="Of random prompts.", rich_help_panel=PROMPTS)]
OutputLen = Annotated[
    int, typer.Option(help="Tokens of an answer at most.", rich_help_panel=PROMPTS)
]
PrefixLen = Annotated[
    int,
    typer.Option(help="In front of random prompts, the same in all.", rich_help_panel=PROMPTS),
]
Spread = Annotated[
    float,
    typer.Option(help="Random lengths within (1 ± this) times theirs.", rich_help_panel=PROMPTS),
]
TokenIds = Annotated[
    str | None,
    typer.Option(
        help="LOW-HIGH: random prompts of these token ids; else of words.", rich_help_panel=PROMPTS
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(help="0 is greedy; by default the server's.", rich_help_panel=PROMPTS),
]
IgnoreEos = Annotated[
    bool | None,
    typer.Option(
        "--ignore-eos/--no-ignore-eos",
        help="Answers of full length; by default with random prompts, where the server takes it.",
        rich_help_panel=PROMPTS,
    ),
]
ExtraBody = Annotated[
    str | None,
    typer.Option(help="A JSON object of further fields of each request.", rich_help_panel=PROMPTS),
]
Rate = Annotated[
    float | None,
    typer.Option(
        help="Requests a second, however the server fares: an open loop. 'inf': all at once.",
        rich_help_panel=LOAD,
    ),
]
Burstiness = Annotated[
    float,
    typer.Option(
        help="Of a rate: 1 is Poisson, less comes in bursts, more is more even.",
        rich_help_panel=LOAD,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="Requests at once, each followed by the next; 1 without a rate. With one, the most.",
        rich_help_panel=LOAD,
    ),
]
NumPrompts = Annotated[
    int | None,
    typer.Option(help="Requests to measure; 100 without a duration.", rich_help_panel=LOAD),
]
Duration = Annotated[
    float | None, typer.Option(help="Seconds in which to send.", rich_help_panel=LOAD)
]
Warmup = Annotated[
    int, typer.Option(help="Requests before, which do not count.", rich_help_panel=LOAD)
]
Seed = Annotated[int, typer.Option(help="Of prompts and arrivals.", rich_help_panel=LOAD)]
Goodput = Annotated[
    list[str] | None,
    typer.Option(
        help="Most milliseconds of a good request, like ttft:500,tpot:50,e2el:5000.",
        rich_help_panel=REPORT,
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", help="All figures, in vLLM's names.", rich_help_panel=REPORT),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", help="A page to read, in one file.", rich_help_panel=REPORT),
]
