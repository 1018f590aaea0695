"""The HTTP application over one service. Knows nothing of Ray: any ASGI server can run it."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from outrider.cluster.api import errors
from outrider.cluster.api.metrics import collector
from outrider.cluster.api.middleware.access import CLIENT_GONE, REQUEST_ID, Access
from outrider.cluster.api.middleware.admission import TIMEOUT, Admission
from outrider.cluster.api.middleware.keys import Policy
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.request.job import ClientGone
from outrider.cluster.api.routes import (
    capabilities,
    chat,
    completions,
    generate,
    health,
    models,
    openapi,
    playground,
    responses,
    tokenize,
)
from outrider.cluster.api.service import Service


def create_app(
    service: Service, policy: Policy | None = None, traffic: Traffic | None = None
) -> FastAPI:
    """All endpoints. The engine may join the service later; until then they answer 503."""
    policy, traffic = policy or Policy(), traffic or Traffic()
    app = FastAPI(
        title="Outrider", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    # These answer without a key.
    open_routers = [health.routes(service, traffic), playground.routes()]
    routers = [
        *open_routers,
        collector.routes(service, traffic),
        *(
            noun.routes(service)
            for noun in (completions, chat, responses, generate, tokenize, models)
        ),
        *(noun.routes(service) for noun in (capabilities, openapi)),
    ]
    paths = {route.path for router in routers for route in router.routes}
    errors.install(app, paths)

    @app.exception_handler(ClientGone)
    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    for router in routers:
        app.include_router(router)
    open_routes = [route for router in open_routers for route in router.routes]
    # The last one added is the first to see a request.
    app.add_middleware(Admission, policy=policy, traffic=traffic, open_routes=open_routes)
    app.add_middleware(Access, service=service, policy=policy, traffic=traffic)
    if policy.cors_origins:  # around Access, which writes the refusals: a page must see those too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=policy.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", REQUEST_ID, TIMEOUT],
            expose_headers=[REQUEST_ID, "retry-after"],
        )
    return app
