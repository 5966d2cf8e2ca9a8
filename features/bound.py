"""The analytical bound of a sequence on a system: the roofline model (Williams, Waterman, Patterson, 2009)."""

from costmodel.features.work import Work, layer_work
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["bound_us", "layer_bound_us"]

# Simple operations run at a fraction of the rate of fused multiply-adds: one operation where those do two, and no
# register blocking.
_SIMPLE_RATE = 0.25


def layer_bound_us(work: Work, system: System) -> float:
    """The least time for one layer's work on `system`, without the runtime's own, in microseconds."""
    rate = system.capabilities["gemm_gflops"] * 1e3  # operations a microsecond
    scalar = work.scalar_calls * system.capabilities["scalar_ns"] / 1e3 / system.settings.threads
    compute = work.multiply_flops / rate + work.other_flops / (rate * _SIMPLE_RATE) + scalar
    memory = work.moved_bytes / (system.capabilities["memory_gbps"] * 1e3)
    return max(compute, memory)


def bound_us(sequence: LayerSequence, system: System) -> float:
    """The least time for one call of a sequence: its layers one after the other, and one dispatch.

    Never below the dispatch, so a ratio to it is finite.
    """
    work = sum(layer_bound_us(layer_work(sequence, layer), system) for layer in sequence.layers)
    return work + max(system.capabilities["dispatch_us"], 0.1)
