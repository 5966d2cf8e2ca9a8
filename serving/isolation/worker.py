"""Program that a reader process runs: `python -m costmodel.serving.isolation.worker LIMITS [FOLDERS]`.

LIMITS is a JSON object with the fields of `Limits`. FOLDERS is a JSON object with two lists of folders, "read" and
"write", none of which may contain another; after its start the reader can open no other
files except the libraries of Python.

It receives tasks as messages on standard input and answers each on standard output; see
`costmodel.serving.isolation.child`. Before any task, the reader sends a message about its confinement. It opens no
results store and has no secrets.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from onnx import ModelProto, TensorProto, helper

from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import DEFAULT_RUNTIME, get_runtime
from costmodel.serving.isolation.child import receive, send
from costmodel.serving.isolation.confinement import Confinement, confine
from costmodel.serving.isolation.limits import Limits, apply_limits, renew_cpu_limit
from costmodel.serving.isolation.reading import Runtimes, answer_task

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answers tasks until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that libraries print must not end up between answers
    with contextlib.suppress(OSError, AttributeError):  # the reader dies with the process that started it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # ONNX Runtime would start a telemetry thread, which is unwanted; one that is started before Landlock applies would
    # not be confined.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    limits = Limits(**json.loads(sys.argv[1]))
    runtimes = _warm_up()
    send(answers, {"confinement": _confine(limits).to_dict()})
    while (message := receive(sys.stdin.buffer)) is not None:
        renew_cpu_limit(limits)
        _answer(answers, answer_task(message[0], runtimes, limits), limits)


def _confine(limits: Limits) -> Confinement:
    missing = apply_limits(limits)
    if len(sys.argv) < 3:
        return Confinement(
            missing=(*missing, "Nothing is confined: the process that started the reader named no folders.")
        )
    folders = json.loads(sys.argv[2])
    found = confine([Path(path) for path in folders["read"]], [Path(path) for path in folders["write"]])
    return Confinement(found.landlock, found.seccomp, (*missing, *found.missing))


def _answer(answers: IO[bytes], document: Mapping[str, Any], limits: Limits) -> None:
    nbytes = len(json.dumps(document, allow_nan=False))
    if nbytes > limits.answer_bytes:
        refusal = f"has {nbytes >> 20} MiB of layers, and {limits.answer_bytes >> 20} MiB are accepted"
        name = document.get("model", "the model")
        document = {"error": "ModelError", "message": f"{name} {refusal}: send parts of it"}
    send(answers, document)


def _warm_up() -> Runtimes:
    """Loads what lowering needs, before memory and files are limited and before the first task."""
    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", port[:1], port[1:])
    proto: ModelProto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    runtime = get_runtime(DEFAULT_RUNTIME)
    decompose("probe", runtime.lower(read_model(proto), "all"))
    return {DEFAULT_RUNTIME: runtime}


if __name__ == "__main__":
    main()
