"""The predictor of a system: prices layer sequences as measured or predicted, and composes them to estimates."""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from costmodel.bounded_cache import BoundedCache
from costmodel.errors import UnknownSystemError, UnpricedLayersError
from costmodel.estimate.composition import PricedBatch
from costmodel.estimate.context_correction import cache_pressures
from costmodel.estimate.cost import UNPRICED, Cost, Uncertainty
from costmodel.estimate.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.estimate.rules import Rule, find_rule, rule_name, shares
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import jitter
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.batch import Batch
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.measured_cost_cache import MeasuredCostCache
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.artefact import bundle_of, champion_of, load_bundle

__all__ = ["Predictor"]

_MAX_CACHED_COSTS = 100_000  # each takes about 0.4 kB


@dataclass(frozen=True)
class Predictor:
    """Prices layer sequences and models on one system; threads may share it.

    Attributes:
        store: Results store with the measurements.
        system: System that is asked about.
        regression: Regressor that prices what is not measured; None if none was trained.
        settled: Whether measurements that are added later are ignored, as in
            `costmodel.serving.measured_cost_cache.MeasuredCostCache`.
    """

    store: Store
    system: System
    regression: Regression | None
    settled: bool = False

    @classmethod
    def load(
        cls, store: Store, bundles: Path, system: str, *, version: str | None = None, settled: bool = False
    ) -> "Predictor":
        """Loads the predictor of a system.

        Args:
            store: Results store with the measurements.
            bundles: Folder of trained regressors.
            system: Name of the system.
            version: Version of the regressor; by default the champion.
            settled: See the attribute.

        Raises:
            UnknownSystemError: Nothing is measured or trained for the system.
            ArtefactError: The regressor does not exist, or cannot be loaded.
        """
        found = store.system(system)
        if not found.capabilities:
            raise UnknownSystemError(
                f"nothing is measured for the system {system}; run `costmodel bench --system {system}` on that machine"
            )
        path = champion_of(bundles, system) if version is None else bundle_of(bundles, system, version)
        return cls(store, found, None if path is None else Regression(load_bundle(path)), settled)

    @cached_property
    def _measured(self) -> MeasuredCostCache:
        return MeasuredCostCache(self.store, self.system.name, settled=self.settled)

    @cached_property
    def _predicted(self) -> BoundedCache[tuple[str, Hashable], Cost]:
        """Predicted costs of sequences in isolation, by signature and bin of the footprint."""
        return BoundedCache(_MAX_CACHED_COSTS)

    @cached_property
    def _predicted_models(self) -> BoundedCache[Hashable, tuple[Cost, ...]]:
        """Predicted costs of all segments of a model, from a regressor that sees the neighbours of a layer."""
        return BoundedCache(_MAX_CACHED_COSTS, len)

    @cached_property
    def _jitter(self) -> dict[str, float]:
        """Jitter of whole models; that of layers where no whole model was measured, as from a benchmark suite."""
        whole_model_signatures = self.store.whole_model_signatures()
        measured = list(self.store.measurements(self.system.name, whole_model_signatures, repeats=False))
        return jitter(measured or self.store.measurements(self.system.name, repeats=False))

    def warm_up(self) -> None:
        """Reads what every estimate needs, so that the first one does not wait for it."""
        _ = self._jitter, self._measured, self._predicted, self._predicted_models

    @property
    def uncertainty(self) -> Uncertainty:
        """What is known about the errors of composed latencies on this system."""
        return self.regression.bundle.calibration.uncertainty if self.regression else Uncertainty()

    @property
    def interval_level(self) -> float:
        """Probability with which a latency lies in its interval."""
        return self.regression.bundle.calibration.level if self.regression else 0.9

    @property
    def version(self) -> str:
        """Version of the regressor; "none" if there is none."""
        return self.regression.id.version if self.regression else "none"

    def costs(
        self, sequences: Mapping[str, LayerSequence], *, footprint: float = math.inf, measured: bool = True
    ) -> dict[str, Cost]:
        """Returns the cost of each sequence in isolation, by signature; one that has no cost is left out.

        Args:
            sequences: Layer sequences by signature.
            footprint: Bytes of weights that the model around the sequences reads; by default more than caches hold.
            measured: Whether to use measurements; without them every cost is predicted.
        """
        every = list(sequences.values())
        found = self.price_sequences(every, np.full(len(every), footprint), measured=measured)
        return {signature: cost for signature, cost in zip(sequences, found, strict=True) if cost is not None}

    def price_sequences(
        self, sequences: Sequence[LayerSequence], footprints: np.ndarray, *, measured: bool = True
    ) -> list[Cost | None]:
        """Returns the cost of each sequence in isolation; None where there is none.

        All that has to be predicted is predicted in one call of the regressor.

        Args:
            sequences: Layer sequences; the same one may occur with several footprints.
            footprints: Bytes of weights that the model around each sequence reads, shape [num_sequences].
            measured: Whether to use measurements.
        """
        known = self._measured.costs({sequence.signature: sequence for sequence in sequences}) if measured else {}
        result = [known.get(sequence.signature) for sequence in sequences]
        missing = [position for position, cost in enumerate(result) if cost is None]
        if self.regression is None or not missing:
            return result
        around = footprints[missing]
        bins = map(tuple, self.regression.footprint_bins.of(around, self.system).tolist())
        keys = [(sequences[position].signature, one) for position, one in zip(missing, bins, strict=True)]
        found = {key: self._predicted.get(key) for key in keys}
        new = {key: place for place, key in enumerate(keys) if found[key] is None}
        if new:
            asked = [sequences[missing[place]] for place in new.values()]
            costs = self.regression.costs(asked, self.system, around[list(new.values())].tolist())
            for key, cost in zip(new, costs, strict=True):
                found[key] = cost
                self._predicted.put(key, cost)
        for position, key in zip(missing, keys, strict=True):
            result[position] = found[key]
        return result

    def price(
        self,
        batch: Batch,
        *,
        measured: bool = True,
        footprints: np.ndarray | None = None,
        predecessors: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> PricedBatch:
        """Prices the layer sequences of a batch of models, each in its place in the model.

        Args:
            batch: The models.
            measured: Whether to use measurements; without them every cost is predicted.
            footprints: Bytes of weights that each model reads, shape [num_models]; by default those of its sequences.
                With these given, the models are taken to be parts of larger ones.
            predecessors: For each model and each of its sequences, the positions in the model of those whose results it
                reads; by default each reads the result of the one before. Only a regressor that sees the neighbours of
                a layer looks at them.
        """
        around = batch.footprints if footprints is None else footprints
        if self.regression is not None and self.regression.sees_neighbours:
            priced = PricedBatch.of(self._among_neighbours(batch, around, predecessors, measured=measured))
        else:
            priced = self._independently(batch, around, measured=measured)
        if self.regression is None:
            return priced
        bundle = self.regression.bundle
        corrected = priced.in_context(
            bundle.measured_correction, bundle.predicted_correction, cache_pressures(around, self.system.host)
        )
        if footprints is not None:
            return corrected
        # A model of one sequence is that sequence, with nothing around it.
        alone = batch.lengths[batch.model] == 1
        return replace(corrected, factor=np.where(alone, 1.0, corrected.factor)) if alone.any() else corrected

    def _independently(self, batch: Batch, footprints: np.ndarray, *, measured: bool) -> PricedBatch:
        """Prices each different pair of sequence and footprint bin once.

        A measured cost is the same in every model. A predicted one depends on the footprint of the model, and is the
        same for all footprints between which the regressor sees no difference.
        """
        layers = batch.sequences
        known = self._measured.costs({layer.signature: layer for layer in layers}) if measured else {}
        around, bin_of = footprints[:1], np.zeros(len(footprints), dtype=np.int64)
        if self.regression is not None and len(footprints) > 1:
            bins = self.regression.footprint_bins.of(footprints, self.system)
            _, first, bin_of = np.unique(bins, axis=0, return_index=True, return_inverse=True)
            around, bin_of = footprints[first], bin_of.reshape(-1)
        is_known = np.array([layer.signature in known for layer in layers], dtype=bool)
        block = np.where(is_known[batch.rows], 0, 1 + bin_of[batch.model])
        cells, cell = np.unique(block * len(layers) + batch.rows, return_inverse=True)
        wanted = [layers[place] for place in (cells % max(1, len(layers))).tolist()]
        blocks = cells // max(1, len(layers))
        new = [layer for layer, of in zip(wanted, blocks.tolist(), strict=True) if of]
        predicted: Iterator[Cost | None] = iter(
            self.price_sequences(new, around[blocks[blocks > 0] - 1], measured=False)
        )
        costs = [
            next(predicted) if of else known[layer.signature] for layer, of in zip(wanted, blocks.tolist(), strict=True)
        ]
        one = PricedBatch.of([costs])
        return replace(
            one,
            cost=one.cost[cell.reshape(-1)],
            model=batch.model,
            num_models=len(footprints),
            factor=np.ones(len(cell)),
        )

    def _among_neighbours(
        self,
        batch: Batch,
        footprints: np.ndarray,
        predecessors: Sequence[Sequence[Sequence[int]]] | None,
        *,
        measured: bool,
    ) -> Iterator[list[Cost | None]]:
        """Prices each model as a whole with a regressor that sees the neighbours of a layer."""
        assert self.regression is not None
        known = self._measured.costs({layer.signature: layer for layer in batch.sequences}) if measured else {}
        for number, rows in enumerate(batch.models()):
            layers = [batch.sequences[row] for row in rows]
            if all(layer.signature in known for layer in layers):
                yield [known[layer.signature] for layer in layers]
                continue
            read = (
                predecessors[number] if predecessors else [(place - 1,) if place else () for place in range(len(rows))]
            )
            key = tuple(layer.signature for layer in layers), tuple(map(tuple, read)), float(footprints[number])
            costs = self._predicted_models.get(key)
            if costs is None:
                costs = tuple(
                    self.regression.costs(layers, self.system, [float(footprints[number])] * len(layers), read)
                )
                self._predicted_models.put(key, costs)
            yield [known.get(layer.signature, cost) for layer, cost in zip(layers, costs, strict=True)]

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
        """Estimates the latency of a decomposed model.

        Args:
            decomposition: Segments of the model.
            composition: A rule, or the name of one; see `costmodel.estimate.rules.find_rule`.
            partial: Answer even if sequences have no cost; they count as 0 and are named in a warning.
            measured: Whether to use measurements; without them every cost is predicted.
            construction: Half-width, in log latency, of (sum of sequences) / (whole model), where more is known than
                the calibration says.
            warnings: Sentences to pass on in the estimate.

        Raises:
            UnpricedLayersError: A sequence has no cost and `partial` was not asked for.
            RuleError: There is no such rule, or it is the user's own and failed.
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
        """Estimates the latencies of several models, whose layers are priced together.

        The arguments are those of `estimate`, with the warnings of each model.
        """
        rule = find_rule(composition) if isinstance(composition, str) else composition
        batch = Batch.of([[segment.sequence for segment in cut.segments] for cut in decompositions])
        predecessors = [[segment.predecessors for segment in cut.segments] for cut in decompositions]
        priced = self.price(batch, measured=measured, predecessors=predecessors)
        costs = priced.costs_in_context()
        ends = np.cumsum(batch.lengths).tolist()
        of_models = [costs[end - len(cut.segments) : end] for cut, end in zip(decompositions, ends, strict=True)]
        notes = [
            [*given, *self._notes(cut, of_model, partial=partial)]
            for cut, of_model, given in zip(decompositions, of_models, warnings or [()] * len(of_models), strict=True)
        ]
        included = [shares(rule, of_model, read) for of_model, read in zip(of_models, predecessors, strict=True)]
        uncertainty = self.uncertainty
        if construction is not None:
            uncertainty = replace(uncertainty, construction=construction)
        composed = priced.compose(uncertainty, np.array([share for of in included for share in of], dtype=np.float64))
        intervals = composed.interval_us.tolist()
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
            )
            for number, cut in enumerate(decompositions)
        ]

    def _id_for(self, costs: Sequence[Cost]) -> PredictorId:
        predicted = any(cost.source in ("predicted", "extrapolated") for cost in costs)
        return self.regression.id if predicted and self.regression else PredictorId()

    def _notes(self, cut: Decomposition, costs: Sequence[Cost], *, partial: bool) -> list[str]:
        """Returns warnings about how a model was priced.

        Raises:
            UnpricedLayersError: A sequence has no cost and `partial` was not asked for.
        """
        notes = []
        if self.system.asserted:
            notes.append(f"the records of {self.system.name} are vouched for by a user, not checked (--assert-system)")
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
            notes.append(f"{extrapolated} of {len(costs)} sequences lie outside what the regressor was trained on")
        return notes
