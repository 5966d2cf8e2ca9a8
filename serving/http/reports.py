"""Routes that report systems, regressors and drift; answered from memory."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from costmodel.serving.directory import SystemEntry
from costmodel.serving.http.openapi import problems
from costmodel.serving.http.paging import Limit, page_of
from costmodel.serving.http.state import AppState, state_of
from costmodel.serving.wire.answers import RegressorAnswer, RegressorsAnswer, SystemAnswer, SystemsAnswer
from costmodel.serving.wire.fields import SystemName
from costmodel.systems.catalogue import catalogue

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["systems"])

_After = Annotated[str | None, Query(max_length=256, description="The `next` of the previous page.")]


@router.get("/systems", operation_id="listSystems", response_model=SystemsAnswer, responses=problems(422))
async def systems(request: Request, limit: Limit = 1000, after: _After = None) -> Response:
    """List the systems that have measurements, with the accuracy and the drift of their predictions."""
    state = state_of(request)

    def make() -> SystemsAnswer:
        entries = list(state.directory.snapshot.entries.values())
        page, following = page_of(entries, lambda entry: entry.system.name, limit, after)
        return {"systems": [_system(state, entry) for entry in page], "next": following}

    return state.rendered(SystemsAnswer, ("systems", limit, after), make)


@router.get("/systems/{name}", operation_id="getSystem", response_model=SystemAnswer, responses=problems(404, 422))
async def system(request: Request, name: Annotated[SystemName, Path()]) -> Response:
    """Get one system, with the accuracy and the drift of its predictions."""
    state = state_of(request)
    entry = state.directory.snapshot.entry(name)
    return state.rendered(SystemAnswer, ("system", name), lambda: _system(state, entry))


def _system(state: AppState, entry: SystemEntry) -> SystemAnswer:
    champion, listed = entry.champion, catalogue().get(entry.system.name)
    refused = state.refused.get(entry.system.name)
    return {
        **entry.system.document(),
        "measurements": entry.measurements,
        "champion": None if champion is None else {"name": champion.name or "?", "version": champion.version},
        "accuracy": entry.accuracy,
        "usd_per_hour": listed.usd_per_hour if listed else None,
        "drift": entry.drift,
        "warnings": [refused] if refused else [],
    }


@router.get("/regressors", operation_id="listRegressors", response_model=RegressorsAnswer, responses=problems(422))
async def regressors(
    request: Request,
    system: Annotated[SystemName | None, Query()] = None,
    limit: Limit = 100,
    after: _After = None,
) -> Response:
    """List the trained regressors, with accuracy and age; `champion` marks the regressor that answers for a system."""
    state = state_of(request)

    def make() -> RegressorsAnswer:
        found = [one for one in state.directory.snapshot.regressors if system in (None, one.system)]
        now = datetime.now(UTC)
        in_order = sorted(found, key=lambda one: (one.system, one.version))
        page, following = page_of(in_order, lambda one: f"{one.system} {one.version}", limit, after)
        answers = [RegressorAnswer(**vars(one), age_s=_age_s(one.trained_at, now)) for one in page]
        return {"regressors": answers, "next": following}

    return state.rendered(RegressorsAnswer, ("regressors", system, limit, after), make)


def _age_s(trained_at: str | None, now: datetime) -> float | None:
    try:
        return None if trained_at is None else (now - datetime.fromisoformat(trained_at)).total_seconds()
    except (ValueError, TypeError):
        return None
