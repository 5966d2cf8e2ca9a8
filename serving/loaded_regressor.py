"""A trained regressor, loaded into the runtime and ready to predict costs."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np

from costmodel.bounded_cache import BoundedCache
from costmodel.errors import ArtefactError
from costmodel.estimate.cost import Cost
from costmodel.estimate.estimate import PredictorId
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import Encoded, Encoder
from costmodel.ir.sequence import LayerSequence
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.session import open_session
from costmodel.serving.footprint_bins import FootprintBins
from costmodel.systems.host import usable_cpus
from costmodel.systems.system import System
from costmodel.training.artefact import Bundle
from costmodel.training.calibration import predicted_costs
from costmodel.training.support import sequence_distances

__all__ = ["Regression"]

_MOST_KNOWN = 100_000  # distances that are cached
_PORTION = 4096  # sequences that are predicted at once: the features of a layer take 1.4 kB


class Regression:
    """A trained regressor, loaded into the runtime and ready to predict the costs of layer sequences.

    Attributes:
        bundle: Files of the regressor, from which it was loaded.
        sees_neighbours: Whether the predicted cost of a layer depends on the layers around it.
        footprint_bins: Bins of the footprints of models; within a bin the regressor predicts the same.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Loads the network of a trained regressor into the runtime.

        Args:
            bundle: Files of the regressor.

        Raises:
            ArtefactError: The network does not load, or its inputs are not the features that costmodel computes.
        """
        self.bundle = bundle
        self._encoder: Encoder | None = None
        self._far: BoundedCache[str, float] = BoundedCache(_MOST_KNOWN)
        try:
            # One thread that does not spin: few layers are predicted at once, and the cores are left to the caller.
            self._session = open_session(bundle.model, RuntimeSettings(threads=1, spinning=False))
            inputs = {port.name: port.shape for port in self._session.get_inputs()}
            self.sees_neighbours = inputs.pop("edges", None) is not None
            if list(inputs) != ["features"] or inputs["features"][-1] != len(SCHEMA.names):
                raise ValueError(f"inputs {inputs}")
            self.footprint_bins = FootprintBins(bundle.model)
        except Exception as error:
            raise ArtefactError(
                f"the network of the regressor {bundle.version} of {bundle.system} is damaged ({error}): "
                f"train again with `costmodel train --system {bundle.system}`"
            ) from error

    def _encoder_of(self, system: System) -> Encoder:
        encoder = self._encoder
        if encoder is None or encoder.system != system:
            self._encoder = encoder = Encoder(system)
        return encoder

    @property
    def id(self) -> PredictorId:
        """Name and version of the regressor."""
        return PredictorId(self.bundle.name, self.bundle.version)

    def costs(
        self,
        sequences: Sequence[LayerSequence],
        system: System,
        footprints: Sequence[Iterable[float]],
        predecessors: Sequence[Iterable[int]] = (),
    ) -> list[Cost]:
        """Returns the predicted cost of each layer sequence on a system.

        Args:
            sequences: Layer sequences whose costs are wanted.
            system: System on which they would run.
            footprints: For each sequence, the `Footprint` of the model around it.
            predecessors: If the sequences are the segments of one model, the positions in `sequences` of those whose
                results each of them reads; otherwise empty.
        """
        if predecessors or len(sequences) <= _PORTION:
            return self._costs_of(sequences, system, footprints, predecessors)

        def portion(start: int) -> list[Cost]:
            chosen = slice(start, start + _PORTION)
            return self._costs_of(sequences[chosen], system, footprints[chosen])

        with ThreadPoolExecutor(usable_cpus()) as threads:  # the runtime releases the interpreter lock
            return list(chain.from_iterable(threads.map(portion, range(0, len(sequences), _PORTION))))

    def _costs_of(
        self,
        sequences: Sequence[LayerSequence],
        system: System,
        footprints: Sequence[Iterable[float]],
        predecessors: Sequence[Iterable[int]] = (),
    ) -> list[Cost]:
        encoded = self._encoder_of(system).encode(sequences, footprints, predecessors)
        feeds = {"features": encoded.features} | ({"edges": encoded.edges} if self.sees_neighbours else {})
        ratios = self._session.run(None, feeds)[0].reshape(-1)
        latencies = encoded.totals(encoded.bounds_us * np.exp(ratios.astype(np.float64)))
        distances = self._distances(sequences, encoded)
        return predicted_costs(latencies, [s.kind for s in sequences], distances, self.bundle.calibration)

    def _distances(self, sequences: Sequence[LayerSequence], encoded: Encoded) -> np.ndarray:
        """Returns the distance of each sequence to the data that the regressor was trained on, shape [num_sequences].

        The distance does not depend on the model around a sequence.
        """
        known = [self._far.get(sequence.signature) for sequence in sequences]
        missing = [place for place, distance in enumerate(known) if distance is None]
        if missing:
            found = sequence_distances(encoded.take(np.array(missing)), self.bundle.support).tolist()
            for place, distance in zip(missing, found, strict=True):
                known[place] = distance
                self._far.put(sequences[place].signature, distance)
        return np.array(known)
