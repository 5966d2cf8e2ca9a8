"""Program that a reader process runs: `python -m costmodel.serving.isolation.reader LIMITS [FOLDERS [RUNTIMES]]`.

LIMITS is a JSON object with the fields of `Limits`. FOLDERS is a JSON object with two lists of folders, "read" and
"write"; no folder may be inside another. After its start the reader can open only files in these folders and the
libraries of Python. Without FOLDERS its access to files and to the system is not confined. RUNTIMES is a JSON list with
the names of the runtimes that lower models besides the default one; each is loaded before the reader is confined, since
it can open no files of its own afterwards.

The reader receives tasks as messages on standard input and sends its answers as messages on standard output;
`costmodel.serving.isolation.child` defines their format. Before the first task it sends a message that says how it is
confined. It opens no results store and has no secrets.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

from onnx import ModelProto, TensorProto, helper

from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import DEFAULT_RUNTIME, LoopWatcher, get_runtime
from costmodel.serving.isolation.child import open_answers, receive, send
from costmodel.serving.isolation.confinement import Confinement, confine
from costmodel.serving.isolation.limits import Limits, apply_limits, renew_cpu_limit
from costmodel.serving.isolation.reading import Runtimes, answer_task

__all__ = ["main"]

# Share of the time of a task that a loop may run for, if the shapes behind it are only known when it has run.
_LOOP_SHARE = 1 / 6


def main() -> None:
    """Performs the tasks that arrive on standard input, until it ends."""
    answers = open_answers()
    # ONNX Runtime would start a telemetry thread, which is unwanted; one that is started before Landlock applies would
    # not be confined.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # OpenVINO would start one when it is imported, too. Python refuses to import a module that is None, and OpenVINO
    # does without it.
    sys.modules["openvino_telemetry"] = cast(ModuleType, None)
    limits = Limits(**json.loads(sys.argv[1]))
    runtimes = _warm_up(json.loads(sys.argv[3]) if len(sys.argv) > 3 else ())
    for runtime in runtimes.values():
        if isinstance(runtime, LoopWatcher):
            runtime.patience_s = _LOOP_SHARE * limits.wall_s
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


def _warm_up(others: Sequence[str]) -> Runtimes:
    """Loads all libraries that lowering needs, before memory and files are limited; also lowers a tiny model.

    Args:
        others: Names of the runtimes to load besides the default one.

    Returns:
        The runtimes that are loaded, by name; without those that this host does not have.
    """
    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", port[:1], port[1:])
    proto: ModelProto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    runtimes = {DEFAULT_RUNTIME: get_runtime(DEFAULT_RUNTIME)}
    decompose("probe", runtimes[DEFAULT_RUNTIME].lower(read_model(proto), "all"))
    for name in others:
        with suppress(Exception):  # the task that needs the runtime is answered with the reason; others are not harmed
            runtime = get_runtime(name)
            runtime.fingerprint()  # loads its libraries; lowering a model would start threads
            runtimes[name] = runtime
    return runtimes


if __name__ == "__main__":
    main()
