"""Two models whose layer times are easily added up, for the tests of the reproduction job."""

from collections.abc import Mapping

from costmodel.ir.graph import LayerGraph
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.store import Store
from tests.fakes import measured

__all__ = ["CALL_US", "FAMILIES", "LAYERS_US", "LOWERING", "TEXTS", "WHOLE_US", "Graphs", "put", "put_time"]

TEXTS = {
    "deep": "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Relu(a) \n y = Tanh(b) }",
    "wide": "(float[2,3] x) => (float[2,3] y) { a = Relu(x) \n b = Exp(x) \n y = Add(a, b) }",
}
FAMILIES = {"deep": "chains", "wide": "branches"}
LOWERING = "fake-1.0-all-simulated"
CALL_US = 2.0
# Latency of each sequence and each model in isolation.
LAYERS_US = {"Relu": 10.0, "Tanh": 20.0, "Exp": 30.0, "Add": 5.0, "Relu+Relu": 18.0}
WHOLE_US = {"deep": 40.0, "wide": 36.0}

Graphs = Mapping[str, LayerGraph]


def put(store: Store, name: str, graph: LayerGraph, granularity: int = 1, *, lowering: str = LOWERING) -> None:
    """Store the sequences that a model consists of."""
    cut = decompose(name, graph, granularity)
    store.put_model(cut, whole_model(graph), digest=name, family=FAMILIES.get(name, name), lowering=lowering)


def put_time(store: Store, sequence: LayerSequence, time_us: float, call_us: float = 0.0) -> None:
    """Store the time of a sequence on the system fake-1, call overhead included."""
    store.put_measurement("fake-1", measured(sequence, [time_us] * 3, overhead_us=call_us), sequence)
