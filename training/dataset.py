"""The data set of one system: measured sequences as features, and the models that were measured whole."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from costmodel.errors import TrainingError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import encode_all
from costmodel.store import Store, StoredModel
from costmodel.systems import System

__all__ = ["Dataset", "MeasuredModel", "load_dataset"]

LEAST_ROWS = 20


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model with its end-to-end latency.

    Attributes:
        name: Of the model.
        family: Architecture lineage.
        rows: Row of the data set for each of its sequences, in execution order.
        latency_us: Measured end to end.
    """

    name: str
    family: str
    rows: np.ndarray
    latency_us: float


@dataclass(frozen=True)
class Dataset:
    """Measured sequences of one system.

    Attributes:
        system: Where they were measured.
        signatures: One for each row.
        kinds: Operator types of each row.
        families: The families in whose models each row appears, and those of the sequence that it was sampled
            around; empty where neither is known.
        sampled: Whether each row is a sample and in no model; those train, and are never judged on.
        features: float32, shape [num_rows, num_features].
        bounds_us: Analytical bounds, shape [num_rows].
        latencies_us: Measured costs, shape [num_rows].
        models: Those whose end-to-end latency is measured.
        repeats: Pairs (first, second) of latencies of sequences that were measured twice.
    """

    system: System
    signatures: tuple[str, ...]
    kinds: tuple[str, ...]
    families: tuple[frozenset[str], ...]
    sampled: np.ndarray
    features: np.ndarray
    bounds_us: np.ndarray
    latencies_us: np.ndarray
    models: tuple[MeasuredModel, ...]
    repeats: tuple[tuple[float, float], ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.signatures)

    @property
    def all_families(self) -> tuple[str, ...]:
        """Every family, in alphabetical order."""
        return tuple(sorted({family for families in self.families for family in families}))

    @property
    def fingerprint(self) -> str:
        """Digest of what was measured, so that a trained regressor can name its data."""
        digest = hashlib.sha256(SCHEMA.fingerprint.encode())
        for signature, latency in sorted(zip(self.signatures, self.latencies_us.tolist(), strict=True)):
            digest.update(f"{signature}:{latency:.3f};".encode())
        return digest.hexdigest()[:16]

    def without_family(self, family: str) -> np.ndarray:
        """Rows that may be trained on when `family` is held out: those that another family, or none, has."""
        return np.array([families != {family} for families in self.families])

    def noise_floor(self) -> float | None:
        """Mean relative difference between two measurements of the same sequence; None if none was repeated."""
        if not self.repeats:
            return None
        first, second = np.array(self.repeats).T
        return float(np.mean(np.abs(second - first) / first))


def load_dataset(store: Store, system_name: str) -> Dataset:
    """The data set of a system.

    Raises:
        UnknownSystemError: Nothing is known under that name.
        TrainingError: Too few sequences are measured.
    """
    system = store.system(system_name)
    latencies = store.latencies_us(system_name)
    models = _one_family_each(store.models())
    owners = _owners(models)
    # A model of one layer is that layer: its measurement is one of a layer too.
    wholes = {model.whole for model in models if model.whole not in owners}
    signatures = tuple(sorted(signature for signature in latencies if signature not in wholes))
    if len(signatures) < LEAST_ROWS:
        raise TrainingError(
            f"the system {system_name} has {len(signatures)} measured sequences and training needs {LEAST_ROWS}: "
            f"run `costmodel bench --system {system_name}` first"
        )
    sequences = store.sequences(signatures)
    samples = store.samples()
    features, bounds = encode_all([sequences[s] for s in signatures], system)
    return Dataset(
        system=system,
        signatures=signatures,
        kinds=tuple(sequences[s].kind for s in signatures),
        families=tuple(
            frozenset(owners.get(signature, set()) | owners.get(samples.get(signature, ""), set()))
            for signature in signatures
        ),
        sampled=np.array([signature in samples and signature not in owners for signature in signatures]),
        features=features,
        bounds_us=bounds,
        latencies_us=np.array([latencies[s] for s in signatures]),
        models=tuple(_measured(models, signatures, latencies)),
        repeats=tuple(_repeats(store, system_name, signatures)),
    )


def _one_family_each(models: Iterable[StoredModel]) -> list[StoredModel]:
    """The models, those that are one graph in one family: a copy under another name must not vouch for itself."""
    models = list(models)
    names: dict[str, str] = {}

    def find(family: str) -> str:
        while names.get(family, family) != family:
            family = names[family]
        return family

    first: dict[str, str] = {}
    for model in models:
        one, other = sorted((find(model.family), find(first.setdefault(model.whole, model.family))))
        names[other] = one
    return [replace(model, family=find(model.family)) for model in models]


def _owners(models: Iterable[StoredModel]) -> dict[str, set[str]]:
    """The families in whose models each signature appears."""
    owners: dict[str, set[str]] = {}
    for model in models:
        for piece in model.pieces:
            owners.setdefault(piece.signature, set()).add(model.family)
    return owners


def _measured(
    models: Iterable[StoredModel], signatures: tuple[str, ...], latencies: Mapping[str, float]
) -> Iterable[MeasuredModel]:
    row = {signature: position for position, signature in enumerate(signatures)}
    seen: set[str] = set()
    for model in models:
        # Two releases of a runtime that lower a model to the same layers store it twice: it counts once.
        if model.granularity != 1 or model.whole not in latencies or model.whole in seen:
            continue
        if all(piece.signature in row for piece in model.pieces):
            seen.add(model.whole)
            rows = np.array([row[piece.signature] for piece in model.pieces])
            yield MeasuredModel(model.name, model.family, rows, latencies[model.whole])


def _repeats(store: Store, system: str, signatures: Iterable[str]) -> Iterable[tuple[float, float]]:
    first: dict[str, float] = {}
    for measurement in store.measurements(system, store.repeated(system).intersection(signatures)):
        if measurement.signature in first:
            yield first[measurement.signature], measurement.latency_us
        else:
            first[measurement.signature] = measurement.latency_us
