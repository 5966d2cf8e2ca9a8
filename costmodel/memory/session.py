"""Simulates what a session of ONNX Runtime allocates while it loads a model and runs it (docs/adr/0023)."""

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean

from costmodel.ir.graph import LayerGraph
from costmodel.memory.arena import Arena, pattern_bytes
from costmodel.memory.buffers import NARROW, WIDE, BufferEvent, buffer_events, stored_bytes
from costmodel.memory.execution_order import execution_order
from costmodel.memory.heap import Heap
from costmodel.memory.loading import Loaded, load

__all__ = ["MemoryDemand", "memory_demand"]

# The time of a simulation grows with the numbers of layers, of weights, and of buffers that are allocated or freed.
_MOST_LAYERS = 5_000
_MOST_WEIGHTS = 10_000
_MOST_EVENTS = 50_000
# How far the end of the heap is shifted when weights are converted: it is not known modulo 64. Models of more weights
# are simulated for every other shift.
_OFFSETS = (0, 16, 32, 48)
_MOST_WEIGHTS_OF_ALL_OFFSETS = 4_000
# Runs after the first: the second one allocates the block of the memory pattern, the third one finds it free.
_LATER_RUNS = 2


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """Memory that a session allocates for a model, and the work of starting it, as simulated.

    Small blocks that settle beside the weights decide how much of the memory that is freed can be used again, and they
    depend on where the heap of the process ends modulo 64 bytes, which nobody knows. Numbers are means over the four
    cases (two for models of thousands of weights) unless they say otherwise.

    Attributes:
        load_bytes: Peak while the model is loaded: parsed, optimised, and its weights packed.
        run_bytes: Peak while the model runs several times, weights included.
        peak_bytes: Peak over loading and running.
        least_peak_bytes: `peak_bytes` in the best case.
        most_peak_bytes: `peak_bytes` in the worst case.
        layers: Number of layers; each takes memory that is not simulated.
        source_nodes: Number of nodes of the source model; None if it is not known.
        stored_bytes: Size of the weights in the model's file.
        rewritten_bytes: Size of the weights that are folded from others, or reordered in blocks.
        packed_bytes: Size of the matrices that are packed, once for each layer that packs one.
        load_touched_bytes: Memory that becomes resident while the model is loaded.
        first_run_touched_bytes: Memory that becomes resident during the first run.
        from_source: Whether the sizes of the weights before the runtime rewrote them were known.
        in_narrow_blocks: The same on an x86 processor without AVX-512, which keeps values in blocks of 8 channels
            instead of 16; None if that makes no difference.
    """

    load_bytes: int
    run_bytes: int
    peak_bytes: int
    least_peak_bytes: int
    most_peak_bytes: int
    layers: int
    source_nodes: int | None
    stored_bytes: int
    rewritten_bytes: int
    packed_bytes: int
    load_touched_bytes: int
    first_run_touched_bytes: int
    from_source: bool
    in_narrow_blocks: "MemoryDemand | None" = None


def memory_demand(graph: LayerGraph) -> MemoryDemand | None:
    """Returns the memory that a session allocates for a model; None if it has too many layers, weights or values."""
    demand = _demand(graph, WIDE)
    if demand is not None and any(
        stored_bytes(kind, WIDE) != stored_bytes(kind, NARROW) for kind in graph.types.values()
    ):
        return replace(demand, in_narrow_blocks=_demand(graph, NARROW))
    return demand


def _demand(graph: LayerGraph, block: int) -> MemoryDemand | None:
    """Returns the demand with blocks of `block` channels."""
    source = graph.source_weights
    num_weights = len(graph.constants)
    if source is not None:
        num_weights += len(source.stored_bytes) + len(source.folded_bytes) + sum(map(len, source.copied_bytes.values()))
    if len(graph.layers) > _MOST_LAYERS or num_weights > _MOST_WEIGHTS:
        return None
    events = list(buffer_events(replace(graph, layers=execution_order(graph)), block))
    if len(events) > _MOST_EVENTS:
        return None
    offsets = _OFFSETS if num_weights <= _MOST_WEIGHTS_OF_ALL_OFFSETS else _OFFSETS[::2]
    cases = [_simulate(graph, events, offset) for offset in offsets]
    peaks = [max(case.load_bytes, case.run_bytes) for case in cases]
    return MemoryDemand(
        load_bytes=round(fmean(case.load_bytes for case in cases)),
        run_bytes=round(fmean(case.run_bytes for case in cases)),
        peak_bytes=round(fmean(peaks)),
        least_peak_bytes=min(peaks),
        most_peak_bytes=max(peaks),
        layers=len(graph.layers),
        source_nodes=None if source is None else source.nodes,
        stored_bytes=cases[0].loaded.stored_bytes,
        rewritten_bytes=cases[0].loaded.rewritten_bytes,
        packed_bytes=cases[0].loaded.packed_bytes,
        load_touched_bytes=round(fmean(case.load_touched_bytes for case in cases)),
        first_run_touched_bytes=round(fmean(case.first_run_touched_bytes for case in cases)),
        from_source=source is not None,
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """What one simulation found; the names are those of `MemoryDemand`."""

    load_bytes: int
    run_bytes: int
    loaded: Loaded
    load_touched_bytes: int
    first_run_touched_bytes: int


def _simulate(graph: LayerGraph, events: list[BufferEvent], offset: int) -> _Case:
    """Simulates a session that loads a model and runs it, whose buffers `events` allocates and frees."""
    heap = Heap()
    arena = Arena(heap)
    loaded = load(heap, arena, graph, offset=offset)
    load_bytes, load_touched = heap.peak_bytes, heap.touched_bytes
    heap.peak_bytes = heap.resident_bytes
    first_run_touched = _run(heap, arena, events)
    return _Case(load_bytes, heap.peak_bytes, loaded, load_touched, first_run_touched)


def _run(heap: Heap, arena: Arena, events: list[BufferEvent]) -> int:
    """Runs the model several times: first buffer by buffer, later with all buffers of values in one block.

    Returns the bytes that became resident during the first run.
    """
    before, first = heap.touched_bytes, 0
    kept = Counter(event.buffer for event in events)
    returned = [event.buffer for event in events if event.allocated and kept[event.buffer] == 1]
    block = pattern_bytes(events)
    for run in range(1 + _LATER_RUNS):
        pattern = arena.allocate(block) if run and block else None
        chunks = {}
        for event in events:
            if run and event.kind == "value":
                continue
            if event.allocated:
                chunks[event.buffer] = arena.allocate(event.nbytes)
            else:
                arena.free(chunks.pop(event.buffer))
        for number in returned:
            if number in chunks:
                arena.free(chunks.pop(number))
        if pattern is not None:
            arena.free(pattern)
        if not run:
            first = heap.touched_bytes - before
    return first
