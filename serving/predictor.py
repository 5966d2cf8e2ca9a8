"""The predictor: prices sequences as measured or predicted, and composes them to estimates."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from costmodel.composition import Cost, Uncertainty, compose
from costmodel.decomposition import Decomposition, Piece
from costmodel.errors import HoleError, UnknownSystemError
from costmodel.estimate import Estimate, LayerEstimate, PredictorId
from costmodel.in_place import pressure
from costmodel.measurement import jitter
from costmodel.recent import Recent
from costmodel.rules import Rule, find_rule, rule_name, shares
from costmodel.sequence import LayerSequence
from costmodel.serving.placing import placed
from costmodel.serving.regression import Regression
from costmodel.serving.timed import Timed
from costmodel.store import Store
from costmodel.systems import System
from costmodel.training.artefact import bundle_of, champion_of, load_bundle

__all__ = ["Predictor"]

_MOST_KNOWN = 100_000  # costs; each takes about 0.4 kB


@dataclass(frozen=True)
class Predictor:
    """Answers for one system.

    Attributes:
        store: Where measurements are.
        system: The system asked about.
        regression: What answers for layers that are not measured; None if nothing was trained.
        settled: Whether measurements that are added later are left unseen, as in `costmodel.serving.timed.Timed`.
    """

    store: Store
    system: System
    regression: Regression | None
    settled: bool = False

    @classmethod
    def load(
        cls, store: Store, bundles: Path, system: str, *, version: str | None = None, settled: bool = False
    ) -> "Predictor":
        """The predictor of `system`.

        Args:
            store: Where measurements are.
            bundles: Folder of trained regressors.
            system: Its name.
            version: Of the regressor; by default the champion.
            settled: As the attribute.

        Raises:
            UnknownSystemError: Nothing is measured or trained for it.
            ArtefactError: The regressor is not there, or cannot be loaded.
        """
        found = store.system(system)
        if not found.capabilities:
            raise UnknownSystemError(
                f"nothing is measured for the system {system}; run `costmodel bench --system {system}` on that machine"
            )
        path = champion_of(bundles, system) if version is None else bundle_of(bundles, system, version)
        return cls(store, found, None if path is None else Regression(load_bundle(path)), settled)

    @cached_property
    def _timed(self) -> Timed:
        return Timed(self.store, self.system.name, settled=self.settled)

    @cached_property
    def _known(self) -> Recent[tuple[str, Hashable], Cost]:
        """Predicted costs of sequences by themselves, by signature and step of the footprint."""
        return Recent(_MOST_KNOWN)

    @cached_property
    def _known_in_place(self) -> Recent[Hashable, tuple[Cost, ...]]:
        """Predicted costs of the pieces of models."""
        return Recent(_MOST_KNOWN, len)

    @cached_property
    def _jitter(self) -> dict[str, float]:
        """That of whole models; of sequences where none was measured whole, as on a machine that saw bricks only."""
        wholes = self.store.wholes()
        measured = list(self.store.measurements(self.system.name, wholes, repeats=False))
        return jitter(measured or self.store.measurements(self.system.name, repeats=False))

    def warm_up(self) -> None:
        """Read what every estimate needs, so that the first one does not wait for it."""
        _ = self._jitter, self._known, self._known_in_place, self._timed

    def costs(
        self, sequences: Mapping[str, LayerSequence], *, footprint: float = math.inf, measured: bool = True
    ) -> dict[str, Cost]:
        """The cost of each sequence, by signature; one that has none is left out.

        Args:
            sequences: By signature.
            footprint: Bytes of weights that the model reads which they are part of; by default more than caches hold.
            measured: Whether to use measurements; without them every cost is predicted.
        """
        found = self._timed.costs(sequences) if measured else {}
        if self.regression is not None:
            missing = [sequence for signature, sequence in sequences.items() if signature not in found]
            step = self.regression.steps.of(footprint, self.system)
            costs = self._predicted(missing, repeat(footprint, len(missing)), repeat(step, len(missing)))
            found.update(zip((sequence.signature for sequence in missing), costs, strict=True))
        return found

    def measured_costs(self, sequences: Mapping[str, LayerSequence]) -> dict[str, Cost]:
        """The costs of those that are measured, by signature."""
        return self._timed.costs(sequences)

    def costs_among(
        self, sequences: Sequence[LayerSequence], footprints: np.ndarray, *, measured: bool = True
    ) -> list[Cost | None]:
        """The costs of sequences of several models, in one call into the regressor; None for one that has none.

        Args:
            sequences: Each as often as there are models of different footprints that it is asked about in.
            footprints: For each, the bytes of weights that its model reads, shape [num_sequences].
            measured: Whether to use measurements.
        """
        found = self._timed.costs({sequence.signature: sequence for sequence in sequences}) if measured else {}
        result = [found.get(sequence.signature) for sequence in sequences]
        if self.regression is not None:
            missing = [place for place, cost in enumerate(result) if cost is None]
            around = footprints[missing]
            steps = map(tuple, self.regression.steps.of_all(around, self.system).tolist())
            costs = self._predicted([sequences[place] for place in missing], around.tolist(), steps)
            for place, predicted in zip(missing, costs, strict=True):
                result[place] = predicted
        return result

    def prepare(self, decompositions: Iterable[Decomposition], *, measured: bool = True) -> None:
        """Price the layers of models together, so that estimates of them find them priced.

        Args:
            decompositions: Of the models.
            measured: Whether the estimates will use measurements.
        """
        if self.regression is None or self.regression.sees_neighbours:
            return
        asked = [(sequence, float(cut.read_bytes)) for cut in decompositions for sequence in cut.unique.values()]
        self.costs_among([sequence for sequence, _ in asked], np.array([read for _, read in asked]), measured=measured)

    def _predicted(
        self, sequences: Sequence[LayerSequence], footprints: Iterable[float], steps: Iterable[Hashable]
    ) -> list[Cost]:
        """The predicted cost of each sequence by itself."""
        assert self.regression is not None
        keys = [(sequence.signature, step) for sequence, step in zip(sequences, steps, strict=True)]
        found = {key: self._known.get(key) for key in keys}
        missing = {
            key: (sequence, footprint)
            for key, sequence, footprint in zip(keys, sequences, footprints, strict=True)
            if found[key] is None
        }
        if missing:
            asked, around = zip(*missing.values(), strict=True)
            for key, predicted in zip(missing, self.regression.costs(asked, self.system, around), strict=True):
                self._known.put(key, predicted)
                found[key] = predicted
        return [cost for key in keys if (cost := found[key]) is not None]

    def _costs_in_place(self, pieces: Sequence[Piece], *, footprint: float, measured: bool) -> list[Cost | None]:
        """The cost of each piece of a model; what is not measured is predicted where it stands."""
        unique = {piece.sequence.signature: piece.sequence for piece in pieces}
        if self.regression is None or not self.regression.sees_neighbours:
            costs = self.costs(unique, footprint=footprint, measured=measured)
            return [costs.get(piece.sequence.signature) for piece in pieces]
        found = self._timed.costs(unique) if measured else {}
        if len(found) == len(unique):
            return [found[piece.sequence.signature] for piece in pieces]
        return [
            found.get(piece.sequence.signature, in_place)
            for piece, in_place in zip(pieces, self._predicted_in_place(pieces, footprint), strict=True)
        ]

    def _predicted_in_place(self, pieces: Sequence[Piece], footprint: float) -> tuple[Cost, ...]:
        """The predicted cost of each piece of a model among the others."""
        assert self.regression is not None
        needs = tuple(piece.needs for piece in pieces)
        key = tuple(piece.sequence.signature for piece in pieces), needs
        costs = self._known_in_place.get(key)
        if costs is None:
            costs = tuple(
                self.regression.costs([p.sequence for p in pieces], self.system, [footprint] * len(pieces), needs)
            )
            self._known_in_place.put(key, costs)
        return costs

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
        footprint = float(decomposition.read_bytes)
        priced = self._costs_in_place(pieces, footprint=footprint, measured=measured)
        if self.regression is not None:
            bundle, under = self.regression.bundle, pressure(footprint, self.system.host)
            priced = placed(pieces, priced, bundle.measured_in_place, bundle.predicted_in_place, under)
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
