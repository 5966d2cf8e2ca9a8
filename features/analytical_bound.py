"""Analytical lower bound of the cost of a sequence: the roofline model (Williams, Waterman, Patterson, 2009)."""

import math

from costmodel.features.divided_products import ProductTasks
from costmodel.features.work import Work, layer_work
from costmodel.ir.sequence import LayerSequence
from costmodel.runtimes.kernels import has_channels_last, has_thread_rules
from costmodel.systems.microarchitecture import microarchitecture_facts
from costmodel.systems.system import System

__all__ = [
    "bound_us",
    "copy_flops_of",
    "kernel_slowdown",
    "layer_bound_us",
    "other_flops_of",
    "threads_speedup",
    "waiting_us",
]

# Simple operations run at a fraction of the rate of fused multiply-adds: one operation per instruction instead of two,
# and no register blocking.
_SIMPLE_RATE = 0.25
_MIN_LAYER_US = 0.1
_LEAST_LANES = 4  # elements of a vector on any processor
_MOST_UNITS = 2.0  # vectors that a core multiplies and adds in a cycle; fewer on some
# To write an element whose cache line has been displaced mostly takes 3 to 6 ns, on a Zen 3, a Zen 4 and a Zen 5, and
# less for small tensors: this part is an estimate and no bound.
_CONFLICT_US = 4e-3
# To hand out work to two threads and to wait for them takes about 1.5 us on two processors and 4 us on a third; to
# eight threads 7 to 9 us and to sixteen 14 us on the one that has them (docs/adr/0030).
_REGION_US, _REGION_EXPONENT = 1.5, 1.5
# Where a kernel hands out work again at once, the threads are still awake: 0.3 us on a Zen 4. A cache line that two of
# them write at the same time takes 20 ns there.
_NEXT_REGION, _SHARED_LINE_US = 0.2, 0.02


def layer_bound_us(work: Work, system: System) -> float:
    """Returns a lower bound on the cost of one layer on `system`, in microseconds.

    The bound is the roofline of the layer's work, with vectors filled up and the arithmetic divided evenly among the
    threads, plus the time that the runtime takes for any layer, even an empty one, and for those inside it. It is never
    0, so that a ratio to it is finite.
    """
    memory = work.moved_bytes / (system.capabilities["memory_gbps"] * 1e3)
    of_layers = (1 + work.inner_layers) * max(system.capabilities["layer_us"], _MIN_LAYER_US)
    return max(_compute_us(work, system, 1) / system.settings.threads, memory) + of_layers


def threads_speedup(work: Work, system: System, threads: int) -> float:
    """Returns how many times as quick a layer's arithmetic is on some threads of a system's host as on one.

    Where it is not known how the kernels of the runtime divide their work, it is divided evenly.
    """
    if threads == 1 or not has_thread_rules(system.runtime):
        return float(threads)
    undivided = work.undivided_flops / (_rate(system) * _SIMPLE_RATE)
    together = _compute_us(work, system, threads) + undivided
    return (_compute_us(work, system, 1) + undivided) / together if together else 1.0


def waiting_us(work: Work, system: System, threads: int) -> float:
    """Returns how long some threads of a system's host wait for each other in a layer, in microseconds.

    It is 0 for one thread, and where it is not known how the kernels of the runtime divide their work.
    """
    if threads == 1 or not has_thread_rules(system.runtime):
        return 0.0
    tasks = _tasks(work, system)
    region_us = _REGION_US * math.log2(threads) ** _REGION_EXPONENT
    if tasks is not None:
        return float(tasks.regions(threads) * region_us)
    regions = work.division.regions
    regions_us = region_us * (1 + _NEXT_REGION * (regions - 1)) if regions else 0.0
    return float(regions_us + work.division.shared_rows * _SHARED_LINE_US)


def _compute_us(work: Work, system: System, threads: int) -> float:
    """Returns the time of a layer's arithmetic and copies on some threads, each as quick as one of the system's."""
    rate = _rate(system)
    others = work.division.speedup(threads)
    tasks = _tasks(work, system)
    products = others if tasks is None else tasks.speedup(threads)
    copies = 1.0 if work.copies_on_one_thread else products
    return (
        work.multiply_flops * kernel_slowdown(work, system) / (rate * products)
        + (other_flops_of(work, system) / others + copy_flops_of(work, system) / copies) / (rate * _SIMPLE_RATE)
        + work.scalar_calls * system.capabilities["scalar_ns"] / 1e3 / others
        + work.conflicting_writes * _CONFLICT_US / copies
    )


def other_flops_of(work: Work, system: System) -> float:
    """Returns the arithmetic of a layer besides its products by the runtime of a system, in simple operations."""
    return work.other_flops + (0.0 if has_channels_last(system.runtime) else work.one_by_one_flops)


def copy_flops_of(work: Work, system: System) -> float:
    """Returns the time of a layer's copies by the runtime of a system, in simple operations."""
    return work.row_copy_flops if has_channels_last(system.runtime) else work.copy_flops


def _rate(system: System) -> float:
    """Returns the operations of one thread per microsecond."""
    return system.capabilities["gemm_gflops"] * 1e3 / system.settings.threads


def _tasks(work: Work, system: System) -> ProductTasks | None:
    return work.tasks if work.blocked is None else ProductTasks(work.blocked.tasks(_lanes(system)))


def _lanes(system: System) -> int:
    assert system.host is not None
    return max(_LEAST_LANES, system.host.vector_bits // 32)


def kernel_slowdown(work: Work, system: System) -> float:
    """Returns how many times as long a layer's multiplications take as if all vectors were full and all units busy."""
    assert system.host is not None
    lanes = _lanes(system)
    if work.integers.path:
        return work.integers.slowdown(system.host.isa)
    if work.channels_last is not None and has_channels_last(system.runtime):
        return work.channels_last.slowdown(lanes)
    if work.blocked is not None:
        facts = microarchitecture_facts(system.host.microarchitecture)
        units = _MOST_UNITS if facts is None else min(_MOST_UNITS, facts.flops_per_cycle / (2 * lanes))
        return work.blocked.slowdown(lanes, units)
    return -(-work.vectorised // lanes) * lanes / work.vectorised if work.vectorised else 1.0


def bound_us(sequence: LayerSequence, system: System) -> float:
    """Returns a lower bound on the cost of a sequence, in microseconds: the sum of its layers' bounds."""
    return sum(layer_bound_us(layer_work(sequence, layer), system) for layer in sequence.layers)
