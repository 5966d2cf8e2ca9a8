"""The choice of the layers that are worth measuring."""

import math
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.estimate.accuracy import half_width_of
from costmodel.estimate.cost import Cost
from costmodel.estimate.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.jobs.layer_choice import choose_layers

EACH_SECOND = dict.fromkeys("abcdefgh", 1.0)


def _estimate(layers: Sequence[tuple[str, float]], errors: dict[str, float], name: str = "m") -> Estimate:
    """Returns an estimate of a model of layers with these latencies, whose relative errors are 0.1 by default."""

    def cost(layer: str, us: float) -> Cost:
        factor = math.exp(half_width_of(errors.get(layer, 0.1), 0.9))
        return Cost(us, (us / factor, us * factor), "predicted", "Relu")

    return Estimate(
        model=name, system="s", latency_us=sum(us for _, us in layers), interval_us=(1.0, 1.0), interval_level=0.9,
        jitter={}, composition="sequential", granularity=1, predictor=PredictorId(),
        layers=tuple(LayerEstimate(layer, "Relu", layer, cost(layer, us)) for layer, us in layers),
    )  # fmt: skip


class TestOneModel:
    """Choices for a single model."""

    LAYERS = (("a", 50.0), ("b", 20.0), ("b", 20.0), ("c", 10.0))

    def test_nothing_is_chosen_where_predictions_suffice(self) -> None:
        """Independent errors add up in squares; a layer that occurs twice has the same error each time."""
        choice = choose_layers([_estimate(self.LAYERS, {})], EACH_SECOND, 0.1, correlation=0.0)
        assert choice.signatures == set()
        assert choice.error == pytest.approx(0.1 * math.sqrt(0.5**2 + 0.4**2 + 0.1**2))

    def test_the_largest_layers_are_chosen_first(self) -> None:
        """With equal errors and times to measure, the layers that hold most of the latency are measured."""
        choice = choose_layers([_estimate(self.LAYERS, {})], EACH_SECOND, 0.042, correlation=0.0)
        assert choice.signatures == {"a"}
        choice = choose_layers([_estimate(self.LAYERS, {})], EACH_SECOND, 0.02, correlation=0.0)
        assert choice.signatures == {"a", "b"}
        assert choice.errors == {"m": pytest.approx(0.01)}
        assert choose_layers([_estimate(self.LAYERS, {})], EACH_SECOND, 0.0, correlation=0.0).signatures == set("abc")

    def test_a_layer_that_takes_long_to_measure_is_predicted(self) -> None:
        """Removing the same error in less time comes first."""
        choice = choose_layers([_estimate(self.LAYERS, {})], EACH_SECOND | {"a": 100.0}, 0.06, correlation=0.0)
        assert choice.signatures == {"b"}

    def test_a_layer_that_is_predicted_badly_is_measured(self) -> None:
        """A tenth of the latency with an error of 90% counts more than half of it with 10%."""
        assert choose_layers(
            [_estimate(self.LAYERS, {"c": 0.9})], EACH_SECOND, 0.07, correlation=0.0
        ).signatures == {"c"}  # fmt: skip

    def test_known_layers_have_no_error(self) -> None:
        """What is measured already is not chosen, and what remains is less."""
        choice = choose_layers([_estimate(self.LAYERS, {})], EACH_SECOND, 0.02, correlation=0.0, known={"a"})
        assert choice.signatures == {"b"}


def test_a_layer_of_several_models_counts_for_each() -> None:
    """Two models share a layer that takes a third of each; it is worth more than half of one model."""
    models = [
        _estimate([("a", 50.0), ("b", 50.0)], {}, "first"),
        _estimate([("b", 50.0), ("c", 50.0)], {}, "second"),
    ]
    choice = choose_layers(models, EACH_SECOND, 0.051, correlation=0.0)
    assert choice.signatures == {"b"}
    assert choice.errors == {"first": pytest.approx(0.05), "second": pytest.approx(0.05)}


def test_no_models_have_no_error() -> None:
    """Nothing is chosen for nothing."""
    assert choose_layers([], {}, 0.01, correlation=0.1).error == 0


LAYER = st.sampled_from("abcdefgh")
MODELS = st.lists(st.lists(st.tuples(LAYER, st.floats(0.1, 1000)), min_size=1, max_size=8), min_size=1, max_size=4)


@given(
    models=MODELS,
    errors=st.dictionaries(LAYER, st.floats(0.01, 2)),
    seconds=st.fixed_dictionaries(dict.fromkeys("abcdefgh", st.floats(0.001, 10))),
    correlation=st.floats(0, 1.5),
    targets=st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)),
    known=st.sets(LAYER),
)
def test_the_error_is_reached_and_a_smaller_one_takes_more(
    models: list[list[tuple[str, float]]],
    errors: dict[str, float],
    seconds: dict[str, float],
    correlation: float,
    targets: tuple[float, float],
    known: set[str],
) -> None:
    """The error is reached, or nothing is left to choose; layers for a larger error are among those for a smaller."""
    estimates = [_estimate(layers, errors, str(number)) for number, layers in enumerate(models)]
    low, high = (
        choose_layers(estimates, seconds, error, correlation=correlation, known=known) for error in sorted(targets)
    )
    everything = {layer for layers in models for layer, _ in layers}
    for choice, target in ((low, min(targets)), (high, max(targets))):
        assert not choice.signatures & known
        assert choice.error <= target + 1e-6 or choice.signatures == everything - known
        rest = choose_layers(estimates, seconds, 10.0, correlation=correlation, known=known | choice.signatures)
        assert rest.error == pytest.approx(choice.error, abs=1e-6)
    assert high.signatures <= low.signatures
