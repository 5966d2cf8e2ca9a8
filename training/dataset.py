"""The data set of one system: its measured layer sequences as features, and the models that were measured whole."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from costmodel.errors import MissingExtraError, TrainingError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded, encode_all
from costmodel.ir.footprint import COLD, Footprint
from costmodel.ir.sequence import LayerSequence
from costmodel.store.store import Store, StoredModel
from costmodel.systems.names import measuring_command
from costmodel.systems.system import System
from costmodel.training.corpora.recipe import RANDOM_FAMILY

try:
    from scipy.cluster.hierarchy import DisjointSet
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["Dataset", "MeasuredModel", "dataset_of", "load_dataset"]

# Smallest number of measured layers to train on.
LEAST_ROWS = 20
# Smallest number of whole models to train on where there are fewer layers.
LEAST_MODELS = 10
# Smallest number of repeated sequences for a noise floor: with fewer, one tiny layer that took twice its time decides
# the mean.
LEAST_REPEATS = 30


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model that was measured whole, with its sequences as rows of the data set.

    Attributes:
        name: Name of the model.
        family: Architecture lineage of the model.
        rows: Row of the data set for each sequence of the model, in execution order; only the row of the model itself
            where nothing but whole models was measured.
        row: Row of the data set that is the whole model.
        latency_us: Measured end-to-end latency in microseconds.
        measured_us: Latency of each measurement of the model in microseconds.
    """

    name: str
    family: str
    rows: np.ndarray
    row: int
    latency_us: float
    measured_us: tuple[float, ...]


@dataclass(frozen=True)
class Dataset:
    """Measured sequences of one system, one row for each, on which regressors are trained and judged.

    Attributes:
        system: System on which the sequences were measured.
        signatures: Signature of each row's sequence.
        kinds: Operator types of each row's sequence, such as "Conv" or "Conv+MaxPool".
        families: For each row, the families of the models in which it occurs and, for a sample, those of the sequence
            that it was made from; empty if there are none. Random networks count as models without a family.
        sampled: Whether each row is a sample, or occurs only in models without a family and in random networks. Such
            rows are trained on but never judged on.
        whole: Whether each row is a whole model.
        encoded: Layers of the rows as features, with their analytical bounds.
        latencies_us: Measured cost of each row in microseconds, shape [num_rows].
        models: Models whose end-to-end latency is measured.
        random_models: The same of random networks, which are trained on but never judged on.
        repeats: For sequences that were measured repeatedly, pairs of the first latency and a later one in
            microseconds.
        borrowed: Whether each row was measured on another system (`costmodel.training.fewer_threads`), which its
            features describe. Such rows are trained on but never judged on.
        borrowed_models: Whole models among the borrowed rows, by which the lineages of these rows are told.
    """

    system: System
    signatures: tuple[str, ...]
    kinds: tuple[str, ...]
    families: tuple[frozenset[str], ...]
    sampled: np.ndarray
    whole: np.ndarray
    encoded: Encoded
    latencies_us: np.ndarray
    models: tuple[MeasuredModel, ...]
    repeats: tuple[tuple[float, float], ...]
    borrowed: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    borrowed_models: tuple[MeasuredModel, ...] = ()
    random_models: tuple[MeasuredModel, ...] = ()

    def __post_init__(self) -> None:
        """Fills in that no row is borrowed where nothing else is said."""
        if not len(self.borrowed):
            object.__setattr__(self, "borrowed", np.zeros(len(self.signatures), dtype=bool))

    def __len__(self) -> int:
        """Returns the number of rows, that is, of measured sequences."""
        return len(self.signatures)

    @property
    def all_models(self) -> tuple[MeasuredModel, ...]:
        """The models, and after them the random networks."""
        return self.models + self.random_models

    @property
    def whole_only(self) -> bool:
        """Whether too few layers were measured to train on, so that whole models are trained on instead."""
        return bool((~self.whole).sum() < LEAST_ROWS)

    @property
    def all_families(self) -> tuple[str, ...]:
        """All families of the rows, in alphabetical order."""
        return tuple(sorted({family for families in self.families for family in families}))

    def by_model(self) -> "Dataset":
        """Returns this data set with every model as a family of its own, so that each model can be held out alone.

        This is valid only where nothing but whole models is measured: models may share layers, which would otherwise
        occur in the training data and in the test data.
        """
        names = {model.row: model.name for model in self.models}
        return replace(
            self,
            families=tuple(frozenset([names[row]]) if row in names else frozenset() for row in range(len(self))),
            models=tuple(replace(model, family=model.name) for model in self.models),
        )

    def renamed(self, names: Mapping[str, str]) -> "Dataset":
        """Returns this data set with other names for its families; families of the same name become one.

        Args:
            names: New name of each family to rename.
        """
        return replace(
            self,
            families=tuple(frozenset(names.get(family, family) for family in of_row) for of_row in self.families),
            models=tuple(replace(model, family=names.get(model.family, model.family)) for model in self.models),
            borrowed_models=tuple(
                replace(model, family=names.get(model.family, model.family)) for model in self.borrowed_models
            ),
        )

    @property
    def fingerprint(self) -> str:
        """Digest of the feature schema, signatures and latencies, by which a bundle identifies its training data."""
        digest = hashlib.sha256(SCHEMA.fingerprint.encode())
        for signature, latency in sorted(zip(self.signatures, self.latencies_us.tolist(), strict=True)):
            digest.update(f"{signature}:{latency:.3f};".encode())
        return digest.hexdigest()[:16]

    @cached_property
    def known_elsewhere(self) -> tuple[np.ndarray, ...]:
        """For each model of `models`, a mask of those of its sequences that also occur in a model of another family."""
        return tuple(
            np.array([bool(self.families[row] - {model.family}) for row in model.rows]) for model in self.models
        )

    def noise_floor(self) -> float | None:
        """Returns the mean relative difference between two measurements of the same sequence.

        It is None if too few sequences were measured repeatedly.
        """
        if len(self.repeats) < LEAST_REPEATS:
            return None
        first, second = np.array(self.repeats).T
        return float(np.mean(np.abs(second - first) / first))

    def weighted_noise_floor(self, least_us: float) -> float | None:
        """Returns the difference between two measurements of sequences above `least_us`, weighted by their latency.

        It is None if too few such sequences were measured repeatedly.
        """
        long = np.array([pair for pair in self.repeats if pair[0] > least_us])
        if len(long) < LEAST_REPEATS:
            return None
        return float(np.abs(long[:, 1] - long[:, 0]).sum() / long[:, 0].sum())


def load_dataset(store: Store, system_name: str) -> Dataset:
    """Loads the data set of a system from a store.

    Raises:
        UnknownSystemError: The store has no system of that name.
        TrainingError: Too few sequences are measured.
    """
    return dataset_of(store, store.system(system_name), store.latencies_us(system_name))


def dataset_of(store: Store, system: System, latencies: Mapping[str, float]) -> Dataset:
    """Makes a data set of sequences whose costs on a system are given.

    Args:
        store: Store with the sequences and the models in which they occur.
        system: System for which the sequences are encoded.
        latencies: Cost of each sequence in microseconds, by signature; nan if it is not known yet.

    Raises:
        TrainingError: There are too few costs to train on.
    """
    stored = store.models()
    models = _one_family_each(model for model in stored if model.family not in ("", RANDOM_FAMILY))
    random_models = [model for model in stored if model.family == RANDOM_FAMILY]
    owners = _owners(models)
    # A model of one layer has the signature of that layer: its measurement counts as one of a layer.
    wholes = {model.whole: {model.family} for model in models if model.whole not in owners}
    owners |= wholes
    wholes = {model.whole: set[str]() for model in random_models if model.whole not in owners} | wholes
    signatures = tuple(sorted(latencies))
    measured_wholes = len(wholes.keys() & signatures)
    whole_only = len(signatures) - measured_wholes < LEAST_ROWS
    if whole_only and measured_wholes < LEAST_MODELS:
        raise TrainingError(
            f"the system {system.name} has {len(signatures)} measured sequences and training needs {LEAST_ROWS}, or "
            f"{LEAST_MODELS} whole models: run `{measuring_command(system.name)}` first, or import what you have"
        )
    stored_sequences = store.sequences(signatures)
    sequences = {signature: stored_sequences[signature] for signature in signatures}
    samples = store.samples()
    measured_us = _measured_us(store, system.name, wholes)
    without_family = {
        segment.signature for model in stored if model.family in ("", RANDOM_FAMILY) for segment in model.segments
    } | samples.keys()
    return Dataset(
        system=system,
        signatures=signatures,
        kinds=tuple(sequences[s].kind for s in signatures),
        families=tuple(
            frozenset(owners.get(signature, set()) | owners.get(samples.get(signature, ""), set()))
            for signature in signatures
        ),
        sampled=np.array([signature in without_family and signature not in owners for signature in signatures]),
        whole=np.array([signature in wholes for signature in signatures]),
        encoded=encode_all([sequences[s] for s in signatures], system, _footprints(stored, samples, sequences)),
        latencies_us=np.array([latencies[s] for s in signatures]),
        models=tuple(_measured_models(models, signatures, latencies, measured_us, whole_only)),
        random_models=tuple(_measured_models(random_models, signatures, latencies, measured_us, whole_only)),
        repeats=tuple(_repeats(store, system.name, set(signatures) - wholes.keys())),
    )


def _footprints(
    models: Iterable[StoredModel], samples: Mapping[str, str], sequences: Mapping[str, LayerSequence]
) -> list[Footprint]:
    """Returns, for each sequence, the footprint of the model in which the sequence was timed.

    A sequence that occurs in several models gets the medians of their footprints. A sample was timed next to the
    sequence that it was made from, and gets the same footprint. A sequence that occurs in no model was timed with cold
    caches (`COLD`).

    Args:
        models: Models of the store.
        samples: Signature of the sequence that each sample was made from, by the signature of the sample.
        sequences: Layer sequences by signature.
    """
    of_sequences = {signature: Footprint.of([sequence]) for signature, sequence in sequences.items()}
    footprints: dict[str, list[Footprint]] = {}
    for model in models:
        parts = [segment.signature for segment in model.segments if segment.signature in of_sequences]
        weights = sum(of_sequences[signature].weights for signature in parts)
        if model.whole in sequences:  # its layers may share weights
            weights = min(weights, of_sequences[model.whole].weights)
        footprint = Footprint(
            weights,
            sum(of_sequences[signature].activations for signature in set(parts)),
        )
        for signature in model.signatures:
            footprints.setdefault(signature, []).append(footprint)
    found = (footprints.get(samples.get(s, s)) or footprints.get(s) or [COLD] for s in sequences)
    medians = (np.median(of_models, axis=0).tolist() for of_models in found)
    # A sample may read more than the model of the sequence that it was made from.
    return [
        Footprint(max(weights, own.weights), activations)
        for (weights, activations), own in zip(medians, of_sequences.values(), strict=True)
    ]


def _one_family_each(models: Iterable[StoredModel]) -> list[StoredModel]:
    """Returns the models with their families merged so that models with the same graph are of the same family.

    Otherwise a copy of a held-out model under another name could be trained on.
    """
    models = list(models)
    families = DisjointSet(model.family for model in models)
    first: dict[str, str] = {}
    for model in models:
        families.merge(model.family, first.setdefault(model.whole, model.family))
    merged = {family: min(subset) for subset in families.subsets() for family in subset}
    return [replace(model, family=merged[model.family]) for model in models]


def _owners(models: Iterable[StoredModel]) -> dict[str, set[str]]:
    """Returns, for each signature, the families of the models in which the sequence occurs."""
    owners: dict[str, set[str]] = {}
    for model in models:
        for segment in model.segments:
            owners.setdefault(segment.signature, set()).add(model.family)
    return owners


def _measured_models(
    models: Iterable[StoredModel],
    signatures: tuple[str, ...],
    latencies: Mapping[str, float],
    measured_us: Mapping[str, tuple[float, ...]],
    whole_only: bool,
) -> Iterable[MeasuredModel]:
    """Yields the models that are measured whole and in all their sequences; of models with equal graphs, only one."""
    row = {signature: position for position, signature in enumerate(signatures)}
    counted: set[str] = set()
    for model in models:
        # A model that two releases of a runtime lower to the same layers is stored twice, but counts once.
        if (model.granularity != 1 and not whole_only) or model.whole not in latencies or model.whole in counted:
            continue
        parts = [model.whole] if whole_only else [segment.signature for segment in model.segments]
        if all(signature in row for signature in parts):
            counted.add(model.whole)
            rows = np.array([row[signature] for signature in parts])
            latency_us = latencies[model.whole]
            all_us = measured_us.get(model.whole, (latency_us,))
            yield MeasuredModel(model.name, model.family, rows, row[model.whole], latency_us, all_us)


def _measured_us(store: Store, system: str, signatures: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Returns the latency of each measurement of whole models in microseconds, by signature."""
    found: dict[str, list[float]] = {}
    for measurement in store.measurements(system, set(signatures)):
        found.setdefault(measurement.signature, []).append(measurement.latency_us)
    return {signature: tuple(of_model) for signature, of_model in found.items()}


def _repeats(store: Store, system: str, signatures: Iterable[str]) -> Iterable[tuple[float, float]]:
    """Yields pairs of the first and a later latency in microseconds, for sequences that were measured repeatedly."""
    first: dict[str, float] = {}
    for measurement in store.measurements(system, store.repeated_signatures(system).intersection(signatures)):
        if measurement.signature in first:
            yield first[measurement.signature], measurement.latency_us
        else:
            first[measurement.signature] = measurement.latency_us
