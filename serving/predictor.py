"""The predictor of a system: estimates latencies of models from the costs of their layer sequences."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from costmodel.errors import UnknownSystemError, UnpricedLayersError
from costmodel.estimate.cost import UNPRICED, Cost
from costmodel.estimate.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.estimate.peak_memory import predict_peak_memory
from costmodel.estimate.rules import Rule, find_rule, rule_name, shares
from costmodel.estimate.start_time import predict_start_time
from costmodel.measure.tenancy import jitter
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.batch import Batch
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.observed_latencies import ObservedLatencies
from costmodel.serving.pricing import SequencePricer
from costmodel.store.store import Store
from costmodel.systems.names import measuring_command
from costmodel.traffic.idle import TYPICAL, measured_idle_effects
from costmodel.traffic.variation import Variation, observed_variation
from costmodel.training.artefact import bundle_of, champion_of, load_bundle

__all__ = ["Predictor"]

# Half-width, in log latency, of the interval of a latency that was observed elsewhere: models that were measured twice,
# hours apart, agree within 10% in 90% of cases.
OBSERVED_HALF_WIDTH = 0.1


@dataclass(frozen=True)
class Predictor(SequencePricer):
    """Predictor of one system: prices layer sequences and estimates the latency of models; threads may share it."""

    @classmethod
    def load(
        cls, store: Store, bundles: Path, system: str, *, version: str | None = None, settled: bool = False
    ) -> "Predictor":
        """Loads the predictor of a system.

        Args:
            store: Results store with the measurements.
            bundles: Folder of trained regressors.
            system: Name of the system.
            version: Version of the regressor; None for the champion.
            settled: Whether measurements that are added to the store later are ignored.

        Raises:
            UnknownSystemError: Nothing is measured or trained for the system.
            ArtefactError: There is no regressor of that version, or it cannot be loaded.
        """
        found = store.system(system)
        if not found.capabilities:
            raise UnknownSystemError(
                f"nothing is measured for the system {system}; run `{measuring_command(system)}`, or `costmodel "
                "predict --probe`, on that machine"
            )
        path = champion_of(bundles, system) if version is None else bundle_of(bundles, system, version)
        return cls(store, found, None if path is None else Regression(load_bundle(path)), settled)

    @cached_property
    def _observed(self) -> ObservedLatencies:
        return ObservedLatencies(self.store, self.system.name, settled=self.settled)

    @cached_property
    def _jitter(self) -> dict[str, float]:
        """Jitter of the system by quantile: that of whole models or, if none was measured, that of layers.

        No whole model was measured where the measurements are from a benchmark suite, for example. The jitter is empty
        if it is unknown, because nothing but latencies of whole models was imported.
        """
        whole_model_signatures = self.store.whole_model_signatures()
        measured = list(self.store.measurements(self.system.name, whole_model_signatures, repeats=False))
        return jitter(measured) or jitter(self.store.measurements(self.system.name, repeats=False))

    @cached_property
    def variation(self) -> Variation | None:
        """How run times of whole models vary on the system (of layers, if no whole model was measured).

        None if that is unknown, because nothing but latencies of whole models was imported. Where it was not measured
        what an idle time costs, it is taken to be typical.
        """
        idle = measured_idle_effects(self.system.capabilities) or TYPICAL
        whole_models = self.store.measurements(self.system.name, self.store.whole_model_signatures(), repeats=False)
        return observed_variation(whole_models, idle) or observed_variation(
            self.store.measurements(self.system.name, repeats=False), idle
        )

    def warm_up(self) -> None:
        """Creates the caches and reads the jitter, so that the first estimate does not wait for them."""
        super().warm_up()
        _ = self._jitter, self._observed

    def estimate(
        self,
        decomposition: Decomposition,
        *,
        composition: str | Rule = "sequential",
        partial: bool = False,
        measured: bool = True,
        construction: float | None = None,
        warnings: Iterable[str] = (),
    ) -> Estimate:
        """Estimates the latency of a model that was cut into layer sequences.

        Args:
            decomposition: Segments of the model.
            composition: A composition rule, or the name of one; see `costmodel.estimate.rules.find_rule`.
            partial: Whether to estimate even if some sequences have no cost; these count as 0 and are named in a
                warning.
            measured: Whether to use measurements; without them every cost is predicted.
            construction: Half-width of the interval of log(sum of the sequences' latencies / latency of the whole
                model), if more is known about this model than the calibration of the regressor says; None to use that
                of the calibration.
            warnings: Sentences that the estimate passes on as warnings.

        Raises:
            UnpricedLayersError: A sequence has no cost and `partial` is false.
            RuleError: There is no composition rule of that name, or the rule is the user's own and failed.
        """
        (found,) = self.estimate_all(
            [decomposition], composition=composition, partial=partial, measured=measured, construction=construction,
            warnings=[warnings],
        )  # fmt: skip
        return found

    def estimate_all(
        self,
        decompositions: Sequence[Decomposition],
        *,
        composition: str | Rule = "sequential",
        partial: bool = False,
        measured: bool = True,
        construction: float | None = None,
        warnings: Sequence[Iterable[str]] | None = None,
    ) -> list[Estimate]:
        """Estimates the latencies of several models, whose layer sequences are priced together.

        The arguments are those of `estimate`, but with one decomposition and one list of warnings for each model.
        """
        rule = find_rule(composition) if isinstance(composition, str) else composition
        observed_us = np.array(
            [self._observed.find(cut) if measured and composition == "sequential" else None for cut in decompositions],
            dtype=np.float64,
        )
        is_observed = ~np.isnan(observed_us)
        batch = Batch.of(
            [[segment.sequence for segment in cut.segments] for cut in decompositions],
            np.array([cut.shared_bytes for cut in decompositions], dtype=np.float64),
        )
        predecessors = [[segment.predecessors for segment in cut.segments] for cut in decompositions]
        priced = self.price(batch, measured=measured, predecessors=predecessors)
        if is_observed.any():
            priced = priced.with_totals(observed_us)
        costs = priced.costs_in_context()
        ends = np.cumsum(batch.lengths).tolist()
        of_models = [costs[end - len(cut.segments) : end] for cut, end in zip(decompositions, ends, strict=True)]
        notes = [
            [*given, *self._notes(cut, of_model, partial=partial)]
            for cut, of_model, given in zip(decompositions, of_models, warnings or [()] * len(of_models), strict=True)
        ]
        for number in np.flatnonzero(is_observed).tolist():
            notes[number].append(
                f"the latency was observed on {self.system.name} and imported; its division among layers is predicted"
            )
        included = [shares(rule, of_model, read) for of_model, read in zip(of_models, predecessors, strict=True)]
        uncertainty = self.uncertainty
        if construction is not None:
            uncertainty = replace(uncertainty, construction=construction, construction_power=0.0)
        composed = priced.compose(uncertainty, np.array([share for of in included for share in of], dtype=np.float64))
        widths = np.where(is_observed, OBSERVED_HALF_WIDTH, composed.half_width)
        intervals = composed._replace(half_width=widths).interval_us.tolist()
        memory = [predict_peak_memory(cut.memory, self.system) for cut in decompositions]
        starts = [
            predict_start_time(cut.memory, self.system, latency_us, (low_us, high_us))
            for cut, latency_us, (low_us, high_us) in zip(
                decompositions, composed.latency_us.tolist(), intervals, strict=True
            )
        ]
        return [
            Estimate(
                model=cut.model,
                system=self.system.name,
                latency_us=float(composed.latency_us[number]),
                interval_us=(intervals[number][0], intervals[number][1]),
                interval_level=self.interval_level,
                jitter=self._jitter,
                composition=composition if isinstance(composition, str) else rule_name(rule),
                granularity=cut.granularity,
                layers=tuple(
                    LayerEstimate(
                        "+".join(segment.layers), segment.sequence.kind, segment.sequence.signature, cost, share
                    )
                    for segment, cost, share in zip(cut.segments, of_models[number], included[number], strict=True)
                ),
                predictor=self._id_for(of_models[number]),
                warnings=tuple(notes[number]),
                cover=cut.cover,
                peak_memory_bytes=None if peak is None else peak.peak_memory_bytes,
                peak_memory_interval_bytes=None if peak is None else peak.interval_bytes,
                **({} if start is None else asdict(start)),
            )
            for number, (cut, peak, start) in enumerate(zip(decompositions, memory, starts, strict=True))
        ]

    def _id_for(self, costs: Sequence[Cost]) -> PredictorId:
        predicted = any(cost.source in ("predicted", "extrapolated") for cost in costs)
        return self.regression.id if predicted and self.regression else PredictorId()

    def _notes(self, cut: Decomposition, costs: Sequence[Cost], *, partial: bool) -> list[str]:
        """Returns warnings about how a model was priced, such as the number of sequences that were extrapolated.

        Raises:
            UnpricedLayersError: A sequence has no cost and `partial` is false.
        """
        notes = []
        if self.system.asserted:
            notes.append(f"the records of {self.system.name} are vouched for by a user, not checked (--assert-system)")
        facts = self.regression.bundle.facts if self.regression else {}
        if "extrapolated_from" in facts and any(cost.source not in ("measured", "unpriced") for cost in costs):
            bases = ", ".join(facts["extrapolated_from"])
            threads = self.system.settings.threads
            gain = f" and by how {threads} threads divide the work" if facts.get("threads_extrapolated") else ""
            notes.append(
                f"nobody has measured {self.system.name}: latencies are extrapolated from those of {bases} by facts "
                f"about its processor{gain}, and the interval rests on very few systems; `costmodel predict --probe` "
                "on that machine takes a few minutes and knows more"
            )
        unpriced = [
            name
            for segment, cost in zip(cut.segments, costs, strict=True)
            if cost.source == UNPRICED.source
            for name in segment.layers
        ]
        if unpriced:
            if not partial:
                raise UnpricedLayersError(cut.model, self.system.name, unpriced)
            notes.append(f"{len(unpriced)} layers have no cost and count as 0: {', '.join(unpriced)}")
        extrapolated = sum(cost.source == "extrapolated" for cost in costs)
        if extrapolated:
            verb = "lies" if extrapolated == 1 else "lie"
            notes.append(f"{extrapolated} of {len(costs)} sequences {verb} outside what the regressor was trained on")
        return notes
