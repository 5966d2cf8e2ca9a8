"""In-process queries: what `from costmodel import CostModel` gives."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onnx import ModelProto

from costmodel.blocks import Block, block_sequences
from costmodel.cache import lower_cached
from costmodel.decomposition import CHEAPEST, COVERS, FIXED, Decomposition, decompose
from costmodel.granularity import AUTO, Granularity
from costmodel.graph import LayerGraph
from costmodel.home import Home, find_home
from costmodel.host import usable_cpus
from costmodel.model import Model, read_model
from costmodel.recent import Recent
from costmodel.runtimes import DEFAULT_RUNTIME, Runtime, RuntimeSettings, get_runtime
from costmodel.store import Store
from costmodel.systems import this_system

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torch.nn import Module

    from costmodel.composition import Cost
    from costmodel.estimate import Estimate
    from costmodel.rules import Rule
    from costmodel.sequence import LayerSequence
    from costmodel.serving.latency_table import LatencyTable
    from costmodel.serving.networks import Networks
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
        model: "str | Path | ModelProto | Model | Module",
        *,
        example: "Tensor | Sequence[Any] | Mapping[str, Any] | None" = None,
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
            model: Path of an ONNX file, a model in memory, one that `read_model` gave, or a torch module.
            example: What a torch module would be called with: a tensor, several in order, or by name.
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
            MissingExtraError: It is a torch module, and what exports it is not installed.
            ValueError: The model was read before, with its shapes, and others are given now; or there is no such
                granularity or cover.
        """
        if example is not None:
            model = _exported(model, example)
        if not isinstance(model, str | Path | ModelProto | Model):
            raise ValueError(f"{type(model).__name__} is no model: give a torch module with an example of its input")
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

    def predict_many(
        self, models: "Iterable[str | Path | ModelProto | Model]", *, granularity: int = 1, measured: bool = True
    ) -> "list[Estimate]":
        """As `predict`, for several models, in their order; those that were never lowered are, on all processors.

        Args:
            models: Files, models in memory, or models that `read_model` gave.
            granularity: The most layers in a sequence.
            measured: Whether to use measurements.

        Raises:
            ModelError: A model cannot be read or lowered; the message names it.
            HoleError: A model has layers without a cost.
        """
        read = [model if isinstance(model, Model) else read_model(model) for model in models]
        with ThreadPoolExecutor(usable_cpus()) as pool:  # lowering is mostly spent in the runtime
            cuts = list(pool.map(lambda model: self.decompose(model, granularity), read))
        self._predictor.prepare(cuts, measured=measured)
        return [
            self._predictor.estimate(cut, measured=measured, warnings=model.warnings)
            for cut, model in zip(cuts, read, strict=True)
        ]

    def sequences(self, block: Block) -> "tuple[LayerSequence, ...]":
        """The sequences that this system would execute for a block in the middle of a network.

        Args:
            block: A layer (`costmodel.layer`), layers that follow each other, or a model.

        Raises:
            ModelError: It cannot be read or lowered.
        """
        return block_sequences(block, self._runtime, self._predictor.system.settings.level, self._cache)

    def predict_layers(self, layers: Iterable[Block], *, measured: bool = True) -> "list[Cost]":
        """What layers cost by themselves, without any ONNX file; of a block, what its layers add up to.

        Args:
            layers: Layers or blocks, as in `sequences`.
            measured: Whether to use measurements.

        Raises:
            ModelError: One cannot be lowered.
            HoleError: One has no cost.
        """
        from costmodel.serving.networks import price_blocks

        return price_blocks(self._predictor, [self.sequences(block) for block in layers], measured=measured)

    def predict_networks(
        self, layers: Iterable[Block], networks: "Sequence[Sequence[int]] | np.ndarray", *, measured: bool = True
    ) -> "Networks":
        """What many networks cost that are put together from a few layers or blocks, as arrays.

        Example:
            >>> found = cost_model.predict_networks([conv, relu], [[0, 1], [0, 1, 0, 1]])  # doctest: +SKIP
            >>> found.latency_us, found.interval_us  # doctest: +SKIP

        Args:
            layers: Layers or blocks, as in `sequences`.
            networks: For each network the positions in `layers` of what it consists of, in execution order: lists, or
                an array of integers, shape [num_networks, most_layers], filled up with -1.
            measured: Whether to use measurements.

        Raises:
            ModelError: A layer cannot be lowered.
            HoleError: A layer has no cost.
            ValueError: A network has no layer, or names one that is not there.
        """
        from costmodel.serving.networks import price_networks

        return price_networks(self._predictor, [self.sequences(block) for block in layers], networks, measured=measured)

    def latency_table(
        self, blocks: "Mapping[str, Mapping[str, Block | None]]", *, fixed: Iterable[Block] = (), measured: bool = True
    ) -> "LatencyTable":
        """The cost of each choice of each block of a search space, for searches that look costs up.

        Args:
            blocks: For each block its choices by name; None is one that does nothing.
            fixed: What every network of the space has besides.
            measured: Whether to use measurements.

        Raises:
            ModelError: A choice cannot be lowered.
            HoleError: A choice has no cost.
        """
        from costmodel.serving.latency_table import latency_table

        found = {
            name: {choice: () if of is None else self.sequences(of) for choice, of in choices.items()}
            for name, choices in blocks.items()
        }
        always = [sequence for block in fixed for sequence in self.sequences(block)]
        return latency_table(self._predictor, found, always, measured=measured)


def _pieces(cut: Decomposition) -> int:
    return len(cut.pieces)


def _exported(module: object, example: object) -> "ModelProto":
    """A torch module as ONNX."""
    from costmodel.torch_export import example_inputs, export_module

    return export_module(module, example_inputs(module, example))  # type: ignore[arg-type]
