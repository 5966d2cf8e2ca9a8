"""Covers a new model with layer sequences, preferring those that are already measured on a system."""

from collections.abc import Mapping

from costmodel.features.analytical_bound import bound_us
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.cover import cheapest_cover
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.predictor import Predictor
from costmodel.systems.system import System

__all__ = ["cover_of", "run_us"]

# Approximate call overhead: because of it, one sequence of two layers is cheaper than two sequences of one layer.
_CALL_US = 5.0


def cover_of(
    predictor: Predictor, model: str, graph: LayerGraph, granularity: int, *, measured: bool = True
) -> Decomposition:
    """Returns the cover of a model that needs the least new benchmarking time.

    Args:
        predictor: Predictor of the system, whose store has the measurements.
        model: Name of the model.
        graph: Layers of the model.
        granularity: Maximum number of layers in a sequence.
        measured: Whether sequences that are already measured count as needing no benchmarking time; if false, every
            sequence is taken to need some.
    """
    system = predictor.system

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        known = predictor.store.latencies_us(system.name, windows) if measured else {}
        return {s: 0.0 if s in known else run_us(sequence, system) for s, sequence in windows.items()}

    return cheapest_cover(model, graph, granularity, price)


def run_us(sequence: LayerSequence, system: System) -> float:
    """Returns the approximate time in microseconds of one run of a sequence in isolation, from its analytical bound.

    Bounds are used instead of predicted latencies because the bounds of layers add up to the same sum in every cover.
    With predicted latencies, the cover with the lowest sum would often be one whose latencies are predicted too low.
    """
    return _CALL_US + bound_us(sequence, system)
