"""Plans benchmarking: for each granularity of a model, the time that measuring takes and the expected error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from costmodel.measure.measurement import Protocol
from costmodel.partition.decomposition import Decomposition
from costmodel.partition.granularity import Option, candidates, is_whole
from costmodel.serving.predictor import Predictor

__all__ = ["Known", "Planner"]


@dataclass(frozen=True, slots=True)
class Known:
    """The decomposition from which a model is best estimated without measuring.

    Attributes:
        decomposition: The decomposition.
        construction: Expected half-width of (sum of sequences) / (whole model) in log latency; None to use that of the
            regressor's calibration.
        reason: One sentence that says why this decomposition was chosen.
    """

    decomposition: Decomposition
    construction: float | None
    reason: str


@dataclass(frozen=True)
class Planner:
    """Finds what measuring more would bring on a system.

    Attributes:
        predictor: Predictor of the system, which has the measurements and prices the rest.
        protocol: Measurement protocol, for the time that measuring takes.
    """

    predictor: Predictor
    protocol: Protocol = field(default_factory=Protocol)

    @cached_property
    def expected(self) -> ConstructionError:
        """Expected error of constructed latencies, from the measured models."""
        store, system = self.predictor.store, self.predictor.system.name
        models = store.models()
        timings = store.timings(system, {model.whole for model in models})
        ratios = known_ratios(models, store.latencies_us(system))
        return construction_error(ratios, [noise_of(timing) for timing in timings.values()])

    def error(self, cut: Decomposition) -> float:
        """Returns the expected |log(estimate / latency)| of a model whose sequences are all measured."""
        return self.expected.whole if is_whole(cut) else self.expected.by_granularity[cut.granularity]

    def options(self, model: str, graph: LayerGraph) -> list[Option]:
        """Returns the options for a model: the granularities to measure at, and prediction if there is a regressor.

        If one sequence of a decomposition is missing, the time of all of them counts, because they take turns.
        Sequences that several models lack count for each of these models.

        Args:
            model: Name of the model.
            graph: Layers of the model.
        """
        cuts = candidates(model, graph)
        footprint = cuts[0].read_bytes
        costs = self.predictor.costs(cuts[0].unique, footprint=footprint)
        known = self._latencies_us(cuts)
        layers_us = self._layers_us(cuts[0], costs)
        found = []
        for cut in cuts:
            complete = cut.unique.keys() <= known.keys()
            seconds = 0.0 if complete else self._seconds(cut, known, layers_us, footprint)
            found.append(Option(cut.granularity, self.error(cut), seconds))
        regression = self.predictor.regression
        if found[0].seconds and regression is not None:
            calibration = regression.bundle.calibration
            parts = replace(calibration.uncertainty, construction=0.0)
            width = half_width([costs[segment.sequence.signature] for segment in cuts[0].segments], parts)
            error = math.hypot(expected_error(width, calibration.level), found[0].error)
            found.append(Option(1, error, 0.0, measured=False))
        return found

    def best_known(
        self, model: str, graph: LayerGraph, *, composition: str | Rule = "sequential", measured: bool = True
    ) -> Known:
        """Returns the decomposition from which a model is best estimated without measuring.

        It is the one with the least expected error among those whose sequences are all measured, the whole model as one
        sequence included. Without such a decomposition, or with a composition rule, it is that into single layers.

        Args:
            model: Name of the model.
            graph: Layers of the model.
            composition: As in `Predictor.estimate`.
            measured: Whether to use measurements.
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
        return Known(best, half_width_of(self.error(best), self._level), reason)

    @property
    def _level(self) -> float:
        regression = self.predictor.regression
        return regression.bundle.calibration.level if regression else 0.9

    def _latencies_us(self, cuts: Sequence[Decomposition]) -> dict[str, float]:
        signatures = {signature for cut in cuts for signature in cut.unique}
        return self.predictor.store.latencies_us(self.predictor.system.name, signatures)

    def _layers_us(self, layers: Decomposition, costs: Mapping[str, Cost]) -> list[float]:
        """Returns the expected latency of each layer of a model: measured, predicted, or its analytical bound."""
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
        """Returns the approximate time to measure a decomposition; unmeasured sequences take what their layers do."""
        ends = list(accumulate(len(segment.layers) for segment in cut.segments))
        latencies_us = {
            segment.sequence.signature: math.fsum(layers_us[end - len(segment.layers) : end])
            for segment, end in zip(cut.segments, ends, strict=True)
        } | {signature: known[signature] for signature in cut.unique if signature in known}
        read, weights = (sum(map(nbytes, cut.unique.values())) for nbytes in (read_bytes, weight_bytes))
        swept = 0 if is_whole(cut) else evicted_bytes(footprint_bytes, read, self.predictor.system.host)
        return estimated_group_seconds(list(latencies_us.values()), weights, swept, self.protocol)
