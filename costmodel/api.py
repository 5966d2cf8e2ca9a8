"""In-process queries: what `from costmodel import CostModel` gives."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from costmodel.cache import lower_cached
from costmodel.decomposition import CHEAPEST, COVERS, FIXED, Decomposition, decompose
from costmodel.granularity import AUTO, Granularity
from costmodel.graph import LayerGraph
from costmodel.home import Home, find_home
from costmodel.model import Model, read_model
from costmodel.recent import Recent
from costmodel.runtimes import DEFAULT_RUNTIME, Runtime, RuntimeSettings, get_runtime
from costmodel.store import Store
from costmodel.systems import this_system

if TYPE_CHECKING:
    from onnx import ModelProto

    from costmodel.composition import Cost
    from costmodel.estimate import Estimate
    from costmodel.rules import Rule
    from costmodel.sequence import LayerSequence
    from costmodel.serving.planner import Planner
    from costmodel.serving.predictor import Predictor

__all__ = ["CostModel"]

# What is remembered of models that were asked about; each piece takes about 1 kB, less where layers repeat.
_MOST_PIECES = 100_000


class CostModel:
    """The cost model of one system.

    Example:
        >>> CostModel.load("c5.xlarge").predict("model.onnx").latency_us  # doctest: +SKIP
        41250.0
    """

    def __init__(self, predictor: "Predictor", runtime: Runtime, cache: Path) -> None:
        """Made by `load`.

        Args:
            predictor: What prices.
            runtime: What lowers models.
            cache: Folder of lowered graphs.
        """
        self._predictor = predictor
        self._runtime = runtime
        self._cache = cache
        self._cuts: Recent[tuple[str, str, int], Decomposition] = Recent(_MOST_PIECES, _pieces)

    @classmethod
    def load(cls, system: str | None = None, *, store: str | None = None, home: Home | None = None) -> Self:
        """The cost model of `system`.

        Args:
            system: Its name; by default this host, with one thread.
            store: URL of the results store; by default the one in the home folder.
            home: Where everything is kept; by default as `costmodel.home.find_home` says.

        Raises:
            UnknownSystemError: Nothing is measured or trained for it.
            ArtefactError: Its regressor cannot be loaded.
        """
        from costmodel.serving.predictor import Predictor

        home = home or find_home()
        runtime = get_runtime(DEFAULT_RUNTIME)
        name = system or this_system(runtime, RuntimeSettings()).name
        predictor = Predictor.load(Store(store or home.store_url, create=store is None), home.bundles_of(store), name)
        if predictor.system.runtime != runtime.name:
            runtime = get_runtime(predictor.system.runtime)
        return cls(predictor, runtime, home.cache)

    @property
    def system(self) -> str:
        """Name of the system."""
        return self._predictor.system.name

    @property
    def predictor(self) -> "Predictor":
        """What prices sequences."""
        return self._predictor

    @cached_property
    def _planner(self) -> "Planner":
        from costmodel.serving.planner import Planner

        return Planner(self._predictor)

    def lower(self, model: Model) -> LayerGraph:
        """The graph of layers that this system would execute.

        Raises:
            LoweringError: The runtime cannot build the model.
        """
        return lower_cached(self._runtime, model, self._predictor.system.settings.level, self._cache)

    def decompose(self, model: Model, granularity: int = 1) -> Decomposition:
        """A model as the sequences that this system would execute.

        Raises:
            LoweringError: The runtime cannot build the model.
        """
        key = model.name, model.digest, granularity
        cut = self._cuts.get(key)
        if cut is None:
            cut = decompose(model.name, self.lower(model), granularity)
            self._cuts.put(key, cut)
        return cut

    def predict(
        self,
        model: "str | Path | ModelProto | Model",
        *,
        batch: int | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        granularity: Granularity = 1,
        cover: str = FIXED,
        composition: "str | Rule" = "sequential",
        partial: bool = False,
        measured: bool = True,
    ) -> "Estimate":
        """What a model will cost on this system.

        Args:
            model: Path of an ONNX file, a model in memory, or one that `read_model` gave.
            batch: Size of the batch, where it is symbolic.
            shapes: Full shape of inputs by name.
            granularity: The most layers in a sequence; "auto" for the best at which all sequences are measured (the
                whole model is one), and 1 where there is none.
            cover: How sequences are chosen: "fixed" cuts where the DLBricks paper does, "cheapest" takes those that are
                measured wherever they fit.
            composition: "sequential" (the sum), "parallel" (the critical path), "workers:N" (as N workers get through),
                or a rule of the user's own: "module:function", or the function itself; see `costmodel.rules`.
            partial: Answer even if layers have no cost.
            measured: Whether to use measurements; without them every cost is predicted.

        Raises:
            ModelError: The model cannot be read or lowered.
            HoleError: Layers have no cost and `partial` was not asked for.
            RuleError: There is no such rule, or it is the user's own and failed.
            ValueError: The model was read before, with its shapes, and others are given now; or there is no such
                granularity or cover.
        """
        if not isinstance(model, Model):
            model = read_model(model, batch=batch, shapes=shapes)
        elif batch is not None or shapes is not None:
            raise ValueError(f"{model.name} was read with its shapes fixed: give batch and shapes to read_model")
        if cover not in COVERS:
            raise ValueError(f"cover must be one of {', '.join(COVERS)}, not {cover!r}")
        if cover != FIXED and granularity == AUTO:
            raise ValueError("auto chooses among fixed cuts: give the most layers in a sequence as a number")
        warnings, construction = list(model.warnings), None
        if granularity == AUTO:
            known = self._planner.best_known(model.name, self.lower(model), composition=composition, measured=measured)
            decomposition, construction = known.decomposition, known.construction
            warnings.append(known.reason)
        elif cover == CHEAPEST:
            from costmodel.serving.covering import cover_of

            graph = self.lower(model)
            decomposition = cover_of(self._predictor, model.name, graph, granularity, measured=measured)
        else:
            decomposition = self.decompose(model, granularity)
        return self._predictor.estimate(
            decomposition,
            composition=composition,
            partial=partial,
            measured=measured,
            construction=construction,
            warnings=warnings,
        )

    def predict_many(self, models: "Iterable[str | Path | ModelProto | Model]") -> "list[Estimate]":
        """As `predict`, for several models, in their order."""
        return [self.predict(model) for model in models]

    def predict_sequences(self, sequences: "Iterable[LayerSequence]") -> "list[Cost | None]":
        """The cost of layer sequences, without any ONNX file; None where there is neither measurement nor regressor."""
        wanted = list(sequences)
        costs = self._predictor.costs({sequence.signature: sequence for sequence in wanted})
        return [costs.get(sequence.signature) for sequence in wanted]


def _pieces(cut: Decomposition) -> int:
    return len(cut.pieces)
