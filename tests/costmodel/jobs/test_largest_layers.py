"""The choice of the layers that hold most of the time."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.estimate.cost import Cost
from costmodel.estimate.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.jobs.largest_layers import holding_share


def _estimate(*layers: tuple[str, float]) -> Estimate:
    costs = [LayerEstimate(name, "Relu", name, Cost(us, (us, us), "predicted", "Relu")) for name, us in layers]
    return Estimate(
        model="m", system="s", latency_us=sum(us for _, us in layers), interval_us=(1.0, 1.0), interval_level=0.9,
        jitter={}, composition="sequential", granularity=1, layers=tuple(costs), predictor=PredictorId(),
    )  # fmt: skip


def test_the_largest_layers_are_chosen_first() -> None:
    """A layer that occurs several times counts each time; what is chosen for one model counts for the next."""
    one = _estimate(("a", 50.0), ("b", 20.0), ("b", 20.0), ("c", 10.0))
    assert holding_share([one], 0.5) == {"a"}
    assert holding_share([one], 0.9) == {"a", "b"}
    assert holding_share([one, _estimate(("b", 3.0), ("d", 2.0))], 0.9) == {"a", "b", "d"}
    assert holding_share([one], 0.9, known={"a"}) == {"b"}
    assert holding_share([one], 0.0) == set()


MODELS = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0.1, 1000)), min_size=1, max_size=8),
    min_size=1,
    max_size=4,
)


@given(MODELS, st.floats(0, 1), st.sets(st.sampled_from("abcdefgh")))
def test_what_is_chosen_holds_the_share(models: list[list[tuple[str, float]]], share: float, known: set[str]) -> None:
    """Of each model, the chosen layers and the known ones hold the share, and no known layer is chosen."""
    estimates = [_estimate(*layers) for layers in models]
    chosen = holding_share(estimates, share, known)
    assert not chosen & known
    for layers in models:
        held = sum(us for name, us in layers if name in chosen | known)
        total = sum(us for _, us in layers)
        assert held >= share * total or held == pytest.approx(share * total)
