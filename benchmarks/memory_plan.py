"""Compares the simulated plan of buffers with that of ONNX Runtime, model by model (docs/adr/0023).

    python benchmarks/memory_plan.py FOLDER ...

From the second run on, a session takes one block for all of its values, whose size is the result of the whole plan: the
order of execution, what is overwritten, which buffers are used again, and where they lie in the block. The runtime
says the size when the arena has to grow for it. Each model runs twice in a process of its own, with an arena that
grows by no more than is requested, so that it nearly always has to.

Where the block fits into memory that is free already, the first request is another one, such as the workspace of a
layer, and the plans look different although they are not; models without any request are counted apart.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

from model_sessions import PREPARED, run_alone

from costmodel.errors import CostModelError
from costmodel.memory.arena import pattern_bytes
from costmodel.memory.buffers import buffer_events
from costmodel.memory.execution_order import execution_order
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.ort.adapter import OnnxRuntime

# The log of the runtime is written to standard error, which becomes standard output here.
CHILD = f"""{PREPARED}
import os

os.dup2(1, 2)
ort.set_default_logger_severity(1)
as_requested = ort.OrtArenaCfg(0, 1, -1, -1)
ort.create_and_register_allocator(
    ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT), as_requested
)
options.add_session_config_entry("session.use_env_allocators", "1")
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = {{name: ort.OrtValue.ortvalue_from_numpy(values) for name, values in zeros_for(session).items()}}
names = [one.name for one in session.get_outputs()]
kept = session.run_with_ort_values(names, feeds)  # the second run cannot use the memory of these outputs
print("second run", flush=True)
session.run_with_ort_values(names, feeds)
"""


def block_of_runtime(path: Path) -> int | None:
    """Returns the size of the block that ONNX Runtime takes for a model's values, in bytes; None if it does not say."""
    said = run_alone(CHILD, path)
    _, _, second = (said or "").partition("second run\n")
    requested = re.search(r"\(requested\) num_bytes: (\d+)", second)
    return int(requested[1]) if requested else None


def main() -> None:
    """Prints the models whose plans differ, and how many are equal."""
    runtime, differences, silent = OnnxRuntime(), list[float](), 0
    for path in sorted(path for folder in sys.argv[1:] for path in Path(folder).rglob("*.onnx")):
        try:
            graph = runtime.lower(read_model(path), "all")
        except CostModelError as error:
            print(f"{path.stem}: {error}")
            continue
        block = block_of_runtime(path)
        if block is None:
            silent += 1
            continue
        simulated = pattern_bytes(list(buffer_events(replace(graph, layers=execution_order(graph)), runtime.block)))
        differences.append(simulated / block - 1)
        if simulated != block:
            print(f"{path.stem}: {simulated / 1e6:.2f} MB, ONNX Runtime {block / 1e6:.2f} MB", flush=True)
    equal, near = (sum(abs(one) <= most for one in differences) for most in (0.0, 0.02))
    print(f"{len(differences)} models: {equal} plans are equal, {near} within 2%; {silent} say nothing")


if __name__ == "__main__":
    main()
