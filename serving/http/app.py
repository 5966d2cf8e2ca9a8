"""The application: an app factory for any ASGI server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from costmodel.errors import CostModelError, ModelError, StoreError
from costmodel.home import find_home
from costmodel.isolation import Limits
from costmodel.serving.http import health, page, queries, reports
from costmodel.serving.http.desk import Desk
from costmodel.serving.http.gate import Gate
from costmodel.serving.http.middleware import Frame
from costmodel.serving.http.openapi import describe
from costmodel.serving.http.problems import Problem, problem_of, problem_response
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.telemetry import Metrics
from costmodel.serving.http.tokens import TokenFile
from costmodel.serving.service import Service

__all__ = ["create_app"]

_LOG = logging.getLogger("costmodel.service")
_MIB = 1 << 20


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application.

    Args:
        settings: By default those of the environment.

    Raises:
        CostModelError: A setting is none, or the file of tokens cannot be read.
    """
    settings = settings or _settings()
    tokens = None if settings.tokens is None else TokenFile(settings.tokens)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk = await asyncio.to_thread(_open, settings, metrics)
        app.state.desk = desk
        watching = asyncio.create_task(_watch(desk, tokens, settings.refresh_seconds))
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            desk.gate.close()
            await asyncio.to_thread(desk.service.close)

    app = FastAPI(
        title="costmodel",
        summary="What will this neural network cost on that machine, without running it there?",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # those pages load from another host
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    for router in (queries.router, reports.router, health.router, page.router):
        app.include_router(router)
    page.mount_static(app)
    app.add_middleware(
        Frame, tokens=tokens, insecure=settings.insecure, max_body_bytes=settings.max_body_bytes, metrics=metrics
    )
    _answer_errors(app, metrics)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def _open(settings: Settings, metrics: Metrics) -> Desk:
    home = find_home()
    service = Service.open(
        settings.store or home.store_url,
        home.bundles_of(settings.store),
        home.data / "seen",
        workers=settings.readers,
        limits=Limits(
            memory_bytes=settings.reader_memory_mib * _MIB,
            cpu_s=max(1, round(settings.reader_seconds)),
            wall_s=settings.reader_seconds,
            wait_s=settings.queue_seconds,
            layers=settings.max_layers,
        ),
        most_seen_bytes=settings.seen_mib * _MIB,
    )
    service.pool.start()
    service.answerers.changed = lambda system: metrics.changes.labels(system).inc()
    return Desk(service, Gate(settings.readers + 1, settings.queue, settings.queue_seconds), metrics, settings)


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        raise CostModelError(
            f"the setting COSTMODEL_SERVE_{'_'.join(map(str, first['loc'])).upper()} is none: {first['msg']}"
        ) from error


async def _watch(desk: Desk, tokens: TokenFile | None, every_s: float) -> None:
    """Take over new champions, measurements and tokens, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        try:
            if tokens is not None:
                tokens.refresh()
            await asyncio.to_thread(desk.refresh)
        except StoreError as error:  # what answered goes on answering
            _LOG.warning("the store cannot be read", extra={"told": {"error": str(error)}})
        except Exception:  # noqa: BLE001  # whatever it is: what answers goes on answering, and looks again
            _LOG.exception("looking for changes failed")


def _answer_errors(app: FastAPI, metrics: Metrics) -> None:
    def respond(request: Request, problem: Problem) -> Response:
        if problem.status == 503:
            metrics.turned_away.inc()
        return problem_response(request, problem)

    @app.exception_handler(CostModelError)
    async def ours(request: Request, error: CostModelError) -> Response:
        if isinstance(error, ModelError):
            metrics.refused_models.inc()
            cause = error.__cause__
            if cause is not None:  # it may be a mistake of ours
                told = {"request_id": request.scope.get("request_id"), "cause": f"{type(cause).__name__}: {cause}"}
                _LOG.info("model refused", extra={"told": told})
        problem = problem_of(error)
        if problem.status >= 500:
            told = {"request_id": request.scope.get("request_id"), "error": str(error)}
            _LOG.error("failed", extra={"told": told})
        return respond(request, problem)

    @app.exception_handler(Problem)
    async def answered(request: Request, problem: Problem) -> Response:
        return respond(request, problem)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        return problem_response(request, Problem(422, "invalid-request", f"{where or 'the request'}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
        detail = f"{request.method} {request.url.path} is not offered: /openapi.json lists what is"
        return problem_response(request, Problem(error.status_code, kind, detail, headers=dict(error.headers or {})))
