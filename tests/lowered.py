"""Properties that every lowered graph has."""

from costmodel.ir.graph import LayerGraph


def check_graph(graph: LayerGraph) -> None:
    """Asserts that values are made before they are read, that names are unique, and that exactly the used are typed."""
    made = set(graph.inputs) | set(graph.constants) | {""}
    for layer in graph.layers:
        assert made.issuperset(layer.inputs)
        made |= set(layer.outputs)
    assert made.issuperset(graph.outputs)
    assert len({layer.name for layer in graph.layers}) == len(graph.layers)
    used = {name for layer in graph.layers for name in (*layer.inputs, *layer.outputs) if name}
    assert used == set(graph.types)
    assert all(size >= 0 for kind in graph.types.values() for size in kind.shape)
    assert graph.data_dependent <= used
