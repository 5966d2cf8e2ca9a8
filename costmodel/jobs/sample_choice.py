"""Chooses the samples that `costmodel bench --samples` measures: layers of other sizes, made from measured ones."""

import math
from collections import Counter
from collections.abc import Sequence

from costmodel.errors import MissingExtraError, TrainingError
from costmodel.features.analytical_bound import bound_us
from costmodel.ir.sequence import LayerSequence
from costmodel.store.store import Store
from costmodel.synthetic.sampling import sample_around
from costmodel.systems.system import System

__all__ = ["chosen_samples"]

# Share of the samples that are spread evenly over the kinds, so that each operator has some.
_EVENLY = 0.2

Samples = dict[str, tuple[LayerSequence, LayerSequence]]


def chosen_samples(store: Store, system: System, sequences: Sequence[LayerSequence], count: int) -> Samples:
    """Returns samples of `sequences`: those that are measured, and new ones where errors of prediction hurt most.

    An origin is drawn in proportion to its share of the models' latencies times the error of a regressor that has not
    seen its lineage (docs/adr/0006); a fifth of the samples are spread evenly over the kinds. Where too little is
    measured for that, expensive and rare sequences are preferred.

    Args:
        store: Store with the measurements of `sequences` and of earlier samples.
        system: System on which the samples are to be measured.
        sequences: Sequences whose sizes are changed to make samples.
        count: Number of samples, those that are measured on the system included.

    Returns:
        For each sample, by its signature: the sample, and the sequence that it was made from.
    """
    origins = {sequence.signature: sequence for sequence in sequences}
    measured = store.latencies_us(system.name).keys()
    earlier = {one: origin for one, origin in store.samples().items() if origin in origins and one in measured}
    found = store.sequences(list(earlier)[:count])
    samples: Samples = {sample: (found[sample], origins[earlier[sample]]) for sample in found}
    if len(samples) < count:
        weights = _harm(store, system, sequences) or _expensive_and_rare(sequences, system)
        for signature, made in sample_around(sequences, count, weights=weights).items():
            if len(samples) < count:
                samples.setdefault(signature, made)
    return samples


def _harm(store: Store, system: System, sequences: Sequence[LayerSequence]) -> list[float] | None:
    """Returns a weight for each sequence by its share times its error; None if too little is measured."""
    try:
        from costmodel.training.sampling_value import sampling_values

        values = sampling_values(store, system.name)
    except (MissingExtraError, TrainingError):
        return None
    total = sum(values.get(sequence.signature, 0.0) for sequence in sequences)
    if not total:
        return None
    evenly = _evenly(sequences)
    return [
        (1 - _EVENLY) * values.get(sequence.signature, 0.0) / total + _EVENLY * even
        for sequence, even in zip(sequences, evenly, strict=True)
    ]


def _expensive_and_rare(sequences: Sequence[LayerSequence], system: System) -> list[float]:
    """Returns weights of which half follow the square root of the bound, as the bound would favour a few giants."""
    bounds = [bound_us(sequence, system) for sequence in sequences]
    total = sum(math.sqrt(bound) for bound in bounds)
    return [math.sqrt(bound) / total + even for bound, even in zip(bounds, _evenly(sequences), strict=True)]


def _evenly(sequences: Sequence[LayerSequence]) -> list[float]:
    """Returns weights that sum to 1, with the same sum for each kind."""
    of_kind = Counter(sequence.kind for sequence in sequences)
    return [1 / (len(of_kind) * of_kind[sequence.kind]) for sequence in sequences]
