"""What is known: systems, regressors, drift."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Path, Request

from costmodel.serving.answering import Answerer
from costmodel.serving.http.answers import ModelsAnswer, SystemAnswer, SystemsAnswer
from costmodel.serving.http.desk import Desk, desk_of
from costmodel.serving.http.openapi import PROBLEMS
from costmodel.systems import catalogue
from costmodel.training.listing import list_regressors

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["systems"], responses=PROBLEMS)


@router.get("/systems")
async def systems(request: Request) -> SystemsAnswer:
    """The systems that are answered for, and how well."""
    desk: Desk = desk_of(request)

    def work() -> list[SystemAnswer]:
        answerers = desk.service.answerers
        return [_system(desk, answerers.of(name)) for name in answerers.systems]

    return SystemsAnswer(systems=await desk.work(work))


@router.get("/systems/{name}")
async def system(request: Request, name: str = Path(max_length=64)) -> SystemAnswer:
    """One system."""
    desk: Desk = desk_of(request)
    return await desk.work(lambda: _system(desk, desk.service.answerers.of(name)))


def _system(desk: Desk, answerer: Answerer) -> SystemAnswer:
    known = answerer.predictor.system
    record: dict[str, Any] = known.to_dict()
    regression = answerer.predictor.regression
    facts = regression.bundle.facts if regression else {}
    listed = catalogue().get(known.name)
    refused = desk.service.answerers.refused.get(known.name)
    return SystemAnswer.model_validate(
        {
            **{
                key: record[key]
                for key in ("name", "runtime", "runtime_version", "settings", "host", "capabilities", "asserted")
            },
            "measurements": desk.service.store.measured(known.name)[0],
            "champion": None if regression is None else {"name": regression.id.name, "version": regression.id.version},
            "accuracy": facts.get("accuracy"),
            "usd_per_hour": listed.usd_per_hour if listed else None,
            "drift": desk.service.observations.drift(known.name).to_dict(),
            "warnings": [refused] if refused else [],
        }
    )


@router.get("/models")
async def models(request: Request) -> ModelsAnswer:
    """The regressors that were trained: which one answers for a system, how accurate it is, how old."""
    desk: Desk = desk_of(request)

    def work() -> ModelsAnswer:
        now = datetime.now(UTC)
        found = list_regressors(desk.service.answerers.bundles)
        return ModelsAnswer.model_validate(
            {"models": [one.to_dict() | {"age_s": _age_s(one.trained_at, now)} for one in found]}
        )

    return await desk.work(work)


def _age_s(trained_at: str | None, now: datetime) -> float | None:
    try:
        return None if trained_at is None else (now - datetime.fromisoformat(trained_at)).total_seconds()
    except (ValueError, TypeError):
        return None
