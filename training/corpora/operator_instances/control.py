"""Random instances of control flow operators, which contain subgraphs."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["MORE", "SWEEPS"]


def _if(d: Draw) -> str:
    kind = f"float[{d.table}]"
    return f"""(bool c, {kind} x) => ({kind} y)
        {{ y = If (c) <then_branch = g1 () => ({kind} a) {{ a = Tanh(x) }},
                       else_branch = g2 () => ({kind} b) {{ b = Relu(x) }}> }}"""


def _loop(d: Draw) -> str:
    kind = f"float[{d.c}]"
    return f"""(int64 n, bool c, {kind} x) => ({kind} y, float[m,{d.c}] z)
        {{ y, z = Loop (n, c, x) <body = g (int64 i, bool d, {kind} s) => (bool e, {kind} t, {kind} u)
                                  {{ e = Identity(d) t = Tanh(s) u = Neg(t) }}> }}"""


def _scan(d: Draw) -> str:
    kind, steps = f"float[{d.c}]", d.size(2, 64)
    return f"""({kind} x, float[{steps},{d.c}] k) => ({kind} y, float[{steps},{d.c}] z)
        {{ y, z = Scan <num_scan_inputs = 1, body = g ({kind} s, {kind} i) => ({kind} t, {kind} u)
                        {{ t = Add(s, i) u = Tanh(t) }}> (x, k) }}"""


def _distances(d: Draw) -> str:
    """Returns a Scan that computes the squared distances of all rows of a table from each row of another."""
    columns, rows, steps = d.size(2, 128), d.size(16, 2000), d.size(4, 256)
    d.flops(100, columns, rows, steps)
    table = f"float[{rows},{columns}]"
    return f"""({table} t, float[{steps},{columns}] x) => ({table} u, float[{steps},{rows}] y)
        {{ u, y = Scan <num_scan_inputs = 1, body = g ({table} s, float[{columns}] i) => ({table} v, float[{rows}] z)
                        {{ v = Identity(s) e = Sub(s, i) k = Constant<value = int64[1] {{1}}>()
                           z = ReduceSumSquare<keepdims = 0>(e, k) }}> (t, x) }}"""


def _recurrence(d: Draw) -> str:
    """Returns a Scan that multiplies its state by a matrix in each step."""
    size, steps = d.rounded(8, 512), d.size(4, 256)
    d.flops(2, size, size, steps)
    state = f"float[1,{size}]"
    return f"""({state} h, float[{steps},1,{size}] x, float[{size},{size}] w)
        => ({state} y, float[{steps},1,{size}] z)
        {{ y, z = Scan <num_scan_inputs = 1, body = g ({state} s, {state} i) => ({state} t, {state} u)
                        {{ m = MatMul(s, w) a = Add(m, i) t = Tanh(a) u = Identity(t) }}> (h, x) }}"""


# Instances with more work in their bodies, for the corpus of kernels.
MORE: dict[str, tuple[Drawer, ...]] = {"Scan": (_distances, _recurrence)}

SWEEPS: dict[str, Sweep] = {"If": Sweep((_if,), 4), "Loop": Sweep((_loop,), 4), "Scan": Sweep((_scan,), 4)}
