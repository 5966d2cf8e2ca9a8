"""Application factory: builds the service as an ASGI application for any ASGI server."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path

from costmodel.errors import CostModelError, StoreError
from costmodel.paths import find_home
from costmodel.serving.directory import Directory
from costmodel.serving.engine.pool import EnginePool, Engines
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.http import health, models, observations, page, queries, reports
from costmodel.serving.http.access import Access
from costmodel.serving.http.connection_limits import ConnectionLimits
from costmodel.serving.http.middleware import RequestMiddleware
from costmodel.serving.http.openapi import describe
from costmodel.serving.http.parameters import only_known_parameters, query_parameters
from costmodel.serving.http.responses import problem_response
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.state import AppState
from costmodel.serving.http.telemetry import Metrics, build_information
from costmodel.serving.http.tokens import TokenFile
from costmodel.serving.observations.observations import Observations
from costmodel.serving.uploads import UploadedModelStore
from costmodel.serving.wire.problems import Problem, problem_of
from costmodel.store.store import Store

__all__ = ["create_app"]

_LOG = logging.getLogger("costmodel.service")
_MIB = 1 << 20
_PURGE_EVERY_S = 3600.0

MakeEngines = Callable[[int, EngineSettings], Engines]


def create_app(settings: Settings | None = None, *, make_engines: MakeEngines = EnginePool) -> FastAPI:
    """Returns the service as an ASGI application.

    Args:
        settings: Settings of the service; by default those of the environment.
        make_engines: Function that returns a pool of engines, given their number and settings.

    Raises:
        CostModelError: A setting is not valid, or the token file cannot be read.
    """
    settings = settings or _settings()
    tokens = None if settings.tokens is None else TokenFile(settings.tokens)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, ConnectionLimits]]:
        state = await asyncio.to_thread(_open, settings, metrics, make_engines, several_owners=tokens is not None)
        app.state.costmodel = state
        watcher = asyncio.create_task(_watch(state, tokens))
        try:
            yield {"connection_limits": state.connection_limits}
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await asyncio.to_thread(state.close)

    app = FastAPI(
        title="costmodel",
        summary="What will this neural network cost on that machine, without running it there?",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from another host
        redoc_url=None,
        openapi_url=None,  # `_offer_document` serves a document that is rendered once
    )
    for module in (queries, models, observations, reports):
        app.include_router(module.router, dependencies=[Depends(only_known_parameters)])
    for module in (health, page):
        app.include_router(module.router)
    page.mount_static(app)
    access = Access(tokens, insecure=settings.insecure, hosts=settings.hosts)
    app.add_middleware(RequestMiddleware, access=access, settings=settings, metrics=metrics)
    if settings.traces:
        from costmodel.serving.http.tracing import trace

        trace(app)
    _answer_errors(app, metrics)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    app.state.query_parameters = query_parameters(app.openapi())
    _offer_document(app, settings.root_path)
    return app


def _open(settings: Settings, metrics: Metrics, make_engines: MakeEngines, *, several_owners: bool) -> AppState:
    home = find_home()
    store_url = settings.store or home.store_url
    engine = EngineSettings(
        store_url=store_url,
        bundles=home.bundles_of(store_url),
        uploads=home.data / "uploads",
        scratch=settings.scratch,
        uploads_bytes=settings.uploads_mib * _MIB,
        store_wait_s=settings.store_seconds,
        refresh_s=settings.refresh_seconds,
        request_s=settings.request_seconds,
        max_items=settings.max_items,
        max_layers=settings.max_layers,
        max_listed_layers=settings.max_listed_layers,
        max_references=settings.max_references,
        max_observations=settings.max_observations,
        memory_bytes=settings.engine_memory_mib * _MIB,
        reader_memory_bytes=settings.reader_memory_mib * _MIB,
        reader_s=settings.reader_seconds,
        reader_tasks=settings.reader_tasks,
    )
    store = Store(store_url, wait_s=settings.store_seconds, lazy=True)
    observations_store = Observations(store_url, wait_s=settings.store_seconds, lazy=True)
    engines = make_engines(settings.engines, engine)
    state = AppState(
        settings=settings,
        engines=engines,
        directory=Directory(store, observations_store, engine.bundles),
        observations=observations_store,
        uploads=UploadedModelStore(engine.uploads, engine.uploads_bytes),
        metrics=metrics,
        several_owners=several_owners,
    )
    try:
        state.refresh()
    except StoreError as error:
        _LOG.warning("the store cannot be read yet", extra={"fields": {"error": str(error)}})
    engines.start()  # last, because nothing ends the engines if another step fails
    _LOG.info("started", extra={"fields": build_information() | {"confinement": engines.confinement}})
    return state


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(map(str, first["loc"])).upper()
        raise CostModelError(f"the setting COSTMODEL_SERVE_{name} is not valid: {first['msg']}") from error


async def _watch(state: AppState, tokens: TokenFile | None) -> None:
    """Periodically loads new champions, measurements and tokens and deletes old observations, until cancelled."""
    purged_at = -_PURGE_EVERY_S
    while True:
        await asyncio.sleep(state.settings.refresh_seconds)
        try:
            if tokens is not None:
                tokens.refresh()
            await state.read(state.refresh)
            if time.monotonic() - purged_at > _PURGE_EVERY_S:
                purged_at = time.monotonic()
                await state.read(lambda: state.observations.purge(timedelta(days=state.settings.observation_days)))
        except StoreError as error:  # the last snapshot continues to answer
            _LOG.warning("the store cannot be read", extra={"fields": {"error": str(error)}})
        except Exception:  # noqa: BLE001  # the last snapshot continues to answer, and the next round tries again
            _LOG.exception("checking for changes failed")


def _methods(request: Request) -> set[str]:
    """Returns the HTTP methods that the OpenAPI document lists for the path of a request."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return {
        method.upper()
        for template, operations in request.app.openapi()["paths"].items()
        if compile_path(template)[0].match(path)
        for method in operations
    }


def _offer_document(app: FastAPI, root_path: str) -> None:
    rendered: dict[int, bytes] = {}

    @app.get("/openapi.json", include_in_schema=False)
    async def document() -> Response:
        """Returns the OpenAPI document of the service as JSON."""
        described = app.openapi()
        if id(described) not in rendered:  # changes once, when the first system is known
            rendered.clear()
            servers = {"servers": [{"url": root_path}]} if root_path else {}
            rendered[id(described)] = json.dumps(described | servers, allow_nan=False).encode()
        return Response(rendered[id(described)], media_type="application/json")


def _answer_errors(app: FastAPI, metrics: Metrics) -> None:
    @app.exception_handler(CostModelError)
    async def known_error(request: Request, error: CostModelError) -> Response:
        problem = problem_of(error)
        if problem.status >= 500:
            fields = {"request_id": request.scope.get("request_id"), "error": str(error)}
            _LOG.error("a request failed", extra={"fields": fields})
        return response_to(request, problem)

    @app.exception_handler(Problem)
    async def problem_raised(request: Request, problem: Problem) -> Response:
        return response_to(request, problem)

    def response_to(request: Request, problem: Problem) -> Response:
        if problem.status in (429, 503):
            metrics.turned_away.inc()
        return problem_response(request, problem)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path", "header"))
        return problem_response(request, Problem(422, "invalid-request", f"{where or 'the request'}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
        detail = f"{request.method} {request.url.path[:200]} is not offered: /openapi.json lists what is"
        headers = dict(error.headers or {})
        if error.status_code == 405:  # the router lists the methods of one route only
            headers["Allow"] = ", ".join(sorted(_methods(request))) or headers.get("Allow", "")
        return problem_response(request, Problem(error.status_code, kind, detail, headers=headers))
