"""Reads, lowers and cuts the models of a corpus into layer sequences, stores them, and groups them for measuring."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import ModelError
from costmodel.ir.footprint import read_bytes
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.groups import Group
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import Decomposition, decompose, whole_model
from costmodel.progress import Progress
from costmodel.runtimes.base import Runtime
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.store.store import Store

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["DecomposedModel", "decompose_models", "measurement_groups", "put_models"]


@dataclass(frozen=True, slots=True)
class DecomposedModel:
    """A model of a corpus, read, lowered and cut.

    Attributes:
        model: The model as read.
        family: Architecture lineage; empty for a collection of operators, which is not measured as a whole.
        graph: Graph of the layers of the model.
        decomposition: Layer sequences of the model.
        whole: The whole model as one sequence.
    """

    model: Model
    family: str
    graph: LayerGraph
    decomposition: Decomposition
    whole: LayerSequence

    def cut(self, granularity: int) -> Decomposition:
        """Cuts the model at another granularity."""
        return decompose(self.model.name, self.graph, granularity)

    @property
    def footprint_bytes(self) -> int:
        """Footprint of the model: bytes of weights that all of its layers read."""
        return sum(read_bytes(segment.sequence) for segment in self.decomposition.segments)


def decompose_models(
    models: Sequence["CorpusModel"],
    runtime: Runtime,
    level: str,
    cache: Path,
    *,
    granularity: int = 1,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    refused: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> list[DecomposedModel]:
    """Reads, lowers and cuts each model of a corpus.

    Args:
        models: Models of the corpus.
        runtime: Runtime that lowers the models.
        level: Optimisation level.
        cache: Folder of lowered graphs.
        granularity: Maximum number of layers in a sequence.
        batch: Size of the batch; see `read_model`.
        shapes: Shapes of inputs by name; see `read_model`.
        refused: Receives the reason for each model that cannot be used; None to raise on the first of them.
        progress: Progress callback, called before each model and at the end.

    Raises:
        ModelError: A model cannot be read or lowered, and `refused` is None or no model can be used; the message names
            the model.
    """
    items: list[DecomposedModel] = []
    for done, item in enumerate(models):
        if progress is not None:
            progress(done, len(models), item.name)
        try:
            model = read_model(item.path, batch=batch, shapes=shapes, name=item.name)
            graph = lower_cached(runtime, model, level, cache)
        except ModelError as error:
            if refused is None or (done == len(models) - 1 and not items):
                raise
            refused[item.name] = str(error)
            continue
        cut = decompose(item.name, graph, granularity)
        items.append(DecomposedModel(model, item.family, graph, cut, whole_model(graph)))
    if progress is not None:
        progress(len(models), len(models), "")
    return items


def put_models(
    store: Store, models: Iterable[DecomposedModel], lowering: str, granularities: Sequence[int] = (1,)
) -> None:
    """Stores the layer sequences and the families of the models of a corpus.

    Args:
        store: Store that receives the models.
        models: Results of `decompose_models`.
        lowering: Result of `lowering_key` for the runtime and level that lowered the models.
        granularities: Granularities at which the models are cut.
    """
    for item in models:
        for granularity in granularities:
            store.put_model(
                item.cut(granularity), item.whole, digest=item.model.digest, family=item.family, lowering=lowering
            )


def measurement_groups(item: DecomposedModel, granularities: Sequence[int]) -> Iterator[Group]:
    """Yields the group of a model's unique sequences at each granularity; the first group includes the whole model.

    An item without a family, a mere collection of operators, is not measured as a whole.
    """
    footprint = item.footprint_bytes
    for position, granularity in enumerate(granularities):
        yield Group(
            label=item.model.name,
            sequences=tuple(item.cut(granularity).unique.values()),
            whole=item.whole if item.family and not position else None,
            model=item.model,
            footprint_bytes=footprint,
        )
