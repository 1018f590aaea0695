"""The flags that commands share, and the configuration they add up to."""

import os
from pathlib import Path
from typing import Annotated

import typer

from outrider.actors.lookahead.round_report import EAGLE3, MEDUSA
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.cluster.config import sources
from outrider.cluster.config.config import Config
from outrider.cluster.config.demo_models import DEMO
from outrider.cluster.config.sources import Setting, Settings

Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "--model",
        help="Target model: a directory, a model of the hub (org/name, org/name@revision), 'demo'.",
    ),
]
Draft = Annotated[
    str | None, typer.Option(help="Draft model: as the target, or 'none' to go without.")
]
Drafter = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        help="What drafts beside copies and past texts: medusa:PATH, eagle:PATH, eagle3:PATH (a "
        "directory, or a name on the hub; 'eagle3' or 'medusa' alone is the demo's) or "
        "early_exit[:LAYERS].",
    ),
]
K = Annotated[str | None, typer.Option("--k", help="Drafted tokens a round, to start with.")]
Verification = Annotated[str | None, typer.Option(help="'coupled' (same text) or 'rejection'.")]
Numerics = Annotated[str | None, typer.Option(help="'auto', 'exact' or 'fast'.")]
Trace = Annotated[
    str | None,
    typer.Option(help="Write a timeline of every round to this file; ui.perfetto.dev opens it."),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A YAML configuration file.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any key: section.key=value; `outrider settings` lists them. Repeatable."
    ),
]

OF_DEMO = (EAGLE3, MEDUSA)  # heads of the demo's target, where no other is named
KEYS = {
    "target": "model.target",
    "draft": "model.draft",
    "k": "engine.k",
    "verification": "engine.verification",
    "numerics": "engine.numerics",
    "trace": "engine.trace",
    "host": "http.host",
    "port": "http.port",
    "api_key_file": "http.api_keys_file",
}


def beside_the_usual(drafters: list[str] | None) -> Settings:
    """What --drafter adds, if it was given."""
    if not drafters:
        return {}
    named = [f"{each}:{DEMO}" if each in OF_DEMO else each for each in drafters]
    every = (*USUAL_DRAFTERS, *(each for each in named if each not in USUAL_DRAFTERS))
    return {"engine.drafters": Setting(",".join(every), "--drafter", is_text=True)}


def load_config(
    file: Path | None,
    assignments: list[str] | None,
    drafters: list[str] | None = None,
    **flags: str | None,
) -> Config:
    """Defaults, file, environment and flags; `drafters` beside the usual ones. Raises
    InvalidConfig.
    """
    settings = sources.from_assignments(assignments or []) | beside_the_usual(drafters)
    for name, value in flags.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            settings[KEYS[name]] = Setting(value, flag, is_text=True)
    return sources.load(file, os.environ, settings)
