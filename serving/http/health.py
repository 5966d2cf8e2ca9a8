"""Whether the service lives and can answer, in the words of Kubernetes, Prometheus and the Open Inference Protocol."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from costmodel.errors import UnknownSystemError
from costmodel.features.schema import SCHEMA
from costmodel.serving.http.answers import Health
from costmodel.serving.http.desk import Desk, desk_of
from costmodel.serving.http.openapi import PROBLEMS
from costmodel.serving.http.telemetry import METRICS_TYPE

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def alive() -> Health:
    """Whether the process lives: it says nothing of what it can answer."""
    return Health(status="ok", systems=0)


@router.get("/readyz", responses={503: {"model": Health, "description": "Nothing is answered for yet."}})
async def ready(request: Request) -> Response:
    """Whether a question would be answered: the store can be read, and something answers for a system."""
    found = _readiness(desk_of(request))
    return JSONResponse(found.model_dump(), 200 if found.status == "ok" else 503)


def _readiness(desk: Desk) -> Health:
    answerers = desk.service.answerers
    return Health(
        status="ok" if answerers.systems and desk.reachable else "starting" if desk.reachable else "unavailable",
        systems=len(answerers.systems),
        warnings=[f"{len(answerers.refused)} systems cannot be answered for: see /v1/systems"]
        if answerers.refused
        else [],
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: PROBLEMS[401]},
)
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    desk: Desk = desk_of(request)
    desk.metrics.waiting.set(desk.gate.waiting)
    return Response(desk.metrics.text(), media_type=METRICS_TYPE)


# Open Inference Protocol, version 2: health and metadata. A model of that protocol is a system here.


@router.get("/v2/health/live")
async def live() -> dict[str, bool]:
    """As /healthz."""
    return {"live": True}


@router.get("/v2/health/ready", responses={503: {"description": "As /readyz."}})
async def server_ready(request: Request) -> Response:
    """As /readyz."""
    is_ready = _readiness(desk_of(request)).status == "ok"
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


@router.get("/v2", responses={401: PROBLEMS[401]})
async def server_metadata() -> dict[str, Any]:
    """What this server is."""
    return {"name": "costmodel", "version": "1", "extensions": []}


@router.get("/v2/models/{name}", responses={401: PROBLEMS[401], 404: PROBLEMS[404]})
async def model_metadata(request: Request, name: str) -> dict[str, Any]:
    """What answers for a system: it takes features of layers, and gives log(cost / bound)."""
    answerer = desk_of(request).service.answerers.of(name)
    regression = answerer.predictor.regression
    if regression is None:
        return {"name": name, "versions": [], "platform": "measurements", "inputs": [], "outputs": []}
    return {
        "name": name,
        "versions": [regression.id.version],
        "platform": f"onnxruntime_{regression.id.name}",
        "inputs": [{"name": "features", "datatype": "FP32", "shape": [-1, len(SCHEMA.names)]}],
        "outputs": [{"name": "log_ratios", "datatype": "FP32", "shape": [-1]}],
    }


@router.get("/v2/models/{name}/ready", responses={401: PROBLEMS[401], 404: {"description": "Nothing answers for it."}})
async def model_ready(request: Request, name: str) -> Response:
    """Whether something answers for a system."""
    try:
        desk_of(request).service.answerers.of(name)
    except UnknownSystemError:
        return JSONResponse({"name": name, "ready": False}, 404)
    return JSONResponse({"name": name, "ready": True})
