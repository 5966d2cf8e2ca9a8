"""A torch module as ONNX: the same bytes each time, and nothing in them of the machine that wrote them."""

import inspect
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from costmodel.errors import MissingExtraError

try:
    import onnxscript  # noqa: F401  # what torch writes ONNX with, and does not bring along
    import torch
except ImportError as error:
    raise MissingExtraError("exporting a torch module", "torch") from error

__all__ = ["example_inputs", "export_module", "write_module"]


def write_module(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write `module` as an ONNX file with static shapes; a model must stay below protobuf's 2 GiB.

    Args:
        module: As `export_module`.
        inputs: As there.
        path: Of the file.
    """
    path.write_bytes(export_module(module, inputs).SerializeToString(deterministic=True))


def example_inputs(
    module: torch.nn.Module, example: torch.Tensor | Sequence[Any] | Mapping[str, Any]
) -> dict[str, Any]:
    """An example of each input of a module, by the name of its parameter.

    Args:
        module: Whose `forward` would be called.
        example: What it would be called with: a tensor, several in order, or by name.
    """
    if isinstance(example, Mapping):
        return dict(example)
    given = (example,) if isinstance(example, torch.Tensor) else tuple(example)
    signature = inspect.signature(module.forward)
    found: dict[str, Any] = {}
    for name, value in signature.bind(*given).arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:  # *images takes several, by position
            found |= {f"{name}_{place}": one for place, one in enumerate(value)}
        else:
            found[name] = value
    return found


def export_module(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> onnx.ModelProto:
    """`module` as an ONNX model with static shapes.

    Args:
        module: Left as it was; exported in evaluation mode.
        inputs: An example of each input, by the name that it gets in the model. Where the names are not those of the
            parameters of `forward`, they are given to it in this order.
    """
    parameters = inspect.signature(module.forward).parameters
    named = {name: inputs[name] for name in parameters if name in inputs}
    by_name = len(named) == len(inputs)
    # The exporter tells of its own future and of torchvision's absence: neither concerns who builds a corpus.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    training = [(part, part.training) for part in module.modules()]
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                () if by_name else tuple(inputs.values()),
                kwargs=named if by_name else None,
                # The parts of an input that is a tuple get names of the exporter's.
                input_names=list(named if by_name else inputs)
                if all(isinstance(value, torch.Tensor) for value in inputs.values())
                else None,
                dynamo=True,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
        for part, was in training:
            part.training = was
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _strip(model)
    return model


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
