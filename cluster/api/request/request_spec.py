"""A body made into a job. All that can be refused is refused here, before anything is generated."""

import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from outrider.actors.errors import InvalidRequest, UnknownModel
from outrider.actors.scheduling.request import Request, Resumed
from outrider.actors.scheduling.sampling_params import (
    Grammar,
    SamplingParams,
    SpeculationParams,
    VerificationMode,
    seed_of,
)
from outrider.clients.schema.generation_fields import GenerationFields, SpeculationOptions
from outrider.cluster.api.middleware.request_context import current
from outrider.cluster.api.request.grammar import check_grammar
from outrider.cluster.api.request.job import Job, told_once
from outrider.cluster.api.request.prompts import check_ids, check_len, encode
from outrider.cluster.api.service import ApiLimits, Service

if TYPE_CHECKING:
    from outrider.actors.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What an endpoint has made of its own fields, beside those of `GenerationFields`."""

    prompts: Sequence[Sequence[int]]
    max_tokens: int
    num_top_logprobs: int = 0
    num_prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    grammar_param: str = "structured_outputs"  # the field that demands it
    resumed: Sequence[Resumed] = ()  # one a choice, or none
    seed: int | None = None
    keeps_output: bool = True  # False: only the prompt is of interest
    shows_special: bool = False  # what reads the answer needs special tokens in its text


async def job_of(service: Service, body: GenerationFields, spec: RequestSpec, prefix: str) -> Job:
    """Decide a request. Raises InvalidRequest or Overloaded."""
    engine, limits = service.started_engine, service.limits
    _check_counts(body, spec, limits)
    _check_vocabulary(body, engine.info.vocab_size)
    seed = secrets.randbits(64) - 2**63 if spec.seed is None else spec.seed
    requests = await _requests(engine, body, spec, seed_of(seed))
    if (exchange := current()) is not None:
        exchange.charge(len(requests))
    engine.check_room(requests)
    if spec.grammar is not None:
        await check_grammar(engine, spec.grammar, limits, spec.grammar_param)
    return Job(
        f"{prefix}-{uuid.uuid4().hex}",
        engine,
        service.model_name,
        seed,
        requests,
        body.num_choices,
        spec.keeps_output,
    )


def check_model(service: Service, name: str | None) -> None:
    """Raises UnknownModel unless `name` is the served one, or none is given."""
    if name not in (None, service.model_name):
        raise UnknownModel(f"Got model={name!r}, expected {service.model_name!r}", "model")


async def _requests(
    engine: "Engine", body: GenerationFields, spec: RequestSpec, key: int
) -> tuple[Request, ...]:
    """Every choice of every prompt, checked; those of one prompt share its ids."""
    exchange = current()
    scope = "" if exchange is None else exchange.cache_scope
    speculation = _speculation(body.speculation, engine.info.verification)
    sampling = _sampling(body, spec, engine.info.sampling_defaults)
    expected = "" if body.prediction is None else body.prediction.text
    check_len(engine, expected, "prediction")
    prediction = tuple(await encode(engine.tokenizer, expected, adds_special=False))
    requests: list[Request] = []
    for ids in spec.prompts:
        first = Request(
            tuple(ids),
            sampling,
            key,
            0,
            speculation,
            prediction,
            None,
            "" if exchange is None else exchange.tenant,
            0 if exchange is None else exchange.priority,
            scope + (body.cache_salt or ""),
        )
        engine.check(first)
        requests += [replace(first, choice=choice) for choice in range(body.num_choices)]
    if spec.resumed:
        taken_up = zip(requests, spec.resumed, strict=True)
        requests = [replace(request, resumed=resumed) for request, resumed in taken_up]
        for request in requests:
            engine.check(request)
    return tuple(told_once(requests, body.num_choices))


def _sampling(
    body: GenerationFields, spec: RequestSpec, defaults: Mapping[str, float]
) -> SamplingParams:
    names = (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
    )
    given = {name: getattr(body, name) for name in names}
    chosen: dict[str, Any] = {
        **defaults,
        **{name: value for name, value in given.items() if value is not None},
    }
    if chosen.get("top_k") == -1:  # vLLM's way to say that it is off
        chosen["top_k"] = 0
    return SamplingParams(
        max_tokens=spec.max_tokens,
        stop=body.stops,
        includes_stop=bool(body.include_stop_str_in_output),
        skips_special=body.skip_special_tokens is not False and not spec.shows_special,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignores_eos=bool(body.ignore_eos),
        logit_bias=tuple(sorted((body.logit_bias or {}).items())),
        grammar=spec.grammar,
        num_top_logprobs=spec.num_top_logprobs,
        prompt_logprobs=spec.num_prompt_logprobs,
        **chosen,
    )


def _speculation(asked: SpeculationOptions | None, verification: str) -> SpeculationParams:
    """What the request asked, with the server's mode of verification where it has none."""
    asked = asked or SpeculationOptions()
    mode = VerificationMode(asked.verification or verification)
    drafters = None if asked.drafters is None else tuple(asked.drafters)
    return SpeculationParams(asked.enabled, asked.k, mode, drafters)


def _check_counts(body: GenerationFields, spec: RequestSpec, limits: ApiLimits) -> None:
    n, most = body.num_choices, max(1, limits.max_choices // len(spec.prompts))
    if len(spec.prompts) > limits.max_choices:
        got = f"Got {len(spec.prompts)} prompts"
        raise InvalidRequest(f"{got}, expected at most {limits.max_choices} choices", "prompt")
    if not 1 <= n <= most:
        of = "" if len(spec.prompts) == 1 else f" of {len(spec.prompts)} prompts"
        raise InvalidRequest(f"Got n={n}, expected 1 ≤ n ≤ {most}{of}", "n")
    for param, given, limit in (
        ("logit_bias", body.logit_bias, limits.max_logit_bias),
        ("stop_token_ids", body.stop_token_ids, limits.max_stop_ids),
    ):
        if given is not None and len(given) > limit:
            raise InvalidRequest(
                f"Got {len(given)} ids in {param}, expected at most {limit}", param
            )
    if body.min_tokens is not None and body.min_tokens > spec.max_tokens:
        raise InvalidRequest(
            f"Got min_tokens={body.min_tokens}, expected at most max_tokens={spec.max_tokens}",
            "min_tokens",
        )


def _check_vocabulary(body: GenerationFields, vocab_size: int) -> None:
    check_ids(list(body.logit_bias or ()), vocab_size, "logit_bias")
    check_ids(body.stop_token_ids or (), vocab_size, "stop_token_ids")
