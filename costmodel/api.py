"""Predictions in the caller's own process: the class that `from costmodel import CostModel` imports."""

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
    from costmodel.jobs.tuning.model_files import Within
    from costmodel.serving.benchmark_planner import Planner
    from costmodel.serving.capacity import Capacity
    from costmodel.serving.latency_table import LatencyTable
    from costmodel.serving.networks import Networks
    from costmodel.serving.predictor import Predictor
    from costmodel.serving.tuning.answer import TuneAnswer
    from costmodel.serving.tuning.question import Objective
    from costmodel.traffic.scenarios import Scenario

__all__ = ["CostModel"]

# Capacity of the cache of decompositions, in segments; a segment takes about 1 kB, less where layers repeat.
_MAX_CACHED_SEGMENTS = 100_000


class CostModel:
    """A cost model of one system, which predicts the latencies of models, layers and search spaces.

    Example:
        >>> CostModel.load("c5.xlarge").predict("model.onnx").latency_us  # doctest: +SKIP
        41250.0
    """

    def __init__(self, predictor: "Predictor", runtime: Runtime, cache: Path, bundles: Path | None = None) -> None:
        """Builds a cost model from parts that are loaded already; use `load` to get the cost model of a named system.

        Args:
            predictor: Predictor that prices layer sequences on the system.
            runtime: Runtime that lowers models as the system would.
            cache: Folder in which lowered graphs are cached.
            bundles: Folder of trained regressors; by default that of the default results store.
        """
        self._bundles = bundles
        self._predictor = predictor
        self._runtime = runtime
        self._cache = cache
        self._cuts: BoundedCache[tuple[str, str, int], Decomposition] = BoundedCache(
            _MAX_CACHED_SEGMENTS, _num_segments
        )

    @classmethod
    def load(
        cls,
        system: str | None = None,
        *,
        store: str | None = None,
        home: Home | None = None,
        runtime: Runtime | None = None,
    ) -> Self:
        """Loads the cost model of `system`.

        Args:
            system: Name of the system; by default this host with one thread.
            store: URL of the results store; by default the one in the home folder.
            home: Folders of the installation; by default those that `costmodel.paths.find_home` returns.
            runtime: Runtime that lowers models; by default the one that the system uses, as it is installed here.

        Raises:
            UnknownSystemError: Nothing is measured or trained for the system.
            ArtefactError: The regressor of the system cannot be loaded.
        """
        from costmodel.serving.predictor import Predictor

        home = home or find_home()
        name = system or this_system(runtime or get_runtime(DEFAULT_RUNTIME), RuntimeSettings()).name
        bundles = home.bundles_of(store)
        predictor = Predictor.load(Store(store or home.store_url, create=store is None), bundles, name)
        return cls(predictor, runtime or get_runtime(predictor.system.runtime), home.cache, bundles)

    @property
    def system(self) -> str:
        """Returns the name of the system."""
        return self._predictor.system.name

    @property
    def predictor(self) -> "Predictor":
        """Returns the predictor that prices layer sequences on the system."""
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
        """Cuts a model into the layer sequences that this system would execute; recent results are kept in memory.

        Args:
            model: Model to cut, a result of `read_model`.
            granularity: Maximum number of layers in a sequence.

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
        values: Mapping[str, float] | None = None,
        granularity: Granularity = 1,
        cover: str = FIXED,
        composition: "str | Rule" = "sequential",
        partial: bool = False,
        measured: bool = True,
        beside: "Sequence[str | Path | ModelProto | Model]" = (),
    ) -> "Estimate":
        """Predicts the latency of a model on this system.

        Args:
            model: Path of an ONNX file, a model in memory, a result of `read_model`, or a torch module.
            example: Arguments with which a torch module is called while it is exported to ONNX: one tensor, a sequence
                of positional arguments, or a mapping of keyword arguments; required for a torch module, and for nothing
                else.
            batch: Batch size to use where the model leaves it symbolic.
            shapes: Full shape of each input, by name of the input.
            values: Values of inputs that control what the model does, by name; see `read_model`.
            granularity: Maximum number of layers in a sequence. "auto" takes the granularity with the smallest expected
                error among those at which all sequences are measured (the whole model as one sequence included), and 1
                if there is none.
            cover: How sequences are chosen: "fixed" cuts where the DLBricks paper does, "cheapest" takes measured
                sequences wherever they fit.
            composition: Composition rule: "sequential" (the sum), "parallel" (the critical path), "workers:N" (a
                schedule on N workers), "module:function" for a rule of the user's own, or the function itself; see
                `costmodel.estimate.rules`.
            partial: Whether to return an estimate even if layers have no cost; if false, that is an error.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.
            beside: Models that run at the same time, again and again, each on CPUs of its own; the latency is then that
                of the model beside them.

        Raises:
            ModelError: The model cannot be read or lowered.
            UnknownSystemError: `beside` is given, and the interference of the system was not measured.
            UnpricedLayersError: Layers have no cost and `partial` is false.
            RuleError: The composition rule does not exist, or it is the user's own and failed.
            MissingExtraError: The model is a torch module, and the package that exports it is not installed.
            ValueError: `batch`, `shapes` or `values` is given for a model whose shapes `read_model` has already
                fixed, or the granularity or the cover is invalid.
        """
        if example is not None:
            model = _exported(model, example)
        if not isinstance(model, str | Path | ModelProto | Model):
            raise ValueError(f"{type(model).__name__} is no model: give a torch module with an example of its input")
        if not isinstance(model, Model):
            model = read_model(model, batch=batch, shapes=shapes, values=values)
        elif batch is not None or shapes is not None or values is not None:
            raise ValueError(
                f"{model.name} was read with its shapes fixed: give batch, shapes and values to read_model"
            )
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
        estimate = self._predictor.estimate(
            decomposition,
            composition=composition,
            partial=partial,
            measured=measured,
            construction=construction,
            warnings=warnings,
        )
        if not beside:
            return estimate
        from costmodel.serving.interference import estimate_beside

        others = [one if isinstance(one, Model) else read_model(one) for one in beside]
        cuts = [self.decompose(one) for one in others]
        estimates = self._predictor.estimate_all(
            cuts, partial=partial, measured=measured, warnings=[one.warnings for one in others]
        )
        priced = list(zip(estimates, cuts, strict=True))
        return estimate_beside(self._predictor.system, (estimate, decomposition), priced)

    def predict_many(
        self, models: "Iterable[str | Path | ModelProto | Model]", *, granularity: int = 1, measured: bool = True
    ) -> "list[Estimate]":
        """Predicts the latencies of several models and returns the estimates in the order of the models.

        Models whose lowered graph is not in the cache are lowered in parallel on all processors.

        Args:
            models: Paths of ONNX files, models in memory, or results of `read_model`.
            granularity: Maximum number of layers in a sequence.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.

        Raises:
            ModelError: A model cannot be read or lowered; the message names the model.
            UnpricedLayersError: A model has layers without a cost.
        """
        read = [model if isinstance(model, Model) else read_model(model) for model in models]
        with ThreadPoolExecutor(usable_cpus()) as pool:  # threads help: lowering spends its time in the runtime
            cuts = list(pool.map(lambda model: self.decompose(model, granularity), read))
        return self._predictor.estimate_all(cuts, measured=measured, warnings=[model.warnings for model in read])

    def capacity(
        self,
        model: "str | Path | ModelProto",
        *,
        slo: str | None = None,
        arrivals_per_s: float | None = None,
        replicas: int | None = None,
        batch_policy: str = "none",
        scenario: "Scenario" = "server",
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        values: Mapping[str, float] | None = None,
        granularity: int = 1,
        measured: bool = True,
        usd_per_hour: float | None = None,
    ) -> "Capacity":
        """Returns how much traffic a model carries on this system, from a simulation of its queue.

        Args:
            model: Path of an ONNX file, or a model in memory.
            slo: Latency objective, such as "p99=50ms"; required in the scenario "server".
            arrivals_per_s: Rate of arrivals in requests a second; None to ask for the highest rate only.
            replicas: Number of replicas, each on a machine of its own; None for as many as the arrivals need.
            batch_policy: How requests are joined to batches: "none", or like "max=8,wait=5ms".
            scenario: MLPerf's scenario: "server", "offline", "single-stream" or "multi-stream".
            shapes: Full shape of each input for one request, by name of the input; in batches the first axis of inputs
                of rank 2 or more is multiplied.
            values: Values of inputs that control what the model does, by name; see `read_model`.
            granularity: Maximum number of layers in a sequence.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.
            usd_per_hour: Price of one machine in US dollars per hour; by default that of the catalogue.

        Raises:
            ModelError: The model cannot be read or lowered at one of the batch sizes.
            UnpricedLayersError: Layers have no cost.
            TrafficError: The arguments contradict each other.
            ValueError: The objective or the batching policy cannot be parsed.
        """
        from costmodel.serving.capacity import TrafficQuestion, plan_capacity, shapes_of_batch
        from costmodel.systems.catalogue import listed_price
        from costmodel.traffic.objective import parse_batch_policy, parse_objective

        policy = parse_batch_policy(batch_policy)
        objective = None if slo is None else parse_objective(slo)
        question = TrafficQuestion(scenario, objective, policy, arrivals_per_s, replicas)
        estimates = {
            size: self.predict(
                model, batch=None if policy.max_size == 1 else size, shapes=shapes_of_batch(shapes or {}, size),
                values=values, granularity=granularity, measured=measured,
            )
            for size in policy.sizes
        }  # fmt: skip
        price = listed_price(self.system, self._predictor.system.host) if usd_per_hour is None else usd_per_hour
        return plan_capacity(estimates, self._predictor.variation, question, usd_per_hour=price)

    def tune(
        self,
        model: "str | Path | ModelProto",
        *,
        objective: "Objective" = "latency",
        slo: str | None = None,
        within: "Within" = "accuracy-safe",
        int8: str | Path | None = None,
        max_batch: int = 32,
        budget_s: float = 60.0,
        measure: bool = True,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        values: Mapping[str, float] | None = None,
        usd_per_hour: float | None = None,
    ) -> "TuneAnswer":
        """Finds the settings under which a model runs best on the host of this system.

        Every setting (runtime, threads, level, spinning, precision and, for throughput and cost, batch and number of
        sessions) is priced by prediction, and the best few are then run on this host.

        Args:
            model: Path of an ONNX file, or a model in memory.
            objective: What is to be best: "latency", "throughput" or "cost".
            slo: Latency that a percentile of the runs must not exceed, such as "p99=50ms".
            within: "accuracy-safe" takes the files as they are; "quantised" also makes an int8 version for timing.
            int8: Path of the int8 version (QDQ) of the model.
            max_batch: Largest batch for throughput and cost, if the file leaves the size of the batch open.
            budget_s: Time for measuring, in seconds.
            measure: Whether the best settings are run; otherwise the answer is from predictions alone.
            shapes: Full shape of each input for one sample, by name of the input.
            values: Values of inputs that control what the model does, by name; see `read_model`.
            usd_per_hour: Price of the machine in US dollars per hour; by default that of the catalogue.

        Raises:
            ModelError: A model cannot be read.
            TuningError: The arguments contradict each other, the host of the system is another one and settings are to
                be measured, or no setting is known or runs.
            ValueError: The objective cannot be parsed.
        """
        from costmodel.jobs.tuning.model_files import open_files
        from costmodel.jobs.tuning.tune import Tuner
        from costmodel.serving.tuning.question import TuneQuestion
        from costmodel.systems.catalogue import listed_price
        from costmodel.traffic.objective import parse_objective

        bundles = self._bundles or find_home().bundles
        tuner = Tuner.of(self._predictor.store, bundles, self._cache, self.system)
        price = listed_price(self.system, tuner.host) if usd_per_hour is None else usd_per_hour
        question = TuneQuestion(objective, None if slo is None else parse_objective(slo), price, max_batch)
        with open_files(model, shapes=shapes, values=values, int8=int8, within=within) as files:
            return tuner.tune(files, question, measure=measure, budget_s=budget_s)

    def sequences(self, block: Block) -> "tuple[LayerSequence, ...]":
        """Returns the layer sequences that this system executes for a block when other layers surround it in a network.

        Args:
            block: A layer (made by `costmodel.layer`), a list of layers that follow each other, or a model.

        Raises:
            ModelError: The block cannot be read or lowered.
        """
        return block_sequences(block, self._runtime, self._predictor.system.settings.level, self._cache)

    def predict_layers(self, layers: Iterable[Block], *, measured: bool = True) -> "list[Cost]":
        """Returns the cost of each layer or block in isolation; that of a block is the sum of its layers' costs.

        Args:
            layers: Layers or blocks, each as in `sequences`; no ONNX file is needed.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.

        Raises:
            ModelError: A layer or block cannot be lowered.
            UnpricedLayersError: A layer has no cost.
        """
        from costmodel.serving.networks import price_blocks

        return price_blocks(self._predictor, [self.sequences(block) for block in layers], measured=measured)

    def predict_networks(
        self,
        layers: Iterable[Block],
        networks: "Sequence[Sequence[int]] | np.ndarray",
        *,
        measured: bool = True,
        on: str | None = None,
    ) -> "Networks":
        """Predicts the latencies of many networks that are composed of the same few layers or blocks; returns arrays.

        Example:
            >>> found = cost_model.predict_networks([conv, relu], [[0, 1], [0, 1, 0, 1]])  # doctest: +SKIP
            >>> found.latency_us, found.interval_us  # doctest: +SKIP

        Args:
            layers: Layers or blocks that networks are composed of, each as in `sequences`.
            networks: For each network, the positions in `layers` (from 0) of the layers or blocks that it consists of,
                in execution order: lists of integers, or an array of integers of shape [num_networks, max_layers],
                padded with -1.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.
            on: Address of the scheduler of a Dask cluster whose workers price the networks, such as
                "tcp://head:8786"; by default they are priced in this process. It is worth it from about a hundred
                thousand networks on.

        Raises:
            ModelError: A layer or block cannot be lowered.
            UnpricedLayersError: A layer has no cost.
            ValueError: A network is empty, or contains a position outside `layers`.
            ClusterError: The cluster cannot be reached, has no worker, or its workers cannot price.
            MissingExtraError: `on` is given and Dask is not installed.
        """
        blocks = [self.sequences(block) for block in layers]
        if on is not None:
            from costmodel.serving.networks_on_cluster import price_networks_on

            return price_networks_on(on, self._predictor, blocks, networks, measured=measured)
        from costmodel.serving.networks import price_networks

        return price_networks(self._predictor, blocks, networks, measured=measured)

    def latency_table(
        self, blocks: "Mapping[str, Mapping[str, Block | None]]", *, fixed: Iterable[Block] = (), measured: bool = True
    ) -> "LatencyTable":
        """Returns the cost of each choice of each block of a search space, as a table in which a search looks costs up.

        Args:
            blocks: Choices of each block, by name of the block and then by name of the choice; None stands for a choice
                without layers.
            fixed: Layers or blocks that every network of the search space has besides its choices.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.

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
    """Exports a torch module to ONNX by calling it with `example`, and returns the ONNX model."""
    from costmodel.onnx_io.torch_export import example_inputs, export_module

    return export_module(module, example_inputs(module, example))  # type: ignore[arg-type]
