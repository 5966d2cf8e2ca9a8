"""The training data as points, and the distance of layers to them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.schema import SCHEMA
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.distances import distances
from costmodel.training.evaluation.splits import leave_families_out
from costmodel.training.support import MAX_DISTANCE, Support, sequence_distances

RELU, ADD, ROWS = (SCHEMA.names.index(name) for name in ("op_Relu", "op_Add", "log_rows"))


def _layers(*places: tuple[int, float]) -> np.ndarray:
    """Returns layers of an operator that differ in one size."""
    features = np.zeros((len(places), len(SCHEMA.names)), dtype=np.float32)
    for row, (operator, size) in enumerate(places):
        features[row, operator] = 1
        features[row, ROWS] = size
    return features


def test_distance_is_to_the_nearest_of_the_operator() -> None:
    """The distance is to the nearest point of the same operator in factors of e, the maximum if it has none."""
    support = Support.of(_layers((RELU, 1.0), (RELU, 4.0), (ADD, 2.0)))
    asked = _layers((RELU, 1.0), (RELU, 2.0), (RELU, 3.5), (ADD, 1.0), (RELU, 99.0))
    assert support.distances(asked).tolist() == pytest.approx([0, 1, 0.5, 1, MAX_DISTANCE])
    assert Support.of(_layers((RELU, 1.0))).distances(_layers((ADD, 1.0))).tolist() == [MAX_DISTANCE]


def test_what_was_trained_on_is_at_no_distance(dataset: Dataset) -> None:
    """Every trained layer has distance 0 and is stored once, for any chunk size."""
    features = dataset.encoded.features
    support = Support.of(features)
    assert len(support.points) < len(features)
    assert not support.distances(features).any()
    assert not any(support.distances(features[row : row + 1])[0] for row in range(20))


@given(st.integers(0, 2**32 - 1))
def test_portions_make_no_difference(seed: int) -> None:
    """Distances do not depend on the chunk size, not even in the last bit."""
    random = np.random.default_rng(seed)
    known, asked = (random.normal(0, 30, (n, len(SCHEMA.names))).astype(np.float32) for n in (40, 9))
    support = Support.of(known)
    assert support.distances(asked).tolist() == [support.distances(asked[row : row + 1])[0] for row in range(9)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_more_training_is_never_farther(seed: int, number: int) -> None:
    """An additional training layer does not increase any distance."""
    random = np.random.default_rng(seed)
    features = _layers(*zip(random.choice([RELU, ADD], 40).tolist(), random.uniform(0, 12, 40).tolist(), strict=True))
    fewer, more = Support.of(features[:number]), Support.of(features[: number + 1])
    assert (more.distances(features) <= fewer.distances(features)).all()


def test_a_sequence_is_as_far_as_its_farthest_layer(dataset: Dataset) -> None:
    """The distance of a sequence is the largest of its layers."""
    support = Support.of(_layers((RELU, 1.0)))
    of_layers = support.distances(dataset.encoded.features)
    starts = dataset.encoded.starts
    expected = [of_layers[start:end].max() for start, end in pairwise(starts.tolist())]
    assert sequence_distances(dataset.encoded, support).tolist() == expected
    assert len(sequence_distances(dataset.encoded.take(np.zeros(0, dtype=int)), support)) == 0


def test_what_is_held_out_is_measured_from_what_is_kept(dataset: Dataset) -> None:
    """Distances of held-out rows are to the training rows of their split, not to themselves."""
    splits = leave_families_out(dataset)
    found = distances(dataset, splits)
    judged = np.any([split.test_rows for split in splits], axis=0)
    assert (np.isnan(found.rows) == ~judged).all()
    assert (found.rows[judged] > 0).any()
    for model, of_model in zip(dataset.models, found.models, strict=True):
        assert len(of_model) == len(model.rows)
        assert ((of_model >= 0) & (of_model <= MAX_DISTANCE)).all()


def test_round_trip() -> None:
    """The points survive storage as arrays of numbers, without pickle."""
    support = Support.of(_layers((RELU, 1.0), (ADD, 2.0)))
    again = Support.from_bytes(support.to_bytes())
    assert np.array_equal(again.points, support.points)
    assert np.array_equal(again.operators, support.operators)
    with pytest.raises(ValueError, match="no points"):
        Support.from_bytes(b"")
    with pytest.raises(ValueError, match="other coordinates"):
        Support.from_bytes(Support(support.points[:, :3], support.operators).to_bytes())
