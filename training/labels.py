"""Checks of measured costs before training: which of them look wrong, and which are impossible.

A sequence whose cost looks wrong is measured again (`costmodel bench --recheck`), and the median of what is stable
becomes its cost; a sequence whose cost is impossible is not trained on. An error of the machine, the clock or the call
overhead affects a single measurement, so three measurements are enough.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import median

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import MIN_LATENCY_US, Measurement
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, dataset_of, load_dataset
from costmodel.training.regressors.learner import Regressor

__all__ = ["REASONS", "SETTLED", "count_reasons", "impossible", "load_plausible_dataset", "suspects"]

REASONS = {
    "unstable": "in none of its measurements do the rounds agree",
    "spread": "two of its measurements differ by more than half",
    "floor": "its latency minus the call overhead is zero, but that of most layers of its operator is not",
    "not_monotonic": "a layer that differs only in larger tensors costs less than half as much, or the reverse",
    "outlier": "its cost is far from the prediction that is made from similar layers",
    "impossible": "it multiplies faster than the system can",
}
# Number of measurements after which the median is accepted.
SETTLED = 3

_SPREAD = 1.5
_NOT_MONOTONIC = 2.0
# Costs below this are known to half a microsecond at best, and are not compared.
_COMPARED_US = 5.0
# An outlier is this many median absolute deviations away from the median residual of its operator. The deviation has a
# lower limit, because errors of a few per cent would be outliers of an operator that is predicted almost exactly.
_FAR, _LEAST_DEVIATION = 6.0, 0.08
_LEAST_OF_KIND = 10
_FOLDS = 4
# Highest possible rate of a layer, in units of the system's matrix product: int8 reaches four, and dilated windows in
# the padding, which kernels skip, have reached five.
_FASTEST = 8.0
_FLOPS = SCHEMA.names.index("log_multiply_flops")


def suspects(
    dataset: Dataset,
    sequences: Mapping[str, LayerSequence],
    measurements: Iterable[Measurement],
    make: Callable[[int], Regressor],
) -> dict[str, frozenset[str]]:
    """Returns the reasons to measure suspect sequences again, as keys of `REASONS`, by signature.

    Whole models, and sequences that were measured `SETTLED` times, are left out.

    Args:
        dataset: Measured sequences.
        sequences: Layer sequence of each signature of the data set.
        measurements: All measurements that the data set was made from.
        make: Function that makes a regressor from a seed; costs that are far from its predictions are outliers.
    """
    by_signature: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        by_signature[measurement.signature].append(measurement)
    reasons: dict[str, set[str]] = defaultdict(set)
    for signature, same in by_signature.items():
        if not any(m.stable for m in same):
            reasons[signature].add("unstable")
        latencies = [m.latency_us for m in same]
        if max(latencies) > _SPREAD * min(latencies) and max(latencies) >= _COMPARED_US:
            reasons[signature].add("spread")
    for reason, mask in (
        ("floor", _floored(dataset)),
        ("not_monotonic", _not_monotonic(dataset, sequences)),
        ("outlier", _outliers(dataset, make)),
        ("impossible", impossible(dataset)),
    ):
        for row in np.flatnonzero(mask):
            reasons[dataset.signatures[row]].add(reason)
    return {
        signature: frozenset(reasons[signature])
        for signature, whole in zip(dataset.signatures, dataset.whole, strict=True)
        if signature in reasons and not whole and len(by_signature[signature]) < SETTLED
    }


def count_reasons(found: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Returns the number of suspect sequences for each reason of `REASONS`."""
    counts = Counter(reason for reasons in found.values() for reason in reasons)
    return {reason: counts[reason] for reason in REASONS}


def impossible(dataset: Dataset) -> np.ndarray:
    """Returns a mask of the rows that were measured to take far less time than their multiplications alone must take.

    A row is a row of the data set, that is, a measured sequence. Memory traffic is not checked, because data may be in
    a cache or may not be moved at all, so that it sets no lower bound on the cost.
    """
    flops = dataset.encoded.totals(np.expm1(dataset.encoded.features[:, _FLOPS].astype(np.float64)))
    least_us = flops / (_FASTEST * dataset.system.capabilities["gemm_gflops"] * 1e3)
    return np.asarray(dataset.latencies_us < least_us)


def load_plausible_dataset(store: Store, system_name: str) -> tuple[Dataset, int]:
    """Loads the data set of a system without impossible costs, and returns it with the number of costs left out.

    Raises:
        UnknownSystemError: The store has no system of that name.
        TrainingError: Too few sequences are measured.
    """
    dataset = load_dataset(store, system_name)
    wrong = {dataset.signatures[row] for row in np.flatnonzero(impossible(dataset))}
    if not wrong:
        return dataset, 0
    latencies = zip(dataset.signatures, dataset.latencies_us.tolist(), strict=True)
    return dataset_of(store, dataset.system, {s: latency for s, latency in latencies if s not in wrong}), len(wrong)


def _floored(dataset: Dataset) -> np.ndarray:
    """Returns a mask of the rows with the smallest cost that can be recorded, where that is rare for their kind.

    A row is a measured sequence, and its kind is its operator types. Rare means less than a quarter of the kind's rows.
    """
    at_floor = dataset.latencies_us <= MIN_LATENCY_US
    shares: dict[str, list[bool]] = defaultdict(list)
    for kind, floored in zip(dataset.kinds, at_floor.tolist(), strict=True):
        shares[kind].append(floored)
    free = {kind for kind, floored in shares.items() if np.mean(floored) >= 0.25}
    return np.asarray(at_floor & np.array([kind not in free for kind in dataset.kinds], dtype=bool))


def _not_monotonic(dataset: Dataset, sequences: Mapping[str, LayerSequence]) -> np.ndarray:
    """Returns a mask of the layers in non-monotonic pairs, where the larger layer is far cheaper than the smaller.

    The two layers of a pair differ in sizes only, and the larger one is at least as large in every dimension.
    """
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
        comparable = costs >= _COMPARED_US
        wrong = larger & ~larger.T & (costs[:, None] * _NOT_MONOTONIC < costs) & comparable
        mask[rows[wrong.any(axis=0) | wrong.any(axis=1)]] = True
    return mask


def _without_sizes(sequence: LayerSequence) -> str:
    """Returns a description of a single layer that does not depend on the sizes of its tensors."""
    (layer,) = sequence.layers
    return json.dumps(
        [
            [layer.op_type, layer.domain, layer.since, layer.attributes, layer.inputs, layer.outputs],
            [[v.type.dtype, len(v.type.shape), v.type.blocked, v.role, v.data] for v in sequence.values],
        ],
        sort_keys=True,
    )


def _outliers(dataset: Dataset, make: Callable[[int], Regressor]) -> np.ndarray:
    """Returns a mask of single layers whose cost is far from the prediction of a regressor trained on other layers.

    A cost is far from the prediction if the error is large compared with typical errors of the layer's operator.
    """
    mask = np.zeros(len(dataset), dtype=bool)
    single = np.flatnonzero(dataset.encoded.lengths == 1)
    if len(single) < _FOLDS * _LEAST_OF_KIND:
        return mask  # too few single layers are measured to know typical residuals
    fold = np.random.default_rng(0).integers(0, _FOLDS, len(single))
    residuals = np.empty(len(single))
    for number in range(_FOLDS):
        trained_on, judged = single[fold != number], single[fold == number]
        regressor = make(0).fit(dataset.encoded.take(trained_on), dataset.latencies_us[trained_on])
        predicted = regressor.predict_us(dataset.encoded.take(judged))
        residuals[fold == number] = np.log(predicted / dataset.latencies_us[judged])
    of_kind: dict[str, list[int]] = defaultdict(list)
    for position, row in enumerate(single.tolist()):
        of_kind[dataset.kinds[row]].append(position)
    for positions in map(np.array, of_kind.values()):
        own = residuals[positions]
        typical = residuals if len(own) < _LEAST_OF_KIND else own
        centre = median(typical)
        deviation = max(_LEAST_DEVIATION, 1.4826 * float(np.median(np.abs(typical - centre))))
        mask[single[positions[np.abs(own - centre) > _FAR * deviation]]] = True
    return mask & (dataset.latencies_us >= _COMPARED_US)
