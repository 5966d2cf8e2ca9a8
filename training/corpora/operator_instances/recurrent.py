"""Random instances of recurrent layers."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["RESET_AFTER", "SWEEPS"]


def _recurrent(name: str, gates: int, options: str = "") -> Drawer:
    def draw(d: Draw) -> str:
        steps, inputs, hidden = d.size(1, 200), d.rounded(16, 512), d.pick(64, 128, 256, d.rounded(16, 512))
        ways = d.pick(1, 1, 2)
        direction = "forward" if ways == 1 else "bidirectional"
        d.flops(2 * ways * d.n * steps, gates * hidden, inputs + hidden)
        return f"""(float[{steps},{d.n},{inputs}] x
            | float[{ways},{gates * hidden},{inputs}] w, float[{ways},{gates * hidden},{hidden}] r,
            float[{ways},{2 * gates * hidden}] b) => (float y, float h)
            {{ y, h = {name}<hidden_size = {hidden}, direction = "{direction}"{options}>(x, w, r, b) }}"""

    return draw


def _quantised(d: Draw) -> str:
    steps, inputs, hidden = d.size(1, 100), 8 * d.size(2, 32), 8 * d.size(2, 32)
    return f"""(float[{steps},{d.n},{inputs}] x | float[1,{8 * hidden}] b, int8[1,{inputs},{4 * hidden}] w,
        int8[1,{hidden},{4 * hidden}] r, float[1] s, int8[1] z) => (float y)
        {{ y = com.microsoft.DynamicQuantizeLSTM<hidden_size = {hidden}>(x, w, r, b, , , , , s, z, s, z) }}"""


def _attending(d: Draw) -> str:
    steps, inputs, hidden, depth, memory = d.size(2, 40), d.size(8, 128), 2 * d.size(8, 64), 16, d.size(4, 64)
    joint, width = inputs + hidden, hidden + memory
    return f"""(float[{steps},2,{inputs}] x, float[2,{steps},{memory}] m
        | float[1,{4 * hidden},{joint}] w, float[1,{4 * hidden},{hidden}] r, float[1,{hidden},{depth}] q,
        float[1,{memory},{depth}] k, float[1,{depth}] v, float[1,{width},{hidden}] a) => (float y)
        <int32[2] n = {{{steps}, {steps}}}>
        {{ y = com.microsoft.AttnLSTM<hidden_size = {hidden}>(x, w, r, , , , , , q, k, v, m, n, a) }}"""


SWEEPS: dict[str, Sweep] = {
    "LSTM": Sweep((_recurrent("LSTM", 4),), 18),
    "GRU": Sweep((_recurrent("GRU", 3),), 14),
    "RNN": Sweep((_recurrent("RNN", 1),), 6),
    "com.microsoft.DynamicQuantizeLSTM": Sweep((_quantised,), 5),
    "com.microsoft.AttnLSTM": Sweep((_attending,), 3),
}

# GRUs as PyTorch and Keras export them. They apply the reset gate after the product with the recurrent weights, so that
# all gates are one product in each step, where ONNX's default form has two, one after the other.
RESET_AFTER = Sweep((_recurrent("GRU", 3, ", linear_before_reset = 1"),), 60)
