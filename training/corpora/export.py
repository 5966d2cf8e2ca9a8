"""A torch module as an ONNX file: the same bytes each time, and nothing in them of the machine that wrote them."""

import inspect
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

from costmodel.errors import MissingExtraError

try:
    import onnxscript  # noqa: F401  # what torch writes ONNX with, and does not bring along
    import torch
except ImportError as error:
    raise MissingExtraError("building a corpus", "corpus") from error

__all__ = ["export"]


def export(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write `module` as an ONNX file with static shapes.

    Args:
        module: Put into evaluation mode here.
        inputs: An example of each input, by the name it gets in the file. Where the names are not those of the
            parameters of `forward`, they are given to it in this order.
        path: Of the file; a model must stay below protobuf's 2 GiB.
    """
    parameters = inspect.signature(module.forward).parameters
    named = {name: inputs[name] for name in parameters if name in inputs}
    by_name = len(named) == len(inputs)
    # The exporter tells of its own future and of torchvision's absence: neither concerns who builds a corpus.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                () if by_name else tuple(inputs.values()),
                kwargs=named if by_name else None,
                input_names=list(named if by_name else inputs),
                dynamo=True,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _strip(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _strip(model: onnx.ModelProto) -> None:
    """Take out what is told beside the model: stack traces with local paths, names of passes, the build of torch."""
    model.ClearField("producer_version")
    for part in (model, *model.functions):
        _forget(part)
    for function in model.functions:
        _strip_nodes(function.node)
        _forget_all(function.value_info)
    _strip_graph(model.graph)


def _strip_graph(graph: onnx.GraphProto) -> None:
    _forget(graph)
    for values in (graph.input, graph.output, graph.value_info, graph.initializer):
        _forget_all(values)
    _strip_nodes(graph.node)


def _strip_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        _forget(node)
        for graph in _subgraphs(node):
            _strip_graph(graph)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _forget_all(parts: Iterable[Any]) -> None:
    for part in parts:
        _forget(part)


def _forget(part: Any) -> None:
    del part.metadata_props[:]
    part.ClearField("doc_string")
