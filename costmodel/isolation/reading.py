"""What a reader does with one task: it reads a model, lowers it and cuts it, or leaves it without its weights."""

import errno
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from costmodel.anonymise import anonymise
from costmodel.decomposition import Decomposition, decompose
from costmodel.errors import CostModelError, LoweringError, ModelReadError
from costmodel.graph import LayerGraph
from costmodel.isolation.folding import check_folding
from costmodel.isolation.limits import Limits
from costmodel.isolation.names import clean_name, clean_sentence, is_clean
from costmodel.isolation.wire import decomposition_to_dict
from costmodel.model import Model, read_model, without_weights
from costmodel.runtimes import Runtime, get_runtime

__all__ = ["Runtimes", "answer_task"]

_OPERATOR_LENGTH = 128  # as for graphs that arrive as JSON

Runtimes = dict[str, Runtime]


def answer_task(task: Mapping[str, Any], runtimes: Runtimes, limits: Limits) -> dict[str, Any]:
    """The answer to a task: a decomposition, the digest of a model that was kept, or an error with its sentence.

    Args:
        task: A model's `path` with `name`, `runtime`, `level`, `granularity`, `batch` and `shapes`; or a `graph` in
            place of the path; or a `path` and the file to `keep` the model in, without its weights.
        runtimes: Those that are loaded; others are added.
        limits: Limits of the task.
    """
    name = clean_name(task["name"])
    try:
        if "keep" in task:
            return _kept(name, Path(task["path"]), Path(task["keep"]), limits)
        return _lowered(name, task, runtimes, limits)
    except CostModelError as error:
        # Strangers called it by its name, and need not know where it lies.
        message = str(error).replace(task.get("path", "\0"), name)
        return {"error": type(error).__name__, "message": clean_sentence(message)}
    except MemoryError:
        return _refusal(f"{name} takes more memory than a model may")
    except Exception as error:  # noqa: BLE001  # of any reader: what it says is not for strangers
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return _refusal(f"{name} has a constant of more than {limits.file_bytes >> 20} MiB: send a part of it")
        return _refusal(f"{name} cannot be understood ({type(error).__name__}): check that it is a sound ONNX model")


def _refusal(sentence: str) -> dict[str, Any]:
    return {"error": "ModelError", "message": clean_sentence(sentence)}


def _lowered(name: str, task: Mapping[str, Any], runtimes: Runtimes, limits: Limits) -> dict[str, Any]:
    warnings: tuple[str, ...] = ()
    if "graph" in task:
        graph = LayerGraph.from_dict(task["graph"])
    else:
        model = _model_of(name, task, limits.layers)
        _check_count(name, len(model.proto.graph.node), limits)
        check_folding(name, model.proto)
        warnings = model.warnings
        graph = _runtime(task["runtime"], runtimes).lower(model, task["level"])
    _check_layers(name, graph, limits)
    cut = decompose(name, graph, task["granularity"])
    _check_sequences(name, cut, limits)
    return _with_clean_names(decomposition_to_dict(cut)) | {"warnings": [clean_sentence(one) for one in warnings]}


def _model_of(name: str, task: Mapping[str, Any], most: int) -> Model:
    shapes = {port: tuple(shape) for port, shape in (task.get("shapes") or {}).items()}
    return read_model(
        task["path"], batch=task.get("batch"), shapes=shapes, name=name, external="absent", most_layers=most
    )


def _runtime(name: str, runtimes: Runtimes) -> Runtime:
    if name not in runtimes:
        runtimes[name] = get_runtime(name)
    return runtimes[name]


def _kept(name: str, path: Path, kept: Path, limits: Limits) -> dict[str, Any]:
    """Leave a model without its weights, and without the name of any other file, in `kept`."""
    content = without_weights(path, external="absent", most_layers=limits.layers)
    if len(content) > limits.kept_bytes:
        raise ModelReadError(
            f"{name} has {len(content) >> 20} MiB besides its weights, and {limits.kept_bytes >> 20} MiB are accepted: "
            "send parts of it"
        )
    kept.write_bytes(content)
    # The same whether it comes with names and documentation or, as from the page, without.
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


def _check_sequences(name: str, cut: Decomposition, limits: Limits) -> None:
    for sequence in cut.unique.values():
        if len(sequence.text) > limits.sequence_bytes:
            raise LoweringError(
                f"{name} has {sequence.kind[:100]} with {len(sequence.text) >> 10} KiB of attributes, and "
                f"{limits.sequence_bytes >> 10} KiB are accepted: cut the model there, or ask for a lower granularity"
            )


def _with_clean_names(answer: dict[str, Any]) -> dict[str, Any]:
    pieces = [[place, [clean_name(layer) for layer in layers], needs] for place, layers, needs in answer["pieces"]]
    return answer | {"pieces": pieces}
