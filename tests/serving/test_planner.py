"""The planner: what is known of a system, and what measuring more would bring."""

import math
from pathlib import Path

import pytest

from costmodel.accuracy import half_width_of
from costmodel.decomposition import Decomposition
from costmodel.granularity import GRANULARITIES, candidates, is_whole
from costmodel.home import Home
from costmodel.serving.planner import Planner
from costmodel.serving.predictor import Predictor
from costmodel.store import Store
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, copied, corpus, made_up_measurement, made_up_us

NEW = HELD_BACK[0]
KNOWN = MEASURED[3]


@pytest.fixture(scope="module")
def planner(trained: Home) -> Planner:
    """Of the made-up system, with its champion."""
    return Planner(Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name))


@pytest.fixture
def own(trained: Home, tmp_path: Path) -> Planner:
    """The same, with a store of its own and no champion."""
    home = copied(trained, tmp_path / "home")
    return Planner(Predictor.load(Store(home.store_url), tmp_path, SYSTEM.name))


def cuts_of(trained: Home, name: str) -> tuple[Decomposition, ...]:
    """The ways to cut a light model."""
    return candidates(name, corpus(trained.cache)[name].graph)


def measure(planner: Planner, cut: Decomposition) -> None:
    """Put made-up measurements of all sequences of a cut into the store."""
    for sequence in cut.unique.values():
        planner.predictor.store.put_measurement(
            SYSTEM.name, made_up_measurement(sequence.signature, made_up_us(sequence)), sequence
        )


class TestOptions:
    """What could be measured of a model."""

    def test_a_measured_model_is_free(self, planner: Planner, trained: Home) -> None:
        """In its layers and as a whole; what is not measured of it takes time."""
        options = planner.options(KNOWN, corpus(trained.cache)[KNOWN].graph)
        assert all(option.measured for option in options)
        free = [option.granularity for option in options if option.seconds == 0]
        assert free == [1, options[-1].granularity]
        assert all(option.seconds > 0 for option in options[1:-1])

    def test_a_new_model_can_be_predicted(self, planner: Planner, trained: Home) -> None:
        """With a larger error than anything that is measured; everything else takes time."""
        *measured, predicted = planner.options(NEW, corpus(trained.cache)[NEW].graph)
        assert (predicted.granularity, predicted.seconds, predicted.measured) == (1, 0.0, False)
        assert all(option.measured and 0 < option.seconds < 60 for option in measured)
        assert all(predicted.error > option.error > 0 for option in measured)
        errors = [option.error for option in measured]
        assert errors == sorted(errors, reverse=True)

    def test_without_champion_there_is_no_prediction(self, own: Planner, trained: Home) -> None:
        """Times are then by what is measured, and by bounds."""
        options = own.options(NEW, corpus(trained.cache)[NEW].graph)
        assert all(option.measured and option.seconds > 0 for option in options)
        assert {option.granularity for option in options} <= {
            *GRANULARITIES,
            len(corpus(trained.cache)[NEW].graph.layers),
        }

    def test_a_sequence_takes_what_its_layers_do(self, own: Planner, trained: Home) -> None:
        """Where these are measured, that and not their bounds says how long measuring takes."""
        graph = corpus(trained.cache)[NEW].graph
        before = {option.granularity: option.seconds for option in own.options(NEW, graph)}
        for sequence in cuts_of(trained, NEW)[0].unique.values():
            slow = made_up_measurement(sequence.signature, 100 * made_up_us(sequence))
            own.predictor.store.put_measurement(SYSTEM.name, slow, sequence)
        after = {option.granularity: option.seconds for option in own.options(NEW, graph)}
        assert after.pop(1) == 0
        assert all(seconds > 5 * before[granularity] for granularity, seconds in after.items())


class TestBestKnown:
    """The best that can be said of a model without measuring."""

    def test_the_whole_is_its_own_answer(self, planner: Planner, trained: Home) -> None:
        """Nothing is constructed, so nothing is added to its interval."""
        known = planner.best_known(KNOWN, corpus(trained.cache)[KNOWN].graph)
        assert is_whole(known.decomposition)
        assert known.construction == 0
        assert "taken as one sequence" in known.reason

    def test_the_coarsest_that_is_measured_is_taken(self, own: Planner, trained: Home) -> None:
        """Its interval has the error that is expected at its granularity."""
        cuts = cuts_of(trained, NEW)
        graph = corpus(trained.cache)[NEW].graph
        for cut in cuts[:3]:
            measure(own, cut)
            known = own.best_known(NEW, graph)
            assert known.decomposition == cut
            assert known.construction == pytest.approx(half_width_of(own.error(cut), 0.9))
            assert f"granularity {cut.granularity} was taken" in known.reason

    def test_a_finer_one_that_is_complete_beats_a_coarser_one_that_is_not(self, own: Planner, trained: Home) -> None:
        """One missing sequence is enough."""
        fine, coarse = cuts_of(trained, NEW)[:2]
        measure(own, fine)
        for sequence in list(coarse.unique.values())[1:]:
            own.predictor.store.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, 10.0), sequence)
        assert own.best_known(NEW, corpus(trained.cache)[NEW].graph).decomposition == fine

    def test_otherwise_it_is_single_layers(self, planner: Planner, trained: Home) -> None:
        """Where something is missing, where measurements do not count, and for a rule that is not the sum."""
        for name, options, reason in (
            (NEW, {}, "there is none at which all sequences are measured"),
            (KNOWN, {"measured": False}, "all layers are to be predicted"),
            (KNOWN, {"composition": "parallel"}, "the rule is one for single layers"),
        ):
            known = planner.best_known(name, corpus(trained.cache)[name].graph, **options)
            assert (known.decomposition.granularity, known.construction) == (1, None)
            assert reason in known.reason


def test_errors_are_those_of_the_models_that_are_measured(planner: Planner) -> None:
    """Six models lie within 3% of the sum of their layers, which is better than the default, and counts against it."""
    assert 0.005 < planner.expected.whole < planner.expected.by_granularity[1] < 0.04
    assert planner.expected.by_granularity[1] < math.log(1.04)
