"""Drift: what reported latencies say about predictions, whoever reports them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.serving.observations.drift import StoredObservation, drift_of
from tests.fakes import OBSERVED

OBSERVED = StoredObservation(
    **{name: getattr(OBSERVED, name) for name in OBSERVED.__dataclass_fields__},
    id=1,
    stored_at="2026-11-21T12:00:01.000+00:00",
)


def observations_of(owner: str, factor: float, models: int = 3, each: int = 10) -> list[StoredObservation]:
    """Returns observations of an owner whose latencies all deviate by one factor."""
    return [
        replace(OBSERVED, owner=owner, digest=f"sha256:{model}", latency_us=factor * OBSERVED.predicted_us)
        for _ in range(each)
        for model in range(models)
    ]


def test_drift_is_distinguished_from_noise() -> None:
    """Drift is the median ratio over models, and needs enough observations."""
    assert not drift_of("made.up", observations_of("one", 1.1)).drifted
    assert drift_of("made.up", observations_of("one", 1.3)).drifted
    assert drift_of("made.up", observations_of("one", 0.7)).drifted
    assert not drift_of("made.up", observations_of("one", 1.3, each=3)).drifted
    found = drift_of("made.up", [replace(OBSERVED, latency_us=130.0), OBSERVED])
    assert found.error == pytest.approx(0.2)
    assert found.covered == 0.5
    assert found.latest_at == OBSERVED.stored_at
    assert (found.owners, found.drifted) == (1, False)
    assert drift_of("nowhere", []).ratio is None


def test_what_is_no_number_says_nothing() -> None:
    """Observations with invalid numbers in the store are ignored."""
    odd = [
        replace(OBSERVED, latency_us=5e-324), replace(OBSERVED, predicted_us=0.0), replace(OBSERVED, latency_us=0.0),
        replace(OBSERVED, latency_us=math.nan),
    ]  # fmt: skip
    assert drift_of("made.up", [*odd, OBSERVED]) == drift_of("made.up", [OBSERVED])
    assert drift_of("made.up", odd).ratio is None


def test_a_model_that_is_observed_a_thousand_times_is_one_model() -> None:
    """Each model counts once, by its newest observations, however many it has."""
    often = [replace(OBSERVED, latency_us=300.0, digest="sha256:often")] * 1000
    others = [replace(OBSERVED, latency_us=101.0, digest=f"sha256:{n}") for n in range(3)]
    found = drift_of("made.up", often + others)
    assert (found.models, found.observations) == (4, 13)
    assert found.ratio == pytest.approx(1.01)
    assert not found.drifted
    mended = [*[replace(OBSERVED, latency_us=100.0)] * 10, *[replace(OBSERVED, latency_us=300.0)] * 90]
    assert drift_of("made.up", mended).ratio == pytest.approx(1)


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20), st.floats(0.1, 10))
def test_machines_that_are_slower_by_a_factor_drift_by_it(latencies_us: list[float], factor: float) -> None:
    """A system that is slower by one factor drifts by that factor, whatever the models."""
    found = [
        replace(OBSERVED, digest=f"sha256:{place}", predicted_us=us, latency_us=factor * us)
        for place, us in enumerate(latencies_us)
    ]
    assert drift_of("made.up", found).ratio == pytest.approx(factor)


class TestOwners:
    """Each owner has one vote."""

    def test_a_single_owner_is_his_own_word(self) -> None:
        """A single owner decides alone, and the answer has the number of owners."""
        found = drift_of("made.up", observations_of("one", 2.0))
        assert (found.owners, found.drifted) == (1, True)

    def test_two_owners_have_to_agree(self) -> None:
        """Of two owners, each can prevent the drift flag, and neither can set it alone."""
        assert not drift_of("made.up", observations_of("one", 2.0) + observations_of("other", 1.0)).drifted
        assert not drift_of("made.up", observations_of("one", 8.0) + observations_of("other", 0.5)).drifted
        assert drift_of("made.up", observations_of("one", 2.0) + observations_of("other", 3.0)).drifted

    def test_an_owner_of_few_observations_does_not_count(self) -> None:
        """An owner with few observations is ignored if another has enough."""
        few = observations_of("few", 9.0, models=1, each=9)
        assert drift_of("made.up", few).ratio == pytest.approx(9)
        found = drift_of("made.up", few + observations_of("many", 1.0))
        assert (found.owners, found.ratio) == (1, pytest.approx(1))

    @given(
        honest=st.lists(st.floats(0.9, 1.1), min_size=2, max_size=6),
        slower=st.sampled_from([1.0, 1.5, 0.5]),
        hostile=st.lists(
            st.tuples(st.floats(1e-6, 1e15), st.integers(0, 30)).map(
                lambda one: replace(OBSERVED, owner="hostile", latency_us=one[0], digest=f"sha256:{one[1]}")
            ),
            max_size=60,
        ),
        repeated=st.integers(1, 40),
    )
    def test_one_hostile_owner_of_three_decides_nothing(
        self, honest: list[float], slower: float, hostile: list[StoredObservation], repeated: int
    ) -> None:
        """One of three owners can neither change the flag nor move the ratio outside those of the others."""
        truth = [
            one for place, factor in enumerate(honest) for one in observations_of(f"honest{place}", slower * factor)
        ]
        found = drift_of("made.up", hostile * repeated + truth)
        assert found.drifted == drift_of("made.up", truth).drifted == (slower != 1.0)
        assert found.ratio is not None
        assert slower * min(honest) * 0.999 <= found.ratio <= slower * max(honest) * 1.001
        assert found.error is not None
        assert found.error <= max(abs(slower * factor - 1) for factor in honest) + 1e-6
