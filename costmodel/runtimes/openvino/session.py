"""Compiles models with OpenVINO's CPU plugin under pinned settings, and runs them with inputs in place."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import openvino as ov

from costmodel.errors import MeasurementError
from costmodel.runtimes.base import RuntimeSettings

__all__ = ["OpenVinoRunner", "SurroundedOpenVinoRunner", "compile_model", "core", "first_line"]

# Settings that OpenVINO takes, and reports as what the processor has.
_WRITE_ONLY = ("ENABLE_HYPER_THREADING",)
_LARGE_BYTES = 1 << 16
# The part of OpenVINO's messages before the sentence: positions in its source code.
_POSITION = re.compile(r"^(?:Exception from |Check '.*' failed at |\S+\.[ch]pp:\d+)")


@cache
def core() -> Any:
    """Returns the `openvino.Core` of this process."""
    return ov.Core()


def compile_model(model: Any, settings: RuntimeSettings, *, counters: bool = False) -> Any:
    """Returns an `openvino.CompiledModel` on the CPU, whose settings were read back.

    OpenVINO would choose bfloat16 and several streams by itself, depending on the processor.

    Args:
        model: An `openvino.Model` with static shapes.
        settings: Threads of the runtime; the other settings have no effect.
        counters: Whether OpenVINO counts the time of each primitive.

    Raises:
        MeasurementError: OpenVINO did not take a setting.
    """
    wanted = {
        "INFERENCE_PRECISION_HINT": ov.Type.f32,
        "EXECUTION_MODE_HINT": ov.properties.hint.ExecutionMode.ACCURACY,
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": settings.threads,
        "ENABLE_CPU_PINNING": _pins(settings.threads),
        "ENABLE_HYPER_THREADING": False,
        "PERF_COUNT": "YES" if counters else "NO",
    }
    compiled = core().compile_model(model, "CPU", wanted)
    for name, value in wanted.items():
        if name in _WRITE_ONLY:
            continue
        if (actual := compiled.get_property(name)) != value:
            raise MeasurementError(f"OpenVINO runs with {name}={actual} where {value} was asked for")
    return compiled


def _pins(threads: int) -> bool:
    """Returns whether OpenVINO is to pin each of so many threads to a CPU of its own.

    It is if the process has one CPU for each, as while costmodel measures: after an idle time Linux often wakes the
    threads on one CPU, and leaves them there for many runs (docs/adr/0029). Pinned threads of two processes would share
    CPUs, so that a process with more CPUs leaves its threads to Linux.
    """
    return threads > 1 and hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == threads


class OpenVinoRunner:
    """A compiled network with inputs in place, so that a run copies no data.

    Attributes:
        compiled: The `openvino.CompiledModel`.
    """

    def __init__(
        self,
        compiled: Any,
        feeds: Mapping[str, np.ndarray],
        output_memory: Callable[[Sequence[int]], Sequence[np.ndarray]] | None = None,
        *,
        warm: bool = False,
    ) -> None:
        """Creates the request that runs the network.

        Args:
            compiled: An `openvino.CompiledModel`.
            feeds: Value of each input by name; kept alive as long as the runner.
            output_memory: Function that returns the memory of outputs, as arrays of bytes, for their sizes in bytes; if
                None, OpenVINO allocates it.
            warm: Whether `feed` also runs the network once, so that everything is in the caches.
        """
        self._warm = warm
        self.compiled = compiled
        self._request = compiled.create_infer_request()
        self._feeds = dict(feeds)
        for port in compiled.inputs:
            name = next(n for n in port.get_names() if n in self._feeds)
            self._request.set_tensor(port, ov.Tensor(self._feeds[name], shared_memory=True))
        self._outputs: Sequence[np.ndarray] = ()
        if output_memory is not None:
            sizes = [port.get_element_type().size * prod(port.get_shape()) for port in compiled.outputs]
            self._outputs = output_memory(sizes)
            for port, memory in zip(compiled.outputs, self._outputs, strict=True):
                kind = port.get_element_type()
                array = memory.view(kind.to_dtype()).reshape(list(port.get_shape()))
                self._request.set_tensor(port, ov.Tensor(array, shared_memory=True))
        self._words = [
            array.reshape(-1).view(np.uint8)[: array.nbytes // 8 * 8].view(np.int64)
            for array in (*self._outputs, *self._feeds.values())
            if array.nbytes >= _LARGE_BYTES
        ]

    def feed(self) -> None:
        """Rewrites the memory of large outputs and inputs with its own values, to put it in the CPU caches.

        Inside a model, a layer reads what the layer before has just written, and writes to memory that another layer
        has just read for the last time. Small tensors never leave the caches.
        """
        if self._warm:
            self.run()
        for words in self._words:
            np.bitwise_or(words, 0, out=words)

    def mean_times(self) -> list[tuple[str, str, float]]:
        """Returns the primitives of a network that was compiled with counters, in execution order.

        Each has its name, the name of its kernel and its mean time over all runs in microseconds, cut to whole ones.
        """
        return [
            (info.node_name, info.exec_type, info.real_time.total_seconds() * 1e6)
            for info in self._request.get_profiling_info()
            if info.status == ov.ProfilingInfo.Status.EXECUTED
        ]

    def results(self) -> list[np.ndarray]:
        """Returns copies of the outputs of the last run."""
        return [self._request.get_tensor(port).data.copy() for port in self.compiled.outputs]

    def run(self) -> None:
        """Executes the network once.

        Raises:
            MeasurementError: The network fails to run.
        """
        try:
            self._request.infer(share_outputs=True)
        except Exception as error:
            raise MeasurementError(f"the network failed to run: {first_line(error)}") from error


class SurroundedOpenVinoRunner(OpenVinoRunner):
    """A runner of a network that contains more than the layers to be timed.

    Attributes:
        surroundings: Runner of the same network without the layers.
    """

    def __init__(
        self,
        compiled: Any,
        feeds: Mapping[str, np.ndarray],
        output_memory: Callable[[Sequence[int]], Sequence[np.ndarray]] | None,
        surroundings: OpenVinoRunner,
        *,
        warm: bool,
    ) -> None:
        """Creates the request that runs the network, as `OpenVinoRunner` does."""
        super().__init__(compiled, feeds, output_memory, warm=warm)
        self.surroundings = surroundings


def first_line(error: Exception) -> str:
    """Returns the sentence in an error message of OpenVINO, without positions in its source code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentences = [line for line in lines if not _POSITION.match(line)]
    return (sentences or lines or [type(error).__name__])[-1].rstrip(".:")
