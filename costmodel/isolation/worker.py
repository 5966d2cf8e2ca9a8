"""The program of a worker: `python -m costmodel.isolation.worker LIMITS`.

It receives tasks as messages on standard input and answers each on standard output; see `costmodel.isolation.child`.
It opens no store and knows no secret.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from costmodel.decomposition import decompose
from costmodel.errors import CostModelError, LoweringError
from costmodel.graph import LayerGraph
from costmodel.isolation.child import receive, send
from costmodel.isolation.limits import Limits, apply_limits, renew_cpu_limit
from costmodel.isolation.wire import decomposition_to_dict
from costmodel.model import Model, read_file, read_model
from costmodel.runtimes import Runtime, get_runtime

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer tasks until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come between answers
    with contextlib.suppress(OSError, AttributeError):  # a worker is of no use without who started it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    limits = Limits(**json.loads(sys.argv[1]))
    runtimes: dict[str, Runtime] = {}
    _warm_up(runtimes)
    apply_limits(limits)
    send(answers, {})
    while (message := receive(sys.stdin.buffer)) is not None:
        renew_cpu_limit(limits)
        send(answers, _answer(message[0], runtimes, limits))


def _answer(task: Mapping[str, Any], runtimes: dict[str, Runtime], limits: Limits) -> dict[str, Any]:
    try:
        return _lowered(task, runtimes, limits)
    except CostModelError as error:
        # Strangers called it by its name, and need not know where it lies.
        return {"error": type(error).__name__, "message": str(error).replace(task.get("path", "\0"), task["name"])}
    except MemoryError:
        return {"error": "ModelError", "message": f"{task['name']} takes more memory than a model may"}
    except Exception as error:  # noqa: BLE001  # of any reader: what it says is not for strangers
        return {"error": "ModelError", "message": f"{task['name']} cannot be understood ({type(error).__name__})"}


def _lowered(task: Mapping[str, Any], runtimes: dict[str, Runtime], limits: Limits) -> dict[str, Any]:
    if "keep" in task:
        return _keep(Path(task["path"]), Path(task["keep"]))
    if "graph" in task:
        graph = LayerGraph.from_dict(task["graph"])
        model = None
    else:
        model = _model_of(task)
        _check_layers(task["name"], len(model.proto.graph.node), limits)
        graph = _runtime(task["runtime"], runtimes).lower(model, task["level"])
    _check_layers(task["name"], len(graph.layers), limits)
    if not graph.layers:
        raise LoweringError(f"{task['name']} has no layers: all of it is constant, there is nothing to price")
    cut = decompose(task["name"], graph, task["granularity"])
    answer = decomposition_to_dict(cut)
    if model is not None:
        answer["warnings"] = model.warnings
    return answer


def _model_of(task: Mapping[str, Any]) -> Model:
    shapes = {name: tuple(shape) for name, shape in (task.get("shapes") or {}).items()}
    return read_model(task["path"], batch=task.get("batch"), shapes=shapes, name=task["name"])


def _keep(path: Path, kept: Path) -> dict[str, Any]:
    """Leave a model without its weights where it is found again."""
    partial = kept.with_suffix(f".{os.getpid()}")
    try:
        partial.write_bytes(read_file(path).SerializeToString(deterministic=True))
        os.replace(partial, kept)
    finally:
        partial.unlink(missing_ok=True)
    return {}


def _check_layers(name: str, layers: int, limits: Limits) -> None:
    if layers > limits.layers:
        raise LoweringError(f"{name} has {layers} layers, and {limits.layers} are accepted: send parts of it")


def _runtime(name: str, runtimes: dict[str, Runtime]) -> Runtime:
    if name not in runtimes:
        runtimes[name] = get_runtime(name)
    return runtimes[name]


def _warm_up(runtimes: dict[str, Runtime]) -> None:
    """Load what lowering needs before memory is limited and anybody waits."""
    from onnx import TensorProto, helper

    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", port[:1], port[1:])
    proto: ModelProto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    decompose("probe", _runtime("onnxruntime", runtimes).lower(read_model(proto), "all"))


if __name__ == "__main__":
    main()
