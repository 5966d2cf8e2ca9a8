"""The predictor: prices sequences as measured or predicted, and composes them to estimates."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from costmodel.composition import Cost, Uncertainty, compose
from costmodel.decomposition import Decomposition, Piece
from costmodel.errors import ArtefactError, HoleError, UnknownSystemError
from costmodel.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.features.schema import SCHEMA
from costmodel.features.tabular import encode_all
from costmodel.groups import read_bytes
from costmodel.measurement import jitter
from costmodel.rules import Rule, find_rule, rule_name, shares
from costmodel.runtimes import RuntimeSettings
from costmodel.runtimes.ort_session import open_session
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System
from costmodel.training.artefact import Bundle, champion_of, load_bundle
from costmodel.training.calibration import predicted_cost

__all__ = ["Predictor", "Regression"]

# How far beyond the training range a feature may lie before a prediction is called extrapolated: half an e-fold for
# the logarithmic sizes that most features are.
_MARGIN = 0.5


class Regression:
    """A trained regressor, loaded and ready to answer.

    Attributes:
        bundle: What it was loaded from.
        sees_neighbours: Whether the cost of a layer depends on those around it.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Load the bundle's network into the runtime.

        Raises:
            ArtefactError: The network does not load, or takes other inputs than our features.
        """
        self.bundle = bundle
        try:
            # One thread that does not spin: rows are few, and the cores belong to whoever asks.
            self._session = open_session(bundle.model, RuntimeSettings(threads=1, spinning=False))
            inputs = {port.name: port.shape for port in self._session.get_inputs()}
            self.sees_neighbours = inputs.pop("edges", None) is not None
            if list(inputs) != ["features"] or inputs["features"][-1] != len(SCHEMA.names):
                raise ValueError(f"inputs {inputs}")
        except Exception as error:
            raise ArtefactError(
                f"the network of the regressor {bundle.version} of {bundle.system} is damaged ({error}): "
                f"train again with `costmodel train --system {bundle.system}`"
            ) from error

    @property
    def id(self) -> PredictorId:
        """Name and version of the regressor."""
        return PredictorId(self.bundle.name, self.bundle.version)

    def costs(
        self, sequences: Sequence[LayerSequence], system: System, footprint: float, needs: Sequence[Iterable[int]] = ()
    ) -> list[Cost]:
        """The predicted cost of each sequence on `system`.

        Args:
            sequences: What would run.
            system: Where.
            footprint: Bytes of weights that the model reads which they are part of.
            needs: Positions of those that each reads results of, where they are the pieces of one model.
        """
        if not sequences:
            return []
        encoded = encode_all(sequences, system, repeat(footprint), needs)
        feeds = {"features": encoded.features} | ({"edges": encoded.edges} if self.sees_neighbours else {})
        ratios = self._session.run(None, feeds)[0].reshape(-1)
        latencies = encoded.totals(encoded.bounds_us * np.exp(ratios.astype(np.float64)))
        low, high = self.bundle.lower - _MARGIN, self.bundle.upper + _MARGIN
        outside = encoded.totals(np.any((encoded.features < low) | (encoded.features > high), axis=1)) > 0
        return [
            predicted_cost(float(us), sequence.kind, self.bundle.calibration, extrapolated=bool(extrapolated))
            for us, sequence, extrapolated in zip(latencies, sequences, outside, strict=True)
        ]


@dataclass(frozen=True)
class Predictor:
    """Answers for one system.

    Attributes:
        store: Where measurements are.
        system: The system asked about.
        regression: Its champion; None if none was trained.
    """

    store: Store
    system: System
    regression: Regression | None

    @classmethod
    def load(cls, store: Store, bundles: Path, system: str) -> "Predictor":
        """The predictor of `system`.

        Raises:
            UnknownSystemError: Nothing is measured or trained for it.
            ArtefactError: Its champion cannot be loaded.
        """
        found = store.system(system)
        if not found.capabilities:
            raise UnknownSystemError(
                f"nothing is measured for the system {system}; run `costmodel bench --system {system}` on that machine"
            )
        path = champion_of(bundles, system)
        return cls(store, found, None if path is None else Regression(load_bundle(path)))

    @cached_property
    def _jitter(self) -> dict[str, float]:
        """That of whole models; of sequences where none was measured whole, as on a machine that saw bricks only."""
        wholes = {model.whole for model in self.store.models()}
        measured = list(self.store.measurements(self.system.name, wholes, repeats=False))
        return jitter(measured or self.store.measurements(self.system.name, repeats=False))

    def costs(
        self, sequences: Mapping[str, LayerSequence], *, footprint: float = math.inf, measured: bool = True
    ) -> dict[str, Cost]:
        """The cost of each sequence, by signature; one that has none is left out.

        Args:
            sequences: By signature.
            footprint: Bytes of weights that the model reads which they are part of; by default more than caches hold.
            measured: Whether to use measurements; without them every cost is predicted.
        """
        found = self._measured(sequences) if measured else {}
        if self.regression is not None:
            missing = [signature for signature in sequences if signature not in found]
            predicted = self.regression.costs([sequences[s] for s in missing], self.system, footprint)
            found.update(zip(missing, predicted, strict=True))
        return found

    def _measured(self, sequences: Mapping[str, LayerSequence]) -> dict[str, Cost]:
        timings = self.store.timings(self.system.name, sequences)
        return {
            signature: Cost(timing.latency_us, timing.interval_us, "measured", sequences[signature].kind)
            for signature, timing in timings.items()
        }

    def _costs_in_place(self, pieces: Sequence[Piece], *, footprint: float, measured: bool) -> list[Cost | None]:
        """The cost of each piece of a model; what is not measured is predicted where it stands."""
        unique = {piece.sequence.signature: piece.sequence for piece in pieces}
        if self.regression is None or not self.regression.sees_neighbours:
            costs = self.costs(unique, footprint=footprint, measured=measured)
            return [costs.get(piece.sequence.signature) for piece in pieces]
        found = self._measured(unique) if measured else {}
        if len(found) == len(unique):
            return [found[piece.sequence.signature] for piece in pieces]
        needs = [piece.needs for piece in pieces]
        predicted = self.regression.costs([piece.sequence for piece in pieces], self.system, footprint, needs)
        return [
            found.get(piece.sequence.signature, in_place) for piece, in_place in zip(pieces, predicted, strict=True)
        ]

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
        """What a decomposed model will cost.

        Args:
            decomposition: The model's sequences.
            composition: A rule, or the name of one; see `costmodel.rules.find_rule`.
            partial: Answer even if sequences have no cost; they count as 0 and are named in a warning.
            measured: Whether to use measurements; without them every cost is predicted.
            construction: Half-width, in log latency, of (sum of sequences) / (whole model), where more is known than
                the calibration says.
            warnings: To pass on in the estimate.

        Raises:
            HoleError: A sequence has no cost and `partial` was not asked for.
            RuleError: There is no such rule, or it is the user's own and failed.
        """
        rule = find_rule(composition) if isinstance(composition, str) else composition
        pieces = decomposition.pieces
        footprint = float(sum(read_bytes(piece.sequence) for piece in pieces))
        priced = self._costs_in_place(pieces, footprint=footprint, measured=measured)
        holes = [name for p, cost in zip(pieces, priced, strict=True) if cost is None for name in p.layers]
        notes = list(warnings)
        if self.system.asserted:
            notes.append(f"the records of {self.system.name} are vouched for by a user, not checked (--assert-system)")
        if holes:
            if not partial:
                raise HoleError(decomposition.model, self.system.name, holes)
            notes.append(f"{len(holes)} layers have no cost and count as 0: {', '.join(holes)}")
        unpriced = Cost(0.0, (0.0, 0.0), "unpriced", "")
        costs = [unpriced if cost is None else cost for cost in priced]
        extrapolated = sum(c.source == "extrapolated" for c in costs)
        if extrapolated:
            notes.append(f"{extrapolated} of {len(costs)} sequences lie outside what the regressor was trained on")
        calibration = self.regression.bundle.calibration if self.regression else None
        uncertainty = calibration.uncertainty if calibration else Uncertainty()
        if construction is not None:
            uncertainty = replace(uncertainty, construction=construction)
        included = shares(rule, costs, [p.needs for p in pieces])
        latency, interval = compose(costs, included, uncertainty)
        used = any(c.source in ("predicted", "extrapolated") for c in costs)
        return Estimate(
            model=decomposition.model,
            system=self.system.name,
            latency_us=latency,
            interval_us=interval,
            interval_level=calibration.level if calibration else 0.9,
            jitter=self._jitter,
            composition=composition if isinstance(composition, str) else rule_name(rule),
            granularity=decomposition.granularity,
            layers=tuple(
                LayerEstimate("+".join(p.layers), p.sequence.kind, p.sequence.signature, cost, share)
                for p, cost, share in zip(pieces, costs, included, strict=True)
            ),
            predictor=self.regression.id if used and self.regression else PredictorId(),
            warnings=tuple(notes),
            cover=decomposition.cover,
        )
