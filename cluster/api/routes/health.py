"""GET /health and /ready. Open to all, so they say little: details need a key, or loopback."""

import ipaddress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from outrider.actors.engine.info import EngineHealth
from outrider.actors.executor.supervisor import WorkerHealth
from outrider.cluster.api.middleware.traffic import Traffic
from outrider.cluster.api.service import Service

FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")  # a proxy spoke for someone


def routes(service: Service, traffic: Traffic) -> APIRouter:
    """The endpoints over one service."""
    router = APIRouter()

    @router.get("/health")
    async def health(request: Request) -> JSONResponse:
        if service.engine is None:
            return JSONResponse({"status": "starting"}, 503)
        state = service.engine.health()
        body: dict[str, Any] = {"status": state.status}
        is_known = hasattr(request.state, "tenant")
        if is_known or (service.sees_clients and _is_from_here(request)):
            body |= _details(state)
        return JSONResponse(body, 503 if state.status == "failed" else 200)

    @router.get("/ready")
    async def ready() -> JSONResponse:
        is_ready = service.is_ready and not traffic.is_draining
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    return router


def _details(state: EngineHealth) -> dict[str, Any]:
    return {
        "reason": state.reason,
        "workers": [_worker(worker) for worker in state.workers],
        "num_waiting": state.num_waiting,
        "num_running": state.num_running,
    }


def _worker(worker: WorkerHealth) -> dict[str, Any]:
    return {
        "role": worker.role,
        "pid": worker.pid,
        "node": worker.node,
        "state": worker.state,
        "since": round(worker.since, 3),
        "reason": worker.reason,
        "num_deaths": worker.num_deaths,
        "num_hangs": worker.num_hangs,
        "num_restarts": worker.num_restarts,
        "pause_s": worker.pause_s,
    }


def _is_from_here(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in FORWARDING_HEADERS):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
