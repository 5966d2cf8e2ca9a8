"""Checks of labels on the way in: which measured costs look wrong, and which cannot be.

What looks wrong is measured again (`costmodel bench --recheck`) and the median of its measurements counts; what cannot
be is not trained on. An error of the machine, of the clock or of the cost of a call shows in one measurement, so three
settle it.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import median

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.measurement import LEAST_US, Measurement
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.training.dataset import Dataset, dataset_of, load_dataset
from costmodel.training.regressors import Regressor

__all__ = ["REASONS", "SETTLED", "count_reasons", "impossible", "load_believable", "suspects"]

REASONS = {
    "unstable": "no measurement of it had rounds that agree",
    "spread": "two measurements of it differ by half and more",
    "floor": "nothing was left when the cost of a call was taken off, and others of its operator do cost something",
    "not_monotonic": "it costs less than half of what the same with smaller tensors costs, or the other way round",
    "outlier": "it is far from what layers like it cost",
    "impossible": "it multiplies faster than the system can",
}
# Measurements after which the median is taken as it is.
SETTLED = 3

_SPREAD = 1.5
_NOT_MONOTONIC = 2.0
# Costs below that are known to half a microsecond at best, and compared with nothing.
_COMPARED_US = 5.0
# Deviations (median absolute) from the usual residual of an operator; and the least that one is taken to be, because
# an operator that is predicted exactly has outliers of a few per cent.
_FAR, _LEAST_DEVIATION = 6.0, 0.08
_LEAST_OF_KIND = 10
_FOLDS = 4
# Times the rate of the system's own matrix product: int8 does four, and dilated windows that lie in the padding, which
# kernels skip, have done five.
_FASTEST = 8.0
_FLOPS = SCHEMA.names.index("log_multiply_flops")


def suspects(
    dataset: Dataset,
    sequences: Mapping[str, LayerSequence],
    measurements: Iterable[Measurement],
    make: Callable[[int], Regressor],
) -> dict[str, frozenset[str]]:
    """Reasons to measure again, for each signature that has one and was not measured `SETTLED` times.

    Args:
        dataset: Measured sequences.
        sequences: By signature, all of the data set.
        measurements: All that the data set was made from.
        make: Of the regressor that says what is far off, from a seed.
    """
    made: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        made[measurement.signature].append(measurement)
    found: dict[str, set[str]] = defaultdict(set)
    for signature, same in made.items():
        if not any(m.stable for m in same):
            found[signature].add("unstable")
        latencies = [m.latency_us for m in same]
        if max(latencies) > _SPREAD * min(latencies) and max(latencies) >= _COMPARED_US:
            found[signature].add("spread")
    for reason, mask in (
        ("floor", _floored(dataset)),
        ("not_monotonic", _not_monotonic(dataset, sequences)),
        ("outlier", _outliers(dataset, make)),
        ("impossible", impossible(dataset)),
    ):
        for row in np.flatnonzero(mask):
            found[dataset.signatures[row]].add(reason)
    return {
        signature: frozenset(found[signature])
        for signature, whole in zip(dataset.signatures, dataset.whole, strict=True)
        if signature in found and not whole and len(made[signature]) < SETTLED
    }


def count_reasons(found: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """How many there are of each reason."""
    counts = Counter(reason for reasons in found.values() for reason in reasons)
    return {reason: counts[reason] for reason in REASONS}


def impossible(dataset: Dataset) -> np.ndarray:
    """Rows whose multiplications alone take longer than they were measured to, by far; as a mask.

    Only multiplications: a bound by memory is none for what lies in caches, or is not moved at all.
    """
    flops = dataset.encoded.totals(np.expm1(dataset.encoded.features[:, _FLOPS].astype(np.float64)))
    least_us = flops / (_FASTEST * dataset.system.capabilities["gemm_gflops"] * 1e3)
    return np.asarray(dataset.latencies_us < least_us)


def load_believable(store: Store, system_name: str) -> tuple[Dataset, int]:
    """The data set of a system without what cannot be, and how many sequences that takes away.

    Raises:
        UnknownSystemError: Nothing is known under that name.
        TrainingError: Too few sequences are measured.
    """
    dataset = load_dataset(store, system_name)
    wrong = {dataset.signatures[row] for row in np.flatnonzero(impossible(dataset))}
    if not wrong:
        return dataset, 0
    latencies = zip(dataset.signatures, dataset.latencies_us.tolist(), strict=True)
    return dataset_of(store, dataset.system, {s: latency for s, latency in latencies if s not in wrong}), len(wrong)


def _floored(dataset: Dataset) -> np.ndarray:
    """Single layers at the least cost there is, where most of their operator are not."""
    at_floor = dataset.latencies_us <= LEAST_US
    shares: dict[str, list[bool]] = defaultdict(list)
    for kind, floored in zip(dataset.kinds, at_floor.tolist(), strict=True):
        shares[kind].append(floored)
    free = {kind for kind, floored in shares.items() if np.mean(floored) >= 0.25}
    return np.asarray(at_floor & np.array([kind not in free for kind in dataset.kinds], dtype=bool))


def _not_monotonic(dataset: Dataset, sequences: Mapping[str, LayerSequence]) -> np.ndarray:
    """Layers that differ in sizes only, one at least as large in every dimension and far cheaper: both of them."""
    alike: dict[str, list[int]] = defaultdict(list)
    for row, signature in enumerate(dataset.signatures):
        if len(sequences[signature].layers) == 1:
            alike[_without_sizes(sequences[signature])].append(row)
    mask = np.zeros(len(dataset), dtype=bool)
    for rows in map(np.array, alike.values()):
        sizes = np.array([[n for v in sequences[dataset.signatures[r]].values for n in v.type.shape] for r in rows])
        costs = dataset.latencies_us[rows]
        larger = np.ones((len(rows), len(rows)), dtype=bool)
        for column in sizes.T:
            larger &= column[:, None] >= column
        dear = costs >= _COMPARED_US
        wrong = larger & ~larger.T & (costs[:, None] * _NOT_MONOTONIC < costs) & dear
        mask[rows[wrong.any(axis=0) | wrong.any(axis=1)]] = True
    return mask


def _without_sizes(sequence: LayerSequence) -> str:
    (layer,) = sequence.layers
    return json.dumps(
        [
            [layer.op_type, layer.domain, layer.since, layer.attributes, layer.inputs, layer.outputs],
            [[v.type.dtype, len(v.type.shape), v.type.blocked, v.role, v.data] for v in sequence.values],
        ],
        sort_keys=True,
    )


def _outliers(dataset: Dataset, make: Callable[[int], Regressor]) -> np.ndarray:
    """Single layers that are far from what is predicted of them by the others, measured by how their operator is."""
    mask = np.zeros(len(dataset), dtype=bool)
    single = np.flatnonzero(dataset.encoded.lengths == 1)
    if len(single) < _FOLDS * _LEAST_OF_KIND:
        return mask  # hardly any layers are measured alone: nothing says what is usual
    fold = np.random.default_rng(0).integers(0, _FOLDS, len(single))
    residuals = np.empty(len(single))
    for number in range(_FOLDS):
        kept, judged = single[fold != number], single[fold == number]
        regressor = make(0).fit(dataset.encoded.take(kept), dataset.latencies_us[kept])
        predicted = regressor.predict_us(dataset.encoded.take(judged))
        residuals[fold == number] = np.log(predicted / dataset.latencies_us[judged])
    of_kind: dict[str, list[int]] = defaultdict(list)
    for position, row in enumerate(single.tolist()):
        of_kind[dataset.kinds[row]].append(position)
    for positions in map(np.array, of_kind.values()):
        own = residuals[positions]
        usual = residuals if len(own) < _LEAST_OF_KIND else own
        centre = median(usual)
        deviation = max(_LEAST_DEVIATION, 1.4826 * float(np.median(np.abs(usual - centre))))
        mask[single[positions[np.abs(own - centre) > _FAR * deviation]]] = True
    return mask & (dataset.latencies_us >= _COMPARED_US)
