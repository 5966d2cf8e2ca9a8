"""Liveness, readiness and metrics, for Kubernetes and Prometheus."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from costmodel.serving.http.openapi import problems
from costmodel.serving.http.state import state_of
from costmodel.serving.http.telemetry import METRICS_TYPE
from costmodel.serving.wire.answers import Health

__all__ = ["router"]

router = APIRouter(tags=["health"])


# These operations need no token.
_OPEN: dict[str, Any] = {"security": []}


@router.get("/healthz", operation_id="getHealth", openapi_extra=_OPEN, responses=problems(closed=False))
async def alive() -> Health:
    """Report liveness: whether the process runs, regardless of whether it can answer requests for predictions."""
    return {"status": "ok", "systems": None, "warnings": []}


@router.get(
    "/readyz", operation_id="getReadiness", response_model=Health, openapi_extra=_OPEN,
    responses={503: {"model": Health, "description": "The results store cannot be read."}, **problems(closed=False)},
)  # fmt: skip
async def ready(request: Request) -> Response:
    """Report readiness: whether the results store can be read.

    With an empty store the service is ready, but the response has a warning.
    """
    state = state_of(request)
    systems = len(state.directory.entries)
    warnings = []
    if state.reachable and not systems:
        warnings.append("nothing is measured yet: import results or run `costmodel bench` on this store")
    if state.refused:
        warnings.append(f"{len(state.refused)} systems have a regressor that cannot be loaded: see /v1/systems")
    health: Health = {
        "status": "ok" if state.reachable else "unavailable", "systems": systems, "warnings": warnings,
    }  # fmt: skip
    return JSONResponse(health, 200 if state.reachable else 503)


@router.get(
    "/metrics",
    response_class=Response,
    operation_id="getMetrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
)  # fmt: skip
async def metrics(request: Request) -> Response:
    """Report the metrics of the service in the Prometheus text format. The token needs the scope `metrics`."""
    state = state_of(request)
    state.metrics.waiting.set(state.admission.waiting)
    state.metrics.connections.set(state.connection_limits.open.total())
    state.metrics.engine_deaths.set(state.engines.deaths)
    return Response(await state.read(state.metrics.text), media_type=METRICS_TYPE)
