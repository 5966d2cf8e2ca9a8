"""The planner: what is known about a system, and what further measurements would bring."""

import math
from pathlib import Path

import pytest

from costmodel.estimate.accuracy import half_width_of
from costmodel.partition.decomposition import Decomposition
from costmodel.partition.granularity import GRANULARITIES, candidates, is_whole
from costmodel.paths import Home
from costmodel.serving.benchmark_planner import Planner
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from tests.synthetic import HELD_BACK, MEASURED, SYSTEM, copied, corpus, made_up_measurement, made_up_us

NEW = HELD_BACK[0]
KNOWN = MEASURED[3]


@pytest.fixture(scope="module")
def planner(trained: Home) -> Planner:
    """Planner of the synthetic system with its champion."""
    return Planner(Predictor.load(Store(trained.store_url), trained.bundles, SYSTEM.name))


@pytest.fixture
def own(trained: Home, tmp_path: Path) -> Planner:
    """Planner with its own store and no champion."""
    home = copied(trained, tmp_path / "home")
    return Planner(Predictor.load(Store(home.store_url), tmp_path, SYSTEM.name))


def cuts_of(trained: Home, name: str) -> tuple[Decomposition, ...]:
    """Returns the cuts of a light model at several granularities."""
    return candidates(name, corpus(trained.cache)[name].graph)


def measure(planner: Planner, cut: Decomposition) -> None:
    """Store synthetic measurements of all sequences of a cut."""
    for sequence in cut.unique.values():
        planner.predictor.store.put_measurement(
            SYSTEM.name, made_up_measurement(sequence.signature, made_up_us(sequence)), sequence
        )


class TestOptions:
    """The options for measuring a model."""

    def test_a_measured_model_is_free(self, planner: Planner, trained: Home) -> None:
        """Measured layers and wholes take no time; unmeasured ones do."""
        options = planner.options(KNOWN, corpus(trained.cache)[KNOWN].graph)
        assert all(option.measured for option in options)
        free = [option.granularity for option in options if option.seconds == 0]
        assert free == [1, options[-1].granularity]
        assert all(option.seconds > 0 for option in options[1:-1])

    def test_a_new_model_can_be_predicted(self, planner: Planner, trained: Home) -> None:
        """Predicting a new model has a larger expected error than measuring it, and takes no time."""
        *measured, predicted = planner.options(NEW, corpus(trained.cache)[NEW].graph)
        assert (predicted.granularity, predicted.seconds, predicted.measured) == (1, 0.0, False)
        assert all(option.measured and 0 < option.seconds < 60 for option in measured)
        assert all(predicted.error > option.error > 0 for option in measured)
        errors = [option.error for option in measured]
        assert errors == sorted(errors, reverse=True)

    def test_without_champion_there_is_no_prediction(self, own: Planner, trained: Home) -> None:
        """Without a champion there is no prediction option, and times are estimated by measurements and bounds."""
        options = own.options(NEW, corpus(trained.cache)[NEW].graph)
        assert all(option.measured and option.seconds > 0 for option in options)
        assert {option.granularity for option in options} <= {
            *GRANULARITIES,
            len(corpus(trained.cache)[NEW].graph.layers),
        }

    def test_a_sequence_takes_what_its_layers_do(self, own: Planner, trained: Home) -> None:
        """The measuring time of a sequence follows from its measured layers, not from their bounds."""
        graph = corpus(trained.cache)[NEW].graph
        before = {option.granularity: option.seconds for option in own.options(NEW, graph)}
        for sequence in cuts_of(trained, NEW)[0].unique.values():
            slow = made_up_measurement(sequence.signature, 100 * made_up_us(sequence))
            own.predictor.store.put_measurement(SYSTEM.name, slow, sequence)
        after = {option.granularity: option.seconds for option in own.options(NEW, graph)}
        assert after.pop(1) == 0
        assert all(seconds > 5 * before[granularity] for granularity, seconds in after.items())


class TestBestKnown:
    """The best estimate of a model without further measurements."""

    def test_the_whole_is_its_own_answer(self, planner: Planner, trained: Home) -> None:
        """A whole measurement is used as it is, without a construction error."""
        known = planner.best_known(KNOWN, corpus(trained.cache)[KNOWN].graph)
        assert is_whole(known.decomposition)
        assert known.construction == 0
        assert "taken as one sequence" in known.reason

    def test_the_coarsest_that_is_measured_is_taken(self, own: Planner, trained: Home) -> None:
        """The coarsest complete granularity is used, with its expected error as interval."""
        cuts = cuts_of(trained, NEW)
        graph = corpus(trained.cache)[NEW].graph
        for cut in cuts[:3]:
            measure(own, cut)
            known = own.best_known(NEW, graph)
            assert known.decomposition == cut
            assert known.construction == pytest.approx(half_width_of(own.error(cut), 0.9))
            assert f"granularity {cut.granularity} was taken" in known.reason

    def test_a_finer_one_that_is_complete_beats_a_coarser_one_that_is_not(self, own: Planner, trained: Home) -> None:
        """A complete finer granularity is preferred to a coarser one with one sequence missing."""
        fine, coarse = cuts_of(trained, NEW)[:2]
        measure(own, fine)
        for sequence in list(coarse.unique.values())[1:]:
            own.predictor.store.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, 10.0), sequence)
        assert own.best_known(NEW, corpus(trained.cache)[NEW].graph).decomposition == fine

    def test_otherwise_it_is_single_layers(self, planner: Planner, trained: Home) -> None:
        """Single layers are used if none is complete, measurements are ignored, or the rule is not the sum."""
        for name, options, reason in (
            (NEW, {}, "there is none at which all sequences are measured"),
            (KNOWN, {"measured": False}, "all layers are to be predicted"),
            (KNOWN, {"composition": "parallel"}, "the rule is one for single layers"),
        ):
            known = planner.best_known(name, corpus(trained.cache)[name].graph, **options)
            assert (known.decomposition.granularity, known.construction) == (1, None)
            assert reason in known.reason


def test_errors_are_those_of_the_models_that_are_measured(planner: Planner) -> None:
    """Expected errors combine the default with the observed error of six models, here below 3%."""
    assert 0.005 < planner.expected.whole < planner.expected.by_granularity[1] < 0.04
    assert planner.expected.by_granularity[1] < math.log(1.04)
