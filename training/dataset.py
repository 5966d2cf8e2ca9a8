"""The data set of one system: measured sequences as features, and the models that were measured whole."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.errors import TrainingError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded, encode_all
from costmodel.groups import read_bytes
from costmodel.sequence import LayerSequence
from costmodel.store import Store, StoredModel
from costmodel.systems import System

__all__ = ["Dataset", "MeasuredModel", "dataset_of", "load_dataset"]

LEAST_ROWS = 20
# Where there are hardly any layers, whole models have to tell.
LEAST_MODELS = 10
# Fewer sequences that were measured twice say little: one tiny layer that took twice its time decides their mean.
LEAST_REPEATS = 30


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model with its end-to-end latency.

    Attributes:
        name: Of the model.
        family: Architecture lineage.
        rows: Row of the data set for each of its sequences, in execution order; its own where only whole models were
            measured.
        row: That of the model as a whole.
        latency_us: Measured end to end.
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
        system: Where they were measured.
        signatures: One for each row.
        kinds: Operator types of each row.
        families: The families in whose models each row appears, and those of the sequence that it was sampled
            around; empty where neither is known, or only models have it that are nobody's.
        sampled: Whether each row is in nobody's model: a sample, or a layer of a model without a family. Those train,
            and are never judged on.
        whole: Whether each row is a model from end to end.
        encoded: Their layers as features, with the analytical bounds.
        latencies_us: Measured costs, shape [num_rows].
        models: Those whose end-to-end latency is measured.
        repeats: Pairs (first, second) of latencies of sequences that were measured twice.
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
        """Whether too few layers were measured to learn from, so that whole models have to tell."""
        return bool((~self.whole).sum() < LEAST_ROWS)

    @property
    def all_families(self) -> tuple[str, ...]:
        """Every family, in alphabetical order."""
        return tuple(sorted({family for families in self.families for family in families}))

    def by_model(self) -> "Dataset":
        """This data set with every model as a family of its own, to be left out alone.

        Only where nothing but whole models is measured: layers would tell of each other.
        """
        names = {model.row: model.name for model in self.models}
        return replace(
            self,
            families=tuple(frozenset([names[row]]) if row in names else frozenset() for row in range(len(self))),
            models=tuple(replace(model, family=model.name) for model in self.models),
        )

    @property
    def fingerprint(self) -> str:
        """Digest of what was measured, so that a trained regressor can name its data."""
        digest = hashlib.sha256(SCHEMA.fingerprint.encode())
        for signature, latency in sorted(zip(self.signatures, self.latencies_us.tolist(), strict=True)):
            digest.update(f"{signature}:{latency:.3f};".encode())
        return digest.hexdigest()[:16]

    @cached_property
    def known_elsewhere(self) -> tuple[np.ndarray, ...]:
        """For each model, whether a model of another family has its sequences too."""
        return tuple(
            np.array([bool(self.families[row] - {model.family}) for row in model.rows]) for model in self.models
        )

    def noise_floor(self) -> float | None:
        """Mean relative difference between two measurements of the same sequence; None if too few were repeated."""
        if len(self.repeats) < LEAST_REPEATS:
            return None
        first, second = np.array(self.repeats).T
        return float(np.mean(np.abs(second - first) / first))


def load_dataset(store: Store, system_name: str) -> Dataset:
    """The data set of a system.

    Raises:
        UnknownSystemError: Nothing is known under that name.
        TrainingError: Too few sequences are measured.
    """
    return dataset_of(store, store.system(system_name), store.latencies_us(system_name))


def dataset_of(store: Store, system: System, latencies: Mapping[str, float]) -> Dataset:
    """The data set of costs that are known of a system, wherever they come from.

    Args:
        store: Where their sequences are, and the models that have these.
        system: For which they are encoded.
        latencies: Of each signature, in microseconds; nan where it is still to be found.

    Raises:
        TrainingError: They are too few.
    """
    stored = store.models()
    models = _one_family_each(model for model in stored if model.family)
    owners = _owners(models)
    # A model of one layer is that layer: its measurement is one of a layer too.
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
    found = store.sequences(signatures)
    sequences = {signature: found[signature] for signature in signatures}
    samples = store.samples()
    nobodys = {piece.signature for model in stored if not model.family for piece in model.pieces} | samples.keys()
    return Dataset(
        system=system,
        signatures=signatures,
        kinds=tuple(sequences[s].kind for s in signatures),
        families=tuple(
            frozenset(owners.get(signature, set()) | owners.get(samples.get(signature, ""), set()))
            for signature in signatures
        ),
        sampled=np.array([signature in nobodys and signature not in owners for signature in signatures]),
        whole=np.array([signature in wholes for signature in signatures]),
        encoded=encode_all([sequences[s] for s in signatures], system, _footprints(stored, samples, sequences)),
        latencies_us=np.array([latencies[s] for s in signatures]),
        models=tuple(_measured(models, signatures, latencies, whole_only=whole_only)),
        repeats=tuple(_repeats(store, system.name, set(signatures) - wholes.keys())),
    )


def _footprints(
    models: Iterable[StoredModel], samples: Mapping[str, str], sequences: Mapping[str, LayerSequence]
) -> list[float]:
    """Weights that the models read in which each sequence was timed, in bytes: the median, if they are several.

    A sample was timed behind the sequence that it was made from. What is in no model was timed with cold caches.
    """
    read = {signature: read_bytes(sequence) for signature, sequence in sequences.items()}
    around: dict[str, list[float]] = {}
    for model in models:
        whole = float(sum(read.get(piece.signature, 0) for piece in model.pieces))
        for signature in {model.whole, *(piece.signature for piece in model.pieces)}:
            around.setdefault(signature, []).append(whole)
    return [float(np.median(around.get(samples.get(s, s)) or around.get(s) or [np.inf])) for s in sequences]


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
    models: Iterable[StoredModel], signatures: tuple[str, ...], latencies: Mapping[str, float], *, whole_only: bool
) -> Iterable[MeasuredModel]:
    row = {signature: position for position, signature in enumerate(signatures)}
    seen: set[str] = set()
    for model in models:
        # Two releases of a runtime that lower a model to the same layers store it twice: it counts once.
        if (model.granularity != 1 and not whole_only) or model.whole not in latencies or model.whole in seen:
            continue
        parts = [model.whole] if whole_only else [piece.signature for piece in model.pieces]
        if all(signature in row for signature in parts):
            seen.add(model.whole)
            rows = np.array([row[signature] for signature in parts])
            yield MeasuredModel(model.name, model.family, rows, row[model.whole], latencies[model.whole])


def _repeats(store: Store, system: str, signatures: Iterable[str]) -> Iterable[tuple[float, float]]:
    first: dict[str, float] = {}
    for measurement in store.measurements(system, store.repeated(system).intersection(signatures)):
        if measurement.signature in first:
            yield first[measurement.signature], measurement.latency_us
        else:
            first[measurement.signature] = measurement.latency_us
