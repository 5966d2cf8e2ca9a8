"""Random instances of reductions, and of operators that normalise along an axis, such as Softmax."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["SWEEPS"]

_USUAL = ["ReduceMax", "ReduceMean", "ReduceSum"]
_SELDOM = ["ReduceL1", "ReduceL2", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]
_SLOW = 8 << 20


def _over(d: Draw) -> tuple[str, str]:
    """Returns a random tensor shape and the axes over which to reduce the tensor, each as text."""
    return d.pick(
        (d.image, "2,3"), (d.image, "1"), (d.image, "3"), (d.tokens, "-1"), (d.tokens, "1"), (d.scores, "-1"),
        (d.table, "0"), (d.table, "1"), (d.image, "0,1,2,3"),
    )  # fmt: skip


def _reduce(name: str) -> Drawer:
    def draw(d: Draw) -> str:
        shape, axes = _over(d)
        return f"""(float[{shape}] x) => (float y) <int64[{len(axes.split(","))}] a = {{{axes}}}>
            {{ y = {name}<keepdims = {d.pick(0, 1)}>(x, a) }}"""

    return draw


def _extreme(name: str) -> Drawer:
    def draw(d: Draw) -> str:
        shape, axis = d.pick((d.image, 1), (d.tokens, -1), (d.table, 0), (d.table, 1))
        return f"(float[{shape}] x) => (int64 y) {{ y = {name}<axis = {axis}, keepdims = {d.pick(0, 1)}>(x) }}"

    return draw


def _rows(name: str) -> Drawer:
    """Returns a function that draws instances of an operator that acts along one axis, mostly the last."""

    def draw(d: Draw) -> str:
        shape, axis = d.pick(
            (d.scores, -1), (d.scores, -1), (d.table, -1), (d.table, -1), (d.tokens, -1), (d.image, 1), (d.table, 0)
        )
        return f"(float[{shape}] x) => (float y) {{ y = {name}<axis = {axis}>(x) }}"

    return draw


def _cumulated(name: str) -> Drawer:
    return lambda d: (
        f"""(float[{d.table}] x) => (float y) <int64 a = {{{d.pick(0, 1)}}}>
        {{ y = {name}(x, a) }}"""
    )


SWEEPS: dict[str, Sweep] = {
    **{name: Sweep((_reduce(name),), 16) for name in _USUAL},
    **{name: Sweep((_reduce(name),), 5, most_bytes=_SLOW) for name in _SELDOM},
    **{name: Sweep((_extreme(name),), 8, most_bytes=_SLOW) for name in ("ArgMax", "ArgMin")},
    "Softmax": Sweep((_rows("Softmax"),), 22),
    "LogSoftmax": Sweep((_rows("LogSoftmax"),), 8),
    "Hardmax": Sweep((_rows("Hardmax"),), 4, most_bytes=_SLOW),
    "LpNormalization": Sweep((_rows("LpNormalization"),), 6, most_bytes=_SLOW),
    "CumSum": Sweep((_cumulated("CumSum"),), 6),
    "CumProd": Sweep((_cumulated("CumProd"),), 4, opset=26),
}
