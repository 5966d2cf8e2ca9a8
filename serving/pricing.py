"""Prices layer sequences on a system, in isolation and in models: measured where possible, otherwise predicted."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.bounded_cache import BoundedCache
from costmodel.estimate.composition import PricedBatch
from costmodel.estimate.context_correction import cache_pressures, small_weights_kb
from costmodel.estimate.cost import Cost, Uncertainty
from costmodel.ir.footprint import COLD, Footprint
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.batch import Batch
from costmodel.serving.loaded_regressor import Regression
from costmodel.serving.measured_cost_cache import MeasuredCostCache
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["SequencePricer"]

_MAX_CACHED_COSTS = 100_000  # each takes about 0.4 kB


@dataclass(frozen=True)
class SequencePricer:
    """Pricer of layer sequences on one system, with measured or else predicted costs; threads may share it.

    Attributes:
        store: Results store with the measurements.
        system: System on which the sequences would run.
        regression: Regressor that prices what is not measured; None if none was trained.
        settled: Whether measurements that are added to the store later are ignored, as in
            `costmodel.serving.measured_cost_cache.MeasuredCostCache`.
    """

    store: Store
    system: System
    regression: Regression | None
    settled: bool = False

    @cached_property
    def _measured(self) -> MeasuredCostCache:
        return MeasuredCostCache(self.store, self.system.name, settled=self.settled)

    @cached_property
    def _predicted(self) -> BoundedCache[tuple[str, Hashable], Cost]:
        """Cache of the predicted costs of sequences, by signature and by the bin of the model's footprint."""
        return BoundedCache(_MAX_CACHED_COSTS)

    @cached_property
    def _predicted_models(self) -> BoundedCache[Hashable, tuple[Cost, ...]]:
        """Cache of the predicted costs of all segments of models, for a regressor that sees a layer's neighbours."""
        return BoundedCache(_MAX_CACHED_COSTS, len)

    def warm_up(self) -> None:
        """Creates the caches, so that the first request does not wait for them."""
        _ = self._measured, self._predicted, self._predicted_models

    @property
    def uncertainty(self) -> Uncertainty:
        """What is known about the errors of composed latencies on this system; defaults without a regressor."""
        return self.regression.bundle.calibration.uncertainty if self.regression else Uncertainty()

    @property
    def model_us(self) -> float:
        """Time in microseconds that models take besides their layers; 0 unless only whole models were trained on."""
        return self.regression.bundle.predicted_correction.model_us if self.regression else 0.0

    @property
    def interval_level(self) -> float:
        """Probability with which a latency lies in its interval, such as 0.9."""
        return self.regression.bundle.calibration.level if self.regression else 0.9

    @property
    def version(self) -> str:
        """Version of the regressor; "none" if there is no regressor."""
        return self.regression.id.version if self.regression else "none"

    def costs(
        self, sequences: Mapping[str, LayerSequence], *, footprint: Footprint = COLD, measured: bool = True
    ) -> dict[str, Cost]:
        """Returns the costs of sequences in isolation, by signature; sequences that have no cost are left out.

        Args:
            sequences: Layer sequences by signature.
            footprint: Footprint of the model around the sequences; by default more than any cache holds.
            measured: Whether to use measurements; without them every cost is predicted.
        """
        every = list(sequences.values())
        found = self.price_sequences(every, np.tile(footprint, (len(every), 1)), measured=measured)
        return {signature: cost for signature, cost in zip(sequences, found, strict=True) if cost is not None}

    def price_sequences(
        self, sequences: Sequence[LayerSequence], footprints: np.ndarray, *, measured: bool = True
    ) -> list[Cost | None]:
        """Returns the cost of each sequence in isolation; None for a sequence that has no cost.

        All costs that have to be predicted are predicted in one call of the regressor.

        Args:
            sequences: Layer sequences; the same one may occur with several footprints.
            footprints: `Footprint` of the model around each sequence, shape [num_sequences, 2].
            measured: Whether to use measurements; without them every cost is predicted.
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
        """Returns the costs of the layer sequences of a batch of models, each corrected for its context in the model.

        Args:
            batch: The models.
            measured: Whether to use measurements; without them every cost is predicted.
            footprints: `Footprint` of each model, shape [num_models, 2]; by default that of its sequences. If they
                are given, each model of the batch is taken to be a part of a larger model with that footprint.
            predecessors: For each model, and for each of its sequences, the positions in the model of those sequences
                whose results it reads; by default each sequence reads the result of the one before it. Only a regressor
                that sees the neighbours of a layer uses them.
        """
        around = batch.footprints if footprints is None else footprints
        if self.regression is not None and self.regression.sees_neighbours:
            priced = PricedBatch.of(self._among_neighbours(batch, around, predecessors, measured=measured))
        else:
            priced = self._independently(batch, around, measured=measured)
        if self.regression is None:
            return priced
        bundle, host = self.regression.bundle, self.system.host
        corrected = priced.in_context(
            bundle.measured_correction,
            bundle.predicted_correction,
            cache_pressures(around[:, 0], host),
            small_weights_kb(batch.weights, host),
            batch.rows,
        )
        if footprints is not None:
            return corrected
        if self.model_us:
            corrected = corrected.with_model_time(self.model_us)
        # A model of one sequence is that sequence, with nothing around it.
        alone = batch.lengths[batch.model] == 1
        return replace(corrected, factor=np.where(alone, 1.0, corrected.factor)) if alone.any() else corrected

    def _independently(self, batch: Batch, footprints: np.ndarray, *, measured: bool) -> PricedBatch:
        """Prices a batch of models without regard to the neighbours of a layer.

        Each different pair of sequence and footprint bin is priced once: a measured cost is the same in every model,
        and a predicted cost is the same for all footprints in a bin.
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
        """Yields the costs of the sequences of each model, for a regressor that sees the neighbours of a layer.

        Sequences that are measured have their measured cost; the regressor predicts the others from all segments of the
        model.
        """
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
            key = (
                tuple(layer.signature for layer in layers),
                tuple(map(tuple, read)),
                tuple(footprints[number].tolist()),
            )
            costs = self._predicted_models.get(key)
            if costs is None:
                costs = tuple(self.regression.costs(layers, self.system, [footprints[number]] * len(layers), read))
                self._predicted_models.put(key, costs)
            yield [known.get(layer.signature, cost) for layer, cost in zip(layers, costs, strict=True)]
