"""The analytical bound of a sequence on a system: the roofline model (Williams, Waterman, Patterson, 2009)."""

from collections.abc import Iterable

from costmodel.features.work import Work, layer_work
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["bound_us", "call_bound_us", "layer_bound_us"]

# Simple operations run at a fraction of the rate of fused multiply-adds: one operation where those do two, and no
# register blocking.
_SIMPLE_RATE = 0.25
_LEAST_DISPATCH_US = 0.1


def layer_bound_us(work: Work, system: System) -> float:
    """The least time for one layer's work on `system`, without the runtime's own, in microseconds."""
    rate = system.capabilities["gemm_gflops"] * 1e3  # operations a microsecond
    scalar = work.scalar_calls * system.capabilities["scalar_ns"] / 1e3 / system.settings.threads
    compute = work.multiply_flops / rate + work.other_flops / (rate * _SIMPLE_RATE) + scalar
    memory = work.moved_bytes / (system.capabilities["memory_gbps"] * 1e3)
    return max(compute, memory)


def call_bound_us(layer_bounds_us: Iterable[float], system: System) -> float:
    """The least time for one call of layers, one after the other, with these bounds.

    Never below the dispatch of a call, so a ratio to it is finite.
    """
    return sum(layer_bounds_us) + max(system.capabilities["dispatch_us"], _LEAST_DISPATCH_US)


def bound_us(sequence: LayerSequence, system: System) -> float:
    """The least time for one call of a sequence."""
    return call_bound_us((layer_bound_us(layer_work(sequence, layer), system) for layer in sequence.layers), system)
