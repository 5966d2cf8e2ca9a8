"""Plans benchmarking: finds how long measuring a model takes at each granularity, and which error is then expected."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from costmodel.estimate.accuracy import (
    ConstructionError,
    construction_error,
    expected_error,
    half_width_of,
    known_ratios,
    noise_of,
)
from costmodel.estimate.composition import half_width
from costmodel.estimate.cost import Cost
from costmodel.estimate.rules import Rule
from costmodel.features.analytical_bound import bound_us
from costmodel.ir.footprint import read_bytes, weight_bytes
from costmodel.ir.graph import LayerGraph
from costmodel.measure.duration import estimated_group_seconds
from costmodel.measure.groups import evicted_bytes
from costmodel.measure.protocol import Protocol
from costmodel.partition.decomposition import Decomposition
from costmodel.partition.granularity import GranularityChoice, candidates, is_whole
from costmodel.serving.predictor import Predictor

__all__ = ["Known", "Planner"]


@dataclass(frozen=True, slots=True)
class Known:
    """The decomposition from which a model is best estimated without measuring anything new.

    Attributes:
        decomposition: The model, cut into layer sequences.
        construction: Expected half-width of the interval of log(sum of the sequences' latencies / latency of the whole
            model); None to use the half-width that the calibration of the regressor has.
        reason: One sentence that says why this decomposition was chosen.
    """

    decomposition: Decomposition
    construction: float | None
    reason: str


@dataclass(frozen=True)
class Planner:
    """Planner of benchmarks on one system: how long measuring a model takes, and which error its estimate then has.

    Attributes:
        predictor: Predictor of the system; its store has the measurements, and it prices what is not measured.
    """

    predictor: Predictor

    @cached_property
    def expected(self) -> ConstructionError:
        """Expected errors of constructed latencies at each granularity, learnt from models measured on the system."""
        store, system = self.predictor.store, self.predictor.system.name
        models = store.models()
        timings = store.timings(system, {model.whole for model in models})
        ratios = known_ratios(models, store.latencies_us(system))
        return construction_error(ratios, [noise_of(timing) for timing in timings.values()])

    def error(self, cut: Decomposition) -> float:
        """Returns the expected |log(estimate / latency)| of a model if all sequences of its decomposition are measured.

        Args:
            cut: Decomposition of the model.
        """
        return self.expected.whole if is_whole(cut) else self.expected.by_granularity[cut.granularity]

    def options(self, model: str, graph: LayerGraph) -> list[GranularityChoice]:
        """Returns the options for a model: the granularities to measure it at, and prediction instead of measuring.

        Prediction is an option if there is a regressor and at least one single layer is not measured. If at least one
        sequence of a decomposition is not measured, the option costs the time to measure all sequences of the
        decomposition, because they are timed as a group, taking turns. The time for an unmeasured sequence that occurs
        in several models is counted for each of these models.

        Args:
            model: Name of the model.
            graph: Layers of the model.
        """
        cuts = candidates(model, graph)
        footprint = cuts[0].footprint
        costs = self.predictor.costs(cuts[0].unique, footprint=footprint)
        known = self._latencies_us(cuts)
        layers_us = self._layers_us(cuts[0], costs)
        found = []
        for cut in cuts:
            complete = cut.unique.keys() <= known.keys()
            seconds = 0.0 if complete else self._seconds(cut, known, layers_us, int(footprint.weights))
            found.append(GranularityChoice(cut.granularity, self.error(cut), seconds))
        regression = self.predictor.regression
        if found[0].seconds and regression is not None:
            calibration = regression.bundle.calibration
            parts = replace(calibration.uncertainty, construction=0.0)
            width = half_width([costs[segment.sequence.signature] for segment in cuts[0].segments], parts)
            error = math.hypot(expected_error(width, calibration.level), found[0].error)
            found.append(GranularityChoice(1, error, 0.0, measured=False))
        return found

    def best_known(
        self, model: str, graph: LayerGraph, *, composition: str | Rule = "sequential", measured: bool = True
    ) -> Known:
        """Returns the decomposition from which a model is best estimated without measuring anything new.

        Among the decompositions whose sequences are all measured, the whole model as one sequence included, it is the
        one with the least expected error. If there is none, if measurements are not to be used, or with a composition
        rule other than "sequential", it is the decomposition into single layers.

        Args:
            model: Name of the model.
            graph: Layers of the model.
            composition: Composition rule, or the name of one, as in `Predictor.estimate`.
            measured: Whether to use measurements; without them every cost is predicted.
        """
        cuts = candidates(model, graph)
        if composition != "sequential":
            return Known(cuts[0], None, "granularity 1 was taken: the rule is one for single layers")
        if not measured:
            return Known(cuts[0], None, "granularity 1 was taken: all layers are to be predicted")
        known = self._latencies_us(cuts)
        complete = [cut for cut in cuts if cut.unique.keys() <= known.keys()]
        if not complete:
            return Known(cuts[0], None, "granularity 1 was taken: there is none at which all sequences are measured")
        best = min(complete, key=lambda cut: (self.error(cut), -cut.granularity))
        expected = f"{self.error(best):.1%} error is expected"
        if is_whole(best):
            return Known(best, 0.0, f"the model was taken as one sequence, which is measured: {expected}")
        reason = f"granularity {best.granularity} was taken, all of its sequences are measured: {expected}"
        return Known(best, half_width_of(self.error(best), self.predictor.interval_level), reason)

    def _latencies_us(self, cuts: Sequence[Decomposition]) -> dict[str, float]:
        signatures = {signature for cut in cuts for signature in cut.unique}
        return self.predictor.store.latencies_us(self.predictor.system.name, signatures)

    def _layers_us(self, layers: Decomposition, costs: Mapping[str, Cost]) -> list[float]:
        """Returns the expected latency of each layer of a model in microseconds.

        It is measured or predicted if possible, otherwise the analytical bound. The layers of an atomic group share the
        latency of the group equally.
        """
        unpriced = {s: sequence for s, sequence in layers.unique.items() if s not in costs}
        prices = {s: bound_us(sequence, self.predictor.system) for s, sequence in unpriced.items()}
        prices |= {signature: cost.latency_us for signature, cost in costs.items()}
        return [
            prices[segment.sequence.signature] / len(segment.layers)
            for segment in layers.segments
            for _ in segment.layers
        ]

    def _seconds(
        self, cut: Decomposition, known: Mapping[str, float], layers_us: Sequence[float], footprint_bytes: int
    ) -> float:
        """Returns the approximate time in seconds that measuring all sequences of a decomposition takes.

        A sequence that is not measured yet is taken to run as long as its layers together.
        """
        ends = list(accumulate(len(segment.layers) for segment in cut.segments))
        latencies_us = {
            segment.sequence.signature: math.fsum(layers_us[end - len(segment.layers) : end])
            for segment, end in zip(cut.segments, ends, strict=True)
        } | {signature: known[signature] for signature in cut.unique if signature in known}
        read, weights = (sum(map(nbytes, cut.unique.values())) for nbytes in (read_bytes, weight_bytes))
        swept = 0 if is_whole(cut) else evicted_bytes(footprint_bytes, read, self.predictor.system.host)
        return estimated_group_seconds(list(latencies_us.values()), weights, swept, Protocol())
