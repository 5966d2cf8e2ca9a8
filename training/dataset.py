"""The data set of one system: measured layer sequences as features, and the models that were measured whole."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.errors import TrainingError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded, encode_all
from costmodel.ir.footprint import read_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.store.store import Store, StoredModel
from costmodel.systems.system import System

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
    """A model with its measured end-to-end latency.

    Attributes:
        name: Name of the model.
        family: Architecture lineage of the model.
        rows: Row of the data set for each sequence of the model, in execution order; the row of the model itself where
            only whole models were measured.
        row: Row of the data set for the model as a whole.
        latency_us: Measured end-to-end latency in microseconds.
    """

    name: str
    family: str
    rows: np.ndarray
    row: int
    latency_us: float


@dataclass(frozen=True)
class Dataset:
    """Measured sequences of one system.

    Attributes:
        system: System on which the sequences were measured.
        signatures: Signature of each row.
        kinds: Operator types of each row.
        families: For each row, the families of the models in which it occurs and, for a sample, those of the sequence
            that it was made from; empty if there are none, or if the row occurs only in models without a family.
        sampled: Whether each row is a sample, or occurs only in models without a family. Such rows are trained on but
            never judged on.
        whole: Whether each row is a whole model.
        encoded: Layers of the rows as features, with their analytical bounds.
        latencies_us: Measured cost of each row in microseconds, shape [num_rows].
        models: Models whose end-to-end latency is measured.
        repeats: Pairs (first, second) of the latencies of sequences that were measured twice.
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

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.signatures)

    @property
    def whole_only(self) -> bool:
        """Whether too few layers were measured to train on, so that whole models are trained on instead."""
        return bool((~self.whole).sum() < LEAST_ROWS)

    @property
    def all_families(self) -> tuple[str, ...]:
        """Every family, in alphabetical order."""
        return tuple(sorted({family for families in self.families for family in families}))

    def by_model(self) -> "Dataset":
        """Returns this data set with every model as a family of its own, so that each can be held out alone.

        Valid only where nothing but whole models is measured: models may share layers, which would then occur both in
        training and in test.
        """
        names = {model.row: model.name for model in self.models}
        return replace(
            self,
            families=tuple(frozenset([names[row]]) if row in names else frozenset() for row in range(len(self))),
            models=tuple(replace(model, family=model.name) for model in self.models),
        )

    @property
    def fingerprint(self) -> str:
        """Digest of signatures and latencies, by which a trained regressor identifies its data."""
        digest = hashlib.sha256(SCHEMA.fingerprint.encode())
        for signature, latency in sorted(zip(self.signatures, self.latencies_us.tolist(), strict=True)):
            digest.update(f"{signature}:{latency:.3f};".encode())
        return digest.hexdigest()[:16]

    @cached_property
    def known_elsewhere(self) -> tuple[np.ndarray, ...]:
        """For each model, whether each of its sequences also occurs in a model of another family."""
        return tuple(
            np.array([bool(self.families[row] - {model.family}) for row in model.rows]) for model in self.models
        )

    def noise_floor(self) -> float | None:
        """Returns the mean relative difference of two measurements of a sequence; None if too few were repeated."""
        if len(self.repeats) < LEAST_REPEATS:
            return None
        first, second = np.array(self.repeats).T
        return float(np.mean(np.abs(second - first) / first))


def load_dataset(store: Store, system_name: str) -> Dataset:
    """Loads the data set of a system.

    Raises:
        UnknownSystemError: The store has no system of that name.
        TrainingError: Too few sequences are measured.
    """
    return dataset_of(store, store.system(system_name), store.latencies_us(system_name))


def dataset_of(store: Store, system: System, latencies: Mapping[str, float]) -> Dataset:
    """Makes a data set of given costs on a system.

    Args:
        store: Store with the sequences and the models in which they occur.
        system: System for which the sequences are encoded.
        latencies: Cost of each signature in microseconds; nan if it is not known yet.

    Raises:
        TrainingError: There are too few costs to train on.
    """
    stored = store.models()
    models = _one_family_each(model for model in stored if model.family)
    owners = _owners(models)
    # A model of one layer has the signature of that layer: its measurement counts as one of a layer.
    wholes = {model.whole: model.family for model in models if model.whole not in owners}
    owners |= {whole: {family} for whole, family in wholes.items()}
    signatures = tuple(sorted(latencies))
    measured_wholes = len(wholes.keys() & signatures)
    whole_only = len(signatures) - measured_wholes < LEAST_ROWS
    if whole_only and measured_wholes < LEAST_MODELS:
        raise TrainingError(
            f"the system {system.name} has {len(signatures)} measured sequences and training needs {LEAST_ROWS}, or "
            f"{LEAST_MODELS} whole models: run `costmodel bench --system {system.name}` first, or import what you have"
        )
    stored_sequences = store.sequences(signatures)
    sequences = {signature: stored_sequences[signature] for signature in signatures}
    samples = store.samples()
    without_family = {
        segment.signature for model in stored if not model.family for segment in model.segments
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
        models=tuple(_measured_models(models, signatures, latencies, whole_only=whole_only)),
        repeats=tuple(_repeats(store, system.name, set(signatures) - wholes.keys())),
    )


def _footprints(
    models: Iterable[StoredModel], samples: Mapping[str, str], sequences: Mapping[str, LayerSequence]
) -> list[float]:
    """Returns the footprint in bytes of the model in which each sequence was timed; the median, if there are several.

    A sample was timed next to the sequence that it was made from. A sequence of no model was timed with cold caches, so
    its footprint is infinite.
    """
    read_by_sequence = {signature: read_bytes(sequence) for signature, sequence in sequences.items()}
    footprints: dict[str, list[float]] = {}
    for model in models:
        footprint = float(sum(read_by_sequence.get(segment.signature, 0) for segment in model.segments))
        for signature in {model.whole, *(segment.signature for segment in model.segments)}:
            footprints.setdefault(signature, []).append(footprint)
    return [float(np.median(footprints.get(samples.get(s, s)) or footprints.get(s) or [np.inf])) for s in sequences]


def _one_family_each(models: Iterable[StoredModel]) -> list[StoredModel]:
    """Merges the families of models with the same graph.

    Otherwise a copy of a held-out model under another name could be trained on.
    """
    models = list(models)
    merged_into: dict[str, str] = {}

    def representative(family: str) -> str:
        while merged_into.get(family, family) != family:
            family = merged_into[family]
        return family

    first: dict[str, str] = {}
    for model in models:
        one, other = sorted((representative(model.family), representative(first.setdefault(model.whole, model.family))))
        merged_into[other] = one
    return [replace(model, family=representative(model.family)) for model in models]


def _owners(models: Iterable[StoredModel]) -> dict[str, set[str]]:
    """Returns the families of the models in which each signature occurs."""
    owners: dict[str, set[str]] = {}
    for model in models:
        for segment in model.segments:
            owners.setdefault(segment.signature, set()).add(model.family)
    return owners


def _measured_models(
    models: Iterable[StoredModel], signatures: tuple[str, ...], latencies: Mapping[str, float], *, whole_only: bool
) -> Iterable[MeasuredModel]:
    """Yields the models whose end-to-end latency and sequences are measured, each graph once."""
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
            yield MeasuredModel(model.name, model.family, rows, row[model.whole], latencies[model.whole])


def _repeats(store: Store, system: str, signatures: Iterable[str]) -> Iterable[tuple[float, float]]:
    """Yields the first latency of a sequence with each later one, for sequences that were measured repeatedly."""
    first: dict[str, float] = {}
    for measurement in store.measurements(system, store.repeated(system).intersection(signatures)):
        if measurement.signature in first:
            yield first[measurement.signature], measurement.latency_us
        else:
            first[measurement.signature] = measurement.latency_us
