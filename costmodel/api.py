"""In-process queries: the class behind `from costmodel import CostModel`."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onnx import ModelProto

from costmodel.bounded_cache import BoundedCache
from costmodel.estimate.blocks import Block, block_sequences
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import CHEAPEST, COVERS, FIXED, Decomposition, decompose
from costmodel.partition.granularity import AUTO, Granularity
from costmodel.paths import Home, find_home
from costmodel.runtimes.base import DEFAULT_RUNTIME, Runtime, RuntimeSettings, get_runtime
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.store.store import Store
from costmodel.systems.host import usable_cpus
from costmodel.systems.system import this_system

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torch.nn import Module

    from costmodel.estimate.cost import Cost
    from costmodel.estimate.estimate import Estimate
    from costmodel.estimate.rules import Rule
    from costmodel.ir.sequence import LayerSequence
    from costmodel.serving.benchmark_planner import Planner
    from costmodel.serving.latency_table import LatencyTable
    from costmodel.serving.networks import Networks
    from costmodel.serving.predictor import Predictor

__all__ = ["CostModel"]

# Capacity of the cache of decompositions, in segments; a segment takes about 1 kB, less where layers repeat.
_MAX_CACHED_SEGMENTS = 100_000


class CostModel:
    """The cost model of one system: prices models, layers and search spaces.

    Example:
        >>> CostModel.load("c5.xlarge").predict("model.onnx").latency_us  # doctest: +SKIP
        41250.0
    """

    def __init__(self, predictor: "Predictor", runtime: Runtime, cache: Path) -> None:
        """Stores its parts; use `load` to make an instance.

        Args:
            predictor: Prices layer sequences on the system.
            runtime: Lowers models as the system does.
            cache: Folder of lowered graphs.
        """
        self._predictor = predictor
        self._runtime = runtime
        self._cache = cache
        self._cuts: BoundedCache[tuple[str, str, int], Decomposition] = BoundedCache(
            _MAX_CACHED_SEGMENTS, _num_segments
        )

    @classmethod
    def load(cls, system: str | None = None, *, store: str | None = None, home: Home | None = None) -> Self:
        """Loads the cost model of `system`.

        Args:
            system: Name of the system; by default this host, with one thread.
            store: URL of the results store; by default the one in the home folder.
            home: Folders of the installation; by default those that `costmodel.paths.find_home` returns.

        Raises:
            UnknownSystemError: Nothing is measured or trained for the system.
            ArtefactError: The regressor of the system cannot be loaded.
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
        """Predictor that prices layer sequences on the system."""
        return self._predictor

    @cached_property
    def _planner(self) -> "Planner":
        from costmodel.serving.benchmark_planner import Planner

        return Planner(self._predictor)

    def lower(self, model: Model) -> LayerGraph:
        """Lowers a model to the graph of layers that this system would execute.

        Raises:
            LoweringError: The runtime cannot build the model.
        """
        return lower_cached(self._runtime, model, self._predictor.system.settings.level, self._cache)

    def decompose(self, model: Model, granularity: int = 1) -> Decomposition:
        """Cuts a model into the layer sequences that this system would execute; recent results are cached.

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
        """Predicts the latency of a model on this system.

        Args:
            model: Path of an ONNX file, a model in memory, a result of `read_model`, or a torch module.
            example: Arguments to call a torch module with: one tensor, a sequence of positional arguments, or a mapping
                from names.
            batch: Size of the batch, where it is symbolic in the model.
            shapes: Full shape of each input, by name of the input.
            granularity: Maximum number of layers in a sequence. "auto" takes the best granularity at which all
                sequences are measured (the whole model counts as one), and 1 where there is none.
            cover: How sequences are chosen: "fixed" cuts where the DLBricks paper does, "cheapest" takes measured
                sequences wherever they fit.
            composition: Composition rule: "sequential" (the sum), "parallel" (the critical path), "workers:N" (a
                schedule on N workers), "module:function" for a rule of the user, or such a function; see
                `costmodel.estimate.rules`.
            partial: Whether to answer even if layers have no cost.
            measured: Whether to use measurements; without them every cost is predicted.

        Raises:
            ModelError: The model cannot be read or lowered.
            UnpricedLayersError: Layers have no cost and `partial` is false.
            RuleError: The composition rule does not exist, or it is the user's own and failed.
            MissingExtraError: The model is a torch module, and the package that exports it is not installed.
            ValueError: `batch` or `shapes` is given for a model whose shapes `read_model` has already fixed, or the
                granularity or the cover is invalid.
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
        """Predicts several models, in their order; models that are not in the cache are lowered on all processors.

        Args:
            models: Paths of ONNX files, models in memory, or results of `read_model`.
            granularity: Maximum number of layers in a sequence.
            measured: Whether to use measurements; without them every cost is predicted.

        Raises:
            ModelError: A model cannot be read or lowered; the message names it.
            UnpricedLayersError: A model has layers without a cost.
        """
        read = [model if isinstance(model, Model) else read_model(model) for model in models]
        with ThreadPoolExecutor(usable_cpus()) as pool:  # threads help: lowering spends its time in the runtime
            cuts = list(pool.map(lambda model: self.decompose(model, granularity), read))
        return self._predictor.estimate_all(cuts, measured=measured, warnings=[model.warnings for model in read])

    def sequences(self, block: Block) -> "tuple[LayerSequence, ...]":
        """Returns the layer sequences that this system would execute for a block in the middle of a network.

        Args:
            block: A layer (`costmodel.layer`), layers that follow each other, or a model.

        Raises:
            ModelError: The block cannot be read or lowered.
        """
        return block_sequences(block, self._runtime, self._predictor.system.settings.level, self._cache)

    def predict_layers(self, layers: Iterable[Block], *, measured: bool = True) -> "list[Cost]":
        """Prices layers in isolation, without an ONNX file; the cost of a block is the sum of its layers.

        Args:
            layers: Layers or blocks, as in `sequences`.
            measured: Whether to use measurements; without them every cost is predicted.

        Raises:
            ModelError: A layer or block cannot be lowered.
            UnpricedLayersError: A layer has no cost.
        """
        from costmodel.serving.networks import price_blocks

        return price_blocks(self._predictor, [self.sequences(block) for block in layers], measured=measured)

    def predict_networks(
        self, layers: Iterable[Block], networks: "Sequence[Sequence[int]] | np.ndarray", *, measured: bool = True
    ) -> "Networks":
        """Prices many networks that are composed of a few layers or blocks; returns arrays.

        Example:
            >>> found = cost_model.predict_networks([conv, relu], [[0, 1], [0, 1, 0, 1]])  # doctest: +SKIP
            >>> found.latency_us, found.interval_us  # doctest: +SKIP

        Args:
            layers: Layers or blocks, as in `sequences`.
            networks: For each network the positions in `layers` of its layers or blocks, in execution order: lists, or
                an array of integers, shape [num_networks, max_layers], padded with -1.
            measured: Whether to use measurements; without them every cost is predicted.

        Raises:
            ModelError: A layer cannot be lowered.
            UnpricedLayersError: A layer has no cost.
            ValueError: A network is empty, or has a position outside `layers`.
        """
        from costmodel.serving.networks import price_networks

        return price_networks(self._predictor, [self.sequences(block) for block in layers], networks, measured=measured)

    def latency_table(
        self, blocks: "Mapping[str, Mapping[str, Block | None]]", *, fixed: Iterable[Block] = (), measured: bool = True
    ) -> "LatencyTable":
        """Tabulates the cost of each choice of each block of a search space, for searches that look costs up.

        Args:
            blocks: For each block its choices by name; None stands for a choice without layers.
            fixed: Layers or blocks that every network of the space has as well.
            measured: Whether to use measurements; without them every cost is predicted.

        Raises:
            ModelError: A choice cannot be lowered.
            UnpricedLayersError: A choice has no cost.
        """
        from costmodel.serving.latency_table import tabulate_latencies

        choice_sequences = {
            name: {choice: () if block is None else self.sequences(block) for choice, block in choices.items()}
            for name, choices in blocks.items()
        }
        always = [sequence for block in fixed for sequence in self.sequences(block)]
        return tabulate_latencies(self._predictor, choice_sequences, always, measured=measured)


def _num_segments(cut: Decomposition) -> int:
    return len(cut.segments)


def _exported(module: object, example: object) -> "ModelProto":
    """Exports a torch module to ONNX."""
    from costmodel.onnx_io.torch_export import example_inputs, export_module

    return export_module(module, example_inputs(module, example))  # type: ignore[arg-type]
