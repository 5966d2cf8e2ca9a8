"""Tells a tuner which settings matter for a runtime, which may not be installed here, and how to set them.

A runtime that this module does not know has every setting, and is set up through costmodel's own interface.
"""

from costmodel.runtimes.base import LEVELS, RuntimeSettings

__all__ = ["levels_of", "snippet_of", "spins"]

_ONE_LEVEL = frozenset({"openvino"})
_NO_SPINNING = frozenset({"openvino"})
_ORT_LEVELS = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
               "all": "ORT_ENABLE_ALL"}  # fmt: skip


def levels_of(runtime: str) -> tuple[str, ...]:
    """Returns the optimisation levels that change what a runtime executes, the highest one first."""
    return ("all",) if runtime in _ONE_LEVEL else tuple(reversed(LEVELS))


def spins(runtime: str, threads: int) -> bool:
    """Returns whether `spinning` has an effect; the calling thread never spins, so that with one thread it has none."""
    return threads > 1 and runtime not in _NO_SPINNING


def snippet_of(runtime: str, settings: RuntimeSettings, path: str, *, batch: int = 1, sessions: int = 1) -> str:
    """Returns lines of Python that open a model in a runtime with these settings.

    Args:
        runtime: Name of the runtime.
        settings: Threads, level and spinning.
        path: Path of the model file, as it is to appear in the lines.
        batch: Number of samples that the model is run with at a time.
        sessions: Number of processes that are to run these lines, beside each other.
    """
    if runtime == "onnxruntime":
        lines = _onnxruntime(settings, path)
    elif runtime == "openvino":
        lines = _openvino(settings, path, sessions)
    else:
        lines = _any_runtime(runtime, settings, path)
    if sessions > 1:
        lines.insert(0, f"# Start {sessions} processes, each of which runs these lines.")
    if batch > 1:
        lines.append(f"# Give each run a batch of {batch}.")
    return "\n".join(lines)


def _onnxruntime(settings: RuntimeSettings, path: str) -> list[str]:
    lines = [
        "import onnxruntime as ort",
        "",
        "options = ort.SessionOptions()",
        f"options.intra_op_num_threads = {settings.threads}",
        "options.inter_op_num_threads = 1",
        f"options.graph_optimization_level = ort.GraphOptimizationLevel.{_ORT_LEVELS[settings.level]}",
    ]
    if settings.threads > 1:
        lines.append(f'options.add_session_config_entry("session.intra_op.allow_spinning", "{settings.spinning:d}")')
    return [*lines, f'session = ort.InferenceSession({path!r}, options, providers=["CPUExecutionProvider"])']


def _openvino(settings: RuntimeSettings, path: str, sessions: int) -> list[str]:
    return [
        "import openvino as ov",
        "",
        "config = {",
        f'    "INFERENCE_NUM_THREADS": {settings.threads},',
        '    "NUM_STREAMS": 1,',
        '    "INFERENCE_PRECISION_HINT": "f32",',
        # Pinned threads of several processes would share CPUs.
        f'    "ENABLE_CPU_PINNING": {settings.threads > 1 and sessions == 1},',
        '    "ENABLE_HYPER_THREADING": False,',
        "}",
        f'compiled = ov.Core().compile_model({path!r}, "CPU", config)',
    ]


def _any_runtime(runtime: str, settings: RuntimeSettings, path: str) -> list[str]:
    return [
        "from costmodel import read_model",
        "from costmodel.runtimes import RuntimeSettings, get_runtime",
        "",
        f"settings = RuntimeSettings({settings.threads}, {settings.level!r}, spinning={settings.spinning})",
        f"runner = get_runtime({runtime!r}).open_model(read_model({path!r}), settings)",
    ]
