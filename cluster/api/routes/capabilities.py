"""GET /capabilities: what this server does, read from the schemas and limits that it goes by."""

from importlib.metadata import version

from fastapi import APIRouter, Request
from pydantic import BaseModel

from outrider.actors.engine.info import EngineInfo
from outrider.actors.lookahead.reason import Reason
from outrider.actors.scheduling.sampling_params import (
    MAX_K,
    MAX_STOPS,
    MAX_TOP_LOGPROBS,
    GrammarKind,
    VerificationMode,
)
from outrider.actors.transport.draft_stop import DraftStop
from outrider.clients.schema.capabilities import (
    Capabilities,
    Parameter,
    RequestLimits,
    ServedModel,
    Size,
    SpeculationSupport,
)
from outrider.clients.schema.unsupported import WITHOUT_EFFECT
from outrider.cluster.api.request.body import MSGPACK
from outrider.cluster.api.routes.openapi import ERRORS, body_of, described
from outrider.cluster.api.service import ApiLimits, Service


def routes(service: Service) -> APIRouter:
    """The endpoint over one service."""
    router = APIRouter()

    @router.get("/capabilities", responses=ERRORS)
    async def capabilities(request: Request) -> Capabilities:
        info = service.started_engine.info
        return Capabilities(
            version=version("outrider"),
            model=_model(service.model_name, info),
            speculation=_speculation(info),
            limits=_limits(service.limits),
            structured_outputs=[kind.value for kind in GrammarKind],
            prefix_cache=info.has_prefix_cache,
            tool_format=service.reply_format.name,
            reasoning=service.reply_format.thinks,
            media_types=["application/json", MSGPACK],
            endpoints={
                f"{method.upper()} {path}": _parameters(body_of(operation))
                for path, operations in described(request.app)["paths"].items()
                for method, operation in operations.items()
            },
        )

    return router


def _model(name: str, info: EngineInfo) -> ServedModel:
    return ServedModel(
        name=name,
        max_model_len=info.max_model_len,
        vocab_size=info.vocab_size,
        fingerprint=info.fingerprint,
        numerics=info.numerics,
        numerics_reason=info.numerics_reason,
        sizes={each.name: Size(value=each.value, reason=each.reason) for each in info.sizes},
        draft=info.draft,
        sampling_defaults=dict(info.sampling_defaults),
    )


def _speculation(info: EngineInfo) -> SpeculationSupport:
    return SpeculationSupport(
        drafters=list(info.drafters),
        verification_modes=[mode.value for mode in VerificationMode],
        default_verification=info.verification,
        max_k=MAX_K,
        k_reasons={reason.value: reason.sentence for reason in Reason},
        draft_stops={stop.value: stop.sentence for stop in DraftStop},
    )


def _limits(limits: ApiLimits) -> RequestLimits:
    return RequestLimits(
        body_bytes=limits.max_body_bytes,
        prompts=limits.max_prompts,
        choices=limits.max_choices,
        stop=MAX_STOPS,
        stop_token_ids=limits.max_stop_ids,
        logit_bias=limits.max_logit_bias,
        top_logprobs=MAX_TOP_LOGPROBS,
        grammar_bytes=limits.max_grammar_bytes,
        grammar_compile_s=limits.grammar_timeout_s,
    )


def _parameters(body: type[BaseModel] | None) -> dict[str, Parameter]:
    fields = {} if body is None else body.model_fields
    return {
        field.alias or name: Parameter(
            accepted=field.description or "", has_effect=WITHOUT_EFFECT not in field.metadata
        )
        for name, field in fields.items()
    }
