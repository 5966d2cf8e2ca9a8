"""Covers by what is measured on a system: its sequences are used in a new model wherever they fit."""

from collections.abc import Mapping

from costmodel.features.analytical_bound import bound_us
from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.cover import cheapest_cover
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.predictor import Predictor
from costmodel.systems.system import System

__all__ = ["cover_of", "run_us"]

# About what a call takes beside the layers in it: one sequence of two layers is cheaper than two of one.
_CALL_US = 5.0


def cover_of(
    predictor: Predictor, model: str, graph: LayerGraph, granularity: int, *, measured: bool = True
) -> Decomposition:
    """The cheapest cover of a model: of the layers that no measured sequence holds, the least has to be measured.

    Args:
        predictor: Of the system; its store says what is measured.
        model: Its name.
        graph: Its layers.
        granularity: The most layers in a sequence.
        measured: Whether measurements count; without them all is to be measured.
    """
    system = predictor.system

    def price(windows: Mapping[str, LayerSequence]) -> dict[str, float]:
        known = predictor.store.latencies_us(system.name, windows) if measured else {}
        return {s: 0.0 if s in known else run_us(sequence, system) for s, sequence in windows.items()}

    return cheapest_cover(model, graph, granularity, price)


def run_us(sequence: LayerSequence, system: System) -> float:
    """About what one run of a sequence by itself takes.

    By its bound, which is the same sum however layers are cut: of many predictions the least is one that errs low.
    """
    return _CALL_US + bound_us(sequence, system)
