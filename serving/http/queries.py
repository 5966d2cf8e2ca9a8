"""What a model will cost: one, many, ranked, and what users saw."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from costmodel.errors import CostModelError
from costmodel.estimate import Estimate
from costmodel.serving.answering import Answerer
from costmodel.serving.http.answers import BulkAnswer, ObservationAnswer, PredictAnswer, RankAnswer
from costmodel.serving.http.bodies import FILE_TYPES, media_type, parsed, read_body, uploaded
from costmodel.serving.http.bulk import bulk_answer, digest_of
from costmodel.serving.http.desk import Answer, Desk, desk_of
from costmodel.serving.http.fields import Composition, Name, SystemName, Version
from costmodel.serving.http.openapi import PROBLEMS, json_body, model_body
from costmodel.serving.http.problems import Problem, reason_of
from costmodel.serving.http.requests import (
    BulkRequest,
    ObservationRequest,
    PredictRequest,
    RankModel,
    RankRequest,
)
from costmodel.serving.ranking import cheapest, rank
from costmodel.serving.service import Question
from costmodel.systems import catalogue
from costmodel.units import parse_shape

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["predictions"], responses=PROBLEMS)

# Questions that are so short are remembered by their words.
_SHORT_BYTES = 16 << 10


class FileOptions(BaseModel):
    """What is asked about a file: in the query, because the body is the file."""

    model_config = ConfigDict(frozen=True)

    system: SystemName | None = None
    name: Name = "model"
    batch: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None
    shape: Annotated[tuple[str, ...], Query(description="INPUT=1,3,224,224", max_length=1000)] = ()
    granularity: Annotated[int, Query(ge=1, le=1000)] = 1
    composition: Composition = "sequential"
    measured: bool = True

    def question(self, system: str, version: str | None, *, partial: bool = False) -> Question:
        """As the service has it.

        Args:
            system: Where it would run.
            version: Of the regressor that is to answer.
            partial: Whether to answer even if layers have no cost.

        Raises:
            Problem: A shape is none.
        """
        try:
            shapes = sorted(parse_shape(text) for text in self.shape)
        except ValueError as error:
            raise Problem(422, "invalid-request", f"shape: {error}") from None
        return Question(
            system, version, self.batch, tuple(shapes), self.granularity, self.composition, partial, self.measured
        )


class PredictOptions(FileOptions):
    """The same where one answer is asked for, which says what it leaves out."""

    partial: bool = False


Pinned = Annotated[Version | None, Query(description="Of the regressor that is to answer; by default the champion.")]


@router.post("/predict", response_model=PredictAnswer, openapi_extra=model_body(PredictRequest))
async def predict(request: Request, options: Annotated[PredictOptions, Query()], version: Pinned = None) -> Response:
    """What a model will cost on a system: an ONNX file, a graph of its layers, or a model that was sent before.

    The options in the query go with a file; with JSON they are in the body.
    """
    desk: Desk = desk_of(request)
    kind = media_type(request)
    if kind in FILE_TYPES:
        system = desk.system(options.system)
        question = options.question(system, version, partial=options.partial)
        async with uploaded(request, desk.settings.upload_seconds) as (path, digest):

            def work() -> Answer:
                desk.service.keep(path, digest)
                return _predicted(desk, digest, options.name, question)

            return (await desk.work(work)).response(request)
    _only_json(kind)
    body = await read_body(request, desk.settings.upload_seconds, desk.settings.max_json_bytes)
    words = b"predict?" + request.url.query.encode() + b"\n" + body
    answer = desk.remembered(words) if len(words) <= _SHORT_BYTES else None
    if answer is None:
        answer = await desk.work(lambda: _predict_json(desk, body, version))
        if len(words) <= _SHORT_BYTES:
            desk.remember(words, answer)
    return answer.response(request)


def _only_json(kind: str) -> None:
    if kind != "application/json":
        raise Problem(
            415, "unsupported-media-type",
            f"send an ONNX file as {FILE_TYPES[0]}, or a question as application/json, not as {kind or 'nothing'}",
        )  # fmt: skip


def _predict_json(desk: Desk, body: bytes, version: str | None) -> Answer:
    asked = parsed(PredictRequest, body)
    question = _question(asked, desk.system(asked.system), version)
    return _predicted(desk, digest_of(desk, asked.model, asked.graph), asked.name, question)


def _question(asked: "PredictRequest | RankModel | ObservationRequest", system: str, version: str | None) -> Question:
    shapes = tuple(sorted((name, tuple(shape)) for name, shape in asked.shapes.items()))
    partial = isinstance(asked, PredictRequest) and asked.partial
    return Question(system, version, asked.batch, shapes, asked.granularity, asked.composition, partial, asked.measured)


def _predicted(desk: Desk, digest: str, name: str, question: Question) -> Answer:
    estimate, answerer = desk.service.estimate(digest, name, question)
    document = {"model": estimate.model, "digest": digest} | estimate.to_dict()
    regression = answerer.predictor.regression
    if regression is not None and question.version is not None:
        document["predictor"] = {"name": regression.id.name, "version": regression.id.version}
    return Answer.of(json.dumps(document).encode(), question.system, question.version, answerer.identity)


@router.post("/predict/bulk", response_model=BulkAnswer, openapi_extra=json_body(BulkRequest))
async def predict_bulk(request: Request, version: Pinned = None) -> Response:
    """What many models will cost on one system; an item that has no answer says why, and the others have theirs.

    Items are made of layers that the request lists once, each a layer sequence in canonical form or the signature of
    one that is known; or an item is a model that was sent before, or a graph. A list of layers is taken for a chain.
    """
    desk: Desk = desk_of(request)
    _only_json(media_type(request))
    body = await read_body(request, desk.settings.upload_seconds, desk.settings.max_json_bytes)
    return Response(await desk.work(lambda: bulk_answer(desk, body, version)), media_type="application/json")


@router.post("/rank", response_model=RankAnswer, openapi_extra=model_body(RankRequest))
async def rank_models(
    request: Request,
    options: Annotated[FileOptions, Query()],
    slo_us: Annotated[float | None, Query(ge=1e-3, le=1e15, allow_inf_nan=False)] = None,
    quantile: Annotated[str, Query(pattern="^(p50|p90|p99|quiet)$")] = "p50",
) -> Response:
    """Which system meets a latency objective for a model, and at what price; or which of several models does.

    The options in the query go with a file, which is ranked on all systems, or on the one that is named; with JSON they
    are in the body.
    """
    desk: Desk = desk_of(request)
    kind = media_type(request)
    if kind in FILE_TYPES:
        async with uploaded(request, desk.settings.upload_seconds) as (path, digest):
            systems = [options.system] if options.system else None

            def work() -> bytes:
                desk.service.keep(path, digest)
                known = systems or desk.service.answerers.systems
                asked = [(digest, options.name, options.question(system, None)) for system in known]
                return _ranked(desk, asked, slo_us, quantile, {})

            return Response(await desk.work(work), media_type="application/json")
    _only_json(kind)
    body = await read_body(request, desk.settings.upload_seconds, desk.settings.max_json_bytes)
    return Response(await desk.work(lambda: _rank_json(desk, body)), media_type="application/json")


def _rank_json(desk: Desk, body: bytes) -> bytes:
    asked = parsed(RankRequest, body)
    systems = asked.systems if asked.systems is not None else desk.service.answerers.systems
    digests = [digest_of(desk, one.model, one.graph) for one in asked.models]
    questions = [
        (digest, one.name, _question(one, system, None))
        for digest, one in zip(digests, asked.models, strict=True)
        for system in dict.fromkeys(systems)
    ]
    return _ranked(desk, questions, asked.slo_us, asked.quantile, asked.usd_per_hour)


def _ranked(
    desk: Desk,
    questions: Sequence[tuple[str, str, Question]],
    slo_us: float | None,
    quantile: str,
    prices: Mapping[str, float],
) -> bytes:
    estimates: list[Estimate] = []
    failed = []
    answerers: dict[str, Answerer] = {}  # one for each system, however many models: none comes while they are asked
    until = desk.deadline()
    for digest, name, question in questions:
        try:
            until.check()
            known_one = answerers.get(question.system)
            estimate, answerers[question.system] = desk.service.estimate(digest, name, question, known_one)
            estimates.append(estimate)
        except (CostModelError, Problem) as error:
            if len(questions) == 1:
                raise
            failed.append({"model": name, "system": question.system, "error": reason_of(error)})
    known = {entry.name: entry.usd_per_hour for entry in catalogue().values()}
    ranked = rank(estimates, slo_us=slo_us, quantile=quantile, usd_per_hour=known | dict(prices))
    best = cheapest(ranked)
    document = {
        "slo_us": slo_us,
        "quantile": quantile,
        "best": best.to_dict() if best else None,
        "ranking": [one.to_dict() for one in ranked],
        "failed": failed,
    }
    return json.dumps(document).encode()


@router.post(
    "/observations", response_model=ObservationAnswer, status_code=201, openapi_extra=json_body(ObservationRequest)
)
async def observe(request: Request) -> Response:
    """Store a latency that users saw, beside what is predicted of it; /v1/systems says how far the two have drifted."""
    desk: Desk = desk_of(request)
    _only_json(media_type(request))
    body = await read_body(request, desk.settings.upload_seconds, desk.settings.max_json_bytes)

    def work() -> bytes:
        asked = parsed(ObservationRequest, body)
        digest = digest_of(desk, asked.model, asked.graph)
        question = _question(asked, desk.system(asked.system), None)
        stored = desk.service.observe(digest, asked.name, question, asked.latency_us, asked.runs, asked.observed_at)
        desk.metrics.observations.labels(stored.system).inc()
        return json.dumps(asdict(stored) | {"ratio": stored.ratio, "covered": stored.covered}).encode()

    return Response(await desk.work(work), 201, media_type="application/json")
