"""Random instances of control flow operators, which contain subgraphs."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Sweep

__all__ = ["SWEEPS"]


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


SWEEPS: dict[str, Sweep] = {"If": Sweep((_if,), 4), "Loop": Sweep((_loop,), 4), "Scan": Sweep((_scan,), 4)}
