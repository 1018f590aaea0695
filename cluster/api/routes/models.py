"""GET /v1/models and /v1/models/{name}: what is served here, by name."""

from fastapi import APIRouter

from outrider.clients.schema.openai_responses import ModelCard, ModelList
from outrider.cluster.api.request.request_spec import check_model
from outrider.cluster.api.routes.openapi import ERRORS
from outrider.cluster.api.service import Service


def routes(service: Service) -> APIRouter:
    """The endpoints over one service."""
    router = APIRouter()

    def card() -> ModelCard:
        max_len = service.started_engine.info.max_model_len
        return ModelCard(id=service.model_name, created=service.created, max_model_len=max_len)

    @router.get("/v1/models", responses=ERRORS)
    async def models() -> ModelList:
        return ModelList(data=[card()])

    @router.get("/v1/models/{name:path}", responses=ERRORS)
    async def model(name: str) -> ModelCard:
        check_model(service, name)
        return card()

    return router
