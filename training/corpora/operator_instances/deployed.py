"""Random instances of layers that deployed networks have, such as those that Python packages ship, and research's few.

Sounds are cut into frames, transformed and filtered; small recurrent layers run over a thousand steps; convolutions are
quantised as the model runs; activations are those of an earlier decade; Keras' tensors end in an axis of length 1.
"""

from costmodel.training.corpora.operator_instances.draw import Draw, TooExpensiveError
from costmodel.training.corpora.operator_instances.instance import Sweep, on_one_input

__all__ = ["SWEEPS"]

_MOST_STEP_FLOPS = 4e8


def _recurrence(d: Draw) -> str:
    """Returns a recurrent layer over many steps, which starts from a state that is given."""
    name, gates, options = d.pick(
        ("LSTM", 4, ""), ("LSTM", 4, ""), ("GRU", 3, ", linear_before_reset = 1"), ("GRU", 3, ""), ("RNN", 1, "")
    )
    steps, inputs, hidden, ways = d.size(8, 2000), d.size(1, 512), d.size(3, 256), d.pick(1, 1, 2)
    if 2.0 * ways * steps * gates * hidden * (inputs + hidden) > _MOST_STEP_FLOPS:
        raise TooExpensiveError
    direction = "bidirectional" if ways == 2 else d.pick("forward", "forward", "reverse")
    state = f"float[{ways},1,{hidden}]"
    cell_type, cell = (f", {state} c", ", c") if name == "LSTM" else ("", "")
    return f"""(float[{steps},1,{inputs}] x, {state} s{cell_type}
        | float[{ways},{gates * hidden},{inputs}] w, float[{ways},{gates * hidden},{hidden}] r,
        float[{ways},{2 * gates * hidden}] b) => (float y, float h)
        {{ y, h = {name}<hidden_size = {hidden}, direction = "{direction}"{options}>(x, w, r, b, , s{cell}) }}"""


def _frames(d: Draw) -> tuple[int, int, int]:
    """Returns a number of frames of a sound, the length of one, and how far they are apart."""
    length = d.pick(256, 400, 400, 512, 512, 1024, d.size(64, 2048))
    return d.size(8, 2000), length, max(1, length // d.pick(1, 2, 2, 3, 4))


def _short_fourier(d: Draw) -> str:
    frames, length, step = _frames(d)
    d.flops(1500, frames, length)
    return f"""(float[1,{(frames - 1) * step + length}] x, float[{length}] w) => (float y)
        <int64 n = {{{length}}}, int64 s = {{{step}}}> {{ y = STFT<onesided = 1>(x, s, w, n) }}"""


def _padded_fourier(d: Draw) -> str:
    """Returns a transform of all frames, each padded to a length that is mostly a power of two."""
    frames, length, _ = _frames(d)
    padded = d.pick(1 << (length - 1).bit_length(), 1 << (length - 1).bit_length(), length)
    d.flops(1500, frames, length)
    return f"""(float[1,{frames},{length},1] x) => (float y)
        <int64 n = {{{padded}}}, int64 axis = {{2}}> {{ y = DFT<onesided = 1>(x, n, axis) }}"""


def _filter_bank(d: Draw) -> str:
    """Returns a convolution of a sound with long filters, as transforms and resampling are written."""
    frames, length, step = _frames(d)
    filters = d.pick(length + 2, d.size(16, 512))
    d.flops(2, frames, length, filters)
    kernel = f"strides = [{step}], pads = [{d.pick(0, length // 2)}, 0]"
    return f"""(float[1,1,{(frames - 1) * step + length}] x | float[{filters},1,{length}] w) => (float y)
        {{ y = Conv<{kernel}>(x, w) }}"""


def _column(d: Draw) -> str:
    """Returns a convolution along one axis of images, with filters that are wide or high."""
    inputs, outputs, length, k = d.rounded(4, 256), d.rounded(8, 512), d.size(16, 1000), d.size(2, 40)
    across = d.pick(1, 1, d.size(2, 64))
    d.flops(2, inputs, outputs, length, across, k)
    shape, kernel = d.pick((f"{length},{across}", f"{k},1"), (f"{across},{length}", f"1,{k}"))
    after = d.pick("Relu", "Elu", "Identity", "Tanh")
    return f"""(float[1,{inputs},{shape}] x | float[{outputs},{inputs},{kernel}] w, float[{outputs}] b) => (float y)
        {{ c = Conv<auto_pad = "{d.pick("VALID", "SAME_UPPER")}">(x, w, b) y = {after}(c) }}"""


def _window(d: Draw) -> str:
    """Returns a convolution with windows that are much wider than high, as of spectrograms."""
    inputs, outputs, height, width = d.size(1, 32), d.size(4, 64), d.size(16, 400), d.size(32, 400)
    k, wide = d.pick(1, 3, 3, 5), d.size(5, 48)
    d.flops(2, inputs, outputs, height, width, k, wide)
    after = d.pick("Relu", "Identity", "Sigmoid")
    return f"""(float[1,{inputs},{height},{width}] x | float[{outputs},{inputs},{k},{wide}] w, float[{outputs}] b)
        => (float y) {{ c = Conv<auto_pad = "SAME_UPPER">(x, w, b) y = {after}(c) }}"""


def _unfolded(d: Draw) -> str:
    """Returns a convolution whose filters are no constants, so that the runtime cannot reorder them.

    They are dequantised as the model runs, or may be overridden by its user.
    """
    side, k, stride = d.pick(7, 14, 28, 56, d.size(4, 120)), d.pick(1, 1, 3), d.pick(1, 1, 2)
    channels = 16 * d.size(1, 64)
    outputs, of_group, group = d.pick((16 * d.size(1, 96), channels, 1), (channels, 1, channels))
    d.flops(2 * k * k, outputs, of_group, side, side)
    shape, filters = f"1,{channels},{side},{side}", f"[{outputs},{of_group},{k},{k}]"
    window = f"group = {group}, strides = [{stride}, {stride}], pads = {[(k - 1) // 2] * 4}"
    if d.pick(True, False):
        return f"""(float[{shape}] x | int8{filters} q) => (float y) <float s = {{0.01}}, int8 z = {{0}}>
            {{ w = DequantizeLinear(q, s, z) y = Conv<{window}>(x, w) }}"""
    return f"(float[{shape}] x, float{filters} w) => (float y) {{ y = Conv<{window}>(x, w) }}"


def _quantised_recurrence(d: Draw) -> str:
    steps, inputs, hidden, ways = d.size(4, 200), 16 * d.size(2, 32), 16 * d.size(2, 32), d.pick(1, 2)
    d.flops(8 * ways * steps, hidden, inputs + hidden)
    direction = "forward" if ways == 1 else "bidirectional"
    return f"""(float[{steps},1,{inputs}] x | float[{ways},{8 * hidden}] b, int8[{ways},{inputs},{4 * hidden}] w,
        int8[{ways},{hidden},{4 * hidden}] r, float[{ways}] s, int8[{ways}] z) => (float y)
        {{ y = com.microsoft.DynamicQuantizeLSTM<hidden_size = {hidden}, direction = "{direction}">
            (x, w, r, b, , , , , s, z, s, z) }}"""


def _integers(d: Draw) -> str:
    """Returns a convolution of a sequence or of an image that is quantised as the model runs."""
    inputs, outputs, k = 16 * d.size(1, 32), 16 * d.size(1, 32), d.pick(1, 3, 3, 5)
    image, rank = d.pick((f"{d.size(16, 1000)}", 1), (f"{d.i},{d.i}", 2))
    positions = int(image) if rank == 1 else d.i * d.i
    d.flops(8, inputs, outputs, positions, k**rank)
    weights = f"{d.pick('int8', 'uint8')}[{outputs},{inputs},{','.join([str(k)] * rank)}]"
    return f"""(uint8[1,{inputs},{image}] x, uint8 z | {weights} w) => (int32 y)
        {{ y = ConvInteger<pads = {[(k - 1) // 2] * 2 * rank}>(x, w, z) }}"""


def _activation(d: Draw) -> str:
    channels, height, width = d.size(4, 256), d.size(1, 500), d.size(1, 200)
    shape, slopes = d.pick(
        (f"1,{channels},{height},{width}", f"{channels},1,1"),
        (f"1,{channels},{width}", f"{channels},1"),
        (f"{height},{channels}", f"{channels}"),
    )
    step, weights = d.pick(
        ("y = Elu(x)", ""),
        ("y = Elu(x)", ""),
        ("a = Abs(x) y = Log(a)", ""),
        ("y = PRelu(x, w)", f"float[{slopes}] w"),
        ("y = Softplus(x)", ""),
        ("y = HardSwish(x)", ""),
    )
    return on_one_input(f"float[{shape}]", step, weights)


def _power(d: Draw) -> str:
    """Returns the power of complex numbers, whose parts are the last axis or the second one."""
    frames, bins = d.size(8, 3000), d.size(32, 512)
    shape, axis = d.pick((f"1,{frames},{bins},2", -1), (f"1,2,{bins},{frames}", 1))
    return on_one_input(
        f"float[{shape}]",
        f"y = {d.pick('ReduceSumSquare', 'ReduceSumSquare', 'ReduceL2')}<keepdims = 0>(x, a)",
        made=f"<int64[1] a = {{{axis}}}>",
    )


def _last_axis_of_one(d: Draw) -> str:
    """Returns an operation on tensors whose last axis has length 1, as TensorFlow's sequences have."""
    shape = f"1,{d.size(16, 400)},{d.size(16, 400)},1"
    step, weights = d.pick(
        ("y = Add(x, w)", "float[1] w"),
        ("y = Mul(x, w)", "float[1] w"),
        ("y = Sub(x, w)", "float[1,1,1,1] w"),
        ("y = Concat<axis = -1>(x, x, x, x)", ""),
        ("y = Concat<axis = -1>(x, x)", ""),
    )
    return on_one_input(f"float[{shape}]", step, weights)


def _branches(d: Draw) -> str:
    """Returns a layer that runs one of two perceptrons, or passes a tensor on in one of two shapes."""
    rows, width, hidden = d.size(1, 64), d.rounded(8, 512), d.rounded(8, 512)
    kind = f"float[{rows},{width}]"
    if d.pick(True, False):
        weights = f"float[{width},{hidden}] w, float[{hidden},{width}] v"
        made = "m = MatMul(x, w) r = Relu(m) n = MatMul(r, v)"
        first, second = f"{made} a = Add(n, x)", f"{made} b = Sub(n, x)"
        return f"""(bool c, {kind} x | {weights}) => ({kind} y)
            {{ y = If (c) <then_branch = g1 () => ({kind} a) {{ {first} }},
                           else_branch = g2 () => ({kind} b) {{ {second} }}> }}"""
    return f"""(bool c, float[{rows},1,{width}] x) => (float[m,{width}] y)
        {{ y = If (c) <then_branch = g1 () => (float[m,{width}] a)
                           {{ k = Constant<value = int64[1] {{1}}>() a = Squeeze(x, k) }},
                       else_branch = g2 () => (float[n,{width}] b)
                           {{ l = Constant<value = int64[1] {{1}}>() b = Squeeze(x, l) }}> }}"""


def _normalised(d: Draw) -> str:
    """Returns operations on the few tokens of a small transformer that is unrolled."""
    rows, width, heads = d.size(1, 64), d.pick(64, 96, 128, 192, 256), d.pick(2, 4, 8)
    step, inputs, weights = d.pick(
        (
            "s = Add(x, z) y = LayerNormalization(s, w, b)",
            f"float[{rows},1,{width}] x, float[{rows},1,{width}] z",
            f"float[{width}] w, float[{width}] b",
        ),
        ("y = Where(m, f, x)", f"bool[{heads},1,{rows}] m, float[{heads},1,{rows}] x", "float[1] f"),
        ("y = Softmax(x)", f"float[{heads},{rows},{rows}] x", ""),
    )
    bar = f" | {weights}" if weights else ""
    return f"({inputs}{bar}) => (float y) {{ {step} }}"


# Kinds of instances by name; a model has so many of each.
SWEEPS: dict[str, Sweep] = {
    "recurrence": Sweep((_recurrence,), 6),
    "short_fourier": Sweep((_short_fourier,), 2),
    "padded_fourier": Sweep((_padded_fourier,), 2),
    "filter_bank": Sweep((_filter_bank,), 2),
    "column": Sweep((_column,), 3),
    "window": Sweep((_window,), 2),
    "unfolded": Sweep((_unfolded,), 4),
    "quantised_recurrence": Sweep((_quantised_recurrence,), 1),
    "integers": Sweep((_integers,), 3),
    "activation": Sweep((_activation,), 4),
    "power": Sweep((_power,), 1),
    "last_axis_of_one": Sweep((_last_axis_of_one,), 2),
    "branches": Sweep((_branches,), 2),
    "normalised": Sweep((_normalised,), 2),
}
