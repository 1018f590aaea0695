"""How a model's makers sample it: its generation_config.json, which requests go by where they say
nothing themselves, as in vLLM.
"""

import json
from pathlib import Path
from typing import Any

from outrider.actors.errors import InvalidConfig, InvalidRequest
from outrider.actors.scheduling.sampling_params import SamplingParams

FILE = "generation_config.json"
NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def sampling_defaults(folder: Path) -> dict[str, float]:
    """By name of the field; empty where the model says nothing. Raises InvalidConfig."""
    try:
        read = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"Got an unreadable {FILE} in {folder}: {error}") from error
    found: dict[str, Any] = {n: read[n] for n in NAMES if read.get(n) is not None}
    for name, value in found.items():
        try:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidRequest(f"Got {name}={value!r}, expected a number")
            field: dict[str, Any] = {name: value}
            SamplingParams(**field)
        except InvalidRequest as error:
            raise InvalidConfig(
                f"{folder / FILE}: {error}; engine.generation_config=none leaves it out"
            ) from error
    return found
