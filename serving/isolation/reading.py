"""Performs one task in a reader process: lowers and decomposes a model, or stores it without its weights."""

import errno
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from costmodel.errors import CostModelError, LoweringError, ModelReadError
from costmodel.ir.graph import LayerGraph
from costmodel.onnx_io.anonymisation import anonymise
from costmodel.onnx_io.model import Model, read_model, read_without_weights
from costmodel.partition.decomposition import Decomposition, decompose
from costmodel.runtimes.base import Runtime, get_runtime
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.names import clean_name, clean_sentence, is_clean
from costmodel.serving.isolation.wire import decomposition_to_dict

__all__ = ["Runtimes", "answer_task"]

_OPERATOR_LENGTH = 128  # as for graphs that arrive as JSON

Runtimes = dict[str, Runtime]


def answer_task(task: Mapping[str, Any], runtimes: Runtimes, limits: Limits) -> dict[str, Any]:
    """Performs a task and returns the answer: a decomposition, the digest of a stored model, or an error message.

    Args:
        task: The task as a JSON object. To lower a model, it has the fields of `costmodel.serving.isolation.task.Task`,
            with either `path` or `graph`. To store a model without weights, it has the `name` of the model, the `path`
            of its file, and in `keep` the path of the file to write.
        runtimes: Runtimes that are loaded, by name; one that the task needs is added.
        limits: Limits on the task.
    """
    name = clean_name(task["name"])
    try:
        if "keep" in task:
            return _store_without_weights(name, Path(task["path"]), Path(task["keep"]), limits)
        return _lower(name, task, runtimes, limits)
    except CostModelError as error:
        # The client knows the model by its name; the path on this host is none of its business.
        message = str(error).replace(task.get("path", "\0"), name)
        return {"error": type(error).__name__, "message": clean_sentence(message)}
    except MemoryError:
        return _refusal(f"{name} takes more memory than a model may")
    except Exception as error:  # noqa: BLE001  # of any library; its message is not for clients
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return _refusal(f"{name} has a constant of more than {limits.file_bytes >> 20} MiB: send a part of it")
        return _refusal(f"{name} cannot be read ({type(error).__name__}): check that it is a valid ONNX model")


def _refusal(sentence: str) -> dict[str, Any]:
    return {"error": "ModelError", "message": clean_sentence(sentence)}


def _lower(name: str, task: Mapping[str, Any], runtimes: Runtimes, limits: Limits) -> dict[str, Any]:
    warnings: tuple[str, ...] = ()
    if "graph" in task:
        graph = LayerGraph.from_dict(task["graph"])
    else:
        model = _model_of(name, task, limits.layers)
        _check_count(name, len(model.proto.graph.node), limits)
        warnings = model.warnings
        graph = _runtime(task["runtime"], runtimes).lower(model, task["level"])
    _check_layers(name, graph, limits)
    decomposition = decompose(name, graph, task["granularity"])
    _check_sequences(name, decomposition, limits)
    return _with_clean_names(decomposition_to_dict(decomposition)) | {
        "warnings": [clean_sentence(one) for one in warnings]
    }


def _model_of(name: str, task: Mapping[str, Any], most: int) -> Model:
    shapes = {port: tuple(shape) for port, shape in (task.get("shapes") or {}).items()}
    return read_model(
        task["path"], batch=task.get("batch"), shapes=shapes, values=task.get("values"), name=name, external="absent",
        max_layers=most,
    )  # fmt: skip


def _runtime(name: str, runtimes: Runtimes) -> Runtime:
    """Returns a runtime, which a confined reader can only have if it was loaded before the reader was confined.

    Raises:
        LoweringError: The runtime cannot be loaded now.
    """
    if name not in runtimes:
        try:
            runtimes[name] = get_runtime(name)
        except OSError as error:
            raise LoweringError(
                f"this service reads no model files for {name}, which cannot be loaded in a confined process: send the "
                f"layers that `costmodel lower MODEL --runtime {name} --json` prints"
            ) from error
    return runtimes[name]


def _store_without_weights(name: str, path: Path, kept: Path, limits: Limits) -> dict[str, Any]:
    """Reads the model file `path`, writes the model to the file `kept`, and returns the answer with the model's digest.

    What is written has no weights and no references to other files.
    """
    content = read_without_weights(path, external="absent", max_layers=limits.layers)
    if len(content) > limits.stripped_bytes:
        raise ModelReadError(
            f"{name} has {len(content) >> 20} MiB without its weights, and {limits.stripped_bytes >> 20} MiB are "
            "accepted: send parts of it"
        )
    kept.write_bytes(content)
    # The digest is the same whether the model comes with names and documentation or, as from the web page, without.
    return {"digest": hashlib.sha256(anonymise(ModelProto.FromString(content)).content).hexdigest()}


def _check_count(name: str, layers: int, limits: Limits) -> None:
    if layers > limits.layers:
        raise LoweringError(f"{name} has {layers} layers, and {limits.layers} are accepted: send parts of it")


def _check_layers(name: str, graph: LayerGraph, limits: Limits) -> None:
    _check_count(name, len(graph.layers), limits)
    if not graph.layers:
        raise LoweringError(f"{name} has no layers: all of it is constant, there is nothing to price")
    for layer in graph.layers:
        for text in (layer.op_type, layer.domain):
            if not is_clean(text, _OPERATOR_LENGTH):
                raise LoweringError(
                    f"{name} has a layer whose operator is called {clean_name(text)!r}: no operator has such a name; "
                    "export the model again"
                )


def _check_sequences(name: str, decomposition: Decomposition, limits: Limits) -> None:
    for sequence in decomposition.unique.values():
        if len(sequence.text) > limits.sequence_bytes:
            raise LoweringError(
                f"{name} has {sequence.kind[:100]} with {len(sequence.text) >> 10} KiB of attributes, and "
                f"{limits.sequence_bytes >> 10} KiB are accepted: cut the model there, or ask for a lower granularity"
            )


def _with_clean_names(answer: dict[str, Any]) -> dict[str, Any]:
    segments = [
        [place, [clean_name(layer) for layer in layers], predecessors]
        for place, layers, predecessors in answer["segments"]
    ]
    return answer | {"segments": segments}
