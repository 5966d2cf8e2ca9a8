"""What was trained on, as points, and how far layers lie from it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.schema import SCHEMA
from costmodel.training.dataset import Dataset
from costmodel.training.distances import distances
from costmodel.training.splits import leave_families_out
from costmodel.training.support import FARTHEST, Support, farthest

RELU, ADD, ROWS = (SCHEMA.names.index(name) for name in ("op_Relu", "op_Add", "log_rows"))


def _layers(*places: tuple[int, float]) -> np.ndarray:
    """Layers of an operator that differ in one size."""
    features = np.zeros((len(places), len(SCHEMA.names)), dtype=np.float32)
    for row, (operator, size) in enumerate(places):
        features[row, operator] = 1
        features[row, ROWS] = size
    return features


def test_distance_is_to_the_nearest_of_the_operator() -> None:
    """In factors of e; another operator is no neighbour, and one that is not there is as far as can be."""
    support = Support.of(_layers((RELU, 1.0), (RELU, 4.0), (ADD, 2.0)))
    asked = _layers((RELU, 1.0), (RELU, 2.0), (RELU, 3.5), (ADD, 1.0), (RELU, 99.0))
    assert support.distances(asked).tolist() == pytest.approx([0, 1, 0.5, 1, FARTHEST])
    assert Support.of(_layers((RELU, 1.0))).distances(_layers((ADD, 1.0))).tolist() == [FARTHEST]


def test_what_was_trained_on_is_at_no_distance(dataset: Dataset) -> None:
    """Every layer, each once, in however small portions one asks."""
    features = dataset.encoded.features
    support = Support.of(features)
    assert len(support.points) < len(features)
    assert not support.distances(features).any()
    assert not any(support.distances(features[row : row + 1])[0] for row in range(20))


@given(st.integers(0, 2**32 - 1))
def test_portions_make_no_difference(seed: int) -> None:
    """Not in the last bit: an interval must not depend on what else is asked."""
    random = np.random.default_rng(seed)
    known, asked = (random.normal(0, 30, (n, len(SCHEMA.names))).astype(np.float32) for n in (40, 9))
    support = Support.of(known)
    assert support.distances(asked).tolist() == [support.distances(asked[row : row + 1])[0] for row in range(9)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_more_training_is_never_farther(seed: int, number: int) -> None:
    """One layer more brings its neighbours nearer and pushes nobody away."""
    random = np.random.default_rng(seed)
    features = _layers(*zip(random.choice([RELU, ADD], 40).tolist(), random.uniform(0, 12, 40).tolist(), strict=True))
    fewer, more = Support.of(features[:number]), Support.of(features[: number + 1])
    assert (more.distances(features) <= fewer.distances(features)).all()


def test_a_sequence_is_as_far_as_its_farthest_layer(dataset: Dataset) -> None:
    """A chain is no better known than what is strange in it."""
    support = Support.of(_layers((RELU, 1.0)))
    of_layers = support.distances(dataset.encoded.features)
    starts = dataset.encoded.starts
    expected = [of_layers[start:end].max() for start, end in pairwise(starts.tolist())]
    assert farthest(dataset.encoded, support).tolist() == expected
    assert len(farthest(dataset.encoded.take(np.zeros(0, dtype=int)), support)) == 0


def test_what_is_held_out_is_measured_from_what_is_kept(dataset: Dataset) -> None:
    """All that is judged has a distance, and what only the held-out family has is not its own neighbour."""
    splits = leave_families_out(dataset)
    found = distances(dataset, splits)
    judged = np.any([split.judged for split in splits], axis=0)
    assert (np.isnan(found.rows) == ~judged).all()
    assert (found.rows[judged] > 0).any()
    for model, of_model in zip(dataset.models, found.models, strict=True):
        assert len(of_model) == len(model.rows)
        assert ((of_model >= 0) & (of_model <= FARTHEST)).all()


def test_round_trip() -> None:
    """As arrays of numbers, without pickle."""
    support = Support.of(_layers((RELU, 1.0), (ADD, 2.0)))
    again = Support.from_bytes(support.to_bytes())
    assert np.array_equal(again.points, support.points)
    assert np.array_equal(again.operators, support.operators)
    with pytest.raises(ValueError, match="no points"):
        Support.from_bytes(b"")
    with pytest.raises(ValueError, match="other coordinates"):
        Support.from_bytes(Support(support.points[:, :3], support.operators).to_bytes())
