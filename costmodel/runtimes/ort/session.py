"""Opens sessions of ONNX Runtime, and runs them with bound inputs and outputs, so that only execution is timed."""

import ctypes
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import onnxruntime as ort

from costmodel.errors import MeasurementError
from costmodel.ir.constants import data_type_of
from costmodel.runtimes.base import RuntimeSettings

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
_STOPPED = "terminate flag being set"
_PROVIDERS = ["CPUExecutionProvider"]
# The part of onnxruntime's messages before the sentence: error codes and positions in its source code.
_PREFIX = re.compile(r"^.*\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+:\d+ .*?\) (?:const )?(?=[A-Z])")
_LARGE_INPUT_BYTES = 1 << 16
_QUIET = 4  # fatal messages only, because errors reach the user as exceptions of costmodel
ort.set_default_logger_severity(_QUIET)


_pool_sizes: list[tuple[int, int]] = []


def session_options(settings: RuntimeSettings, *, timed: bool = False, concurrent: bool = False) -> ort.SessionOptions:
    """Returns the options for a session.

    Once a session is to be timed on several spinning threads, all sessions of the process share one pool of threads:
    with a pool for each session, the threads of one network would still spin while the next network runs.

    Args:
        settings: Threads, level and spinning of the session.
        timed: Whether the session is timed, so that its threads must be exactly as in `settings`.
        concurrent: Whether up to `settings.inter_threads` layers may run at the same time; otherwise layers run one
            after the other.

    Raises:
        MeasurementError: The session is to be timed, and the shared pool of this process has other settings.
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
    """Creates the memory arena that all sessions with `session.use_env_allocators` share, unless it exists."""
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
    """Returns an `onnxruntime.InferenceSession` for a model on the CPU.

    Args:
        model: Serialised model, or the path of a model file.
        settings: Threads, level and spinning of the session.
        weights: Values, by name, of the initialisers that the model declares as external; they must live as long as the
            session.
        timed: Whether the session is timed, as in `session_options`.
        concurrent: Whether layers may run at the same time, as in `session_options`.
    """
    options = session_options(settings, timed=timed, concurrent=concurrent)
    if weights:
        values = [ort_value(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    return new_session(model, options)


def new_session(model: bytes | str, options: ort.SessionOptions) -> Any:
    """Returns an `onnxruntime.InferenceSession` on the CPU, with the given options, for a model or its path."""
    # With fallback enabled, onnxruntime prints failures to standard output, which is reserved for results.
    return ort.InferenceSession(model, options, providers=_PROVIDERS, enable_fallback=0)


def ort_value(array: np.ndarray) -> Any:
    """Returns an `onnxruntime.OrtValue` with the type of the array, including types that are not built into numpy.

    onnxruntime packs elements that are smaller than a byte. For such types the values are not those of the array, but
    other values of the same type.
    """
    if array.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), data_type_of(str(array.dtype)))
    content = np.ascontiguousarray(array).tobytes()
    ctypes.memmove(value.data_ptr(), content, value.tensor_size_in_bytes())
    return value


@contextmanager
def watched(patience_s: float) -> Iterator[Any]:
    """Yields run options that stop a run after `patience_s` seconds, as a loop may never end on synthetic values."""
    options = ort.RunOptions()
    timer = threading.Timer(patience_s, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield options
    finally:
        timer.cancel()


class SessionRunner:
    """A loaded network with bound inputs and outputs, so that a run copies no data."""

    def __init__(self, session: Any, feeds: Mapping[str, np.ndarray], weights: object = None) -> None:
        """Binds the inputs and outputs of a session.

        Args:
            session: An `onnxruntime.InferenceSession`.
            feeds: Value of each input by name.
            weights: Memory that the session reads its weights from, if the session does not own it; kept alive as long
                as the runner.
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

    def check_end(self, patience_s: float) -> None:
        """Executes the network, which has a loop, once to check that the loop ends.

        Args:
            patience_s: Time after which the run is stopped, in seconds.

        Raises:
            MeasurementError: The run fails or does not end in time.
        """
        try:
            with watched(patience_s) as options:
                self._session.run_with_iobinding(self._binding, options)
        except Exception as error:
            raise MeasurementError(f"the network failed to run: {first_line(error, patience_s)}") from error

    def feed(self) -> None:
        """Rewrites every large input with its own values, to put it in the CPU caches; small ones never leave them."""
        for words in self._words:
            np.bitwise_or(words, 0, out=words)

    def run(self) -> None:
        """Executes the network once.

        Raises:
            MeasurementError: The network fails to run.
        """
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise MeasurementError(f"the network failed to run: {first_line(error)}") from error


def first_line(error: Exception, patience_s: float | None = None) -> str:
    """Returns the sentence in an error message of onnxruntime, without error codes and positions in its source code.

    Args:
        error: Exception of onnxruntime.
        patience_s: Time limit of the failed run in seconds; None if it had none.
    """
    text = str(error).strip().splitlines()
    if patience_s is not None and text and _STOPPED in text[0]:
        return f"a loop in it has no end on synthetic values, or none within {patience_s:g} s"
    line = text[0] if text else type(error).__name__
    # "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from /tmp/... failed:This is ..." - keep the end.
    return _PREFIX.sub("", line).rsplit("failed:", 1)[-1].strip().rstrip(".:")
