"""Tests for the limits of inputs that are indices."""

import numpy as np
import onnx
import pytest

from costmodel.synthetic.index_inputs import index_limits

GRAPHS = {
    "looked up at once": ("int64[4] ids, float[90, 8] table", "y = Gather(table, ids)", 90),
    "along another axis": ("int64[4] ids, float[8, 70] table", "y = Gather<axis = -1>(table, ids)", 70),
    "offset for each field, then split": (
        "int64[2, 3] ids",
        """
        offsets = Constant<value = int64[3] {0, 100, 200}>()
        rows = Add(offsets, ids)
        a, b, c = Split<axis = 1, num_outputs = 3>(rows)
        table = Constant<value = float[2] {0.0, 1.0}>()
        y = Gather(table, b)
        """,
        None,  # fewer rows than what is added
    ),
    "two tables": (
        "int64[2, 3] ids, float[90, 8] large, float[7, 8] small",
        """
        shape = Constant<value = int64[1] {-1}>()
        flat = Reshape(ids, shape)
        u = Gather(large, flat)
        v = Gather(small, flat)
        y = Add(u, v)
        """,
        7,
    ),
    "offset": (
        "int64[4] ids, float[90, 8] table",
        "two = Constant<value = int64[1] {2}>() rows = Add(ids, two) y = Gather(table, rows)",
        88,
    ),
    "chosen": (
        "int64[4] ids, float[60, 8] table",
        """
        zero = Constant<value = int64[1] {0}>()
        known = Less(ids, zero)
        rows = Where(known, zero, ids)
        y = Gather(table, rows)
        """,
        60,
    ),
    "only a condition": (
        "bool[4] m, int64[4] ids, float[60, 8] table",
        "r = Where(m, ids, ids) y = Gather(r, m)",
        None,
    ),
    "not an index": ("int64[4] ids, float[90, 8] table", "m = Cast<to = 1>(ids) y = MatMul(m, m)", None),
    "computed": ("int64[4] ids, float[90, 8] table", "m = Mul(ids, ids) y = Gather(table, m)", None),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_the_limit_of_an_index(case: str) -> None:
    """An index is below the size of every table that it reaches, less what is added on the way."""
    inputs, nodes, limit = GRAPHS[case]
    graph = onnx.parser.parse_graph(f"g ({inputs}) => (float[N] y) {{ {nodes} }}")
    assert index_limits(graph) == ({} if limit is None else {"ids": limit})


def test_a_table_that_is_a_weight() -> None:
    """Initialisers are tables as well, also when their values have been left out."""
    graph = onnx.parser.parse_graph("g (int32[4] ids) => (float[4, 8] y) { y = Gather(table, ids) }")
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((50, 8), np.float32), "table"))
    graph.initializer[0].ClearField("raw_data")
    assert index_limits(graph) == {"ids": 50}
