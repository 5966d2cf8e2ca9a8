"""What a model will cost: one, many, ranked."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from costmodel.serving.http.answer import Answer
from costmodel.serving.http.bodies import FILE_TYPES, json_body, media_type, uploaded
from costmodel.serving.http.openapi import FILE_BODY, JSON_BODY, TAGGED, describes_json, describes_model, problems
from costmodel.serving.http.state import AppState, key_of, owner_of, state_of
from costmodel.serving.wire.answers import BulkAnswer, PredictAnswer, RankAnswer
from costmodel.serving.wire.fields import Composition, Name, SystemName, Version
from costmodel.serving.wire.problems import Problem
from costmodel.serving.wire.requests import BulkRequest, PredictRequest, RankRequest
from costmodel.units import parse_shape

__all__ = ["PredictOptions", "options_of", "router"]

router = APIRouter(prefix="/v1", tags=["predictions"])

# Questions that are so short are remembered by their words.
_SHORT_BYTES = 16 << 10


class FileOptions(BaseModel):
    """What is asked about a file or a model that was sent before: in the query."""

    model_config = ConfigDict(frozen=True)

    system: SystemName | None = None
    name: Name = "model"
    batch: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None
    shape: Annotated[
        tuple[Annotated[str, Field(max_length=300)], ...], Query(description="INPUT=1,3,224,224", max_length=64)
    ] = ()
    granularity: Annotated[int, Query(ge=1, le=1000)] = 1
    composition: Composition = "sequential"
    measured: bool = True
    version: Annotated[
        Version | None, Query(description="Version of the regressor that is to answer; by default the champion.")
    ] = None


class PredictOptions(FileOptions):
    """The same where one answer is asked for, which says what it leaves out."""

    partial: bool = False


class RankOptions(FileOptions):
    """The same where systems are ranked."""

    slo_us: Annotated[float | None, Query(ge=1e-3, le=1e15, allow_inf_nan=False)] = None
    quantile: Literal["p50", "p90", "p99", "quiet"] = "p50"


Pinned = Annotated[
    Version | None, Query(description="Version of the regressor that is to answer; by default the champion.")
]


def options_of(options: FileOptions) -> dict[str, Any]:
    """Options as an engine takes them.

    Raises:
        Problem: A shape is none.
    """
    found = options.model_dump(exclude={"shape"}, exclude_none=True)
    try:
        found["shapes"] = sorted(parse_shape(text) for text in options.shape)
    except ValueError as error:
        raise Problem(422, "invalid-request", f"shape: {error}") from None
    return found


@router.post(
    "/predict", operation_id="predict", response_model=PredictAnswer, openapi_extra=describes_model(PredictRequest),
    responses={200: TAGGED, **problems(404, *FILE_BODY, 422, 503)},
)  # fmt: skip
async def predict(request: Request, options: Annotated[PredictOptions, Query()]) -> Response:
    """What a model will cost on a system: an ONNX file, a graph of its layers, or a model that was sent before.

    The options in the query go with a file; with JSON they are in the body, but for the version.
    """
    state = state_of(request)
    if media_type(request) in FILE_TYPES:
        options = options.model_copy(update={"system": state.directory.snapshot.check(options.system, options.version)})
        asked = options_of(options)
        async with uploaded(request) as (path, digest):
            reply = await state.perform(request, "predict_file", asked | {"path": str(path), "sent_as": digest})
        return Answer.from_reply(reply).response(request)
    async with json_body(request) as body:
        return await _remembered(state, request, "predict", {"version": options.version}, body)


async def _remembered(
    state: AppState, request: Request, operation: str, options: dict[str, Any], body: list[bytes]
) -> Response:
    """The answer to a short question from memory if it was asked before, or else from an engine."""
    query = request.url.query
    short = len(query) + sum(map(len, body)) <= _SHORT_BYTES
    key = key_of(owner_of(request), request.url.path, query, body) if short else b""
    answer = state.remembered(key) if short else None
    request.scope["remembered"] = answer is not None
    if answer is None:
        answer = Answer.from_reply(await state.perform(request, operation, options, body))
        if short:
            state.remember(key, answer)
    request.scope["system"] = answer.system
    return answer.response(request)


@router.post(
    "/predict/bulk", operation_id="predictBulk", response_model=BulkAnswer, openapi_extra=describes_json(BulkRequest),
    responses=problems(404, *JSON_BODY, 422, 503),
)  # fmt: skip
async def predict_bulk(request: Request, version: Pinned = None) -> Response:
    """What many models will cost on one system; an item that has no answer says why, and the others have theirs.

    Items are made of layers that the request lists once, each a layer sequence in canonical form or the signature of
    one that is known; or an item is a model that was sent before, or a graph. A list of layers is taken for a chain.
    """
    async with json_body(request) as body:
        reply = await state_of(request).perform(request, "bulk", {"version": version}, body)
    return Response(reply.body, media_type="application/json")


@router.post(
    "/rank", operation_id="rank", response_model=RankAnswer, openapi_extra=describes_model(RankRequest),
    responses=problems(404, *FILE_BODY, 422, 503),
)  # fmt: skip
async def rank_models(request: Request, options: Annotated[RankOptions, Query()]) -> Response:
    """Which system meets a latency objective for a model, and at what price; or which of several models does.

    The options in the query go with a file, which is ranked on all systems, or on the one that is named; with JSON they
    are in the body.
    """
    state = state_of(request)
    if media_type(request) in FILE_TYPES:
        if options.system is not None:
            state.directory.snapshot.check(options.system, options.version)
        elif options.version is not None:
            raise Problem(422, "invalid-request", "version: name the system that has it")
        asked = options_of(options)
        async with uploaded(request) as (path, digest):
            reply = await state.perform(request, "rank_file", asked | {"path": str(path), "sent_as": digest})
    else:
        async with json_body(request) as body:
            reply = await state.perform(request, "rank", {}, body)
    return Response(reply.body, media_type="application/json")
