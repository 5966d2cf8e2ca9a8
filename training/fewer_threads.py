"""Adds to a data set what its machine has measured with fewer threads.

A layer's cost with two threads follows from the same shapes, kernels and memory as its cost with one, and far more is
usually measured with one. The features of a row contain the number of threads and the bound with that number, so that
rows of both can be trained on together (docs/adr/0018).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.errors import TrainingError
from costmodel.features.tabular import concatenated
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.dataset import Dataset
from costmodel.training.labels import load_plausible_dataset

__all__ = ["is_same_with_fewer_threads", "with_fewer_threads", "with_rows_of"]


def with_fewer_threads(dataset: Dataset, store: Store) -> Dataset:
    """Returns a data set with the layers that the same machine has measured with fewer threads.

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
                others.append(load_plausible_dataset(store, system.name)[0])
            except TrainingError:
                continue  # too little is measured there
    return with_rows_of(dataset, [other for other in others if not other.whole_only])


def is_same_with_fewer_threads(one: System, other: System) -> bool:
    """Returns whether two systems are one machine and runtime, the first with fewer threads than the other."""
    return (
        one.settings.threads < other.settings.threads
        and replace(one.settings, threads=other.settings.threads) == other.settings
        and (one.host, one.runtime, one.runtime_version) == (other.host, other.runtime, other.runtime_version)
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
