"""What a system can do: the few numbers that every analytical bound is made of, measured through its runtime."""

import time
from collections.abc import Callable

from costmodel.graph import TensorType
from costmodel.measurement import capability_latency_us, reference_sequence
from costmodel.overhead import LONG, SHORT, tiny_chain
from costmodel.runtimes import Runtime, RuntimeSettings
from costmodel.sequence import LayerSequence, SequenceLayer, Value

__all__ = ["measure_capabilities"]

_GEMM_SIZE = 1024
_STREAM_ELEMENTS = 1 << 24  # 64 MiB in and 64 MiB out: beyond any last-level cache's share of one core
_SCALAR_ELEMENTS = 1 << 16


def measure_capabilities(
    runtime: Runtime, settings: RuntimeSettings, clock_ns: Callable[[], int] = time.perf_counter_ns
) -> dict[str, float]:
    """Measure this host through `runtime`; takes about two seconds.

    Returns:
        "gemm_gflops": sustained float32 matrix product, 10^9 operations a second.
        "memory_gbps": bytes read and written by a streaming layer, 10^9 a second.
        "scalar_ns": one element of a layer that calls the C library for it (Pow, LRN), where vectors do not help.
        "layer_us": a layer that has next to nothing to do, among others in one call.
        "reference_us": the reference kernel on the quiet machine.

    How near the threads of a system can be is not told by two seconds: see `costmodel.handover`.
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
        "layer_us": max(0.0, latency_us(tiny_chain(LONG)) - latency_us(tiny_chain(SHORT))) / (LONG - SHORT),
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
