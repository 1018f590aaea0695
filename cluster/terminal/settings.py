"""`outrider settings`: every key that the configuration file, the environment and --set know."""

from typing import Annotated

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import Config
from outrider.cluster.terminal.console import errors_in_a_line


def settings(
    section: Annotated[
        str | None, typer.Argument(help="One section: model, engine, http, cluster.")
    ] = None,
) -> None:
    """Every key of --set and of the configuration file, with its default and what it accepts."""
    with errors_in_a_line():
        known = list(Config.model_fields)
        if section is not None and section not in known:
            raise InvalidConfig(f"Got section {section!r}, expected one of {', '.join(known)}")
        console = Console(highlight=False)
        for name in [section] if section else known:
            console.print(_table(name, Config.model_fields[name].get_default()))


def _table(name: str, section: BaseModel) -> Table:
    table = Table(title=name, title_justify="left", box=None, padding=(0, 2, 0, 0), expand=False)
    for column in ("key", "default", "accepted"):
        table.add_column(column, overflow="fold", no_wrap=column == "key")
    for key, field in type(section).model_fields.items():
        row = (f"{name}.{key}", _default(field), field.description or "")
        table.add_row(*map(Text, row))
    return table


def _default(field: FieldInfo) -> str:
    """As it would be written."""
    value = field.get_default(call_default_factory=True)
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
