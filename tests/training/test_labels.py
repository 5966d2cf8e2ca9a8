"""Labels that look wrong, and labels that cannot be."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from costmodel.graph import TensorType
from costmodel.measurement import LEAST_US, Measurement
from costmodel.sequence import LayerSequence, SequenceLayer, Value
from costmodel.store import Store
from costmodel.training.boosted import DEFAULTS, LightGBMRegressor
from costmodel.training.dataset import Dataset
from costmodel.training.labels import REASONS, SETTLED, count_reasons, impossible, load_believable, suspects
from tests.synthetic import SYSTEM, made_up_measurement

QUICK = partial(LightGBMRegressor, hyperparameters=replace(DEFAULTS, rounds=100))


@pytest.fixture(scope="module")
def sequences(store: Store, dataset: Dataset) -> dict[str, LayerSequence]:
    """Those of the made-up world."""
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


def _dear_conv(dataset: Dataset) -> int:
    """A convolution that is neither the cheapest nor the dearest of its kind."""
    rows = [row for row, kind in enumerate(dataset.kinds) if kind == "Conv" and not dataset.whole[row]]
    return sorted(rows, key=lambda row: dataset.latencies_us[row])[len(rows) // 2]


def test_rounds_that_never_agree_are_unstable(dataset: Dataset, sequences: dict[str, LayerSequence]) -> None:
    """One measurement that is stable is enough."""
    one, other = dataset.signatures[:2]
    wild, calm = replace(made_up_measurement(one, 50.0), stable=False), made_up_measurement(other, 50.0)
    found = _suspects(dataset, sequences, [wild, calm, replace(calm, stable=False)])
    assert "unstable" in found[one]
    assert "unstable" not in found.get(other, ())


def test_measurements_that_differ_are_suspect_until_there_are_enough(
    dataset: Dataset, sequences: dict[str, LayerSequence]
) -> None:
    """Then their median is what counts."""
    row = _dear_conv(dataset)
    signature = dataset.signatures[row]
    measured = [made_up_measurement(signature, latency) for latency in (100.0, 200.0, 210.0)]
    assert "spread" in _suspects(dataset, sequences, measured[:2])[signature]
    assert len(measured) == SETTLED
    assert signature not in _suspects(dataset, sequences, measured)


@pytest.mark.parametrize("factor", [0.05, 20.0])
def test_an_outlier_is_found(dataset: Dataset, sequences: dict[str, LayerSequence], factor: float) -> None:
    """A layer that costs a twentieth of what it should, or twenty times that."""
    row = _dear_conv(dataset)
    wrong = _with(dataset, row, dataset.latencies_us[row] * factor)
    assert "outlier" in _suspects(wrong, sequences)[dataset.signatures[row]]
    assert "outlier" not in _suspects(dataset, sequences).get(dataset.signatures[row], ())


def test_nothing_left_of_a_layer_that_works_is_suspect(dataset: Dataset, sequences: dict[str, LayerSequence]) -> None:
    """The cost of the call was taken off, and too much of it."""
    row = _dear_conv(dataset)
    wrong = _with(dataset, row, LEAST_US)
    assert "floor" in _suspects(wrong, sequences)[dataset.signatures[row]]


def test_more_work_that_is_cheaper_is_suspect(dataset: Dataset) -> None:
    """Of a layer and the same with a larger batch; sizes that are larger and smaller at once say nothing."""

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
    """A cost in milliseconds, say; the made-up world has none."""
    assert not impossible(dataset).any()
    assert load_believable(store, SYSTEM.name)[1] == 0
    row = _dear_conv(dataset)
    assert np.flatnonzero(impossible(_with(dataset, row, dataset.latencies_us[row] / 1000))).tolist() == [row]


def test_reasons_are_counted(dataset: Dataset, sequences: dict[str, LayerSequence]) -> None:
    """Every reason has a line, whether there is one or not."""
    counts = count_reasons({"a": {"floor", "outlier"}, "b": {"floor"}})
    assert counts.keys() == REASONS.keys()
    assert (counts["floor"], counts["outlier"], counts["spread"]) == (2, 1, 0)
