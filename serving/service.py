"""The service, without HTTP: questions about models that strangers send, answered from a store and its regressors."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from sys import getsizeof
from typing import Any

import numpy as np

from costmodel.checking import check_sequence
from costmodel.decomposition import Decomposition
from costmodel.drift import Observation, StoredObservation
from costmodel.errors import ModelError, UnknownModelError
from costmodel.estimate import Estimate
from costmodel.isolation import Limits, Pool, Task
from costmodel.observations import Observations
from costmodel.recent import Recent
from costmodel.sequence import LayerSequence
from costmodel.serving.answering import Answerer, LoadedPredictors
from costmodel.serving.networks import Networks, price_networks
from costmodel.serving.predictor import Predictor
from costmodel.serving.uploads import UploadedModelStore, content_digest
from costmodel.store import Store

__all__ = ["Item", "Question", "Seen", "Service"]

# Memory of the decompositions that are kept, and what they take for each byte of their text: 7.7 to 8.3 by
# tracemalloc, for three of the light models.
_MOST_KEPT_BYTES = 128 << 20
_BYTES_PER_TEXT_BYTE = 8


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a model.

    Attributes:
        system: Where it would run.
        version: Of the regressor; None for the champion.
        batch: As in `costmodel.model.read_model`.
        shapes: As there, sorted by name.
        granularity: The most layers in a sequence.
        composition: Name of a rule that comes with costmodel.
        partial: Whether to answer even if layers have no cost.
        measured: Whether to use measurements.
    """

    system: str
    version: str | None = None
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    granularity: int = 1
    composition: str = "sequential"
    partial: bool = False
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """A latency that users saw.

    Attributes:
        latency_us: The latency, as users see it.
        runs: How many runs it is the average of; None where that is not known.
        observed_at: When it was seen, ISO 8601 in UTC; None for now.
        idempotency_key: The client's own key: an observation that is sent again under it is stored once.
    """

    latency_us: float
    runs: int | None = None
    observed_at: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One of many models: positions of its layers in a list that the models share."""

    name: str
    layers: Sequence[int]


@dataclass
class Service:
    """Answers; threads may share it.

    Attributes:
        store: Where measurements are.
        predictors: What answers for each system.
        pool: Where models are read.
        uploads: Models that need not be sent again.
        observations: Where latencies that users saw go.
    """

    store: Store
    predictors: LoadedPredictors
    pool: Pool
    uploads: UploadedModelStore
    observations: Observations
    _cuts: Recent[tuple[object, ...], tuple[Decomposition, tuple[str, ...]]] = field(
        default_factory=lambda: Recent(_MOST_KEPT_BYTES, lambda found: _nbytes_of(found[0]))
    )

    @classmethod
    def open(
        cls, store_url: str, bundles: Path, folder: Path, *, readers: int, limits: Limits, uploads_bytes: int,
        store_wait_s: float = 1.0, scratch: Path | None = None,
    ) -> "Service":  # fmt: skip
        """A service on a store, which need not be reachable yet.

        Args:
            store_url: URL of the results store.
            bundles: Folder of trained regressors.
            folder: Where models that clients sent are kept.
            readers: Processes that read models.
            limits: What one model may cost a reader.
            uploads_bytes: The most that the kept models may take on the disk.
            store_wait_s: Seconds that the database may keep a question waiting.
            scratch: Folder in which readers have theirs; by default that of temporary files.
        """
        store = Store(store_url, wait_s=store_wait_s, lazy=True)
        return cls(
            store,
            LoadedPredictors(store, bundles),
            Pool(readers, limits, scratch),
            UploadedModelStore(folder, uploads_bytes),
            Observations(store_url, wait_s=store_wait_s, lazy=True),
        )

    def close(self) -> None:
        """End the readers and let go of the store."""
        self.pool.close()
        self.observations.close()
        self.store.close()

    # Models

    def keep(self, owner: str, upload: Path, sent_as: str) -> str:
        """Keep the model in a file that a client sent; the file itself is not needed afterwards.

        Only what can be read is kept, and without its weights.

        Args:
            owner: Who sent it.
            upload: The file.
            sent_as: Hash of its content.

        Returns:
            The digest of the model: the same with and without its names, weights and documentation.

        Raises:
            ModelError: It cannot be read.
        """
        known = self.uploads.find(owner, sent_as)
        if known is not None:
            return f"sha256:{known.stem}"
        content, digest = self.pool.without_weights(upload)
        self.uploads.put(owner, digest, content, ".onnx", sent_as)
        return digest

    def keep_graph(self, owner: str, graph: Mapping[str, Any]) -> str:
        """Keep a graph of layers; its digest is the hash of its JSON with sorted keys and no spaces."""
        content = json.dumps(graph, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        digest = content_digest(content)
        self.uploads.put(owner, digest, content, ".json")
        return digest

    def decompose(
        self, owner: str, digest: str, name: str, question: Question
    ) -> tuple[Decomposition, tuple[str, ...]]:
        """A model that an owner sent, as the sequences that a system would execute, and warnings about it.

        Raises:
            UnknownModelError: The owner did not send it, or it was forgotten.
            ModelError: It cannot be lowered, or has layers that no runtime makes.
            UnknownSystemError: Nothing answers for the system.
        """
        system = self.predictors.of(question.system).predictor.system
        path = self.uploads.find(owner, digest)
        if path is None:
            raise UnknownModelError(f"the model {digest} is not known here: send its file")
        key = (
            owner, path.name, name, system.runtime, system.settings.level, question.granularity, question.batch,
            question.shapes,
        )  # fmt: skip
        found = self._cuts.get(key)
        if found is None:
            found = self.pool.lower(self._task(path, name, question, system.runtime, system.settings.level))
            for sequence in found[0].unique.values():
                check_sequence(sequence)
            self._cuts.put(key, found)
        return found

    @staticmethod
    def _task(path: Path, name: str, question: Question, runtime: str, level: str) -> Task:
        if path.suffix == ".json":
            if question.batch is not None or question.shapes:
                raise ModelError(f"{name} is a graph of layers, whose shapes are fixed: leave out batch and shapes")
            return Task(name, graph=json.loads(path.read_bytes()), granularity=question.granularity)
        return Task(
            name,
            path=path,
            runtime=runtime,
            level=level,
            granularity=question.granularity,
            batch=question.batch,
            shapes=dict(question.shapes),
        )

    # Answers

    def estimate(
        self, owner: str, digest: str, name: str, question: Question, answerer: Answerer | None = None
    ) -> tuple[Estimate, Answerer]:
        """What a model that an owner sent will cost, and what answered.

        Args:
            owner: Who sent it.
            digest: Hash of the model, or of the file as it was sent.
            name: What to call it.
            question: What is asked.
            answerer: What is to answer, where other models are asked about together with this one.

        Raises:
            CostModelError: There is no answer; the kind of error says why.
        """
        answerer = answerer or self.predictors.of(question.system, question.version)
        cut, warnings = self.decompose(owner, digest, name, question)
        estimate = answerer.predictor.estimate(
            cut,
            composition=question.composition,
            partial=question.partial,
            measured=question.measured,
            warnings=warnings,
        )
        return estimate, answerer

    @staticmethod
    def price_items(
        answerer: Answerer, layers: Sequence[LayerSequence | str], items: Sequence[Item], *, measured: bool
    ) -> tuple[Networks | None, list[int], dict[int, str]]:
        """Many models made of a few layers.

        Args:
            answerer: What is to answer.
            layers: Each a sequence, or the reason why it is none.
            items: The models.
            measured: Whether to use measurements.

        Returns:
            What they cost, the positions of the items that have a cost, in that order, and the reasons of the others.
        """
        predictor = answerer.predictor
        refused = {place: reason for place, reason in enumerate(layers) if isinstance(reason, str)}
        sound = {place: layer for place, layer in enumerate(layers) if isinstance(layer, LayerSequence)}
        priced = _priced(predictor, sound, refused, measured=measured)
        problems = _problems(items, refused, priced)
        kept = [place for place in range(len(items)) if place not in problems]
        if not kept:
            return None, [], problems
        blocks = [[sound[place]] if priced[place] else [] for place in range(len(layers))]
        found = price_networks(predictor, blocks, [items[place].layers for place in kept], measured=measured)
        return found, kept, problems

    # Observations

    def observe(self, owner: str, digest: str, name: str, question: Question, seen: Seen) -> StoredObservation:
        """Store a latency that users saw beside what is predicted of it.

        Args:
            owner: Whose observation it is.
            digest: Hash of the model.
            name: What to call it.
            question: Where and how the model runs.
            seen: What was seen.

        Raises:
            CostModelError: There is no prediction to compare it with, or it cannot be stored.
        """
        estimate, answerer = self.estimate(owner, digest, name, question)
        if estimate.latency_us <= 0:
            raise ModelError(f"{name} has no layer with a cost on {question.system}: there is nothing to compare with")
        factor = estimate.jitter.get("p50", 1.0)
        low, high = estimate.interval_us
        regression = answerer.predictor.regression
        observation = Observation(
            system=question.system,
            model=name,
            digest=digest,
            latency_us=seen.latency_us,
            runs=seen.runs,
            predicted_us=factor * estimate.latency_us,
            interval_us=(factor * low, factor * high),
            version=regression.id.version if regression else "none",
            observed_at=seen.observed_at or datetime.now(UTC).isoformat(timespec="seconds"),
            owner=owner,
            idempotency_key=seen.idempotency_key,
        )
        (stored,) = self.observations.put([observation])
        return stored


def _nbytes_of(cut: Decomposition) -> int:
    """Memory that a decomposition takes, about."""
    names = sum(getsizeof(name) for piece in cut.pieces for name in piece.layers)
    texts = sum(len(sequence.text) for sequence in cut.unique.values())
    return 400 * len(cut.pieces) + names + _BYTES_PER_TEXT_BYTE * texts


def _priced(
    predictor: Predictor, layers: Mapping[int, LayerSequence], refused: dict[int, str], *, measured: bool
) -> np.ndarray:
    """Which layers have a cost, by position in the list; the others are added to what is refused."""
    costs = predictor.costs({one.signature: one for one in layers.values()}, measured=measured)
    priced = np.zeros(len(layers) + len(refused), dtype=bool)
    for place, layer in layers.items():
        cost = costs.get(layer.signature)
        if cost is not None and math.isfinite(cost.interval_us[1]):
            priced[place] = True
        else:
            refused[place] = f"({layer.kind}) has no cost on this system"
    return priced


def _problems(items: Sequence[Item], refused: Mapping[int, str], priced: np.ndarray) -> dict[int, str]:
    """Why models have no cost, by position; those that have one are not in it."""
    lengths = np.fromiter((len(item.layers) for item in items), np.int64, len(items))
    rows = np.fromiter(chain.from_iterable(item.layers for item in items), np.int64, int(lengths.sum()))
    sound = np.append(priced, False)[np.minimum(rows, len(priced))]
    broken = np.unique(np.repeat(np.arange(len(items)), lengths)[~sound])
    found = {place: f"{items[place].name} has no layers" for place in np.flatnonzero(lengths == 0).tolist()}
    for place in broken.tolist():
        item = items[place]
        layer = next(layer for layer in item.layers if layer >= len(priced) or not priced[layer])
        if layer >= len(priced):
            found[place] = f"{item.name} names the layer {layer}, and {len(priced)} are listed"
        else:
            found[place] = f"{item.name}: layer {layer} {refused[layer]}"
    return found
