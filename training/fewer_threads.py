"""Adds to a data set what hosts of the same kind have measured with fewer threads.

A layer's cost with two threads follows from the same shapes, kernels and memory as its cost with one, and far more is
usually measured with one. The layers are described as on the system itself, with all its threads; only the feature
`threads` says with how many they were run, so that regressors can tell by what factor threads make a layer quicker
(`costmodel.training.regressors.thread_scaling`, docs/adr/0030).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.errors import TrainingError
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import concatenated
from costmodel.store.store import Store
from costmodel.systems.system import System, differ_in_threads_alone
from costmodel.training.dataset import Dataset, dataset_of
from costmodel.training.labels import impossible

__all__ = ["is_same_with_fewer_threads", "with_fewer_threads", "with_rows_of"]

_THREADS = SCHEMA.names.index("threads")


def with_fewer_threads(dataset: Dataset, store: Store) -> Dataset:
    """Returns a data set with the layers that hosts of the same kind have measured with fewer threads.

    These rows are trained on, never judged (`Dataset.borrowed`), and impossible costs are left out. A data set of whole
    models only stays as it is.

    Args:
        dataset: Measured sequences and models of one system.
        store: Store with the measurements of all systems.
    """
    if dataset.whole_only:
        return dataset
    others = []
    for system in store.systems().values():
        if is_same_with_fewer_threads(system, dataset.system):
            try:
                others.append(_described_on(dataset.system, store, system))
            except TrainingError:
                continue  # too little is measured there
    return with_rows_of(dataset, [other for other in others if not other.whole_only])


def _described_on(system: System, store: Store, other: System) -> Dataset:
    """Returns the possible costs of another system as layers of a system with more threads."""
    costs_us = store.latencies_us(other.name)
    measured = dataset_of(store, system, costs_us)
    wrong = {measured.signatures[row] for row in np.flatnonzero(impossible(replace(measured, system=other)))}
    if wrong:
        measured = dataset_of(store, system, {s: us for s, us in costs_us.items() if s not in wrong})
    features = measured.encoded.features.copy()
    features[:, _THREADS] = other.settings.threads
    return replace(measured, encoded=replace(measured.encoded, features=features))


def is_same_with_fewer_threads(one: System, other: System) -> bool:
    """Returns whether two systems are one kind of host and one runtime, the first with fewer threads than the other."""
    return (
        one.settings.threads < other.settings.threads
        and differ_in_threads_alone(one, other)
        and not (one.extrapolated or other.extrapolated)
    )


def with_rows_of(dataset: Dataset, others: Sequence[Dataset]) -> Dataset:
    """Returns a data set with the rows of others behind its own, to be trained on and never judged.

    The whole models of the others come along, because lineages are told by them.

    Args:
        dataset: Measured sequences and models of one system.
        others: The same of other systems.
    """
    for other in others:
        moved = tuple(
            replace(model, rows=model.rows + len(dataset), row=model.row + len(dataset)) for model in other.models
        )
        dataset = replace(
            dataset,
            signatures=dataset.signatures + other.signatures,
            kinds=dataset.kinds + other.kinds,
            families=dataset.families + other.families,
            sampled=np.concatenate([dataset.sampled, other.sampled]),
            whole=np.concatenate([dataset.whole, other.whole]),
            borrowed=np.concatenate([dataset.borrowed, np.ones(len(other), dtype=bool)]),
            encoded=concatenated([dataset.encoded, other.encoded]),
            latencies_us=np.concatenate([dataset.latencies_us, other.latencies_us]),
            borrowed_models=dataset.borrowed_models + moved,
        )
    return dataset
