"""Routes for observations: latencies that users observed. Each client creates, lists and deletes only its own."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from costmodel.serving.http.bodies import json_body
from costmodel.serving.http.openapi import JSON_BODY, describes_json, problems
from costmodel.serving.http.paging import Limit
from costmodel.serving.http.state import owner_of, state_of
from costmodel.serving.observations.drift import StoredObservation
from costmodel.serving.wire.answers import DeletedAnswer, ObservationAnswer, ObservationsAnswer
from costmodel.serving.wire.fields import SystemName
from costmodel.serving.wire.problems import Problem
from costmodel.serving.wire.requests import ObservationRequest

__all__ = ["router"]

router = APIRouter(prefix="/v1/observations", tags=["observations"])

_Id = Annotated[int, Path(ge=1, le=2**63 - 1)]


@router.post(
    "", operation_id="createObservation", status_code=201, response_model=ObservationAnswer,
    openapi_extra=describes_json(ObservationRequest), responses=problems(404, 409, *JSON_BODY, 422, 503),
)  # fmt: skip
async def observe(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            pattern=r"^[\x21-\x7e]{1,128}$",
            description="A key that you choose: an observation that is sent again with the same key is stored once.",
        ),
    ] = None,
) -> Response:
    """Store an observed latency together with the predicted one. /v1/systems reports how far the two differ (drift)."""
    state = state_of(request)
    async with json_body(request) as body:
        reply = await state.perform(request, "observe", {"idempotency_key": idempotency_key}, body)
    state.metrics.observations.labels(reply.system or "").inc()
    return Response(reply.body, reply.status, media_type="application/json")


@router.get("", operation_id="listObservations", responses=problems(422, 503))
async def observations(
    request: Request,
    system: Annotated[SystemName | None, Query()] = None,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="The `next` of the previous page.")] = None,
) -> ObservationsAnswer:
    """List your observations, newest first."""
    state = state_of(request)

    def work() -> list[StoredObservation]:
        return state.observations.of_owner(owner_of(request), system=system, limit=limit, before_id=before)

    found: list[StoredObservation] = await state.read(work)
    return {
        "observations": [ObservationAnswer(**asdict(one)) for one in found],
        "next": found[-1].id if len(found) == limit else None,
    }


@router.delete("/{number}", operation_id="deleteObservation", status_code=204, responses=problems(404, 422, 503))
async def delete_one(request: Request, number: _Id) -> Response:
    """Delete one of your observations."""
    state = state_of(request)
    if not await state.read(lambda: state.observations.delete(owner_of(request), number)):
        raise Problem(404, "not-found", f"you have no observation {number}: GET /v1/observations lists yours")
    return Response(status_code=204)


@router.delete("", operation_id="deleteObservations", responses=problems(422, 503))
async def delete_all(request: Request, system: Annotated[SystemName | None, Query()] = None) -> DeletedAnswer:
    """Delete all of your observations, or only those of one system."""
    state = state_of(request)
    count = await state.read(lambda: state.observations.delete_all(owner_of(request), system))
    return {"deleted": count}
