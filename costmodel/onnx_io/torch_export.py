"""Exports torch modules as ONNX, reproducibly: the bytes are the same each time and do not depend on the machine."""

import inspect
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from costmodel.errors import MissingExtraError
from costmodel.ir.protobuf import messages
from costmodel.process_state import log_levels

try:
    import onnxscript  # noqa: F401  # torch needs it for ONNX export, but does not install it
    import torch
except ImportError as error:
    raise MissingExtraError("exporting a torch module", "torch") from error

__all__ = ["example_inputs", "export_module", "write_module"]

# The parts of a model that have documentation and metadata.
_WITH_METADATA: tuple[Any, ...] = (
    onnx.FunctionProto,
    onnx.GraphProto,
    onnx.NodeProto,
    onnx.TensorProto,
    onnx.ValueInfoProto,
)


def write_module(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], path: Path) -> None:
    """Writes `module` as an ONNX file with static shapes; the model must be smaller than protobuf's limit of 2 GiB.

    Args:
        module: Module to export; unchanged afterwards.
        inputs: An example of each input by name, as in `export_module`.
        path: Path of the file to write.
    """
    path.write_bytes(export_module(module, inputs).SerializeToString(deterministic=True))


def example_inputs(
    module: torch.nn.Module, example: torch.Tensor | Sequence[Any] | Mapping[str, Any]
) -> dict[str, Any]:
    """Returns an example of each input of a module, by the name of the parameter of `forward` that receives it.

    Args:
        module: Module whose `forward` accepts the example.
        example: Arguments of `forward`: one tensor, several in order, or several by name.
    """
    if isinstance(example, Mapping):
        return dict(example)
    arguments = (example,) if isinstance(example, torch.Tensor) else tuple(example)
    signature = inspect.signature(module.forward)
    by_name: dict[str, Any] = {}
    for name, value in signature.bind(*arguments).arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:  # such as *images
            by_name |= {f"{name}_{position}": item for position, item in enumerate(value)}
        else:
            by_name[name] = value
    return by_name


def export_module(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> onnx.ModelProto:
    """Exports `module` as an ONNX model with static shapes.

    Args:
        module: Module to export; exported in evaluation mode and unchanged afterwards.
        inputs: An example of each input, by its name in the exported model. If the names are not all parameters of
            `forward`, the inputs are passed to `forward` by position, in this order.
    """
    parameters = inspect.signature(module.forward).parameters
    named = {name: inputs[name] for name in parameters if name in inputs}
    by_name = len(named) == len(inputs)
    # The exporter warns about its own deprecations and the absence of torchvision; neither matters here.
    training = [(part, part.training) for part in module.modules()]
    try:
        with log_levels({"torch.onnx": logging.ERROR}), warnings.catch_warnings(action="ignore"), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                () if by_name else tuple(inputs.values()),
                kwargs=named if by_name else None,
                # If an input is a tuple, the exporter chooses the names of its elements.
                input_names=list(named if by_name else inputs)
                if all(isinstance(value, torch.Tensor) for value in inputs.values())
                else None,
                dynamo=True,
                verbose=False,
            )
    finally:
        for part, was in training:
            part.training = was
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _strip_metadata(model)
    return model


def _strip_metadata(model: onnx.ModelProto) -> None:
    """Removes the exporter's metadata, in place: stack traces with local paths, compiler passes, torch's version."""
    model.ClearField("producer_version")
    for part in (model, *(part for kind in _WITH_METADATA for part in messages(model, kind))):
        del part.metadata_props[:]
        part.ClearField("doc_string")
