"""Probes of a host's capabilities: the rates from which analytical bounds are computed, measured through a runtime."""

import time
from collections.abc import Callable

from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import LayerSequence, SequenceLayer, Value
from costmodel.measure.call_overhead import LONG_CHAIN_LAYERS, SHORT_CHAIN_LAYERS, tiny_chain
from costmodel.measure.measurement import capability_latency_us, reference_sequence
from costmodel.runtimes.base import Runtime, RuntimeSettings

__all__ = ["measure_capabilities"]

_GEMM_SIZE = 1024
_STREAM_ELEMENTS = 1 << 24  # 64 MiB in and 64 MiB out: more than one core's share of any last-level cache
_SCALAR_ELEMENTS = 1 << 16


def measure_capabilities(
    runtime: Runtime, settings: RuntimeSettings, clock_ns: Callable[[], int] = time.perf_counter_ns
) -> dict[str, float]:
    """Measures the capabilities of this host through `runtime`, in about two seconds.

    The time of the thread synchronisation chain ("handover_us") takes longer to determine and is measured separately,
    by `costmodel.measure.thread_sync`.

    Returns:
        "gemm_gflops": rate of a sustained float32 matrix product, in 10^9 operations per second.
        "memory_gbps": rate at which a streaming layer reads and writes memory, in 10^9 bytes per second.
        "scalar_ns": time per element of a layer that calls the C library for each element (Pow, LRN) and does not use
            vector instructions.
        "layer_us": time that a layer with almost no work adds to a call.
        "reference_us": time of the reference kernel on the quiet machine.

    Raises:
        MeasurementError: A network failed, or the clock did not move during a run.
    """

    def latency_us(sequence: LayerSequence) -> float:
        return capability_latency_us(runtime.open_sequence(sequence, settings), clock_ns)

    gemm_us = latency_us(reference_sequence(_GEMM_SIZE))
    power_us = latency_us(_elementwise("Pow", (_SCALAR_ELEMENTS,), 2))
    stream_us = latency_us(_elementwise("Relu", (_STREAM_ELEMENTS,)))
    return {
        "gemm_gflops": 2 * _GEMM_SIZE**3 / gemm_us / 1e3,
        "memory_gbps": 2 * 4 * _STREAM_ELEMENTS / stream_us / 1e3,
        "scalar_ns": power_us * 1e3 / _SCALAR_ELEMENTS,
        "layer_us": max(0.0, latency_us(tiny_chain(LONG_CHAIN_LAYERS)) - latency_us(tiny_chain(SHORT_CHAIN_LAYERS)))
        / (LONG_CHAIN_LAYERS - SHORT_CHAIN_LAYERS),
        "reference_us": latency_us(reference_sequence()),
    }


def _elementwise(op_type: str, shape: tuple[int, ...], inputs: int = 1) -> LayerSequence:
    kind = TensorType("float32", shape)
    since = {"Relu": 6, "Pow": 7}[op_type]
    return LayerSequence(
        layers=(SequenceLayer(op_type, "", since, {}, tuple(range(inputs)), (inputs,)),),
        values=(*(Value(kind, "input") for _ in range(inputs)), Value(kind, "internal")),
        outputs=(inputs,),
    )
