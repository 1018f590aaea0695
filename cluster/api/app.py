"""The HTTP application over one service. Knows nothing of Ray: any ASGI server can run it."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from outrider.cluster.api import chat, completions, error_envelope, health, models
from outrider.cluster.api.job import ClientGone
from outrider.cluster.api.served_engine import Service

CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is there to read it


def create_app(service: Service) -> FastAPI:
    """All endpoints. The engine may join the service later; until then they answer 503."""
    app = FastAPI(
        title="Outrider", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    routers = [noun.routes(service) for noun in (completions, chat, models, health)]
    paths = {route.path for router in routers for route in router.routes}
    error_envelope.install(app, paths)

    @app.exception_handler(ClientGone)
    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    for router in routers:
        app.include_router(router)
    return app
