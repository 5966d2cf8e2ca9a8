"""Operations of an engine, such as a prediction: each parses a request, has it answered, and returns JSON."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from threading import Thread
from typing import Any

from pydantic_core import to_jsonable_python

from costmodel.errors import CostModelError, ModelError, StoreError
from costmodel.serving.engine.bulk import bulk_document
from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.engine.capacity import capacity_document
from costmodel.serving.engine.ranking import rank_document
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.engine.sources import Deadline, parsed, question_of, source_of
from costmodel.serving.engine.tuning import tune_document
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.service import ObservedRun, PredictionOptions, Service
from costmodel.serving.wire.answers import ObservationAnswer, PredictAnswer, StoredModelAnswer
from costmodel.serving.wire.problems import Problem, problem_of
from costmodel.serving.wire.requests import (
    BulkRequest,
    CapacityRequest,
    ObservationRequest,
    PredictRequest,
    RankRequest,
    Traffic,
    TuneRequest,
    Tuning,
)

__all__ = ["Operations"]

_LOG = logging.getLogger("costmodel.service")


class Operations:
    """The operations of one engine, which are called by their names; an engine performs one operation at a time."""

    def __init__(self, settings: EngineSettings, open_service: Callable[..., Service] = Service.open) -> None:
        """Opens the service of the engine; the results store need not be reachable yet.

        Args:
            settings: Locations and limits of the engine.
            open_service: Function that returns an open service; it takes the arguments of `Service.open`.
        """
        self.settings = settings
        self.service = open_service(
            settings.store_url, settings.bundles, settings.uploads, readers=1, uploads_bytes=settings.uploads_bytes,
            store_wait_s=settings.store_wait_s, scratch=settings.scratch,
            limits=Limits(
                memory_bytes=settings.reader_memory_bytes, cpu_s=max(1, round(settings.reader_s)),
                wall_s=settings.reader_s, wait_s=settings.reader_s, layers=settings.max_layers,
                tasks=settings.reader_tasks,
            ),
        )  # fmt: skip
        self._refreshed_at = -float("inf")
        self._operations: Mapping[str, Callable[[Call], Reply]] = {
            "predict": self._predict,
            "predict_file": self._predict_file,
            "predict_model": self._predict_model,
            "bulk": self._bulk,
            "rank": self._rank,
            "rank_file": self._rank_file,
            "capacity": self._capacity,
            "capacity_file": self._capacity_file,
            "tune": self._tune,
            "tune_file": self._tune_file,
            "keep": self._keep,
            "observe": self._observe,
        }

    def start(self) -> None:
        """Loads the predictors and starts the reader process, so that the first request waits for neither."""
        reader = Thread(target=self.service.pool.start)
        reader.start()
        try:
            self._refresh()
        except StoreError as error:
            _LOG.warning("the store cannot be read yet", extra={"fields": {"error": str(error)}})
        reader.join()

    @property
    def confinement(self) -> Mapping[str, Any]:
        """Protections by the operating system that confine the reader process, as it reported them (`Confinement`)."""
        return self.service.pool.confinement

    def close(self) -> None:
        """Ends the reader process and closes the results store."""
        self.service.close()

    def perform(self, call: Call) -> Reply:
        """Performs the operation that a call names, and returns the reply; an error becomes a reply with a problem.

        Raises:
            MemoryError: The engine ran out of memory; its process has to end.
        """
        began = time.perf_counter()
        reader_began = self.service.pool.busy_s
        facts: dict[str, float] = {}
        try:
            self._refresh()
            reply = self._operations[call.operation](call)
        except Problem as problem:
            reply = Reply(problem=problem)
        except CostModelError as error:
            facts["refused_models"] = float(isinstance(error, ModelError))
            reply = Reply(problem=problem_of(error))
            self._log_error(
                call, error, logging.INFO if reply.problem and reply.problem.status < 500 else logging.ERROR
            )
        except MemoryError:
            raise  # the process has to end: its remaining memory is fragmented
        except Exception:  # noqa: BLE001  # any other exception is our own defect, and the engine continues
            _LOG.exception(
                "a call failed", extra={"fields": {"request_id": call.request_id, "operation": call.operation}}
            )
            reply = Reply(problem=Problem(500, "internal-error", "see the log of the service"))
        facts["reader_seconds"] = self.service.pool.busy_s - reader_began
        facts["engine_seconds"] = time.perf_counter() - began
        return replace(reply, facts={**reply.facts, **facts}, refused=self.service.predictors.refused)

    @staticmethod
    def _log_error(call: Call, error: CostModelError, level: int) -> None:
        fields = {"request_id": call.request_id, "operation": call.operation, "owner": call.owner, "error": str(error)}
        if error.__cause__ is not None:
            fields["cause"] = f"{type(error.__cause__).__name__}: {error.__cause__}"
        _LOG.log(level, "no answer", extra={"fields": fields})

    def _refresh(self) -> None:
        """Loads new champions and measurements from the store, at most once in `EngineSettings.refresh_s` seconds."""
        now = time.monotonic()
        if now - self._refreshed_at < self.settings.refresh_s:
            return
        try:
            self.service.predictors.refresh()
        except StoreError:
            if not self.service.predictors.systems:
                raise
            # The predictors in memory continue to answer.
            _LOG.warning("the store cannot be read", extra={"fields": {"operation": "refresh"}})
        self._refreshed_at = now

    # Predictions

    def _predict(self, call: Call) -> Reply:
        request = parsed(PredictRequest, call.body)
        system = self._system(request.system)
        digest = source_of(self.service, call.owner, request, self.settings)
        return self._reply_for_model(
            call.owner, digest, request.name, question_of(request, system, call.options.get("version"))
        )

    def _predict_file(self, call: Call) -> Reply:
        digest = self._store_file(call)
        return self._predict_one(call, digest)

    def _predict_model(self, call: Call) -> Reply:
        return self._predict_one(call, call.options["digest"])

    def _predict_one(self, call: Call, digest: str) -> Reply:
        options = dict(call.options)
        question = _question(options, self._system(options.get("system")))
        return self._reply_for_model(call.owner, digest, options["name"], question)

    def _reply_for_model(self, owner: str, digest: str, name: str, question: PredictionOptions) -> Reply:
        estimate, loaded = self.service.estimate(owner, digest, name, question)
        known = self.service.uploads.find(owner, digest)
        document: PredictAnswer = {
            **estimate.to_dict(), "digest": digest if known is None else f"sha256:{known.stem}",
        }  # fmt: skip
        regression = loaded.predictor.regression
        if regression is not None and question.version is not None:
            document["predictor"] = regression.id.to_dict()
        return _reply(document, loaded, question)

    def _bulk(self, call: Call) -> Reply:
        request = parsed(BulkRequest, call.body)
        system = self._system(request.system)
        loaded = self.service.predictors.of(system, call.options.get("version"))
        document = bulk_document(self.service, loaded, call.owner, system, request, self.settings)
        return _reply(document, loaded, PredictionOptions(system, call.options.get("version")))

    def _rank(self, call: Call) -> Reply:
        request = parsed(RankRequest, call.body)
        systems = list(
            dict.fromkeys(request.systems if request.systems is not None else self.service.predictors.systems)
        )
        digests = [source_of(self.service, call.owner, one, self.settings) for one in request.models]
        questions = [
            (digest, one.name, question_of(one, system, request.versions.get(system)))
            for digest, one in zip(digests, request.models, strict=True)
            for system in systems
        ]
        document = rank_document(
            self.service, call.owner, questions, Deadline.after(self.settings.request_s), slo_us=request.slo_us,
            memory_bytes=request.memory_bytes, arrivals_per_s=request.arrivals_per_s,
            quantile=request.quantile, usd_per_hour=request.usd_per_hour,
        )  # fmt: skip
        return Reply(_encoded(document))

    def _rank_file(self, call: Call) -> Reply:
        options = dict(call.options)
        digest = self._store_file(call)
        named = options.pop("system", None)
        questions = [
            (digest, options["name"], _question(options, system))
            for system in ([named] if named else self.service.predictors.systems)
        ]
        document = rank_document(
            self.service, call.owner, questions, Deadline.after(self.settings.request_s), slo_us=options.get("slo_us"),
            memory_bytes=options.get("memory_bytes"), arrivals_per_s=options.get("arrivals_per_s"),
            quantile=options["quantile"], usd_per_hour={},
        )  # fmt: skip
        return Reply(_encoded(document))

    def _capacity(self, call: Call) -> Reply:
        request = parsed(CapacityRequest, call.body)
        if request.graph is not None and request.max_batch > 1:
            raise Problem(422, "invalid-request", "max_batch: a graph of layers has one batch size: send the ONNX file")
        options = {
            "system": request.system, "version": call.options.get("version"), "shapes": request.shapes.items(),
            "values": sorted(request.values.items()), "granularity": request.granularity, "measured": request.measured,
        }  # fmt: skip
        traffic = Traffic(**{name: getattr(request, name) for name in Traffic.model_fields})
        digest = source_of(self.service, call.owner, request, self.settings)
        return self._capacity_of(call.owner, digest, request.name, options, traffic)

    def _capacity_file(self, call: Call) -> Reply:
        options = dict(call.options)
        return self._capacity_of(
            call.owner, self._store_file(call), options["name"], options, Traffic(**options["traffic"])
        )

    def _capacity_of(self, owner: str, digest: str, name: str, options: Mapping[str, Any], traffic: Traffic) -> Reply:
        question = _question(options, self._system(options.get("system")))
        deadline = Deadline.after(self.settings.request_s)
        document, loaded = capacity_document(self.service, owner, digest, name, question, traffic, deadline)
        return _reply(to_jsonable_python(document), loaded, question)

    def _tune(self, call: Call) -> Reply:
        request = parsed(TuneRequest, call.body)
        options = {
            "system": request.system, "version": call.options.get("version"), "shapes": request.shapes.items(),
            "values": sorted(request.values.items()), "measured": request.measured,
        }  # fmt: skip
        tuning = Tuning(**{name: getattr(request, name) for name in Tuning.model_fields})
        digest = source_of(self.service, call.owner, request, self.settings)
        return self._tune_one(call.owner, digest, request.name, options, tuning, fixed=request.graph is not None)

    def _tune_file(self, call: Call) -> Reply:
        options = dict(call.options)
        digest = self._store_file(call)
        return self._tune_one(call.owner, digest, options["name"], options, Tuning(**options["tuning"]), fixed=False)

    def _tune_one(
        self, owner: str, digest: str, name: str, options: Mapping[str, Any], tuning: Tuning, *, fixed: bool
    ) -> Reply:
        question = _question(options, self._system(options.get("system")))
        stored = self.service.uploads.find(owner, digest)
        document = tune_document(
            self.service, owner, digest, name, question, tuning, Deadline.after(self.settings.request_s),
            fixed=fixed or (stored is not None and stored.suffix == ".json"),
        )  # fmt: skip
        # The answer depends on all systems of the host, and no one identity tells whether they have changed.
        return Reply(_encoded(to_jsonable_python(document)), system=question.system)

    def _keep(self, call: Call) -> Reply:
        document: StoredModelAnswer = {"digest": self._store_file(call)}
        return Reply(_encoded(document), 201)

    def _store_file(self, call: Call) -> str:
        """Stores the model file that came with a call, without its weights, and returns the digest of the model."""
        return self.service.keep(call.owner, Path(call.options["path"]), call.options["sent_as"])

    # Observations

    def _observe(self, call: Call) -> Reply:
        request = parsed(ObservationRequest, call.body)
        count = self.service.observations.count(owner=call.owner)
        if count >= self.settings.max_observations:
            raise Problem(
                422, "too-much",
                f"{count} observations are kept for you, which is the most: delete some (DELETE /v1/observations)",
            )  # fmt: skip
        digest = source_of(self.service, call.owner, request, self.settings)
        question = question_of(request, self._system(request.system), None)
        seen = ObservedRun(request.latency_us, request.runs, request.observed_at, call.options.get("idempotency_key"))
        stored = self.service.observe(call.owner, digest, request.name, question, seen)
        document = to_jsonable_python(ObservationAnswer(**asdict(stored)))
        return Reply(_encoded(document), 201, system=question.system)

    def _system(self, named: str | None) -> str:
        """Returns the system that a request is about: the one that it names, or else the only one with a predictor.

        Raises:
            UnknownSystemError: No system is named, and there is not exactly one that has a predictor.
        """
        return self.service.predictors.only(named)


def _question(options: Mapping[str, Any], system: str) -> PredictionOptions:
    return PredictionOptions(
        system, options.get("version"), options.get("batch"),
        tuple((name, tuple(shape)) for name, shape in options.get("shapes", ())), options.get("granularity", 1),
        options.get("composition", "sequential"), options.get("partial", False), options.get("measured", True),
        values=tuple((name, value) for name, value in options.get("values", ())),
    )  # fmt: skip


def _reply(document: Mapping[str, Any], loaded: LoadedPredictor, question: PredictionOptions) -> Reply:
    return Reply(_encoded(document), system=question.system, identity=loaded.identity)


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, default=to_jsonable_python).encode()
