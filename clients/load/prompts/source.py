"""Where the requests of a measurement come from, and what that means for its reader."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outrider.clients.load.prompt_request import Ask, Endpoint, prompt_fields
from outrider.clients.load.prompts.prompt_file import read_asks
from outrider.clients.load.prompts.synthetic import Shape, synthetic_asks

NEUTRAL = "Count from one to ten."  # asked before the measurement, where a file's prompts are


@dataclass(frozen=True, slots=True)
class Prompts:
    """A source of requests, and of others like them to find out about the server."""

    described: str
    asks: Iterator[Ask]  # without end
    probes: Iterator[Ask]  # without end, and none of `asks`
    num_distinct: int | None = None  # then they repeat


def prompts_of_file(path: Path, endpoint: Endpoint, output_len: int) -> Prompts:
    """A file's prompts in its order, again and again. Raises ValueError, or OSError."""
    asks = read_asks(path, endpoint, output_len)
    neutral = Ask(prompt_fields(endpoint, NEUTRAL), output_len)
    described = f"{len(asks)} prompts of {path.name}, at most {output_len} tokens each"
    return Prompts(described, itertools.cycle(asks), itertools.repeat(neutral), len(asks))


def prompts_of_shape(shape: Shape, endpoint: Endpoint, seed: int) -> Prompts:
    """Random prompts of a seed. Raises ValueError."""
    if shape.ids is not None and endpoint is Endpoint.CHAT:
        raise ValueError("Got token ids for chat, expected words, or the completions endpoint")
    unit = "words" if shape.ids is None else f"token ids of {shape.ids.start}–{shape.ids.stop - 1}"
    prefix = f"{shape.prefix_len} shared and " if shape.prefix_len else ""
    spread = f" ± {shape.spread:.0%}" if shape.spread else ""
    return Prompts(
        f"{prefix}{shape.input_len}{spread} random {unit}, {shape.output_len}{spread} tokens out",
        synthetic_asks(shape, endpoint, seed),
        synthetic_asks(shape, endpoint, f"{seed} probe"),
    )
