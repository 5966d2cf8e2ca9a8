"""Random instances of matrix products."""

from itertools import permutations

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["MORE", "SWEEPS"]


def _rows(d: Draw) -> int:
    return d.pick(1, d.s, d.s, d.size(1, 1024))


def _width(d: Draw) -> int:
    return d.pick(d.h, d.rounded(16, 4096), 4 * d.h, d.pick(10, 100, 1000))


def _dense(d: Draw) -> str:
    width = _width(d)
    d.flops(2, d.n * d.s, d.h, width)
    return f"(float[{d.tokens}] a | float[{d.h},{width}] b) => (float y) {{ y = MatMul(a, b) }}"


def _dense_2d(d: Draw) -> str:
    rows, width = _rows(d), _width(d)
    d.flops(2, rows, d.h, width)
    return f"(float[{rows},{d.h}] a | float[{d.h},{width}] b) => (float y) {{ y = MatMul(a, b) }}"


def _fed(d: Draw) -> str:
    rows, width = _rows(d), _width(d)
    d.flops(2, rows, d.h, width)
    return f"(float[{rows},{d.h}] a, float[{d.h},{width}] b) => (float y) {{ y = MatMul(a, b) }}"


def _heads(d: Draw) -> str:
    """Returns, as ONNX text, a random matrix product of attention: for the scores or for the sum of weighted values."""
    keys = d.pick(d.s, d.s, d.size(1, 512))
    left, right = d.pick((f"{d.s},{d.e}", f"{d.e},{keys}"), (f"{d.s},{keys}", f"{keys},{d.e}"))
    d.flops(2 * d.n * d.a, d.s, d.e, keys)
    return f"(float[{d.n},{d.a},{left}] a, float[{d.n},{d.a},{right}] b) => (float y) {{ y = MatMul(a, b) }}"


def _gemm(d: Draw, then: str = "") -> str:
    rows, width = d.pick(1, 1, d.n, d.size(1, 512)), _width(d)
    d.flops(2, rows, d.h, width)
    turned = d.pick(0, 1, 1)
    shape = f"{width},{d.h}" if turned else f"{d.h},{width}"
    made = f"c = Gemm<transB = {turned}>(a, b, k) y = {then}(c)" if then else f"y = Gemm<transB = {turned}>(a, b, k)"
    return f"(float[{rows},{d.h}] a | float[{shape}] b, float[{width}] k) => (float y) {{ {made} }}"


def _gemm_fed(d: Draw) -> str:
    d.flops(2, d.rows, d.cols, d.c)
    return f"""(float[{d.cols},{d.rows}] a, float[{d.cols},{d.c}] b) => (float y)
        {{ y = Gemm<transA = 1, alpha = 0.5>(a, b) }}"""


def _einsum(equation: str) -> str:
    return f'Einsum<equation = "{equation}">'


def _einsum_heads(d: Draw) -> str:
    d.flops(2 * d.n * d.a, d.s, d.s, d.e)
    return f"""(float[{d.n},{d.s},{d.a},{d.e}] a, float[{d.n},{d.s},{d.a},{d.e}] b) => (float y)
        {{ y = {_einsum("bqhe,bkhe->bhqk")}(a, b) }}"""


def _einsum_values(d: Draw) -> str:
    d.flops(2 * d.n * d.a, d.s, d.s, d.e)
    return f"""(float[{d.scores}] a, float[{d.n},{d.a},{d.s},{d.e}] b) => (float y)
        {{ y = {_einsum("bhqk,bhke->bhqe")}(a, b) }}"""


def _einsum_outer(d: Draw) -> str:
    return f"(float[{d.s}] a, float[{d.e}] b) => (float y) {{ y = {_einsum('i,j->ij')}(a, b) }}"


def _scaled_heads(d: Draw) -> str:
    keys = d.pick(d.s, d.s, d.size(1, 512))
    d.flops(2 * d.n * d.a, d.s, d.e, keys)
    return f"""(float[{d.n},{d.a},{d.s},{d.e}] a, float[{d.n},{d.a},{keys},{d.e}] b) => (float y)
        {{ y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.125>(a, b) }}"""


def _transposed(d: Draw) -> str:
    d.flops(2, d.rows, d.cols, d.c)
    return f"""(float[{d.cols},{d.rows}] a, float[{d.cols},{d.c}] b) => (float y)
        {{ y = com.microsoft.TransposeMatMul<transA = 1>(a, b) }}"""


def _fused_gemm(d: Draw) -> str:
    return _gemm(d, d.pick("Relu", "LeakyRelu", "Tanh", "Sigmoid"))


def _distances(d: Draw) -> str:
    d.flops(4, d.rows, d.c, d.e)
    return f"""(float[{d.rows},{d.e}] a, float[{d.c},{d.e}] b) => (float y)
        {{ y = com.microsoft.CDist<metric = "{d.pick("euclidean", "sqeuclidean")}">(a, b) }}"""


def _experts(d: Draw) -> str:
    experts, hidden = d.pick(4, 8), d.pick(64, 128, 256)
    return f"""(float[{d.s},{hidden}] x, float[{d.s},{experts}] r
        | float[{experts},{2 * hidden},{hidden}] a, float[{experts},{hidden},{2 * hidden}] b) => (float y)
        {{ y = com.microsoft.MoE<k = {d.pick(1, 2)}, activation_type = "{d.pick("gelu", "relu", "silu")}">
            (x, r, a, , b) }}"""


def _square(operator: str) -> Sweep:
    def draw(d: Draw) -> str:
        side = d.size(2, 128)
        return f"(float[{d.n},{side},{side}] x) => (float y) {{ y = {operator}(x) }}"

    return Sweep((draw,), 4)


def _windows(d: Draw) -> str:
    """Returns, as ONNX text, a random batch of many small matrix products, as of attention within windows."""
    count, tokens = d.size(1, 256), d.pick(16, 49, 64, d.size(2, 100))
    left, right = d.pick((f"{tokens},{d.e}", f"{d.e},{tokens}"), (f"{tokens},{tokens}", f"{tokens},{d.e}"))
    d.flops(2 * count * d.a, tokens, tokens, d.e)
    return f"(float[{count},{d.a},{left}] a, float[{count},{d.a},{right}] b) => (float y) {{ y = MatMul(a, b) }}"


def _contraction(d: Draw) -> str:
    """Returns, as ONNX text, an Einsum of two tensors with a random equation; half of the terms are in any order."""
    letters, sizes = iter("abcdefgh"), {}

    def axes(count: int, most: int) -> str:
        chosen = "".join(next(letters) for _ in range(count))
        sizes.update({letter: d.pick(d.size(2, most), d.size(2, most), 1 << d.size(1, 8)) for letter in chosen})
        return chosen

    batch, rows = axes(d.pick(0, 1, 1, 2), 16), axes(d.pick(1, 1, 2), 200)
    columns, depth = axes(d.pick(0, 1, 1, 2), 200), axes(d.pick(1, 1, 2), 128)
    terms = [
        d.pick(term, "".join(d.pick(*permutations(term))))
        for term in (batch + rows + depth, batch + d.pick(columns + depth, depth + columns), batch + rows + columns)
    ]
    d.flops(2, *sizes.values())
    one, other = (",".join(str(sizes[letter]) for letter in term) for term in terms[:2])
    other = d.pick(f", float[{other}] b", f"| float[{other}] b")
    return f"""(float[{one}] a {other}) => (float y)
        {{ y = {_einsum(f"{terms[0]},{terms[1]}->{terms[2]}")}(a, b) }}"""


# Further ways to draw instances of operators on which models spend much time.
MORE: dict[str, tuple[Drawer, ...]] = {"MatMul": (_windows,), "Einsum": (_contraction,) * 9}

SWEEPS: dict[str, Sweep] = {
    "MatMul": Sweep((_dense, _dense, _dense_2d, _heads, _heads, _fed), 42),
    "Gemm": Sweep((_gemm, _gemm, _gemm_fed), 24),
    "com.microsoft.FusedGemm": Sweep((_fused_gemm,), 10),
    "com.microsoft.FusedMatMul": Sweep((_scaled_heads,), 14),
    "com.microsoft.TransposeMatMul": Sweep((_transposed,), 4),
    "Einsum": Sweep((_einsum_heads, _einsum_values, _einsum_outer), 9),
    "com.microsoft.CDist": Sweep((_distances,), 4),
    "com.microsoft.MoE": Sweep((_experts,), 4),
    "com.microsoft.Inverse": _square("com.microsoft.Inverse"),
    "Det": _square("Det"),
}
