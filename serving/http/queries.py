"""Routes for predictions: of one model, of many models, of capacity and settings, and rankings of systems."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from costmodel.serving.http.answer import Answer
from costmodel.serving.http.bodies import FILE_TYPES, json_body, media_type, uploaded
from costmodel.serving.http.openapi import FILE_BODY, JSON_BODY, TAGGED, describes_json, describes_model, problems
from costmodel.serving.http.state import state_of
from costmodel.serving.ranking import Quantile
from costmodel.serving.wire.answers import BulkAnswer, CapacityAnswer, PredictAnswer, RankAnswer, TunedAnswer
from costmodel.serving.wire.fields import Composition, Name, SystemName, Version
from costmodel.serving.wire.problems import Problem
from costmodel.serving.wire.requests import (
    BulkRequest,
    CapacityRequest,
    PredictRequest,
    RankRequest,
    Traffic,
    TuneRequest,
    Tuning,
)
from costmodel.traffic.objective import MAX_RATE_PER_S
from costmodel.units import parse_shape, parse_value

__all__ = ["PredictOptions", "options_of", "router"]

router = APIRouter(prefix="/v1", tags=["predictions"])

# Unlike those of JSON bodies, these numbers arrive as text.
Granularity = Annotated[int, Query(ge=1, le=1000)]
Microseconds = Annotated[float, Query(ge=1e-3, le=1e15, allow_inf_nan=False)]
Pinned = Annotated[
    Version | None, Query(description="Version of the regressor to predict with; by default the champion.")
]


class _ModelOptions(BaseModel):
    """Options in the query string of a request about a model, whatever its batch."""

    model_config = ConfigDict(frozen=True)

    system: SystemName | None = None
    name: Name = "model"
    shape: Annotated[
        tuple[Annotated[str, Field(max_length=300)], ...], Query(description="INPUT=1,3,224,224", max_length=64)
    ] = ()
    value: Annotated[
        tuple[Annotated[str, Field(max_length=300)], ...], Query(description="INPUT=1", max_length=64)
    ] = ()
    measured: bool = True
    version: Pinned = None


class FileOptions(_ModelOptions):
    """Options in the query string of a request about an ONNX file, or about a model that was uploaded before."""

    batch: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None
    granularity: Granularity = 1
    composition: Composition = "sequential"


class PredictOptions(FileOptions):
    """Options in the query string of a prediction, which may leave out layers that have no cost (`partial`)."""

    partial: bool = False


class RankOptions(FileOptions):
    """Options in the query string of a ranking of systems."""

    slo_us: Microseconds | None = None
    quantile: Quantile = "p50"
    memory_bytes: Annotated[
        int | None, Query(ge=1, lt=2**62, description="Memory in bytes that a process may take.")
    ] = None
    arrivals_per_s: Annotated[
        float | None,
        Query(ge=1e-6, le=MAX_RATE_PER_S, allow_inf_nan=False, description="Requests a second to carry."),
    ] = None


class CapacityOptions(_ModelOptions, Traffic):
    """Options in the query string of a request about the capacity of an ONNX file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    granularity: Granularity = 1
    slo_us: Microseconds | None = None


class TuneOptions(_ModelOptions, Tuning):
    """Options in the query string of a request about the settings of an ONNX file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    slo_us: Microseconds | None = None


def options_of(options: _ModelOptions) -> dict[str, Any]:
    """Returns options from the query string in the form that an engine takes.

    Raises:
        Problem: 422, because the shape or the value of an input cannot be parsed.
    """
    found = options.model_dump(exclude={"shape", "value"}, exclude_none=True)
    try:
        found["shapes"] = sorted(parse_shape(text) for text in options.shape)
    except ValueError as error:
        raise Problem(422, "invalid-request", f"shape: {error}") from None
    try:
        found["values"] = sorted(parse_value(text) for text in options.value)
    except ValueError as error:
        raise Problem(422, "invalid-request", f"value: {error}") from None
    return found


@router.post(
    "/predict", operation_id="predict", response_model=PredictAnswer, openapi_extra=describes_model(PredictRequest),
    responses={200: TAGGED, **problems(404, *FILE_BODY, 422, 503)},
)  # fmt: skip
async def predict(request: Request, options: Annotated[PredictOptions, Query()]) -> Response:
    """Predict the latency of a model on a system.

    The model is an ONNX file, a graph of layers, or a model that was uploaded before. For a file, the options are in
    the query string; for the others they are in the JSON body, except for the version of the regressor, which is in the
    query string.
    """
    state = state_of(request)
    if media_type(request) in FILE_TYPES:
        options = options.model_copy(update={"system": state.directory.snapshot.check(options.system, options.version)})
        engine_options = options_of(options)
        async with uploaded(request) as (path, digest):
            reply = await state.perform(
                request, "predict_file", engine_options | {"path": str(path), "sent_as": digest}
            )
        return Answer.from_reply(reply).response(request)
    async with json_body(request) as body:
        return await state.answer(request, "predict", {"version": options.version}, body)


@router.post(
    "/predict/bulk", operation_id="predictBulk", response_model=BulkAnswer, openapi_extra=describes_json(BulkRequest),
    responses=problems(404, *JSON_BODY, 422, 503),
)  # fmt: skip
async def predict_bulk(request: Request, version: Pinned = None) -> Response:
    """Predict the latencies of many models on one system.

    Each item of the request is a model; if it cannot be predicted, the response has an error for it instead of a
    latency. An item refers to layers that the request lists once for all items; each is a layer sequence in canonical
    form, or the signature of one in the store. The layers of an item are taken to be a chain: each reads the result of
    the one before it. Alternatively, an item is a model that was uploaded before, or a graph.
    """
    async with json_body(request) as body:
        reply = await state_of(request).perform(request, "bulk", {"version": version}, body)
    return Response(reply.body, media_type="application/json")


@router.post(
    "/rank", operation_id="rank", response_model=RankAnswer, openapi_extra=describes_model(RankRequest),
    responses=problems(404, *FILE_BODY, 422, 503),
)  # fmt: skip
async def rank_models(request: Request, options: Annotated[RankOptions, Query()]) -> Response:
    """Rank systems, or models, by latency objective and price.

    For an ONNX file, the options are in the query string, and the file is ranked on the system named there or, if none
    is named, on all systems. Otherwise the options are in the JSON body.
    """
    state = state_of(request)
    if media_type(request) in FILE_TYPES:
        if options.system is not None:
            state.directory.snapshot.check(options.system, options.version)
        elif options.version is not None:
            raise Problem(422, "invalid-request", "version: name the system that has it")
        engine_options = options_of(options)
        async with uploaded(request) as (path, digest):
            reply = await state.perform(request, "rank_file", engine_options | {"path": str(path), "sent_as": digest})
    else:
        async with json_body(request) as body:
            reply = await state.perform(request, "rank", {}, body)
    return Response(reply.body, media_type="application/json")


@router.post(
    "/capacity", operation_id="capacity", response_model=CapacityAnswer, openapi_extra=describes_model(CapacityRequest),
    responses={200: TAGGED, **problems(404, *FILE_BODY, 422, 503)},
)  # fmt: skip
async def capacity(request: Request, options: Annotated[CapacityOptions, Query()]) -> Response:
    """Say how much traffic a model carries on a system within a latency objective, and what it costs.

    The queue of requests is simulated in one of MLPerf's scenarios. For an ONNX file, the options are in the query
    string. Otherwise they are in the JSON body, except for the version of the regressor.
    """
    state = state_of(request)
    if media_type(request) in FILE_TYPES:
        options = options.model_copy(update={"system": state.directory.snapshot.check(options.system, options.version)})
        found = options_of(options)
        traffic = {name: found.pop(name) for name in Traffic.model_fields if name in found}
        async with uploaded(request) as (path, digest):
            engine_options = found | {"traffic": traffic, "path": str(path), "sent_as": digest}
            reply = await state.perform(request, "capacity_file", engine_options)
        return Answer.from_reply(reply).response(request)
    async with json_body(request) as body:
        return await state.answer(request, "capacity", {"version": options.version}, body)


@router.post(
    "/tune", operation_id="tune", response_model=TunedAnswer, openapi_extra=describes_model(TuneRequest),
    responses=problems(404, *FILE_BODY, 422, 503),
)  # fmt: skip
async def tune(request: Request, options: Annotated[TuneOptions, Query()]) -> Response:
    """Say under which settings a model runs best on the host of a system, by prediction.

    The settings are runtime, threads, optimisation level, spinning, precision and, for throughput and cost, batch and
    number of sessions. The service runs nothing: `costmodel tune` on that host also measures the best few. For an ONNX
    file, the options are in the query string. Otherwise they are in the JSON body, except for the version of the
    regressor.
    """
    state = state_of(request)
    if media_type(request) in FILE_TYPES:
        options = options.model_copy(update={"system": state.directory.snapshot.check(options.system, options.version)})
        found = options_of(options)
        tuning = {name: found.pop(name) for name in Tuning.model_fields if name in found}
        async with uploaded(request) as (path, digest):
            engine_options = found | {"tuning": tuning, "path": str(path), "sent_as": digest}
            reply = await state.perform(request, "tune_file", engine_options)
    else:
        async with json_body(request) as body:
            reply = await state.perform(request, "tune", {"version": options.version}, body)
    return Response(reply.body, media_type="application/json")
