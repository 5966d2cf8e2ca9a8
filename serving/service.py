"""The service, without HTTP: questions about models that strangers send, answered from a store and its regressors."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from costmodel.composition import Cost
from costmodel.decomposition import Decomposition
from costmodel.drift import Observation
from costmodel.errors import ModelError, ModelReadError
from costmodel.estimate import Estimate
from costmodel.groups import read_bytes
from costmodel.isolation import Limits, Pool, Task
from costmodel.observations import Observations
from costmodel.recent import Recent
from costmodel.sequence import LayerSequence
from costmodel.serving.answering import Answerer, Answerers
from costmodel.serving.networks import Networks, price_networks
from costmodel.serving.predictor import Predictor
from costmodel.serving.seen import SeenModels, content_digest
from costmodel.store import Store

__all__ = ["Item", "Question", "Service", "UnknownModelError"]

_MOST_TEXT = 256 << 20  # characters of the models that are kept in pieces
# What working out what a layer has to do may end in, where no runtime would make such a layer.
_NONSENSE = (KeyError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError)


class UnknownModelError(ModelReadError):
    """A model is referred to that was never seen here, or was forgotten."""


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
class Item:
    """One of many models: positions of its layers in a list that the models share."""

    name: str
    layers: Sequence[int]


@dataclass
class Service:
    """Answers; threads may share it.

    Attributes:
        store: Where measurements are.
        answerers: What answers for each system.
        pool: Where models are read.
        seen: Models that need not be sent again.
        observations: Where latencies that users saw go.
    """

    store: Store
    answerers: Answerers
    pool: Pool
    seen: SeenModels
    observations: Observations
    _cuts: Recent[tuple[object, ...], tuple[Decomposition, tuple[str, ...]]] = field(
        default_factory=lambda: Recent(_MOST_TEXT, lambda found: _text_of(found[0]))
    )

    @classmethod
    def open(
        cls, store_url: str, bundles: Path, folder: Path, *, workers: int, limits: Limits, most_seen_bytes: int
    ) -> "Service":
        """A service on a store.

        Args:
            store_url: Of the results store.
            bundles: Folder of trained regressors.
            folder: Where models that were seen are kept.
            workers: Models that are read at the same time.
            limits: Of each.
            most_seen_bytes: Of the models that are kept.

        Raises:
            StoreError: The store cannot be opened.
        """
        store = Store(store_url)
        service = cls(
            store,
            Answerers(store, bundles),
            Pool(workers, limits),
            SeenModels(folder, most_seen_bytes),
            Observations(store_url),
        )
        service.answerers.refresh()
        return service

    def close(self) -> None:
        """End the workers and let go of the store."""
        self.pool.close()
        self.observations.close()
        self.store.close()

    # Models

    def keep(self, upload: Path, digest: str) -> None:
        """Make a file that somebody sent known by its content; the file itself is not needed afterwards.

        Only what can be read is kept, and without its weights.

        Args:
            upload: The file.
            digest: Of its content.

        Raises:
            ModelError: It cannot be read.
        """
        if self.seen.find(digest) is None:
            self.pool.keep(upload, self.seen.path(digest))
            self.seen.trim()

    def keep_graph(self, graph: Mapping[str, Any]) -> str:
        """Make a graph of layers known; its content hash is that of its JSON with sorted keys and no spaces."""
        content = json.dumps(graph, sort_keys=True, separators=(",", ":")).encode()
        digest = content_digest(content)
        if self.seen.find(digest) is None:
            self.seen.put(content, self.seen.path(digest, ".json"))
            self.seen.trim()
        return digest

    def decompose(self, digest: str, name: str, question: Question) -> tuple[Decomposition, tuple[str, ...]]:
        """A model that was seen, as the sequences that a system would execute, and what the reader should know.

        Raises:
            UnknownModelError: It was not seen, or was forgotten.
            ModelError: It cannot be lowered.
            UnknownSystemError: Nothing answers for the system.
        """
        system = self.answerers.of(question.system).predictor.system
        key = (
            digest, name, system.runtime, system.settings.level, question.granularity, question.batch, question.shapes,
        )  # fmt: skip
        found = self._cuts.get(key)
        if found is None:
            found = self.pool.lower(self._task(digest, name, question, system.runtime, system.settings.level))
            self._cuts.put(key, found)
        return found

    def _task(self, digest: str, name: str, question: Question, runtime: str, level: str) -> Task:
        path = self.seen.find(digest)
        if path is None:
            raise UnknownModelError(f"the model {digest} is not known here: send its file")
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
        self, digest: str, name: str, question: Question, answerer: Answerer | None = None
    ) -> tuple[Estimate, Answerer]:
        """What a model that was seen will cost, and what answered.

        Args:
            digest: Of the model.
            name: What to call it.
            question: What is asked.
            answerer: What is to answer, where other models are asked about together with this one.

        Raises:
            CostModelError: There is no answer; the kind of error says why.
        """
        answerer = answerer or self.answerers.of(question.system, question.version)
        cut, warnings = self.decompose(digest, name, question)
        try:
            estimate = answerer.predictor.estimate(
                cut,
                composition=question.composition,
                partial=question.partial,
                measured=question.measured,
                warnings=warnings,
            )
        except _NONSENSE as error:
            # A graph may hold layers that no runtime makes: what they have to do cannot be worked out.
            raise ModelError(
                f"{name} has layers that make no sense ({type(error).__name__}): check the graph"
            ) from error
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
        costs = _priced(predictor, sound, refused, measured=measured)
        problems: dict[int, str] = {}
        kept: list[int] = []
        for place, item in enumerate(items):
            reason = _problem_of(item, len(layers), refused, costs)
            if reason is None:
                kept.append(place)
            else:
                problems[place] = reason
        if not kept:
            return None, [], problems
        blocks = [[sound[place]] if place in costs else [] for place in range(len(layers))]
        found = price_networks(predictor, blocks, [items[place].layers for place in kept], measured=measured)
        return found, kept, problems

    # Observations

    def observe(
        self, digest: str, name: str, question: Question, latency_us: float, runs: int | None, observed_at: str | None
    ) -> Observation:
        """Store a latency that users saw beside what is predicted of it.

        Raises:
            CostModelError: There is no prediction to compare it with, or it cannot be stored.
        """
        estimate, answerer = self.estimate(digest, name, question)
        if estimate.latency_us <= 0:
            raise ModelError(f"{name} has no layer with a cost on {question.system}: there is nothing to compare with")
        factor = estimate.jitter.get("p50", 1.0)
        low, high = estimate.interval_us
        regression = answerer.predictor.regression
        observation = Observation(
            system=question.system,
            model=name,
            digest=digest,
            latency_us=latency_us,
            runs=runs,
            predicted_us=factor * estimate.latency_us,
            interval_us=(factor * low, factor * high),
            version=regression.id.version if regression else "none",
            observed_at=observed_at or datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.observations.put([observation])
        return observation


def _text_of(cut: Decomposition) -> int:
    """How much of it there is to keep: names and sequences, of which some hold long attributes."""
    names = sum(len(name) for piece in cut.pieces for name in piece.layers)
    return 100 * len(cut.pieces) + names + sum(len(sequence.text) for sequence in cut.unique.values())


def _priced(
    predictor: Predictor, layers: Mapping[int, LayerSequence], refused: dict[int, str], *, measured: bool
) -> set[int]:
    """Which layers have a cost; the others are added to what is refused."""

    def ask(asked: Iterable[LayerSequence]) -> dict[str, Cost]:
        for one in asked:
            read_bytes(one)  # which pricing models asks as well
        return predictor.costs({one.signature: one for one in asked}, measured=measured)

    priced: set[int] = set()
    try:
        costs = ask(list(layers.values()))
    except _NONSENSE:
        costs = {}
        for place, layer in layers.items():
            try:
                costs |= ask([layer])
            except _NONSENSE as error:
                refused[place] = f"makes no sense ({type(error).__name__})"
    for place, layer in layers.items():
        cost = costs.get(layer.signature)
        if cost is not None and math.isfinite(cost.interval_us[1]):
            priced.add(place)
        elif place not in refused:
            refused[place] = f"({layer.kind}) has no cost on this system"
    return priced


def _problem_of(item: Item, layers: int, refused: Mapping[int, str], priced: set[int]) -> str | None:
    """Why a model has no cost; None if it has one."""
    if not item.layers:
        return f"{item.name} has no layers"
    if priced.issuperset(item.layers):
        return None
    for place in item.layers:
        if not 0 <= place < layers:
            return f"{item.name} names the layer {place}, and {layers} are listed"
        if place in refused:
            return f"{item.name}: layer {place} {refused[place]}"
    return None
