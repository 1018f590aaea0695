"""The flags of `outrider bench serve`, made into what is to be measured."""

import json
import math
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outrider.clients.connection import Connection, connection
from outrider.clients.load.dialect import checked_extra
from outrider.clients.load.figures.goodput import parse_goodput
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.measurement import LoadSpec
from outrider.clients.load.prompt_request import Endpoint
from outrider.clients.load.prompts.prompt_file import holds_messages
from outrider.clients.load.prompts.source import Prompts, prompts_of_file, prompts_of_shape
from outrider.clients.load.prompts.synthetic import Shape
from outrider.clients.options import RetryPolicy, Timeouts

CONNECT_S = 10.0
NUM_PROMPTS = 100  # without a number and a duration


def load_spec(
    *,
    url: str | None,
    api_key: str | None,
    model: str | None,
    headers: list[str] | None,
    endpoint: str | None,
    timeout: float,
    prompts: Path | None,
    temperature: float | None,
    ignore_eos: bool | None,
    extra_body: str | None,
    rate: float | None,
    burstiness: float,
    concurrency: int | None,
    num_prompts: int | None,
    duration: float | None,
    warmup: int,
    seed: int,
    goodput: list[str] | None,
    **lengths: Any,
) -> LoadSpec:
    """The spec that the flags add up to. Raises ValueError, or OSError."""
    where = _endpoint(endpoint, prompts)
    source = _prompts(prompts, where, seed, **lengths)
    if rate is None:
        concurrency = 1 if concurrency is None else concurrency
    if duration is None:
        num_prompts = NUM_PROMPTS if num_prompts is None else num_prompts
    return LoadSpec(
        _connection(url, api_key, model, timeout),
        where,
        source,
        LoadPlan(rate, burstiness, concurrency, num_prompts, duration, seed),
        num_warmups=warmup,
        headers=dict(map(_header, headers or [])),
        fields=({} if temperature is None else {"temperature": temperature}) | _object(extra_body),
        must_ignore_eos=bool(ignore_eos) if ignore_eos is not None or prompts else None,
        objectives_ms=parse_goodput(goodput or []),
    )


def _endpoint(name: str | None, prompts: Path | None) -> Endpoint:
    if name is None:
        is_chat = prompts is not None and holds_messages(prompts)
        return Endpoint.CHAT if is_chat else Endpoint.COMPLETIONS
    try:
        return Endpoint(name)
    except ValueError:
        raise ValueError(f"Got --endpoint {name!r}, expected 'completions' or 'chat'") from None


def _prompts(
    file: Path | None,
    endpoint: Endpoint,
    seed: int,
    *,
    input_len: int,
    output_len: int,
    prefix_len: int,
    spread: float,
    token_ids: str | None,
) -> Prompts:
    if file is not None:
        if prefix_len or spread or token_ids:
            raise ValueError(
                "Got --prompts with --prefix-len, --spread or --token-ids, expected either: "
                "these are of random prompts"
            )
        return prompts_of_file(file, endpoint, output_len)
    shape = Shape(input_len, output_len, prefix_len, spread, _ids(token_ids))
    return prompts_of_shape(shape, endpoint, seed)


def _ids(text: str | None) -> range | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal() and int(low) <= int(high)):
        raise ValueError(f"Got --token-ids {text!r}, expected LOW-HIGH, like 1000-30000")
    return range(int(low), int(high) + 1)


def _connection(
    url: str | None, api_key: str | None, model: str | None, timeout_s: float
) -> Connection:
    """With or without the /v1 that OpenAI's own base URLs end with."""
    if not (timeout_s > 0 and math.isfinite(timeout_s)):
        raise ValueError(f"Got --timeout {timeout_s}, expected seconds, more than 0")
    times = Timeouts(min(CONNECT_S, timeout_s), timeout_s, timeout_s)
    there = connection(url, api_key, model, times, RetryPolicy(max_retries=0), "json")
    parts = urlsplit(there.base_url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"Got --url {there.base_url!r}, expected http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("Got a user or password in the URL, expected --api-key or --header")
    base_url = there.base_url.rstrip("/").removesuffix("/v1")
    return connection(base_url, api_key, model, times, there.retry, "json")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (colon and name.strip()):
        raise ValueError(f"Got --header {name.strip()!r}, expected 'Name: value'")
    return name.strip().lower(), value.strip()


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"Got --extra-body that is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"Got --extra-body {text!r}, expected a JSON object")
    return dict(checked_extra(value))
