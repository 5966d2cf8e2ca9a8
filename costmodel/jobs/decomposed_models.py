"""Reads, lowers and cuts the models of a corpus into layer sequences, stores them, and groups them for measuring."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import ModelError
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.groups import Group
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import Decomposition, decompose, whole_model
from costmodel.progress import Progress, reported
from costmodel.runtimes.base import Runtime
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.store.store import Store

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["DecomposedModel", "decompose_models", "measurement_groups", "put_models"]


@dataclass(frozen=True, slots=True)
class DecomposedModel:
    """A model of a corpus that has been read, lowered and cut into layer sequences.

    Attributes:
        model: The model as it was read from its file.
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
        """Returns the layer sequences of the model at a granularity, which may differ from that of `decomposition`."""
        return decompose(self.model.name, self.graph, granularity)

    @property
    def footprint_bytes(self) -> int:
        """Returns the footprint of the model: bytes of weights that its layers read, those that several share once."""
        return int(self.decomposition.footprint.weights)


def decompose_models(
    models: Sequence["CorpusModel"],
    runtime: Runtime,
    level: str,
    cache: Path,
    *,
    granularity: int = 1,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, float] | None = None,
    refused: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> list[DecomposedModel]:
    """Reads and lowers each model of a corpus, and cuts it into layer sequences.

    Args:
        models: Models of the corpus.
        runtime: Runtime that lowers the models.
        level: Optimisation level of the lowering.
        cache: Folder in which lowered graphs are cached.
        granularity: Maximum number of layers in a sequence.
        batch: Batch size to use where a model leaves it symbolic; see `read_model`.
        shapes: Full shapes of inputs, by name of the input; see `read_model`.
        values: Values of inputs that control what a model does, by name of the input; see `read_model`.
        refused: Mapping to which the reason is added for each model that cannot be used, by its name; None to raise an
            error at the first such model.
        progress: Progress callback, called before each model and at the end.

    Raises:
        ModelError: A model cannot be read or lowered, and `refused` is None or no model can be used; the message names
            the model.
    """
    items: list[DecomposedModel] = []
    for item in reported(models, lambda item: item.name, progress):
        try:
            model = read_model(item.path, batch=batch, shapes=shapes, values=values, name=item.name)
            graph = lower_cached(runtime, model, level, cache)
        except ModelError as error:
            if refused is None or (item is models[-1] and not items):
                raise
            refused[item.name] = str(error)
            continue
        cut = decompose(item.name, graph, granularity)
        items.append(DecomposedModel(model, item.family, graph, cut, whole_model(graph)))
    return items


def put_models(
    store: Store, models: Iterable[DecomposedModel], lowering: str, granularities: Sequence[int] = (1,)
) -> None:
    """Stores the layer sequences and the families of the models of a corpus.

    Args:
        store: Store that receives the models.
        models: Results of `decompose_models`.
        lowering: Result of `lowering_key` for the runtime and level that lowered the models.
        granularities: Granularities to cut the models at.
    """
    for item in models:
        for granularity in granularities:
            store.put_model(
                item.cut(granularity), item.whole, digest=item.model.digest, family=item.family, lowering=lowering
            )


def measurement_groups(item: DecomposedModel, granularities: Sequence[int]) -> Iterator[Group]:
    """Yields for each granularity a group of the model's unique sequences; the first group also has the whole model.

    A model without a family is a mere collection of operators: none of its groups has the whole model.
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
