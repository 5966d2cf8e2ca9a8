"""Measures a host's capabilities through a runtime, such as the rates from which analytical bounds are computed."""

import math
import time
from collections.abc import Callable

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.call_overhead import LONG_CHAIN_LAYERS, SHORT_CHAIN_LAYERS, tiny_chain
from costmodel.measure.stopwatch import repeated_us
from costmodel.runtimes.base import Runtime, RuntimeSettings

__all__ = ["measure_capabilities", "reference_sequence"]

_GEMM_SIZE = 1024
_STREAM_ELEMENTS = 1 << 24  # 64 MiB in and 64 MiB out: more than one core's share of any last-level cache
_SCALAR_ELEMENTS = 1 << 16
_ROUNDS = 3


def measure_capabilities(
    runtime: Runtime, settings: RuntimeSettings, clock_ns: Callable[[], int] = time.perf_counter_ns
) -> dict[str, float]:
    """Measures the capabilities of this host through `runtime`, in about six seconds.

    Each network is timed in three rounds, of which the quickest counts: another tenant may disturb the machine for a
    second, and the capabilities of a system are measured once. The quiet times of the probes of the machine's state
    take longer to determine, and are measured separately by `costmodel.measure.machine_state`; so is what an idle time
    costs, by `costmodel.measure.idle`, because a server is not pinned to CPUs.

    Returns:
        "gemm_gflops": rate of a sustained float32 matrix product, in 10^9 operations per second.
        "memory_gbps": rate at which a streaming layer reads and writes memory, in 10^9 bytes per second.
        "scalar_ns": time per element, in nanoseconds, of a layer that calls the C library for each element (Pow, LRN)
            and does not use vector instructions.
        "layer_us": time that a layer with almost no work adds to a call, in microseconds.
        "reference_us": time of the reference kernel on the quiet machine, in microseconds.

    Raises:
        MeasurementError: A network failed, or the clock did not move during a run.
    """
    sequences = {
        "gemm": reference_sequence(_GEMM_SIZE),
        "power": _elementwise("Pow", (_SCALAR_ELEMENTS,), 2),
        "stream": _elementwise("Relu", (_STREAM_ELEMENTS,)),
        "long": tiny_chain(LONG_CHAIN_LAYERS),
        "short": tiny_chain(SHORT_CHAIN_LAYERS),
        "reference": reference_sequence(),
    }
    runners = {name: runtime.open_sequence(sequence, settings) for name, sequence in sequences.items()}
    quickest_us = dict.fromkeys(runners, math.inf)
    for _ in range(_ROUNDS):
        for name, runner in runners.items():
            quickest_us[name] = min(quickest_us[name], repeated_us(runner, clock_ns))
    return {
        "gemm_gflops": 2 * _GEMM_SIZE**3 / quickest_us["gemm"] / 1e3,
        "memory_gbps": 2 * 4 * _STREAM_ELEMENTS / quickest_us["stream"] / 1e3,
        "scalar_ns": quickest_us["power"] * 1e3 / _SCALAR_ELEMENTS,
        "layer_us": max(0.0, quickest_us["long"] - quickest_us["short"]) / (LONG_CHAIN_LAYERS - SHORT_CHAIN_LAYERS),
        "reference_us": quickest_us["reference"],
    }


def _elementwise(op_type: str, shape: tuple[int, ...], inputs: int = 1) -> LayerSequence:
    kind = TensorType("float32", shape)
    since = {"Relu": 6, "Pow": 7}[op_type]
    return LayerSequence(
        layers=(SequenceLayer(op_type, "", since, {}, tuple(range(inputs)), (inputs,)),),
        values=(*(Value(kind, "input") for _ in range(inputs)), Value(kind, "internal")),
        outputs=(inputs,),
    )


def reference_sequence(size: int = 256) -> LayerSequence:
    """Returns the reference kernel: a product of two float32 matrices [size, size], of 2 * size**3 operations."""
    square = TensorType("float32", (size, size))
    return LayerSequence(
        layers=(SequenceLayer("MatMul", "", 1, {}, (0, 1), (2,)),),
        values=(Value(square, "input"), Value(square, "constant"), Value(square, "internal")),
        outputs=(2,),
    )
