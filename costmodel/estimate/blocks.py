"""Turns blocks of a search space into the layer sequences that a runtime executes for them."""

from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto

from costmodel.ir.sequence import LayerSequence
from costmodel.onnx_io.model import Model, read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import Runtime
from costmodel.runtimes.lowering_cache import lower_cached
from costmodel.synthetic.described_layers import LayerSpec, block_model, is_block_layer

__all__ = ["Block", "block_sequences"]

# A layer, layers that follow each other, or a model. A layer sequence, which was cut from a model before, is taken as
# it is.
Block = LayerSpec | LayerSequence | Sequence[LayerSpec | LayerSequence] | Model | ModelProto | str | Path


def block_sequences(block: Block, runtime: Runtime, level: str, cache: Path) -> tuple[LayerSequence, ...]:
    """Returns the layer sequences that a runtime executes for a block when other layers surround it in a network.

    Args:
        block: The block: one layer, several layers in a row, or a model.
        runtime: Runtime that would execute the block.
        level: Optimisation level at which the runtime lowers the block.
        cache: Folder in which lowered graphs are cached.

    Raises:
        ModelError: The block cannot be read or lowered.
    """
    if isinstance(block, LayerSequence):
        return (block,)
    if isinstance(block, LayerSpec):
        return _lowered(block_model([block], block.op_type), runtime, level, cache)
    if isinstance(block, Model | ModelProto | str | Path):
        return _lowered(block, runtime, level, cache)
    found: list[LayerSequence] = []
    specs: list[LayerSpec] = []
    for part in (*block, None):
        if isinstance(part, LayerSpec):
            specs.append(part)
            continue
        if specs:
            name = "+".join(spec.op_type for spec in specs)
            found.extend(_lowered(block_model(specs, name), runtime, level, cache))
            specs = []
        if part is not None:
            found.append(part)
    return tuple(found)


def _lowered(
    source: Model | ModelProto | str | Path, runtime: Runtime, level: str, cache: Path
) -> tuple[LayerSequence, ...]:
    model = source if isinstance(source, Model) else read_model(source)
    graph = lower_cached(runtime, model, level, cache)
    inner = {layer.name for layer, is_inner in zip(graph.layers, is_block_layer(graph), strict=True) if is_inner}
    segments = decompose(model.name, graph).segments
    return tuple(segment.sequence for segment in segments if inner.intersection(segment.layers))
