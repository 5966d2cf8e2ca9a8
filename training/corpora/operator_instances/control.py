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


def _counted(state: str, steps: int, step: str, weights: str, body: str) -> str:
    """Returns a Loop over steps as tf2onnx writes it: it ends by a condition on its own counter, and looks steps up.

    Args:
        state: Type and shape of the state h, which the body reads as s and writes as t.
        steps: Number of steps.
        step: Shape of a step, which the body reads as i.
        weights: Weights that the body reads.
        body: Nodes of the body.
    """
    return f"""({state} h, float[{steps},{step}] x | {weights}) => ({state} y, {state.replace("[", f"[{steps},")} all)
        {{ zero = Constant<value = int32 {{0}}>() end = Constant<value = int32 {{{steps}}}>()
           go = Constant<value = bool {{1}}>()
           n, y, all = Loop (, go, zero, h)
             <body = g (int64 number, bool on, int32 k, {state} s) => (bool more, int32 m, {state} t, {state} u)
               {{ one = Constant<value = int32 {{1}}>() m = Add(k, one) more = Less(m, end)
                  i = Gather<axis = 0>(x, k) {body} u = Identity(t) }}> }}"""


def _counted_recurrence(d: Draw) -> str:
    """Returns a plain recurrent layer of Keras: products of the step and of the state."""
    width, size, steps = d.rounded(8, 256), d.rounded(8, 512), d.size(4, 256)
    d.flops(2, width + size, size, steps)
    weights = f"float[{width},{size}] w, float[{size},{size}] v, float[{size}] b"
    body = "p = MatMul(i, w) q = MatMul(s, v) a = Add(p, b) o = Add(a, q) t = Tanh(o)"
    return _counted(f"float[1,{size}]", steps, f"1,{width}", weights, body)


def _counted_convolutions(d: Draw) -> str:
    """Returns a recurrent layer of Keras with convolutions and gates, on images with channels last."""
    channels, filters, side, steps = d.pick(1, 3, d.size(4, 64)), d.size(4, 48), d.size(8, 64), d.size(3, 16)
    d.flops(2 * 9, channels + filters, 4 * filters, side * side, steps)
    weights = f"float[{4 * filters},{channels},3,3] w, float[{4 * filters},{filters},3,3] v, float[{4 * filters}] b"
    body = """j = Transpose<perm = [0, 3, 1, 2]>(i) p = Conv<pads = [1, 1, 1, 1]>(j, w, b)
        r = Transpose<perm = [0, 3, 1, 2]>(s) q = Conv<pads = [1, 1, 1, 1]>(r, v) a = Add(p, q)
        g0, g1, g2, g3 = Split<axis = 1, num_outputs = 4>(a) e0 = HardSigmoid(g0) e1 = HardSigmoid(g1)
        c0 = Tanh(g2) c1 = Mul(e0, c0) c2 = Mul(e1, r) c3 = Add(c1, c2) c4 = Tanh(c3) e3 = HardSigmoid(g3)
        o = Mul(e3, c4) t = Transpose<perm = [0, 2, 3, 1]>(o)"""
    image = f"1,{side},{side}"
    return _counted(f"float[{image},{filters}]", steps, f"{image},{channels}", weights, body)


# Instances with more work in their bodies, for the corpus of kernels.
MORE: dict[str, tuple[Drawer, ...]] = {"Scan": (_distances, _recurrence)}

SWEEPS: dict[str, Sweep] = {
    "If": Sweep((_if,), 4),
    "Loop": Sweep((_loop,), 4),
    "Loop/counted": Sweep((_counted_recurrence, _counted_convolutions), 24),
    "Scan": Sweep((_scan,), 4),
}
