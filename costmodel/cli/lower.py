"""Implements `costmodel lower`, which prints the layers that the runtime executes for a model."""

from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    BatchOption,
    JsonOption,
    LevelOption,
    RuntimeOption,
    ShapeOption,
    ValueOption,
    parse_shapes,
    parse_values,
)
from costmodel.cli.output import print_compact_json, print_table

if TYPE_CHECKING:
    from costmodel.ir.graph import TensorType

__all__ = ["lower"]


@app.command()
def lower(
    model: Annotated[str, typer.Argument(help="An ONNX file, or the name of a model in a corpus.")],
    batch: BatchOption = None,
    shape: ShapeOption = None,
    value: ValueOption = None,
    runtime: RuntimeOption = "onnxruntime",
    level: LevelOption = "all",
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Number layers and values instead of naming them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print a model's layers as the runtime executes them.

    With --json, prints them as a graph without weights, which a service accepts in place of the model.
    """
    from costmodel.onnx_io.model import read_model
    from costmodel.runtimes.lowering_cache import lower_cached
    from costmodel.training.corpus import corpus_models

    context = Context(runtime_name=runtime)
    matches = list(corpus_models(model))
    if len(matches) != 1:
        raise typer.BadParameter(f"{model} is {len(matches)} models: name one file", param_hint="MODEL")
    read = read_model(matches[0].path, batch=batch, shapes=parse_shapes(shape), values=parse_values(value))
    graph = lower_cached(context.runtime, read, level, context.home.cache)
    graph = graph.anonymous() if anonymous else graph
    if json:
        print_compact_json(graph.to_dict())
        return
    print_table(
        ("layer", "operator", "output"),
        [
            (
                layer.name,
                f"{layer.domain}.{layer.op_type}" if layer.domain else layer.op_type,
                " ".join(_shown(graph.types[name]) for name in layer.outputs if name),
            )
            for layer in graph.layers
        ],
        left=3,
    )


def _shown(kind: "TensorType") -> str:
    shape = ",".join(map(str, kind.shape))
    return f"{kind.dtype}[{shape}]" + (" in blocks" if kind.blocked else "")
