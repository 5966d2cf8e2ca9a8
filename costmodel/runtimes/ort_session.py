"""Sessions of ONNX Runtime: how they are opened, and what is bound to them so that a run does nothing but the run."""

import ctypes
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import onnxruntime as ort

from costmodel.constants import data_type_of
from costmodel.errors import MeasurementError
from costmodel.runtimes import RuntimeSettings

__all__ = [
    "LEVELS",
    "SessionRunner",
    "first_line",
    "new_session",
    "open_session",
    "ort_value",
    "session_options",
    "shared_arena",
    "watched",
]

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
# How long a network with a loop may take before it is said to have no end.
PATIENCE_S = 60.0
_STOPPED = "terminate flag being set"
_PROVIDERS = ["CPUExecutionProvider"]
# What stands before the sentence in onnxruntime's messages: codes, and where in its source it happened.
_PREFIX = re.compile(r"^.*\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+:\d+ .*?\) (?:const )?(?=[A-Z])")
_LARGE_INPUT_BYTES = 1 << 16
_QUIET = 4  # fatal only: what went wrong reaches the user as our exception
ort.set_default_logger_severity(_QUIET)


_pool_sizes: list[tuple[int, int]] = []


def session_options(settings: RuntimeSettings, *, timed: bool = False, concurrent: bool = False) -> ort.SessionOptions:
    """Options for a session.

    All sessions of a process share one pool of threads as soon as one is timed on several: threads of its own would
    go on spinning after a run, against those of the network that runs next.

    Args:
        settings: Threads, level, spinning.
        timed: Whether the number of threads must be as it says.
        concurrent: Whether layers may run at the same time, as many as the settings say; otherwise it is one by one.

    Raises:
        MeasurementError: It is to be timed, and this process runs on another number of threads.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[settings.level]
    options.log_severity_level = _QUIET
    if timed and settings.threads > 1 and settings.spinning and not _pool_sizes:
        _pool_sizes.append((settings.threads, settings.inter_threads))
        ort.set_global_thread_pool_sizes(*_pool_sizes[0])
    concurrent = concurrent and settings.inter_threads > 1
    if concurrent:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    if _pool_sizes:
        if timed and (_pool_sizes[0] != (settings.threads, settings.inter_threads) or not settings.spinning):
            raise MeasurementError(
                f"this process runs networks on {_pool_sizes[0][0]} spinning threads and cannot change: "
                "start another one for a system with other settings"
            )
        options.use_per_session_threads = False
        return options
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = settings.inter_threads if concurrent else 1
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(settings.spinning)))
    options.add_session_config_entry("session.inter_op.allow_spinning", str(int(settings.spinning)))
    return options


@cache
def shared_arena() -> None:
    """Make the arena that sessions with `session.use_env_allocators` share."""
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(memory, None)


def open_session(
    model: bytes | str,
    settings: RuntimeSettings,
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    timed: bool = False,
    concurrent: bool = False,
) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU.

    Args:
        model: Serialised model, or the path of one.
        settings: Threads, level, spinning.
        weights: Values for the initialisers that the model declares as external; must live as long as the session.
        timed: As in `session_options`.
        concurrent: As in `session_options`.
    """
    options = session_options(settings, timed=timed, concurrent=concurrent)
    if weights:
        values = [ort_value(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    return new_session(model, options)


def new_session(model: bytes | str, options: ort.SessionOptions) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU with options of the caller's."""
    # With its fallback on, onnxruntime announces a failure on standard output, which is for our caller's results.
    return ort.InferenceSession(model, options, providers=_PROVIDERS, enable_fallback=0)


def ort_value(array: np.ndarray) -> Any:
    """An `onnxruntime.OrtValue` of the array's type, also of one that numpy does not have.

    Of a type smaller than a byte, whose elements onnxruntime packs, the values are other ones of that type.
    """
    if array.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), data_type_of(str(array.dtype)))
    content = np.ascontiguousarray(array).tobytes()
    ctypes.memmove(value.data_ptr(), content, value.tensor_size_in_bytes())
    return value


@contextmanager
def watched() -> Iterator[Any]:
    """Options for a run that is stopped where it takes too long: a loop may have no end on made-up values."""
    options = ort.RunOptions()
    timer = threading.Timer(PATIENCE_S, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield options
    finally:
        timer.cancel()


class SessionRunner:
    """A loaded network with its inputs bound, so that a run does nothing but the run."""

    def __init__(self, session: Any, feeds: Mapping[str, np.ndarray], weights: object = None) -> None:
        """Bind.

        Args:
            session: Of onnxruntime.
            feeds: A value for each input.
            weights: What the session reads its weights from, if that is not its own: kept as long as it is.
        """
        self._session = session
        self._weights = weights
        self._binding = session.io_binding()
        self._words = [
            array.reshape(-1).view(np.uint8)[: array.nbytes // 8 * 8].view(np.int64)
            for array in feeds.values()
            if array.nbytes >= _LARGE_INPUT_BYTES and array.dtype.isbuiltin == 1
        ]
        self._feeds = {name: ort_value(array) for name, array in feeds.items()}
        for name, value in self._feeds.items():
            self._binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            self._binding.bind_output(output.name)

    def check_end(self) -> None:
        """Execute a network with a loop once, to see that it comes to an end.

        Raises:
            MeasurementError: It does not, or fails.
        """
        with watched() as options:
            self.run(options)

    def feed(self) -> None:
        """Write every input of some size, each word as it is; small ones never leave the caches."""
        for words in self._words:
            np.bitwise_or(words, 0, out=words)

    def run(self, options: Any = None) -> None:
        """Execute the network once."""
        try:
            self._session.run_with_iobinding(self._binding, options)
        except Exception as error:
            raise MeasurementError(f"the network failed to run: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The sentence in an error of onnxruntime's."""
    text = str(error).strip().splitlines()
    if text and _STOPPED in text[0]:
        return f"a loop in it has no end on synthetic values, or none within {PATIENCE_S:.0f} s"
    line = text[0] if text else type(error).__name__
    # "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from /tmp/... failed:This is ..." - keep the end.
    return _PREFIX.sub("", line).rsplit("failed:", 1)[-1].strip().rstrip(".:")
