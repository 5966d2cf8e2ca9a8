"""The prediction service without HTTP: estimates the latency of untrusted models from a store and its regressors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from sys import getsizeof
from typing import Any

from costmodel.bounded_cache import BoundedCache
from costmodel.errors import ModelError, UnknownModelError
from costmodel.estimate.estimate import Estimate
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.interference import estimate_beside
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.pool import ReaderPool
from costmodel.serving.isolation.task import Task
from costmodel.serving.loaded_predictors import LoadedPredictor, LoadedPredictors
from costmodel.serving.observations.drift import Observation, StoredObservation
from costmodel.serving.observations.observations import Observations
from costmodel.serving.uploads import UploadedModelStore, content_digest
from costmodel.serving.validation.sequences import check_sequence
from costmodel.store.store import Store

__all__ = ["BesideModel", "ObservedRun", "PredictionOptions", "Service"]

# Maximum memory of cached decompositions, and their memory per byte of canonical form: 7.7 to 8.3 by tracemalloc, for
# three of the light models.
_MOST_KEPT_BYTES = 128 << 20
_BYTES_PER_TEXT_BYTE = 8


@dataclass(frozen=True, slots=True)
class BesideModel:
    """A model that runs at the same time as the one that a prediction is about.

    Attributes:
        digest: Digest of the model, which its owner has uploaded.
        name: Name of the model, for the estimate and messages.
        batch: Batch size, as in `PredictionOptions`.
        shapes: Input shapes, as in `PredictionOptions`.
    """

    digest: str
    name: str = "model"
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """Parameters of a prediction, except for the model itself.

    Attributes:
        system: Name of the system on which the model would run.
        version: Version of the regressor; None for the champion.
        batch: Batch size, as in `costmodel.onnx_io.model.read_model`.
        shapes: Input shapes, as in `costmodel.onnx_io.model.read_model`, but as pairs of name and shape, sorted by
            name.
        granularity: Maximum number of layers in a sequence.
        composition: Name of a composition rule that comes with costmodel.
        partial: Whether to estimate even if some layers have no cost.
        measured: Whether to use measurements; without them every cost is predicted.
        beside: Models that run at the same time, each on CPUs of its own.
        level: Level at which the model is lowered; None for that of the system.
        values: Values of inputs, as in `costmodel.onnx_io.model.read_model`, but as pairs of name and value, sorted by
            name.
    """

    system: str
    version: str | None = None
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    granularity: int = 1
    composition: str = "sequential"
    partial: bool = False
    measured: bool = True
    beside: tuple[BesideModel, ...] = ()
    level: str | None = None
    values: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A latency that users observed and report to the service.

    Attributes:
        latency_us: Observed latency in microseconds.
        runs: Number of runs that the latency is the average of; None if unknown.
        observed_at: Time of the observation, ISO 8601 in UTC; None for now.
        idempotency_key: Key chosen by the client: an observation that is sent again with the same key is stored once.
    """

    latency_us: float
    runs: int | None = None
    observed_at: str | None = None
    idempotency_key: str | None = None


@dataclass
class Service:
    """The prediction service of one engine; threads may share it.

    Attributes:
        store: Results store with the measurements.
        predictors: Predictors of the systems.
        pool: Reader processes, which read and lower untrusted models.
        uploads: Models that clients uploaded.
        observations: Store of observed latencies.
    """

    store: Store
    predictors: LoadedPredictors
    pool: ReaderPool
    uploads: UploadedModelStore
    observations: Observations
    _decompositions: BoundedCache[tuple[object, ...], tuple[Decomposition, tuple[str, ...]]] = field(
        default_factory=lambda: BoundedCache(_MOST_KEPT_BYTES, lambda found: _nbytes_of(found[0]))
    )

    @classmethod
    def open(
        cls, store_url: str, bundles: Path, folder: Path, *, readers: int, limits: Limits, uploads_bytes: int,
        store_wait_s: float = 1.0, scratch: Path | None = None,
    ) -> "Service":  # fmt: skip
        """Returns a service on a results store, which need not be reachable yet.

        Args:
            store_url: URL of the results store.
            bundles: Folder of trained regressors.
            folder: Folder in which the models that clients upload are stored.
            readers: Maximum number of reader processes.
            limits: Resource limits of a reader process while it reads one model.
            uploads_bytes: Maximum disk space of the uploaded models.
            store_wait_s: Maximum time in seconds that a query waits for the database.
            scratch: Folder in which the reader processes have folders of their own; by default the folder of temporary
                files.
        """
        store = Store(store_url, wait_s=store_wait_s, lazy=True)
        return cls(
            store,
            LoadedPredictors(store, bundles),
            ReaderPool(readers, limits, scratch),
            UploadedModelStore(folder, uploads_bytes),
            Observations(store_url, wait_s=store_wait_s, lazy=True),
        )

    def close(self) -> None:
        """Ends the reader processes and closes the results store and the store of observations."""
        self.pool.close()
        self.observations.close()
        self.store.close()

    # Models

    def keep(self, owner: str, upload: Path, sent_as: str) -> str:
        """Stores the model of an uploaded file, without its weights; the file itself is not needed afterwards.

        A model that cannot be read is not stored.

        Args:
            owner: Name of the owner who sent the file.
            upload: Path of the file.
            sent_as: Hash of the content of the file.

        Returns:
            The digest of the model, which does not depend on names, weights and documentation.

        Raises:
            ModelError: The model cannot be read.
            BusyError: No reader process was free in time.
        """
        known = self.uploads.find(owner, sent_as)
        if known is not None:
            return f"sha256:{known.stem}"
        content, digest = self.pool.read_without_weights(upload)
        self.uploads.put(owner, digest, content, ".onnx", sent_as)
        return digest

    def keep_graph(self, owner: str, graph: Mapping[str, Any]) -> str:
        """Stores a graph of layers and returns its digest: the sha256 of its JSON with sorted keys and no spaces."""
        content = json.dumps(graph, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        digest = content_digest(content)
        self.uploads.put(owner, digest, content, ".json")
        return digest

    def decompose(
        self, owner: str, digest: str, name: str, question: PredictionOptions
    ) -> tuple[Decomposition, tuple[str, ...]]:
        """Returns an uploaded model, lowered for a system and cut into layer sequences, and warnings about the model.

        Args:
            owner: Name of the owner who uploaded the model.
            digest: Digest of the model, or hash of the uploaded file.
            name: Name of the model, for the decomposition and messages.
            question: Parameters of the prediction, which name the system.

        Raises:
            UnknownModelError: The owner did not upload the model, or it was deleted since.
            ModelError: The model cannot be lowered, or has invalid layers.
            UnknownSystemError: There is no predictor for the system.
        """
        system = self.predictors.of(question.system).predictor.system
        path = self.uploads.find(owner, digest)
        if path is None:
            raise UnknownModelError(f"the model {digest} is not known here: send its file")
        level = question.level or system.settings.level
        key = (
            owner, path.name, name, system.runtime, level, question.granularity, question.batch,
            question.shapes, question.values,
        )  # fmt: skip
        found = self._decompositions.get(key)
        if found is None:
            found = self.pool.lower(self._task(path, name, question, system.runtime, level))
            for sequence in found[0].unique.values():
                check_sequence(sequence)
            self._decompositions.put(key, found)
        return found

    @staticmethod
    def _task(path: Path, name: str, question: PredictionOptions, runtime: str, level: str) -> Task:
        if path.suffix == ".json":
            if question.batch is not None or question.shapes or question.values:
                raise ModelError(
                    f"{name} is a graph of layers, whose shapes are fixed: leave out batch, shapes and values"
                )
            return Task(name, graph=json.loads(path.read_bytes()), granularity=question.granularity)
        return Task(
            name,
            path=path,
            runtime=runtime,
            level=level,
            granularity=question.granularity,
            batch=question.batch,
            shapes=dict(question.shapes),
            values=dict(question.values),
        )

    # Answers

    def estimate(
        self, owner: str, digest: str, name: str, question: PredictionOptions, loaded: LoadedPredictor | None = None
    ) -> tuple[Estimate, LoadedPredictor]:
        """Returns the estimate of an uploaded model, and the predictor that made it.

        Args:
            owner: Name of the owner who uploaded the model.
            digest: Digest of the model, or hash of the uploaded file.
            name: Name of the model, for the estimate and messages.
            question: Parameters of the prediction.
            loaded: Predictor to use, so that several models are priced by the same one; None for the one that
                `question` names.

        Raises:
            CostModelError: There is no estimate; the class of the error says why.
        """
        loaded = loaded or self.predictors.of(question.system, question.version)
        decomposition, warnings = self.decompose(owner, digest, name, question)
        estimate = loaded.predictor.estimate(
            decomposition,
            composition=question.composition,
            partial=question.partial,
            measured=question.measured,
            warnings=warnings,
        )
        if question.beside:
            others = [self._alone(owner, one, question, loaded) for one in question.beside]
            estimate = estimate_beside(loaded.predictor.system, (estimate, decomposition), others)
        return estimate, loaded

    def _alone(
        self, owner: str, one: BesideModel, question: PredictionOptions, loaded: LoadedPredictor
    ) -> tuple[Estimate, Decomposition]:
        """Returns the estimate of a model that runs beside another one, as if it ran alone, and its decomposition."""
        alone = replace(question, batch=one.batch, shapes=one.shapes, values=(), granularity=1, beside=())
        cut, warnings = self.decompose(owner, one.digest, one.name, alone)
        estimate = loaded.predictor.estimate(
            cut, partial=question.partial, measured=question.measured, warnings=warnings
        )
        return estimate, cut

    # Observations

    def observe(
        self, owner: str, digest: str, name: str, question: PredictionOptions, seen: ObservedRun
    ) -> StoredObservation:
        """Stores an observed latency together with its prediction.

        Args:
            owner: Name of the owner of the observation.
            digest: Digest of the uploaded model.
            name: Name of the model.
            question: Parameters of the prediction: the system and the options under which the model ran.
            seen: The observed latency.

        Raises:
            CostModelError: There is no prediction to compare with, or the observation cannot be stored.
        """
        estimate, loaded = self.estimate(owner, digest, name, question)
        if estimate.latency_us <= 0:
            raise ModelError(f"{name} has no layer with a cost on {question.system}: there is nothing to compare with")
        factor = estimate.jitter.get("p50", 1.0)
        low, high = estimate.interval_us
        observation = Observation(
            system=question.system,
            model=name,
            digest=digest,
            latency_us=seen.latency_us,
            runs=seen.runs,
            predicted_us=factor * estimate.latency_us,
            interval_us=(factor * low, factor * high),
            version=loaded.predictor.version,
            observed_at=seen.observed_at,
            owner=owner,
            idempotency_key=seen.idempotency_key,
        )
        (stored,) = self.observations.put([observation])
        return stored


def _nbytes_of(decomposition: Decomposition) -> int:
    """Returns the approximate memory that a decomposition takes, in bytes."""
    names = sum(getsizeof(name) for segment in decomposition.segments for name in segment.layers)
    texts = sum(len(sequence.text) for sequence in decomposition.unique.values())
    return 400 * len(decomposition.segments) + names + _BYTES_PER_TEXT_BYTE * texts
