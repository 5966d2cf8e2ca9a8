"""The analytical bound of a sequence on a system: the roofline model (Williams, Waterman, Patterson, 2009)."""

from costmodel.features.work import Work, layer_work
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["bound_us", "layer_bound_us"]

# Simple operations run at a fraction of the rate of fused multiply-adds: one operation where those do two, and no
# register blocking.
_SIMPLE_RATE = 0.25
_LEAST_LAYER_US = 0.1


def layer_bound_us(work: Work, system: System) -> float:
    """The least time for one layer on `system`, in microseconds: its work, and what any layer takes of the runtime.

    Never 0, so a ratio to it is finite.
    """
    rate = system.capabilities["gemm_gflops"] * 1e3  # operations a microsecond
    scalar = work.scalar_calls * system.capabilities["scalar_ns"] / 1e3 / system.settings.threads
    compute = work.multiply_flops / rate + work.other_flops / (rate * _SIMPLE_RATE) + scalar
    memory = work.moved_bytes / (system.capabilities["memory_gbps"] * 1e3)
    return max(compute, memory) + max(system.capabilities["layer_us"], _LEAST_LAYER_US)


def bound_us(sequence: LayerSequence, system: System) -> float:
    """The least time for a sequence, whose layers run one after the other."""
    return sum(layer_bound_us(layer_work(sequence, layer), system) for layer in sequence.layers)
