"""`outrider convert-head`: a head's pickled weights as safetensors, which is all that is served."""

from pathlib import Path
from typing import Annotated

import typer

from outrider.cluster.terminal.console import errors_in_a_line, report


def convert_head(
    file: Annotated[Path, typer.Argument(help="The head's .bin, .pt or .pth.")],
    out: Annotated[
        Path | None, typer.Option(help="A new folder; by default beside the file.")
    ] = None,
) -> None:
    """Make safetensors of a head's pickled weights, without running any code of theirs."""
    from outrider.actors.heads.conversion import convert_head as convert

    folder = out or file.parent / f"{file.stem}-safetensors"
    with errors_in_a_line():
        kind = convert(file, folder)
    report(f"a head of kind {kind}: serve it with --drafter {kind}:{folder}")
