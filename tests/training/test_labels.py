"""Latencies that are suspect, and latencies that are impossible."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.measurement import MIN_LATENCY_US, Measurement
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset
from costmodel.training.labels import REASONS, SETTLED, count_reasons, impossible, load_plausible_dataset, suspects
from costmodel.training.regressors.lightgbm_regressor import DEFAULTS, LightGBMRegressor
from tests.synthetic import SYSTEM, made_up_measurement

QUICK = partial(LightGBMRegressor, hyperparameters=replace(DEFAULTS, num_boost_round=100))


@pytest.fixture(scope="module")
def sequences(store: Store, dataset: Dataset) -> dict[str, LayerSequence]:
    """Sequences of the synthetic store, by signature."""
    return store.sequences(dataset.signatures)


def _suspects(
    dataset: Dataset, sequences: dict[str, LayerSequence], measured: list[Measurement] | None = None
) -> dict[str, frozenset[str]]:
    if measured is None:
        measured = [
            made_up_measurement(signature, latency)
            for signature, latency in zip(dataset.signatures, dataset.latencies_us.tolist(), strict=True)
        ]
    return suspects(dataset, sequences, measured, lambda seed: QUICK(seed))


def _with(dataset: Dataset, row: int, latency_us: float) -> Dataset:
    latencies = dataset.latencies_us.copy()
    latencies[row] = latency_us
    return replace(dataset, latencies_us=latencies)


def _typical_conv(dataset: Dataset) -> int:
    """Returns the row of a convolution that is neither the fastest nor the slowest."""
    rows = [row for row, kind in enumerate(dataset.kinds) if kind == "Conv" and not dataset.whole[row]]
    return sorted(rows, key=lambda row: dataset.latencies_us[row])[len(rows) // 2]


def test_rounds_that_never_agree_are_unstable(dataset: Dataset, sequences: dict[str, LayerSequence]) -> None:
    """A sequence is unstable if none of its measurements is stable."""
    one, other = dataset.signatures[:2]
    wild, calm = replace(made_up_measurement(one, 50.0), stable=False), made_up_measurement(other, 50.0)
    found = _suspects(dataset, sequences, [wild, calm, replace(calm, stable=False)])
    assert "unstable" in found[one]
    assert "unstable" not in found.get(other, ())


def test_measurements_that_differ_are_suspect_until_there_are_enough(
    dataset: Dataset, sequences: dict[str, LayerSequence]
) -> None:
    """Differing measurements are suspect until there are enough for a median."""
    row = _typical_conv(dataset)
    signature = dataset.signatures[row]
    measured = [made_up_measurement(signature, latency) for latency in (100.0, 200.0, 210.0)]
    assert "spread" in _suspects(dataset, sequences, measured[:2])[signature]
    assert len(measured) == SETTLED
    assert signature not in _suspects(dataset, sequences, measured)


@pytest.mark.parametrize("factor", [0.05, 20.0])
def test_an_outlier_is_found(dataset: Dataset, sequences: dict[str, LayerSequence], factor: float) -> None:
    """A layer of a twentieth or twenty times its expected cost is an outlier."""
    row = _typical_conv(dataset)
    wrong = _with(dataset, row, dataset.latencies_us[row] * factor)
    assert "outlier" in _suspects(wrong, sequences)[dataset.signatures[row]]
    assert "outlier" not in _suspects(dataset, sequences).get(dataset.signatures[row], ())


def test_nothing_left_of_a_layer_that_works_is_suspect(dataset: Dataset, sequences: dict[str, LayerSequence]) -> None:
    """A layer with arithmetic whose cost is the least possible after subtraction of the call overhead is suspect."""
    row = _typical_conv(dataset)
    wrong = _with(dataset, row, MIN_LATENCY_US)
    assert "floor" in _suspects(wrong, sequences)[dataset.signatures[row]]


def test_more_work_that_is_cheaper_is_suspect(dataset: Dataset) -> None:
    """A layer that costs less than the same layer with a smaller batch is suspect; mixed sizes are not compared."""

    def relu(*shape: int) -> LayerSequence:
        kind = TensorType("float32", shape)
        layer = SequenceLayer("Relu", "", 6, {}, (0,), (1,))
        return LayerSequence((layer,), (Value(kind, "input"), Value(kind, "internal")), (1,))

    made = [relu(1, 64, 56, 56), relu(8, 64, 56, 56), relu(8, 64, 28, 28), relu(16, 64, 28, 28)]
    few = replace(
        dataset,
        signatures=tuple(s.signature for s in made),
        kinds=("Relu",) * 4,
        families=(frozenset(),) * 4,
        sampled=np.zeros(4, dtype=bool),
        whole=np.zeros(4, dtype=bool),
        encoded=dataset.encoded.take(np.arange(4)),
        latencies_us=np.array([100.0, 40.0, 60.0, 70.0]),
        models=(),
        repeats=(),
    )
    found = _suspects(few, {s.signature: s for s in made})
    wrong = {signature for signature, reasons in found.items() if "not_monotonic" in reasons}
    assert wrong == {made[0].signature, made[1].signature}


def test_what_cannot_be_is_not_trained_on(tmp_path: Path, store: Store, dataset: Dataset) -> None:
    """Impossible costs, such as those in milliseconds, are removed; the synthetic store has none."""
    assert not impossible(dataset).any()
    assert load_plausible_dataset(store, SYSTEM.name)[1] == 0
    row = _typical_conv(dataset)
    assert np.flatnonzero(impossible(_with(dataset, row, dataset.latencies_us[row] / 1000))).tolist() == [row]


def test_reasons_are_counted(dataset: Dataset, sequences: dict[str, LayerSequence]) -> None:
    """Every reason is counted, also those without a case."""
    counts = count_reasons({"a": {"floor", "outlier"}, "b": {"floor"}})
    assert counts.keys() == REASONS.keys()
    assert (counts["floor"], counts["outlier"], counts["spread"]) == (2, 1, 0)
