"""Routes for uploaded models; each client has access only to those that it uploaded."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from costmodel.serving.http.bodies import FILE_TYPES, media_type, uploaded
from costmodel.serving.http.openapi import FILE_BODY, IF_NONE_MATCH, NOT_MODIFIED, TAGGED, describes_file, problems
from costmodel.serving.http.paging import Limit, page_of
from costmodel.serving.http.queries import PredictOptions, options_of
from costmodel.serving.http.state import owner_of, state_of
from costmodel.serving.uploads import UploadedModel
from costmodel.serving.wire.answers import ModelAnswer, ModelsAnswer, PredictAnswer, StoredModelAnswer
from costmodel.serving.wire.fields import Digest
from costmodel.serving.wire.problems import Problem

__all__ = ["router"]

router = APIRouter(prefix="/v1/models", tags=["models"])

_Digest = Annotated[Digest, Path(description="Digest of a model, or content hash of the uploaded file.")]


@router.post(
    "", operation_id="sendModel", status_code=201, response_model=StoredModelAnswer, openapi_extra=describes_file(),
    responses=problems(*FILE_BODY, 422, 503),
)  # fmt: skip
async def keep(request: Request) -> Response:
    """Upload an ONNX file without requesting a prediction. The weights in it are not stored."""
    if media_type(request) not in FILE_TYPES:
        raise Problem(415, "unsupported-media-type", f"send an ONNX file as {FILE_TYPES[0]}")
    async with uploaded(request) as (path, digest):
        reply = await state_of(request).perform(request, "keep", {"path": str(path), "sent_as": digest})
    return Response(reply.body, reply.status, media_type="application/json")


@router.get("", operation_id="listModels", responses=problems(422))
async def models(
    request: Request,
    limit: Limit = 100,
    after: Annotated[Digest | None, Query(description="The `next` of the previous page.")] = None,
) -> ModelsAnswer:
    """List the models that you have uploaded and that are still stored, sorted by digest."""
    state = state_of(request)
    found: list[UploadedModel] = await state.read(state.uploads.models, owner_of(request))
    page, following = page_of(found, lambda model: model.digest, limit, after)
    return {"models": [ModelAnswer(**asdict(one)) for one in page], "next": following}


@router.get("/{digest}", operation_id="getModel", responses=problems(404, 422))
async def model(request: Request, digest: _Digest) -> ModelAnswer:
    """Get one model that you have uploaded."""
    state = state_of(request)
    path = await state.read(state.uploads.find, owner_of(request), digest)
    found: list[UploadedModel] = [] if path is None else await state.read(state.uploads.models, owner_of(request))
    for one in found:
        if one.digest == f"sha256:{path.stem}":
            return ModelAnswer(**asdict(one))
    raise _unknown(digest)


@router.get(
    "/{digest}/prediction", operation_id="getPrediction", response_model=PredictAnswer,
    openapi_extra={"parameters": [IF_NONE_MATCH]},
    responses={200: TAGGED, 304: NOT_MODIFIED, **problems(404, 422, 503)},
)  # fmt: skip
async def prediction(request: Request, digest: _Digest, options: Annotated[PredictOptions, Query()]) -> Response:
    """Predict the latency of an uploaded model.

    With the header If-None-Match, the prediction is sent only if it differs from the one with that ETag; otherwise the
    status is 304, without a body.
    """
    state = state_of(request)
    system = state.directory.snapshot.check(options.system, options.version)
    engine_options = options_of(options.model_copy(update={"system": system})) | {"digest": digest}
    return await state.answer(request, "predict_model", engine_options)


@router.delete("/{digest}", operation_id="deleteModel", status_code=204, responses=problems(404, 422))
async def forget(request: Request, digest: _Digest) -> Response:
    """Delete a model that you have uploaded."""
    state = state_of(request)
    if not await state.read(state.uploads.remove, owner_of(request), digest):
        raise _unknown(digest)
    return Response(status_code=204)


def _unknown(digest: str) -> Problem:
    return Problem(404, "unknown-model", f"the model {digest} is not known here: send its file")
